// Ends connections on which the head of a request takes too long. The library bounds each read, not all of them: a byte
// now and then would hold a connection, and the thread that reads it, for days, and nobody needs a token for that.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_HEAD_DEADLINE_H_
#define TRAINYARD_OPERATOR_LOCAL_API_HEAD_DEADLINE_H_

#include <map>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"

namespace trainyard::local {

// From the connection's beginning, TLS included, to the end of the first head; and from an answer to the end of the
// next one, which may be long in coming on a connection that is kept.
inline constexpr double kHeadSeconds = 10, kNextHeadSeconds = 30;

// This process's connections to `port` of its own, by descriptor, with the other side's port.
std::map<int, int> ConnectionsTo(int port);

// Thread-safe. The library does not say which connections it has: each Sweep looks for them.
class HeadDeadline {
 public:
  // Ends those to `port` whose time is over. To be called about once a second.
  void Sweep(int port);
  // The connection's head is whole; no deadline until it is answered.
  void Answering(int file);
  void Answered(int file);

 private:
  struct Connection {
    int peer = 0;  // another one's when the descriptor was closed and used again
    bool answering = false;
    Instant deadline{};
  };
  Mutex mutex_;
  std::map<int, Connection> connections_ GUARDED_BY(mutex_);  // by descriptor
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_HEAD_DEADLINE_H_

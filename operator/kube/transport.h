// Requests to one API server: connections, identity, deadlines.
//
//   - Requests share a few connections and wait for one; a stream has one of its own. A new identity has new
//     connections.
//   - What a broken connection cannot have done is sent once more: a GET of which nothing was delivered yet, and a
//     request that was not sent whole.
//   - After a 401 the credentials are read again, and the request is sent once more.
//   - Nothing is written by an operator that does not lead: a write that waited, for a token, a connection or after a
//     429, is judged when it is sent.
//   - Answers that are held are short, but for one at a time: what a user may write is as long as etcd takes it, and
//     all workers may be answered at once.
//   - Every exchange has a deadline, from looking up the host to the last byte, and ends with the stop.
#ifndef TRAINYARD_OPERATOR_KUBE_TRANSPORT_H_
#define TRAINYARD_OPERATOR_KUBE_TRANSPORT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "operator/kube/credentials.h"
#include "operator/kube/request_metrics.h"
#include "operator/kube/turns.h"
#include "operator/net/http.h"

namespace trainyard::kube {

// What the server said, whatever its code.
struct Answer {
  int code = 0;
  std::string retry_after;  // the field, as it came; empty: none
  Turns::Turn turn;         // of a long body: no other is read while this one is held
  std::string body;         // empty when it was delivered
};

// Hears of a body as it comes; false: wants no more of it.
using OnData = std::function<bool(const char* data, size_t size)>;

// What is told of a stream besides its data; either may be empty.
struct StreamNews {
  std::function<void()> accepted;  // before the first piece
  // Once, if that has not come silent_seconds later. A failure ends the stream with it.
  std::function<Status()> silent;
  double silent_seconds = 0;
};

inline constexpr char kJson[] = "application/json";

// Thread-safe.
class Transport {
 public:
  struct Options {
    int max_connections = 24;  // more than one job's turn takes (Executor's `parallel`)
    // Without those for credentials. The API server itself gives up after 60 (--request-timeout).
    double request_seconds = 65;
    double plugin_seconds = 0;          // that the credentials' plugin has at least (credentials.h)
    RequestMetrics* metrics = nullptr;  // where each attempt is counted, if anywhere
    // Asked of each request but a GET, when a connection is ready for it; false: it is kStopped, and not sent. Nothing:
    // all are. What is on its way when the lead is lost is not called back: each write of ours is idempotent, or
    // carries what it expects (a uid, a resourceVersion).
    std::function<bool()> may_write;
  };
  // All references must outlive it.
  Transport(Endpoint endpoint, const Clock& clock, const StopFlag& stop, Options options);

  // kUnavailable when there is no answer (what the server has done is then unknown, unless it was a GET),
  // kDeadline, kStopped; what the credentials lack.
  Result<Answer> Send(const std::string& method, const std::string& target, const std::string& content_type,
                      const std::string& body);
  // A GET whose body is delivered as it comes if its code is 200; any other answer comes whole. On an error some of
  // it may have been delivered. `accept`: the form of it that is wanted.
  Result<Answer> Fetch(const std::string& target, const std::string& accept, const OnData& on_data);
  // The same on a connection of its own, which goes on until the body ends, `on_data` returns false, or `stop`. Takes
  // at most `seconds`, besides what news.silent takes, and until the server accepts it request_seconds.
  Result<Answer> Stream(const std::string& target, double seconds, const StopFlag& stop, const StreamNews& news,
                        const OnData& on_data);

 private:
  struct Pooled {
    std::unique_ptr<net::Connection> connection;
    std::shared_ptr<const net::TlsContext> tls;
  };
  net::HttpRequest Make(const std::string& method, const std::string& target, const std::string& accept,
                        const Identity& identity) const;
  struct Body {
    std::string type, text;
  };
  Result<Answer> Request(const std::string& method, const std::string& target, const std::string& accept,
                         const Body& body, const OnData& on_data);
  Result<Answer> Try(const net::HttpRequest& request, const OnData& on_data, const Identity& identity,
                     const net::Wait& wait);
  // Once, as `identity`. `opening`: until it is accepted.
  Result<Answer> StreamAs(const Identity& identity, const std::string& target, const net::Wait& wait,
                          const net::Wait& opening, const StreamNews& news, const OnData& on_data);
  Result<std::unique_ptr<net::Connection>> Open(const Identity& identity, const net::Wait& wait) const;
  std::unique_ptr<net::Connection> TakeIdle(const Identity& identity);
  void PutBack(std::unique_ptr<net::Connection> connection, const Identity& identity);

  const Endpoint endpoint_;
  const StopFlag& stop_;
  const Options options_;
  Credentials credentials_;
  Turns connections_, long_bodies_{1};
  Mutex mutex_;
  std::vector<Pooled> idle_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_TRANSPORT_H_

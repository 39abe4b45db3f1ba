// Short answers of many strangers at once, by one thread: GET over plain HTTP.
//
//   - Every exchange has one deadline, from the first packet of its connection to the last byte of its
//     answer: one that drips ends like one that is silent.
//   - An answer longer than the limit is refused while it comes; nothing is decompressed, no redirect
//     followed, no name looked up.
//   - So many are in flight and no more, so a thousand silent addresses cost a few deadlines.
#ifndef TRAINYARD_OPERATOR_NET_FETCH_H_
#define TRAINYARD_OPERATOR_NET_FETCH_H_

#include <functional>
#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/base/stop_flag.h"

namespace trainyard::net {

struct FetchTarget {
  std::string address;  // a literal, IPv6 without brackets
  int port = 0;
  std::string path;
};

struct FetchLimits {
  size_t max_bytes = 64 << 10;  // of the answer, its head included
  double seconds = 1;           // of one exchange
  size_t at_once = 256;
};

// Calls `on_answer` for each target, in the order in which they end: with the body of an answer 200, or with
// why there is none. Returns when all have ended; at once, without the rest, when `stop` is set.
void FetchAll(const std::vector<FetchTarget>& targets, const FetchLimits& limits, const StopFlag& stop,
              const std::function<void(size_t target, Result<std::string> body)>& on_answer);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_FETCH_H_

// A watch that fails and goes on failing, told to people: in the log now and then, and in /readyz.
#ifndef TRAINYARD_OPERATOR_WATCH_TROUBLE_H_
#define TRAINYARD_OPERATOR_WATCH_TROUBLE_H_

#include <optional>
#include <string>

#include "operator/base/log.h"
#include "operator/kube/reflector.h"

namespace trainyard {

// So long a failure may stand before the operator is not ready.
inline constexpr double kUnreadySeconds = 10;

// "watch pods: Forbidden: ...; grant ...": the failure and what a person can do about it.
std::string Explain(const kube::Trouble& trouble, const kube::Resource& resource);

// Says a standing failure after two seconds, after a minute, and then every five minutes; and its end.
// For one resource and one thread.
class TroubleLog {
 public:
  TroubleLog(const kube::Resource& resource, const Logger& log) : resource_(resource), log_(log) {}
  // Called now and then with what the reflector says.
  void Look(const std::optional<kube::Trouble>& trouble, Instant now);
  // The same of a first list, which nothing fails and which is not whole: after half a minute, and then every five.
  void LookAtList(bool whole, Instant now);

 private:
  const kube::Resource resource_;
  const Logger& log_;
  int said_ = 0;
  Instant next_{};
  std::optional<Instant> waits_since_;  // for the first list
  Instant next_of_list_{};
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_WATCH_TROUBLE_H_

#include "operator/kube/retrying_client.h"

#include <algorithm>

#include "operator/base/clock.h"
#include "operator/kube/webhook.h"

namespace trainyard::kube {
namespace {

constexpr int kRepeats = 10;
constexpr double kDefaultWait = 1, kLongestDelay = 30, kLongestInAll = 60;

}  // namespace

std::optional<double> RetryingClient::WaitAfter(const Status& status, int repeated) {
  const bool asked = status.Is(Code::kUnavailable) && status.retry_after_seconds();
  if (repeated >= kRepeats || !(status.Is(Code::kThrottled) || asked) || IsOfWebhook(status)) return std::nullopt;
  const MutexLock lock(mutex_);
  std::uniform_real_distribution<double> jitter(1, 1.25);
  return std::clamp(status.retry_after_seconds().value_or(kDefaultWait), 0.1, kLongestDelay) * jitter(random_);
}

Result<Json> RetryingClient::Around(Kind kind, const Call& call) {
  const Instant begin = SteadyNow();
  for (int repeated = 0;; ++repeated) {
    Result<Json> result = call();
    const std::optional<double> wait = kind == Kind::kWatch ? std::nullopt : WaitAfter(result.status(), repeated);
    const double seconds = wait.value_or(kLongestInAll);
    if (!wait || SecondsBetween(begin, SteadyNow()) + seconds > kLongestInAll) return result;
    if (!stop_.Sleep(seconds)) return Status(Code::kStopped, "the operator stops");
  }
}

}  // namespace trainyard::kube

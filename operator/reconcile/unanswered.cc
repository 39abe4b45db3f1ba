#include "operator/reconcile/unanswered.h"

#include <algorithm>

#include "operator/kube/webhook.h"

namespace trainyard::reconcile {
namespace {

constexpr double kFirstSeconds = 10, kMostSeconds = 300;
// What is slow: a webhook that hangs and may be ignored takes its timeout, 10 s unless told, before a pod is there.
constexpr double kSlowSeconds = 5, kTurnSeconds = 30;
constexpr size_t kMostNamespaces = 10000;  // namespaces go, and nobody says so here

}  // namespace

std::string Unanswered::MayNotAsk(const std::string& ns) {
  const MutexLock lock(mutex_);
  const auto found = silences_.find(ns);
  if (found == silences_.end()) return "";
  Silence& silence = found->second;
  const Instant now = clock_.Steady();
  if (silence.asked && SecondsBetween(silence.asked_at, now) < kTurnSeconds) return silence.why;
  if (SecondsBetween(silence.since, now) < silence.delay) return silence.why;
  silence.asked_at = now;
  silence.asked = true;
  return "";
}

bool Unanswered::IsSlow(const std::string& ns) const {
  const MutexLock lock(mutex_);
  const auto found = silences_.find(ns);
  return found != silences_.end() && found->second.delay == 0;
}

void Unanswered::Note(const std::string& ns, const Status& status, std::optional<double> seconds) {
  const bool failed = status.Is(Code::kUnavailable) || status.Is(Code::kThrottled);
  if (failed && kube::IsOfWebhook(status)) return NotAnswered(ns, status.message());
  if (status.ok() && seconds) return Answered(ns, *seconds);
  NotAsked(ns);
}

void Unanswered::NotAsked(const std::string& ns) {
  const MutexLock lock(mutex_);
  if (const auto found = silences_.find(ns); found != silences_.end()) found->second.asked = false;
}

void Unanswered::Answered(const std::string& ns, double seconds) {
  const MutexLock lock(mutex_);
  if (seconds < kSlowSeconds) {
    silences_.erase(ns);
    return;
  }
  if (silences_.size() >= kMostNamespaces && !silences_.contains(ns)) silences_.clear();
  silences_[ns] = {.why = "the API server takes " + std::to_string(static_cast<int>(seconds)) +
                          " s for a request of this namespace: one job at a time makes some",
                   .delay = 0,
                   .asked = false,
                   .since = clock_.Steady(),
                   .asked_at = {}};
}

void Unanswered::NotAnswered(const std::string& ns, const std::string& why) {
  const MutexLock lock(mutex_);
  if (silences_.size() >= kMostNamespaces && !silences_.contains(ns)) silences_.clear();
  Silence& silence = silences_[ns];
  // Those who asked at the same time are one silence.
  const bool together = !silence.asked && silence.delay > 0 && silence.why == why &&
                        SecondsBetween(silence.since, clock_.Steady()) < kFirstSeconds / 10;
  if (!together) silence.delay = std::clamp(silence.delay * 2, kFirstSeconds, kMostSeconds);
  silence.asked = false;
  silence.why = why;
  silence.since = clock_.Steady();
}

}  // namespace trainyard::reconcile

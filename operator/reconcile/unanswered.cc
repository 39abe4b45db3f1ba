#include "operator/reconcile/unanswered.h"

#include <algorithm>

namespace trainyard::reconcile {
namespace {

constexpr double kFirstSeconds = 10, kMostSeconds = 300;
constexpr size_t kMostNamespaces = 10000;  // namespaces go, and nobody says so here

}  // namespace

std::string Unanswered::MayNotAsk(const std::string& ns) {
  const MutexLock lock(mutex_);
  const auto found = silences_.find(ns);
  if (found == silences_.end()) return "";
  Silence& silence = found->second;
  if (SecondsBetween(silence.since, clock_.Steady()) < silence.delay) return silence.why;
  silence.since = clock_.Steady();
  silence.asked = true;
  return "";
}

void Unanswered::Answered(const std::string& ns) {
  const MutexLock lock(mutex_);
  silences_.erase(ns);
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

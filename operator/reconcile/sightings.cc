#include "operator/reconcile/sightings.h"

#include <optional>
#include <vector>

#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {

void Sightings::NoteDeletions(Observed& observed) {
  const std::string key = observed.job.Key();
  const Instant now = clock_.Steady();
  const MutexLock lock(mutex_);
  std::map<std::string, Instant> seen;
  const auto known = deletions_.find(key);
  for (const std::vector<Pod>* pods : {&observed.current, &observed.stale, &observed.earlier}) {
    for (const Pod& pod : *pods) {
      const std::optional<double> needed = pod ? DeletionSeconds(observed, *pod) : std::nullopt;
      if (!needed) continue;
      Instant& since = seen[pod->uid] = now;
      if (known != deletions_.end() && known->second.contains(pod->uid)) since = known->second.at(pod->uid);
      if (const double left = *needed - SecondsBetween(since, now); left > 0) observed.unproven[pod->uid] = left;
    }
  }
  if (seen.empty()) {
    deletions_.erase(key);
  } else {
    deletions_[key] = std::move(seen);
  }
}

void Sightings::NoteFailures(Observed& observed) {
  const bool failed = !FailedWorkers(observed, clock_.Now()).empty();
  const MutexLock lock(mutex_);
  observed.failing_seconds = SecondsOf(failures_, observed.job, failed);
}

void Sightings::NoteUnschedulable(Observed& observed) {
  const MutexLock lock(mutex_);
  observed.unschedulable_seconds = SecondsOf(unschedulable_, observed.job, HasUnschedulable(observed));
}

double Sightings::SecondsOf(Firsts& firsts, const TrainingJob& job, bool holds) {
  if (!holds) {
    firsts.erase(job.Key());
    return 0;
  }
  const Instant now = clock_.Steady();
  Since& first = firsts[job.Key()];
  if (first.uid != job.uid || first.attempt != job.status.attempt)
    first = {.uid = job.uid, .attempt = job.status.attempt, .at = now};
  return SecondsBetween(first.at, now);
}

void Sightings::Forget(const std::string& key) {
  const MutexLock lock(mutex_);
  deletions_.erase(key);
  failures_.erase(key);
  unschedulable_.erase(key);
}

}  // namespace trainyard::reconcile

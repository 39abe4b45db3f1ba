#include <algorithm>

#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// The latest of a moment that all pods of the attempt have had; nothing while one has not.
std::optional<Time> Last(const Observed& observed, std::optional<Time> PodRecord::*moment) {
  std::optional<Time> last;
  for (const Pod& pod : observed.current) {
    if (!pod || !((*pod).*moment)) return std::nullopt;
    last = std::max(last, (*pod).*moment);
  }
  return last;
}

// Several clocks date a pod: what they put in another order took no time.
void Measure(std::optional<Time> from, std::optional<Time> to, std::optional<double>& seconds) {
  if (!seconds && from && to) seconds = std::max(0.0, SecondsBetween(*from, *to));
}

void Take(const api::Startup& told, api::Startup& startup) {
  if (!startup.rendezvous) startup.rendezvous = told.rendezvous;
  if (!startup.first_step) startup.first_step = told.first_step;
  if (!startup.from_step) startup.from_step = told.from_step;
}

}  // namespace

void MeasureStartup(const Observed& observed, api::JobStatus& status) {
  api::Startup& startup = status.startup;
  if (status.attempt == 0 || observed.current.empty()) return;
  if (!startup.pulled && status.attempt_time) {
    // Times of the API are whole seconds.
    const Time began = std::chrono::floor<std::chrono::seconds>(*status.attempt_time);
    const std::optional<Time> created = Last(observed, &PodRecord::created);
    const std::optional<Time> scheduled = Last(observed, &PodRecord::scheduled_at);
    Measure(began, created, startup.queued);
    Measure(created, scheduled, startup.scheduled);
    Measure(scheduled, Last(observed, &PodRecord::started_at), startup.pulled);
  }
  if (const Report* report = CurrentReport(observed)) Take(report->startup, startup);
  // An attempt may be over before anybody asked.
  if (const Pod& first = observed.current.front(); first && first->end) Take(first->end->words.startup, startup);
}

}  // namespace trainyard::reconcile

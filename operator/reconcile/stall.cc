#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// A poll every few seconds: a minute without an answer is no lost packet.
constexpr double kSilenceSeconds = 60;

constexpr char kHang[] = "Hang";

void ClearBoth(const Observed& observed, api::JobStatus& status, const char* reason, Time now) {
  for (const char* type : {kStalledCondition, kProgressUnknownCondition})
    ClearCondition(status, type, reason, "", now, observed.job.generation);
}

// "no progress for 600 s (spec.deadlines.stallSeconds), at step 17: ..."
std::string Describe(const Observed& observed, const api::Progress& progress) {
  return "no progress for " + std::to_string(observed.job.spec.deadlines.stall_seconds) +
         " s (spec.deadlines.stallSeconds)" +
         (progress.step ? ", at step " + std::to_string(*progress.step) : std::string()) +
         ": rank 0 answers, and its last_progress_time has not moved since " + FormatTime(*progress.last_progress_seen);
}

// Rank 0 tells of all: nobody knows which of them hangs, so no node is named.
FailedWorker Hung(const Observed& observed, const Pod& first, const api::Progress& progress, Time now) {
  FailedWorker hung;
  hung.pod = first;
  hung.failure.attempt = observed.job.status.attempt;
  hung.failure.pod = first->name;
  hung.failure.reason = kHang;
  hung.failure.step = progress.step;
  hung.failure.message = Describe(observed, progress);
  hung.failure.time = now;
  return hung;
}

}  // namespace

double SilenceSeconds(const Observed& observed) {
  return std::max(kSilenceSeconds, 3 * observed.progress_interval_seconds);
}

std::optional<FailedWorker> StalledWorker(const Observed& observed, Plan& plan, Time now) {
  api::JobStatus& status = plan.status;
  const api::Progress& progress = status.progress;
  const Pod first = observed.current.empty() ? nullptr : observed.current.front();
  const bool asked = first && !first->end && !first->deleting;
  if (!asked || !progress.last_progress_seen || !progress.last_update) {
    ClearBoth(observed, status, "NobodyToAsk", now);
    return std::nullopt;
  }
  const double unknown_in = SilenceSeconds(observed) - SecondsBetween(*progress.last_update, now);
  if (unknown_in <= 0) {
    ClearCondition(status, kStalledCondition, "ProgressUnknown", "", now, observed.job.generation);
    SetCondition(status, kProgressUnknownCondition, true, "NoAnswer",
                 first->name + " has not answered on /status since " + FormatTime(*progress.last_update) +
                     "; until it does, spec.deadlines.stallSeconds does not count",
                 now, observed.job.generation);
    return std::nullopt;
  }
  plan.RequeueIn(unknown_in);
  ClearCondition(status, kProgressUnknownCondition, "Answered", "", now, observed.job.generation);
  // To the last answer, not to now: only that far it is known.
  const double idle = SecondsBetween(*progress.last_progress_seen, *progress.last_update);
  if (idle < static_cast<double>(observed.job.spec.deadlines.stall_seconds)) {
    ClearCondition(status, kStalledCondition, "Progress", "", now, observed.job.generation);
    return std::nullopt;
  }
  // Of what an operator before this one was told, and of what has moved since, nothing follows.
  const Report* report = CurrentReport(observed);
  const bool stands = report && report->progress.last_progress && progress.last_progress &&
                      IsSameSecond(*report->progress.last_progress, *progress.last_progress);
  plan.RequeueIn(1);
  if (IsTrue(observed.job.status, kStalledCondition))
    return stands ? std::optional(Hung(observed, first, progress, now)) : std::nullopt;
  // Said first, and read back: whoever watches the job sees why it restarts.
  const std::string message = Describe(observed, progress);
  SetCondition(status, kStalledCondition, true, kHang, message, now, observed.job.generation);
  plan.events.push_back({"Warning", "Stalled", message});
  return std::nullopt;
}

}  // namespace trainyard::reconcile

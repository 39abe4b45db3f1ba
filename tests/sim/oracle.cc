#include "tests/sim/oracle.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace trainyard::sim {
namespace {

constexpr double kEvidenceSeconds = 15, kLongRunSeconds = 600;
constexpr double kSecond = 1;  // times of the API are whole ones

}  // namespace

Oracle::Oracle(Mirror& mirror, const Reports& reports, const Clock& clock, size_t operators,
               std::function<void(const std::string&)> complain)
    : mirror_(mirror), reports_(reports), clock_(clock), several_(operators > 1), complain_(std::move(complain)) {
  mirror.Listen(PodListener([this](const PodView* before, const PodView* after) { PodChanged(before, after); }));
  mirror.Listen(JobListener([this](const JobView* before, const JobView* after) { JobChanged(before, after); }));
}

void Oracle::PodChanged(const PodView* before, const PodView* after) {
  if (writer_ && before && !before->forced() && (!after || after->forced())) JudgeForce(*before);
  const PodView& pod = after ? *after : *before;
  Log& log = logs_[{pod.owner_uid, pod.attempt}];
  if (!before && clock_.Now() < log.not_before)
    complain_("pod " + pod.name + " was created " + std::to_string(SecondsBetween(clock_.Now(), log.not_before)) +
              " s before its restart's wait was over");
  log.changes.push_back({.version = mirror_.version(),
                         .worker = pod.rank,
                         .pod = after ? std::optional(*after) : std::nullopt,
                         .uid = pod.uid,
                         .time = clock_.Now()});
}

void Oracle::JobChanged(const JobView* before, const JobView* after) {
  if (writer_ && before && !after) JudgeDeletion(*before);
  if (before && !after) gone_[before->uid] = *before;
  if (!before || !after || !writer_) return;
  CountSuspension(*before, *after);
  const bool restarted = after->total != before->total, failed = after->failed && !before->failed;
  if (after->attempt == before->attempt) {
    JudgeDone(*before, *after);
    if (!restarted && !failed) JudgeFirstFailure(*before, *after);
  }
  if (restarted || failed) {
    JudgeRestart(*before, *after);
  } else if (after->succeeded && !before->succeeded) {
    JudgeSuccess(*before, *after);
  } else if (after->attempt != before->attempt && HasAnotherSpec(*before)) {
    logs_[{after->uid, after->attempt}].not_before = logs_[{before->uid, before->attempt}].not_before;
  } else if (after->attempt != before->attempt && before->attempt != 0 && !before->suspend && !before->suspended &&
             !FoundNoNode(*before)) {
    complain_("attempt " + std::to_string(after->attempt) + " of " + after->name + " began without a reason");
  }
  if (restarted) ExpectWait(*before, *after);
  if (after->attempt != before->attempt) repeats_[after->uid].begun = clock_.Now();
  if (after->attempt != before->attempt || (before->suspended && !after->suspended))
    made_from_[after->uid] = after->made_from;
}

std::vector<Attempt> Oracle::States(const JobView& job) const {
  std::vector<Attempt> states(1);
  const auto log = logs_.find({job.uid, job.attempt});
  if (log == logs_.end()) return states;
  for (const Change& change : log->second.changes) {
    if (change.version > writer_->pods) states.push_back(states.back());  // else it had been seen
    Attempt& now = states.back();
    if (change.pod) {
      now[change.worker] = *change.pod;
    } else if (const auto old = now.find(change.worker); old != now.end() && old->second.uid == change.uid) {
      now.erase(old);
    }
  }
  return states;
}

void Oracle::JudgeRestart(const JobView& before, const JobView& after) {
  std::string wrong;
  if (after.failed_reason == "DeadlineExceeded") {
    if (wrong = CompareActive(before); !wrong.empty()) complain_(after.name + " was failed: " + wrong);
    return;
  }
  for (const Attempt& pods : States(before)) {
    // It was decided at some moment between these two.
    for (const Time now : {clock_.Now(), writer_->began}) {
      for (const Workers& lost : MayBeLost(before)) {
        wrong = Compare(before, after, pods, lost, now);
        if (wrong.empty()) return;
      }
    }
  }
  complain_((after.failed ? after.name + " was failed: " : after.name + " was restarted: ") + wrong);
}

std::string Oracle::Compare(const JobView& before, const JobView& after, const Attempt& pods, const Workers& lost,
                            Time unknown_time) const {
  std::vector<Casualty> casualties = Casualties(before, pods, lost, unknown_time);
  if (casualties.empty()) return CompareDeadline(before, after, pods, unknown_time);
  if (!EvidenceIsIn(before, pods, lost, unknown_time)) return "the other workers' ends were not awaited";
  for (Casualty& going : Going(before, pods, unknown_time)) casualties.push_back(std::move(going));
  const Verdict verdict = Judge(before, casualties);
  if (after.culprit_pod != verdict.culprit.pod || after.culprit_reason != verdict.culprit.reason)
    return "it blames " + after.culprit_pod + " (" + after.culprit_reason + ") and not " + verdict.culprit.pod + " (" +
           verdict.culprit.reason + ")";
  if (verdict.fail) {
    const bool right = after.failed && after.failed_reason == verdict.culprit.reason;
    return right ? "" : "a rule says that " + verdict.culprit.reason + " fails it";
  }
  return CompareLimits(before, after, verdict);
}

std::string Oracle::CompareLimits(const JobView& before, const JobView& after, const Verdict& verdict) const {
  const bool progressed = after.checkpoint_step > before.durable_step;
  // Where it was: by its own word, else by rank 0's last answer in this attempt, if that reached anyone.
  std::optional<int64_t> step = verdict.culprit.step;
  if (!step && after.streak && after.streak->step && reports_.Said(before.uid, before.attempt, *after.streak->step))
    step = after.streak->step;
  int64_t count = 0;
  if (step) {
    const std::optional<Streak>& old = before.streak;
    const bool same = !progressed && old && old->reason == verdict.culprit.reason && old->step == step;
    count = same ? old->count + 1 : 1;
  }
  const int64_t counted = after.streak ? after.streak->count : 0;
  if (counted != count || (after.streak && after.streak->step != step))
    return "its streak is " + std::to_string(counted) + " and not " + std::to_string(count);
  const bool charged = !verdict.free && !progressed;
  std::string reason;
  if (!verdict.free && count >= before.same_step_limit) {
    reason = "SameStepLimit";
  } else if (charged && before.charged >= before.max_restarts) {
    reason = "MaxRestarts";
  }
  if (after.failed_reason != reason) return "it failed by '" + after.failed_reason + "' and not by '" + reason + "'";
  if (!reason.empty()) return "";
  if (after.charged != before.charged + (charged ? 1 : 0))
    return std::string("the restart is ") + (charged ? "not " : "") + "charged, after " + verdict.culprit.reason;
  if (after.durable_step != std::max(before.durable_step, after.checkpoint_step))
    return "its durable step is " + std::to_string(after.durable_step);
  return "";
}

std::string Oracle::CompareDeadline(const JobView& before, const JobView& after, const Attempt& pods, Time now) const {
  const auto lacks = [&](const auto& has) {
    int64_t count = 0;
    for (int64_t worker = 0; worker < before.workers; ++worker) {
      const auto pod = pods.find(worker);
      count += !before.done.contains(worker) && !(pod != pods.end() && (pod->second.end || has(pod->second)));
    }
    return count;
  };
  const auto unscheduled = lacks([](const PodView& pod) { return pod.scheduled; });
  const auto unready = lacks([](const PodView& pod) { return pod.ready; });
  const auto passed = [&](std::optional<Time> since, int64_t seconds) {
    return since && SecondsBetween(*since, now) >= static_cast<double>(seconds) - kSecond;
  };
  const auto log = logs_.find({before.uid, before.attempt});
  const std::string& reason = after.culprit_reason;
  if (reason == "Hang") {
    constexpr double kHeardWithin = 61;
    const double stood = reports_.Stood(before.uid, before.attempt, After(writer_->began, -kHeardWithin));
    if (stood < static_cast<double>(before.stall_seconds) - 2 * kSecond)
      return "it is said to hang, and stood still for " + std::to_string(stood) + " s";
  } else if (reason == "ScheduleDeadlineExceeded") {
    if (unscheduled == 0 || !before.schedule_seconds || log == logs_.end() ||
        !passed(log->second.changes.front().time, *before.schedule_seconds))
      return "its pods still had time to be scheduled";
  } else if (reason == "StartDeadlineExceeded") {
    if (unscheduled > 0 || unready == 0 || !passed(AllScheduled(before), before.start_seconds))
      return "its pods still had time to start";
  } else {
    return "no worker had failed";
  }
  const auto culprit =
      std::find_if(pods.begin(), pods.end(), [&](const auto& pod) { return pod.second.name == after.culprit_pod; });
  // The rule for disruptions looks at the pod's condition, whatever ended the attempt.
  const bool free = culprit != pods.end() && culprit->second.disrupted;
  return CompareLimits(before, after, {.culprit = {.pod = after.culprit_pod, .reason = reason}, .free = free});
}

std::optional<Time> Oracle::AllScheduled(const JobView& job) const {
  const auto log = logs_.find({job.uid, job.attempt});
  std::set<int64_t> scheduled;
  if (log == logs_.end()) return std::nullopt;
  for (const Change& change : log->second.changes) {
    if (change.pod && (change.pod->scheduled || change.pod->end)) scheduled.insert(change.worker);
    if (static_cast<int64_t>(scheduled.size()) == job.workers) return change.time;
  }
  return std::nullopt;
}

std::string Oracle::CompareActive(const JobView& before) const {
  if (!before.active_seconds || !before.start_time) return "it has no such deadline";
  const auto suspended = suspended_.find(before.uid);
  const double taken =
      SecondsBetween(*before.start_time, clock_.Now()) - (suspended == suspended_.end() ? 0 : suspended->second);
  if (taken >= static_cast<double>(*before.active_seconds) - kSecond) return "";
  return "it had taken " + std::to_string(taken) + " of " + std::to_string(*before.active_seconds) + " s";
}

void Oracle::CountSuspension(const JobView& before, const JobView& after) {
  if (before.suspended && !after.suspended && before.start_time)
    suspended_[after.uid] += SecondsBetween(*before.suspended_changed, *after.suspended_changed) - kSecond;
}

bool Oracle::HasAnotherSpec(const JobView& job) const {
  const auto before = made_from_.find(job.uid);
  return before != made_from_.end() && before->second != job.made_from && job.created < job.workers;
}

bool Oracle::EverHad(const JobView& job, const std::function<bool(const PodView&)>& such) const {
  const auto log = logs_.find({job.uid, job.attempt});
  return log != logs_.end() && std::any_of(log->second.changes.begin(), log->second.changes.end(),
                                           [&](const Change& change) { return change.pod && such(*change.pod); });
}

bool Oracle::FoundNoNode(const JobView& job) const {
  constexpr double kNoNodeSeconds = 120;
  return EverHad(job, [&](const PodView& pod) {
    return !pod.scheduled && !pod.avoids.empty() && SecondsBetween(*pod.created, clock_.Now()) >= kNoNodeSeconds;
  });
}

// By force: a pod that runs went at once. Its grace and the deadline behind it must be over: its own job's, also where
// that is gone and a cache still shows it, or that of the next of its name, which waits for it.
void Oracle::JudgeForce(const PodView& pod) {
  if (pod.node.empty() || pod.end || pod.over()) return;
  std::vector<const JobView*> jobs;
  if (const auto gone = gone_.find(pod.job_uid); gone != gone_.end()) jobs.push_back(&gone->second);
  for (const auto& [uid, job] : mirror_.jobs()) {
    if (job.name == pod.job_name) jobs.push_back(&job);
  }
  const bool overdue =
      std::any_of(jobs.begin(), jobs.end(), [&](const JobView* job) { return IsOverdue(*job, pod, clock_.Now()); });
  if (!jobs.empty() && (!pod.gone_by || !overdue))
    complain_("pod " + pod.name + " was deleted by force before its time");
}

void Oracle::JudgeDeletion(const JobView& job) {
  const bool due =
      job.finished() && job.ttl_seconds && job.completion_time &&
      SecondsBetween(*job.completion_time, clock_.Now()) >= static_cast<double>(*job.ttl_seconds) - kSecond;
  if (!due) complain_("an operator deleted " + job.name);
}

std::vector<Workers> Oracle::MayBeLost(const JobView& job) const {
  Workers lost;
  for (int64_t worker = 0; worker < job.workers; ++worker) lost.insert(worker);
  // Whatever a cache lacked: what is there is not lost. Of several operators another may just have made it, or this
  // one.
  Workers without = lost;
  const std::vector<Attempt> states = States(job);
  for (const auto& [worker, pod] : states.back()) without.erase(worker);
  if (!several_) lost = without;
  if (job.created == job.workers) return {lost, without};
  Workers had;
  if (const auto log = logs_.find({job.uid, job.attempt}); log != logs_.end()) {
    for (const Change& change : log->second.changes) {
      if (change.pod) had.insert(change.worker);
    }
  }
  if (static_cast<int64_t>(had.size()) < job.workers) return {Workers()};
  const auto repeats = repeats_.find(job.uid);
  const bool remembers = !several_ && repeats != repeats_.end() && forgot_at_ < repeats->second.begun;
  return remembers ? std::vector<Workers>{lost} : std::vector<Workers>{lost, Workers()};
}

// All have ended, or the first failure is 15 s old, by the clock of the simulation.
bool Oracle::EvidenceIsIn(const JobView& before, const Attempt& pods, const Workers& lost, Time now) const {
  if (std::all_of(pods.begin(), pods.end(),
                  [&](const auto& pod) { return pod.second.end.has_value() || IsOverdue(before, pod.second, now); }))
    return true;
  Time first = Time::max();
  Workers failed;
  for (const Casualty& casualty : Casualties(before, pods, lost, clock_.Now())) {
    first = std::min(first, casualty.time);
    failed.insert(casualty.worker);
  }
  if (before.culprit_attempt == before.attempt && before.culprit_time) first = std::min(first, *before.culprit_time);
  // Some have no time of their own, and an operator may have seen them before it could say so.
  if (const auto log = logs_.find({before.uid, before.attempt}); log != logs_.end()) {
    for (const Change& change : log->second.changes) {
      if ((!change.pod || change.pod->end) && failed.contains(change.worker)) first = std::min(first, change.time);
    }
  }
  return SecondsBetween(first, clock_.Now()) >= kEvidenceSeconds - kSecond;
}

void Oracle::JudgeSuccess(const JobView& before, const JobView& after) {
  for (const Attempt& pods : States(before)) {
    bool all = true;
    for (int64_t worker = 0; worker < (before.rank_zero ? 1 : before.workers); ++worker) {
      const auto pod = pods.find(worker);
      all &= before.done.contains(worker) || (pod != pods.end() && Succeeded(pod->second));
    }
    if (all) return;
  }
  complain_(after.name + " is said to have succeeded, and not all of its workers have");
}

// A worker that is called done has succeeded, in this attempt.
void Oracle::JudgeDone(const JobView& before, const JobView& after) {
  for (const int64_t worker : after.done) {
    const auto succeeded = [&](const PodView& pod) { return pod.rank == worker && Succeeded(pod); };
    if (!before.done.contains(worker) && !EverHad(after, succeeded))
      complain_("worker " + std::to_string(worker) + " of " + after.name + " is called done");
  }
}

// What is kept of a pod that may be cleared away is what it had said: by it the attempt's end is judged later.
void Oracle::JudgeFirstFailure(const JobView& before, const JobView& after) {
  if (after.culprit_attempt != after.attempt || before.culprit_attempt == after.attempt || !after.culprit_code) return;
  const auto said = [&](const PodView& pod) {
    return pod.name == after.culprit_pod && pod.end && pod.end->code == *after.culprit_code &&
           pod.end->step == after.culprit_step;
  };
  if (!EverHad(after, said))
    complain_("pod " + after.culprit_pod + " did not end as the status of " + after.name + " keeps it");
}

// A free restart comes at once; what repeats itself without a newer checkpoint, or a long run, waits.
void Oracle::ExpectWait(const JobView& before, const JobView& after) {
  Repeats& repeats = repeats_[after.uid];
  const bool charged = after.charged > before.charged, progressed = after.checkpoint_step > before.durable_step;
  // Whether that was a long run depends on when it began to run; then only the shortest wait is certain.
  const bool maybe_long = SecondsBetween(repeats.begun, clock_.Now()) >= kLongRunSeconds;
  const bool fresh = progressed || before.total == 0 || maybe_long;
  repeats.count = fresh ? (charged ? 1 : 0) : repeats.count + 1;
  if (repeats.count == 0) return;
  const double wait = static_cast<double>(before.backoff_initial) *
                      std::pow(2, static_cast<double>(std::min<int64_t>(repeats.count - 1, 30)));
  const double least = std::min(wait, static_cast<double>(before.backoff_max));
  // It counts from the decision, which is older than its write.
  logs_[{after.uid, after.attempt}].not_before = After(writer_->began, least - kSecond);
}

}  // namespace trainyard::sim

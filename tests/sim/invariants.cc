#include "tests/sim/invariants.h"

#include <cmath>

#include "operator/reconcile/apply.h"

namespace trainyard::sim {
namespace {

std::string Number(int64_t value) { return std::to_string(value); }

}  // namespace

Invariants::Invariants(Mirror& mirror, const Training& training, const Clock& clock, size_t operators)
    : mirror_(mirror), training_(training), clock_(clock), operators_(operators) {
  mirror.Listen(PodListener([this](const PodView* before, const PodView* after) { PodChanged(before, after); }));
  mirror.Listen(JobListener([this](const JobView* before, const JobView* after) { JobChanged(before, after); }));
}

void Invariants::Break(const std::string& what) {
  if (broken_.empty()) broken_ = FormatMicroTime(clock_.Now()) + " " + what;
}

void Invariants::PodChanged(const PodView* before, const PodView* after) {
  if (!before) return PodCreated(*after);
  const bool deletes = writer_ && !before->deleting && (!after || after->deleting);
  if (!deletes) return;
  const auto job = mirror_.jobs().find(before->owner_uid);
  if (job != mirror_.jobs().end() && !job->second.finished() && before->attempt == job->second.attempt)
    Break("the operator deleted pod " + before->name + " of the current attempt");
}

// What its operator had seen when it began to decide counts: by their names alone the API would not keep two jobs
// apart.
void Invariants::LookForEarlier(const PodView& pod) {
  created_[pod.uid] = mirror_.version();
  if (!have_begun_.insert({pod.owner_uid, pod.attempt}).second || !writer_) return;
  for (const auto& [uid, other] : mirror_.pods()) {
    const bool earlier = other.job_name == pod.job_name && other.owner_uid != pod.owner_uid;
    if (earlier && created_[uid] <= writer_->pods && !other.over() && !other.forced())
      Break("pod " + pod.name + " was created beside " + other.name + " of an earlier job");
  }
}

void Invariants::PodCreated(const PodView& pod) {
  LookForEarlier(pod);
  if (pod.fence_attempt != pod.attempt) Break("pod " + pod.name + " is told another attempt than its label says");
  for (const auto& [uid, other] : mirror_.pods()) {
    if (uid == pod.uid || other.owner_uid != pod.owner_uid) continue;
    if (other.attempt == pod.attempt && other.rank == pod.rank) Break("two pods of rank " + Number(pod.rank));
    if (alone() && other.attempt != pod.attempt && !other.spent())
      Break("pod " + pod.name + " was created beside " + other.name + " of another attempt");
  }
  const auto found = mirror_.jobs().find(pod.owner_uid);
  if (found == mirror_.jobs().end()) return;  // deleted meanwhile; the garbage collector takes it
  const JobView& job = found->second;
  if (pod.attempt > job.attempt) Break("pod " + pod.name + " came before its attempt was read back");
  if (alone() && pod.attempt < job.attempt)
    Break("pod " + pod.name + " was created when attempt " + Number(job.attempt) + " had begun");
  if (alone() && job.finished()) Break("pod " + pod.name + " was created when its job had ended");
}

void Invariants::JobChanged(const JobView* before, const JobView* after) {
  if (!before || !after) return;
  if (after->attempt < before->attempt || after->attempt > before->attempt + 1)
    Break("attempt of " + after->name + " went from " + Number(before->attempt) + " to " + Number(after->attempt));
  const int64_t restarts = after->total - before->total, charged = after->charged - before->charged;
  if (restarts < 0 || restarts > 1 || charged < 0 || charged > restarts ||
      (restarts == 1 && after->attempt != before->attempt + 1))
    Break("restarts of " + after->name + " went from " + Number(before->charged) + " of " + Number(before->total) +
          " to " + Number(after->charged) + " of " + Number(after->total));
  if (before->finished() && (!after->finished() || after->attempt != before->attempt ||
                             after->succeeded != before->succeeded || after->total != before->total))
    Break(after->name + " had ended as " + before->phase + " and became " + after->phase);
  if (alone() && after->suspended && !before->suspended) {
    for (const auto& [uid, pod] : mirror_.pods()) {
      if (pod.owner_uid == after->uid && !pod.spent()) Break(after->name + " is suspended, and has pod " + pod.name);
    }
  }
  if (after->succeeded && after->failed) Break(after->name + " succeeded and failed");
  if (after->checkpoint_step < before->checkpoint_step || after->durable_step < before->durable_step)
    Break("the durable step of " + after->name + " went back");
  TimeChanged(*before, *after);
  if (after->checkpoint_step > training_.Committed(after->uid))
    Break("step " + Number(after->checkpoint_step) + " of " + after->name + " is called durable and never was");
}

// Each second since the job's creation is in one place, and stays there.
void Invariants::TimeChanged(const JobView& before, const JobView& after) {
  if (!after.as_of) return;
  const int64_t passed = std::llround(SecondsBetween(*after.created_at, *after.as_of));
  const int64_t sum = after.trained + after.lost;
  if (after.suspend || after.suspended) suspended_.insert(after.uid);
  if (sum > passed || (sum < passed && !suspended_.contains(after.uid)))
    Break(after.name + " says where " + Number(sum) + " s went, and " + Number(passed) + " s have passed");
  bool back = after.trained < before.trained;
  for (const auto& [cause, seconds] : before.lost_to) {
    const auto found = after.lost_to.find(cause);
    back |= found == after.lost_to.end() || found->second < seconds;
  }
  if (back) Break("the seconds of " + after.name + " went back");
}

void Invariants::Sent(const std::string& instance, const char* verb, const kube::Resource& resource,
                      const std::string& name, const Json* object) {
  std::map<std::string, Time>& confirmed = confirmed_[instance];
  // A write's answer is as good as a read's. Whether it was granted is not asked here: pods of an attempt that the API
  // does not have are found where they are created.
  const bool looks = std::string(verb) == "get" || std::string(verb) == "patch";
  if (resource == kube::kTrainingJobs && looks) confirmed[name] = clock_.Now();
  if (resource != kube::kPods || std::string(verb) != "create") return;
  const auto job = confirmed.find((*object)["metadata"]["labels"]["trainyard.dev/job-name"]);
  // A request's own time may pass between the answer and the first creation.
  constexpr double kSlack = 1;
  if (job == confirmed.end() || SecondsBetween(job->second, clock_.Now()) > reconcile::kConfirmedSeconds + kSlack)
    Break("pod " + name + " was sent without a look at its job before");
}

void Invariants::LookAtProcesses() {
  for (const auto& [uid, job] : mirror_.jobs()) {
    std::vector<std::string> committers = training_.Committers(uid);
    // Without a fence only what the API knows of can be kept apart, and only by one operator.
    if (!training_.ImageOf(uid).ours) {
      if (!alone()) continue;
      std::erase_if(committers, [&](const std::string& pod) { return !mirror_.pods().contains(pod); });
    }
    if (committers.size() > 1) Break("two attempts of " + job.name + " can commit");
  }
  for (; refused_ < training_.refused().size(); ++refused_) {
    for (const auto& [uid, job] : mirror_.jobs()) {
      if (training_.refused()[refused_] == uid + "/" + Number(job.attempt))
        Break("the fence refused attempt " + Number(job.attempt) + " of " + job.name + ", the newest there is");
    }
  }
}

}  // namespace trainyard::sim

// Builders of jobs and pods: MakeJob("a").Workers(4), RunningPod(...): a case of a table is a line.
#ifndef TRAINYARD_TESTS_OPERATOR_BUILDERS_H_
#define TRAINYARD_TESTS_OPERATOR_BUILDERS_H_

#include <algorithm>
#include <string>

#include "operator/api/json.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/observe.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {

inline const Time kNow = *ParseTime("2026-03-01T12:00:00Z");

// A TrainingJob as the API serves it.
inline Json JobObject(const std::string& name, int64_t workers) {
  return {
      {"apiVersion", "trainyard.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata",
       {{"name", name}, {"namespace", "default"}, {"uid", "uid-" + name}, {"resourceVersion", "7"}, {"generation", 1}}},
      {"spec",
       {{"workers", workers},
        {"template",
         {{"spec",
           {{"containers",
             {{{"name", "trainer"}, {"image", "trainyard-trainer"}, {"command", {"trainyard", "launch"}}}}}}}}}}}};
}

// The job with its template and config, as a pass sees it.
inline TrainingJob WholeJob(const Json& object) { return SortPods(JobFromApi(object), {}).job; }

// What `trainyard launch` writes for rank 1.
inline std::string LauncherMessage(int64_t step, int64_t checkpoint, const std::string& reason = "InternalError") {
  return Json{{"v", 1},
              {"attempt", 1},
              {"rank", 1},
              {"exit_code", 70},
              {"signal", 0},
              {"reason", reason},
              {"step", step},
              {"checkpoint_step", checkpoint},
              {"message", "it broke"},
              {"tail", {"last line"}}}
      .dump();
}

// A job in the middle of `attempt`, and its pods. Each method returns the scene, so that a test reads
// as a sentence.
class Scene {
 public:
  explicit Scene(int64_t workers, int64_t attempt = 1) {
    record_ = JobFromApi(JobObject("job", workers));
    record_.job = WholeJob(JobObject("job", workers));  // so that a test may change template and config
    api::JobStatus& status = record_.job.status;
    status.attempt = attempt;
    status.observed_generation = 1;
    if (attempt > 0) {
      status.workers.created = workers;
      status.workers.desired = workers;
    }
  }
  api::JobSpec& spec() { return record_.job.spec; }
  api::JobStatus& status() { return record_.job.status; }
  TrainingJob& job() { return record_.job; }
  JobRecord& record() { return record_; }

  // A pod of the current attempt that runs.
  PodRecord& Pod(int64_t rank) { return OldPod(rank, record_.job.status.attempt); }
  PodRecord& OldPod(int64_t rank, int64_t attempt) {
    auto pod = std::make_shared<PodRecord>();
    pod->name = "job-" + std::to_string(attempt) + "-" + std::to_string(rank);
    pod->uid = "pod-uid-" + pod->name;
    pod->owner_uid = record_.job.uid;
    pod->job_key = "default/job";
    pod->attempt = attempt;
    pod->rank = rank;
    pod->scheduled = pod->ready = true;
    pod->ip = "10.0.0." + std::to_string(rank + 1);
    pods_.push_back(pod);
    return *pod;
  }
  Scene& Run(int64_t workers) {
    for (int64_t rank = 0; rank < workers; ++rank) Pod(rank);
    return *this;
  }
  // A pod whose trainer ended with `code`, `seconds` ago.
  PodRecord& Ended(int64_t rank, int64_t code, double seconds_ago = 1, const std::string& message = "") {
    PodRecord& pod = Pod(rank);
    pod.ready = false;
    pod.end = PodEnd{.exit_code = code,
                     .signal = 0,
                     .reason = code == 0 ? "Completed" : "Error",
                     .words = ReadLastWords(message),
                     .time = After(kNow, -seconds_ago)};
    return pod;
  }

  Observed Observe() const {
    JobRecord record = record_;
    record.pod_template = record.job.spec.pod_template.dump();
    record.config = record.job.spec.config.is_null() ? "" : record.job.spec.config.dump();
    record.volume = record.job.spec.checkpoint.volume.is_null() ? "" : record.job.spec.checkpoint.volume.dump();
    // The attempt was made from this spec, unless the test says otherwise.
    if (record.job.status.attempt > 0 && record.job.status.spec_hash.empty())
      record.job.status.spec_hash = SpecHash(record.job);
    return SortPods(record, {pods_.begin(), pods_.end()});
  }
  // As an operator does that saw each worker's end when it came, and at kNow what has no time.
  Plan Decide(Time now = kNow) const {
    Observed observed = Observe();
    Time first = kNow;
    for (const auto& pod : observed.current) {
      if (pod && pod->end && IsFailure(*pod)) first = std::min(first, pod->end->time.value_or(kNow));
    }
    observed.failing_seconds = SecondsBetween(first, now);
    if (HasUnschedulable(observed)) observed.unschedulable_seconds = SecondsBetween(kNow, now);
    return MakePlan(observed, now);
  }

 private:
  JobRecord record_;
  std::vector<std::shared_ptr<PodRecord>> pods_;
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_TESTS_OPERATOR_BUILDERS_H_

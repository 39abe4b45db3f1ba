// What is, and what should be done about it: the two ends of MakePlan.
#ifndef TRAINYARD_OPERATOR_RECONCILE_PLAN_H_
#define TRAINYARD_OPERATOR_RECONCILE_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/field_error.h"
#include "operator/api/training_job.h"
#include "operator/reconcile/index_set.h"
#include "operator/reconcile/pod_record.h"

namespace trainyard::reconcile {

using api::Json;
using api::TrainingJob;
using Pod = std::shared_ptr<const PodRecord>;

// What rank 0 answered on /status.
struct Report {
  std::string job_uid;
  int64_t attempt = 0;
  api::Progress progress;
  api::CheckpointStatus checkpoint;
  api::Startup startup;  // what only it knows
};

struct WorkerName {
  std::string name, uid;
  int64_t worker = 0;
};
struct PodDelete {
  std::string name, uid;
  bool force = false;  // at once, whatever its node says
};

// One job and everything that belongs to it. Every pod of the job is in exactly one place; one that only carries its
// labels, and belongs to an owner of another kind, is in none, and is never touched.
struct Observed {
  TrainingJob job;
  std::vector<Pod> current;                  // by rank, of the job's attempt; null: there is none. Size: its workers
  std::vector<int64_t> missing;              // workers that existed in this attempt and have no pod, by index
  IndexSet made;                             // workers whose pods this process has created in this attempt, and
  IndexSet coming;                           // those of them that were created just now: they are in no cache yet
  IndexSet done;                             // workers that have succeeded in this attempt, by the status
  std::vector<WorkerName> unlabelled;        // pods of the attempt whose labels say otherwise: someone changed them
  std::vector<Pod> stale;                    // of other attempts, or of ranks that the job does not have
  std::vector<Pod> spent;                    // of those, the ones that are gone but for a finalizer
  std::vector<Pod> earlier;                  // of another job, which had this one's name, and not over yet
  std::vector<api::FieldError> spec_errors;  // of this generation
  std::string template_error;                // what the strict dry run of rank 0's pod said
  std::string template_unknown;              // why it could not be asked
  bool template_checked = false;             // it was asked just now, and found nothing
  // Seconds, by uid, that this process has not yet seen the deletion of a pod for, of the grace and
  // deadlines.terminateSeconds after it: the times of a deletion are the API server's clock, which may be behind.
  std::map<std::string, double> unproven;
  // Seconds that this process has known of a failed worker of the attempt: the times of ends are the nodes' clocks.
  double failing_seconds = 0;
  // And of one that finds no node: how long a pod waited for its turn before does not count.
  double unschedulable_seconds = 0;
  std::optional<Report> report;
  double progress_interval_seconds = 10;  // progress alone is written so often at most
};

struct JobEvent {
  std::string type;  // Normal or Warning
  std::string reason, message;
  bool of_deletes = false;  // says that they are made
  bool once = false;        // no later pass has it, so it is sent also where the status cannot be written
};

// What to create and to delete, and the status to write.
struct Plan {
  std::vector<PodDelete> deletes;
  std::vector<WorkerName> relabels;  // that get our labels back
  std::vector<int64_t> creates;      // ranks of status.attempt
  bool gently = false;               // the API server is slow with pods of this namespace: a few at a time
  bool needs_services = false;       // the attempt's workers look for each other, or may
  bool needs_group = false;          // the attempt's workers have a gang (gang.h), and not all of them are placed
  bool drops_groups = false;         // the job had one, and has no use for it any more
  bool drops_master = false;         // nothing of the job runs any more: others need the address of <job>-master
  api::JobStatus status;
  std::vector<JobEvent> events;  // sent once the status is written
  bool delete_job = false;
  std::optional<double> requeue_after_seconds;
  std::optional<double> made_seconds_ago;  // once it is carried out: when the first pod of the attempt was created
  bool more = false;  // once it is carried out: a turn of it was, and nothing has failed (Outcome::more)

  void RequeueIn(double seconds) { requeue_after_seconds = std::min(seconds, requeue_after_seconds.value_or(seconds)); }
  // Whether the moment has come; until it does, the job is looked at again then.
  bool IsDue(Time moment, Time now) {
    const double left = SecondsBetween(now, moment);
    if (left > 0) RequeueIn(left);
    return left <= 0;
  }
};

// So long a service counts as there since it was seen; nothing tells when someone deletes it.
inline constexpr double kServiceSeconds = 60;

// Rank 0's answer, if it is about this job and its newest attempt; else null: addresses are used again.
const Report* CurrentReport(const Observed& observed);

// The decision. Pure: depends on its arguments alone.
Plan MakePlan(const Observed& observed, Time now);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_PLAN_H_

// TrainingJob v1alpha1 as plain structs. Field names and texts: fields.h; JSON: json.h.
#ifndef TRAINYARD_OPERATOR_API_TRAINING_JOB_H_
#define TRAINYARD_OPERATOR_API_TRAINING_JOB_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/clock.h"

namespace trainyard::api {

using Json = nlohmann::json;

inline constexpr char kGroup[] = "trainyard.dev";
inline constexpr char kVersion[] = "v1alpha1";
inline constexpr char kApiVersion[] = "trainyard.dev/v1alpha1";
inline constexpr char kKind[] = "TrainingJob";
inline constexpr char kPlural[] = "trainingjobs";

// What to do after an attempt whose culprit matches. Exactly one of the three matches is set.
struct RestartRule {
  std::string on_pod_condition;
  std::vector<int64_t> on_exit_codes;
  std::vector<std::string> on_reasons;
  std::string action;  // kRestart, kRestartUncharged or kFail
};

inline constexpr char kRestart[] = "Restart", kRestartUncharged[] = "RestartUncharged", kFail[] = "Fail";

struct Backoff {
  int64_t initial_seconds = 5, max_seconds = 300;
};

struct AvoidNodes {
  int64_t after_failures = 2, for_seconds = 3600;
};

// They stand behind every job's own.
const std::vector<RestartRule>& DefaultRules();

struct Restart {
  int64_t max_restarts = 10;
  int64_t same_step_limit = 3;
  Backoff backoff;
  AvoidNodes avoid_nodes;
  std::vector<RestartRule> rules;  // the job's own
};

// The job's own and the defaults, in the order in which they are tried.
std::vector<RestartRule> RulesInForce(const Restart& restart);

struct Deadlines {
  std::optional<int64_t> schedule_seconds;
  int64_t start_seconds = 1800, stall_seconds = 600;
  std::optional<int64_t> active_seconds;
  int64_t terminate_seconds = 60;
};

struct Checkpoint {
  Json volume;  // null: none
  std::string path = "/checkpoints";
  int64_t grace_seconds = 60;
};

struct SharedMemory {
  std::string size_limit;  // empty: half of the node's memory, as the kernel does
};

// Who places all workers of an attempt together, or none: nobody, kube-scheduler, Volcano, or a scheduler with the
// coscheduling plugin.
inline constexpr char kNoGang[] = "none", kNativeGang[] = "native", kVolcanoGang[] = "volcano",
                      kCoschedulingGang[] = "coscheduling";

struct Scheduling {
  std::string gang = kNoGang, queue, priority_class_name;
};

// How workers find worker 0: by the address of a service, or by its name.
inline constexpr char kByService[] = "service", kByName[] = "dns";

struct JobSpec {
  int64_t workers = 0;
  std::optional<int64_t> procs_per_worker;  // nothing: auto
  Json config;                              // null: none
  Json pod_template;
  Restart restart;
  Deadlines deadlines;
  Checkpoint checkpoint;
  SharedMemory shared_memory;
  Scheduling scheduling;
  std::string rendezvous = kByService;
  bool suspend = false;
  std::string managed_by;
  std::string clean_pod_policy = "Running";
  std::optional<int64_t> ttl_seconds_after_finished;
  std::string success_policy = "AllWorkers";
};

struct Condition {
  std::string type, status, reason, message;
  std::optional<Time> last_transition_time;
  int64_t observed_generation = 0;
  bool operator==(const Condition&) const = default;
};

// Failures in a row with one reason at one known step.
struct FailureStreak {
  std::string reason;
  int64_t step = 0, count = 0;
  bool operator==(const FailureStreak&) const = default;
};

struct Restarts {
  int64_t total = 0, charged = 0;
  int64_t repeats = 0;                  // in a row, without a newer durable checkpoint
  std::optional<int64_t> durable_step;  // when the job was last restarted
  std::optional<FailureStreak> streak;
  bool operator==(const Restarts&) const = default;
};

// The most of one job, in a spec and in a status.
inline constexpr int64_t kMaxWorkers = 10000;
inline constexpr int64_t kMaxProcsPerWorker = 1024;
// Attempts are part of a pod's name, which ends at 63 characters.
inline constexpr int64_t kMaxAttempt = 1'000'000'000;

struct Workers {
  int64_t desired = 0, created = 0, active = 0, ready = 0, succeeded = 0, failed = 0;
  std::string done;  // by index, such as "0-3,7": those that succeeded
  bool operator==(const Workers&) const = default;
};

struct WorldStatus {
  int64_t size = 0;
  bool operator==(const WorldStatus&) const = default;
};

struct Master {
  std::string address;
  int64_t port = 0;
  bool operator==(const Master&) const = default;
};

// Nothing where rank 0 has not said it.
struct Progress {
  std::optional<int64_t> step, total_steps, percent;
  std::optional<double> samples_per_second;
  std::optional<int64_t> eta_seconds;
  std::optional<double> loss;
  std::optional<Time> last_update;
  std::optional<Time> last_progress;       // by the trainer's clock: only ever compared with itself
  std::optional<Time> last_progress_seen;  // by the operator's, and later by the time in which nobody answered
  bool operator==(const Progress&) const = default;
};

// The newest durable one; nothing while none is known.
struct CheckpointStatus {
  std::optional<int64_t> step;
  std::optional<Time> time;
  std::string path;
  std::optional<int64_t> bytes;
  bool operator==(const CheckpointStatus&) const = default;
};

// The culprit of the newest failed attempt.
struct Failure {
  int64_t attempt = 0, rank = 0;
  std::string pod, node;
  std::optional<int64_t> exit_code, signal;
  std::string reason;
  std::optional<int64_t> step;
  std::string message;
  std::optional<Time> time;
  std::vector<std::string> tail;
  bool operator==(const Failure&) const = default;
};

// What stays of an older one.
struct PastFailure {
  int64_t attempt = 0;
  std::string reason;
  int64_t rank = 0;
  std::string node;
  std::optional<int64_t> step;
  std::optional<Time> time;
  bool operator==(const PastFailure&) const = default;
};

// Seconds that each stage of an attempt's start took, one behind the other; nothing while that is not known.
struct Startup {
  std::optional<double> queued, scheduled, pulled, rendezvous, first_step;
  std::optional<int64_t> from_step;
  bool operator==(const Startup&) const = default;
};

struct LostSeconds {
  int64_t queue = 0, startup = 0, restart = 0;
  std::optional<int64_t> replay, stall;  // nothing until rank 0 has told a step
  bool operator==(const LostSeconds&) const = default;
};

// Where the job's time went, in whole seconds from its creation to as_of, without its suspensions.
struct Goodput {
  int64_t training_seconds = 0;
  LostSeconds lost_seconds;
  std::optional<int64_t> step;           // of this attempt, at as_of
  std::optional<int64_t> furthest_step;  // of all attempts
  std::optional<Time> as_of;
  bool operator==(const Goodput&) const = default;
};

// A node on which culprits were.
struct AvoidedNode {
  std::string node;
  int64_t failures = 0;
  std::optional<Time> until;  // so long they count
  bool operator==(const AvoidedNode&) const = default;
};

struct JobStatus {
  int64_t observed_generation = 0;
  std::string spec_hash, checkpoint_hash, phase;
  std::vector<Condition> conditions;
  int64_t attempt = 0;
  std::optional<Time> attempt_time;
  Restarts restarts;
  std::optional<Time> start_time, completion_time;
  int64_t suspended_seconds = 0;  // in all, since start_time
  Workers workers;
  WorldStatus world;
  Master master;
  Progress progress;
  CheckpointStatus checkpoint;
  Startup startup;
  Goodput goodput;
  std::optional<Failure> last_failure;
  std::vector<PastFailure> failures;  // newest first
  std::vector<AvoidedNode> avoided_nodes;
  bool operator==(const JobStatus&) const = default;
};

struct TrainingJob {
  std::string name, ns, uid, resource_version;
  int64_t generation = 0;
  bool deleting = false;
  std::optional<Time> created;
  Json labels;  // an object
  JobSpec spec;
  JobStatus status;

  // What caches and the work queue know it by.
  std::string Key() const { return ns + "/" + name; }
};

// Phases.
inline constexpr char kPending[] = "Pending";
inline constexpr char kStarting[] = "Starting";
inline constexpr char kRunning[] = "Running";
inline constexpr char kRestarting[] = "Restarting";
inline constexpr char kSuspending[] = "Suspending";
inline constexpr char kSuspended[] = "Suspended";
inline constexpr char kInvalid[] = "Invalid";
inline constexpr char kSucceeded[] = "Succeeded";
inline constexpr char kFailed[] = "Failed";

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_TRAINING_JOB_H_

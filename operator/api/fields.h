// The one description of the API's fields: JSON name, meaning, range. Visitors make of it the decoder,
// the encoder, the CRD's schema and the API reference.
//
// A visitor has, for a field `name` bound to a member:
//   Integer(name, int64_t& or optional<int64_t>&, Range, FieldText)
//   Number(name, double&, FieldText)        Boolean(name, bool&, FieldText)
//   Text(name, string&, Allowed, FieldText)  Moment(name, optional<Time>&, FieldText)
//   IntegerOrAuto(name, optional<int64_t>&, Range, FieldText)
//   Free(name, Json&, Size, FieldText): an object that is not looked into
//   Integers(name, vector&, Range, FieldText), Texts(name, vector&, Allowed, FieldText)
//   Object(name, T& or optional<T>&, FieldText), List(name, vector<T>&, FieldText): Fields(visitor, T) describes T
#ifndef TRAINYARD_OPERATOR_API_FIELDS_H_
#define TRAINYARD_OPERATOR_API_FIELDS_H_

#include <string_view>
#include <vector>

#include "operator/api/training_job.h"

namespace trainyard::api {

// Without a maximum: what every reader of JSON holds exactly, so that a sum of two overflows nowhere.
struct Range {
  int64_t min = 0, max = int64_t{1} << 53;
};

// The values that are allowed; empty: any text.
struct Allowed {
  std::vector<std::string_view> values;
  int64_t max_length = 0;  // 0: not limited
};

// How large an object may be as JSON: it is kept for as long as there is its job.
struct Size {
  size_t max_bytes = 0;
  size_t max_values = 10000;  // texts, numbers, lists, objects: as a tree each takes a hundred bytes, whatever its text
  const char* instead = "";   // what to do with a larger one
};

struct FieldText {
  const char* text;  // what it does, with unit and what its absence means
  bool required = false;
  const char* changes = "at any time";  // when it may change
  int64_t most_items = 256;             // of a list
};

inline constexpr char kNotWhileRunning[] = "before the first attempt, or while suspend is true";
inline constexpr char kNotUntilSuspended[] = "before the first attempt, or once the job is Suspended";
inline constexpr char kNever[] = "never";
inline constexpr char kByOperator[] = "";  // status

template <class V>
void Fields(V& v, RestartRule& r) {
  v.Text("onPodCondition", r.on_pod_condition, Allowed{.max_length = 316},
         {"Matches when the culprit's pod has this condition with status True, such as DisruptionTarget. Exactly one "
          "of onPodCondition, onExitCodes and onReasons is set."});
  v.Integers("onExitCodes", r.on_exit_codes, Range{1, 255},
             {"Matches when the culprit's container ended with one of these exit codes. Exactly one of onPodCondition, "
              "onExitCodes and onReasons is set."});
  v.Texts("onReasons", r.on_reasons, Allowed{.max_length = 128},
          {.text = "Matches when the culprit's reason is one of these, such as OOMKilled, Evicted or Hang: what "
                   "status.lastFailure.reason says. Exactly one of onPodCondition, onExitCodes and onReasons is set.",
           .most_items = 32});
  v.Text("action", r.action, Allowed{.values = {kRestart, kRestartUncharged, kFail}},
         {"Restart starts a new attempt, charged to maxRestarts unless a newer durable checkpoint was reached; "
          "RestartUncharged starts one that is never charged; Fail ends the job.",
          true});
}

template <class V>
void Fields(V& v, Backoff& b) {
  v.Integer(
      "initialSeconds", b.initial_seconds, Range{0, 86400},
      {"Seconds before the first restart, doubled for each of a series; of one that is not charged, the first comes at "
       "once. Default 5."});
  v.Integer("maxSeconds", b.max_seconds, Range{0, 86400}, {"The longest such wait, in seconds. Default 300."});
}

template <class V>
void Fields(V& v, AvoidNodes& a) {
  v.Integer(
      "afterFailures", a.after_failures, Range{1, 1000},
      {"So many culprits on one node, each within forSeconds of the one before, keep later attempts away from "
       "it. Disruptions, attempts that stallSeconds ended, workers that lost a peer (exit code 69) and what a rule "
       "restarts uncharged do not count. Default 2."});
  v.Integer("forSeconds", a.for_seconds, Range{0, 31536000},
            {"For how long after the last of them, in seconds; 0: no node is avoided. Default 3600."});
}

template <class V>
void Fields(V& v, Restart& r) {
  v.Integer("maxRestarts", r.max_restarts, Range{0, 1000000},
            {"How many charged restarts the job may take; the next failure that would be charged ends it. A restart is "
             "charged only if no newer durable checkpoint was reached since the last one. Default 10."});
  v.Integer("sameStepLimit", r.same_step_limit, Range{1, 1000},
            {"The same reason at the same step so many times in a row ends the job. A step that nobody reported "
             "is not the same as another; a newer durable checkpoint counts anew; failures that a rule restarts "
             "uncharged never end the job: their restarts wait longer and longer instead. Default 3."});
  v.Object("backoff", r.backoff, {"The wait before a restart."});
  v.Object("avoidNodes", r.avoid_nodes,
           {"Nodes on which workers keep failing: pods of later attempts require another. "
            "When pods find no node for two minutes, all are allowed again."});
  v.List(
      "rules", r.rules,
      {.text = "What to do after a failure: the first rule that matches the culprit decides, and no match is a charged "
               "restart. Behind the job's own stand always: DisruptionTarget restarts uncharged; exit codes 2, 64, "
               "65, 72, 126 and 127 fail; 75 restarts uncharged. Absent: those alone.",
       .most_items = 32});
}

template <class V>
void Fields(V& v, Deadlines& d) {
  v.Integer("scheduleSeconds", d.schedule_seconds, Range{1, 31536000},
            {"Seconds from the creation of an attempt's first pod until all are scheduled; then the attempt ends with "
             "reason ScheduleDeadlineExceeded, and the next one asks anew. Absent: no limit, since queues may last for "
             "hours."});
  v.Integer("startSeconds", d.start_seconds, Range{1, 31536000},
            {"Seconds from there until all workers are ready; then the attempt ends with reason StartDeadlineExceeded. "
             "Default 1800."});
  v.Integer("stallSeconds", d.stall_seconds, Range{1, 31536000},
            {"Seconds in which rank 0 answers on /status and its last_progress_time stays the same; then the attempt "
             "ends with reason Hang. Time in which it does not answer does not count, and a program that never answers "
             "never stalls. Default 600."});
  v.Integer("activeSeconds", d.active_seconds, Range{1, 31536000},
            {"Seconds that the job may take in all, from status.startTime and without the time for which it was "
             "suspended; then it fails with reason DeadlineExceeded. Absent: no limit."});
  v.Integer("terminateSeconds", d.terminate_seconds, Range{1, 86400},
            {"Seconds after its metadata.deletionTimestamp, which contains its grace, before a pod that does not go "
             "is deleted by force: its node may be lost. Default 60."});
}

template <class V>
void Fields(V& v, Checkpoint& c) {
  v.Free("volume", c.volume, Size{.max_bytes = 4 << 10},
         {"A volume source (such as persistentVolumeClaim) that every worker mounts at path; TRAINYARD_CHECKPOINT_DIR "
          "names it. At most 4 KiB as JSON. Absent: the template has its own, or none.",
          false, kNotWhileRunning});
  v.Text("path", c.path, Allowed{.max_length = 1024},
         {"Where the volume is mounted. Default /checkpoints.", false, kNotWhileRunning});
  v.Integer("graceSeconds", c.grace_seconds, Range{0, 86400},
            {"Seconds that a worker gets to save after SIGTERM. Default 60.", false, kNotWhileRunning});
}

template <class V>
void Fields(V& v, SharedMemory& s) {
  v.Text("sizeLimit", s.size_limit, Allowed{.max_length = 32},
         {"Size of the memory-backed /dev/shm that workers get when the template mounts none, as a quantity such as "
          "8Gi; a change holds from the next attempt on. Absent: the node's own limit."});
}

template <class V>
void Fields(V& v, Scheduling& s) {
  v.Text("gang", s.gang, Allowed{.values = {kNoGang, kNativeGang, kVolcanoGang, kCoschedulingGang}},
         {"Who places all workers of an attempt together, or none of them. native: kube-scheduler, by a PodGroup of "
          "scheduling.k8s.io/v1alpha2 (Kubernetes 1.36 with the feature gates GenericWorkload and GangScheduling); "
          "volcano: the scheduler of this name, unless the template names another; coscheduling: the plugin, in the "
          "scheduler that the template's schedulerName names. none: each worker goes where it fits. Default none.",
          false, kNotUntilSuspended});
  v.Text("queue", s.queue, Allowed{.max_length = 253},
         {"Volcano's queue; with gang volcano only. Absent: its default queue. Kueue's queue is the label "
          "kueue.x-k8s.io/queue-name on the TrainingJob.",
          false, kNotWhileRunning});
  v.Text(
      "priorityClassName", s.priority_class_name, Allowed{.max_length = 253},
      {"Priority class of the workers, and of Volcano's PodGroup. Absent: the template's.", false, kNotWhileRunning});
}

template <class V>
void Fields(V& v, JobSpec& s) {
  v.Integer("workers", s.workers, Range{1, kMaxWorkers}, {"Number of worker pods.", true, kNotWhileRunning});
  v.IntegerOrAuto("procsPerWorker", s.procs_per_worker, Range{1, kMaxProcsPerWorker},
                  {"Processes in each worker: a number, or auto: the sum of the trainer container's limits named */gpu "
                   "or nvidia.com/mig-*, else 1. Default auto.",
                   false, kNotWhileRunning});
  v.Free("config", s.config,
         Size{.max_bytes = 64 << 10, .instead = "; mount a larger one as a file and name it in the template's command"},
         {"The trainer's configuration (docs/config.md), at most 64 KiB as JSON and 10,000 values. It reaches the "
          "worker as a file, "
          "named by TRAINYARD_CONFIG. Absent: the command in the template names its own.",
          false, kNotWhileRunning});
  v.Free("template", s.pod_template, Size{.max_bytes = 256 << 10},
         {"Pod template of a worker, at most 256 KiB as JSON and 10,000 values. The container named trainer, or the "
          "first, gets the "
          "worker environment. restartPolicy is Never, and a container has none of its own, nor restartPolicyRules.",
          true, kNotWhileRunning});
  v.Object("restart", s.restart, {"What happens after a failure."});
  v.Object("deadlines", s.deadlines,
           {"How long each stage may take. An attempt that a deadline ends is restarted, charged, unless a rule names "
            "the reason."});
  v.Object("checkpoint", s.checkpoint, {"Where checkpoints lie, and the time to write one on a stop."});
  v.Object("sharedMemory", s.shared_memory, {"The workers' /dev/shm."});
  v.Object("scheduling", s.scheduling,
           {"How workers are scheduled together (docs/gangs.md).", false, kNotWhileRunning});
  v.Text("rendezvous", s.rendezvous, Allowed{.values = {kByService, kByName}},
         {"What MASTER_ADDR is for the workers behind the first: the address of the service <job>-master, which is in "
          "their environment from the start, or, with dns, the first worker's name, for a cluster that has no service "
          "proxy. Default service.",
          false, kNotWhileRunning});
  v.Boolean("suspend", s.suspend,
            {"true ends the workers after a checkpoint and creates none; false goes on from there. Default false."});
  v.Text("managedBy", s.managed_by, Allowed{.max_length = 63},
         {"Another controller's name keeps this operator away from the job. Absent or trainyard.dev/operator: this "
          "operator. It never changes.",
          false, kNever});
  v.Text("cleanPodPolicy", s.clean_pod_policy, Allowed{.values = {"All", "Running", "None"}},
         {"Which pods are deleted when the job ends: all of them, those that still run, or none. Default Running."});
  v.Integer("ttlSecondsAfterFinished", s.ttl_seconds_after_finished, Range{0, 31536000},
            {"Seconds after its end before the job is deleted, and what is left of its pods with it. Absent: never."});
  v.Text("successPolicy", s.success_policy, Allowed{.values = {"AllWorkers", "RankZero"}},
         {"Who must succeed for the job to succeed: AllWorkers, or RankZero, where worker 0's end with 0 is the job's "
          "and the others are ended by cleanPodPolicy. Default AllWorkers."});
}

template <class V>
void Fields(V& v, Condition& c) {
  v.Text("type", c.type, Allowed{.max_length = 316},
         {"Scheduled, WorkersReady, Running, Stalled, ProgressUnknown, Restarting, Suspended, InvalidSpec, Unfenced, "
          "Complete or Failed.",
          true, kByOperator});
  v.Text("status", c.status, Allowed{.values = {"True", "False", "Unknown"}}, {"Whether it holds.", true, kByOperator});
  v.Text("reason", c.reason, Allowed{.max_length = 1024}, {"Why, as one word.", true, kByOperator});
  v.Text("message", c.message, Allowed{.max_length = 32768}, {"Why, for people.", true, kByOperator});
  v.Moment("lastTransitionTime", c.last_transition_time, {"When status last changed.", true, kByOperator});
  v.Integer("observedGeneration", c.observed_generation, Range{},
            {"The generation of the spec that it speaks of.", false, kByOperator});
}

template <class V>
void Fields(V& v, FailureStreak& f) {
  v.Text("reason", f.reason, Allowed{}, {"Their reason.", false, kByOperator});
  v.Integer("step", f.step, Range{}, {"The step at which they happened.", false, kByOperator});
  v.Integer("count", f.count, Range{}, {"How many in a row.", false, kByOperator});
}

template <class V>
void Fields(V& v, Restarts& r) {
  v.Integer("total", r.total, Range{}, {"Restarts so far.", false, kByOperator});
  v.Integer("charged", r.charged, Range{}, {"Those that count against maxRestarts.", false, kByOperator});
  v.Integer("repeats", r.repeats, Range{},
            {"Restarts in a row without a newer durable checkpoint: the wait before the next one grows with them.",
             false, kByOperator});
  v.Integer("durableStep", r.durable_step, Range{},
            {"Step of the newest durable checkpoint when the job was last restarted: a failure beyond a newer one is "
             "not charged. Absent: none was known.",
             false, kByOperator});
  v.Object("streak", r.streak, {"Failures in a row with one reason at one step.", false, kByOperator});
}

template <class V>
void Fields(V& v, Workers& w) {
  v.Integer("desired", w.desired, Range{0, kMaxWorkers}, {"Workers that the attempt should have.", false, kByOperator});
  v.Integer("created", w.created, Range{},
            {"Workers of this attempt that have had a pod: once all have, one without a pod has lost it.", false,
             kByOperator});
  v.Integer("active", w.active, Range{}, {"Pods that exist and have not ended.", false, kByOperator});
  v.Integer("ready", w.ready, Range{}, {"Pods that are ready.", false, kByOperator});
  v.Integer("succeeded", w.succeeded, Range{},
            {"Workers whose trainer ended with 0, also those whose pod is gone.", false, kByOperator});
  v.Integer("failed", w.failed, Range{}, {"Workers whose trainer ended otherwise.", false, kByOperator});
  v.Text("done", w.done, Allowed{},
         {"Which workers have succeeded, by index, such as 0-3,7: a pod that goes afterwards takes nothing with it.",
          false, kByOperator});
}

template <class V>
void Fields(V& v, WorldStatus& w) {
  v.Integer("size", w.size, Range{}, {"Ranks in all.", false, kByOperator});
}

template <class V>
void Fields(V& v, Master& m) {
  v.Text("address", m.address, Allowed{},
         {"The address of the service <job>-master, or with spec.rendezvous dns worker 0's name. Absent: there is none "
          "yet.",
          false, kByOperator});
  v.Integer("port", m.port, Range{}, {"The rendezvous port of this attempt.", false, kByOperator});
}

template <class V>
void Fields(V& v, Progress& p) {
  v.Integer("step", p.step, Range{},
            {"Optimizer steps done; absent while nobody has reported them, like all of these.", false, kByOperator});
  v.Integer("totalSteps", p.total_steps, Range{}, {"Optimizer steps of the whole run.", false, kByOperator});
  v.Integer("percent", p.percent, Range{}, {"step of totalSteps, 0 to 100.", false, kByOperator});
  v.Number("samplesPerSecond", p.samples_per_second,
           {"Over all ranks; absent while it is not known.", false, kByOperator});
  v.Integer("etaSeconds", p.eta_seconds, Range{},
            {"Seconds that are left at this speed; absent while that is not known.", false, kByOperator});
  v.Number("loss", p.loss,
           {"The newest global loss; absent while it is not known, or not finite.", false, kByOperator});
  v.Moment("lastUpdate", p.last_update, {"When rank 0 last answered.", false, kByOperator});
  v.Moment("lastProgress", p.last_progress,
           {"When this attempt's training last went on, by the trainer's own clock; absent while it has not said so.",
            false, kByOperator});
  v.Moment(
      "lastProgressSeen", p.last_progress_seen,
      {"Since when the operator knows no newer lastProgress: from here deadlines.stallSeconds counts. Later by the "
       "time in which rank 0 did not answer.",
       false, kByOperator});
}

template <class V>
void Fields(V& v, CheckpointStatus& c) {
  v.Integer("step", c.step, Range{}, {"Step of the newest durable checkpoint.", false, kByOperator});
  v.Moment("time", c.time, {"When it became durable.", false, kByOperator});
  v.Text("path", c.path, Allowed{}, {"The directory that holds it, in the worker.", false, kByOperator});
  v.Integer("bytes", c.bytes, Range{}, {"Its size in bytes.", false, kByOperator});
}

template <class V>
void Fields(V& v, Failure& f) {
  v.Integer("attempt", f.attempt, Range{}, {"The attempt that failed.", false, kByOperator});
  v.Integer("rank", f.rank, Range{}, {"The culprit's rank.", false, kByOperator});
  v.Text("pod", f.pod, Allowed{}, {"The culprit's pod.", false, kByOperator});
  v.Text("node", f.node, Allowed{}, {"The node it ran on.", false, kByOperator});
  v.Integer("exitCode", f.exit_code, Range{},
            {"Its exit code; absent when its pod left nothing behind.", false, kByOperator});
  v.Integer("signal", f.signal, Range{}, {"The signal that ended it; absent: none.", false, kByOperator});
  v.Text("reason", f.reason, Allowed{}, {"Why, as one word: docs/architecture.md, Exit codes.", false, kByOperator});
  v.Integer("step", f.step, Range{}, {"The step that it was at; absent when nobody reported it.", false, kByOperator});
  v.Text("message", f.message, Allowed{}, {"What it said.", false, kByOperator});
  v.Moment("time", f.time, {"When it ended.", false, kByOperator});
  v.Texts("tail", f.tail, Allowed{}, {"The last lines of its output.", false, kByOperator});
}

template <class V>
void Fields(V& v, PastFailure& f) {
  v.Integer("attempt", f.attempt, Range{}, {"The attempt that failed.", false, kByOperator});
  v.Text("reason", f.reason, Allowed{}, {"Why, as one word.", false, kByOperator});
  v.Integer("rank", f.rank, Range{}, {"The culprit's rank.", false, kByOperator});
  v.Text("node", f.node, Allowed{}, {"The node it ran on.", false, kByOperator});
  v.Integer("step", f.step, Range{}, {"The step that it was at.", false, kByOperator});
  v.Moment("time", f.time, {"When it ended.", false, kByOperator});
}

template <class V>
void Fields(V& v, Startup& s) {
  v.Number("queued", s.queued,
           {"Seconds from the attempt's beginning until all of its pods existed: the last attempt's pods going, the "
            "wait before a restart, a quota. Absent, like all of these, while it is not known.",
            false, kByOperator});
  v.Number("scheduled", s.scheduled, {"From there until all had a node.", false, kByOperator});
  v.Number("pulled", s.pulled,
           {"From there until all trainers had started: volumes, images, init containers.", false, kByOperator});
  v.Number("rendezvous", s.rendezvous,
           {"From there until the ranks had met, as rank 0 says; an image that does not say so has none.", false,
            kByOperator});
  v.Number("firstStep", s.first_step,
           {"From there to the end of the first step: loading, and the step itself.", false, kByOperator});
  v.Integer("fromStep", s.from_step, Range{},
            {"The step that this attempt went on from; absent while rank 0 has not said so.", false, kByOperator});
}

template <class V>
void Fields(V& v, LostSeconds& l) {
  v.Integer("queue", l.queue, Range{},
            {"Until the workers had nodes: a queue, a quota, a full cluster, an invalid spec.", false, kByOperator});
  v.Integer(
      "startup", l.startup, Range{},
      {"From there to the first step; for an image that tells no steps until all workers ran.", false, kByOperator});
  v.Integer(
      "replay", l.replay, Range{},
      {"Steps that an earlier attempt had done already. Absent while rank 0 has not told a step.", false, kByOperator});
  v.Integer("stall", l.stall, Range{},
            {"No step and no other progress until the attempt ended. Absent while rank 0 has not told a step.", false,
             kByOperator});
  v.Integer("restart", l.restart, Range{},
            {"From a failure until the next attempt's first pod: the other workers' ends, their going, the wait.",
             false, kByOperator});
}

template <class V>
void Fields(V& v, Goodput& g) {
  v.Integer("trainingSeconds", g.training_seconds, Range{},
            {"Steps that no attempt had done before; for an image that tells no steps, all the time in which its "
             "workers ran.",
             false, kByOperator});
  v.Object("lostSeconds", g.lost_seconds, {"The rest, by cause.", false, kByOperator});
  v.Integer("step", g.step, Range{}, {"How far this attempt was at asOf.", false, kByOperator});
  v.Integer("furthestStep", g.furthest_step, Range{}, {"How far any attempt was.", false, kByOperator});
  v.Moment(
      "asOf", g.as_of,
      {"Until when these seconds speak; what follows is counted when it is known what it was.", false, kByOperator});
}

template <class V>
void Fields(V& v, AvoidedNode& a) {
  v.Text("node", a.node, Allowed{}, {"Its name.", false, kByOperator});
  v.Integer("failures", a.failures, Range{}, {"Culprits that were there.", false, kByOperator});
  v.Moment("until", a.until,
           {"Until when they count. From restart.avoidNodes.afterFailures of them on, attempts that begin before it "
            "avoid the node.",
            false, kByOperator});
}

template <class V>
void Fields(V& v, JobStatus& s) {
  v.Integer("observedGeneration", s.observed_generation, Range{},
            {"The generation of the spec that this status speaks of.", false, kByOperator});
  v.Text("specHash", s.spec_hash, Allowed{},
         {"Hash of the spec that the current attempt was made from.", false, kByOperator});
  v.Text("checkpointHash", s.checkpoint_hash, Allowed{},
         {"Hash of where that spec says that checkpoints lie. With another one, the steps that the job had reached and "
          "saved are forgotten.",
          false, kByOperator});
  v.Text("phase", s.phase, Allowed{},
         {"Pending, Starting, Running, Restarting, Suspending, Suspended, Invalid, Succeeded or Failed: a summary of "
          "the conditions.",
          false, kByOperator});
  v.List("conditions", s.conditions, {"Each stage, with the reason.", false, kByOperator});
  v.Integer("attempt", s.attempt, Range{0, kMaxAttempt},
            {"Which attempt this is, from 1; it never decreases.", false, kByOperator});
  v.Moment("attemptTime", s.attempt_time, {"When this attempt began.", false, kByOperator});
  v.Object("restarts", s.restarts, {"How often the job was restarted.", false, kByOperator});
  v.Moment("startTime", s.start_time, {"When the first attempt began.", false, kByOperator});
  v.Moment("completionTime", s.completion_time, {"When the job ended.", false, kByOperator});
  v.Integer("suspendedSeconds", s.suspended_seconds, Range{},
            {"Seconds between startTime and now for which the job was suspended, in all: deadlines.activeSeconds does "
             "not count them.",
             false, kByOperator});
  v.Object("workers", s.workers, {"The workers of this attempt.", false, kByOperator});
  v.Object("world", s.world, {"The ranks of this attempt.", false, kByOperator});
  v.Object("master", s.master, {"Where the ranks of this attempt meet.", false, kByOperator});
  v.Object("progress", s.progress, {"How far training is, as rank 0 says.", false, kByOperator});
  v.Object("checkpoint", s.checkpoint, {"The newest durable checkpoint.", false, kByOperator});
  v.Object("startup", s.startup, {"How long each stage of this attempt's start took.", false, kByOperator});
  v.Object("goodput", s.goodput,
           {"Where the job's time went, in seconds from its creation, without its suspensions.", false, kByOperator});
  v.Object("lastFailure", s.last_failure,
           {"The cause of the newest failed attempt: the evidence that would otherwise go with the pods.", false,
            kByOperator});
  v.List("failures", s.failures, {"The causes of the last ten failed attempts, the newest first.", false, kByOperator});
  v.List("avoidedNodes", s.avoided_nodes,
         {"Nodes on which culprits were: restart.avoidNodes. Brought up to date when an attempt ends.", false,
          kByOperator});
}

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_FIELDS_H_

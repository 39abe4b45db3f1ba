#include "operator/local/submit.h"

#include <chrono>
#include <thread>

#include "operator/api/json.h"
#include "operator/base/exit_codes.h"
#include "operator/base/json_access.h"
#include "operator/kube/client.h"
#include "operator/reconcile/conditions.h"

namespace trainyard::local {
namespace {

const WriteRequest kAsUser{.dry_run = false, .strict = true, .manager = "local", .force = false};
constexpr auto kTick = std::chrono::milliseconds(50);
// Beyond the workers' own grace.
constexpr std::chrono::seconds kSuspendDeadline{60};

// One job of the API, and the file's.
class Submission {
 public:
  Submission(MemoryApi& api, const Json& job, const SubmitOptions& options)
      : api_(api),
        job_(job),
        options_(options),
        ns_(job["metadata"]["namespace"]),
        name_(job["metadata"]["name"]),
        old_(api.Get(kube::kTrainingJobs, ns_, name_).body) {}

  Status Run() {
    const api::TrainingJob before = SavedJob(api_, ns_, name_);
    if (before.uid.empty()) return Create();
    const Result<std::string> changed = Changed();
    if (!changed.ok()) return changed.status();
    const std::optional<int> code = ExitCode(before);
    if (!code || before.status.phase == api::kInvalid) return GoOn(*changed);
    if (*code == 0 && changed->empty()) {
      options_.say("this job succeeded in an earlier run: nothing is run; another --state-dir would start anew");
      return Status::Ok();
    }
    options_.say("this job ended in an earlier run (" + before.status.phase + ")" +
                 (changed->empty() ? "" : " with another " + *changed) +
                 ": it is made anew; its claims stay, and the checkpoints in them");
    return Replace(before.uid);
  }

 private:
  Status Create() {
    const ApiResult created = api_.Create(kube::kTrainingJobs, ns_, job_, kAsUser);
    return created.ok() ? Status::Ok() : kube::StatusFromApi(created.http, created.body);
  }

  // The fields of the spec that the file has otherwise, whose defaults the API fills in. An error for a job that the
  // API would not create.
  Result<std::string> Changed() {
    Json job = job_;
    job["metadata"] = {{"namespace", ns_}, {"name", "with-defaults"}};
    WriteRequest dry = kAsUser;
    dry.dry_run = true;
    const ApiResult whole = api_.Create(kube::kTrainingJobs, ns_, job, dry);
    if (!whole.ok()) return kube::StatusFromApi(whole.http, whole.body);
    const Json difference = api::MergeDiff(json::Field(old_, "spec"), json::Field(whole.body, "spec"));
    std::string names;
    for (const auto& [field, value] : difference.items()) names += (names.empty() ? "spec." : ", spec.") + field;
    return names;
  }

  Status Replace(const std::string& uid) {
    const ApiResult deleted = api_.Delete(kube::kTrainingJobs, ns_, name_,
                                          {.dry_run = false,
                                           .uid = uid,
                                           .resource_version = "",
                                           .grace_seconds = std::nullopt,
                                           .propagation = "Background"});
    if (!deleted.ok()) return kube::StatusFromApi(deleted.http, deleted.body);
    api_.CollectGarbage();  // its pods have the names of the next one's
    return Create();
  }

  Status GoOn(const std::string& changed) {
    Status taken = Write("/spec", job_["spec"]);
    if (taken.ok() || changed.empty() || !options_.operated) return taken;
    options_.say("this job goes on with another " + changed + ": it is suspended, changed and resumed");
    const Json before = json::Field(json::Field(old_, "spec"), "suspend");
    if (Status status = Write("/spec/suspend", true); !status.ok()) return status;
    Status status = AwaitSuspension();
    if (status.ok()) status = Write("/spec", job_["spec"]);
    if (status.ok()) return status;
    (void)Write("/spec/suspend", before.is_boolean() ? before : Json(false));  // what is left is as it was
    return status.With("the state directory has this job with another " + changed +
                       "; another --state-dir would start it anew");
  }

  Status Write(const char* path, const Json& value) {
    const ApiResult written = api_.Patch(kube::kTrainingJobs, ns_, name_, "", PatchType::kJson,
                                         Json::array({{{"op", "add"}, {"path", path}, {"value", value}}}), kAsUser);
    return written.ok() ? Status::Ok() : kube::StatusFromApi(written.http, written.body);
  }

  // An operator suspends no job whose spec it refuses; the API lets that be mended at once.
  Status AwaitSuspension() {
    using Clock = std::chrono::steady_clock;
    const auto patience =
        kSuspendDeadline + std::chrono::seconds(SavedJob(api_, ns_, name_).spec.checkpoint.grace_seconds);
    for (const auto end = Clock::now() + patience; Clock::now() < end && !options_.stopped();) {
      const std::string phase = SavedJob(api_, ns_, name_).status.phase;
      if (phase == api::kSuspended || phase == api::kInvalid) return Status::Ok();
      std::this_thread::sleep_for(kTick);
    }
    return Status(Code::kUnavailable,
                  options_.stopped() ? "stopped while the job was being suspended"
                                     : "the job was not suspended within " + std::to_string(patience.count()) + " s");
  }

  MemoryApi& api_;
  const Json& job_;
  const SubmitOptions& options_;
  const std::string ns_, name_;
  const Json old_;  // null or an error when there is none
};

}  // namespace

api::TrainingJob SavedJob(MemoryApi& api, const std::string& ns, const std::string& name) {
  const ApiResult object = api.Get(kube::kTrainingJobs, ns, name);
  return object.ok() ? api::JobFromJson(object.body) : api::TrainingJob();
}

std::optional<int> ExitCode(const api::TrainingJob& job) {
  const api::JobStatus& status = job.status;
  if (reconcile::IsTrue(status, reconcile::kCompleteCondition)) return 0;
  if (reconcile::IsTrue(status, reconcile::kFailedCondition)) {
    // A number that no process ends with could end this one with 0.
    // What ended with the job may be a deadline: an older attempt's culprit is not to blame for that.
    const bool blamed = status.last_failure && status.last_failure->attempt == status.attempt;
    const int64_t culprits = blamed ? status.last_failure->exit_code.value_or(1) : 1;
    return culprits >= 1 && culprits <= 255 ? static_cast<int>(culprits) : 1;
  }
  if (status.phase == api::kInvalid && status.attempt == 0) return kExitInvalid;
  return std::nullopt;
}

Status Submit(MemoryApi& api, const Json& job, const SubmitOptions& options) {
  return Submission(api, job, options).Run();
}

}  // namespace trainyard::local

#include "tests/sim/mirror.h"

#include <sstream>

#include "operator/base/json_access.h"

namespace trainyard::sim {
namespace {

using json::Field, json::List, json::Text, json::Whole;

constexpr size_t kKept = 30;
constexpr char kPodCollection[] = "pods.", kJobCollection[] = "trainingjobs.trainyard.dev";

int64_t Number(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

std::optional<int64_t> Known(const Json& object, const char* key) {
  return Field(object, key).is_number_integer() ? std::optional(Whole(object, key)) : std::nullopt;
}

std::string Variable(const Json& container, const char* name) {
  for (const Json& variable : List(container, "env")) {
    if (Text(variable, "name") == name) return Text(variable, "value");
  }
  return "";
}

ContainerEnd EndOf(const Json& terminated) {
  ContainerEnd end{.code = Whole(terminated, "exitCode"),
                   .reason = Text(terminated, "reason"),
                   .time = ParseTime(Text(terminated, "finishedAt"))};
  const Json message = Json::parse(Text(terminated, "message"), nullptr, false);
  if (message.is_object()) {
    end.said = true;
    end.said_reason = Text(message, "reason");
    end.step = Known(message, "step");
    end.checkpoint_step = Known(message, "checkpoint_step");
  }
  return end;
}

void ReadStatus(const Json& status, PodView& view) {
  view.phase = Text(status, "phase");
  for (const Json& condition : List(status, "conditions")) {
    const bool holds = Text(condition, "status") == "True";
    view.scheduled |= holds && Text(condition, "type") == "PodScheduled";
    view.ready |= holds && Text(condition, "type") == "Ready";
    if (Text(condition, "type") != "DisruptionTarget" || Text(condition, "status") != "True") continue;
    view.disrupted = true;
    view.disrupted_at = ParseTime(Text(condition, "lastTransitionTime"));
  }
  for (const Json& container : List(status, "containerStatuses")) {
    const Json& terminated = Field(Field(container, "state"), "terminated");
    if (Text(container, "name") == "trainer" && terminated.is_object()) view.end = EndOf(terminated);
  }
  // Failed as a whole: no container tells of it.
  if (!view.end && view.phase == "Failed") view.end = ContainerEnd{.code = kNoCode, .reason = Text(status, "reason")};
}

PodView ViewOfPod(const Json& pod) {
  const Json &metadata = Field(pod, "metadata"), &labels = Field(metadata, "labels"), &spec = Field(pod, "spec");
  PodView view{.name = Text(metadata, "name"),
               .uid = Text(metadata, "uid"),
               .job_name = Text(labels, "trainyard.dev/job-name"),
               .job_uid = Text(labels, "trainyard.dev/job-uid"),
               .node = Text(spec, "nodeName"),
               .attempt = Number(Text(labels, "trainyard.dev/attempt")),
               .rank = Number(Text(labels, "trainyard.dev/rank")),
               .deleting = !Text(metadata, "deletionTimestamp").empty()};
  view.created = ParseTime(Text(metadata, "creationTimestamp"));
  view.gone_by = ParseTime(Text(metadata, "deletionTimestamp"));
  // Without a grace the time is the last deletion's, and there may have been others.
  const int64_t grace = Whole(metadata, "deletionGracePeriodSeconds");
  if (view.gone_by && grace > 0) view.deleted_at = After(*view.gone_by, -static_cast<double>(grace));
  const Json& affinity =
      Field(Field(Field(spec, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution");
  for (const Json& term : List(affinity, "nodeSelectorTerms")) {
    for (const Json& field : List(term, "matchFields")) {
      if (Text(field, "key") != "metadata.name" || Text(field, "operator") != "NotIn") continue;
      for (const Json& node : List(field, "values")) view.avoids.insert(node);
    }
  }
  for (const Json& owner : List(metadata, "ownerReferences")) view.owner_uid = Text(owner, "uid");
  for (const Json& container : List(spec, "containers")) {
    if (Text(container, "name") == "trainer") {
      view.fence_attempt = Number(Variable(container, "TRAINYARD_ATTEMPT"));
      view.workers = Number(Variable(container, "PET_NNODES"));
    } else {
      view.sidecar = true;
    }
  }
  ReadStatus(Field(pod, "status"), view);
  return view;
}

// "0-3,7"
std::set<int64_t> Indices(const std::string& text) {
  std::set<int64_t> out;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const int64_t first = Number(part), last = dash == std::string::npos ? first : Number(part.substr(dash + 1));
    for (int64_t i = first; i <= last; ++i) out.insert(i);
  }
  return out;
}

void ReadRules(const Json& restart, JobView& view) {
  for (const Json& rule : List(restart, "rules")) {
    const std::string action = Text(rule, "action");
    for (const Json& code : List(rule, "onExitCodes"))
      view.rules.push_back({.code = code, .fail = action == "Fail", .free = action == "RestartUncharged"});
  }
}

void ReadConditions(const Json& status, JobView& view) {
  for (const Json& condition : List(status, "conditions")) {
    const std::string type = Text(condition, "type");
    if (type == "Suspended") view.suspended_changed = ParseTime(Text(condition, "lastTransitionTime"));
    if (Text(condition, "status") != "True") continue;
    view.suspended |= type == "Suspended";
    view.succeeded |= type == "Succeeded" || type == "Complete";
    view.failed |= type == "Failed";
    if (type == "Failed") view.failed_reason = Text(condition, "reason");
  }
}

void ReadFailures(const Json& status, JobView& view) {
  const Json& failure = status.contains("lastFailure") ? status["lastFailure"] : Field(status, "firstFailure");
  view.culprit_pod = Text(failure, "pod");
  view.culprit_reason = Text(failure, "reason");
  view.culprit_attempt = Whole(failure, "attempt");
  view.culprit_time = ParseTime(Text(failure, "time"));
  if (Field(failure, "exitCode").is_number_integer()) view.culprit_code = Whole(failure, "exitCode");
  view.culprit_step = Known(failure, "step");
  const Json& inside = Field(Field(status, "restarts"), "streak");
  const Json& streak = inside.is_object() ? inside : Field(status, "failureStreak");
  if (streak.is_object())
    view.streak =
        Streak{.reason = Text(streak, "reason"), .step = Known(streak, "step"), .count = Whole(streak, "count")};
}

void ReadGoodput(const Json& goodput, JobView& view) {
  view.as_of = ParseTime(Text(goodput, "asOf"));
  view.trained = Whole(goodput, "trainingSeconds");
  for (const auto& [cause, seconds] : Field(goodput, "lostSeconds").items()) {
    view.lost_to[cause] = seconds;
    view.lost += view.lost_to[cause];
  }
}

JobView ViewOfJob(const Json& job) {
  const Json &metadata = Field(job, "metadata"), &spec = Field(job, "spec"), &status = Field(job, "status"),
             &restart = Field(spec, "restart"), &restarts = Field(status, "restarts");
  JobView view{.name = Text(metadata, "name"),
               .uid = Text(metadata, "uid"),
               .phase = Text(status, "phase"),
               .suspend = json::Flag(spec, "suspend"),
               .workers = Whole(spec, "workers"),
               .max_restarts = Whole(restart, "maxRestarts", 10),
               .same_step_limit = Whole(restart, "sameStepLimit", 3),
               .backoff_initial = Whole(Field(restart, "backoff"), "initialSeconds", 5),
               .backoff_max = Whole(Field(restart, "backoff"), "maxSeconds", 300),
               .made_from = Json{Whole(spec, "workers"), Field(spec, "template"), Field(spec, "sharedMemory")}.dump(),
               .clean_pod_policy = Text(spec, "cleanPodPolicy"),
               .attempt = Whole(status, "attempt"),
               .total = Whole(restarts, "total"),
               .charged = Whole(restarts, "charged"),
               .durable_step = Whole(restarts, "durableStep"),
               .checkpoint_step = Whole(Field(status, "checkpoint"), "step"),
               .created = Whole(Field(status, "workers"), "created"),
               .done = Indices(Text(Field(status, "workers"), "done"))};
  const Json& deadlines = Field(spec, "deadlines");
  view.schedule_seconds = Known(deadlines, "scheduleSeconds");
  view.start_seconds = Whole(deadlines, "startSeconds", 1800);
  view.stall_seconds = Whole(deadlines, "stallSeconds", 600);
  view.active_seconds = Known(deadlines, "activeSeconds");
  view.terminate_seconds = Whole(deadlines, "terminateSeconds", 60);
  view.ttl_seconds = Known(spec, "ttlSecondsAfterFinished");
  view.rank_zero = Text(spec, "successPolicy") == "RankZero";
  view.start_time = ParseTime(Text(status, "startTime"));
  view.completion_time = ParseTime(Text(status, "completionTime"));
  ReadRules(restart, view);
  ReadConditions(status, view);
  ReadFailures(status, view);
  view.created_at = ParseTime(Text(metadata, "creationTimestamp"));
  ReadGoodput(Field(status, "goodput"), view);
  return view;
}

}  // namespace

Mirror::Mirror(local::MemoryApi& api) : api_(api) {
  api_.FollowChanges([this](uint64_t version, const std::string& collection, const std::string& key,
                            const Json* object) { Changed(version, collection, key, object); });
}

const JobView* Mirror::JobNamed(const std::string& name) const {
  for (const auto& [uid, job] : jobs_) {
    if (job.name == name) return &job;
  }
  return nullptr;
}

void Mirror::Changed(uint64_t version, const std::string& collection, const std::string& key, const Json* object) {
  version_ = version;
  if (collection != kPodCollection && collection != kJobCollection) return;
  std::shared_ptr<const Json>& kept = now_[collection][key];
  const std::shared_ptr<const Json> before = kept, after = object ? std::make_shared<const Json>(*object) : nullptr;
  if (after) {
    kept = after;
  } else {
    now_[collection].erase(key);
  }
  collection == kPodCollection ? PodChanged(before.get(), after.get()) : JobChanged(before.get(), after.get());
}

void Mirror::PodChanged(const Json* before, const Json* after) {
  const std::string uid = Text(Field(before ? *before : *after, "metadata"), "uid");
  std::optional<PodView> old;
  if (const auto found = pods_.find(uid); found != pods_.end()) old = std::move(found->second);
  pods_.erase(uid);
  const PodView* view = nullptr;
  if (after) view = &(pods_[uid] = ViewOfPod(*after));
  for (const PodListener& listener : pod_listeners_) listener(old ? &*old : nullptr, view);
}

void Mirror::JobChanged(const Json* before, const Json* after) {
  const std::string uid = Text(Field(before ? *before : *after, "metadata"), "uid");
  std::optional<JobView> old;
  if (const auto found = jobs_.find(uid); found != jobs_.end()) old = std::move(found->second);
  jobs_.erase(uid);
  const JobView* view = nullptr;
  if (after) view = &(jobs_[uid] = ViewOfJob(*after));
  for (const JobListener& listener : job_listeners_) listener(old ? &*old : nullptr, view);
}

void Mirror::KeepLists() {
  if (!kept_.empty() && kept_.back().version == version_) return;
  kept_.push_back({version_, now_});
  if (kept_.size() > kKept) kept_.pop_front();
}

std::optional<Json> Mirror::OldList(const kube::Resource& resource, const std::string& label_selector, uint64_t version,
                                    Dice& dice) const {
  if (kept_.empty()) return std::nullopt;
  const Kept& kept = kept_[static_cast<size_t>(dice.Below(static_cast<int64_t>(kept_.size())))];
  if (kept.version < version) return std::nullopt;
  const Result<local::Selector> selector = local::Selector::Parse(resource, label_selector, "");
  Json items = Json::array();
  if (const auto found = kept.collections.find(resource.plural + "." + resource.group);
      found != kept.collections.end()) {
    for (const auto& [key, object] : found->second) {
      if (selector->Matches(*object)) items.push_back(*object);
    }
  }
  return Json{{"apiVersion", resource.ApiVersion()},
              {"kind", resource.kind + "List"},
              {"metadata", {{"resourceVersion", std::to_string(kept.version)}}},
              {"items", std::move(items)}};
}

}  // namespace trainyard::sim

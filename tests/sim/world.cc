#include "tests/sim/world.h"

#include "operator/api/labels.h"

namespace trainyard::sim {
namespace {

std::string Label(const Json& pod, const char* key) {
  return pod["metadata"].value("labels", Json::object()).value(key, "");
}

}  // namespace

void OldLists::Record() {
  for (const kube::Resource* resource : {&kube::kTrainingJobs, &kube::kPods}) {
    std::deque<Json>& lists = lists_[resource->plural];
    lists.push_back(api_.List(*resource, "", {}).body);
    if (lists.size() > kKept) lists.pop_front();
  }
}

const Json& OldLists::Any(const kube::Resource& resource, Dice& dice) const {
  const std::deque<Json>& lists = lists_.at(resource.plural);
  return lists[static_cast<size_t>(dice.Below(static_cast<int64_t>(lists.size())))];
}

Status TroubledClient::Before() {
  if (dice_.Chance(trouble_ * 0.06)) throw Crash{};
  if (dice_.Chance(trouble_ * 0.1)) return Status(Code::kThrottled, "storage is (re)initializing");
  if (dice_.Chance(trouble_ * 0.1)) return Status(Code::kUnavailable, "connection refused");
  return Status::Ok();
}

bool TroubledClient::LosesAnswer() {
  ++writes_;
  if (dice_.Chance(trouble_ * 0.06)) throw Crash{};
  return dice_.Chance(trouble_ * 0.08);
}

Result<Json> TroubledClient::Get(const kube::Resource& resource, const std::string& ns, const std::string& name) {
  if (Status status = Before(); !status.ok()) return status;
  return MemoryClient::Get(resource, ns, name);
}

Result<Json> TroubledClient::List(const kube::Resource& resource, const std::string& ns,
                                  const kube::ListOptions& options) {
  if (Status status = Before(); !status.ok()) return status;
  Result<Json> list = MemoryClient::List(resource, ns, options);
  if (!list.ok() || options.resource_version.empty()) return list;
  // A list from a server's cache is some list of the past, but never older than what was asked for.
  const Json& chosen = dice_.Chance(trouble_) ? old_.Any(resource, dice_) : *list;
  const auto version = [](const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); };
  if (version(chosen["metadata"]["resourceVersion"].get<std::string>()) < version(options.resource_version))
    return list;
  return chosen;
}

Result<Json> TroubledClient::Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                                    const kube::WriteOptions& options) {
  if (Status status = Before(); !status.ok()) return status;
  if (dice_.Chance(trouble_ * 0.05) && !options.dry_run) return Status(Code::kForbidden, "exceeded quota");
  Result<Json> created = MemoryClient::Create(resource, ns, object, options);
  if (LosesAnswer()) return Status(Code::kUnavailable, "the connection broke");
  return created;
}

Result<Json> TroubledClient::MergePatch(const kube::Resource& resource, const std::string& ns, const std::string& name,
                                        const std::string& subresource, const Json& patch,
                                        const kube::WriteOptions& options) {
  if (Status status = Before(); !status.ok()) return status;
  Result<Json> patched = MemoryClient::MergePatch(resource, ns, name, subresource, patch, options);
  if (LosesAnswer()) return Status(Code::kUnavailable, "the connection broke");
  return patched;
}

Status TroubledClient::Delete(const kube::Resource& resource, const std::string& ns, const std::string& name,
                              const kube::DeleteOptions& options) {
  if (Status status = Before(); !status.ok()) return status;
  Status deleted = MemoryClient::Delete(resource, ns, name, options);
  if (LosesAnswer()) return Status(Code::kUnavailable, "the connection broke");
  return deleted;
}

// Delivers some of what there is and ends: the rest comes with a later watch, as on a slow network.
Status TroubledClient::Watch(const kube::Resource& resource, const std::string& ns, const kube::WatchOptions& options,
                             const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) {
  if (Status status = Before(); !status.ok()) return status;
  if (dice_.Chance(trouble_ * 0.03)) {
    api_.Compact();
    on_event({"ERROR", local::Failure(410, "Expired", "too old").body});
    return Status::Ok();
  }
  kube::WatchOptions now = options;
  now.timeout_seconds = 0;
  int64_t left = dice_.Chance(trouble_) ? dice_.Below(4) : 1000000;
  return MemoryClient::Watch(
      resource, ns, now, [&](kube::WatchEvent event) { return left-- > 0 && on_event(std::move(event)); }, stop);
}

void Kubelets::Step() {
  const local::ApiResult pods = api_.List(kube::kPods, "", {});
  for (const Json& pod : pods.body["items"]) {
    if (dice_.Chance(0.5)) Advance(pod);
  }
}

void Kubelets::Advance(const Json& pod) {
  const std::string ns = pod["metadata"]["namespace"], name = pod["metadata"]["name"], uid = pod["metadata"]["uid"],
                    phase = pod.value("/status/phase"_json_pointer, "");
  const auto patch = [&](const std::string& sub, const Json& body) {
    api_.Patch(kube::kPods, ns, name, sub, local::PatchType::kMerge, body, {.manager = "kubelet"});
  };
  const bool ended = local::HasEnded(pod);
  if (pod["metadata"].contains("deletionTimestamp")) {
    // A node that is gone: nobody ends the pod.
    if (life_.contains(uid) && dice_.Chance(options_.hang)) hanging_.insert(uid);
    if (options_.hang > 0 && hanging_.contains(uid)) return;
    if (!ended && dice_.Chance(0.5)) return Finish(pod, 75, "Error", false);  // it saves and goes
    api_.Delete(kube::kPods, ns, name, {.uid = uid, .grace_seconds = 0});
    return;
  }
  if (ended) return;
  if (!pod.contains("/spec/nodeName"_json_pointer)) {
    if (!dice_.Chance(0.6)) return;  // the scheduler takes its time
    patch("", {{"spec", {{"nodeName", "node-" + std::to_string(dice_.Below(3))}}}});
    patch("status", {{"status",
                      {{"podIP", "10.0.0." + std::to_string(1 + dice_.Below(250))},
                       {"conditions", Json::array({{{"type", "PodScheduled"}, {"status", "True"}}})}}}});
    return;
  }
  const int64_t attempt = std::strtoll(Label(pod, api::kLabelAttempt).c_str(), nullptr, 10);
  const std::string job = Label(pod, api::kLabelJobUid);
  const bool good = attempt >= options_.good_attempt;
  if (phase == "Pending") {
    if (!good && dice_.Chance(options_.failure)) {
      failed[job].insert(attempt);
      Break(job, attempt);
      return Reject(pod);
    }
    life_[uid] = static_cast<int>(2 + dice_.Below(8));
    const Json conditions =
        Json::array({{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "True"}}});
    const Json states = Json::array(
        {{{"name", "trainer"}, {"ready", true}, {"state", {{"running", {{"startedAt", FormatTime(clock_.Now())}}}}}}});
    patch("status", {{"status", {{"phase", "Running"}, {"conditions", conditions}, {"containerStatuses", states}}}});
    return;
  }
  // Its peer is gone: it waits in a collective, and never learns of it.
  if (broken_[job].contains(attempt)) return;
  if (!good && dice_.Chance(options_.disruption)) {
    if (dice_.Chance(0.5)) {
      Break(job, attempt);
      return Finish(pod, 137, "Error", true);
    }
    api_.Delete(kube::kPods, ns, name, {.uid = uid, .grace_seconds = 0});  // its node is gone, and it with it
    return;
  }
  if (!good && dice_.Chance(options_.failure)) {
    failed[job].insert(attempt);
    Break(job, attempt);
    return Finish(pod, 70, "Error", false);
  }
  if (--life_[uid] <= 0) Finish(pod, 0, "Completed", false);
}

// A node has no room after all: the kubelet fails the pod before it has a container.
void Kubelets::Reject(const Json& pod) {
  const Json status = {{"phase", "Failed"}, {"reason", "OutOfcpu"}, {"message", "Node didn't have enough resource"}};
  api_.Patch(kube::kPods, pod["metadata"]["namespace"], pod["metadata"]["name"], "status", local::PatchType::kMerge,
             {{"status", status}}, {.manager = "kubelet"});
}

void Kubelets::Break(const std::string& job, int64_t attempt) {
  if (dice_.Chance(options_.silence)) broken_[job].insert(attempt);
}

void Kubelets::Finish(const Json& pod, int64_t code, const std::string& reason, bool target) {
  Json conditions =
      Json::array({{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "False"}}});
  if (target) conditions.push_back({{"type", "DisruptionTarget"}, {"status", "True"}});
  const Json states = Json::array(
      {{{"name", "trainer"},
        {"ready", false},
        {"state",
         {{"terminated", {{"exitCode", code}, {"reason", reason}, {"finishedAt", FormatTime(clock_.Now())}}}}}}});
  const Json status = {
      {"phase", code == 0 ? "Succeeded" : "Failed"}, {"conditions", conditions}, {"containerStatuses", states}};
  api_.Patch(kube::kPods, pod["metadata"]["namespace"], pod["metadata"]["name"], "status", local::PatchType::kMerge,
             {{"status", status}}, {.manager = "kubelet"});
}

}  // namespace trainyard::sim

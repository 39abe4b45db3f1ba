#include "operator/local/node/agent.h"

#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>
#include <utility>

#include "operator/base/file.h"
#include "operator/base/json_access.h"
#include "operator/local/api/service_address.h"
#include "operator/local/node/scrape_targets.h"
#include "operator/local/node/session.h"

namespace trainyard::local {
namespace {

constexpr double kTick = 0.02;

std::string PodAddress(const Json& pod) { return json::Text(json::Field(pod, "status"), "podIP"); }

Json WithStatus(const Json& status) { return {{"status", status}}; }

}  // namespace

Agent::Agent(MemoryApi& api, const Clock& clock, const std::filesystem::path& state, int address_block,
             const Logger& log)
    : api_(api), clock_(clock), address_block_(address_block), log_(log) {
  std::error_code error;
  node_.state = std::filesystem::weakly_canonical(state, error);
  // `trainyard` lies beside this program.
  node_.programs = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

Agent::~Agent() { Stop(); }

void Agent::Start() {
  const Status mounts = TryMounts(node_.state);
  node_.namespaces = mounts.ok();
  if (!mounts.ok())
    log_.Warning("volumes are not at their mount paths on this machine; TRAINYARD_VOLUMES says where they are",
                 {{"because", mounts.message()}});
  EndEarlierLife();
  thread_ = std::thread([this] { Loop(); });
}

void Agent::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

std::filesystem::path Agent::LogPath(const Json& pod, const std::string& container) const {
  return PodFiles(node_.state, pod).Log(container);
}

std::string Agent::NextAddress() {
  const int n = ++addresses_;
  return "127." + std::to_string(address_block_) + "." + std::to_string(n / 250 % 250) + "." +
         std::to_string(1 + n % 250);
}

// The processes belong to this thread: when it ends, the kernel ends them.
void Agent::Loop() {
  const ApiResult all = api_.List(kube::kPods, "", {});
  since_ = std::strtoull(all.body["metadata"]["resourceVersion"].get<std::string>().c_str(), nullptr, 10);
  DropStrays(all.body["items"]);
  for (const Json& pod : all.body["items"]) Adopt(pod);
  while (!stopping_) {
    TakeChanges();
    BindClaims();
    if (draining_) DrainAll();
    AdvanceAll();
    WriteScrapeTargets();
  }
  pods_.clear();
  pods_changed_ = true;
  WriteScrapeTargets();
  running_ = 0;
}

void Agent::TakeChanges() {
  std::vector<kube::WatchEvent> events;
  if (!api_.Next(kube::kPods, "", Selector(), since_, kTick, events)) {
    const ApiResult all = api_.List(kube::kPods, "", {});
    since_ = std::strtoull(all.body["metadata"]["resourceVersion"].get<std::string>().c_str(), nullptr, 10);
    for (const Json& pod : all.body["items"]) events.push_back({"MODIFIED", pod});
  }
  for (const kube::WatchEvent& event : events) {
    const std::string uid = json::Text(event.object["metadata"], "uid");
    if (event.type == "DELETED") {
      pods_.erase(uid);
      pods_changed_ = true;
      Drop(PodFiles(node_.state, event.object).root());
    } else if (const auto known = pods_.find(uid); known != pods_.end()) {
      known->second->Update(event.object);
    } else {
      Adopt(event.object);
    }
  }
}

void Agent::Drop(const std::filesystem::path& root) {
  if (const Status dropped = PodFiles::DropVolumes(root); !dropped.ok())
    log_.Warning("what a pod has left behind stays", {{"error", dropped.ToString()}});
}

void Agent::DropStrays(const Json& pods) {
  std::set<std::filesystem::path> known;
  for (const Json& pod : pods) known.insert(PodFiles(node_.state, pod).root());
  std::error_code error;
  using Folders = std::filesystem::directory_iterator;
  for (Folders folder(node_.state / "pods", error); !error && folder != Folders() && !stopping_;
       folder.increment(error)) {
    if (known.contains(folder->path()) || !PodFiles::IsRoot(folder->path())) continue;
    EndSessions(folder->path());
    Drop(folder->path());
  }
}

void Agent::BindClaims() {
  std::vector<kube::WatchEvent> events;
  if (api_.Next(kube::kClaims, "", Selector(), claims_since_, 0, events) && events.empty()) return;
  claims_since_ = api_.version();
  const ApiResult all = api_.List(kube::kClaims, "", {});
  for (const Json& claim : all.body["items"]) {
    if (json::Text(json::Field(claim, "status"), "phase") == "Bound") continue;
    const Json& spec = claim["spec"];
    const Json status = {{"phase", "Bound"},
                         {"accessModes", json::Field(spec, "accessModes")},
                         {"capacity", json::Field(json::Field(spec, "resources"), "requests")}};
    api_.Patch(kube::kClaims, claim["metadata"]["namespace"], claim["metadata"]["name"], "status", PatchType::kMerge,
               WithStatus(status), {.manager = "agent"});
  }
}

// Scheduling and the pod's address in one: there is one node, and it always has room.
void Agent::Adopt(const Json& pod) {
  const std::string ns = pod["metadata"]["namespace"], name = pod["metadata"]["name"], uid = pod["metadata"]["uid"];
  if (HasEnded(pod) || pods_.contains(uid) || draining_) return;
  if (pod.contains("/spec/nodeName"_json_pointer)) return;  // another life's; EndEarlierLife has dealt with it
  ApiResult bound =
      api_.Patch(kube::kPods, ns, name, "", PatchType::kMerge,
                 {{"metadata", {{"uid", uid}}}, {"spec", {{"nodeName", kNodeName}}}}, {.manager = "agent"});
  if (!bound.ok()) return;
  const Json status = {
      {"podIP", NextAddress()},
      {"hostIP", "127.0.0.1"},
      {"startTime", FormatTime(clock_.Now())},
      {"conditions",
       Json::array(
           {{{"type", "PodScheduled"}, {"status", "True"}, {"lastTransitionTime", FormatTime(clock_.Now())}}})}};
  bound = api_.Patch(kube::kPods, ns, name, "status", PatchType::kMerge, WithStatus(status), {.manager = "agent"});
  if (bound.ok()) pods_[uid] = std::make_unique<PodRunner>(node_, bound.body, clock_);
}

std::optional<std::string> Agent::AddressOfHost(const std::string& pod, const std::string& subdomain,
                                                const std::string& ns) const {
  for (const auto& [uid, runner] : pods_) {
    const Json& spec = runner->pod()["spec"];
    if (runner->pod()["metadata"]["namespace"] == ns && json::Text(spec, "hostname") == pod &&
        json::Text(spec, "subdomain") == subdomain)
      return PodAddress(runner->pod());
  }
  return std::nullopt;
}

// Of the first of them: whoever needs one of several asks for a service that selects one.
std::optional<std::string> Agent::AddressBehind(const std::string& address) const {
  const ApiResult services = api_.List(kube::kServices, "", {});
  for (const Json& service : services.body["items"]) {
    const Json& selector = json::Field(service["spec"], "selector");
    if (AddressOf(service) != address || !selector.is_object() || selector.empty()) continue;
    for (const auto& [uid, runner] : pods_) {
      const Json& metadata = runner->pod()["metadata"];
      const Json& labels = json::Field(metadata, "labels");
      const bool selected = metadata["namespace"] == service["metadata"]["namespace"] &&
                            std::all_of(selector.items().begin(), selector.items().end(), [&](const auto& each) {
                              return json::Field(labels, each.key().c_str()) == each.value();
                            });
      if (selected) return PodAddress(runner->pod());
    }
  }
  return std::nullopt;
}

void Agent::DrainAll() {
  for (auto& [uid, runner] : pods_) {
    if (runner->Ended()) continue;
    const int64_t grace = json::Whole(runner->pod()["spec"], "terminationGracePeriodSeconds", 30);
    runner->Drain(After(clock_.Now(), static_cast<double>(grace)));
  }
}

void Agent::AdvanceAll() {
  const Resolver resolver{.host = [&](const std::string& pod, const std::string& subdomain,
                                      const std::string& ns) { return AddressOfHost(pod, subdomain, ns); },
                          .service = [&](const std::string& address) { return AddressBehind(address); }};
  int running = 0;
  for (auto& [uid, runner] : pods_) {
    runner->Advance(resolver);
    WriteStatus(*runner);
    if (!runner->Ended()) ++running;
    if (runner->Ended()) RemoveIfDeleted(runner->pod());
  }
  running_ = running;
}

void Agent::WriteScrapeTargets() {
  if (!std::exchange(pods_changed_, false)) return;
  std::vector<Json> running;
  for (const auto& [uid, runner] : pods_) {
    if (!runner->Ended()) running.push_back(runner->pod());
  }
  std::string targets = ScrapeTargets(running);
  if (targets == scrape_targets_) return;
  scrape_targets_ = std::move(targets);
  const Status written = WriteWhole(node_.state / "prometheus.json", scrape_targets_, 0644, false);
  if (!written.ok()) log_.Warning("Prometheus does not hear of the workers", {{"error", written.ToString()}});
}

void Agent::WriteStatus(PodRunner& runner) {
  const Json status = runner.PodStatus();
  if (status == json::Field(runner.pod(), "status")) return;
  const Json& metadata = runner.pod()["metadata"];
  const ApiResult written = api_.Patch(kube::kPods, metadata["namespace"], metadata["name"], "status",
                                       PatchType::kMerge, WithStatus(status), {.manager = "agent"});
  if (written.ok()) runner.Update(written.body);
  pods_changed_ = true;
}

bool Agent::EndSessions(const std::filesystem::path& root) const {
  bool any = false;
  constexpr size_t kMost = 64 << 10;
  std::istringstream file(RegularFile(root / "processes").Read(0, kMost));
  // Ticks since boot come again after the next one: a line of another boot, or of an earlier version, which does not
  // say of which it is, could name anyone.
  const std::string boot_id = BootId();
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    pid_t pid = 0;
    std::string start, boot;
    if (words >> pid >> start >> boot && boot == boot_id) any |= KillOldSession(pid, start);
  }
  return any;
}

// Whoever was killed had no time to write down what it had just started, and what has no parent any more may have
// written over its environment: one of the two is enough.
bool Agent::EndProcesses(const Json& pod) const {
  const PodFiles files(node_.state, pod);
  bool any = EndSessions(files.root());
  for (const char* list : {"initContainers", "containers"}) {
    const Json& containers = json::List(json::Field(pod, "spec"), list);
    for (const Json& container : containers) any |= KillCarriers(files.Mark(json::Text(container, "name")));
  }
  return any;
}

void Agent::EndEarlierLife() {
  const ApiResult all = api_.List(kube::kPods, "", {});
  for (const Json& pod : all.body["items"]) {
    if (!pod.contains("/spec/nodeName"_json_pointer)) continue;
    if (HasEnded(pod)) {
      RemoveIfDeleted(pod);  // its end was saved, and its removal was not
      continue;
    }
    if (EndProcesses(pod)) log_.Info("ended processes of an earlier run", {{"pod", pod["metadata"]["name"]}});
    const std::string now = FormatTime(clock_.Now());
    Json status = json::Field(pod, "status");
    if (!status.is_object()) status = Json::object();
    status["phase"] = "Failed";
    status["reason"] = "NodeRestarted";
    status["message"] = "the agent was started again; its processes of before are gone";
    status["conditions"] =
        Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "NodeRestarted"}}});
    Json containers = Json::array();
    for (Json container : json::List(status, "containerStatuses")) {
      if (!container.is_object()) continue;
      if (!json::Field(container, "state").contains("terminated"))
        container["state"] = {{"terminated", {{"exitCode", 137}, {"reason", "NodeRestarted"}, {"finishedAt", now}}}};
      containers.push_back(std::move(container));
    }
    status["containerStatuses"] = std::move(containers);
    const ApiResult written = api_.Patch(kube::kPods, pod["metadata"]["namespace"], pod["metadata"]["name"], "status",
                                         PatchType::kMerge, WithStatus(status), {.manager = "agent"});
    if (!written.ok())
      log_.Error("a pod of an earlier run cannot be ended",
                 {{"pod", pod["metadata"]["name"]}, {"error", json::Text(written.body, "message")}});
    RemoveIfDeleted(pod);
  }
}

void Agent::RemoveIfDeleted(const Json& pod) {
  const Json& metadata = pod["metadata"];
  if (!metadata.contains("deletionTimestamp")) return;
  api_.Delete(
      kube::kPods, metadata["namespace"], metadata["name"],
      {.dry_run = false, .uid = metadata["uid"], .resource_version = "", .grace_seconds = 0, .propagation = ""});
  Drop(PodFiles(node_.state, pod).root());  // nobody watches yet
}

}  // namespace trainyard::local

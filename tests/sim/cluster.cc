#include "tests/sim/cluster.h"

#include <utility>

namespace trainyard::sim {
namespace {

constexpr int kNodes = 4;

}  // namespace

void Cluster::Step() {
  ChangeNodes();
  training_.Step();
  std::vector<PodView> pods;  // what is done to one changes the mirror
  for (const auto& [uid, pod] : mirror_.pods()) {
    if (dice_.Chance(0.5)) pods.push_back(pod);
  }
  for (const PodView& pod : pods) Advance(pod);
}

void Cluster::Calm() {
  calm_ = true;
  lost_.clear();
}

// Nodes stop answering and come back. What ran there ran on, and ends when the kubelet hears that its pod is gone.
void Cluster::ChangeNodes() {
  const std::string node = "node-" + std::to_string(dice_.Below(kNodes));
  if (!calm_ && dice_.Chance(options_.lost_node) && lost_.insert(node).second) lost_since_[node] = clock_.Now();
  if (lost_.contains(node) && SecondsBetween(lost_since_[node], clock_.Now()) > 20 && dice_.Chance(0.1))
    lost_.erase(node);
  std::erase_if(processes_, [&](const auto& process) {
    if (lost_.contains(process.second) || mirror_.pods().contains(process.first)) return false;
    training_.End(process.first, options_.silence);
    return true;
  });
}

void Cluster::Advance(const PodView& pod) {
  if (lost_.contains(pod.node)) {
    // The node controller taints it, and its pods are evicted: they stay until the node is back.
    if (pod.deleting || pod.over() || SecondsBetween(lost_since_[pod.node], clock_.Now()) < 10) return;
    PatchStatus(pod, {{"conditions", Json::array({{{"type", "DisruptionTarget"},
                                                   {"status", "True"},
                                                   {"lastTransitionTime", FormatTime(clock_.Now())}}})}});
    api_.Delete(kube::kPods, kNamespace, pod.name, {.uid = pod.uid});
    return;
  }
  if (pod.deleting) return Terminate(pod);
  if (pod.over()) return;
  if (pod.node.empty()) return Bind(pod);
  if (pod.phase == "Pending") return Start(pod);
  if (pod.end) return;  // a sidecar runs on
  const Run* run = training_.RunOf(pod);
  if (!run) return Exit(pod, 69, "Error", false);  // its peers have met without it
  Live(pod, *run);
}

// SIGTERM, then the container's end is seen, then the pod goes.
void Cluster::Terminate(const PodView& pod) {
  const Image& image = training_.ImageOf(pod.job_uid);
  if (!pod.over() && !pod.end && dice_.Chance(0.7)) {
    training_.Save(pod);
    return Exit(pod, image.exit_on_stop, image.exit_on_stop == 0 ? "Completed" : "Error", false);
  }
  if (image.lingers && dice_.Chance(0.8)) return;
  training_.End(pod.uid, options_.silence);
  processes_.erase(pod.uid);
  api_.Delete(kube::kPods, kNamespace, pod.name, {.uid = pod.uid, .grace_seconds = 0});
}

void Cluster::Bind(const PodView& pod) {
  if (!dice_.Chance(0.6)) return;  // the scheduler takes its time
  const auto job = mirror_.jobs().find(pod.owner_uid);
  if (IsStuck(pod, job != mirror_.jobs().end() && job->second.schedule_seconds)) return;
  const std::string node = "node-" + std::to_string(dice_.Below(kNodes));
  if (pod.avoids.size() >= kNodes)
    return PatchStatus(pod, {{"conditions", Json::array({{{"type", "PodScheduled"},
                                                          {"status", "False"},
                                                          {"reason", "Unschedulable"},
                                                          {"message", "0/4 nodes are available"}}})}});
  if (lost_.contains(node) || pod.avoids.contains(node)) return;
  api_.Patch(kube::kPods, kNamespace, pod.name, "", local::PatchType::kMerge, {{"spec", {{"nodeName", node}}}},
             {.manager = "scheduler"});
  PatchStatus(pod, {{"podIP", "10.0.0." + std::to_string(1 + dice_.Below(250))},
                    {"conditions", Json::array({{{"type", "PodScheduled"}, {"status", "True"}}})}});
}

// A claim that never binds, an image that never comes. `may`: a deadline ends it.
bool Cluster::IsStuck(const PodView& pod, bool may) {
  const bool good = calm_ || pod.attempt >= options_.good_attempt;
  if (may && !good && dice_.Chance(options_.stuck)) stuck_.insert(pod.uid);
  return stuck_.contains(pod.uid);
}

void Cluster::Start(const PodView& pod) {
  if (Harm(pod)) return;
  const auto job = mirror_.jobs().find(pod.owner_uid);
  constexpr int64_t kSoon = 200;  // else the run would take too long
  if (IsStuck(pod, job != mirror_.jobs().end() && job->second.start_seconds < kSoon)) return;
  const bool good = calm_ || pod.attempt >= options_.good_attempt;
  if (!good && dice_.Chance(options_.failure * 0.3)) return Reject(pod);
  processes_[pod.uid] = pod.node;
  training_.Begin(pod);
  Json states = Json::array(
      {{{"name", "trainer"}, {"ready", true}, {"state", {{"running", {{"startedAt", FormatTime(clock_.Now())}}}}}}});
  if (pod.sidecar) states.push_back({{"name", "sidecar"}, {"ready", true}, {"state", {{"running", Json::object()}}}});
  PatchStatus(pod, {{"phase", "Running"},
                    {"conditions", Json::array({{{"type", "PodScheduled"}, {"status", "True"}},
                                                {{"type", "Ready"}, {"status", "True"}}})},
                    {"containerStatuses", states}});
}

void Cluster::Live(const PodView& pod, const Run& run) {
  const Image& image = training_.ImageOf(pod.job_uid);
  if (run.fenced_off) return Exit(pod, 69, "Error", false);
  if (run.broken) {  // it hears of it from its peers, or never
    if (!run.silent && dice_.Chance(0.5)) Exit(pod, image.ours ? 69 : 1, "Error", false);
    return;
  }
  if (Harm(pod)) return;
  const bool buggy = image.bug_step && run.met && run.step + 1 >= *image.bug_step;
  const bool good = calm_ || pod.attempt >= options_.good_attempt;
  if (buggy && pod.rank == pod.workers - 1 && dice_.Chance(0.5)) return Exit(pod, image.bug_code, "Error", false);
  if (!good && run.met && dice_.Chance(options_.failure)) return Fail(pod);
  if (!good && run.met && image.ours && dice_.Chance(options_.hang)) training_.Hang(pod);
  if (run.met && run.step >= image.steps && dice_.Chance(0.5)) Exit(pod, 0, "Completed", false);
}

// Someone else's doing. Whether anything was done.
bool Cluster::Harm(const PodView& pod) {
  if (calm_ || pod.attempt >= options_.good_attempt || !dice_.Chance(options_.disruption)) return false;
  switch (dice_.Below(4)) {
    case 0:
      Exit(pod, 137, "Error", true);
      break;
    case 1:  // by force: it leaves nothing, and what runs is killed
      training_.End(pod.uid, options_.silence);
      processes_.erase(pod.uid);
      api_.Delete(kube::kPods, kNamespace, pod.name, {.uid = pod.uid, .grace_seconds = 0});
      break;
    case 2:
      api_.Delete(kube::kPods, kNamespace, pod.name, {.uid = pod.uid});
      break;
    case 3:  // the kubelet's own eviction, of a node without memory
      training_.End(pod.uid, options_.silence);
      processes_.erase(pod.uid);
      PatchStatus(pod, {{"phase", "Failed"},
                        {"reason", "Evicted"},
                        {"conditions", Json::array({{{"type", "DisruptionTarget"},
                                                     {"status", "True"},
                                                     {"lastTransitionTime", FormatTime(clock_.Now())}}})}});
      break;
  }
  return true;
}

void Cluster::Fail(const PodView& pod) {
  static constexpr std::pair<int64_t, const char*> kEnds[] = {{70, "Error"},      {1, "Error"},  {139, "Error"},
                                                              {137, "OOMKilled"}, {71, "Error"}, {73, "Error"},
                                                              {74, "Error"},      {75, "Error"}, {69, "Error"}};
  const auto& [code, reason] = kEnds[dice_.Below(std::size(kEnds))];
  Exit(pod, code, reason, false);
}

// A node has no room after all: the kubelet fails the pod before it has a container.
void Cluster::Reject(const PodView& pod) {
  PatchStatus(pod, {{"phase", "Failed"}, {"reason", "OutOfcpu"}, {"message", "Node didn't have enough resource"}});
}

void Cluster::Exit(const PodView& pod, int64_t code, const std::string& reason, bool target) {
  const std::string message = Message(pod, code);
  training_.End(pod.uid, options_.silence);
  processes_.erase(pod.uid);
  Json conditions =
      Json::array({{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "False"}}});
  if (target || pod.disrupted)
    conditions.push_back({{"type", "DisruptionTarget"},
                          {"status", "True"},
                          {"lastTransitionTime", FormatTime(pod.disrupted_at.value_or(clock_.Now()))}});
  Json terminated = {{"exitCode", code}, {"reason", reason}, {"finishedAt", FormatTime(clock_.Now())}};
  if (!message.empty()) terminated["message"] = message;
  Json states = Json::array({{{"name", "trainer"}, {"ready", false}, {"state", {{"terminated", terminated}}}}});
  // A sidecar ends with its pod's deletion, not with the trainer.
  const bool runs_on = pod.sidecar && !pod.deleting;
  if (runs_on) states.push_back({{"name", "sidecar"}, {"ready", true}, {"state", {{"running", Json::object()}}}});
  PatchStatus(pod, {{"phase", runs_on     ? "Running"
                              : code == 0 ? "Succeeded"
                                          : "Failed"},
                    {"conditions", conditions},
                    {"containerStatuses", states}});
}

std::string Cluster::Message(const PodView& pod, int64_t code) const {
  const Image& image = training_.ImageOf(pod.job_uid);
  const Run* run = training_.RunOf(pod);
  if (!image.ours || code == 137) return "";
  Json message = {{"v", 1},      {"attempt", pod.fence_attempt}, {"rank", pod.rank}, {"exit_code", code},
                  {"signal", 0}, {"tail", Json::array()}};
  if (image.knows_steps && run && run->met) {
    message["step"] = run->step;
    message["checkpoint_step"] = training_.Committed(pod.job_uid);
  }
  return message.dump();
}

void Cluster::PatchStatus(const PodView& pod, const Json& status) {
  api_.Patch(kube::kPods, kNamespace, pod.name, "status", local::PatchType::kMerge,
             {{"metadata", {{"uid", pod.uid}}}, {"status", status}}, {.manager = "kubelet"});
}

}  // namespace trainyard::sim

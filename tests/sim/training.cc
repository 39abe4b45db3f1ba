#include "tests/sim/training.h"

#include <algorithm>

namespace trainyard::sim {

void Training::Begin(const PodView& pod) {
  const Key key(pod.job_uid, pod.fence_attempt);
  Run& run = runs_[key];
  processes_[pod.uid] = {.job_uid = pod.job_uid, .attempt = pod.fence_attempt, .rank = pod.rank};
  if (run.met) return;  // too late: its peers have begun without it
  run.members.insert(pod.uid);
  if (pod.rank == 0) run.rank0 = pod.uid;
  if (static_cast<int64_t>(run.members.size()) == pod.workers && !run.rank0.empty()) Meet(key, run);
}

// The fence is taken before anything is read; of one job only a higher attempt takes it.
void Training::Meet(const Key& key, Run& run) {
  run.met = true;
  Fence& fence = fences_[key.first];
  const int64_t last = fence.owners.empty() ? 0 : *std::max_element(fence.owners.begin(), fence.owners.end());
  if (images_[key.first].ours && last >= key.second) {
    run.fenced_off = true;
    refused_.push_back(key.first + "/" + std::to_string(key.second));
    return;
  }
  fence.owners.push_back(key.second);
  run.last_progress = clock_.Now();
  run.first_step = run.step = fence.committed;
}

void Training::End(const std::string& pod_uid, double silence) {
  const auto found = processes_.find(pod_uid);
  if (found == processes_.end()) return;
  Run& run = runs_[{found->second.job_uid, found->second.attempt}];
  const bool member = run.members.erase(pod_uid) == 1;
  if (run.rank0 == pod_uid) run.rank0.clear();
  if (member && run.met && !run.broken && run.step < images_[found->second.job_uid].steps) {
    run.broken = true;
    run.silent = dice_.Chance(silence);
  }
  processes_.erase(found);
}

void Training::Step() {
  for (auto& [key, run] : runs_) {
    const Image& image = images_[key.first];
    if (!run.met || run.broken || run.hung || run.fenced_off || run.step >= image.steps || !dice_.Chance(0.7)) continue;
    if (image.bug_step && run.step + 1 >= *image.bug_step) {
      run.step = *image.bug_step - 1;  // a process will fail in the next one
      continue;
    }
    ++run.step;
    run.last_progress = clock_.Now();
    if (run.step % image.checkpoint_every == 0 || run.step == image.steps) Commit(key, run);
  }
}

void Training::Commit(const Key& key, const Run& run) {
  Fence& fence = fences_[key.first];
  if (images_[key.first].ours && (fence.owners.empty() || fence.owners.back() != key.second)) return;
  fence.committed = std::max(fence.committed, run.step);
}

void Training::Save(const PodView& pod) {
  const Run* run = RunOf(pod);
  if (run && run->met && !run->broken && !run->fenced_off && run->rank0 == pod.uid)
    Commit({pod.job_uid, pod.fence_attempt}, *run);
}

int64_t Training::Committed(const std::string& job_uid) const {
  const auto found = fences_.find(job_uid);
  return found == fences_.end() ? 0 : found->second.committed;
}

const Run* Training::RunOf(const PodView& pod) const {
  const auto found = runs_.find({pod.job_uid, pod.fence_attempt});
  return found != runs_.end() && found->second.members.contains(pod.uid) ? &found->second : nullptr;
}

std::vector<std::string> Training::Committers(const std::string& job_uid) const {
  std::vector<std::string> out;
  const auto fence = fences_.find(job_uid);
  const auto image = images_.find(job_uid);
  if (fence == fences_.end() || image == images_.end()) return out;
  for (auto run = runs_.lower_bound({job_uid, 0}); run != runs_.end() && run->first.first == job_uid; ++run) {
    if (!run->second.met || run->second.fenced_off || run->second.rank0.empty()) continue;
    // A script of one's own has no fence: all of its processes being there is what lets it commit.
    const bool may = image->second.ours ? fence->second.owners.back() == run->first.second : !run->second.broken;
    if (may) out.push_back(run->second.rank0);
  }
  return out;
}

const Run* Training::NewestRun(const std::string& job_uid, int64_t& attempt) const {
  const Run* newest = nullptr;
  for (auto run = runs_.lower_bound({job_uid, 0}); run != runs_.end() && run->first.first == job_uid; ++run) {
    if (!run->second.met || run->second.rank0.empty()) continue;
    newest = &run->second;
    attempt = run->first.second;
  }
  return newest;
}

}  // namespace trainyard::sim

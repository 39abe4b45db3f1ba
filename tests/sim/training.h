// What the workers do: processes that meet, take the fence of the job's checkpoints, make steps and commit. A
// model of trainer/ as docs/formats.md promises it ("Checkpoints": fence), and of images that know nothing of it.
#ifndef TRAINYARD_TESTS_SIM_TRAINING_H_
#define TRAINYARD_TESTS_SIM_TRAINING_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/mirror.h"

namespace trainyard::sim {

// What a job's image is like.
struct Image {
  bool ours = true;  // `trainyard launch`: fence, messages, reports. Else any script, that checkpoints for itself
  int64_t exit_on_stop = 75;  // after SIGTERM
  bool sidecar = false;       // a container that runs on after the trainer's end
  bool knows_steps = true;    // its messages and reports name a step
  int64_t steps = 10, checkpoint_every = 3;
  std::optional<int64_t> bug_step;  // it fails there, every time
  int64_t bug_code = 70;
  bool lingers = false;  // a finalizer keeps its pods a while
};

// The attempts that took a job's checkpoints, the last one owning them.
struct Fence {
  std::vector<int64_t> owners;
  int64_t committed = 0;  // the newest readable step
};

// The processes of one attempt, once they have met.
struct Run {
  std::set<std::string> members;  // pods, by uid
  std::string rank0;              // pod
  bool met = false, fenced_off = false;
  bool broken = false;  // a member is gone: no step any more
  bool silent = false;  // and nobody hears of it
  bool hung = false;    // all of them live, and none gets on
  Time last_progress{};
  int64_t first_step = 0, step = 0;  // where it went on from, and is
};

class Training {
 public:
  Training(Dice& dice, const Clock& clock) : dice_(dice), clock_(clock) {}

  void SetImage(const std::string& job_uid, Image image) { images_[job_uid] = image; }
  const Image& ImageOf(const std::string& job_uid) const { return images_.at(job_uid); }
  // A container started, and ended, for whatever reason.
  void Begin(const PodView& pod);
  void End(const std::string& pod_uid, double silence);
  // Every run that can makes a step, or most do.
  void Step();
  // The run of this pod hangs from now on.
  void Hang(const PodView& pod) { runs_[{pod.job_uid, pod.fence_attempt}].hung = true; }
  // SIGTERM: rank 0 of ours saves what it has, if it still may.
  void Save(const PodView& pod);

  // Null when its process is in none.
  const Run* RunOf(const PodView& pod) const;
  // The newest readable step of the job's checkpoints; 0: none.
  int64_t Committed(const std::string& job_uid) const;
  // Pods of this job whose process would be let commit now. The invariant: at most one.
  std::vector<std::string> Committers(const std::string& job_uid) const;
  const std::vector<std::string>& refused() const { return refused_; }  // "uid/attempt" that the fence refused
  // The newest run of the job that has met and has its rank 0; null: none.
  const Run* NewestRun(const std::string& job_uid, int64_t& attempt) const;

 private:
  struct Process {
    std::string job_uid;
    int64_t attempt = 0, rank = 0;
  };
  using Key = std::pair<std::string, int64_t>;  // job uid, attempt
  void Meet(const Key& key, Run& run);
  void Commit(const Key& key, const Run& run);

  Dice& dice_;
  const Clock& clock_;
  std::map<std::string, Image> images_;
  std::map<std::string, Process> processes_;  // by pod uid
  std::map<Key, Run> runs_;
  std::map<std::string, Fence> fences_;  // by job uid
  std::vector<std::string> refused_;
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_TRAINING_H_

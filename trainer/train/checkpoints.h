// Checkpoints of a run: when to save, what is in them, and how training goes on from one.
#ifndef TRAINYARD_TRAINER_TRAIN_CHECKPOINTS_H_
#define TRAINYARD_TRAINER_TRAIN_CHECKPOINTS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/writer.h"
#include "trainer/comm/communicator.h"
#include "trainer/parallel/engine.h"
#include "trainer/train/best_weights.h"
#include "trainer/train/host_slices.h"
#include "trainer/train/plan.h"
#include "trainer/train/resume.h"
#include "trainer/train/session.h"
#include "trainer/train/snapshot_room.h"
#include "trainer/train/train_state.h"

namespace trainyard {

class Checkpoints {
 public:
  // After TakeOver: the directory is this attempt's.
  // `best` is saved and loaded beside the engine.
  Checkpoints(const Config& config, const Plan& plan, const std::string& fingerprint, Engine& engine, BestWeights& best,
              Session& session, const Resume& resume);

  // Fills the engine from the chosen checkpoint (each rank reads the files that it has verified, and the
  // parts are summed), or from init.from (rank 0 reads), or leaves the initial values. Averages that the
  // checkpoint does not hold begin with the weights. Ranks wait for each other as long as they read. All ranks call it,
  // once: the checkpoint's files are then closed.
  void Load();

  // From now on this engine is saved: a new stage's. The old one may be gone after writer()->WaitTaken().
  void SetEngine(Engine& engine) { engine_ = &engine; }

  // Whether checkpoint.minutes are over: the ranks' clocks differ, so rank 0's decides for all.
  bool WantsSave() const;
  // Whether to save now: checkpoint.every says so, or the ranks have agreed to, and it is not saved yet.
  bool IsDue(const TrainState& train, bool agreed) const;
  // Starts saving, when the checkpoint in flight is durable.
  void Begin(const TrainState& train);
  // Saves unless this step is already saved, and returns when it is durable.
  void SaveNow(const TrainState& train);

  CheckpointWriter* writer() { return &writer_; }

 private:
  std::vector<StateSlice> State() const;
  // What is read from the chosen checkpoint.
  std::vector<StateSlice> Loaded() const;
  int64_t LoadPart(HostSlices& state, const Tick& tick);
  // Of the state, what this rank writes.
  std::vector<StateSlice> Parts() const;
  // Copies of them on the device, which take their place, where all lie there and it has room: training goes on while
  // they are copied out. False, and nothing is changed, where not.
  bool Snapshot(std::vector<StateSlice>& parts);

  const Config& config_;
  const Plan& plan_;
  std::string fingerprint_;
  Engine* engine_;
  BestWeights& best_;
  Session& session_;
  int64_t last_saved_;
  std::chrono::steady_clock::time_point last_began_ = std::chrono::steady_clock::now();
  const bool resumed_, averages_begin_;
  std::shared_ptr<const OpenCheckpoint> source_;
  const bool shared_;
  SnapshotRoom room_;
  CheckpointWriter writer_;
};

// Fills the engine's parameters from a checkpoint, the newest good one of a directory, or a safetensors file: with the
// averages of a checkpoint that holds them.
// Throws ConfigError when there is none or it is of another model (RequireSameModel), StorageError when none is good.
// Says on standard error when it was trained on other data. Returns the checkpoint's step; nothing for a safetensors
// file.
std::optional<int64_t> LoadModel(const std::string& path, const Config& config, const std::string& fingerprint,
                                 Engine& engine);

// Fills the engine's parameters, trained and frozen, from a safetensors file that `field` names: init.from,
// --checkpoint. Throws ConfigError for one that is not there or is malformed, and one with the first few names that
// are missing, not known, or of another shape, and how many more there are. Aliases may be there. Says on standard
// error what it passes over (ModelDeclaration::optional), what keeps its initial values, and what of the model is other
// than the file says that it was in training (OtherThanInFile); where a weight is used as it is, in an evaluation or
// since no stage trains it, that is a ConfigError too.
enum class WeightsUse {
  kStart,     // of a run: what is optional may be lacking, all of it together, and the statistics of norms
  kAsTheyAre  // of an evaluation: every parameter is there, and every buffer that counts
};
void LoadWeights(const std::string& field, const std::string& path, WeightsUse use, const Config& config,
                 Engine& engine, const Tick& tick = {});

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_CHECKPOINTS_H_

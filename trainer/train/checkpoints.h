// Checkpoints of a run: when to save, what is in them, and how training goes on from one.
#ifndef TRAINYARD_TRAINER_TRAIN_CHECKPOINTS_H_
#define TRAINYARD_TRAINER_TRAIN_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/writer.h"
#include "trainer/comm/communicator.h"
#include "trainer/parallel/engine.h"
#include "trainer/train/plan.h"
#include "trainer/train/session.h"
#include "trainer/train/train_state.h"

namespace trainyard {

// What rank 0 found to go on from; the same on every rank.
struct Resume {
  int64_t step = 0;          // 0: from scratch
  int64_t global_batch = 0;  // of the checkpoint; 0: from scratch
  TrainState train;
  std::string message;  // for the banner: which checkpoint, what was skipped and why, what differs
  std::vector<std::string> warnings;
};

// Rank 0 chooses the newest good checkpoint (checkpoint.resume) and tells the others; all ranks call
// it. Throws StorageError (74) when checkpoints exist of which none is good, ConfigError when the
// one found is of another identity.
Resume ChooseResume(const Config& config, const std::string& fingerprint, Session& session);

class Checkpoints {
 public:
  // Rank 0 takes the fence for this attempt; all ranks call it.
  Checkpoints(const Config& config, const Plan& plan, const std::string& fingerprint, Engine& engine, Session& session,
              const Resume& resume);

  // Fills the engine from the chosen checkpoint (rank 0 reads and broadcasts), or from init.from, or
  // leaves the initial values. All ranks call it.
  void Load();

  // From now on this engine is saved: a new stage's. Returns when nothing of the old one is needed any more.
  void SetEngine(Engine& engine);

  // Starts saving when checkpoint.every says so.
  void MaybeSave(const TrainState& train);
  // Saves unless this step is already saved, and returns when it is durable.
  void SaveNow(const TrainState& train);

  CheckpointWriter* writer() { return &writer_; }

 private:
  void Begin(const TrainState& train);
  std::vector<SourceSlice> Slices() const;

  const Config& config_;
  const Plan& plan_;
  std::string fingerprint_;
  Engine* engine_;
  Session& session_;
  int64_t last_saved_;
  std::string resume_path_;
  bool shared_ = true;
  CheckpointWriter writer_;
};

// Writes the model's parameters and buffers, float32, under their state_dict names. Throws StorageError.
void ExportModel(Engine& engine, const std::string& path);

// Fills the engine's parameters from a checkpoint, the newest good one of a directory, or a safetensors file.
// Throws ConfigError when there is none or it is of another identity.
void LoadModel(const std::string& path, const Config& config, const std::string& fingerprint, Engine& engine);

// Fills the engine's parameters, trained and frozen, from a safetensors file. Names that are missing or not known, and
// shapes that differ, are listed in one ConfigError. Names of buffers and aliases may be there.
void LoadWeights(const std::string& path, Engine& engine);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_CHECKPOINTS_H_

// How an attempt takes a checkpoint directory over and finds what it goes on from.
#ifndef TRAINYARD_TRAINER_TRAIN_RESUME_H_
#define TRAINYARD_TRAINER_TRAIN_RESUME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/reader.h"
#include "trainer/config/config.h"
#include "trainer/train/saved_state.h"
#include "trainer/train/session.h"
#include "trainer/train/train_state.h"

namespace trainyard {

// The same on every rank but for the open files.
struct Resume {
  std::string fingerprint;                            // the checkpoint's, or FingerprintOf; rank 0 alone has it
  int64_t step = 0;                                   // 0: from scratch
  bool here = true;                                   // `step` is one of this directory: it cannot be saved again
  bool shared = true;                                 // every rank sees rank 0's checkpoint directory
  std::optional<CommittedCheckpoint> durable;         // `step`, when it is one of this directory
  int64_t global_batch = 0;                           // of the checkpoint; 0: from scratch
  std::optional<std::pair<int64_t, int64_t>> window;  // the checkpoint's N and R (Plan::window), where it says them
  TrainState train;
  bool has_best = false;      // the checkpoint holds best weights (best_weights.h)
  bool has_averages = false;  // and averages (optim.ema_decay)
  nlohmann::json bits;        // what decided the bits when it was saved (bits.h); null: from scratch
  std::string message;        // for the banner: which checkpoint, and what was skipped and why
  std::vector<std::string> warnings;
  // The checkpoint with the files that this rank has verified: together the ranks hold each one once,
  // and without a common directory rank 0 holds all. Nothing: from scratch.
  std::shared_ptr<const OpenCheckpoint> source;
};

// Throws ConfigError when the configuration makes no run that goes on from such a state; from an empty one, none that
// begins.
using RequirePlan = std::function<void(const SavedState&)>;

// Rank 0 takes the fence, so that nobody else commits or removes anything; then it chooses what
// checkpoint.resume says, all ranks verify a part of the files, and rank 0 records the choice in the
// fence. All ranks call it. `never` and a directory hold until an attempt of this job has started; then
// it is auto. Throws StorageError (74) when checkpoints exist of which none is good, ConfigError when
// what is there is of another identity or `require_plan` does (then the fence is as it was), PeerError when a newer
// attempt owns the directory.
Resume TakeOver(const Config& config, Session& session, const RequirePlan& require_plan);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_RESUME_H_

// What a run says of itself in a manifest, besides its tensors and files.
#ifndef TRAINYARD_TRAINER_TRAIN_SAVED_STATE_H_
#define TRAINYARD_TRAINER_TRAIN_SAVED_STATE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "trainer/checkpoint/reader.h"
#include "trainer/train/train_state.h"

namespace trainyard {

struct SavedState {
  nlohmann::json config;         // an object
  std::string data_fingerprint;  // FingerprintOf
  int64_t global_batch = 0;
  std::optional<std::pair<int64_t, int64_t>> window;  // N and R; older checkpoints do not say
  TrainState train;                                   // after the manifest's step
  nlohmann::json bits;
};

// Under which key a checkpoint holds what is evaluated and exported of a parameter: its average, where it has one.
std::string WeightsKey(const OpenCheckpoint& checkpoint, const std::string& parameter);

// A seal proves that a manifest is as it was written, not by whom. Throws DamagedError that names the manifest and the
// field when no run writes such a state.
SavedState SavedStateOf(const OpenCheckpoint& checkpoint);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_SAVED_STATE_H_

// Everything that a step changes besides the flat tensors: what a checkpoint's manifest carries.
#ifndef TRAINYARD_TRAINER_TRAIN_TRAIN_STATE_H_
#define TRAINYARD_TRAINER_TRAIN_TRAIN_STATE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "trainer/optim/loss_scale.h"
#include "trainer/optim/schedule.h"

namespace trainyard {

struct TrainState {
  int64_t step = 0;         // steps taken, skipped ones included; samples consumed = step x batch.global
  int64_t stage = 0;        // the one that `step` belongs to; at its end, before the hand-over, still the same
  int64_t clean_steps = 0;  // updates of the optimizer in this stage; what schedules count
  int64_t skipped_in_row = 0;
  std::optional<LossScale> loss_scale;  // of float16, from the first step on
  Plateau plateau;
  EarlyStop early_stop;
  bool ended_early = false;
  double best = std::numeric_limits<double>::infinity();  // of checkpoint.keep_best
  int64_t best_step = 0;
  bool evaluation_pending = false;  // that of `step` was left out by a stop, has failed, or could not be written
  int64_t lr_world = 0;             // ranks of the first attempt, for optim.lr_scaling; 0: it is this one

  // What a stage counts starts anew.
  void BeginStage(int64_t next);
  // Any value of checkpoint.keep_best will be the best.
  void ForgetBest();

  nlohmann::json ToJson() const;
  // Throws StorageError, or what the library throws, about a field that no run writes so.
  static TrainState FromJson(const nlohmann::json& json);
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_TRAIN_STATE_H_

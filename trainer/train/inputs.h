// How samples reach a step, and what they were.
#ifndef TRAINYARD_TRAINER_TRAIN_INPUTS_H_
#define TRAINYARD_TRAINER_TRAIN_INPUTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/comm/control_plane.h"
#include "trainer/data/loader.h"
#include "trainer/task/task.h"
#include "trainer/train/plan.h"
#include "trainer/train/stages.h"

namespace trainyard {

// This rank's shares of the steps [first, end), counted over the run. `task` must outlive it.
std::unique_ptr<Loader> MakeLoader(const Config& config, const Plan& plan, std::span<const StageRun> stages,
                                   const Task& task, int rank, const Decisions& decisions, int64_t first, int64_t end);

// Every rank's samples of a step and, where they were hashed, inputs, in global order.
struct GatheredInputs {
  std::vector<int64_t> ids;
  uint64_t hash = 0;
};
// All ranks call it.
GatheredInputs GatherInputs(const Share& share, ControlPlane& control);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_INPUTS_H_

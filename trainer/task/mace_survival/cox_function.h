// The Cox loss as an operation of autograd.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COX_FUNCTION_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COX_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include "trainer/task/mace_survival/survival_metrics.h"

namespace trainyard::mace {

struct GatheredLoss {
  at::Tensor sum;      // scalar float32, over the events of this rank's samples; its gradient goes to every risk
  int64_t events = 0;  // of the whole batch, all ranks
};

// rows: (R, GatheredRow::kColumns) float32 of all ranks; `mine`: (B) float32, the places of this rank's samples. The
// risk sets are the global batch's. Computed in float64. A batch without events gives 0, with a gradient of 0.
GatheredLoss GlobalCoxLoss(const at::Tensor& rows, const at::Tensor& mine);

// A time as the two float32 of a row, which add up to it within 2^-48 of it; a whole number of days exactly.
struct SplitTime {
  float time, rest;
};
SplitTime Split(double time);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COX_FUNCTION_H_

// A micro-batch of a survival analysis.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_BATCH_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_BATCH_H_

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/task/mace_survival/volumes.h"

namespace trainyard::mace {

// Legend: B samples, F features.
struct SurvivalBatch : Batch {
  at::Tensor volumes;   // (B, 1, X, Y, Z) float32
  at::Tensor facts;     // (B, GatheredRow::kColumns - 1) float32: a row for the loss but for the risk
  at::Tensor features;  // (B, F) float32 as in the table; F is 0 where nobody wants them
};

// A null sample is one that could not be read. Denominators: events, samples.
void FillBatch(std::span<const Sample* const> samples, const std::vector<int64_t>& volume, int64_t features,
               SurvivalBatch& batch);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_BATCH_H_

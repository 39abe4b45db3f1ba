// From windows to tensors: used for training and for playing.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_BATCH_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_BATCH_H_

#include <span>

#include "trainer/data/batch.h"
#include "trainer/task/algorithm_distillation/transformer.h"
#include "trainer/task/algorithm_distillation/windows.h"

namespace trainyard::ad {

struct DistillationBatch : Batch {
  TransformerInput input;
  at::Tensor actions;  // (B, Q) int64 targets, kIgnored where none
  at::Tensor types;    // (B, Q) int64 targets, kIgnored where none
};

// Pads the windows on the right to the longest; padding is never visible to a query. Missing
// queries are padded with ignored targets. Fills the denominators: valid actions, valid types.
void FillBatch(std::span<const Window> windows, DistillationBatch& batch);

// xxh3 of a window's rows, queries and targets.
uint64_t HashWindow(const Window& window);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_BATCH_H_

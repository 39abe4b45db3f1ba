// From windows of tokens to tensors: used for training and for evaluation.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LANGUAGE_BATCH_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LANGUAGE_BATCH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "trainer/data/batch.h"
#include "trainer/task/language_model/token_file.h"

namespace trainyard::lm {

constexpr int64_t kIgnored = -100;  // a target that does not count

struct LanguageBatch : Batch {
  at::Tensor tokens;   // (B, T) int64
  at::Tensor targets;  // (B, T) int64: the tokens that follow, or kIgnored
};

// Each window has `context` + 1 tokens. An empty one could not be read: it keeps its place and counts nothing. Fills
// the tensors and the denominator, the number of targets.
void FillBatch(std::span<const std::span<const Token>> windows, int64_t context, LanguageBatch& batch);

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LANGUAGE_BATCH_H_

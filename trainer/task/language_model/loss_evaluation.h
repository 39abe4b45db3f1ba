// Evaluation of a language model: its loss on held-out text.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LOSS_EVALUATION_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LOSS_EVALUATION_H_

#include <memory>
#include <optional>

#include "trainer/task/language_model/corpus.h"
#include "trainer/task/language_model/gpt2.h"
#include "trainer/task/task.h"

namespace trainyard::lm {

struct EvaluationSetup {
  const Gpt2& model;
  Weights& weights;
  const Windows& windows;  // held out
  OptionalInt limit;       // evaluates so many of them, spread evenly; absent: all
  std::optional<Truth> truth;
  int rank, world;
};

// test/loss in nats per token, test/perplexity, and with a truth test/above_entropy_rate, the distance of the loss to
// it. The same bits for every world size.
std::unique_ptr<Evaluation> MakeLossEvaluation(const EvaluationSetup& setup);

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LOSS_EVALUATION_H_

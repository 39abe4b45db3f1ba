// Evaluations of Algorithm Distillation: loss and accuracy on held-out histories, and the return of
// playing held-out tasks.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_EVALUATION_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_EVALUATION_H_

#include <memory>

#include "trainer/task/algorithm_distillation/in_context.h"
#include "trainer/task/algorithm_distillation/windows.h"
#include "trainer/task/task.h"

namespace trainyard::ad {

struct EvaluationSetup {
  const Config& config;
  const Transformer& model;
  Weights& weights;
  const Windows& windows;  // of the held-out tasks
  const TaskSet& set;
  int rank, world;
};

// test/loss_action, test/acc_action and, in compressed mode, test/{loss,acc}_token_type over
// task.eval_windows fixed windows.
std::unique_ptr<Evaluation> MakeHistoryEvaluation(const EvaluationSetup& setup);

// The above, then task.eval_plays independent plays of task.eval_episodes episodes in each held-out
// task: test/return_{first10,last10,mean}, means over plays and goals; test/return_last10_stderr;
// test/return_no_history; the curve over episodes; and the table per goal. The same bits for every
// world size.
std::unique_ptr<Evaluation> MakeInContextEvaluation(const EvaluationSetup& setup);

// Sums of cross entropy and correct predictions over the targets that count.
struct Score {
  double loss = 0, correct = 0, count = 0;
};
// logits: (B, Q, K) float32; targets: (B, Q).
Score ScoreOf(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_EVALUATION_H_

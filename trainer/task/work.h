// What training on one sample costs: throughput in tokens, and the model's FLOP utilisation (MFU).
#ifndef TRAINYARD_TRAINER_TASK_WORK_H_
#define TRAINYARD_TRAINER_TASK_WORK_H_

#include <optional>

namespace trainyard {

// Of the longest sample; unknown where a task does not say it.
struct SampleWork {
  // Positions that go through the network.
  std::optional<double> tokens;
  // Floating-point operations of forward and backward, counted as in appendix B of PaLM (Chowdhery et al., arXiv
  // 2204.02311), 6 N + 12 L H Q T for a token: 6 for each parameter that it goes through (a multiplication and an
  // addition forward, two of each backward; biases and norms are so few that they count like the rest, tables that are
  // only read do not), and in each of L layers 12 times H heads times their width Q times the T positions that it may
  // attend to, masked ones included. What is computed a second time counts once.
  std::optional<double> flops;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_WORK_H_

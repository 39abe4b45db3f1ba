// What a configuration says about Algorithm Distillation alone.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_OPTIONS_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/config/config.h"

namespace trainyard::ad {

struct ModelOptions {
  int64_t context = 80;
  int64_t dim = 64;
  int64_t layers = 4;
  int64_t heads = 4;
  OptionalInt ffn;
  double dropout = 0.1;
};

struct Options : TaskOptions {
  std::string env = "darkroom";        // darkroom | darkroom_permuted
  std::string mode = "standard";       // standard | compressed
  std::string loss = "last_position";  // last_position | every_position
  double type_loss_weight = 1.0;
  int64_t max_transitions = 1000;
  int64_t eval_windows = 512;
  int64_t eval_episodes = 40;
  int64_t eval_plays = 16;
  ModelOptions model;

  void Declare(FieldTable& table) override;
  void Check(const Config& config) const override;
  std::string Describe() const override;
  std::vector<Metric> Metrics() const override;
  std::vector<std::string> MeasuredWith() const override { return {"task.eval_windows"}; }
};

std::shared_ptr<TaskOptions> MakeOptions();

// REQUIRES: `config` was loaded for this task.
const Options& OptionsOf(const Config& config);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_OPTIONS_H_

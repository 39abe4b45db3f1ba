// What a configuration says about the language model alone.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_OPTIONS_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard::lm {

// Everything that determines the network.
struct ModelShape {
  int64_t vocab, context, dim, layers, heads;
  double dropout;
};

// A field of the model that is absent has the preset's value.
struct ModelOptions {
  std::string preset = "tiny";  // tiny | gpt2_124m
  OptionalInt vocab, context, dim, layers, heads;
  std::optional<double> dropout;
};

struct Options : TaskOptions {
  ModelOptions model;
  double test_fraction = 0.05;
  std::string test_shard;
  OptionalInt eval_windows;

  void Declare(FieldTable& table) override;
  void Check(const Config& config) const override;
  std::string Describe() const override;
  std::vector<Metric> Metrics() const override;
  std::vector<std::string> MeasuredWith() const override { return {"task.eval_windows"}; }

  ModelShape shape() const;
};

std::shared_ptr<TaskOptions> MakeOptions();

// REQUIRES: `config` was loaded for this task.
const Options& OptionsOf(const Config& config);

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_OPTIONS_H_

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/config/load.h"
#include "trainer/task/algorithm_distillation/options.h"

namespace trainyard::ad {
namespace {

constexpr TaskDeclaration kTask[] = {{"algorithm_distillation", "", MakeOptions}};

Config Parse(const std::vector<std::string>& sets) {
  return ParseConfig("task: {name: algorithm_distillation}\ndata: {path: /d}\ntrain: {steps: 5}\n", "job.yaml", sets,
                     kTask);
}

std::string ErrorOf(const std::vector<std::string>& sets) {
  try {
    Parse(sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DistillationOptions, AreReadAndChecked) {
  const Config config = Parse({"task.loss=every_position", "model.context=200"});
  EXPECT_EQ(OptionsOf(config).loss, "every_position");
  EXPECT_EQ(OptionsOf(config).model.context, 200);
  EXPECT_EQ(config.task.options->Describe(), "standard, loss at every_position");
  EXPECT_EQ(ErrorOf({"model.heads=3"}), "model.dim: 64 is not a multiple of model.heads 3");
  EXPECT_EQ(ErrorOf({"task.mode=compressed"}).substr(0, 34), "model.context: 80 is not allowed; ");
  EXPECT_EQ(ErrorOf({"task.mode=compressed", "model.context=164"}), "no error");
}

}  // namespace
}  // namespace trainyard::ad

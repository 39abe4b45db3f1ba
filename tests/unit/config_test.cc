#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/config/fields.h"
#include "trainer/config/load.h"

namespace trainyard {
namespace {

constexpr char kSmall[] = "task: {name: algorithm_distillation}\ndata: {path: /d}\ntrain: {steps: 5}\n";

std::string ErrorOf(const std::string& yaml, const std::vector<std::string>& sets = {}) {
  try {
    ParseConfig(yaml, "job.yaml", sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, DefaultsSetsAndTypes) {
  const Config config = ParseConfig(std::string(kSmall) + "optim: {lr: 1, betas: [0.5, 0.75]}\n", "job.yaml",
                                    {"optim.clip=2", "batch.global=12", "model.dropout=0"});
  EXPECT_EQ(config.optim.lr, 1.0);  // a float field accepts an integer
  EXPECT_EQ(config.optim.betas[1], 0.75);
  EXPECT_EQ(config.optim.clip, 2.0);
  EXPECT_EQ(config.batch.global, 12);
  EXPECT_FALSE(config.batch.micro);
  EXPECT_EQ(config.run.dir, "runs/algorithm_distillation");
  EXPECT_EQ(config.checkpoint.dir, "runs/algorithm_distillation/checkpoints");
}

TEST(Config, JsonIsRead) {
  EXPECT_EQ(
      ParseConfig(R"({"task": {"name": "algorithm_distillation"}, "data": {"path": "/d"}, "train": {"steps": 7}})",
                  "json", {})
          .train.steps,
      7);
}

TEST(Config, EnvironmentIsTheLastResort) {
  setenv("TRAINYARD_CHECKPOINT_DIR", "/ck", 1);
  EXPECT_EQ(ParseConfig(kSmall, "job.yaml", {}).checkpoint.dir, "/ck");
  EXPECT_EQ(ParseConfig(kSmall, "job.yaml", {}).run.dir, "/ck/run");
  EXPECT_EQ(ParseConfig(kSmall, "job.yaml", {"checkpoint.dir=/mine"}).checkpoint.dir, "/mine");
  unsetenv("TRAINYARD_CHECKPOINT_DIR");
}

TEST(Config, ErrorsNameFieldValueAndWhatIsAllowed) {
  EXPECT_EQ(ErrorOf(kSmall, {"optim.lr=-1"}), "optim.lr: -1 is not allowed; expected a number >= 0");
  EXPECT_EQ(ErrorOf(kSmall, {"task.mode=compresed"}),
            "task.mode: \"compresed\" is not allowed; expected one of standard, compressed (did you mean compressed?)");
  EXPECT_EQ(ErrorOf(kSmall, {"modle.dim=3"}), "--set: unknown key modle.dim; did you mean model.dim?");
  EXPECT_EQ(ErrorOf("trian: {}\n"), "job.yaml: unknown key trian; did you mean train?");
  EXPECT_EQ(ErrorOf(kSmall, {"train.epochs=1"}), "train.steps, train.epochs: both are set; set exactly one");
  EXPECT_EQ(ErrorOf("task: {name: algorithm_distillation}\ntrain: {steps: 1}\n").substr(0, 18), "data.path: missing");
  EXPECT_NE(ErrorOf("a: [1\n").find("not valid YAML"), std::string::npos);
}

TEST(Config, JsonComesBackTheSame) {
  const Config config =
      ParseConfig(kSmall, "job.yaml", {"optim.groups=[{match: \"*.bias\", lr: 0.5}]", "schedule.name=cosine"});
  EXPECT_TRUE(CompareConfig(ToJson(config), config).empty());
  EXPECT_EQ(ToJson(ParseConfig(ToJson(config).dump(), "json", {})), ToJson(config));
}

TEST(Config, ComparisonKnowsTheClasses) {
  const Config before = ParseConfig(kSmall, "job.yaml", {});
  const Config now = ParseConfig(kSmall, "job.yaml", {"model.dim=32", "optim.lr=1", "checkpoint.every=7"});
  const auto differences = CompareConfig(ToJson(before), now);
  ASSERT_EQ(differences.size(), 2u);  // the free field does not count
  EXPECT_EQ(differences[0].path, "model.dim");
  EXPECT_TRUE(differences[0].identity);
  EXPECT_EQ(differences[1].path, "optim.lr");
  EXPECT_FALSE(differences[1].identity);
}

TEST(Config, EveryFieldIsDocumented) {
  Config config;
  const std::string document = ConfigDocument();
  for (const Field& field : Fields(config)) {
    EXPECT_GT(field.doc.size(), 10u) << field.path;
    EXPECT_NE(document.find("`" + field.path + "`"), std::string::npos);
  }
}

}  // namespace
}  // namespace trainyard

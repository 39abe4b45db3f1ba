#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/config/fields.h"
#include "trainer/config/load.h"
#include "trainer/config/relations.h"

namespace trainyard {
namespace {

// Tasks of this test's own: the configuration knows none.
struct ToyOptions : TaskOptions {
  std::string mode = "standard";
  int64_t dim = 64;
  double dropout = 0.1;
  OptionalInt width;
  void Declare(FieldTable& t) override {
    t.Choice("task.mode", mode, {"standard", "compressed"}, FieldClass::kIdentity, "How the toy is played.");
    t.Int("model.dim", dim, 1, FieldClass::kIdentity, "How large the toy is.", 4096);
    t.Number("model.dropout", dropout, 0, 0.99, FieldClass::kIdentity, "How much of it breaks.");
    t.OptInt("model.width", width, "auto", 1, FieldClass::kIdentity, "How wide the toy is; auto is 4 x dim.");
    t.AutoIs([this] { return nlohmann::json(4 * dim); });
  }
  void Check(const Config& config) const override {
    if (dim % 2 == 1 && config.optim.lr > 0) throw ConfigError("model.dim: odd toys do not learn");
  }
  std::string Describe() const override { return mode; }
  std::vector<Metric> Metrics() const override {
    // Names that say the opposite of what holds.
    return {{"test/glossary", Better::kHigher}, {"test/brier", Better::kLower}};
  }
};

struct OtherOptions : TaskOptions {
  std::string format = "plain";
  void Declare(FieldTable& t) override {
    t.Text("data.format", format, FieldClass::kFree, "The other task's own field.");
  }
  void Check(const Config&) const override {}
  std::string Describe() const override { return format; }
  std::vector<Metric> Metrics() const override { return {}; }
};

template <class T>
std::shared_ptr<TaskOptions> Make() {
  return std::make_shared<T>();
}

constexpr TaskDeclaration kTasks[] = {{"toy", "a toy", Make<ToyOptions>},
                                      {"other", "another", Make<OtherOptions>},
                                      {"planned", "not there yet", nullptr}};

constexpr char kSmall[] = "task: {name: toy}\ndata: {path: /d}\ntrain: {steps: 5}\n";

Config Parse(const std::string& yaml, const std::vector<std::string>& sets = {}) {
  return ParseConfig(yaml, "job.yaml", sets, kTasks);
}

const ToyOptions& Toy(const Config& config) { return dynamic_cast<const ToyOptions&>(*config.task.options); }

std::string ErrorOf(const std::string& yaml, const std::vector<std::string>& sets = {}) {
  try {
    Parse(yaml, sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, DefaultsSetsAndTypes) {
  const Config config = Parse(std::string(kSmall) + "optim: {lr: 1, betas: [0.5, 0.75]}\n",
                              {"optim.clip=2", "batch.global=12", "model.dropout=0"});
  EXPECT_EQ(config.optim.lr, 1.0);  // a float field accepts an integer
  EXPECT_EQ(config.optim.betas[1], 0.75);
  EXPECT_EQ(config.optim.clip, 2.0);
  EXPECT_EQ(Toy(config).dropout, 0);
  EXPECT_EQ(config.batch.global, 12);
  EXPECT_FALSE(config.batch.micro);
  EXPECT_EQ(config.run.dir, "runs/toy");
  EXPECT_EQ(config.checkpoint.dir, "runs/toy/checkpoints");
}

TEST(Config, JsonIsRead) {
  EXPECT_EQ(Parse(R"({"task": {"name": "toy"}, "data": {"path": "/d"}, "train": {"steps": 7}})").train.steps, 7);
}

TEST(Config, EnvironmentIsTheLastResort) {
  setenv("TRAINYARD_CHECKPOINT_DIR", "/ck", 1);
  EXPECT_EQ(Parse(kSmall).checkpoint.dir, "/ck");
  EXPECT_EQ(Parse(kSmall).run.dir, "/ck/run");
  EXPECT_EQ(Parse(kSmall, {"checkpoint.dir=/mine"}).checkpoint.dir, "/mine");
  unsetenv("TRAINYARD_CHECKPOINT_DIR");
}

// A file system takes any bytes for a name, and JSON does not.
TEST(Config, ACheckpointDirectoryOfTheEnvironmentIsText) {
  setenv("TRAINYARD_CHECKPOINT_DIR", "/ck\xff", 1);
  EXPECT_EQ(ErrorOf(kSmall), "TRAINYARD_CHECKPOINT_DIR: /ck\uFFFD is not UTF-8 text; name a folder whose path is");
  EXPECT_EQ(ErrorOf(kSmall, {"checkpoint.dir=/mine"}).substr(0, 25), "TRAINYARD_CHECKPOINT_DIR:")
      << "run.dir is below it";
  EXPECT_EQ(Parse(kSmall, {"checkpoint.dir=/mine", "run.dir=/run"}).checkpoint.dir, "/mine") << "nobody looks at it";
  unsetenv("TRAINYARD_CHECKPOINT_DIR");
}

TEST(Config, ErrorsNameFieldValueAndWhatIsAllowed) {
  EXPECT_EQ(ErrorOf(kSmall, {"optim.lr=-1"}), "optim.lr: -1 is not allowed; expected a number >= 0");
  EXPECT_EQ(ErrorOf(kSmall, {"task.mode=compresed"}),
            "task.mode: \"compresed\" is not allowed; expected one of standard, compressed (did you mean compressed?)");
  EXPECT_EQ(ErrorOf(kSmall, {"modle.dim=3"}), "--set: unknown key modle.dim; did you mean model.dim?");
  // A short key is near to any other of its section; a word of it may be the section that was meant.
  EXPECT_EQ(ErrorOf(kSmall, {"optim.wr=3"}),
            "--set: unknown key optim.wr; the fields of optim are optim.lr, "
            "optim.betas, optim.eps, optim.weight_decay, optim.decay, optim.clip, optim.lr_scaling, optim.groups, "
            "optim.ema_decay");
  EXPECT_EQ(ErrorOf(kSmall, {"train.batch_size=3"}),
            "--set: unknown key train.batch_size; the fields of batch are batch.global, batch.micro");
  EXPECT_EQ(ErrorOf("task: {name: toy}\ntrian: {}\n"), "job.yaml: unknown key trian; did you mean train?");
  EXPECT_EQ(ErrorOf(kSmall, {"train.epochs=1"}), "train.steps, train.epochs: both are set; set exactly one");
  EXPECT_EQ(ErrorOf("task: {name: toy}\ntrain: {steps: 1}\n").substr(0, 18), "data.path: missing");
  EXPECT_NE(ErrorOf("a: [1\n").find("not valid YAML"), std::string::npos);
  EXPECT_EQ(ErrorOf(kSmall, {"run.dir=\"/a\\0b\""}),
            "run.dir: \"/a\\u0000b\" is not allowed; expected a string without the character 0");
  for (const char* section : {"task", "optim", "model", "train.early_stop"}) {
    EXPECT_EQ(ErrorOf(kSmall, {section + std::string("=5")}),
              section + std::string(": 5 is not allowed; expected a section with keys"));
  }
}

TEST(Config, AllMistakesAreToldAtOnce) {
  EXPECT_EQ(ErrorOf("task: {name: toy}\ndata: {path: 5}\noptim: {lr: fast, wd: 1}\n", {"model.dim=x", "trian.steps=1"}),
            "data.path: 5 is not allowed; expected a string\n"
            "optim.lr: \"fast\" is not allowed; expected a number >= 0\n"
            "job.yaml: unknown key optim.wd; the fields of optim are optim.lr, optim.betas, optim.eps, "
            "optim.weight_decay, optim.decay, optim.clip, optim.lr_scaling, optim.groups, optim.ema_decay\n"
            "model.dim: \"x\" is not allowed; expected an integer from 1 to 4096\n"
            "--set: unknown key trian.steps; did you mean train.steps?")
      << "and not that neither steps nor epochs is set, which nobody knows";
  EXPECT_EQ(ErrorOf("task: {name: toy}\nmodel: {dim: 7}\nschedule: {name: plateau}\n"),
            "train.steps, train.epochs: neither is set; set exactly one\n"
            "data.path: missing; `trainyard synth toy --out DIR` writes a data set\n"
            "schedule.metric: missing; plateau watches an evaluation metric\n"
            "model.dim: odd toys do not learn");
  EXPECT_EQ(ErrorOf("model: {a: 1, b: 2}\n"), ErrorOf("{}")) << "whose fields those are nobody can say";
  EXPECT_EQ(ErrorOf("trian: {}\n"), "job.yaml: unknown key trian; did you mean train?\n" + ErrorOf("{}"));
}

TEST(Config, OfManyMistakesTheFirstAreTold) {
  std::vector<std::string> sets;
  for (int i = 0; i < 12; ++i) sets.push_back("nowhere" + std::to_string(i) + "=1");
  const std::string error = ErrorOf(kSmall, sets);
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 9);
  EXPECT_TRUE(error.starts_with("--set: unknown key nowhere0\n") && error.ends_with("nowhere9 (and more)")) << error;
}

TEST(Config, FieldsAreTheCommonOnesAndTheTasks) {
  EXPECT_EQ(Toy(Parse(kSmall, {"model.dim=32"})).dim, 32);
  EXPECT_EQ(Toy(Parse(kSmall, {"model={dim: 8, dropout: 0}"})).dim, 8);  // a section is a value, too
  // --set decides what the file's fields are.
  const Config other =
      Parse("task: {name: toy}\ndata: {path: /d, format: x}\ntrain: {steps: 5}\n", {"task.name=other"});
  EXPECT_EQ(other.task.options->Describe(), "x");
  EXPECT_EQ(ErrorOf(kSmall, {"data.format=x"}).substr(0, 30), "--set: unknown key data.format");
  EXPECT_EQ(ErrorOf(kSmall, {"model.dim=7"}), "model.dim: odd toys do not learn");
  EXPECT_EQ(ErrorOf(kSmall, {"task.name=toi"}),
            "task.name: \"toi\" is not allowed; expected one of toy, other (did you mean toy?)");
  EXPECT_EQ(ErrorOf(kSmall, {"task.name=planned"}),
            "task.name: planned is not supported yet; expected one of toy, other");
  const std::string missing = "task.name: missing; expected one of the names that `trainyard tasks` lists";
  EXPECT_EQ(ErrorOf("model: {dim: 3}\n"), missing);
  EXPECT_EQ(ErrorOf("train: {steps: 3}\ndata: {path: /d}\n"), missing);
}

TEST(Config, MetricsAreTheTasksOwn) {
  const Config config = Parse(kSmall);
  EXPECT_EQ(Badness(config.task.options->Metrics(), "test/glossary", 2), -2);
  EXPECT_EQ(Badness(config.task.options->Metrics(), "test/brier", 2), 2);
  const std::string known = "; expected one of test/glossary, test/brier (did you mean test/brier?)";
  EXPECT_EQ(ErrorOf(kSmall, {"checkpoint.keep_best=test/brie"}), "checkpoint.keep_best: no metric test/brie" + known);
  EXPECT_EQ(ErrorOf(kSmall, {"train.early_stop.metric=test/brie"}),
            "train.early_stop.metric: no metric test/brie" + known);
  EXPECT_EQ(ErrorOf(kSmall, {"schedule={name: plateau, metric: test/brie}"}),
            "schedule.metric: no metric test/brie" + known);
}

TEST(Config, WhatCanNeverActIsRefused) {
  const std::string never = ": test/brier is never looked at before the last step; set train.eval_every";
  EXPECT_EQ(ErrorOf(kSmall, {"train.early_stop.metric=test/brier"}), "train.early_stop.metric" + never);
  EXPECT_EQ(ErrorOf(kSmall, {"schedule={name: plateau, metric: test/brier}"}), "schedule.metric" + never);
  EXPECT_EQ(ErrorOf(kSmall, {"train.early_stop.metric=test/brier", "train.eval_every=2"}), "no error");
}

TEST(Config, WhatIsMostLikelyNotMeantIsSaid) {
  const struct {
    std::vector<std::string> sets;
    const char* says;  // nothing: no doubt
  } cases[] = {
      {{}, nullptr},
      {{"checkpoint.keep_best=test/brier"}, "checkpoint.keep_best: train.eval_every is 0 of the run's 5 steps"},
      {{"checkpoint.keep_best=test/brier", "train.eval_every=2"}, nullptr},
      {{"train.early_stop.metric=test/brier", "train.eval_every=5"}, "train.early_stop.metric: train.eval_every is 5"},
      {{"schedule.warmup=5"}, "schedule.warmup: 5 of the run's 5 steps are warm-up"},
      {{"schedule.warmup=4"}, nullptr},
      {{"schedule={name: onecycle, warmup: 2}"}, "schedule.warmup: onecycle"},
      {{"schedule.metric=test/brier"}, "schedule.metric: only plateau"},
      {{"schedule={name: cosine, min_lr: 1}"}, "schedule.min_lr: 1 is above optim.lr"},
      {{"checkpoint.keep_every=2"}, "checkpoint.keep_every: without checkpoint.every"},
      {{"checkpoint={keep_every: 3, every: 2}"}, "checkpoint.keep_every: of the checkpoints that every 2 steps"},
      {{"checkpoint.every=6"}, "checkpoint.every: 6 is more than the run's 5 steps"},
  };
  for (const auto& c : cases) {
    const std::vector<std::string> doubts = Doubts(Parse(kSmall, c.sets), 5);
    ASSERT_EQ(doubts.size(), c.says ? 1u : 0u) << (c.says ? c.says : doubts[0]);
    if (c.says) {
      EXPECT_EQ(doubts[0].substr(0, std::string(c.says).size()), c.says);
    }
  }
}

TEST(Config, NumbersBeyondReasonAreRefused) {
  EXPECT_EQ(ErrorOf(kSmall, {"data.workers=100000"}),
            "data.workers: 100000 is not allowed; expected an integer from 1 to 1024, or auto");
  EXPECT_EQ(ErrorOf(kSmall, {"batch.global=9223372036854775807"}),
            "batch.global: 9223372036854775807 is not allowed; expected an integer from 1 to 16777216, or auto");
  EXPECT_EQ(ErrorOf(kSmall, {"batch.global=9223372036854775808"}).substr(0, 13), "batch.global:");
  EXPECT_EQ(ErrorOf(kSmall, {"batch.micro=1000000000000"}).substr(0, 12), "batch.micro:");
  EXPECT_EQ(ErrorOf(kSmall, {"train.steps=9223372036854775807"}).substr(0, 12), "train.steps:");
}

TEST(Config, AFileThatNeverEndsIsRead) {
  try {
    LoadConfig("/dev/zero", {}, kTasks);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), "/dev/zero: is larger than 4194304 bytes");
  }
  EXPECT_THROW(LoadConfig("/", {}, kTasks), ConfigError);
  EXPECT_THROW(LoadConfig("/nowhere", {}, kTasks), ConfigError);
}

TEST(Config, JsonComesBackTheSame) {
  const Config config = Parse(kSmall, {"optim.groups=[{match: \"*.bias\", lr: 0.5}]", "schedule.name=cosine"});
  EXPECT_TRUE(CompareConfig(ToJson(config), config).empty());
  EXPECT_EQ(ToJson(Parse(ToJson(config).dump())), ToJson(config));
}

TEST(Config, RanksMayHaveTheirFilesElsewhereAndAllOfThemOrNone) {
  const Config first = Parse(kSmall, {"train.record=/a/record", "init.from=/a/weights", "run.dir=/a"});
  const Config elsewhere = Parse(kSmall, {"train.record=/b/record", "init.from=/b/weights", "run.dir=/b"});
  EXPECT_TRUE(CompareRanks(ToJson(first), elsewhere).empty());
  for (const std::string field : {"train.record", "init.from"}) {
    const auto left_out =
        CompareRanks(ToJson(first), Parse(kSmall, {"train.record=/b", "init.from=/b", field + "=\"\""}));
    ASSERT_EQ(left_out.size(), 1u) << field;
    EXPECT_EQ(left_out[0].path, field);
    EXPECT_EQ(left_out[0].after, "null");
  }
}

TEST(Config, ComparisonKnowsTheClasses) {
  const Config before = Parse(kSmall);
  const Config now = Parse(kSmall, {"model.dim=32", "optim.lr=1", "checkpoint.every=7"});
  const auto differences = CompareConfig(ToJson(before), now);
  ASSERT_EQ(differences.size(), 2u);  // the free field does not count
  EXPECT_EQ(differences[0].path, "model.dim");
  EXPECT_TRUE(differences[0].identity);
  EXPECT_EQ(differences[1].path, "optim.lr");
  EXPECT_FALSE(differences[1].identity);
}

TEST(Config, AnAutoIsTheValueThatItStandsFor) {
  const Config automatic = Parse(kSmall), same = Parse(kSmall, {"model.width=256", "precision.compute=fp32"}),
               other = Parse(kSmall, {"model.width=128", "precision.compute=bf16"});
  EXPECT_TRUE(CompareConfig(ToJson(automatic), same).empty());
  EXPECT_TRUE(CompareConfig(ToJson(same), automatic).empty());
  auto differences = CompareConfig(ToJson(automatic), other);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].path, "model.width");
  EXPECT_EQ(differences[0].before, "\"auto\" (256)");
  EXPECT_EQ(differences[0].after, "128");
  differences = CompareConfig(ToJson(other), automatic);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[1].path, "precision.compute");
  EXPECT_EQ(differences[1].after, "\"auto\" (\"fp32\")");
}

TEST(Config, EveryFieldIsDocumented) {
  Config config;
  const std::string document = ConfigDocument(kTasks);
  for (const Field& field : Fields(config)) {
    EXPECT_GT(field.doc.size(), 10u) << field.path;
    EXPECT_NE(document.find("`" + field.path + "`"), std::string::npos);
  }
  for (const char* own : {"## Task toy", "`task.mode`", "`model.dim`", "## Task other", "`data.format`"})
    EXPECT_NE(document.find(own), std::string::npos) << own;
  EXPECT_EQ(document.find("planned"), std::string::npos);
}

}  // namespace
}  // namespace trainyard

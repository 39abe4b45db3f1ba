// What is decided on machines that this one is not.
#include "trainer/train/decisions.h"

#include <gtest/gtest.h>

#include <map>

#include "trainer/base/error.h"
#include "trainer/config/load.h"
#include "trainer/task/tasks.h"
#include "trainer/train/remedies.h"

namespace trainyard {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

Config Job(const std::vector<std::string>& sets = {}, const std::string& file = "") {
  return ParseConfig("{task: {name: language_model}, data: {path: /nowhere}, train: {steps: 1}" + file + "}", "test",
                     sets, TaskDeclarations());
}

Hardware Machine(int gpus, uint64_t mib, int major = 8, int minor = 9) {
  Hardware hardware;
  hardware.gpus.assign(static_cast<size_t>(gpus), Gpu{"card", mib * kMiB, mib * kMiB, major, minor});
  hardware.cpus = {.count = 16, .why = "16 CPUs of the machine"};
  hardware.memory = {uint64_t{128} << 30, "the machine's memory"};
  return hardware;
}

Decisions On(const Hardware& hardware, int ranks, const Config& config = Job()) {
  return Decide(hardware, config, {.world = ranks, .ranks_here = ranks});
}

const Decision& Named(const Decisions& decisions, const std::string& name) {
  for (const Decision& decision : decisions.list) {
    if (decision.name == name) return decision;
  }
  throw std::runtime_error("no decision " + name);
}

TEST(Decide, TheGuidesFiveRowsOnFourGpus) {
  // What the driver reports of a card of each row, in MiB: L4 of 24 GB, T4 of 16, and as its maker names them.
  struct Row {
    uint64_t mib;
    int64_t micro, accumulation, global;
  };
  for (const Row& row : {Row{23034, 16, 4, 256}, Row{15109, 12, 5, 240}, Row{11264, 8, 8, 256}, Row{8192, 4, 16, 256},
                         Row{4096, 2, 32, 256}}) {
    const Decisions d = On(Machine(4, row.mib), 4);
    EXPECT_EQ(d.micro, row.micro) << row.mib;
    EXPECT_EQ(d.accumulation, row.accumulation) << row.mib;
    EXPECT_EQ(d.global_batch, row.global) << row.mib;
    EXPECT_EQ(d.micro * d.accumulation * 4, d.global_batch) << row.mib;
    EXPECT_EQ(Named(d, "micro_batch").source, Source::kAuto);
  }
}

TEST(Decide, ACardCountsAsItsMakerNamesIt) {
  // MiB as drivers report them: ECC and the driver keep a part.
  const std::pair<uint64_t, int64_t> cards[] = {{23034, 16},                // L4, 24 GB: 22.5 GiB
                                                {22731, 16},                // A10G, 24 GB
                                                {19968, 16},                // A100 MIG 3g.20gb: 19.5 GiB
                                                {15109, 12},                // T4, 16 GB: 14.75 GiB
                                                {9728, 8},                  // A100 MIG 1g.10gb: 9.5 GiB
                                                {10240, 8},                 // RTX 3080, 10 GB
                                                {5934, 4},                  // RTX 2060, 6 GB: 5.8 GiB
                                                {4096, 2},   {81559, 16}};  // H100
  for (const auto& [mib, micro] : cards) EXPECT_EQ(MicroOfClass(Machine(1, mib)), micro) << mib;
  Hardware mixed = Machine(1, 23034);
  mixed.gpus.push_back(Machine(1, 8192).gpus[0]);
  EXPECT_EQ(MicroOfClass(mixed), 4) << "the smallest decides";
}

TEST(Decide, OtherNumbersOfGpus) {
  const std::map<int, std::pair<int64_t, int64_t>> expected = {{1, {16, 256}}, {2, {8, 256}},  {3, {5, 240}},
                                                               {8, {2, 256}},  {16, {1, 256}}, {32, {1, 512}}};
  for (const auto& [gpus, batch] : expected) {
    const Decisions d = On(Machine(gpus, 23034), gpus);
    EXPECT_EQ(d.micro, 16) << gpus;
    EXPECT_EQ(d.accumulation, batch.first) << gpus;
    EXPECT_EQ(d.global_batch, batch.second) << gpus;
  }
}

TEST(Decide, AGivenGlobalBatchIsKept) {
  const Config config = Job({"batch.global=240"});
  const Decisions d = On(Machine(4, 23034), 4, config);
  EXPECT_EQ(d.global_batch, 240);
  EXPECT_EQ(d.micro, 15) << "the largest divisor of 60 not above 16";
  EXPECT_EQ(d.accumulation, 4);
  EXPECT_EQ(Named(d, "global_batch").source, Source::kCommandLine);
  const Decisions uneven = On(Machine(3, 23034), 3, Job({"batch.global=100"}));
  EXPECT_EQ(uneven.global_batch, 100) << "shares of 34, 33, 33";
  EXPECT_LE(uneven.micro, 16);
  EXPECT_GE(uneven.micro * uneven.accumulation, 34);
  const Decisions resumed =
      Decide(Machine(2, 23034), Job(), {.world = 2, .ranks_here = 2, .resumed_global = 96, .samples = 1000});
  EXPECT_EQ(resumed.global_batch, 96);
  EXPECT_EQ(resumed.micro, 16);
  EXPECT_EQ(Named(resumed, "global_batch").source, Source::kCheckpoint);
}

TEST(Decide, WithoutGpus) {
  Hardware machine = Machine(0, 0);
  const Decisions d = On(machine, 2);
  EXPECT_EQ(d.micro, 4);
  EXPECT_EQ(d.accumulation, 8);
  EXPECT_EQ(d.global_batch, 64);
  const Decisions resumed =
      Decide(machine, Job(), {.world = 2, .ranks_here = 2, .resumed_global = d.global_batch, .samples = 1000});
  EXPECT_EQ(resumed.micro, d.micro) << "it goes on to the bit";
  EXPECT_EQ(resumed.accumulation, d.accumulation);
  EXPECT_EQ(d.parallel.stage, ZeroStage::kDdp);
  EXPECT_EQ(d.parallel.precision, Precision::kFp32);
  EXPECT_TRUE(d.environment.empty());
  EXPECT_EQ(On(machine, 2, Job({"batch.global=64"})).micro, 32) << "host memory holds the whole share";
}

TEST(Decide, ABatchThatInteractsIsOnePiece) {
  Situation at{.world = 2, .ranks_here = 2, .whole_share = true};
  const Decisions d = Decide(Machine(2, 23034), Job(), at);
  EXPECT_EQ(d.micro, 16);
  EXPECT_EQ(d.accumulation, 1);
  EXPECT_EQ(d.global_batch, 32);
  EXPECT_THROW(Decide(Machine(2, 23034), Job({"batch.global=32", "batch.micro=4"}), at), ConfigError);
}

TEST(Decide, ASmallDataSetIsOneBatch) {
  const Decisions d = Decide(Machine(4, 23034), Job(), {.world = 4, .ranks_here = 4, .samples = 100});
  EXPECT_EQ(d.global_batch, 100);
  EXPECT_EQ(d.micro, 5) << "25 in equal pieces";
}

TEST(Decide, StageAndPrecisionByTheGpus) {
  const auto stage = [](int gpus, uint64_t mib) { return On(Machine(gpus, mib), gpus).parallel.stage; };
  EXPECT_EQ(stage(1, 23034), ZeroStage::kDdp);
  EXPECT_EQ(stage(2, 23034), ZeroStage::kZero2);
  EXPECT_EQ(stage(2, 4096), ZeroStage::kZero3);
  EXPECT_EQ(On(Machine(2, 4096), 2).parallel.reduce, Reduce::kEvery);
  EXPECT_EQ(stage(1, 4096), ZeroStage::kDdp) << "there is nobody to share with";
  const auto precision = [](int major, int minor) { return On(Machine(1, 23034, major, minor), 1).parallel.precision; };
  EXPECT_EQ(precision(9, 0), Precision::kBf16);
  EXPECT_EQ(precision(8, 0), Precision::kBf16);
  EXPECT_EQ(precision(7, 5), Precision::kFp16);
  EXPECT_EQ(precision(7, 0), Precision::kFp16);
  EXPECT_EQ(precision(6, 1), Precision::kFp32);
}

TEST(Decide, TheCommandLineBeatsTheFileBeatsAuto) {
  const std::string file =
      ", parallel: {stage: zero1}, precision: {compute: bf16}, batch: {micro: 6}, data: {path: /x, "
      "workers: 5, prefetch: 7}";
  const Config config = ParseConfig("{task: {name: language_model}, train: {steps: 1}" + file + "}", "test",
                                    {"parallel.stage=ddp", "batch.micro=auto"}, TaskDeclarations());
  const Decisions d = On(Machine(4, 23034), 4, config);
  EXPECT_EQ(Named(d, "stage").Text(), "ddp (command line)");
  EXPECT_EQ(d.parallel.stage, ZeroStage::kDdp);
  EXPECT_EQ(Named(d, "precision").Text(), "bf16 (file)");
  EXPECT_EQ(Named(d, "micro_batch").source, Source::kAuto) << "--set auto asks for it again";
  EXPECT_EQ(d.micro, 16);
  EXPECT_EQ(Named(d, "loader_threads").Text(), "5 (file)");
  EXPECT_EQ(Named(d, "prefetch").Text(), "7 (file)");
  const Config resolved = Resolved(config, d);
  EXPECT_EQ(resolved.parallel.stage, "ddp");
  EXPECT_EQ(Resolved(Job(), On(Machine(2, 15109, 7, 5), 2)).precision.compute, "fp16");
}

TEST(Decide, ThreadsPrefetchAndEnvironment) {
  Hardware machine = Machine(4, 23034);
  Decisions d = On(machine, 4);
  EXPECT_EQ(d.loader.count, 3) << "of 14 for 4 ranks";
  EXPECT_EQ(d.threads.count, 4);
  EXPECT_EQ(d.prefetch, 4);
  machine.memory.bytes = uint64_t{64} << 30;
  EXPECT_EQ(On(machine, 4).prefetch, 3);
  machine.memory.bytes = uint64_t{32} << 30;
  EXPECT_EQ(On(machine, 4).prefetch, 2);
  EXPECT_EQ(Decide(machine, Job(), {.world = 4, .ranks_here = 4, .omp_num_threads = "9,2"}).threads.count, 9);
  EXPECT_THROW(Decide(machine, Job(), {.omp_num_threads = "many"}), ConfigError);
  ASSERT_EQ(d.environment.size(), 3u);
  EXPECT_EQ(d.environment[0].name, "CUBLAS_WORKSPACE_CONFIG");
  EXPECT_EQ(On(machine, 4, Job({"run.deterministic=false"})).environment.size(), 2u);
}

TEST(Decide, EveryDecisionSaysWhy) {
  for (const Hardware& hardware : {Machine(0, 0), Machine(2, 4096), Machine(4, 15109, 7, 5)}) {
    for (const Decision& decision : On(hardware, 2).list) {
      EXPECT_EQ(decision.source, Source::kAuto) << decision.name;
      EXPECT_FALSE(decision.why.empty()) << decision.name;
    }
  }
}

TEST(Decide, AGivenGpuThatCannotBeUsedIsRefusedWithTheReason) {
  Hardware hardware = Machine(0, 0);
  const Config config = Job({"parallel.device=cuda"});
  EXPECT_EQ(On(hardware, 1, config).device, "cuda") << "who opens it finds out";
  hardware.unused_gpus = "1 seen, the first card, and not used: too old";
  EXPECT_EQ(On(hardware, 1).device, "cpu") << "auto";
  try {
    On(hardware, 1, config);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "parallel.device: cuda: 1 seen, the first card, and not used: too old; with cpu ranks compute on the "
                 "host's processors");
  }
}

class RemediesTest : public testing::Test {
 protected:
  RemediesTest() {
    const Config config = Job({"model.preset=gpt2_124m"});
    DeclareModel(config, model_);
    stages_ = StagesOf(config);
  }
  std::vector<Remedy> At(int ranks, double gigabytes, bool of_one_rank = false) {
    const Footprint footprint{model_, stages_, {.world = ranks}, ranks};
    return Remedies(footprint, {static_cast<uint64_t>(gigabytes * 1e9), "a test", of_one_rank});
  }
  ModelDeclaration model_;
  std::vector<Stage> stages_;
};

TEST_F(RemediesTest, TheCheapestThatSufficeComeFirst) {
  const Footprint ddp{model_, stages_, {.world = 4}, 4};
  const MemoryBudget host{11'000'000'000, "a test", false};
  const int64_t needs = ddp.Needs(host);
  ASSERT_GT(needs, 11e9) << "four ranks hold it four times";
  const std::vector<Remedy> remedies = Remedies(ddp, host);
  ASSERT_EQ(remedies.size(), 3u);
  EXPECT_EQ(remedies[0].change, "parallel.stage: zero1");
  EXPECT_EQ(remedies[1].change, "--nproc 3");
  Footprint zero1 = ddp;
  zero1.shape.stage = ZeroStage::kZero1;
  EXPECT_EQ(remedies[0].needs, zero1.Needs(host)) << "computed for this job";
  for (const Remedy& remedy : remedies) {
    EXPECT_TRUE(remedy.fits) << remedy.change;
    EXPECT_EQ(remedy.saves, needs - remedy.needs) << remedy.change;
    EXPECT_LE(remedy.needs, 11e9) << remedy.change;
  }
}

TEST_F(RemediesTest, WhereLittleHelpsTheLargestSavingsAreNamed) {
  const std::vector<Remedy> remedies = At(2, 0.5);
  ASSERT_EQ(remedies.size(), 3u);
  size_t fitting = 0;
  for (const Remedy& remedy : remedies) fitting += remedy.fits;
  EXPECT_GE(fitting, 1u) << "more memory always does";
  EXPECT_NE(Describe(remedies).find("a memory limit of "), std::string::npos) << Describe(remedies);
}

TEST_F(RemediesTest, AloneOnAGpu) {
  const std::vector<Remedy> remedies = At(1, 1.5, true);
  for (const Remedy& remedy : remedies) EXPECT_EQ(remedy.change.find("--nproc"), std::string::npos);
  EXPECT_NE(Describe(remedies).find("a GPU with free memory of "), std::string::npos) << Describe(remedies);
  EXPECT_NE(Describe(remedies).find("times the nodes"), std::string::npos) << Describe(remedies);
}

// Kept weights lie in host memory: they make a moment the largest there, and not on a GPU.
TEST_F(RemediesTest, OnAGpuWhatLiesInTheHostDoesNotCount) {
  const Stage first{.name = "first"};
  Stage second{.name = "second", .from_best = true};
  stages_ = {first, second};
  const std::vector<PlannedMoment> best = PlanMoments(model_, {.world = 1}, stages_);
  second.from_best = false;
  stages_ = {first, second};
  const std::vector<PlannedMoment> last = PlanMoments(model_, {.world = 1}, stages_);
  ASSERT_EQ(best.size(), 3u);
  const int64_t weights = 4 * model_.num_parameters(true);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(best[i].bytes(true), last[i].bytes(true)) << i;
    EXPECT_EQ(best[i].bytes(false) - last[i].bytes(false), (i == 0 ? 2 : i == 1 ? 1 : 0) * weights) << i;
  }
  EXPECT_EQ(&Largest(best, false), best.data());
  for (const PlannedMoment& moment : best) EXPECT_LE(moment.bytes(true), Largest(best, true).bytes(true));
}

TEST_F(RemediesTest, TheRefusalNamesThem) {
  try {
    RequireMemory({model_, stages_, {.world = 2}, 2}, {1 << 30, "the test's memory", false});
    FAIL();
  } catch (const OutOfMemoryError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("124439808 parameters need "), std::string::npos) << text;
    EXPECT_NE(text.find("the test's memory is 1.0 GiB; the cheapest remedies: "), std::string::npos) << text;
    EXPECT_NE(text.find("saves "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trainyard

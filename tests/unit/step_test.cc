// What a step draws from: the micro-batch's key, and nothing else.
#include "trainer/train/step.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <new>
#include <set>
#include <thread>

#include "tests/task/small_jobs.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/comm/in_process.h"
#include "trainer/device/host_device.h"
#include "trainer/model/layers.h"
#include "trainer/task/tasks.h"
#include "trainer/train/inputs.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

// ---- Keys ---------------------------------------------------------------------------------------

// Tells the keys of its micro-batches by (step, first sample).
class KeyTask : public Task {
 public:
  KeyTask() : layer_(Scope(declaration_).Unit("all"), 1, 1), place_(Scope(declaration_).NextPlace()) {}
  const Dataset& dataset() const override { throw std::logic_error("no data set"); }
  std::unique_ptr<Batch> Collate(std::span<const Sample* const>) const override { return nullptr; }
  const ModelDeclaration& model() const override { return declaration_; }
  size_t num_terms() const override { return 1; }
  std::vector<std::string> train_metrics() const override { return {}; }
  LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double>) const override {
    keys[batch.ids.at(0)] = pass.Fork(place_);
    const at::Tensor y = pass.Unit({0}, [&](at::TensorList in) { return layer_(pass, in[0]); }, {at::ones({1, 1})});
    return {y.sum(), at::zeros({0}, at::kDouble)};
  }
  std::unique_ptr<Evaluation> Evaluate(EvaluationKind, int64_t, Weights&, int, int) const override { return nullptr; }

  mutable std::map<int64_t, uint64_t> keys;  // each rank has a task of its own

 private:
  ModelDeclaration declaration_;
  Linear layer_;
  Place place_;
};

constexpr int64_t kGlobal = 6, kSteps = 3;

// One sample a micro-batch: the key of each (step, place in the global batch), counted through.
std::map<int64_t, uint64_t> KeysOf(int world) {
  Config config;
  config.run.seed = 7;
  Plan plan;
  plan.world = world;
  plan.global_batch = kGlobal;
  plan.micro = 1;
  plan.accumulation = plan.ShareOf(0).size();
  plan.total_steps = plan.schedule_steps = kSteps;
  const auto communicators = MakeInProcessWorld(world);
  std::vector<KeyTask> tasks(static_cast<size_t>(world));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      KeyTask& task = tasks[static_cast<size_t>(rank)];
      Communicator& communicator = *communicators[static_cast<size_t>(rank)];
      const auto engine = MakeEngine(task.model(), {}, 1, Host(), communicator);
      PhaseClock clock;
      Step step(config, plan, task, *engine, communicator, clock);
      TrainState train;
      for (int64_t s = 0; s < kSteps; ++s) {
        Share share;
        for (int64_t place = plan.ShareOf(rank).begin; place < plan.ShareOf(rank).end; ++place) {
          share.push_back(std::make_unique<Batch>());
          share.back()->denominators = {1};
          share.back()->ids = {s * kGlobal + place};
        }
        step.Run([&]() -> const Share& { return share; }, train, nullptr);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::map<int64_t, uint64_t> keys;
  for (KeyTask& task : tasks) keys.merge(task.keys);
  return keys;
}

TEST(Step, AKeyIsThatOfItsStepAndItsPlaceInTheGlobalBatch) {
  const std::map<int64_t, uint64_t> alone = KeysOf(1);
  ASSERT_EQ(alone.size(), kGlobal * kSteps);
  std::set<uint64_t> different;
  for (const auto& [place, key] : alone) different.insert(key);
  EXPECT_EQ(different.size(), alone.size()) << "two micro-batches would drop the same";
  for (const int world : {2, 3, 4}) EXPECT_EQ(KeysOf(world), alone) << world << " ranks";
}

// ---- What a task promises ---------------------------------------------------------------------------

// Breaks one of a task's promises on one rank.
struct Wrong {
  std::vector<double> denominators = {1};
  at::Tensor factor = at::ones({});  // of the loss
  at::Tensor metrics = at::zeros({2}, at::kDouble);
};
class WrongTask : public KeyTask {
 public:
  explicit WrongTask(const Wrong& wrong) : wrong_(wrong) {}
  std::vector<std::string> train_metrics() const override { return {"a", "b"}; }
  LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double> denominators) const override {
    return {KeyTask::Loss(pass, batch, denominators).share.mul(wrong_.factor), wrong_.metrics};
  }

 private:
  const Wrong& wrong_;
};

// What each of two ranks ends with, of which the second has the wrong task.
std::vector<std::string> EndsOf(const Wrong& wrong) {
  Config config;
  config.task.name = "t";
  Plan plan;
  plan.world = plan.global_batch = 2;
  plan.micro = plan.accumulation = plan.total_steps = plan.schedule_steps = 1;
  const auto communicators = MakeInProcessWorld(2);
  std::vector<std::string> ends(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const Wrong mine = rank == 1 ? wrong : Wrong();
      const WrongTask task(mine);
      Communicator& communicator = *communicators[static_cast<size_t>(rank)];
      const auto engine = MakeEngine(task.model(), {}, 1, Host(), communicator);
      PhaseClock clock;
      Step step(config, plan, task, *engine, communicator, clock);
      TrainState train;
      Share share;
      share.push_back(std::make_unique<Batch>());
      share.back()->denominators = mine.denominators;
      share.back()->ids = {rank};
      std::string& end = ends[static_cast<size_t>(rank)];
      try {
        step.Run([&]() -> const Share& { return share; }, train, nullptr);
      } catch (const std::logic_error& error) {
        end = error.what();
      } catch (const PeerError& error) {
        end = std::string("peer: ") + error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return ends;
}

TEST(Step, AResultThatATaskDoesNotPromiseIsNamedAndReachesTheConsensus) {
  EXPECT_EQ(EndsOf({}), std::vector<std::string>(2)) << "nothing is wrong";
  const std::pair<Wrong, const char*> cases[] = {
      {{.denominators = {1, 1, 1}}, "task t: Batch::denominators has 3 values; num_terms() says 1"},
      {{.denominators = {}}, "task t: Batch::denominators has 0 values; num_terms() says 1"},
      {{.factor = at::ones({3})}, "task t: LossResult::share is no scalar"},
      {{.metrics = at::zeros({1}, at::kDouble)}, "task t: LossResult::metrics has 1 values; train_metrics() names 2"},
      {{.metrics = at::zeros({2}, at::kFloat)}, "task t: LossResult::metrics is not float64"},
      {{.metrics = at::Tensor()}, "task t: LossResult::metrics is not float64"},
  };
  for (const auto& [wrong, says] : cases) {
    const std::vector<std::string> ends = EndsOf(wrong);
    EXPECT_EQ(ends[1], says);
    EXPECT_TRUE(ends[0].starts_with("peer: ") && ends[0].find("rank 1") != std::string::npos)
        << says << ": " << ends[0];
  }
}

// An allocation that fails elsewhere says nothing of the micro-batch.
TEST(Step, OnlyForwardAndBackwardBlameTheMicroBatch) {
  Plan plan;
  plan.world = plan.global_batch = plan.micro = plan.accumulation = plan.total_steps = plan.schedule_steps = 1;
  const Config config;
  const KeyTask task;
  const auto communicator = MakeSingleCommunicator();
  const auto engine = MakeEngine(task.model(), {}, 1, Host(), *communicator);
  PhaseClock clock;
  Step step(config, plan, task, *engine, *communicator, clock);
  TrainState train;
  EXPECT_THROW(step.Run([]() -> const Share& { throw std::bad_alloc(); }, train, nullptr), std::bad_alloc);
}

// A run that goes on under another schedule has that one's rate; back under plateau, what it was lowered to.
TEST(Step, WhatAPlateauHasLoweredIsItsOwnRateAlone) {
  Plan plan;
  plan.world = plan.global_batch = plan.micro = plan.accumulation = 1;
  plan.total_steps = plan.schedule_steps = 3;
  plan.peak_lr = 1;
  const KeyTask task;
  const auto communicator = MakeSingleCommunicator();
  const auto engine = MakeEngine(task.model(), {}, 1, Host(), *communicator);
  PhaseClock clock;
  TrainState train;
  train.plateau.multiplier = 0.25;
  const auto rate_of = [&](const char* schedule) {
    Config config;
    config.schedule.name = schedule;
    Step step(config, plan, task, *engine, *communicator, clock);
    Share share;
    share.push_back(std::make_unique<Batch>());
    share.back()->denominators = {1};
    share.back()->ids = {0};
    return step.Run([&]() -> const Share& { return share; }, train, nullptr).lr;
  };
  EXPECT_EQ(rate_of("plateau"), 0.25);
  EXPECT_EQ(rate_of("constant"), 1);
  EXPECT_EQ(rate_of("plateau"), 0.25);
}

// ---- The global generator -----------------------------------------------------------------------

class EveryTask : public ::testing::TestWithParam<SmallJob> {};

at::Tensor GlobalState() { return at::detail::getDefaultCPUGenerator().get_state(); }

// Two steps from the initial weights; `between` is called before each.
std::map<std::string, std::vector<float>> Trained(const Config& config, const Task& task,
                                                  const std::function<void()>& between) {
  const Decisions decisions =
      DecideFor({.given = config, .world = {}, .hardware = {}, .omp_num_threads = "1"}, task, 0);
  const Plan plan = MakePlan(config, decisions, *task.MakeOrder(0));
  const auto communicator = MakeSingleCommunicator();
  const auto engine =
      MakeEngine(task.model(), {.micro_batch = plan.micro, .optim = config.optim}, 1, Host(), *communicator);
  const auto loader = MakeLoader(config, plan, {}, task, 0, decisions, 0, 2);
  PhaseClock clock;
  Step step(config, plan, task, *engine, *communicator, clock);
  TrainState train;
  for (int i = 0; i < 2; ++i) {
    between();
    const Share share = loader->Next();
    EXPECT_TRUE(step.Run([&]() -> const Share& { return share; }, train, nullptr).finite);
  }
  std::map<std::string, std::vector<float>> values;
  for (const StateSlice& slice : engine->Slices())
    values[slice.key].assign(Floats(slice.values).begin(), Floats(slice.values).end());
  return values;
}

TEST_P(EveryTask, AForeignDrawChangesNoStep) {
  const fs::path data = fs::temp_directory_path() /
                        ("trainyard_step_test_" + std::string(GetParam().task) + "_" + std::to_string(getpid()));
  const Config config = ConfigOf(GetParam(), data);
  const std::unique_ptr<Task> task = BuildTask(config);
  const at::Tensor before = GlobalState();
  const auto undisturbed = Trained(config, *task, [] {});
  EXPECT_TRUE(GlobalState().equal(before)) << "a step has drawn from the global generator";
  const auto disturbed = Trained(config, *task, [] { at::rand({100}); });
  EXPECT_TRUE(undisturbed == disturbed);
  fs::remove_all(data);
}

INSTANTIATE_TEST_SUITE_P(Tasks, EveryTask, ::testing::ValuesIn(SmallJobs()),
                         [](const auto& info) { return std::string(info.param.task); });

}  // namespace
}  // namespace trainyard

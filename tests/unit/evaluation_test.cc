// What every task's evaluations have in common.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "tests/task/small_jobs.h"
#include "trainer/base/random.h"
#include "trainer/comm/communicator.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/engine.h"
#include "trainer/task/tasks.h"
#include "trainer/train/evaluator.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class EvaluationsOf : public ::testing::TestWithParam<SmallJob> {
 protected:
  ~EvaluationsOf() override { fs::remove_all(data_); }

  const fs::path data_ = fs::temp_directory_path() /
                         ("trainyard_evaluation_test_" + std::string(GetParam().task) + "_" + std::to_string(getpid()));
  const Config config_ = ConfigOf(GetParam(), data_);
};

// A model at its start may say the same of every sample.
void Disturb(Engine& engine) {
  for (const StateSlice& slice : engine.Slices()) {
    if (!slice.key.starts_with("model.")) continue;
    KeyedRandom random(NameKey(slice.key), "disturbed");
    for (float& value : Floats(slice.values)) value += 0.1f * static_cast<float>(random.Normal());
  }
  engine.Publish();
}

// The last evaluation's values are compared with those of the ones before: for the best weights, and by people.
TEST_P(EvaluationsOf, WhatCanBeWatchedIsMeasuredInTheLastOneAsInThoseBefore) {
  const std::unique_ptr<Task> task = BuildTask(config_);
  const auto alone = MakeSingleCommunicator();
  const auto engine = MakeEngine(task->model(), {}, 3, Host(), *alone);
  Disturb(*engine);
  const auto metrics_of = [&](EvaluationKind kind) {
    return RunEvaluation(*task, kind, 1, *engine, *alone, [](int, int) {})->metrics;
  };
  const auto before = metrics_of(EvaluationKind::kPeriodic), last = metrics_of(EvaluationKind::kFinal);
  for (const Metric& metric : config_.task.options->Metrics()) {
    ASSERT_TRUE(before.contains(metric.name) && last.contains(metric.name)) << metric.name;
    EXPECT_TRUE(std::isfinite(last.at(metric.name))) << metric.name;
    EXPECT_EQ(last.at(metric.name), before.at(metric.name)) << metric.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, EvaluationsOf, ::testing::ValuesIn(SmallJobs()),
                         [](const auto& info) { return std::string(info.param.task); });

TEST(SmallJobs, AreOfEveryTaskInTheTable) {
  std::set<std::string> tasks, small;
  for (const TaskEntry& task : Tasks()) {
    if (task.options) tasks.insert(task.name);
  }
  for (const SmallJob& job : SmallJobs()) small.insert(job.task);
  EXPECT_EQ(small, tasks);
}

}  // namespace
}  // namespace trainyard

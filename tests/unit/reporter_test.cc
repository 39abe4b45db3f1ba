// What an attempt that goes on says of its speed.
#include "trainer/train/reporter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "trainer/config/load.h"
#include "trainer/task/tasks.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

// The seconds of a phase, however long it took.
double Spend(PhaseClock& clock) {
  clock.Enter("forward");
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  clock.Enter("other");
  return clock.seconds().at("forward");
}

class ReporterTest : public testing::Test {
 protected:
  ReporterTest() {
    session_.world.rank = 1;  // which opens no logs, and keeps the same status
    session_.world.size = 2;
    plan_.global_batch = 8;
    plan_.total_steps = 1200;
  }
  ~ReporterTest() override { fs::remove_all(directory_); }

  const fs::path directory_ = fs::path(testing::TempDir()) / ("reporter-" + std::to_string(getpid()));
  const Config config_ = ParseConfig("{task: {name: patchwork}, data: {path: /dev/null}, train: {steps: 1200}}", "test",
                                     {"run.dir=" + directory_.string()}, TaskDeclarations());
  const std::unique_ptr<Task> task_ = BuildTask(config_);
  Session session_;
  Plan plan_;
  StatusPublisher publisher_{false};
};

// The 448 steps of earlier attempts took none of this one's time.
TEST_F(ReporterTest, SpeedAndWhatIsLeftCountFromTheStepThatIsGoneOnFrom) {
  TrainState train;
  train.step = 448;
  Reporter reporter(config_, plan_, *task_, session_, publisher_, train);
  EXPECT_FALSE(publisher_.board().Get().samples_per_second) << "it has done none";
  CheckpointWriter writer({.directory = directory_, .writer = {"uid", 2}, .rank = 1, .world = 2},
                          std::make_shared<MemoryStore>());
  PhaseClock clock;
  const double seconds = Spend(clock);
  train.step = 449;
  reporter.ReportStep(train, {}, {}, clock, {}, writer);
  const RankStatus status = publisher_.board().Get();
  ASSERT_TRUE(status.samples_per_second && status.eta_seconds);
  EXPECT_DOUBLE_EQ(*status.samples_per_second, 8 / seconds);
  EXPECT_DOUBLE_EQ(*status.eta_seconds, (1200 - 449) * seconds);
  EXPECT_EQ(status.startup.step, 448);
}

}  // namespace
}  // namespace trainyard

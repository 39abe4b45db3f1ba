// New attempts take a directory over while the old one is alive and commits as fast as it can.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard {
namespace {

constexpr size_t kElements = 1000;
constexpr int kTakeovers = 100;  // for each keep_last

std::vector<float> ValuesOf(int64_t attempt, int64_t step) {
  return std::vector<float>(kElements, static_cast<float>(attempt * 100000 + step));
}

// An attempt that trains, i.e. saves step after step in a thread, until it is fenced off.
class Attempt {
 public:
  Attempt(const fs::path& directory, int64_t number, int64_t resumed_step, int64_t keep_last)
      : number_(number),
        announced_(resumed_step),
        writer_({.directory = directory, .writer = {"uid", number}, .retention = {keep_last, 0}},
                std::make_shared<MemoryStore>()),
        thread_([this] { Train(); }) {}

  int64_t announced() const { return announced_; }
  // How it ended.
  std::string End() {
    thread_.join();
    return end_;
  }

 private:
  void Train() {
    try {
      for (int64_t step = announced_ + 1;; ++step) {
        const std::vector<float> values = ValuesOf(number_, step);
        const auto copy = [&](float* to) { std::ranges::copy(values, to); };
        writer_.Begin(step, {{"model.w", {kElements}, 0, kElements, copy}}, {});
        writer_.Finish();
        announced_ = step;
      }
    } catch (const PeerError&) {
      end_ = "fenced off";
    } catch (const std::exception& error) {
      end_ = error.what();
    }
  }

  const int64_t number_;
  std::atomic<int64_t> announced_;
  std::string end_;
  CheckpointWriter writer_;
  std::thread thread_;
};

class LiveTakeoverTest : public testing::TestWithParam<int> {
 protected:
  LiveTakeoverTest() : directory_(fs::path(testing::TempDir()) / ("takeover-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~LiveTakeoverTest() override { fs::remove_all(directory_); }
  fs::path directory_;
};

TEST_P(LiveTakeoverTest, NothingIsLostAndNothingFencedOffIsRead) {
  const char* text = std::getenv("TRAINYARD_TEST_SEED");
  const unsigned seed = text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 20;
  std::printf("seed %u (set TRAINYARD_TEST_SEED to repeat another)\n", seed);
  std::mt19937 random(seed);
  std::map<int64_t, int64_t> start = {{1, 0}};  // attempt -> the step that it went on from
  Fence::Take(directory_, {"uid", 1});
  Fence::Record(directory_, {"uid", 1}, 0, "");
  auto old = std::make_unique<Attempt>(directory_, 1, 0, GetParam());
  for (int64_t attempt = 2; attempt < 2 + kTakeovers; ++attempt) {
    const int64_t wanted = start[attempt - 1] + static_cast<int64_t>(random() % 3);
    while (old->announced() < wanted || old->announced() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const int64_t before = old->announced();
    Fence::Take(directory_, {"uid", attempt});
    const Choice choice = ChooseCheckpoint(directory_);  // throws: 74
    ASSERT_TRUE(choice.found) << "from scratch";
    const int64_t step = choice.found->manifest.step, writer = choice.found->manifest.writer.attempt;
    EXPECT_GE(step, before) << "a commit before the taking over is lost";
    EXPECT_GT(step, start.at(writer));
    for (const auto& [later, from] : start) {
      EXPECT_TRUE(later <= writer || step <= from) << "attempt " << later << " had fenced it off";
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    std::vector<float> values(kElements);
    LoadTensors(*choice.found, {{"model.w", {{kElements}, values}}});
    EXPECT_EQ(values, ValuesOf(writer, step));
    Fence::Record(directory_, {"uid", attempt}, step, "");
    EXPECT_TRUE(fs::exists(directory_ / StepName(step))) << "the old attempt has removed what is gone on from";
    start[attempt] = step;
    auto next = std::make_unique<Attempt>(directory_, attempt, step, GetParam());
    EXPECT_EQ(old->End(), "fenced off");
    old = std::move(next);
  }
  Fence::Take(directory_, {"end", 1});
  EXPECT_EQ(old->End(), "fenced off");
}

INSTANTIATE_TEST_SUITE_P(KeepLast, LiveTakeoverTest, testing::Values(1, 2));

}  // namespace
}  // namespace trainyard

// Whatever the moment of a power loss, what was announced as durable is there, and no moment makes the
// next start fail. And the other way round: leave out any one fsync, and some moment breaks that.
#include "tests/unit/power_loss.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard {
namespace {

constexpr size_t kValues = 6;

std::vector<float> ValuesOf(int64_t step) { return std::vector<float>(kValues, static_cast<float>(step)); }

class PowerLossTest : public testing::Test {
 protected:
  PowerLossTest()
      : root_(fs::path(testing::TempDir()) / ("power-loss-" + std::to_string(getpid()))),
        rebuilt_(root_.string() + "-after") {}
  ~PowerLossTest() override {
    fs::remove_all(root_);
    fs::remove_all(rebuilt_);
  }

  void Save(CheckpointWriter& writer, int64_t step) {
    const std::vector<float> values = ValuesOf(step);
    writer.Begin(step, {{"model.w", {kValues}, 0, kValues, [&](float* to) { std::ranges::copy(values, to); }}},
                 {{"step", step}});
    writer.Finish();
    power_loss::Announce("durable " + std::to_string(step));
  }

  void TakeOver(int64_t attempt, int64_t resumed_step) {
    Fence::Take(root_, {"uid", attempt});
    power_loss::Announce("taken " + std::to_string(attempt));
    Fence::Record(root_, {"uid", attempt}, resumed_step, "");
    power_loss::Announce("recorded " + std::to_string(attempt));
  }

  // Two attempts that keep one step each time; the log of it.
  std::vector<power_loss::Event> Play(int leave_out) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    power_loss::Start(root_, leave_out);
    TakeOver(1, 0);
    {
      CheckpointWriter writer({.directory = root_, .writer = {"uid", 1}, .retention = {1, 0}},
                              std::make_shared<MemoryStore>());
      Save(writer, 1);
      Save(writer, 2);
    }
    TakeOver(2, 2);
    CheckpointWriter writer({.directory = root_, .writer = {"uid", 2}, .retention = {1, 0}},
                            std::make_shared<MemoryStore>());
    Save(writer, 3);
    return power_loss::Stop();
  }

  // What is wrong with the rebuilt directory; empty when nothing is.
  std::string Problem(const std::map<std::string, int64_t>& announced) const {
    auto told = [&](const char* what) { return announced.contains(what) ? announced.at(what) : 0; };
    try {
      const Fence fence = Fence::Read(rebuilt_);
      if (fence.LastAttempt("uid") < told("taken")) return "the owner is forgotten";
      if (told("recorded") && (!fence.LastStarted() || fence.LastStarted()->writer.attempt < told("recorded")))
        return "where the owner started is forgotten";
      const Choice choice = ChooseCheckpoint(rebuilt_);
      const int64_t found = choice.found ? choice.found->manifest.step : 0;
      if (found < told("durable")) return "step " + std::to_string(told("durable")) + " is lost";
      if (choice.found) {
        std::vector<float> values(kValues);
        LoadTensors(*choice.found, {{"model.w", {{kValues}, values}}});
        if (values != ValuesOf(found)) return "step " + std::to_string(found) + " has other values";
      }
      if (told("durable") && !fs::exists(rebuilt_ / "latest")) return "latest is lost";
      if (fs::exists(rebuilt_ / "latest")) {
        const std::string latest = ReadFile(rebuilt_ / "latest");
        if (latest.size() < 2 || !fs::exists(rebuilt_ / latest.substr(0, latest.size() - 1)))
          return "latest names " + latest + ", which is not there";
      }
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  // The first problem at any moment; empty when there is none.
  std::string FirstProblem(const std::vector<power_loss::Event>& log, size_t* states = nullptr) {
    std::map<std::string, int64_t> announced;
    std::set<std::pair<std::map<std::string, int64_t>, power_loss::Tree>> seen;
    std::string problem;
    for (size_t moment = 0; moment <= log.size() && problem.empty(); ++moment) {
      if (moment > 0 && log[moment - 1].kind == power_loss::Event::kAnnounce) {
        const std::string& text = log[moment - 1].path;
        announced[text.substr(0, text.find(' '))] = std::stoll(text.substr(text.find(' ')));
      }
      power_loss::ForEachRemainder(log, moment, root_, [&](const power_loss::Tree& tree) {
        if (!problem.empty() || !seen.emplace(announced, tree).second) return;
        power_loss::Materialise(tree, rebuilt_);
        problem = Problem(announced);
        if (!problem.empty()) problem += " (after event " + std::to_string(moment) + ")";
      });
    }
    if (states) *states = seen.size();
    return problem;
  }

  fs::path root_, rebuilt_;
};

TEST_F(PowerLossTest, WhatWasAnnouncedAsDurableIsThere) {
  size_t states = 0;
  EXPECT_EQ(FirstProblem(Play(-1), &states), "");
  EXPECT_GT(states, 50u);
  EXPECT_GT(power_loss::Syncs(), 20);
  std::printf("%d syncs, %zu different remainders\n", power_loss::Syncs(), states);
}

TEST_F(PowerLossTest, NoFsyncCanBeLeftOut) {
  Play(-1);
  const int syncs = power_loss::Syncs();
  for (int left_out = 0; left_out < syncs; ++left_out) {
    const std::vector<power_loss::Event> log = Play(left_out);
    EXPECT_NE(FirstProblem(log), "") << "fsync " << left_out << " of " << syncs << " could be left out";
  }
}

TEST_F(PowerLossTest, ALockThatCannotBeGivenIsNoPermission) {
  constexpr auto kSoon = std::chrono::milliseconds(50);
  fs::create_directories(root_);
  for (int error : {ENOLCK, EIO}) {
    power_loss::FailLocks(error, 1'000'000);
    EXPECT_THROW(FenceLock(root_, {}, kSoon), StorageError) << error;
    EXPECT_THROW(FenceLock(
                     root_, [] { return true; }, kSoon),
                 StoppedError)
        << error;
    power_loss::FailLocks(error, 3);  // for a moment
    const FenceLock held(root_, {}, std::chrono::seconds(20));
    EXPECT_THROW(FenceLock(root_, {}, kSoon), PeerError) << error;
  }
  power_loss::FailLocks(EOPNOTSUPP, 2);
  const FenceLock one(root_), other(root_);
}

}  // namespace
}  // namespace trainyard

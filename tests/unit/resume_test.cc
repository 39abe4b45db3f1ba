// How ranks find together what they go on from, each in a thread.
#include "trainer/train/resume.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/config/load.h"
#include "trainer/task/tasks.h"

namespace trainyard {
namespace {

const std::string kFingerprint = "the data";

class ResumeTest : public testing::Test {
 protected:
  ResumeTest() { fs::create_directories(checkpoints_); }
  ~ResumeTest() override { fs::remove_all(directory_); }

  // A step of `parts` files, which the attempt has committed after it went on from the step `from`.
  void Save(int64_t step, int parts, int64_t attempt, int64_t from) {
    const Writer writer{"uid", attempt};
    Fence::Take(checkpoints_, writer);
    Fence::Record(checkpoints_, writer, from, "");
    TrainState train;
    train.step = step;
    const nlohmann::json state = {{"config", ToJson(config_)},
                                  {"data_fingerprint", kFingerprint},
                                  {"global_batch", 8},
                                  {"bits", nlohmann::json::object()},
                                  {"train", train.ToJson()}};
    const auto store = std::make_shared<MemoryStore>();
    std::vector<std::unique_ptr<CheckpointWriter>> writers;
    for (int rank = 0; rank < parts; ++rank)
      writers.push_back(std::make_unique<CheckpointWriter>(
          WriterOptions{.directory = checkpoints_, .writer = writer, .rank = rank, .world = parts}, store));
    for (int rank = 0; rank < parts; ++rank) {
      const int64_t begin = 100 * rank / parts, end = 100 * (rank + 1) / parts;
      const auto copy = [this, begin, end](float* to) {
        std::copy(values_.begin() + begin, values_.begin() + end, to);
      };
      writers[static_cast<size_t>(rank)]->Begin(step, {{"model.w", {100}, begin, end, copy}}, state);
    }
    for (const auto& each : writers) each->Finish();
  }

  // What each rank of a world has taken over.
  std::vector<Resume> TakeOverBy(int world, int64_t attempt) {
    return TakeOverBy(std::vector<Config>(static_cast<size_t>(world), config_), attempt);
  }
  // The same of ranks that have these configurations.
  std::vector<Resume> TakeOverBy(const std::vector<Config>& configs, int64_t attempt) {
    const auto world = static_cast<int>(configs.size());
    const auto store = std::make_shared<MemoryStore>();
    std::vector<Resume> taken(static_cast<size_t>(world));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back([&, rank] {
        Session session;
        session.world.rank = rank;
        session.world.size = world;
        session.job_uid = "uid";
        session.attempt = attempt;
        session.fingerprint = kFingerprint;
        session.store = store;
        try {
          taken[static_cast<size_t>(rank)] = TakeOver(configs[static_cast<size_t>(rank)], session, require_plan_);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return taken;
  }

  const fs::path directory_ = fs::path(testing::TempDir()) / ("resume-" + std::to_string(getpid()));
  const fs::path checkpoints_ = directory_ / "checkpoints";
  const Config config_ =
      ParseConfig("{task: {name: patchwork}, data: {path: /dev/null}, train: {steps: 9}}", "test",
                  {"run.dir=" + directory_.string(), "checkpoint.dir=" + checkpoints_.string()}, TaskDeclarations());
  RequirePlan require_plan_ = [](const SavedState&) {};
  const std::vector<float> values_ = std::vector<float>(100, 0.5f);
};

// A large checkpoint is read once by all ranks together, not by one of them, nor by each.
TEST_F(ResumeTest, EachRankVerifiesItsShareOfTheFiles) {
  Save(5, 5, 1, 0);
  for (const int world : {1, 2, 3}) {
    const std::vector<Resume> taken = TakeOverBy(world, world + 1);
    std::multiset<std::string> verified;
    for (const Resume& resume : taken) {
      EXPECT_EQ(resume.step, 5);
      ASSERT_TRUE(resume.source);
      EXPECT_LE(resume.source->files.size(), static_cast<size_t>((5 + world - 1) / world)) << world << " ranks";
      for (const auto& [name, file] : resume.source->files) verified.insert(name);
    }
    const std::vector<std::string> all = taken[0].source->FileNames();
    EXPECT_EQ(verified, std::multiset<std::string>(all.begin(), all.end())) << world << " ranks";
  }
}

// A node may have mounted the volume elsewhere: rank 0's path to a step is none of its own.
TEST_F(ResumeTest, ARankLooksForStepsInItsOwnDirectory) {
  Save(5, 2, 1, 0);
  const fs::path elsewhere = directory_ / "elsewhere";
  fs::create_directory_symlink(checkpoints_, elsewhere);
  std::vector<Config> configs(2, config_);
  configs[1].checkpoint.dir = elsewhere;
  const std::vector<Resume> taken = TakeOverBy(configs, 2);
  for (const Resume& resume : taken) {
    EXPECT_EQ(resume.step, 5);
    EXPECT_TRUE(resume.shared);
    ASSERT_TRUE(resume.source);
  }
  EXPECT_EQ(taken[0].source->path, checkpoints_ / "step-00000005");
  EXPECT_EQ(taken[1].source->path, elsewhere / "step-00000005");
}

// Also of what it would find when the run is its own: a plan for the checkpoint's batch and place, or for a new run.
TEST_F(ResumeTest, AStartThatCannotGoOnEndsNobody) {
  std::vector<int64_t> asked;
  require_plan_ = [&](const SavedState& saved) {
    asked.push_back(saved.train.step);
    throw ConfigError("it does not fit");
  };
  Session session;
  session.job_uid = "uid";
  session.attempt = 9;
  session.fingerprint = kFingerprint;
  session.store = std::make_shared<MemoryStore>();
  EXPECT_THROW(TakeOver(config_, session, require_plan_), ConfigError);
  Save(4, 1, 1, 0);
  Save(5, 1, 2, 4);
  const std::string fence = ReadFile(checkpoints_ / "fence");
  session.store = std::make_shared<MemoryStore>();
  EXPECT_THROW(TakeOver(config_, session, require_plan_), ConfigError);
  EXPECT_EQ(asked, std::vector<int64_t>({0, 5}));
  EXPECT_EQ(ReadFile(checkpoints_ / "fence"), fence);
}

// Whichever rank finds the damage, all go on from the step before.
TEST_F(ResumeTest, DamageThatAnotherRankFindsIsEverybodys) {
  Save(4, 2, 1, 0);
  Save(5, 2, 2, 4);
  const fs::path shard = checkpoints_ / "step-00000005" / "rank-00001-of-00002.safetensors";
  std::string content = ReadFile(shard);
  content.back() ^= 1;
  WriteFileAtomic(shard, content);
  for (const Resume& resume : TakeOverBy(2, 3)) {
    EXPECT_EQ(resume.step, 4);
    EXPECT_NE(resume.message.find("skipped step-00000005"), std::string::npos) << resume.message;
  }
}

}  // namespace
}  // namespace trainyard

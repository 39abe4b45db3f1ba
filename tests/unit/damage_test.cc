// One flipped bit anywhere in a checkpoint directory: an older good step, or an error with the remedy,
// and never other values.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard {
namespace {

constexpr int64_t kValues = 40;

unsigned SeedFromEnvironment() {
  const char* text = std::getenv("TRAINYARD_TEST_SEED");
  const unsigned seed = text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 20;
  std::printf("seed %u (set TRAINYARD_TEST_SEED to repeat another)\n", seed);
  return seed;
}

class DamageTest : public testing::Test {
 protected:
  DamageTest() : directory_(fs::path(testing::TempDir()) / ("damage-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
    Fence::Take(directory_, {"uid", 1});
    Fence::Record(directory_, {"uid", 1}, 0, "");
  }
  ~DamageTest() override { fs::remove_all(directory_); }

  static std::vector<float> ValuesOf(int64_t step) {
    std::vector<float> values(kValues);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(step) + static_cast<float>(i) / 64;
    return values;
  }
  static nlohmann::json StateOf(int64_t step) {
    return {{"train", {{"clean_steps", step}, {"plateau", "0x1p+0"}}}, {"config", {{"name", "p\u00e9"}}}};
  }

  // Two ranks write it.
  void Save(int64_t step) {
    auto store = std::make_shared<PrefixStore>(store_, std::to_string(step));
    const std::vector<float> values = ValuesOf(step);
    std::vector<std::unique_ptr<CheckpointWriter>> writers;
    for (int rank = 0; rank < 2; ++rank) {
      writers.push_back(std::make_unique<CheckpointWriter>(
          WriterOptions{.directory = directory_, .writer = {"uid", 1}, .rank = rank, .world = 2}, store));
      const int64_t begin = rank * kValues / 2, end = begin + kValues / 2;
      const auto copy = [&values, begin, end](float* to) {
        std::copy(values.begin() + begin, values.begin() + end, to);
      };
      writers.back()->Begin(step, {{"model.w", {4, 10}, begin, end, copy}}, StateOf(step));
    }
    for (auto& writer : writers) writer->Finish();
  }

  // The step that training goes on from, with everything that is read of it compared; 0: an error
  // that names the remedy.
  int64_t Start() {
    try {
      const Choice choice = ChooseCheckpoint(directory_);
      if (!choice.found) {
        ADD_FAILURE() << "a fresh start";
        return -1;
      }
      for (const std::string& line : choice.skipped) EXPECT_NO_THROW(nlohmann::json(line).dump()) << "not UTF-8";
      const int64_t step = choice.found->manifest.step;
      std::vector<float> values(kValues);
      LoadTensors(*choice.found, {{"model.w", {{4, 10}, values}}});
      EXPECT_EQ(values, ValuesOf(step));
      EXPECT_EQ(choice.found->manifest.state, StateOf(step));
      return step;
    } catch (const StorageError& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.find("name another checkpoint.dir") != std::string::npos) << text;
      EXPECT_NO_THROW(nlohmann::json(text).dump()) << "not UTF-8";
      return 0;
    }
  }

  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file() && entry.path().filename() != "fence.lock") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // Flips bits one at a time; `expected` says from the file's path where a start then goes on.
  void Flip(int count, std::mt19937& random, const std::function<int64_t(const fs::path&)>& expected) {
    const std::vector<fs::path> files = Files();
    for (int i = 0; i < count; ++i) {
      const fs::path& file = files[random() % files.size()];
      const std::string good = ReadFile(file);
      std::string bad = good;
      const size_t byte = random() % bad.size(), bit = random() % 8;
      bad[byte] = static_cast<char>(bad[byte] ^ 1 << bit);
      std::ofstream(file, std::ios::binary) << bad;
      EXPECT_EQ(Start(), expected(file)) << file << ", byte " << byte << ", bit " << bit;
      std::ofstream(file, std::ios::binary) << good;
    }
  }

  fs::path directory_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

TEST_F(DamageTest, AnOlderStepIsGoneOnFrom) {
  Save(10);
  Save(20);
  ASSERT_EQ(Files().size(), 8u);
  std::mt19937 random(SeedFromEnvironment());
  Flip(400, random, [](const fs::path& file) -> int64_t {
    if (file.filename() == "fence") return 0;
    return file.parent_path().filename() == StepName(20) ? 10 : 20;
  });
}

TEST_F(DamageTest, WhenNoneIsLeftTheRemedyIsSaid) {
  Save(10);
  std::mt19937 random(SeedFromEnvironment() + 1);
  Flip(100, random, [](const fs::path& file) { return file.filename() == "latest" ? 10 : 0; });
}

// Keys and sizes are part of the verdict: a manifest may be whole and its files too, and yet they do not fit.
TEST_F(DamageTest, FilesThatDoNotHoldWhatTheManifestSaysAreBad) {
  Save(10);
  Save(20);
  const fs::path step = directory_ / StepName(20);
  Manifest manifest = OpenCheckpoint::Open(step).manifest;
  manifest.tensors.at("model.w").slices[1].entry = "model.w#7";
  WriteFileAtomic(step / "manifest.json", manifest.ToText());
  EXPECT_EQ(Start(), 10);
  EXPECT_THROW(VerifyCheckpoint(step), StorageError) << "what `checkpoint verify` asks";
}

}  // namespace
}  // namespace trainyard

#include "operator/local/journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "tests/operator/builders.h"

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;

class JournalTest : public testing::Test {
 protected:
  JournalTest() : folder_(fs::path(testing::TempDir()) / ("journal-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~JournalTest() override { fs::remove_all(folder_); }

  // One life: opens the journal, does `work`, and ends as a killed program does, without a last snapshot.
  // Returns what the API held.
  Json Live(const std::function<void(MemoryApi&, Journal&)>& work) {
    MemoryApi api(clock_, 1);
    Journal journal(folder_);
    const Status opened = journal.Open(api);
    EXPECT_TRUE(opened.ok()) << opened.ToString();
    work(api, journal);
    return api.Dump()["collections"];
  }
  Json Saved() {
    return Live([](MemoryApi&, Journal&) {});
  }
  std::vector<fs::path> Journals() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".journal") found.push_back(entry.path());
    }
    return found;
  }
  static void Create(MemoryApi& api, const std::string& name) {
    ASSERT_TRUE(api.Create(kube::kTrainingJobs, "default", reconcile::JobObject(name, 2), {}).ok());
  }

  const fs::path folder_;
  SystemClock clock_;
};

// Collections that became empty are not told apart from those that never were.
Json WithoutEmpty(Json collections) {
  for (auto entry = collections.begin(); entry != collections.end();)
    entry = entry->empty() ? collections.erase(entry) : std::next(entry);
  return collections;
}

TEST_F(JournalTest, NothingThatWasSeenIsLost) {
  std::mt19937 random(7);
  for (int life = 0; life < 20; ++life) {
    const Json before = Live([&](MemoryApi& api, Journal& journal) {
      for (int i = 0; i < 30; ++i) {
        const std::string name = "job" + std::to_string(random() % 5);
        switch (random() % 4) {
          case 0:
            api.Create(kube::kTrainingJobs, "default", reconcile::JobObject(name, 2), {});
            break;
          case 1:
            api.Delete(kube::kTrainingJobs, "default", name, {});
            break;
          case 2:
            api.Patch(kube::kTrainingJobs, "default", name, "status", PatchType::kMerge,
                      {{"status", {{"attempt", 1 + life}}}}, {});
            break;
          case 3:
            EXPECT_TRUE(journal.Save(random() % 4 == 0).ok());
            break;
        }
      }
    });
    ASSERT_EQ(WithoutEmpty(Saved()), WithoutEmpty(before)) << "life " << life;
  }
}

TEST_F(JournalTest, ALineThatWasCutShortEndsIt) {
  const Json before = Live([](MemoryApi& api, Journal&) { Create(api, "whole"); });
  ASSERT_EQ(Journals().size(), 1u);
  std::ofstream(Journals()[0], std::ios::app) << R"({"version":9,"collection":"trainingjobs.tr)";
  EXPECT_EQ(Saved(), before);
}

TEST_F(JournalTest, NothingIsAppliedBeyondAGap) {
  const Json before = Live([](MemoryApi& api, Journal&) { Create(api, "whole"); });
  std::ofstream(Journals()[0], std::ios::app)
      << R"({"version":99,"collection":"trainingjobs.trainyard.dev","key":"default/whole","object":null})"
      << "\n";
  EXPECT_EQ(Saved(), before) << "the line before it was not written: the disk was full";
}

// A branch that a full disk has cut off is not taken up by a later life.
TEST_F(JournalTest, WhatWasLeftOutStaysOut) {
  const Json before = Live([](MemoryApi& api, Journal&) { Create(api, "whole"); });
  const std::string version = std::to_string(1000);
  std::ofstream(folder_ / ("api-" + version + ".journal")) << R"({"version":1002,"collection":"trainingjobs.)";
  std::ofstream(Journals()[0], std::ios::app)
      << R"({"version":1001,"collection":"trainingjobs.trainyard.dev","key":"default/whole","object":null})"
      << "\n";
  for (int life = 0; life < 3; ++life) {
    const Json now = Live([&](MemoryApi& api, Journal&) {
      EXPECT_GT(api.version(), 1001u);
      Create(api, "life" + std::to_string(life));
    });
    EXPECT_EQ(now["trainingjobs.trainyard.dev"].size(), static_cast<size_t>(2 + life));
  }
}

TEST_F(JournalTest, ASnapshotStartsTheJournalAnew) {
  Live([&](MemoryApi& api, Journal& journal) {
    Create(api, "a");
    const auto size = fs::file_size(Journals().at(0));
    EXPECT_GT(size, 0u);
    ASSERT_TRUE(journal.Save(true).ok());
    ASSERT_EQ(Journals().size(), 1u);
    EXPECT_EQ(fs::file_size(Journals()[0]), 0u);
  });
}

TEST_F(JournalTest, WhatIsNoSnapshotIsRefused) {
  std::ofstream(folder_ / "api.json") << "[1, 2";
  MemoryApi api(clock_, 1);
  Journal journal(folder_);
  const Status opened = journal.Open(api);
  EXPECT_TRUE(opened.Is(Code::kInvalid));
  EXPECT_NE(opened.message().find("api.json"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::local

#include "operator/local/api/journal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <set>

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

TEST_F(JournalTest, ADamagedLineWithChangesBehindItIsRefusedAndKept) {
  Live([](MemoryApi& api, Journal&) {
    Create(api, "a");
    Create(api, "b");
  });
  const fs::path path = Journals().at(0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(1);
  file.put('\0');
  file.close();
  const auto size = fs::file_size(path);
  MemoryApi api(clock_, 1);
  Journal journal(folder_);
  const Status opened = journal.Open(api);
  EXPECT_TRUE(opened.Is(Code::kInvalid));
  EXPECT_NE(opened.message().find("line 1 is damaged"), std::string::npos) << opened.message();
  EXPECT_EQ(fs::file_size(path), size);
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

// What is written to a removed file is written to nowhere.
TEST_F(JournalTest, AFolderThatSomeoneHasRemovedIsMissed) {
  const Json before = Live([&](MemoryApi& api, Journal& journal) {
    EXPECT_TRUE(journal.Save(false).ok());
    fs::remove_all(folder_);
    const Status missed = journal.Save(false);
    EXPECT_NE(missed.message().find(folder_.string() + ": cannot be read"), std::string::npos) << missed.message();
    Create(api, "unsaved");
    EXPECT_EQ(journal.Save(false).message(), missed.message());
    fs::create_directories(folder_);
    EXPECT_TRUE(journal.Save(false).ok());
    Create(api, "saved");
  });
  EXPECT_EQ(WithoutEmpty(Saved()), WithoutEmpty(before));
}

// Whatever the API lets in, by whichever door, the next life can read: from the journal, then from the snapshot.
TEST_F(JournalTest, WhatWasLetInCanBeReadAgain) {
  const auto nested = [](int levels) {
    Json config = Json::object();
    for (int i = 1; i < levels; ++i) config = {{"a", std::move(config)}};
    return config;
  };
  const Json before = Live([&](MemoryApi& api, Journal&) {
    const auto refused = [](const ApiResult& result) {
      EXPECT_EQ(result.http, 422);
      EXPECT_NE(result.body["message"].dump().find("more than 90 lists and objects"), std::string::npos)
          << result.body["message"];
    };
    Json job = reconcile::JobObject("deep", 2);
    job["spec"]["config"] = nested(88);
    ASSERT_EQ(api.Create(kube::kTrainingJobs, "default", job, {}).http, 201);
    job["metadata"]["name"] = "deeper";
    job["spec"]["config"] = nested(89);
    refused(api.Create(kube::kTrainingJobs, "default", job, {}));
    refused(api.Patch(kube::kTrainingJobs, "default", "deep", "", PatchType::kMerge,
                      {{"spec", {{"config", nested(89)}}}}, {}));
    const Json add = {{"op", "replace"}, {"path", "/spec/config"}, {"value", nested(89)}};
    refused(api.Patch(kube::kTrainingJobs, "default", "deep", "", PatchType::kJson, Json::array({add}), {}));
    // Who manages which field nests as deep as the fields, and stands deeper.
    for (int levels = 1; levels < 95; ++levels) {
      Json lease = {{"apiVersion", "coordination.k8s.io/v1"}, {"kind", "Lease"}, {"metadata", {{"name", "l"}}}};
      lease["spec"]["deep"] = nested(levels);
      WriteRequest request;
      request.manager = "one";
      request.force = true;
      api.Patch(kube::kLeases, "default", "l", "", PatchType::kApply, lease, request);
    }
  });
  EXPECT_EQ(Saved(), before);
  EXPECT_EQ(Saved(), before);
}

// Only what is not there is nothing: a file that cannot be read may hold every job, and stays as it is.
TEST_F(JournalTest, WhatCannotBeReadIsRefusedAndKept) {
  const auto refuses = [this](const fs::path& path) {
    std::set<fs::path> before, after;
    for (const auto& entry : fs::directory_iterator(folder_)) before.insert(entry.path());
    MemoryApi api(clock_, 1);
    Journal journal(folder_);
    const Status opened = journal.Open(api);
    EXPECT_TRUE(opened.Is(Code::kInvalid)) << opened.ToString();
    EXPECT_NE(opened.message().find(path.string()), std::string::npos) << opened.message();
    for (const auto& entry : fs::directory_iterator(folder_)) after.insert(entry.path());
    EXPECT_EQ(after, before);
  };
  const Json before = Live([](MemoryApi& api, Journal&) { Create(api, "whole"); });
  const fs::path snapshot = folder_ / "api.json", aside = folder_ / "aside", journal = Journals().at(0);
  for (const fs::path& path : {snapshot, journal}) {
    fs::rename(path, aside);
    fs::create_directory(path);
    refuses(path);
    fs::remove(path);
    fs::create_symlink("nowhere", path);
    refuses(path);
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    refuses(path);
    fs::remove(path);
    fs::rename(aside, path);
    if (geteuid() == 0) continue;  // who may read everything
    fs::permissions(path, fs::perms::none);
    refuses(path);
    fs::permissions(path, fs::perms::owner_all);
  }
  EXPECT_EQ(Saved(), before);
}

// Jobs would be gone without a word, and what they were would be written over.
TEST_F(JournalTest, ASnapshotThatSomeoneHasRemovedIsMissed) {
  Live([](MemoryApi& api, Journal&) { Create(api, "a"); });
  Live([](MemoryApi& api, Journal&) { Create(api, "b"); });
  const std::vector<fs::path> before = Journals();
  fs::rename(folder_ / "api.json", folder_ / "aside");
  MemoryApi api(clock_, 1);
  const Status opened = Journal(folder_).Open(api);
  EXPECT_TRUE(opened.Is(Code::kInvalid));
  EXPECT_NE(opened.message().find("api.json: is missing"), std::string::npos) << opened.ToString();
  EXPECT_FALSE(fs::exists(folder_ / "api.json"));
  EXPECT_EQ(Journals(), before);
  fs::rename(folder_ / "aside", folder_ / "api.json");
  EXPECT_EQ(Saved()["trainingjobs.trainyard.dev"].size(), 2u);
}

TEST_F(JournalTest, WhatIsNoSnapshotIsRefused) {
  std::ofstream(folder_ / "api.json") << "[1, 2";
  MemoryApi api(clock_, 1);
  Journal journal(folder_);
  const Status opened = journal.Open(api);
  EXPECT_TRUE(opened.Is(Code::kInvalid));
  EXPECT_NE(opened.message().find("api.json"), std::string::npos);
}

// Whatever stands in the files, it is read or refused, and the refusal says where to look.
TEST_F(JournalTest, DamageIsNamed) {
  const std::string jobs = "trainingjobs.trainyard.dev",
                    line = R"({"version":8,"collection":"pods.","key":"default/a",)";
  const auto snapshot = [](const std::string& collections) {
    return R"({"version":7,"collections":)" + collections + "}";
  };
  const auto object = [&](const std::string& value) {
    return snapshot("{\"" + jobs + R"(":{"default/a":)" + value + "}}");
  };
  const auto of = [&](const std::string& metadata) { return object(R"({"metadata":)" + metadata + "}"); };
  const std::string whole = R"({"name":"a","namespace":"default","uid":"u","resourceVersion":"3"})",
                    empty = snapshot("{}");
  struct Case {
    std::string snapshot, journal;
    std::vector<std::string> names;
  };
  const std::vector<std::string> a = {"api.json", jobs, "default/a"};
  const Case cases[] = {
      {object("5"), "", a},
      {object("null"), "", a},
      {object("{}"), "", a},
      {of("7"), "", a},
      {of(R"({"name":"a","namespace":"default","uid":5,"resourceVersion":"3"})"), "", a},
      {of(R"({"name":"a","namespace":"default","uid":"u"})"), "", a},
      {of(R"({"name":"b","namespace":"default","uid":"u","resourceVersion":"3"})"), "", a},
      {snapshot(R"({"pods.":5})"), "", {"api.json", "pods."}},
      {snapshot(R"({"pods.":[1]})"), "", {"api.json", "pods."}},
      {snapshot(R"({"pods.":[]})"), line + R"("object":{"metadata":)" + whole + "}}\n", {"api.json", "pods."}},
      {snapshot(R"({"pods.":7})"), line + R"("object":null})", {"api.json", "pods."}},
      {R"({"version":18446744073709551615,"collections":{}})", "", {"api.json", "version"}},
      {empty, line + R"("object":5})", {"api-7.journal", "line 1", "pods.", "default/a"}},
      {empty, line + R"("object":{"metadata":7}})", {"api-7.journal", "line 1", "pods.", "default/a"}},
      {empty, R"({"version":8,"collection":5,"key":"default/a","object":null})", {"api-7.journal", "line 1"}},
      {empty, R"({"version":8,"collection":"pods.","key":7,"object":null})", {"api-7.journal", "line 1"}},
      {empty, R"({"version":8,"collection":"pods.","key":"default/a"})", {"api-7.journal", "line 1"}},
      {empty, "[1,2]\n", {"api-7.journal", "line 1"}}};
  for (const auto& [saved, journal, names] : cases) {
    std::ofstream(folder_ / "api.json") << saved;
    std::ofstream(folder_ / "api-7.journal") << journal;
    MemoryApi api(clock_, 1);
    Journal opening(folder_);
    const Status opened = opening.Open(api);
    EXPECT_TRUE(opened.Is(Code::kInvalid)) << saved << journal;
    for (const std::string& name : names)
      EXPECT_NE(opened.message().find(name), std::string::npos) << opened.message() << " of " << saved << journal;
  }
  std::ofstream(folder_ / "api.json") << of(whole);
  std::ofstream(folder_ / "api-7.journal") << line << R"("object":{"metadata":)" << whole << "}}\n";
  EXPECT_EQ(Saved()["pods."]["default/a"]["metadata"]["uid"], "u") << "the same, undamaged";
}

}  // namespace
}  // namespace trainyard::local

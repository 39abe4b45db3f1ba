#include "trainer/data/smart_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/data/loader.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;

TEST(Window, IsTheLargestThatTheBudgetHolds) {
  EXPECT_EQ(ResolveWindow(5, 0.8, 0.2), (Window{4, 1}));
  EXPECT_EQ(ResolveWindow(5, 1, 0.5), (Window{5, 0}));
  EXPECT_EQ(ResolveWindow(5, 0.1, 0.5), (Window{0, 0}));
  EXPECT_EQ(ResolveWindow(100, 1, 0.1, 50 * 8, 8), (Window{45, 5}));
  EXPECT_EQ(ResolveWindow(100, 1, 0.1, 7, 8), (Window{0, 0}));
  KeyedRandom random(1, "windows");
  for (int i = 0; i < 500; ++i) {
    const auto length = static_cast<int64_t>(1 + random.Below(80));
    const double rate = random.UniformDouble(), replace = random.UniformDouble();
    const auto bytes = static_cast<int64_t>(random.Below(700));
    const Window got = ResolveWindow(length, rate, replace, bytes, 7);
    Window best{0, 0};
    for (int64_t n = 1; n <= ResolveWindow(length, rate, replace).items; ++n) {
      const Window window{
          n, std::min<int64_t>(static_cast<int64_t>(std::ceil(static_cast<double>(n) * replace)), length - n)};
      if ((window.items + window.replace) * 7 <= bytes) best = window;
    }
    EXPECT_EQ(got, best) << length << " " << rate << " " << replace << " " << bytes;
  }
}

// The example of MONAI's documentation: 1 2 3 4, 2 3 4 5, 3 4 5 1, 4 5 1 2.
TEST(Window, SlidesOverTheListAndGoesOnAtItsStart) {
  const WindowOrder order(5, {4, 1}, 3);
  std::vector<int64_t> list;
  for (int64_t i = 0; i < 5; ++i) list.push_back(order.ItemOf(0, i));
  EXPECT_EQ(std::set<int64_t>(list.begin(), list.end()).size(), 5u);
  for (int64_t epoch = 0; epoch < 12; ++epoch) {
    std::multiset<int64_t> window, epochs;
    for (int64_t i = 0; i < 4; ++i) {
      window.insert(list[static_cast<size_t>((epoch + i) % 5)]);
      epochs.insert(order.ItemAt(epoch, i));
    }
    EXPECT_EQ(epochs, window) << epoch;
  }
}

TEST(Window, OfEverythingIsTheOrderWithoutOne) {
  const auto order = MakeWindowOrder(20, {20, 0}, 7);
  const PermutedOrder plain(20, 7);
  for (int64_t at = 0; at < 60; ++at) EXPECT_EQ(order->ItemAt(at / 20, at % 20), plain.ItemAt(at / 20, at % 20));
}

class SmartCacheTest : public testing::Test {
 protected:
  SmartCacheTest() : folder_(fs::path(testing::TempDir()) / ("cache-" + std::to_string(getpid())) / "items") {}
  ~SmartCacheTest() override { fs::remove_all(folder_.parent_path()); }

  SmartCacheOptions Options(int share = 0, int shares = 1) const {
    return {.length = 40,
            .window = {16, 6},
            .seed = 5,
            .folder = folder_,
            .share = share,
            .shares = shares,
            .reserve_bytes = 0};
  }
  // Of numbers that say which sample it is.
  static std::vector<Volume> Volumes(int64_t id) {
    return {{{2, 3}, std::vector<float>(6, static_cast<float>(id))}, {{1}, {-1}}};
  }
  std::unique_ptr<SmartCache> Cache(const SmartCacheOptions& options) {
    return std::make_unique<SmartCache>(
        options,
        [this](int64_t id, StageTimes*) {
          ++prepared_;
          if (delay_.count() > 0) std::this_thread::sleep_for(delay_);
          if (id == bad_) throw DataError("sample " + std::to_string(id) + " is torn");
          return Volumes(id);
        },
        [this](int64_t id) { return static_cast<uint64_t>(id) * 100 + stamp_; });
  }
  SampleKey KeyAt(int64_t epoch, int64_t position) const {
    return {order_.ItemAt(epoch, position), epoch, position, 0};
  }
  void ReadEpoch(SmartCache& cache, int64_t epoch, int64_t from = 0, int64_t step = 1) {
    for (int64_t at = from; at < 16; at += step) EXPECT_EQ(cache.Get(KeyAt(epoch, at)), Volumes(KeyAt(epoch, at).id));
  }
  std::set<int64_t> Kept() const {
    std::set<int64_t> ids;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".item") ids.insert(std::stoll(entry.path().filename()));  // not one half written
    }
    return ids;
  }
  std::set<int64_t> WindowAndNext(int64_t epoch) const {
    std::set<int64_t> ids;
    for (int64_t i = 0; i < 22; ++i) ids.insert(order_.ItemOf(epoch, i));
    return ids;
  }
  template <class Condition>
  static void Await(const Condition& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_TRUE(condition());
  }

  const fs::path folder_;
  const WindowOrder order_{40, {16, 6}, 5};
  std::atomic<int64_t> prepared_{0};
  milliseconds delay_{0};
  int64_t bad_ = -1;
  uint64_t stamp_ = 1;
};

// As `cp -p` and `tar` do.
TEST_F(SmartCacheTest, AnotherFileOfTheSameSizeAndTimeIsAnother) {
  fs::create_directories(folder_);
  const fs::path file = folder_ / "volume.nii", other = folder_ / "other.nii";
  const auto write = [](const fs::path& path, const char* text) { std::ofstream(path) << text; };
  write(file, "one");
  const auto time = fs::last_write_time(file);
  const uint64_t stamp = StampOf({file}, "");
  EXPECT_EQ(StampOf({file}, ""), stamp);
  write(other, "two");
  fs::last_write_time(other, time);
  fs::rename(other, file);
  EXPECT_NE(StampOf({file}, ""), stamp);
}

// Also without a window, which never moves.
TEST_F(SmartCacheTest, WhatAKilledWriterLeftIsRemoved) {
  SmartCacheOptions options = Options();
  options.window = {40, 0};
  fs::create_directories(folder_);
  const fs::path old = folder_ / ".tmp-123-0", fresh = folder_ / ".tmp-124-0";
  for (const fs::path& path : {old, fresh}) std::ofstream(path) << "half of a sample";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(48));
  const auto cache = Cache(options);
  EXPECT_EQ(cache->Get({7, 0, 0, 0}), Volumes(7));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "somebody may be writing it";
  EXPECT_EQ(Kept(), std::set<int64_t>{7});
}

TEST_F(SmartCacheTest, EachSampleIsPreparedOnceForAllEpochsThatItStays) {
  const auto cache = Cache(Options());
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    ReadEpoch(*cache, epoch);
    Await([&] { return Kept() == WindowAndNext(epoch); });
    EXPECT_EQ(prepared_, 16 + 6 * (epoch + 1));
  }
  const SmartCache::Counts counts = cache->counts();
  EXPECT_EQ(counts.misses, 16) << "after the first window, all come from the background";
  EXPECT_EQ(counts.hits, 7 * 16);
  EXPECT_EQ(counts.prepared, 8 * 6);
  EXPECT_EQ(counts.failed, 0);
}

TEST_F(SmartCacheTest, ANodesRanksShareOneCache) {
  const auto first = Cache(Options(0, 2)), second = Cache(Options(1, 2));
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    ReadEpoch(*first, epoch, 0, 2);
    ReadEpoch(*second, epoch, 1, 2);
    Await([&] { return Kept() == WindowAndNext(epoch); });
  }
  EXPECT_EQ(first->counts().misses + second->counts().misses, 16);
  EXPECT_EQ(prepared_, 16 + 6 * 6);
}

TEST_F(SmartCacheTest, WithoutAFolderNothingIsKeptAndNothingDiffers) {
  SmartCacheOptions options = Options();
  options.folder.clear();
  const auto cache = Cache(options);
  for (int64_t epoch = 0; epoch < 3; ++epoch) ReadEpoch(*cache, epoch);
  EXPECT_EQ(prepared_, 3 * 16);
}

// Killed anywhere, and gone on with: what was kept serves again, half a file does not.
TEST_F(SmartCacheTest, AnotherProcessGoesOnWithWhatWasKept) {
  const auto random_seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(random_seed));
  KeyedRandom random(random_seed, "kill");
  for (int64_t epoch = 0, at = 0; epoch < 10;) {
    const auto cache = Cache(Options());
    for (uint64_t reads = 1 + random.Below(30); reads > 0 && epoch < 10; --reads) {
      EXPECT_EQ(cache->Get(KeyAt(epoch, at)), Volumes(KeyAt(epoch, at).id));
      at = (at + 1) % 16;
      epoch += at == 0;
    }
  }
  ReadEpoch(*Cache(Options()), 10);
  const auto cache = Cache(Options());
  ReadEpoch(*cache, 10);
  EXPECT_EQ(cache->counts().misses, 0);
}

TEST_F(SmartCacheTest, WhatIsDamagedOrOfAnotherStampIsPreparedAgain) {
  ReadEpoch(*Cache(Options()), 0);
  const std::string name = (folder_ / (std::to_string(KeyAt(0, 3).id) + ".item")).string();
  const std::string whole = ReadFile(name);
  const auto reads = [&] {
    SmartCacheOptions options = Options();
    options.in_background = false;
    const auto cache = Cache(options);
    EXPECT_EQ(cache->Get(KeyAt(0, 3)), Volumes(KeyAt(0, 3).id));
    return cache->counts().misses;
  };
  EXPECT_EQ(reads(), 0);
  KeyedRandom random(2, "damage");
  for (int i = 0; i < 200; ++i) {
    std::string bad = whole;
    const size_t at = i % 2 ? random.Below(120) : 4096 + random.Below(whole.size() - 4096);
    bad[at] = static_cast<char>(bad[at] ^ (1 << random.Below(8)));
    if (i % 10 == 9) bad.resize(random.Below(bad.size()));
    std::ofstream(name, std::ios::binary) << bad;
    EXPECT_EQ(reads(), 1) << at;
  }
  stamp_ = 2;  // the file that it was made of has changed
  EXPECT_EQ(reads(), 1);
  EXPECT_EQ(reads(), 0);
}

TEST_F(SmartCacheTest, AFolderThatVanishesIsMadeAgain) {
  const auto cache = Cache(Options());
  ReadEpoch(*cache, 0);
  Await([&] { return Kept() == WindowAndNext(0); });
  fs::remove_all(folder_.parent_path());
  ReadEpoch(*cache, 1);
  ReadEpoch(*cache, 1);
  EXPECT_EQ(cache->counts().hits, 16);
}

// A folder that cannot be made, and a disk without room: a warning, and the same samples.
TEST_F(SmartCacheTest, WhatCannotBeKeptIsPreparedEachTime) {
  fs::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "a file";
  SmartCacheOptions full = Options();
  full.folder = folder_.parent_path() / "full";
  full.reserve_bytes = uint64_t{1} << 60;
  for (const SmartCacheOptions& options : {Options(), full}) {
    const auto cache = Cache(options);
    testing::internal::CaptureStderr();
    for (int64_t epoch = 0; epoch < 3; ++epoch) ReadEpoch(*cache, epoch);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("warning: data.cache.dir: "), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_EQ(cache->counts().misses, 3 * 16);
    const int64_t failed = cache->counts().failed;
    EXPECT_TRUE(failed == 1 || failed == 2) << failed << ": the reader's try and the background's, not one a sample";
  }
}

TEST_F(SmartCacheTest, ABadSampleIsAnErrorWhereItIsRead) {
  bad_ = order_.ItemOf(1, 15);  // comes in epoch 1: the background meets it first
  const auto cache = Cache(Options());
  ReadEpoch(*cache, 0);
  Await([&] { return cache->counts().prepared == 5; });
  for (int64_t at = 0; at < 16; ++at) {
    if (KeyAt(1, at).id == bad_) {
      EXPECT_THROW(cache->Get(KeyAt(1, at)), DataError);
    } else {
      EXPECT_EQ(cache->Get(KeyAt(1, at)), Volumes(KeyAt(1, at).id));
    }
  }
}

TEST_F(SmartCacheTest, NoReaderWaitsForTheBackground) {
  delay_ = milliseconds(100);
  const auto cache = Cache(Options());
  ReadEpoch(*cache, 0);
  Await([&] { return cache->counts().prepared == 6; });
  const double start = SteadySeconds();
  ReadEpoch(*cache, 1);  // while the next six take 600 ms
  EXPECT_LT(SteadySeconds() - start, 0.5) << "sixteen samples that are kept";
  EXPECT_EQ(cache->counts().misses, 16);
}

// The loader's threads and the cache's, at once, over many windows: the stream is the specification's.
TEST_F(SmartCacheTest, TheLoadersStreamIsTheSpecifications) {
  struct Numbers : Sample {
    std::vector<Volume> volumes;
  };
  struct Cached : Dataset {
    explicit Cached(SmartCache& cache) : cache_(cache) {}
    int64_t size() const override { return 40; }
    std::string fingerprint(const Tick&) const override { return "numbers"; }
    std::unique_ptr<Sample> Read(const SampleKey& key) const override {
      auto sample = std::make_unique<Numbers>();
      sample->volumes = cache_.Get(key);
      return sample;
    }
    uint64_t Hash(const Sample&) const override { return 0; }
    SmartCache& cache_;
  };
  struct Ids : Batch {
    std::vector<float> values;
  };
  for (const bool kept : {true, false}) {
    SmartCacheOptions options = Options();
    if (!kept) options.folder.clear();
    const auto cache = Cache(options);
    const Cached dataset(*cache);
    const SampleStream stream(MakeWindowOrder(40, {16, 6}, 5), 5, EpochEnd::kCarry, 5);
    Loader loader(dataset, stream,
                  [](std::span<const Sample* const> samples) {
                    auto batch = std::make_unique<Ids>();
                    for (const Sample* sample : samples)
                      batch->values.push_back(static_cast<const Numbers&>(*sample).volumes[0].values[5]);
                    return batch;
                  },
                  {.global_batch = 5, .begin = 0, .end = 5, .micro = 2}, 0, 60, {.threads = 4, .prefetch = 4});
    for (int64_t step = 0, at = 0; step < 60; ++step) {
      for (const auto& batch : loader.Next()) {
        for (float value : static_cast<const Ids&>(*batch).values) {
          EXPECT_EQ(value, static_cast<float>(order_.ItemAt(at / 16, at % 16)));
          ++at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard

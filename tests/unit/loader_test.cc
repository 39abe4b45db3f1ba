#include "trainer/data/loader.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <set>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Number : Sample {
  explicit Number(int64_t v) : value(v) { ++alive; }
  ~Number() override { --alive; }
  int64_t value;
  static inline std::atomic<int64_t> alive{0};
};

struct Numbers : Batch {
  Numbers() { ++alive; }
  ~Numbers() override { --alive; }
  static inline std::atomic<int64_t> alive{0};
  std::vector<int64_t> values;  // -1: skipped
};

class NumberDataset : public Dataset {
 public:
  int64_t size() const override { return 1000; }
  std::string fingerprint(const Tick&) const override { return "numbers"; }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override {
    ++reads;
    if (delay) std::this_thread::sleep_for(delay(key));
    if (bad.contains(key.id)) throw DataError("number " + std::to_string(key.id) + " is torn");
    if (key.id == broken) throw std::runtime_error("broken");
    return std::make_unique<Number>(key.id);
  }
  uint64_t Hash(const Sample& sample) const override {
    return static_cast<uint64_t>(static_cast<const Number&>(sample).value) + 7;
  }
  std::function<microseconds(const SampleKey&)> delay;
  std::set<int64_t> bad;
  int64_t broken = -1;
  mutable std::atomic<int64_t> reads{0};
};

std::unique_ptr<Batch> CollateNumbers(std::span<const Sample* const> samples) {
  auto batch = std::make_unique<Numbers>();
  batch->denominators = {0};
  for (const Sample* sample : samples) {
    batch->values.push_back(sample ? static_cast<const Number*>(sample)->value : -1);
    batch->denominators[0] += sample != nullptr;
  }
  return batch;
}

SampleStream Stream() { return {std::make_shared<PermutedOrder>(1000, 3), 3, EpochEnd::kCarry, 12}; }

// Two ranks of twelve samples a step; this is the second, with shares of 2 + 2 + 1.
constexpr ShareLayout kShare{.global_batch = 12, .begin = 7, .end = 12, .micro = 2};

std::vector<int64_t> ValuesOf(const Share& share) {
  std::vector<int64_t> values;
  for (const auto& batch : share) {
    const auto& numbers = static_cast<const Numbers&>(*batch).values;
    values.insert(values.end(), numbers.begin(), numbers.end());
  }
  return values;
}

// Also of a micro-batch of which nothing could be read.
TEST(Loader, ABatchKnowsTheStageOfItsStep) {
  NumberDataset dataset;
  for (int64_t i = 0; i < 1000; i += 2) dataset.bad.insert(i);
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> cases = {
      {{}, {0, 0, 0, 0, 0}}, {{9}, {0, 0, 0, 0, 0}}, {{2, 3, 5}, {0, 0, 1, 2, 2}}, {{1, 4}, {0, 1, 1, 1, 1}}};
  for (const auto& [ends, stages] : cases) {
    Loader loader(dataset, Stream(), CollateNumbers, {.global_batch = 12, .begin = 7, .end = 12, .micro = 1}, 0, 5,
                  {.threads = 2, .skip_bad = true, .stage_ends = ends});
    for (const int64_t stage : stages) {
      for (const auto& batch : loader.Next()) EXPECT_EQ(batch->stage, stage);
    }
  }
}

TEST(Loader, IsInTheStreamsOrderWhicheverThreadIsFaster) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  NumberDataset dataset;
  dataset.delay = [seed](const SampleKey& key) {
    return microseconds(HashKey(seed, static_cast<uint64_t>(key.id)) % 900);
  };
  const SampleStream stream = Stream();
  Loader loader(dataset, stream, CollateNumbers, kShare, 4, 60, {.threads = 4, .prefetch = 5, .hash_inputs = true});
  for (int64_t step = 4; step < 60; ++step) {
    const Share share = loader.Next();
    ASSERT_EQ(share.size(), 3u);
    EXPECT_EQ(share[2]->ids.size(), 1u);
    std::vector<int64_t> expected;
    for (int64_t place = 7; place < 12; ++place) expected.push_back(stream.At(step * 12 + place).id);
    EXPECT_EQ(ValuesOf(share), expected);
    EXPECT_EQ(share[0]->ids, std::vector<int64_t>(expected.begin(), expected.begin() + 2));
    EXPECT_EQ(share[1]->input_hashes[0], static_cast<uint64_t>(expected[2]) + 7);
  }
}

TEST(Loader, MemoryIsBoundedByMicroBatches) {
  NumberDataset dataset;
  dataset.delay = [](const SampleKey&) { return milliseconds(1); };
  int64_t most = 0, most_batches = 0;
  {
    Loader loader(dataset, Stream(), CollateNumbers, kShare, 0, 30, {.threads = 4, .prefetch = 2});
    for (int64_t taken = 1; taken <= 10; ++taken) {
      const Share share = loader.Next();
      std::this_thread::sleep_for(milliseconds(20));  // Whoever could run ahead has had the time.
      most = std::max<int64_t>(most, Number::alive);
      most_batches = std::max<int64_t>(most_batches, Numbers::alive);
      EXPECT_LE(dataset.reads, taken * 5 + 2 * 2) << "two micro-batches of two ahead";
    }
  }
  EXPECT_LE(most, 4);
  EXPECT_LE(most_batches, 3 + 2) << "one share, and two micro-batches ahead";
  EXPECT_EQ(Number::alive, 0);
  EXPECT_EQ(Numbers::alive, 0);
}

TEST(Loader, ManyThreadsReadOneMicroBatch) {
  NumberDataset dataset;
  std::atomic<int> now{0}, most{0};
  dataset.delay = [&](const SampleKey&) {
    const int running = ++now;
    for (int seen = most; running > seen && !most.compare_exchange_weak(seen, running);) {
    }
    std::this_thread::sleep_for(milliseconds(20));
    --now;
    return microseconds(0);
  };
  Loader loader(dataset, Stream(), CollateNumbers, {.global_batch = 12, .begin = 0, .end = 12, .micro = 12}, 0, 1,
                {.threads = 4, .prefetch = 1});
  loader.Next();
  EXPECT_GE(most, 2) << "a sample is a piece of work, not a micro-batch";
}

TEST(Loader, AnErrorKeepsItsPlace) {
  NumberDataset dataset;
  dataset.broken = Stream().At(3 * 12 + 9).id;  // step 3, the second micro-batch
  Loader loader(dataset, Stream(), CollateNumbers, kShare, 0, 10, {.threads = 3, .prefetch = 8});
  for (int step = 0; step < 3; ++step) EXPECT_NO_THROW(loader.Next()) << step;
  EXPECT_THROW(loader.Next(), std::runtime_error);
}

TEST(Loader, ASkippedSampleKeepsItsPlaceWithWeightZero) {
  NumberDataset dataset;
  dataset.bad = {Stream().At(8).id, Stream().At(9).id};
  for (const bool skip : {false, true}) {
    Loader loader(dataset, Stream(), CollateNumbers, kShare, 0, 2, {.threads = 2, .prefetch = 2, .skip_bad = skip});
    if (!skip) {
      EXPECT_THROW(loader.Next(), DataError);
      continue;
    }
    const Share share = loader.Next();
    const std::vector<int64_t> values = ValuesOf(share);
    EXPECT_EQ(values[1], -1);
    EXPECT_EQ(values[2], -1);
    EXPECT_EQ(share[0]->denominators[0], 1);
    EXPECT_EQ(share[0]->ids[1], Stream().At(8).id);
    ASSERT_EQ(share[0]->skipped.size(), 1u);
    EXPECT_EQ(share[0]->skipped[0].id, Stream().At(8).id);
    EXPECT_NE(share[0]->skipped[0].error.find("is torn"), std::string::npos);
    EXPECT_EQ(ValuesOf(loader.Next()).size(), 5u);
  }
}

// Samples that take long (TRAINYARD_TEST_SAMPLE_MS each), one of which cannot be read: order, memory and place hold,
// and the times say what happened.
TEST(Loader, SlowSamplesKeepOrderMemoryAndPlaces) {
  const char* asked = std::getenv("TRAINYARD_TEST_SAMPLE_MS");
  const milliseconds each(asked ? std::atoi(asked) : 5);
  NumberDataset dataset;
  int64_t most = 0;
  dataset.delay = [&](const SampleKey&) { return each; };
  const int64_t bad = Stream().At(12 + 8).id;  // step 1, the second of its first micro-batch
  dataset.bad = {bad};
  LoaderTimes times;
  {
    Loader loader(dataset, Stream(), CollateNumbers, kShare, 0, 4, {.threads = 4, .prefetch = 2, .skip_bad = true});
    for (int64_t step = 0; step < 4; ++step) {
      const Share share = loader.Next();
      std::vector<int64_t> expected;
      for (int64_t place = 7; place < 12; ++place) expected.push_back(Stream().At(step * 12 + place).id);
      if (step == 1) expected[1] = -1;
      EXPECT_EQ(ValuesOf(share), expected);
      EXPECT_EQ(share[0]->denominators[0], step == 1 ? 1 : 2);
      EXPECT_EQ(share[0]->skipped.size(), step == 1 ? 1u : 0u);
      EXPECT_LE(dataset.reads, (step + 1) * 5 + 2 * 2);
      most = std::max<int64_t>(most, Number::alive);
    }
    times = loader.times();
  }
  EXPECT_LE(most, 4) << "two micro-batches of two";
  EXPECT_EQ(dataset.reads, 20);
  EXPECT_GE(times.read, 20 * std::chrono::duration<double>(each).count());
  EXPECT_GT(times.wait, 0);
}

// What belongs to no sample must not end the process.
TEST(Loader, AnOrderThatThrowsIsAnError) {
  struct Broken : PermutedOrder {
    using PermutedOrder::PermutedOrder;
    int64_t ItemAt(int64_t epoch, int64_t position) const override {
      if (position >= 40) throw std::runtime_error("no order");
      return PermutedOrder::ItemAt(epoch, position);
    }
  };
  NumberDataset dataset;
  Loader loader(dataset, {std::make_shared<Broken>(1000, 3), 3, EpochEnd::kCarry, 12}, CollateNumbers, kShare, 0, 10,
                {.threads = 3, .prefetch = 2});
  EXPECT_THROW(
      {
        for (int step = 0; step < 10; ++step) loader.Next();
      },
      std::runtime_error);
}

TEST(Loader, ARankWithoutSamplesGetsEmptyShares) {
  NumberDataset dataset;
  Loader loader(dataset, Stream(), CollateNumbers, {.global_batch = 2, .begin = 2, .end = 2, .micro = 1}, 0, 5, {});
  for (int step = 0; step < 5; ++step) EXPECT_TRUE(loader.Next().empty());
}

// Where a stack takes a third of the address space, some threads start and the next one does not.
TEST(Loader, AThreadThatCannotBeStartedIsAnError) {
  NumberDataset dataset;
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{44} << 40), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(Loader(dataset, Stream(), CollateNumbers, kShare, 0, 10, {.threads = 8, .prefetch = 2}), Error);
  pthread_setattr_default_np(&before);
}

TEST(Loader, CanBeDroppedAtAnyMoment) {
  NumberDataset dataset;
  for (int round = 0; round < 50; ++round) {
    Loader loader(dataset, Stream(), CollateNumbers, kShare, 0, 1000, {.threads = 3, .prefetch = 5});
    for (int i = 0; i < round; ++i) loader.Next();
  }
}

}  // namespace
}  // namespace trainyard

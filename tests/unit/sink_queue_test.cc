#include "trainer/metrics/sink_queue.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <stdexcept>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/metrics/telemetry.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;

// A door that a sink stands in front of until the test opens it.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void WaitUntilReached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false;
};

// What sinks have written, by whom it may be read after the queue is closed or the gate is open.
struct Written {
  std::mutex mutex;
  std::vector<int64_t> steps;
  int64_t sinks = 0;  // alive
};

struct Behaviour {
  double fails = 0, throws = 0, naps = 0;
  bool opens = true;
  std::shared_ptr<Gate> gate;  // stands in front of the event `blocks_at`
  int64_t blocks_at = -1;
};

class TestSink : public Sink {
 public:
  TestSink(std::shared_ptr<Written> written, Behaviour behaviour, unsigned seed)
      : written_(std::move(written)), behaviour_(std::move(behaviour)), random_(seed) {
    const std::lock_guard lock(written_->mutex);
    ++written_->sinks;
  }
  ~TestSink() override {
    const std::lock_guard lock(written_->mutex);
    --written_->sinks;
  }
  void Write(const Event& event) override {
    std::uniform_real_distribution<double> chance(0, 1);
    if (event.step == behaviour_.blocks_at) behaviour_.gate->Pass();
    if (chance(random_) < behaviour_.naps) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (chance(random_) < behaviour_.fails) throw StorageError("no room");
    if (chance(random_) < behaviour_.throws) throw std::runtime_error("disk on fire");
    const std::lock_guard lock(written_->mutex);
    written_->steps.push_back(event.step);
  }

 private:
  std::shared_ptr<Written> written_;
  Behaviour behaviour_;
  std::mt19937 random_;
};

SinkQueue::Open Opener(const std::shared_ptr<Written>& written, const Behaviour& behaviour, unsigned seed = 1) {
  return [=]() -> std::unique_ptr<Sink> {
    if (!behaviour.opens) throw std::runtime_error("no such place");
    return std::make_unique<TestSink>(written, behaviour, seed);
  };
}

std::shared_ptr<const Event> At(int64_t step) {
  return std::make_shared<const Event>(Event{.step = step, .content = Scalars{{"train/loss", 1}}});
}

// A sink that a test left behind ends before the next test begins.
void WaitUntilGone(const std::shared_ptr<Written>& written) {
  for (;;) {
    {
      const std::lock_guard lock(written->mutex);
      if (written->sinks == 0) return;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// Whatever the sinks do: nothing waits for them, each writes what it accepts in order, and every
// event of every sink is written or counted.
TEST(Telemetry, RandomSlowAndFailingSinks) {
  const char* chosen = std::getenv("TRAINYARD_TEST_SEED");
  const unsigned first = chosen ? static_cast<unsigned>(std::atoi(chosen)) : 1;
  for (unsigned seed = first; seed < first + 40; ++seed) {
    SCOPED_TRACE("TRAINYARD_TEST_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> chance(0, 1);
    const auto gate = std::make_shared<Gate>();
    std::vector<std::shared_ptr<Written>> written;
    std::vector<bool> blocks;
    constexpr int64_t kEvents = 300;
    {
      Telemetry telemetry(1);
      const size_t sinks = 1 + random() % 4;
      for (size_t i = 0; i < sinks; ++i) {
        Behaviour behaviour{.fails = random() % 2 ? chance(random) : 0,
                            .throws = random() % 3 ? 0 : chance(random),
                            .naps = random() % 2 ? chance(random) : 0,
                            .opens = random() % 5 != 0,
                            .gate = gate};
        if (random() % 4 == 0) behaviour.blocks_at = static_cast<int64_t>(random() % kEvents);
        written.push_back(std::make_shared<Written>());
        blocks.push_back(behaviour.blocks_at >= 0 && behaviour.opens);
        telemetry.To("sink " + std::to_string(i), Opener(written[i], behaviour, seed + static_cast<unsigned>(i)),
                     {.max_events = 1 + random() % 400, .closing = milliseconds(blocks[i] ? 20 : 60000)});
      }
      for (int64_t step = 0; step < kEvents; ++step) telemetry.Add(step, Scalars{{"train/loss", 1}});
      const std::map<std::string, int64_t> before = telemetry.dropped();
      const std::vector<std::string> losses = telemetry.Close();
      for (size_t i = 0; i < sinks; ++i) {
        const std::lock_guard lock(written[i]->mutex);
        const auto& steps = written[i]->steps;
        EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
        EXPECT_EQ(std::adjacent_find(steps.begin(), steps.end()), steps.end()) << "an event was written twice";
        const int64_t missing = kEvents - static_cast<int64_t>(steps.size());
        EXPECT_LE(before.at("sink " + std::to_string(i)), missing);
        const std::string name = "telemetry: sink " + std::to_string(i) + " lost ";
        const auto said =
            std::find_if(losses.begin(), losses.end(), [&](const std::string& text) { return text.starts_with(name); });
        const int64_t lost = said == losses.end() ? 0 : std::stoll(said->substr(name.size()));
        // The event that was being written when the queue gave up is counted, and may be written yet.
        const bool gave_up = lost > 0 && said->find("did not end in time") != std::string::npos;
        EXPECT_TRUE(lost == missing || (gave_up && lost == missing + 1)) << lost << " of " << missing;
        EXPECT_TRUE(!gave_up || blocks[i]);
      }
    }
    gate->Open();
    for (const auto& sink : written) WaitUntilGone(sink);
  }
}

TEST(SinkQueue, OneThatBlocksForEverIsLeftBehind) {
  const auto gate = std::make_shared<Gate>();
  const auto stuck = std::make_shared<Written>(), fine = std::make_shared<Written>();
  Telemetry telemetry(1);
  telemetry.To("stuck", Opener(stuck, {.gate = gate, .blocks_at = 2}), {.max_events = 5, .closing = milliseconds(30)});
  telemetry.To("fine", Opener(fine, {}), {.closing = std::chrono::minutes(5)});
  for (int64_t step = 0; step < 50; ++step) telemetry.Add(step, Scalars{});
  gate->WaitUntilReached();
  const std::vector<std::string> losses = telemetry.Close();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NE(losses[0].find("stuck lost 48 events: is slower than training"), std::string::npos) << losses[0];
  EXPECT_NE(losses[0].find("did not end in time"), std::string::npos) << losses[0];
  EXPECT_EQ(fine->steps.size(), 50u);
  gate->Open();
  WaitUntilGone(stuck);
  EXPECT_EQ(stuck->steps.size(), 3u) << "what the queue gave up is not written later";
}

// The thread stands inside `open`, as with a pipe that nobody reads.
TEST(SinkQueue, OpeningMayBlock) {
  const auto gate = std::make_shared<Gate>();
  const auto written = std::make_shared<Written>();
  SinkQueue queue("stuck",
                  [=] {
                    gate->Pass();
                    return std::make_unique<TestSink>(written, Behaviour{}, 1);
                  },
                  {.closing = milliseconds(10)});
  queue.Add(At(1));
  queue.Finish();
  EXPECT_FALSE(queue.Close());
  EXPECT_EQ(queue.dropped(), 1);
  gate->Open();
}

TEST(SinkQueue, ABigEventHasItsPlaceAndManyDoNot) {
  const auto gate = std::make_shared<Gate>();
  const auto written = std::make_shared<Written>();
  SinkQueue queue("slow", Opener(written, {.gate = gate, .blocks_at = 0}), {.max_bytes = 1500});
  queue.Add(At(0));
  auto big = [](int64_t step) {
    Image image{.tag = "i", .height = 30, .width = 30, .channels = 1, .pixels = std::vector<uint8_t>(900)};
    return std::make_shared<const Event>(Event{.step = step, .content = image});
  };
  while (queue.dropped() == 0) queue.Add(big(1));  // at least one waits; the sink may have taken step 0
  gate->Open();
  queue.Finish();
  EXPECT_TRUE(queue.Close());
  EXPECT_GE(written->steps.size(), 2u);
  EXPECT_EQ(queue.TakeFailure(), "is slower than training: its queue is full");
  EXPECT_EQ(queue.TakeFailure(), "") << "said once";
}

TEST(SinkQueue, SaysWhyItCannotBeOpened) {
  SinkQueue queue("closed", Opener(std::make_shared<Written>(), {.opens = false}));
  queue.Add(At(1));
  queue.Finish();
  EXPECT_TRUE(queue.Close());
  EXPECT_EQ(queue.TakeFailure(), "no such place");
  EXPECT_EQ(queue.dropped(), 1);
  Telemetry telemetry(1);
  telemetry.To("closed", Opener(std::make_shared<Written>(), {.opens = false}));
  telemetry.Add(1, Scalars{});
  EXPECT_EQ(telemetry.Close(), std::vector<std::string>{"telemetry: closed lost 1 events: no such place"});
}

}  // namespace
}  // namespace trainyard

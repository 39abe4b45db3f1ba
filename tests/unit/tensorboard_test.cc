#include "trainer/metrics/tensorboard.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "trainer/base/file.h"
#include "trainer/metrics/png.h"

namespace trainyard {
namespace {

TEST(Png, RefusesWhatIsNoImage) {
  EXPECT_THROW(EncodePng({"i", 2, 2, 3, std::vector<uint8_t>(11)}), std::invalid_argument);
  EXPECT_THROW(EncodePng({"i", 0, 2, 3, {}}), std::invalid_argument);
  EXPECT_THROW(EncodePng({"i", 1, 1, 5, std::vector<uint8_t>(5)}), std::invalid_argument);
  EXPECT_THROW(EncodePng({"i", 1, 1 << 16, 1, std::vector<uint8_t>(1 << 16)}), std::invalid_argument);
}

TEST(Histogram, EveryFiniteValueHasABucket) {
  const std::vector<double> same(5, 0.1);
  EXPECT_EQ(HistogramOf("h", same, 4).counts.front(), 5);
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(0.1 * i * (i % 2 ? 1 : -1));
  for (const int buckets : {1, 3, 7, 30}) {
    const Histogram h = HistogramOf("h", values, buckets);
    double count = 0;
    for (const double c : h.counts) count += c;
    EXPECT_EQ(count, 1000);
    EXPECT_EQ(h.count, 1000);
    EXPECT_EQ(h.limits.back(), h.max);
  }
  EXPECT_EQ(HistogramOf("h", {}, 2).counts, (std::vector<double>{0, 0}));
}

// Two attempts, the second resumed after step 2; tests/integration/test_readers.py reads what they
// wrote with TensorBoard's own readers.
TEST(TensorBoard, WritesEveryKindOfEvent) {
  const char* out = std::getenv("TRAINYARD_TEST_OUT");
  const fs::path directory =
      out ? fs::path(out) : fs::path(testing::TempDir()) / ("tensorboard-" + std::to_string(getpid()));
  auto attempt = [&](int64_t number, int64_t first_step) {
    const auto sink = OpenTensorBoard(directory, first_step);
    auto write = [&](int64_t step, EventContent content) {
      sink->Write({.attempt = number, .step = step, .time = 1e9, .content = std::move(content)});
    };
    write(first_step, HParams{{{"optim.lr", 0.25}, {"model.flag", true}, {"task.name", "toy"}}});
    for (int64_t step = first_step + 1; step <= 4; ++step) {
      const auto n = static_cast<double>(number * 10 + step);
      write(step, Scalars{{"train/loss", n}});
      if (step % 2) continue;
      for (const int channels : {1, 2, 3, 4}) {
        Image image{"image/" + std::to_string(channels), 2, 3, channels, {}};
        for (int i = 0; i < 6 * channels; ++i) image.pixels.push_back(static_cast<uint8_t>(40 * i + step));
        write(step, image);
      }
      write(step, HistogramOf("histogram", std::vector<double>{0, 1, 2, 2, n}, 2));
      write(step, Text{"text", "attempt **" + std::to_string(number) + "**"});
      write(step, Curve{"curve/whole", {1, 2, 3}, {n, n + 1, n + 2}});
      write(step, Curve{"curve/part", {0, 0.5, 1}, {0, 0.9, 1}});
    }
    if (number == 2) write(4, RunComplete{});
  };
  attempt(1, 0);
  attempt(2, 2);
  if (!out) fs::remove_all(directory);
}

}  // namespace
}  // namespace trainyard

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "trainer/base/random.h"
#include "trainer/kernels/tables.h"

namespace trainyard::kernels {

namespace {

std::vector<float> Draws(size_t n, const char* name) {
  KeyedRandom random(1, name);
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>(random.Normal());
  return values;
}

std::vector<const Table*> RunnableTables() {
  std::vector<const Table*> tables = {&baseline::kTable};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) tables.push_back(&avx2::kTable);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) tables.push_back(&avx512::kTable);
  return tables;
}

TEST(Kernels, TheBestTableIsChosen) { EXPECT_EQ(&Kernels(), RunnableTables().back()); }

TEST(Kernels, AdamWIsTheTextbooksUpdate) {
  for (const Table* table : RunnableTables()) {
    std::vector<float> param = Draws(128, "p"), m = Draws(128, "m"), v = Draws(128, "v"), grad = Draws(128, "g");
    for (float& x : v) x = x * x;
    const std::vector<float> p0 = param, m0 = m, v0 = v, a0 = Draws(128, "a");
    AdamWArgs args{.param = param.data(),
                   .exp_avg = m.data(),
                   .exp_avg_sq = v.data(),
                   .average = nullptr,
                   .grad = grad.data(),
                   .grad_scale = 0.5f,
                   .lr = 0.01f,
                   .exp_avg_rate = 0.1f,
                   .beta2 = 0.99f,
                   .exp_avg_sq_rate = 0.01f,
                   .eps = 1e-8f,
                   .weight_decay = 0.1f,
                   .bias_correction1 = 0.19f,
                   .bias_correction2_sqrt = std::sqrt(0.0199f),
                   .average_rate = 0};
    table->adamw(args, 64, 128);
    const std::vector<float> alone = param;
    std::vector<float> average = a0;
    param = p0, m = m0, v = v0;
    args.average = average.data();
    args.average_rate = 0.25f;
    table->adamw(args, 64, 128);
    EXPECT_EQ(param, alone) << "the same bits, averaged or not";
    for (size_t i = 0; i < 128; ++i) {
      if (i < 64) {
        EXPECT_EQ(param[i], p0[i]) << "outside the range";
        EXPECT_EQ(average[i], a0[i]) << "outside the range";
        continue;
      }
      const double g = 0.5 * grad[i], em = 0.9 * m0[i] + 0.1 * g, ev = 0.99 * v0[i] + 0.01 * g * g;
      const double expected = p0[i] * (1 - 0.01 * 0.1) - 0.01 / 0.19 * em / (std::sqrt(ev) / std::sqrt(0.0199) + 1e-8);
      EXPECT_NEAR(param[i], expected, 1e-5) << table->name;  // fp32 rounding of values of order one
      EXPECT_NEAR(average[i], 0.75 * a0[i] + 0.25 * expected, 1e-5) << table->name;
    }
  }
}

TEST(Kernels, BlockSquaresAreSumsOfSquares) {
  const std::vector<float> x = Draws(192, "x");
  for (const Table* table : RunnableTables()) {
    std::vector<double> sums(3, -1);
    table->block_squares(x.data(), sums.data(), 0, 3);
    for (size_t b = 0; b < 3; ++b) {
      double expected = 0;
      for (size_t i = 0; i < 64; ++i) expected += static_cast<double>(x[b * 64 + i]) * x[b * 64 + i];
      EXPECT_NEAR(sums[b], expected, 1e-12 * expected);
    }
  }
}

TEST(Kernels, Bf16RoundsToNearestEven) {
  const float values[] = {1.0f, 1.00390625f, 1.01171875f, -2.5f, 3.14159265f, 0.0f};
  const uint16_t expected[] = {0x3F80, 0x3F80, 0x3F82, 0xC020, 0x4049, 0x0000};
  for (const Table* table : RunnableTables()) {
    Bf16 out[6];
    table->bf16.round(values, out, 6);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(out[i].bits, expected[i]) << i;
    float sum[6] = {1, 1, 1, 1, 1, 1};
    table->bf16.add(out, sum, 6);
    EXPECT_EQ(sum[3], -1.5f);
  }
}

// Against the compiler's own conversions: every float16, and what lies around each as well as between it and the next.
TEST(Kernels, Fp16IsTheCompilers) {
  std::vector<Fp16> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  for (const Table* table : RunnableTables()) {
    std::vector<float> wide(all.size(), -0.f);
    table->fp16.add(all.data(), wide.data(), static_cast<int64_t>(all.size()));
    std::vector<float> near;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto expected = static_cast<float>(std::bit_cast<_Float16>(all[i]));
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(wide[i])
                                       : std::bit_cast<uint32_t>(wide[i]) == std::bit_cast<uint32_t>(expected))
          << table->name << " " << i;
      const float next = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(i + 1)));
      const float middle = expected + (next - expected) / 2;
      for (const float x : {expected, middle}) {
        for (const float y : {std::nextafter(x, -INFINITY), x, std::nextafter(x, INFINITY)}) near.push_back(y);
      }
    }
    for (const float x : {65519.996f, 65520.f, 65536.f, 1e38f, 1e-38f, 1e-44f}) near.insert(near.end(), {x, -x});
    std::vector<Fp16> rounded(near.size());
    table->fp16.round(near.data(), rounded.data(), static_cast<int64_t>(near.size()));
    for (size_t i = 0; i < near.size(); ++i) {
      const auto expected = std::bit_cast<uint16_t>(static_cast<_Float16>(near[i]));
      const bool number = std::isfinite(near[i]) || std::isinf(near[i]);
      ASSERT_TRUE(number ? rounded[i].bits == expected : (rounded[i].bits & 0x7FFF) > 0x7C00)
          << table->name << " " << near[i] << " is " << rounded[i].bits << ", not " << expected;
    }
  }
}

TEST(Kernels, DropoutKeepsItsShareAndScales) {
  constexpr int64_t kRows = 512, kColumns = 96;
  std::vector<float> x(kRows * kColumns, 10.0f), y(x.size());  // gelu(10) is 10 in fp32
  for (const Table* table : RunnableTables()) {
    const GeluArgs<float> args{GeluForm::kExact, kColumns, {.key = 5, .p = 0.25f}, x.data(), y.data(),
                               nullptr,          nullptr};
    table->fp32.gelu_forward(args, 0, kRows);
    int64_t kept = 0;
    for (float value : y) {
      if (value == 0) continue;
      ++kept;
      EXPECT_NEAR(value, 10 / 0.75f, 1e-4);
    }
    // Five standard deviations of a binomial share.
    EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(y.size()), 0.75,
                5 * std::sqrt(0.1875 / static_cast<double>(y.size())));
  }
}

TEST(Kernels, EveryInstructionSetGivesTheSameWithinRounding) {
  constexpr int64_t kRows = 7, kColumns = 50;  // no multiple of any vector width
  const std::vector<float> x = Draws(kRows * kColumns, "x"), r = Draws(kRows * kColumns, "r"),
                           gamma = Draws(kColumns, "g"), beta = Draws(kColumns, "b");
  std::vector<float> reference;
  for (const Table* table : RunnableTables()) {
    std::vector<float> y(x.size()), z(x.size()), mean(kRows), rstd(kRows);
    NormArgs<float> args{};
    args.D = kColumns;
    args.eps = 1e-5f;
    args.dropout = {9, 0.1f};
    args.x = x.data();
    args.r = r.data();
    args.gamma = gamma.data();
    args.beta = beta.data();
    args.y = y.data();
    args.z = z.data();
    args.mean = mean.data();
    args.rstd = rstd.data();
    table->fp32.norm_forward(args, 0, kRows);
    if (reference.empty()) reference = y;
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_NEAR(y[i], reference[i], 2e-5) << table->name;  // values up to ten, summed in another order
  }
}

struct AttentionResult {
  std::vector<float> out, lse, dq, dk;  // dk with dv behind each row
};

// Context rows and queries in one tensor, the queries alone, or queries that see all keys; widths and counts that are
// no multiple of anything.
AttentionResult Attend(const Table& table, Sight sight, float p) {
  constexpr int64_t B = 2, C = 37, Q = 19, H = 2, E = 20, D = H * E;
  const int64_t R = sight == Sight::kEverything ? C : C + Q, rows = sight == Sight::kPrefix ? R : Q;
  const std::vector<float> q = Draws(static_cast<size_t>(B * rows * D), "q"),
                           kv = Draws(static_cast<size_t>(B * R * 2 * D), "kv"),
                           dout = Draws(static_cast<size_t>(B * rows * D), "dout");
  std::vector<int32_t> visible;
  for (int64_t i = 0; i < B * Q; ++i) visible.push_back(static_cast<int32_t>(i * 7 % (C + 1)));
  AttentionResult result;
  result.out.resize(q.size());
  result.dq.resize(q.size());
  result.lse.resize(static_cast<size_t>(B * H * rows));
  std::vector<float> dkv(kv.size());
  const AttentionShape shape{B, C, Q, H, E, D, 2 * D, sight, {.key = 3, .p = p}};
  const AttentionArgs<float> args{q.data(),          kv.data(),   kv.data() + D,    visible.data(), result.out.data(),
                                  result.lse.data(), dout.data(), result.dq.data(), dkv.data(),     dkv.data() + D};
  table.fp32.attention_forward(shape, args, 0, B * H);
  table.fp32.attention_backward(shape, args, 0, B * H);
  result.dk = std::move(dkv);
  return result;
}

TEST(Kernels, EveryInstructionSetAttendsTheSameWithinRounding) {
  for (const Sight sight : {Sight::kPrefix, Sight::kPrefixOfQueries, Sight::kEverything}) {
    for (const float p : {0.0f, 0.3f}) {
      const AttentionResult reference = Attend(baseline::kTable, sight, p);
      for (const Table* table : RunnableTables()) {
        SCOPED_TRACE(testing::Message() << table->name << ", sight " << static_cast<int>(sight) << ", dropout " << p);
        const AttentionResult result = Attend(*table, sight, p);
        // Sums of some dozens of values of order one, in another order.
        for (size_t i = 0; i < result.out.size(); ++i) ASSERT_NEAR(result.out[i], reference.out[i], 1e-5) << i;
        for (size_t i = 0; i < result.lse.size(); ++i) ASSERT_NEAR(result.lse[i], reference.lse[i], 1e-5) << i;
        for (size_t i = 0; i < result.dq.size(); ++i) ASSERT_NEAR(result.dq[i], reference.dq[i], 5e-5) << i;
        for (size_t i = 0; i < result.dk.size(); ++i) ASSERT_NEAR(result.dk[i], reference.dk[i], 5e-5) << i;
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::kernels

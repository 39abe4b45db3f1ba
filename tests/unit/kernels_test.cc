#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "trainer/base/random.h"
#include "trainer/kernels/stem.h"
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

float ToFloat(Bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
Bf16 ToBf16(float x) { return {static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)}; }

std::vector<Bf16> Bf16Draws(int64_t n, const std::string& name) {
  std::vector<Bf16> values;
  for (const float x : Draws(static_cast<size_t>(n), name.c_str())) values.push_back(ToBf16(x));
  return values;
}

// run(output, place of y, tap of the kernel, place of x) for each product of a stem.
template <class Run>
void ForEachProduct(const StemShape& shape, Run run) {
  const auto [D, H, W] = shape.places();
  for (int64_t i = 0; i < shape.outputs * D * H * W; ++i) {
    const int64_t w = i % W, h = i / W % H, d = i / (W * H) % D;
    for (int64_t tap = 0; tap < 343; ++tap) {
      const int64_t z = d * shape.stride + tap / 49 - 3, y = h * shape.stride + tap / 7 % 7 - 3,
                    x = w * shape.stride + tap % 7 - 3;
      const bool there = z >= 0 && z < shape.size[0] && y >= 0 && y < shape.size[1] && x >= 0 && x < shape.size[2];
      if (there) run(i / (D * H * W), i, tap, (z * shape.size[1] + y) * shape.size[2] + x);
    }
  }
}

TEST(Kernels, AStemIsItsConvolutionAndGradient) {
  if (!Stem()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  for (const StemShape& shape : {StemShape{16, {9, 8, 33}, 2},
                                 {5, {3, 4, 7}, 1},
                                 {17, {1, 1, 1}, 2},
                                 {33, {6, 2, 19}, 2},
                                 {16, {4, 3, 20}, 1}}) {
    const auto [D, H, W] = shape.places();
    const int64_t places = shape.outputs * D * H * W;
    const std::vector<Bf16> x = Bf16Draws(shape.size[0] * shape.size[1] * shape.size[2], "x"),
                            weight = Bf16Draws(shape.outputs * 343, "w"), dy = Bf16Draws(places, "dy");
    std::vector<Bf16> y(static_cast<size_t>(places));
    for (int64_t plane = 0; plane < D; plane += 2)
      Stem()->forward(shape, x.data(), weight.data(), y.data(), plane, std::min(plane + 2, D));
    std::vector<float> dw(weight.size(), 3);
    Stem()->weight_gradient(shape, x.data(), dy.data(), dw.data());
    std::vector<double> sums(y.size()), sizes(y.size()), gradients(dw.size(), 3);
    ForEachProduct(shape, [&](int64_t output, int64_t at, int64_t tap, int64_t from) {
      const auto value = static_cast<double>(ToFloat(x[static_cast<size_t>(from)]));
      const double product = value * static_cast<double>(ToFloat(weight[static_cast<size_t>(output * 343 + tap)]));
      sums[static_cast<size_t>(at)] += product;
      sizes[static_cast<size_t>(at)] += std::abs(product);
      gradients[static_cast<size_t>(output * 343 + tap)] +=
          value * static_cast<double>(ToFloat(dy[static_cast<size_t>(at)]));
    });
    for (size_t i = 0; i < y.size(); ++i)  // half of bfloat16's last bit, and what 343 sums in float32 lose
      EXPECT_NEAR(static_cast<double>(ToFloat(y[i])), sums[i], std::abs(sums[i]) / 256 + sizes[i] * 1e-6) << i;
    for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(static_cast<double>(dw[i]), gradients[i], 1e-3) << i;
  }
}

// Few values, so that windows have several largest ones.
template <class T, class Narrow, class Widen>
void ExpectPooled(const Typed<T>& kernels, Narrow narrow, Widen widen) {
  for (const std::array<int64_t, 3> size : {std::array<int64_t, 3>{5, 6, 37}, {1, 1, 1}, {2, 1, 8}, {4, 3, 2}}) {
    const auto [D, H, W] = size;
    std::vector<T> x;
    for (const float value : Draws(static_cast<size_t>(2 * D * H * W), "pool"))
      x.push_back(narrow(std::round(value * 2)));
    x[0] = narrow(-std::numeric_limits<float>::infinity());
    x[x.size() - 1] = narrow(std::numeric_limits<float>::quiet_NaN());
    const int64_t d2 = (D + 1) / 2, h2 = (H + 1) / 2, w2 = (W + 1) / 2;
    std::vector<T> y(static_cast<size_t>(2 * d2 * h2 * w2));
    std::vector<int32_t> places(y.size());
    const MaxPoolArgs<T> args{size, x.data(), y.data(), places.data()};
    kernels.max_pool(args, 0, 1);
    kernels.max_pool(args, 1, 2);
    for (int64_t i = 0; i < 2 * d2 * h2 * w2; ++i) {
      const int64_t channel = i / (d2 * h2 * w2), d = i / (h2 * w2) % d2, h = i / w2 % h2, w = i % w2;
      int64_t best = -1;
      for (int64_t place = 0; place < D * H * W; ++place) {
        const int64_t z = place / (H * W), row = place / W % H, column = place % W;
        if (std::abs(z - 2 * d) > 1 || std::abs(row - 2 * h) > 1 || std::abs(column - 2 * w) > 1) continue;
        const auto of = [&](int64_t at) { return widen(x[static_cast<size_t>(channel * D * H * W + at)]); };
        if (best < 0 || of(place) > of(best) || (std::isnan(of(place)) && !std::isnan(of(best)))) best = place;
      }
      const float value = widen(y[static_cast<size_t>(i)]),
                  expected = widen(x[static_cast<size_t>(channel * D * H * W + best)]);
      EXPECT_EQ(places[static_cast<size_t>(i)], best);
      EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << value << " " << expected;
    }
    // What every place gets back of 1, 2, 3, ...: whole numbers, whose sums have no order.
    std::vector<T> dx(static_cast<size_t>(D * H * W), narrow(1)), dy;
    std::vector<float> expected(dx.size(), 1);
    for (int64_t i = 0; i < d2 * h2 * w2; ++i) {
      dy.push_back(narrow(static_cast<float>(1 + i % 4)));
      expected[static_cast<size_t>(places[static_cast<size_t>(i)])] += static_cast<float>(1 + i % 4);
    }
    kernels.max_pool_backward(dy.data(), places.data(), d2 * h2 * w2, dx.data());
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(widen(dx[i]), expected[i]);
  }
}

TEST(Kernels, TheLargestOfAWindowIsTheFirstOfEqualOnes) {
  for (const Table* table : RunnableTables()) {
    SCOPED_TRACE(table->name);
    ExpectPooled(
        table->fp32, [](float x) { return x; }, [](float x) { return x; });
    ExpectPooled(table->bf16, ToBf16, ToFloat);
  }
}

}  // namespace
}  // namespace trainyard::kernels

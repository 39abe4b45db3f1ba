// Compiled for AVX512_BF16; kernels.cc asks the processor first.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "trainer/kernels/lanes.h"
#include "trainer/kernels/scalar_math.h"
#include "trainer/kernels/stem.h"

namespace trainyard::kernels {
namespace {

// Two neighbours of a row: what one lane multiplies.
using Pair = uint32_t;

constexpr int64_t kRowPairs = (kStemSide + 1) / 2;
constexpr int64_t kTaps = kStemSide * kStemSide * kStemSide;

Pair PairAt(const Bf16* x) {
  Pair pair;
  std::memcpy(&pair, x, sizeof(pair));
  return pair;
}

__m512bh EachLane(const Bf16* x) { return (__m512bh)_mm512_set1_epi32(static_cast<int>(PairAt(x))); }
__m512bh LanesAt(const Pair* pairs) { return (__m512bh)_mm512_loadu_si512(pairs); }

// Planes [begin, end) of x with the zeros around it; a pair may read one column more. Rows come in so many phases:
// phase p has the columns p, p + phases, ...
class Padded {
 public:
  Padded(const StemShape& shape, const Bf16* x, int64_t begin, int64_t end, int64_t phases)
      : row_((shape.size[2] + 2 * kStemPadding) / phases + 2),
        plane_((shape.size[1] + 2 * kStemPadding) * row_),
        phase_((end - begin) * plane_),
        values_(static_cast<size_t>(phases * phase_), Bf16{0}) {
    const auto [D, H, W] = shape.size;
    for (int64_t d = std::max(begin, kStemPadding); d < std::min(end, D + kStemPadding); ++d) {
      for (int64_t h = 0; h < H; ++h) {
        const Bf16* from = x + ((d - kStemPadding) * H + h) * W;
        Bf16* to = values_.data() + (d - begin) * plane_ + (h + kStemPadding) * row_;
        for (int64_t phase = 0; phase < phases; ++phase, to += phase_) {
          const int64_t first = (phases + phase - kStemPadding % phases) % phases;  // the first of x in this phase
          for (int64_t w = first; w < W; w += phases) to[(w + kStemPadding) / phases] = from[w];
        }
      }
    }
  }
  // Row h of plane d, which is counted from `begin`.
  const Bf16* Row(int64_t phase, int64_t d, int64_t h) const {
    return values_.data() + phase * phase_ + d * plane_ + h * row_;
  }
  // From a row to the next.
  int64_t row() const { return row_; }

 private:
  int64_t row_, plane_, phase_;
  std::vector<Bf16> values_;
};

// ---- Forward -----------------------------------------------------------------------------------

// (7, 7, 4, 16) for 16 outputs: pairs along the kernel's rows, whose eighth column is zero; so are outputs that are not
// there.
std::vector<Pair> PairsOfWeight(const StemShape& shape, const Bf16* weight, int64_t first) {
  constexpr int64_t kRows = kStemSide * kStemSide;
  std::vector<Pair> pairs(kRows * kRowPairs * kLanes, 0);
  for (int64_t o = 0; o < std::min(kLanes, shape.outputs - first); ++o) {
    for (int64_t row = 0; row < kRows; ++row) {
      Bf16 values[kStemSide + 1] = {};
      std::copy_n(weight + (first + o) * kTaps + row * kStemSide, kStemSide, values);
      for (int64_t pair = 0; pair < kRowPairs; ++pair)
        pairs[static_cast<size_t>((row * kRowPairs + pair) * kLanes + o)] = PairAt(values + 2 * pair);
    }
  }
  return pairs;
}

// 16 outputs of kWide neighbours: columns from `column` of the padded x on, `stride` apart. sums: a place each.
template <int kWide, int kStride>
void SumTile(const Padded& x, int64_t d, int64_t h, int64_t column, const Pair* weight, Lanes* sums) {
  __m512 sum[kWide];
  for (__m512& lanes : sum) lanes = _mm512_setzero_ps();
  for (int64_t kd = 0; kd < kStemSide; ++kd) {
    for (int64_t kh = 0; kh < kStemSide; ++kh) {
      const Bf16* row = x.Row(0, d + kd, h + kh) + column;
      for (int64_t pair = 0; pair < kRowPairs; ++pair, row += 2, weight += kLanes) {
        const __m512bh of = LanesAt(weight);
#pragma GCC unroll 16
        for (int i = 0; i < kWide; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], of, EachLane(row + i * kStride));
      }
    }
  }
  for (int i = 0; i < kWide; ++i) sums[i] = (Lanes)sum[i];
}

template <int kStride>
int64_t SumPlaces(int64_t wide, const Padded& x, int64_t d, int64_t h, int64_t column, const Pair* weight,
                  Lanes* sums) {
  if (wide >= 16) return SumTile<16, kStride>(x, d, h, column, weight, sums), 16;
  if (wide >= 8) return SumTile<8, kStride>(x, d, h, column, weight, sums), 8;
  if (wide >= 4) return SumTile<4, kStride>(x, d, h, column, weight, sums), 4;
  return SumTile<1, kStride>(x, d, h, column, weight, sums), 1;
}

template <int kStride>
void ForwardPlanes(const StemShape& shape, const Bf16* x, const Bf16* weight, Bf16* y, int64_t begin, int64_t end) {
  const auto [D, H, W] = shape.places();
  const Padded padded(shape, x, begin * kStride, (end - 1) * kStride + kStemSide, 1);
  for (int64_t first = 0; first < shape.outputs; first += kLanes) {
    const std::vector<Pair> pairs = PairsOfWeight(shape, weight, first);
    for (int64_t row = begin * H; row < end * H; ++row) {
      const int64_t d = row / H - begin, h = row % H;
      for (int64_t w = 0, wide; w < W; w += wide) {
        Lanes sums[kLanes] = {};
        wide = SumPlaces<kStride>(W - w, padded, d * kStride, h * kStride, w * kStride, pairs.data(), sums);
        TransposeTile(sums);
        for (int64_t o = 0; o < std::min(kLanes, shape.outputs - first); ++o) {
          Bf16* to = y + ((first + o) * D * H + row) * W + w;
          for (int64_t i = 0; i < wide; ++i) Store(sums[o][i], to[i]);
        }
      }
    }
  }
}

void Forward(const StemShape& shape, const Bf16* x, const Bf16* weight, Bf16* y, int64_t begin, int64_t end) {
  shape.stride == 1 ? ForwardPlanes<1>(shape, x, weight, y, begin, end)
                    : ForwardPlanes<2>(shape, x, weight, y, begin, end);
}

// ---- The weight's gradient ---------------------------------------------------------------------

// (depth, height, pairs of width, 16) for 16 outputs; where there is no output or no second column, zero.
std::vector<Pair> PairsOfGradient(const StemShape& shape, const Bf16* dy, int64_t first) {
  const auto [D, H, W] = shape.places();
  const int64_t width = (W + 1) / 2;
  std::vector<Pair> pairs(static_cast<size_t>(D * H * width * kLanes), 0);
  for (int64_t o = 0; o < std::min(kLanes, shape.outputs - first); ++o) {
    const Bf16* from = dy + (first + o) * D * H * W;
    Pair* to = pairs.data() + o;
    for (int64_t row = 0; row < D * H; ++row, from += W) {
      for (int64_t w = 0; w < W; w += 2, to += kLanes) *to = w + 1 < W ? PairAt(from + w) : from[w].bits;
    }
  }
  return pairs;
}

// 16 outputs of the kernel's rows [kh, kh + kRows) at depth kd. sums: (kRows, 7).
template <int kRows, int kStride>
void SumTaps(const StemShape& shape, const Padded& x, const Pair* dy, int64_t kd, int64_t kh, Lanes* sums) {
  const auto [D, H, W] = shape.places();
  __m512 sum[kRows][kStemSide];
  for (auto& row : sum) std::fill_n(row, kStemSide, _mm512_setzero_ps());
  for (int64_t d = 0; d < D; ++d) {
    for (int64_t h = 0; h < H; ++h) {
      const Bf16* phases[2] = {x.Row(0, d * kStride + kd, h * kStride + kh),
                               x.Row(kStride - 1, d * kStride + kd, h * kStride + kh)};
      for (int64_t w = 0; w < W; w += 2, dy += kLanes) {
        const __m512bh of = LanesAt(dy);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 7
          for (int k = 0; k < kStemSide; ++k)
            sum[r][k] = _mm512_dpbf16_ps(sum[r][k], of, EachLane(phases[k % kStride] + r * x.row() + w + k / kStride));
        }
      }
    }
  }
  std::copy_n(reinterpret_cast<const Lanes*>(sum), kRows * kStemSide, sums);
}

template <int kStride>
void AddWeightGradient(const StemShape& shape, const Bf16* x, const Bf16* dy, float* dw) {
  const Padded padded(shape, x, 0, shape.size[0] + 2 * kStemPadding, kStride);
  for (int64_t first = 0; first < shape.outputs; first += kLanes) {
    const std::vector<Pair> pairs = PairsOfGradient(shape, dy, first);
    for (int64_t kd = 0; kd < kStemSide; ++kd) {
      Lanes sums[kStemSide * kStemSide];  // as many rows at once as registers hold
      SumTaps<3, kStride>(shape, padded, pairs.data(), kd, 0, sums);
      SumTaps<3, kStride>(shape, padded, pairs.data(), kd, 3, sums + 3 * kStemSide);
      SumTaps<1, kStride>(shape, padded, pairs.data(), kd, 6, sums + 6 * kStemSide);
      for (int64_t o = 0; o < std::min(kLanes, shape.outputs - first); ++o) {
        float* to = dw + (first + o) * kTaps + kd * kStemSide * kStemSide;
        for (int64_t tap = 0; tap < kStemSide * kStemSide; ++tap) to[tap] += sums[tap][o];
      }
    }
  }
}

void WeightGradient(const StemShape& shape, const Bf16* x, const Bf16* dy, float* dw) {
  shape.stride == 1 ? AddWeightGradient<1>(shape, x, dy, dw) : AddWeightGradient<2>(shape, x, dy, dw);
}

}  // namespace

namespace avx512_bf16 {
const StemKernels kStem = {Forward, WeightGradient};
}

}  // namespace trainyard::kernels

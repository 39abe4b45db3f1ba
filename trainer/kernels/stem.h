// The first convolution of a 3-D ResNet: volumes of one channel, kernels of 7 x 7 x 7. In bfloat16 by the products of
// AVX512_BF16, which oneDNN leaves half idle where there is one channel: two neighbours of a row take its place here.
#ifndef TRAINYARD_TRAINER_KERNELS_STEM_H_
#define TRAINYARD_TRAINER_KERNELS_STEM_H_

#include <array>
#include <cstdint>

#include "trainer/kernels/kernels.h"

namespace trainyard::kernels {

constexpr int64_t kStemSide = 7, kStemPadding = 3;

struct StemShape {
  int64_t outputs;              // channels
  std::array<int64_t, 3> size;  // depth, height, width of x; each at least 1
  int64_t stride;               // 1 or 2, of each axis
  // Depth, height, width of y.
  std::array<int64_t, 3> places() const {
    const auto of = [this](int64_t side) { return (side - 1) / stride + 1; };
    return {of(size[0]), of(size[1]), of(size[2])};
  }
};

// Of one sample. x: (D, H, W), weight: (outputs, 7, 7, 7), y and dy: (outputs, places). Products are exact and summed
// in float32, in an order that the shape alone decides; numbers below 2^-126 count as zero.
struct StemKernels {
  // y's planes [begin, end) of depth, of every channel, rounded to nearest even.
  void (*forward)(const StemShape&, const Bf16* x, const Bf16* weight, Bf16* y, int64_t begin, int64_t end);
  // dw += the weight's gradient; dw: (outputs, 7, 7, 7).
  void (*weight_gradient)(const StemShape&, const Bf16* x, const Bf16* dy, float* dw);
};

// Null where the processor has no such products.
const StemKernels* Stem();

namespace avx512_bf16 {
extern const StemKernels kStem;
}

}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_STEM_H_

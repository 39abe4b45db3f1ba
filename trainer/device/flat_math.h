// Arithmetic over flat buffers, where they lie: what an optimizer step is made of besides collectives.
#ifndef TRAINYARD_TRAINER_DEVICE_FLAT_MATH_H_
#define TRAINYARD_TRAINER_DEVICE_FLAT_MATH_H_

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "trainer/kernels/kernels.h"

namespace trainyard {

// Pointers are to memory of one kind, the host's or a device's. On a device calls are enqueued on the calling thread's
// stream, and only NormOf waits. Results do not depend on how a buffer is cut into calls: an element's follow from that
// element alone, a block's from its 64 values. `type`: float32, bfloat16 or float16.
class FlatMath {
 public:
  virtual ~FlatMath() = default;
  // y = x, rounded to `type`.
  virtual void Round(const float* x, void* y, at::ScalarType type, int64_t n) = 0;
  // y += x.
  virtual void Add(const void* x, at::ScalarType type, float* y, int64_t n) = 0;
  // y = 0 + x: what Add makes of zeros. `type`: bfloat16 or float16.
  virtual void Widen(const void* x, at::ScalarType type, float* y, int64_t n) = 0;
  // sums[i] = the sum of the squares of x[64 i, 64 i + 64), in float64; not finite if any of them is not.
  virtual void SumBlocks(const float* x, double* sums, int64_t blocks) = 0;
  // The square root of the sum of these, the same for every call with the same ones.
  virtual double NormOf(const double* sums, int64_t blocks) = 0;
  // Elements [begin, end), multiples of 64, of the buffers in `args`, each at an address that is a multiple of 16
  // bytes.
  virtual void AdamW(const kernels::AdamWArgs& args, int64_t begin, int64_t end) = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_FLAT_MATH_H_

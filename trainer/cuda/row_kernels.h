// Kernels over the rows of a matrix for NVIDIA's GPUs: launches alone, of what nvcc compiles.
#ifndef TRAINYARD_TRAINER_CUDA_ROW_KERNELS_H_
#define TRAINYARD_TRAINER_CUDA_ROW_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/cuda/element.h"

namespace trainyard::cuda {

// Rows of partial sums that NormBackward writes.
inline constexpr int kNormParts = 4 * kProcessors;

// y = (x - mean) rstd gamma + beta, each row by its own mean and biased variance. x, y: (rows, width) of `type`,
// a width that device_rows.h takes, addresses multiples of 16 bytes; gamma, beta: (width), mean, rstd: (rows), all
// float32, as the arithmetic is.
struct NormArgs {
  const void *x, *dy;  // dy: of backward alone
  const float *gamma, *beta;
  void *y, *dx;
  float *mean, *rstd;
  float* parts;     // of backward: (kNormParts, 2, width)
  float* dweights;  // (2, width): what gamma gets, and what beta gets
  int64_t rows, width;
  float eps;
};
cudaError_t NormForward(const NormArgs& args, Element type, cudaStream_t stream);
// dx, and the sums over rows, in one order, of what gamma and beta get.
cudaError_t NormBackward(const NormArgs& args, Element type, cudaStream_t stream);

// Of each row of logits (rows, stride), whose first `classes` count, the logarithm of the sum of exponentials, and of
// rows whose target is not `ignored`, that minus the target's logit: the loss; 0 for an ignored one. float32. A target
// that is neither a class nor ignored gives NaN, and so does its gradient.
struct LossArgs {
  void* logits;
  const int64_t* targets;
  float *lse, *losses;
  const float* grad;  // of the gradient: one value, on the device
  int64_t rows, classes, stride, ignored;
};
cudaError_t LossForward(const LossArgs& args, Element type, cudaStream_t stream);
// In the logits' place: grad (softmax - one at the target); zeros where the target is ignored, and behind the classes.
cudaError_t LossGradient(const LossArgs& args, Element type, cudaStream_t stream);

// y[c] = the sum over rows of x[r, c], in one order; x: (rows, columns) of `type`, y: float32. `parts`: room for
// kColumnParts * columns values. SumParts is the same of few rows, (count, columns) float32.
cudaError_t SumParts(const float* parts, float* y, int count, int64_t columns, cudaStream_t stream);
inline constexpr int kColumnParts = 256;
cudaError_t SumColumns(const void* x, float* y, float* parts, int64_t rows, int64_t columns, Element type,
                       cudaStream_t stream);

}  // namespace trainyard::cuda

#endif  // TRAINYARD_TRAINER_CUDA_ROW_KERNELS_H_

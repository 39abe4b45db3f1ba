// The kernels of flat_math.h for NVIDIA's GPUs: launches alone, of what nvcc compiles.
#ifndef TRAINYARD_TRAINER_CUDA_FLAT_KERNELS_H_
#define TRAINYARD_TRAINER_CUDA_FLAT_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainer/cuda/element.h"
#include "trainer/kernels/kernels.h"

namespace trainyard::cuda {

// As FlatMath's, enqueued on `stream`; what goes wrong in a launch is the returned error.
cudaError_t Round(const float* x, void* y, Element type, int64_t n, cudaStream_t stream);
cudaError_t Add(const void* x, Element type, float* y, int64_t n, cudaStream_t stream);
cudaError_t Widen(const void* x, Element type, float* y, int64_t n, cudaStream_t stream);
cudaError_t SumBlocks(const float* x, double* sums, int64_t blocks, cudaStream_t stream);
cudaError_t AdamW(const kernels::AdamWArgs& args, int64_t begin, int64_t end, cudaStream_t stream);

// Sums in one order, which follows from the number of blocks alone. `partial`: room for kSumParts values; the sum is
// then in partial[0].
inline constexpr int kSumParts = 1024;
cudaError_t SumOf(const double* sums, int64_t blocks, double* partial, cudaStream_t stream);

}  // namespace trainyard::cuda

#endif  // TRAINYARD_TRAINER_CUDA_FLAT_KERNELS_H_

// Every kernel here moves memory and computes next to nothing: neighbouring threads take neighbouring values, so that a
// warp's loads are whole cache lines, and a grid is as large as keeps a device busy.
#include "trainer/cuda/flat_kernels.h"

#include "trainer/cuda/elements.cuh"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = kProcessors * 16;  // of a grid
constexpr int kBlock = 64;                 // values of one sum of squares

unsigned GridOf(int64_t threads) {
  const int64_t blocks = (threads + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMostBlocks ? blocks : kMostBlocks);
}

// Calls body(i) for i of [0, n), a grid at a time.
template <class Body>
__device__ void ForEach(int64_t n, Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) body(i);
}

template <class T>
__global__ void RoundKernel(const float* x, T* y, int64_t n) {
  ForEach(n, [=](int64_t i) { FromFloat(x[i], y[i]); });
}

template <class T>
__global__ void AddKernel(const T* x, float* y, int64_t n) {
  ForEach(n, [=](int64_t i) { y[i] += ToFloat(x[i]); });
}

template <class T>
__global__ void WidenKernel(const T* x, float* y, int64_t n) {
  ForEach(n, [=](int64_t i) { y[i] = 0 + ToFloat(x[i]); });
}

// A warp sums a block, two values a lane, and folds its lanes in one order.
__global__ void SumBlocksKernel(const float* x, double* sums, int64_t blocks) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  for (int64_t block = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32; block < blocks;
       block += warps) {
    const double a = x[block * kBlock + lane], b = x[block * kBlock + 32 + lane];
    double sum = a * a + b * b;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) sums[block] = sum;
  }
}

// Adds the kThreads values of a block's threads; thread 0 has the sum.
__device__ double SumOfThreads(double value) {
  __shared__ double values[kThreads];
  values[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  return values[0];
}

// Part p sums its neighbours [p share, (p + 1) share).
__global__ void SumPartsKernel(const double* sums, int64_t n, int64_t share, double* partial) {
  const int64_t begin = blockIdx.x * share, end = begin + share < n ? begin + share : n;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) sum += sums[i];
  sum = SumOfThreads(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void SumPartialKernel(double* partial) {
  double sum = 0;
  for (int i = threadIdx.x; i < kSumParts; i += kThreads) sum += partial[i];
  sum = SumOfThreads(sum);
  if (threadIdx.x == 0) partial[0] = sum;
}

// In torch.optim.AdamW's order, as the host's kernel. Buffers begin at multiples of 16 bytes; `begin` and n are multiples of
// four values.
__global__ void AdamWKernel(kernels::AdamWArgs a, int64_t begin, int64_t n) {
  const float step_size = a.lr / a.bias_correction1;
  const float decay = 1 - a.lr * a.weight_decay;
  using Four = Pack<float>;
  ForEach(n / Four::kSize, [=](int64_t k) {
    const auto at = [=](float* values) { return reinterpret_cast<Four*>(values + begin) + k; };
    const Four grads = *reinterpret_cast<const Four*>(a.grad + begin + k * Four::kSize);
    Four params = *at(a.param), first = *at(a.exp_avg), second = *at(a.exp_avg_sq);
#pragma unroll
    for (int i = 0; i < Four::kSize; ++i) {
      const float grad = grads.values[i] * a.grad_scale;
      const float m = first.values[i] + (grad - first.values[i]) * a.exp_avg_rate;
      const float v = second.values[i] * a.beta2 + grad * grad * a.exp_avg_sq_rate;
      first.values[i] = m;
      second.values[i] = v;
      params.values[i] =
          params.values[i] * decay - step_size * m / (sqrtf(v) / a.bias_correction2_sqrt + a.eps);
    }
    *at(a.exp_avg) = first;
    *at(a.exp_avg_sq) = second;
    *at(a.param) = params;
    if (!a.average) return;
    Four averages = *at(a.average);
#pragma unroll
    for (int i = 0; i < Four::kSize; ++i)
      averages.values[i] += a.average_rate * (params.values[i] - averages.values[i]);
    *at(a.average) = averages;
  });
}

}  // namespace

cudaError_t Round(const float* x, void* y, Element type, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  OfElement(type, [&](auto zero) {
    using T = decltype(zero);
    RoundKernel<<<GridOf(n), kThreads, 0, stream>>>(x, static_cast<T*>(y), n);
    return cudaSuccess;
  });
  return cudaGetLastError();
}

cudaError_t Add(const void* x, Element type, float* y, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  OfElement(type, [&](auto zero) {
    using T = decltype(zero);
    AddKernel<<<GridOf(n), kThreads, 0, stream>>>(static_cast<const T*>(x), y, n);
    return cudaSuccess;
  });
  return cudaGetLastError();
}

cudaError_t Widen(const void* x, Element type, float* y, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  OfElement(type, [&](auto zero) {
    using T = decltype(zero);
    WidenKernel<<<GridOf(n), kThreads, 0, stream>>>(static_cast<const T*>(x), y, n);
    return cudaSuccess;
  });
  return cudaGetLastError();
}

cudaError_t SumBlocks(const float* x, double* sums, int64_t blocks, cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  SumBlocksKernel<<<GridOf(blocks * 32), kThreads, 0, stream>>>(x, sums, blocks);
  return cudaGetLastError();
}

cudaError_t AdamW(const kernels::AdamWArgs& args, int64_t begin, int64_t end, cudaStream_t stream) {
  if (begin == end) return cudaSuccess;
  AdamWKernel<<<GridOf((end - begin) / 4), kThreads, 0, stream>>>(args, begin, end - begin);
  return cudaGetLastError();
}

cudaError_t SumOf(const double* sums, int64_t blocks, double* partial, cudaStream_t stream) {
  const int64_t share = (blocks + kSumParts - 1) / kSumParts;
  SumPartsKernel<<<kSumParts, kThreads, 0, stream>>>(sums, blocks, share, partial);
  SumPartialKernel<<<1, kThreads, 0, stream>>>(partial);
  return cudaGetLastError();
}

}  // namespace trainyard::cuda

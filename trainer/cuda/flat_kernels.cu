// Every kernel here moves memory and computes next to nothing: neighbouring threads take neighbouring values, so that a
// warp's loads are whole cache lines, and a grid is as large as keeps a device busy.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "trainer/cuda/flat_kernels.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 132 * 16;  // of a grid: sixteen for each processor of an H100
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

__device__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float ToFloat(__half x) { return __half2float(x); }
__device__ float ToFloat(float x) { return x; }
// To the nearest, ties to even, as on the host.
__device__ void FromFloat(float x, __nv_bfloat16& y) { y = __float2bfloat16_rn(x); }
__device__ void FromFloat(float x, __half& y) { y = __float2half_rn(x); }

template <class T>
__global__ void RoundKernel(const float* x, T* y, int64_t n) {
  ForEach(n, [=](int64_t i) { FromFloat(x[i], y[i]); });
}

template <class T>
__global__ void AddKernel(const T* x, float* y, int64_t n) {
  ForEach(n, [=](int64_t i) { y[i] += ToFloat(x[i]); });
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

// In torch.optim.AdamW's order, as the host's kernel.
__global__ void AdamWKernel(kernels::AdamWArgs a, int64_t begin, int64_t n) {
  const float step_size = a.lr / a.bias_correction1;
  const float decay = 1 - a.lr * a.weight_decay;
  ForEach(n, [=](int64_t k) {
    const int64_t i = begin + k;
    const float grad = a.grad[i] * a.grad_scale;
    const float m = a.exp_avg[i] + (grad - a.exp_avg[i]) * (1 - a.beta1);
    const float v = a.exp_avg_sq[i] * a.beta2 + grad * grad * (1 - a.beta2);
    a.exp_avg[i] = m;
    a.exp_avg_sq[i] = v;
    const float p = a.param[i] * decay - step_size * m / (sqrtf(v) / a.bias_correction2_sqrt + a.eps);
    a.param[i] = p;
    if (a.average) a.average[i] += a.average_rate * (p - a.average[i]);
  });
}

template <class Run>
void OfType(Half type, Run run) {
  type == Half::kBfloat16 ? run(__nv_bfloat16{}) : run(__half{});
}

}  // namespace

cudaError_t Round(const float* x, void* y, Half type, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  OfType(type, [&](auto zero) {
    using T = decltype(zero);
    RoundKernel<<<GridOf(n), kThreads, 0, stream>>>(x, static_cast<T*>(y), n);
  });
  return cudaGetLastError();
}

cudaError_t Add(const void* x, Half type, float* y, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  OfType(type, [&](auto zero) {
    using T = decltype(zero);
    AddKernel<<<GridOf(n), kThreads, 0, stream>>>(static_cast<const T*>(x), y, n);
  });
  return cudaGetLastError();
}

cudaError_t AddFloats(const float* x, float* y, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  AddKernel<<<GridOf(n), kThreads, 0, stream>>>(x, y, n);
  return cudaGetLastError();
}

cudaError_t SumBlocks(const float* x, double* sums, int64_t blocks, cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  SumBlocksKernel<<<GridOf(blocks * 32), kThreads, 0, stream>>>(x, sums, blocks);
  return cudaGetLastError();
}

cudaError_t AdamW(const kernels::AdamWArgs& args, int64_t begin, int64_t end, cudaStream_t stream) {
  if (begin == end) return cudaSuccess;
  AdamWKernel<<<GridOf(end - begin), kThreads, 0, stream>>>(args, begin, end - begin);
  return cudaGetLastError();
}

cudaError_t SumOf(const double* sums, int64_t blocks, double* partial, cudaStream_t stream) {
  const int64_t share = (blocks + kSumParts - 1) / kSumParts;
  SumPartsKernel<<<kSumParts, kThreads, 0, stream>>>(sums, blocks, share, partial);
  SumPartialKernel<<<1, kThreads, 0, stream>>>(partial);
  return cudaGetLastError();
}

}  // namespace trainyard::cuda

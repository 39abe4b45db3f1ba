// A block takes a row of logits: each of its threads reads 16 bytes at a time, where rows begin at such addresses.
#include <cmath>

#include "trainer/cuda/elements.cuh"
#include "trainer/cuda/row_kernels.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

// The largest of some values, and the sum of the exponentials of their distances to it.
struct Running {
  float most, sum;
};

__device__ Running Nothing() { return {-INFINITY, 0}; }

// A maximum of -inf is that of nothing, or of logits that are all -inf: it has no distance to itself. NaN stays NaN, which
// no maximum shows.
__device__ float Distance(float x, float most) { return x == -INFINITY ? 0 : __expf(x - most); }

__device__ Running Together(Running a, Running b) {
  const float most = fmaxf(a.most, b.most);
  return {most, a.sum * Distance(a.most, most) + b.sum * Distance(b.most, most)};
}

__device__ Running OfWarp(Running mine) {
  for (int offset = 16; offset > 0; offset /= 2)
    mine = Together(mine, {__shfl_xor_sync(0xffffffff, mine.most, offset), __shfl_xor_sync(0xffffffff, mine.sum, offset)});
  return mine;
}

// Calls body(first, pack, count) for the packs of a row: `count` values from index `first`. Packs are loads of 16 bytes
// where `aligned`, else of single values. Loops over them are unrolled: with an index that is known when it runs alone, a
// pack would lie in memory.
template <class T, class Body>
__device__ void ForPacks(const T* row, int64_t classes, bool aligned, Body body) {
  constexpr int kSize = Pack<T>::kSize;
  for (int64_t first = static_cast<int64_t>(threadIdx.x) * kSize; first < classes; first += kThreads * kSize) {
    const int count = classes - first < kSize ? static_cast<int>(classes - first) : kSize;
    Pack<T> pack;
    if (aligned && count == kSize) {
      pack = *reinterpret_cast<const Pack<T>*>(row + first);
    } else {
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        if (i < count) pack.values[i] = row[first + i];
    }
    body(first, pack, count);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) LossForwardKernel(LossArgs a, bool aligned) {
  const int64_t r = blockIdx.x;
  const T* row = static_cast<const T*>(a.logits) + r * a.stride;
  Running mine = Nothing();
  ForPacks(row, a.classes, aligned, [&](int64_t, const Pack<T>& pack, int count) {
    Running here = Nothing();
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i)
      if (i < count) here.most = fmaxf(here.most, ToFloat(pack.values[i]));
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i)
      if (i < count) here.sum += Distance(ToFloat(pack.values[i]), here.most);
    mine = Together(mine, here);
  });
  __shared__ Running warps[kWarps];
  mine = OfWarp(mine);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  mine = OfWarp(threadIdx.x < kWarps ? warps[threadIdx.x] : Nothing());
  if (threadIdx.x != 0) return;
  const int64_t target = a.targets[r];
  const float lse = mine.most + logf(mine.sum);
  a.lse[r] = lse;
  a.losses[r] = target == a.ignored                     ? 0.f
                : target < 0 || target >= a.classes ? NAN
                                                        : lse - ToFloat(row[target]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) LossGradientKernel(LossArgs a, bool aligned) {
  const int64_t r = blockIdx.x, target = a.targets[r];
  T* row = static_cast<T*>(a.logits) + r * a.stride;
  const bool ignored = target == a.ignored, known = target >= 0 && target < a.classes;
  const float lse = a.lse[r], grad = ignored ? 0.f : known ? *a.grad : NAN;
  ForPacks(row, a.classes, aligned, [&](int64_t first, const Pack<T>& pack, int count) {
    Pack<T> out;
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
      const float share = __expf(ToFloat(pack.values[i]) - lse) - (first + i == target ? 1.f : 0.f);
      FromFloat(ignored ? 0.f : grad * share, out.values[i]);
    }
    if (aligned && count == Pack<T>::kSize) {
      *reinterpret_cast<Pack<T>*>(row + first) = out;
    } else {
#pragma unroll
      for (int i = 0; i < Pack<T>::kSize; ++i)
        if (i < count) row[first + i] = out.values[i];
    }
  });
  for (int64_t i = a.classes + threadIdx.x; i < a.stride; i += kThreads) FromFloat(0, row[i]);
}

template <class T>
bool IsAligned(const LossArgs& a) {
  return a.stride % Pack<T>::kSize == 0 && reinterpret_cast<uintptr_t>(a.logits) % 16 == 0;
}

}  // namespace

cudaError_t LossForward(const LossArgs& args, Element type, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  OfElement(type, [&](auto zero) {
    using T = decltype(zero);
    LossForwardKernel<T><<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args, IsAligned<T>(args));
    return cudaSuccess;
  });
  return cudaGetLastError();
}

cudaError_t LossGradient(const LossArgs& args, Element type, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  OfElement(type, [&](auto zero) {
    using T = decltype(zero);
    LossGradientKernel<T><<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args, IsAligned<T>(args));
    return cudaSuccess;
  });
  return cudaGetLastError();
}

}  // namespace trainyard::cuda

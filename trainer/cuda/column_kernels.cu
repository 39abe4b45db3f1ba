// Sums over rows: a block takes 256 neighbouring columns of a share of the rows, so that its loads are whole lines, and a
// second kernel adds the shares in their order.
#include "trainer/cuda/elements.cuh"
#include "trainer/cuda/row_kernels.h"

namespace trainyard::cuda {
namespace {

constexpr int kAcross = 32, kDown = 8;  // threads of a block; one across takes a pack of columns
constexpr int kPack = 8;                // columns
constexpr int kColumns = kAcross * kPack;

template <class T>
__global__ void __launch_bounds__(kAcross* kDown)
    SharesKernel(const T* x, float* parts, int64_t rows, int64_t columns, bool aligned) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x * kPack;
  const int count = columns - column < kPack ? static_cast<int>(columns - column) : kPack;
  float sums[kPack] = {};
  for (int64_t r = static_cast<int64_t>(blockIdx.y) * kDown + threadIdx.y; r < rows && count > 0;
       r += static_cast<int64_t>(gridDim.y) * kDown) {
    const T* from = x + r * columns + column;
    if (aligned && count == kPack) {
#pragma unroll
      for (int l = 0; l < kPack / Pack<T>::kSize; ++l) {
        const Pack<T> pack = reinterpret_cast<const Pack<T>*>(from)[l];
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) sums[l * Pack<T>::kSize + i] += ToFloat(pack.values[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        if (i < count) sums[i] += ToFloat(from[i]);
    }
  }
  __shared__ float shared[kDown][kColumns];
#pragma unroll
  for (int i = 0; i < kPack; ++i) shared[threadIdx.y][threadIdx.x * kPack + i] = sums[i];
  __syncthreads();
  const int mine = threadIdx.y * kAcross + threadIdx.x;
  if (static_cast<int64_t>(blockIdx.x) * kColumns + mine >= columns) return;
  float sum = 0;
  for (int down = 0; down < kDown; ++down) sum += shared[down][mine];
  parts[blockIdx.y * columns + static_cast<int64_t>(blockIdx.x) * kColumns + mine] = sum;
}

// A block for 32 neighbouring columns: each of its warps adds an eighth of the parts, then the first adds theirs.
__global__ void __launch_bounds__(256) TogetherKernel(const float* parts, float* y, int count, int64_t columns) {
  __shared__ float sums[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  float sum = 0;
  for (int p = warp; p < count && column < columns; p += 8) sum += parts[p * columns + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (int w = 1; w < 8; ++w) sum += sums[w][lane];
  y[column] = sum;
}

template <class T>
cudaError_t Launch(const T* x, float* y, float* parts, int64_t rows, int64_t columns, cudaStream_t stream) {
  const int64_t across = (columns + kColumns - 1) / kColumns;
  // As many blocks as keep a device busy, each with rows enough to be worth one.
  int64_t shares = (kProcessors * 8 + across - 1) / across;
  shares = shares < kColumnParts ? shares : kColumnParts;
  const int64_t most = (rows + 4 * kDown - 1) / (4 * kDown);
  shares = shares < most ? shares : most;
  const bool aligned = columns % kPack == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(shares)), block(kAcross, kDown);
  SharesKernel<<<grid, block, 0, stream>>>(x, parts, rows, columns, aligned);
  const cudaError_t result = cudaGetLastError();
  return result == cudaSuccess ? SumParts(parts, y, static_cast<int>(shares), columns, stream) : result;
}

}  // namespace

cudaError_t SumParts(const float* parts, float* y, int count, int64_t columns, cudaStream_t stream) {
  TogetherKernel<<<static_cast<unsigned>((columns + 31) / 32), 256, 0, stream>>>(parts, y, count, columns);
  return cudaGetLastError();
}

cudaError_t SumColumns(const void* x, float* y, float* parts, int64_t rows, int64_t columns, Element type,
                       cudaStream_t stream) {
  if (columns == 0) return cudaSuccess;
  if (rows == 0) return cudaMemsetAsync(y, 0, static_cast<size_t>(columns) * sizeof(float), stream);
  return OfElement(type, [&](auto zero) {
    return Launch(static_cast<const decltype(zero)*>(x), y, parts, rows, columns, stream);
  });
}

}  // namespace trainyard::cuda

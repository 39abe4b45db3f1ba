// The lanes of a warp, or a quarter or a half of them where a row is narrow, take a row, which stays in their registers: x
// and dy are read once, and no sum leaves the warp but those over the rows.
#include "trainer/cuda/elements.cuh"
#include "trainer/cuda/row_kernels.h"

namespace trainyard::cuda {
namespace {

constexpr int kWarps = 4;  // of a block
constexpr int kThreads = kWarps * 32;

// A lane's values of a row of 8 kLanes kChunks: of each chunk eight neighbours, in one load of 16 bytes for 16-bit
// types, in two for float32.
template <class T, int kLanes, int kChunks>
struct Row {
  static constexpr int kEach = 8, kLoads = kEach / Pack<T>::kSize;
  float values[kChunks][kEach];

  __device__ static int64_t At(int chunk, int lane) { return (static_cast<int64_t>(chunk) * kLanes + lane) * kEach; }
  __device__ void Load(const T* row, int lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const auto* from = reinterpret_cast<const Pack<T>*>(row + At(c, lane));
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const Pack<T> pack = from[l];
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) values[c][l * Pack<T>::kSize + i] = ToFloat(pack.values[i]);
      }
    }
  }
  __device__ void Store(T* row, int lane) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      auto* to = reinterpret_cast<Pack<T>*>(row + At(c, lane));
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        Pack<T> pack;
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) FromFloat(values[c][l * Pack<T>::kSize + i], pack.values[i]);
        to[l] = pack;
      }
    }
  }
};

// The sum over the lanes of a row, in one order; each of them gets it.
template <int kLanes>
__device__ float SumOfRow(float value) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

// Calls body(row, lane, whether the row is there) for the rows that this thread has a part of. Lanes without a row take
// part in its warp's sums.
template <int kLanes, class Body>
__device__ void ForRows(int64_t rows, Body body) {
  constexpr int kRows = 32 / kLanes;  // of a warp
  const int lane = threadIdx.x % kLanes, of_warp = threadIdx.x % 32 / kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps * kRows;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32) * kRows; first < rows;
       first += step)
    body(first + of_warp < rows ? first + of_warp : rows - 1, lane, first + of_warp < rows);
}

template <class T, int kLanes, int kChunks>
__global__ void __launch_bounds__(kThreads) NormForwardKernel(NormArgs a) {
  using Part = Row<T, kLanes, kChunks>;
  const float inverse = 1.f / static_cast<float>(a.width);
  ForRows<kLanes>(a.rows, [&](int64_t r, int lane, bool there) {
    Part x;
    x.Load(static_cast<const T*>(a.x) + r * a.width, lane);
    float sum = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += x.values[c][i];
    const float mean = SumOfRow<kLanes>(sum) * inverse;
    float squares = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) squares += (x.values[c][i] - mean) * (x.values[c][i] - mean);
    const float rstd = rsqrtf(SumOfRow<kLanes>(squares) * inverse + a.eps);
    if (!there) return;
    Row<float, kLanes, kChunks> gamma, beta;
    gamma.Load(a.gamma, lane);
    beta.Load(a.beta, lane);
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x.values[c][i] = (x.values[c][i] - mean) * rstd * gamma.values[c][i] + beta.values[c][i];
      }
    x.Store(static_cast<T*>(a.y) + r * a.width, lane);
    if (lane == 0) {
      a.mean[r] = mean;
      a.rstd[r] = rstd;
    }
  });
}

// Adds what the threads of a block have for gamma and beta, in their order, into the block's part.
template <class T, int kLanes, int kChunks>
__device__ void AddTogether(const NormArgs& a, const float (&dgamma)[kChunks][8], const float (&dbeta)[kChunks][8]) {
  extern __shared__ float shared[];  // (2, width)
  const int lane = threadIdx.x % kLanes, mine = threadIdx.x / kLanes;
  for (int turn = 0; turn < kThreads / kLanes; ++turn) {
    if (mine == turn) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int64_t at = Row<T, kLanes, kChunks>::At(c, lane) + i;
          shared[at] = (turn == 0 ? 0 : shared[at]) + dgamma[c][i];
          shared[a.width + at] = (turn == 0 ? 0 : shared[a.width + at]) + dbeta[c][i];
        }
    }
    __syncthreads();
  }
  float* part = a.parts + static_cast<int64_t>(blockIdx.x) * 2 * a.width;
  for (int64_t i = threadIdx.x; i < 2 * a.width; i += kThreads) part[i] = shared[i];
}

// Which rows a thread has a part of, and so the order of the sums over them, follows from the shape alone.
template <class T, int kLanes, int kChunks>
__global__ void __launch_bounds__(kThreads) NormBackwardKernel(NormArgs a) {
  using Part = Row<T, kLanes, kChunks>;
  const float inverse = 1.f / static_cast<float>(a.width);
  float dgamma[kChunks][8] = {}, dbeta[kChunks][8] = {};
  ForRows<kLanes>(a.rows, [&](int64_t r, int lane, bool there) {
    Part x, dy;
    x.Load(static_cast<const T*>(a.x) + r * a.width, lane);
    dy.Load(static_cast<const T*>(a.dy) + r * a.width, lane);
    Row<float, kLanes, kChunks> gamma;
    gamma.Load(a.gamma, lane);
    const float mean = a.mean[r], rstd = a.rstd[r];
    float along = 0, sum = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float normal = (x.values[c][i] - mean) * rstd, d = there ? dy.values[c][i] : 0.f;
        dgamma[c][i] += d * normal;
        dbeta[c][i] += d;
        const float g = d * gamma.values[c][i];
        along += g * normal;
        sum += g;
        x.values[c][i] = normal;
        dy.values[c][i] = g;
      }
    along = SumOfRow<kLanes>(along) * inverse;
    sum = SumOfRow<kLanes>(sum) * inverse;
    if (!there) return;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < 8; ++i) x.values[c][i] = (dy.values[c][i] - sum - x.values[c][i] * along) * rstd;
    x.Store(static_cast<T*>(a.dx) + r * a.width, lane);
  });
  AddTogether<T, kLanes, kChunks>(a, dgamma, dbeta);
}

unsigned BlocksOf(int64_t rows, int lanes, int64_t most) {
  const int64_t each = kThreads / lanes, blocks = (rows + each - 1) / each;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

// How a row is cut.
template <int kLanesOf, int kChunksOf>
struct Cut {
  static constexpr int kLanes = kLanesOf, kChunks = kChunksOf;
};

// Calls run(a Cut); an error for a width that device_rows.h does not take.
template <class Run>
cudaError_t OfWidth(int64_t width, Run run) {
  switch (width) {
    case 64: return run(Cut<8, 1>{});
    case 128: return run(Cut<16, 1>{});
    case 256: return run(Cut<32, 1>{});
    case 512: return run(Cut<32, 2>{});
    case 768: return run(Cut<32, 3>{});
    case 1024: return run(Cut<32, 4>{});
    case 1280: return run(Cut<32, 5>{});
    case 1536: return run(Cut<32, 6>{});
    case 1792: return run(Cut<32, 7>{});
    case 2048: return run(Cut<32, 8>{});
    default: return cudaErrorInvalidValue;
  }
}

template <class T, class Cut>
cudaError_t LaunchForward(const NormArgs& args, cudaStream_t stream) {
  NormForwardKernel<T, Cut::kLanes, Cut::kChunks>
      <<<BlocksOf(args.rows, Cut::kLanes, kProcessors * 64), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <class T, class Cut>
cudaError_t LaunchBackward(const NormArgs& args, cudaStream_t stream) {
  const unsigned blocks = BlocksOf(args.rows, Cut::kLanes, kNormParts);
  NormBackwardKernel<T, Cut::kLanes, Cut::kChunks>
      <<<blocks, kThreads, 2 * args.width * sizeof(float), stream>>>(args);
  const cudaError_t result = cudaGetLastError();
  if (result != cudaSuccess) return result;
  return SumParts(args.parts, args.dweights, static_cast<int>(blocks), 2 * args.width, stream);
}

}  // namespace

cudaError_t NormForward(const NormArgs& args, Element type, cudaStream_t stream) {
  return OfElement(type, [&](auto zero) {
    return OfWidth(args.width, [&](auto cut) { return LaunchForward<decltype(zero), decltype(cut)>(args, stream); });
  });
}

cudaError_t NormBackward(const NormArgs& args, Element type, cudaStream_t stream) {
  return OfElement(type, [&](auto zero) {
    return OfWidth(args.width, [&](auto cut) { return LaunchBackward<decltype(zero), decltype(cut)>(args, stream); });
  });
}

}  // namespace trainyard::cuda

// Copies between the host's memory and a GPU, beside what computes.
#ifndef TRAINYARD_TRAINER_CUDA_CUDA_COPIES_H_
#define TRAINYARD_TRAINER_CUDA_CUDA_COPIES_H_

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <mutex>

#include "trainer/device/tile_copies.h"

namespace trainyard {

// Tile copies (device/tile_copies.h) between pinned memory and the GPU, on a stream of their own. Their order with what
// computes is that of the calling thread's current stream.
std::unique_ptr<TileCopies> MakeCudaCopies(at::Device device);

// Copies into the host's memory, a piece at a time through pinned memory, on a stream of their own. For any thread.
class CudaDownloads {
 public:
  explicit CudaDownloads(at::Device device);
  ~CudaDownloads();
  CudaDownloads(const CudaDownloads&) = delete;
  CudaDownloads& operator=(const CudaDownloads&) = delete;
  // Device::Download.
  void Copy(const at::Tensor& from, float* to);

 private:
  static constexpr size_t kPiece = 8 << 20;  // bytes
  const at::Device device_;
  const c10::cuda::CUDAStream stream_;
  std::mutex mutex_;
  std::array<at::Tensor, 2> pieces_;  // made with the first copy
  std::array<cudaEvent_t, 2> copied_{};
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CUDA_CUDA_COPIES_H_

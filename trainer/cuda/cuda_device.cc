#include "trainer/cuda/cuda_device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/cuda/cuda_copies.h"
#include "trainer/cuda/cuda_error.h"
#include "trainer/cuda/cuda_ops.h"
#include "trainer/cuda/element_of.h"
#include "trainer/cuda/flat_kernels.h"
#include "trainer/cuda/nccl_collectives.h"

namespace trainyard {
namespace {

class CudaFlatMath : public FlatMath {
 public:
  explicit CudaFlatMath(at::Device device) : device_(device) {}

  void Round(const float* x, void* y, at::ScalarType type, int64_t n) override {
    if (type == at::kFloat) {
      if (x == y) return;
      return RequireCuda(
          cudaMemcpyAsync(y, x, static_cast<size_t>(n) * sizeof(float), cudaMemcpyDeviceToDevice, Stream()),
          "cudaMemcpyAsync");
    }
    RequireCuda(cuda::Round(x, y, ElementOf(type), n, Stream()), "rounding");
  }
  void Add(const void* x, at::ScalarType type, float* y, int64_t n) override {
    RequireCuda(cuda::Add(x, ElementOf(type), y, n, Stream()), "adding gradients");
  }
  void Widen(const void* x, at::ScalarType type, float* y, int64_t n) override {
    RequireCuda(cuda::Widen(x, ElementOf(type), y, n, Stream()), "widening gradients");
  }
  void SumBlocks(const float* x, double* sums, int64_t blocks) override {
    RequireCuda(cuda::SumBlocks(x, sums, blocks, Stream()), "sums of squares");
  }
  double NormOf(const double* sums, int64_t blocks) override {
    const at::Tensor partial = at::empty({cuda::kSumParts}, at::TensorOptions(at::kDouble).device(device_));
    RequireCuda(cuda::SumOf(sums, blocks, partial.data_ptr<double>(), Stream()), "the gradient's norm");
    double sum = 0;
    RequireCuda(cudaMemcpyAsync(&sum, partial.data_ptr(), sizeof sum, cudaMemcpyDeviceToHost, Stream()),
                "cudaMemcpyAsync");
    RequireCuda(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
    return std::sqrt(sum);
  }
  void AdamW(const kernels::AdamWArgs& args, int64_t begin, int64_t end) override {
    RequireCuda(cuda::AdamW(args, begin, end, Stream()), "AdamW");
  }

 private:
  cudaStream_t Stream() const { return c10::cuda::getCurrentCUDAStream(device_.index()).stream(); }
  const at::Device device_;
};

constexpr auto kAllBytes = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index)
      : device_(at::kCUDA, static_cast<at::DeviceIndex>(index)),
        math_(device_),
        copies_((c10::cuda::set_device(device_.index()), c10::cuda::getStreamFromPool(false, device_.index()))),
        downloads_(device_) {
    cudaDeviceProp properties{};
    RequireCuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    name_ = Format("cuda:%d, %s", index, properties.name);
  }
  at::Device device() const override { return device_; }
  std::string name() const override { return name_; }
  DeviceMemory memory() const override {
    const c10::cuda::CUDAGuard guard(device_.index());
    size_t free = 0, total = 0;
    RequireCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {static_cast<int64_t>(free) + Cached(), static_cast<int64_t>(total)};
  }
  int64_t TakePeak() override {
    namespace caching = c10::cuda::CUDACachingAllocator;
    if (!caching::get()->initialized()) return 0;
    const auto active = caching::getDeviceStats(device_.index()).active_bytes[kAllBytes];
    caching::resetPeakStats(device_.index());
    return active.peak - active.current;
  }
  FlatMath& math() override { return math_; }
  std::unique_ptr<TileCopies> MakeCopies() override { return MakeCudaCopies(device_); }
  at::Tensor Upload(const at::Tensor& host) override {
    // Pinned memory comes from LibTorch's cache, which takes it back when the copy is over.
    const at::Tensor pinned = at::empty_like(host, at::TensorOptions(host.scalar_type()).pinned_memory(true));
    pinned.copy_(host);
    const auto computes = c10::cuda::getCurrentCUDAStream(device_.index());
    at::Tensor there;
    c10::Event copied(at::kCUDA);
    {
      const c10::cuda::CUDAStreamGuard guard(copies_);
      there = at::empty(host.sizes(), at::TensorOptions(host.scalar_type()).device(device_));
      there.copy_(pinned, true);
      copied.record(copies_.unwrap());
    }
    copied.block(computes.unwrap());
    there.record_stream(computes.unwrap());
    return there;
  }
  void Download(const at::Tensor& from, float* to) override { downloads_.Copy(from, to); }
  void Synchronize() override { c10::cuda::getCurrentCUDAStream(device_.index()).synchronize(); }
  std::unique_ptr<Collectives> Connect(std::shared_ptr<Store> store, const ConnectOptions& options) override {
    return MakeNcclCollectives(
        std::move(store),
        {.rank = options.rank,
         .size = options.size,
         .device = device_.index(),
         .rendezvous_timeout = options.rendezvous_timeout,
         .collective_timeout = options.collective_timeout,
         .current_stream = [index = device_.index()] { return c10::cuda::getCurrentCUDAStream(index).stream(); },
         .who_is_silent = options.who_is_silent,
         .stuck = options.stuck,
         .recorder = options.recorder,
         .group = options.group});
  }

 private:
  // What LibTorch's allocator has of the driver and nobody uses.
  int64_t Cached() const {
    if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return 0;
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_.index());
    return stats.reserved_bytes[kAllBytes].current - stats.active_bytes[kAllBytes].current;
  }

  const at::Device device_;
  CudaFlatMath math_;
  const c10::cuda::CUDAStream copies_;
  CudaDownloads downloads_;
  std::string name_;
};

}  // namespace

int CountCudaDevices(std::string* why) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return count;
  *why = result == cudaSuccess ? "CUDA_VISIBLE_DEVICES hides all" : cudaGetErrorString(result);
  cudaGetLastError();  // the error is told; nobody else shall find it
  return 0;
}

std::unique_ptr<Device> OpenCudaDevice(int local_rank) {
  std::string why;
  const int count = CountCudaDevices(&why);
  if (count == 0) throw ConfigError("no CUDA device: " + why);
  // A process that is shown one alone was given that one (Slurm's --gpus-per-task, a container): NCCL refuses two ranks
  // with the same.
  const int index = count == 1 ? 0 : local_rank;
  if (index >= count)
    throw ConfigError(
        Format("local rank %d has no CUDA device of its own: this process sees %d, and each rank needs one", local_rank,
               count));
  RegisterCudaOps();
  return std::make_unique<CudaDevice>(index);
}

}  // namespace trainyard

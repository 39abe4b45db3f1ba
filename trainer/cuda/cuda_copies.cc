#include "trainer/cuda/cuda_copies.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>

#include "trainer/cuda/cuda_error.h"

namespace trainyard {
namespace {

class CudaCopies : public TileCopies {
 public:
  explicit CudaCopies(at::Device device)
      : device_(device), stream_(c10::cuda::getStreamFromPool(false, device.index())) {}
  // The memory of what is on its way must outlive that.
  ~CudaCopies() override { cudaStreamSynchronize(stream_.stream()); }

  at::Tensor HostMemory(int64_t elements, at::ScalarType type) override {
    return at::empty({elements}, at::TensorOptions(type).pinned_memory(true));
  }

  Event Copy(const at::Tensor& from, const at::Tensor& to) override {
    if (from.nbytes() != to.nbytes() || from.scalar_type() != to.scalar_type())
      throw std::logic_error("a copy between tensors of different sizes or types");
    const c10::cuda::CUDAGuard guard(device_.index());
    c10::Event ready(at::kCUDA);
    ready.record(c10::cuda::getCurrentCUDAStream(device_.index()).unwrap());
    ready.block(stream_.unwrap());
    RequireCuda(cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(), cudaMemcpyDefault,
                                stream_.stream()),
                "cudaMemcpyAsync");
    Job job{from, to, c10::Event(at::kCUDA)};
    job.copied.record(stream_.unwrap());
    jobs_.push_back(std::move(job));
    return ++submitted_;
  }

  void Wait(Event event) override {
    for (; done_ < event; ++done_) {
      jobs_.front().copied.synchronize();
      jobs_.pop_front();
    }
  }

 private:
  struct Job {
    at::Tensor from, to;
    c10::Event copied;
  };
  const at::Device device_;
  const c10::cuda::CUDAStream stream_;
  std::deque<Job> jobs_;
  Event submitted_ = 0, done_ = 0;
};

}  // namespace

CudaDownloads::CudaDownloads(at::Device device)
    : device_(device), stream_(c10::cuda::getStreamFromPool(false, device.index())) {
  // Who waits leaves its processor to others.
  for (cudaEvent_t& event : copied_)
    RequireCuda(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming), "cudaEventCreate");
}

CudaDownloads::~CudaDownloads() {
  for (cudaEvent_t event : copied_) cudaEventDestroy(event);
}

void CudaDownloads::Copy(const at::Tensor& from, float* to) {
  const std::lock_guard lock(mutex_);
  const c10::cuda::CUDAGuard guard(device_.index());
  for (at::Tensor& piece : pieces_) {
    if (!piece.defined())
      piece = at::empty({static_cast<int64_t>(kPiece)}, at::TensorOptions(at::kByte).pinned_memory(true));
  }
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = reinterpret_cast<char*>(to);
  const auto size_at = [&](size_t begin) { return std::min(kPiece, from.nbytes() - begin); };
  const auto take = [&](size_t begin, size_t slot) {
    RequireCuda(cudaEventSynchronize(copied_[slot]), "cudaEventSynchronize");
    std::memcpy(target + begin, pieces_[slot].const_data_ptr(), size_at(begin));
  };
  size_t slot = 0;
  for (size_t begin = 0; begin < from.nbytes(); begin += kPiece, slot = 1 - slot) {
    RequireCuda(cudaMemcpyAsync(pieces_[slot].mutable_data_ptr(), source + begin, size_at(begin),
                                cudaMemcpyDeviceToHost, stream_.stream()),
                "cudaMemcpyAsync");
    RequireCuda(cudaEventRecord(copied_[slot], stream_.stream()), "cudaEventRecord");
    if (begin > 0) take(begin - kPiece, 1 - slot);
  }
  if (from.nbytes() > 0) take((from.nbytes() - 1) / kPiece * kPiece, 1 - slot);
}

std::unique_ptr<TileCopies> MakeCudaCopies(at::Device device) { return std::make_unique<CudaCopies>(device); }

}  // namespace trainyard

#include "trainer/device/host_device.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trainer/base/memory.h"
#include "trainer/comm/gloo.h"
#include "trainer/model/with_kernels.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

constexpr int64_t kElementsPerTask = 16384;  // at least
constexpr int64_t kBlock = 64, kBlocksPerTask = kElementsPerTask / kBlock;

class HostFlatMath : public FlatMath {
 public:
  void Round(const float* x, void* y, at::ScalarType type, int64_t n) override {
    WithKernels(type, [&]<class T>(const kernels::Typed<T>& kernels) {
      ParallelFor(0, n, kElementsPerTask, [&](int64_t begin, int64_t end) {
        kernels.round(x + begin, static_cast<T*>(y) + begin, end - begin);
      });
    });
  }
  void Add(const void* x, at::ScalarType type, float* y, int64_t n) override {
    WithKernels(type, [&]<class T>(const kernels::Typed<T>& kernels) {
      ParallelFor(0, n, kElementsPerTask, [&](int64_t begin, int64_t end) {
        kernels.add(static_cast<const T*>(x) + begin, y + begin, end - begin);
      });
    });
  }
  void Widen(const void* x, at::ScalarType type, float* y, int64_t n) override {
    WithKernels(type, [&]<class T>(const kernels::Typed<T>& kernels) {
      ParallelFor(0, n, kElementsPerTask, [&](int64_t begin, int64_t end) {
        std::fill(y + begin, y + end, 0.f);
        kernels.add(static_cast<const T*>(x) + begin, y + begin, end - begin);
      });
    });
  }
  void SumBlocks(const float* x, double* sums, int64_t blocks) override {
    ParallelFor(0, blocks, kBlocksPerTask,
                [&](int64_t first, int64_t last) { kernels::Kernels().block_squares(x, sums, first, last); });
  }
  double NormOf(const double* sums, int64_t blocks) override {
    double sum = 0;
    for (int64_t i = 0; i < blocks; ++i) sum += sums[i];
    return std::sqrt(sum);
  }
  void AdamW(const kernels::AdamWArgs& args, int64_t begin, int64_t end) override {
    ParallelFor(begin / kBlock, end / kBlock, kBlocksPerTask,
                [&](int64_t first, int64_t last) { kernels::Kernels().adamw(args, first * kBlock, last * kBlock); });
  }
};

class HostDevice : public Device {
 public:
  at::Device device() const override { return at::kCPU; }
  std::string name() const override { return "cpu"; }
  DeviceMemory memory() const override {
    const auto bytes = static_cast<int64_t>(MemoryLimitHere().bytes);
    return {bytes, bytes};
  }
  FlatMath& math() override { return HostMath(); }
  std::unique_ptr<TileCopies> MakeCopies() override { return MakeHostCopies(); }
  at::Tensor Upload(const at::Tensor& host) override { return host; }
  void Download(const at::Tensor& from, float* to) override { std::memcpy(to, from.const_data_ptr(), from.nbytes()); }
  void Synchronize() override {}
  std::unique_ptr<Collectives> Connect(std::shared_ptr<Store> store, const ConnectOptions& options) override {
    if (options.size == 1) return MakeSingleCommunicator();
    return MakeGlooCommunicator(std::move(store), options);
  }
};

}  // namespace

FlatMath& HostMath() {
  static HostFlatMath math;
  return math;
}

Device& Host() {
  static HostDevice host;
  return host;
}

std::unique_ptr<Device> MakeHostDevice() { return std::make_unique<HostDevice>(); }

}  // namespace trainyard

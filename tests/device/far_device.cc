#include "tests/device/far_device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>
#include <deque>
#include <utility>

#include "tests/device/far_memory.h"
#include "tests/device/staged_collectives.h"
#include "trainer/device/host_device.h"

namespace trainyard {
namespace {

class FarMath : public FlatMath {
 public:
  void Round(const float* x, void* y, at::ScalarType type, int64_t n) override {
    const FarMemoryOpen open;
    HostMath().Round(x, y, type, n);
  }
  void Add(const void* x, at::ScalarType type, float* y, int64_t n) override {
    const FarMemoryOpen open;
    HostMath().Add(x, type, y, n);
  }
  void Widen(const void* x, at::ScalarType type, float* y, int64_t n) override {
    const FarMemoryOpen open;
    HostMath().Widen(x, type, y, n);
  }
  void SumBlocks(const float* x, double* sums, int64_t blocks) override {
    const FarMemoryOpen open;
    HostMath().SumBlocks(x, sums, blocks);
  }
  double NormOf(const double* sums, int64_t blocks) override {
    const FarMemoryOpen open;
    return HostMath().NormOf(sums, blocks);
  }
  void AdamW(const kernels::AdamWArgs& args, int64_t begin, int64_t end) override {
    const FarMemoryOpen open;
    HostMath().AdamW(args, begin, end);
  }
};

// As late as it may be: a copy is made when somebody waits for it.
class LateCopies : public TileCopies {
 public:
  at::Tensor HostMemory(int64_t elements, at::ScalarType type) override { return at::empty({elements}, type); }
  Event Copy(const at::Tensor& from, const at::Tensor& to) override {
    jobs_.emplace_back(from, to);
    return ++submitted_;
  }
  void Wait(Event event) override {
    for (; done_ < event; ++done_) {
      jobs_.front().second.copy_(jobs_.front().first);
      jobs_.pop_front();
    }
  }

 private:
  std::deque<std::pair<at::Tensor, at::Tensor>> jobs_;
  Event submitted_ = 0, done_ = 0;
};

class FarDevice : public Device {
 public:
  explicit FarDevice(int index) : device_(at::kPrivateUse1, static_cast<at::DeviceIndex>(index)) {}
  at::Device device() const override { return device_; }
  std::string name() const override { return "far:" + std::to_string(device_.index()); }
  DeviceMemory memory() const override { return {1 << 30, 1 << 30}; }
  FlatMath& math() override { return math_; }
  std::unique_ptr<TileCopies> MakeCopies() override { return std::make_unique<LateCopies>(); }
  at::Tensor Upload(const at::Tensor& host) override {
    at::Tensor there = at::empty(host.sizes(), host.options().device(device_));
    return there.copy_(host);
  }
  void Download(const at::Tensor& from, float* to) override {
    const at::Tensor here = from.cpu();
    std::memcpy(to, here.const_data_ptr(), here.nbytes());
  }
  void Synchronize() override {}
  std::unique_ptr<Collectives> Connect(std::shared_ptr<Store> store, const ConnectOptions& options) override {
    return MakeStagedCollectives(Host().Connect(std::move(store), options));
  }

 private:
  const at::Device device_;
  FarMath math_;
};

}  // namespace

std::unique_ptr<Device> MakeFarDevice(int index) { return std::make_unique<FarDevice>(index); }

}  // namespace trainyard

// One GPU as eight devices: each rank is a process with a context of its own on it, and what NCCL refuses two ranks of
// one GPU goes through the host. The plug-in of the real one is the file SHARED_GPU_OF
// (tests/integration/test_device.py).
#include <cstdlib>

#include "common/build_info.h"
#include "tests/device/staged_collectives.h"
#include "trainer/base/error.h"
#include "trainer/device/host_device.h"
#include "trainer/device/plugin.h"

namespace trainyard {
namespace {

constexpr int kShares = 8;

class SharedGpu : public Device {
 public:
  explicit SharedGpu(std::unique_ptr<Device> gpu) : gpu_(std::move(gpu)) {}
  at::Device device() const override { return gpu_->device(); }
  std::string name() const override { return gpu_->name() + ", shared"; }
  DeviceMemory memory() const override { return gpu_->memory(); }
  int64_t TakePeak() override { return gpu_->TakePeak(); }
  FlatMath& math() override { return gpu_->math(); }
  std::unique_ptr<TileCopies> MakeCopies() override { return gpu_->MakeCopies(); }
  at::Tensor Upload(const at::Tensor& host) override { return gpu_->Upload(host); }
  void Download(const at::Tensor& from, float* to) override { gpu_->Download(from, to); }
  void Synchronize() override { gpu_->Synchronize(); }
  std::unique_ptr<Collectives> Connect(std::shared_ptr<Store> store, const ConnectOptions& options) override {
    return MakeStagedCollectives(Host().Connect(std::move(store), options));
  }

 private:
  std::unique_ptr<Device> gpu_;
};

const Plugin& Real() {
  const char* path = std::getenv("SHARED_GPU_OF");
  static const Plugin plugin = OpenPlugin(path ? path : "SHARED_GPU_OF");
  return plugin;
}

int CountShares(std::string* why) {
  if (Real().devices > 0) return kShares;
  *why = Describe(Real());
  return 0;
}

Device* OpenShare(int index) {
  if (index >= kShares) throw ConfigError("there are eight shares of the GPU");
  return std::make_unique<SharedGpu>(std::unique_ptr<Device>(Real().table->open(0))).release();
}

const PluginTable& Table() {
  static const std::string build = std::string(Build().version) + " (" + Build().commit + ")";
  static const PluginTable table{.build = build.c_str(), .count = CountShares, .open = OpenShare};
  return table;
}

}  // namespace
}  // namespace trainyard

extern "C" __attribute__((visibility("default"))) const trainyard::PluginTable* trainyard_plugin_1() {
  return &trainyard::Table();
}

#include "trainer/train/usable_gpus.h"

#include <algorithm>
#include <string>

#include "trainer/base/text.h"
#include "trainer/device/plugin.h"

namespace trainyard {
namespace {

// Why these cannot be used; empty where they can.
std::string WhyNot(const std::vector<Gpu>& gpus) {
  // The compute capability, times ten, that LibTorch and the plug-in (cmake/Cuda.cmake) have code for.
  constexpr int kLeast = 75;
  const auto capability = [](const Gpu& gpu) { return gpu.major * 10 + gpu.minor; };
  const Gpu& oldest = *std::ranges::min_element(gpus, {}, capability);
  if (capability(oldest) < kLeast)
    return Format("%s has compute capability %d.%d, below 7.5", oldest.name.c_str(), oldest.major, oldest.minor);
  const Plugin& plugin = CudaPlugin();
  return plugin.devices > 0 ? "" : Describe(plugin);
}

}  // namespace

void PutAsideUnusable(Hardware& hardware) {
  if (hardware.gpus.empty()) return;
  const std::string why = WhyNot(hardware.gpus);
  if (why.empty()) return;
  hardware.unused_gpus = Format("%zu seen, the first %s, and not used: %s", hardware.gpus.size(),
                                hardware.gpus.front().name.c_str(), why.c_str());
  hardware.gpus.clear();
}

}  // namespace trainyard

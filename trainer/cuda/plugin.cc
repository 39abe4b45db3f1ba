#include "common/build_info.h"
#include "trainer/cuda/cuda_device.h"
#include "trainer/device/plugin_table.h"

namespace trainyard {
namespace {

const PluginTable& Table() {
  static const std::string build = std::string(Build().version) + " (" + Build().commit + ")";
  static const PluginTable table{.build = build.c_str(), .count = CountCudaDevices, .open = [](int index) {
                                   return OpenCudaDevice(index).release();
                                 }};
  return table;
}

}  // namespace
}  // namespace trainyard

extern "C" __attribute__((visibility("default"))) const trainyard::PluginTable* trainyard_plugin_1() {
  return &trainyard::Table();
}

// The far device as a plug-in: the whole trainer on it, by `--set parallel.device=cuda`
// (tests/integration/test_device.py).
#include "common/build_info.h"
#include "tests/device/far_device.h"
#include "trainer/base/error.h"
#include "trainer/device/plugin_table.h"

namespace trainyard {
namespace {

const PluginTable& Table() {
  static const std::string build = std::string(Build().version) + " (" + Build().commit + ")";
  static const PluginTable table{.build = build.c_str(),
                                 .count = [](std::string*) { return kFarDevices; },
                                 .open =
                                     [](int index) {
                                       if (index >= kFarDevices) throw ConfigError("there are eight far devices");
                                       return MakeFarDevice(index).release();
                                     }};
  return table;
}

}  // namespace
}  // namespace trainyard

extern "C" __attribute__((visibility("default"))) const trainyard::PluginTable* trainyard_plugin_1() {
  return &trainyard::Table();
}

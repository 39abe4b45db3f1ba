#include "trainer/device/open_device.h"

#include "trainer/base/error.h"
#include "trainer/device/host_device.h"
#include "trainer/device/plugin.h"

namespace trainyard {

std::unique_ptr<Device> OpenDevice(const std::string& kind, int local_rank) {
  if (kind == "cpu") return MakeHostDevice();
  const Plugin& plugin = CudaPlugin();
  if (plugin.devices == 0)
    throw ConfigError("parallel.device: cuda: " + Describe(plugin) +
                      "; with cpu ranks compute on the host's processors");
  try {
    return std::unique_ptr<Device>(plugin.table->open(local_rank));
  } catch (const ConfigError& error) {
    throw ConfigError(std::string("parallel.device: cuda: ") + error.what());
  }
}

}  // namespace trainyard

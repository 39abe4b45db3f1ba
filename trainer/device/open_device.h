// The device that a configuration names.
#ifndef TRAINYARD_TRAINER_DEVICE_OPEN_DEVICE_H_
#define TRAINYARD_TRAINER_DEVICE_OPEN_DEVICE_H_

#include <memory>
#include <string>

#include "trainer/device/device.h"

namespace trainyard {

// `kind`: parallel.device, cpu or cuda; of GPUs a rank takes the one of its number on its node. Throws ConfigError that
// names the field where the plug-in does not open, sees no device, or not as many.
std::unique_ptr<Device> OpenDevice(const std::string& kind, int local_rank);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_OPEN_DEVICE_H_

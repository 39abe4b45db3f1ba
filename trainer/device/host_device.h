// The host's processors, as a device.
#ifndef TRAINYARD_TRAINER_DEVICE_HOST_DEVICE_H_
#define TRAINYARD_TRAINER_DEVICE_HOST_DEVICE_H_

#include <memory>

#include "trainer/device/device.h"

namespace trainyard {

// An upload is the tensor itself, and Gloo connects it; a world of one needs nobody.
std::unique_ptr<Device> MakeHostDevice();

// The same, for whoever needs none of their own.
Device& Host();

// Uses the rank's threads; the same bits for any number of them.
FlatMath& HostMath();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_HOST_DEVICE_H_

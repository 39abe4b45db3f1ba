// A device for tests on machines without one: its memory is the host's, and can be touched only while an operation of
// this device runs. Whoever reads or writes it from elsewhere gets a segmentation fault. LibTorch knows it as
// PrivateUse1, and computes on it with the operations of the CPU.
#ifndef TRAINYARD_TESTS_DEVICE_FAR_DEVICE_H_
#define TRAINYARD_TESTS_DEVICE_FAR_DEVICE_H_

#include <memory>

#include "trainer/device/device.h"

namespace trainyard {

// As many as LibTorch is told of.
inline constexpr int kFarDevices = 8;

// REQUIRES: index < kFarDevices.
std::unique_ptr<Device> MakeFarDevice(int index);

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_DEVICE_FAR_DEVICE_H_

// An NVIDIA GPU.
#ifndef TRAINYARD_TRAINER_CUDA_CUDA_DEVICE_H_
#define TRAINYARD_TRAINER_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "trainer/device/device.h"

namespace trainyard {

// As PluginTable::count and PluginTable::open.
int CountCudaDevices(std::string* why);
std::unique_ptr<Device> OpenCudaDevice(int index);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CUDA_CUDA_DEVICE_H_

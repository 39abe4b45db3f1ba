// The GPUs that this process may use.
#ifndef TRAINYARD_TRAINER_HARDWARE_GPUS_H_
#define TRAINYARD_TRAINER_HARDWARE_GPUS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

struct Gpu {
  std::string name;          // "NVIDIA L4"
  uint64_t total_bytes = 0;  // as the driver reports it: a "24 GB" L4 has 22.5 GiB
  uint64_t free_bytes = 0;   // now; other processes may hold the rest
  int major = 0, minor = 0;  // of the compute capability: 8.9
};

// In the order in which local ranks take them (CUDA_VISIBLE_DEVICES is obeyed); the same in each call. None without the
// CUDA plug-in, whose part this is. Holds no memory on any of them afterwards.
std::vector<Gpu> VisibleGpus();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_HARDWARE_GPUS_H_

// The GPUs that this process may use.
#ifndef TRAINYARD_TRAINER_HARDWARE_GPUS_H_
#define TRAINYARD_TRAINER_HARDWARE_GPUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainyard {

struct Gpu {
  std::string name;                    // "NVIDIA L4"
  uint64_t total_bytes = 0;            // as the driver reports it: a "24 GB" L4 has 22.5 GiB
  std::optional<uint64_t> free_bytes;  // now; other processes may hold the rest. Nothing where NVML is not there.
  int major = 0, minor = 0;            // of the compute capability: 8.9
};

struct SeenGpus {
  std::vector<Gpu> gpus;
  std::string problem;  // why a driver that is there names none: "cuInit: error 999"; may be empty
};

// Those of the driver, in the order in which local ranks take them (CUDA_VISIBLE_DEVICES is obeyed); none without one.
// Asks the driver in every call: free_bytes is of that moment.
// Holds no memory on any of them. After a process has called this, what it forks must not compute on a GPU before it
// has executed another program.
SeenGpus VisibleGpus();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_HARDWARE_GPUS_H_

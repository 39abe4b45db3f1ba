// What of this machine a run may use: what its cgroup leaves, and not what the machine has.
#ifndef TRAINYARD_TRAINER_HARDWARE_HARDWARE_H_
#define TRAINYARD_TRAINER_HARDWARE_HARDWARE_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/cpus.h"
#include "trainer/base/memory.h"
#include "trainer/hardware/gpus.h"

namespace trainyard {

// A file system.
struct Space {
  std::string path;  // that was asked about: the folder, or the nearest one above it that is there
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;  // for this user
};

struct Hardware {
  std::vector<Gpu> gpus;    // that the run may compute with
  std::string unused_gpus;  // for people: what else there is, and why it is not used; may be empty
  std::string gpu_problem;  // SeenGpus::problem
  Cpus cpus;
  MemoryLimit memory{0, ""};
  std::optional<Space> shm;   // /dev/shm; nothing where it is not there
  std::optional<Space> disk;  // where checkpoints go; nothing where that could not be seen

  // Of the GPU that has least; 0 without GPUs.
  uint64_t LeastGpuBytes() const;
};

// As it is now. A driver of GPUs, which may take seconds to answer, or be stuck, is asked where `ask_for_gpus`.
Hardware SeeHardware(const std::filesystem::path& checkpoint_dir, bool ask_for_gpus);

// A line for each part: {"GPUs", "2: NVIDIA L4, 22.5 GiB (22.1 GiB free), compute capability 8.9; ..."}.
struct HardwareLine {
  std::string name, value;
};
std::vector<HardwareLine> Describe(const Hardware& hardware);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_HARDWARE_HARDWARE_H_

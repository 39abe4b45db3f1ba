#include "trainer/hardware/hardware.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <utility>

#include "trainer/base/text.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

// Of the file system that the folder is on, or will be.
std::optional<Space> SpaceOf(fs::path folder) {
  std::error_code error;
  folder = fs::absolute(folder, error);
  while (!error && !fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  struct statvfs at {};
  if (statvfs(folder.c_str(), &at) != 0) return std::nullopt;
  return Space{
      .path = folder.string(), .total_bytes = at.f_blocks * at.f_frsize, .free_bytes = at.f_bavail * at.f_frsize};
}

std::string Bytes(uint64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

std::string DescribeGpu(const Gpu& gpu) {
  return Format("%s, %s (%s free), compute capability %d.%d", gpu.name.c_str(), Bytes(gpu.total_bytes).c_str(),
                gpu.free_bytes ? Bytes(*gpu.free_bytes).c_str() : "unknown how much is", gpu.major, gpu.minor);
}

std::string DescribeCpus(const Cpus& cpus) {
  std::string limits;
  if (cpus.affinity < cpus.machine) limits += Format(", affinity mask %d", cpus.affinity);
  if (cpus.cpuset) limits += Format(", cpuset %d", *cpus.cpuset);
  if (cpus.quota) limits += Format(", quota %g", *cpus.quota);
  return Format("%d: %s (machine %d%s)", cpus.count, cpus.why.c_str(), cpus.machine, limits.c_str());
}

}  // namespace

uint64_t Hardware::LeastGpuBytes() const {
  uint64_t least = gpus.empty() ? 0 : gpus.front().total_bytes;
  for (const Gpu& gpu : gpus) least = std::min(least, gpu.total_bytes);
  return least;
}

Hardware SeeHardware(const fs::path& checkpoint_dir, bool ask_for_gpus) {
  SeenGpus seen = ask_for_gpus ? VisibleGpus() : SeenGpus();
  Hardware hardware;
  hardware.gpus = std::move(seen.gpus);
  hardware.gpu_problem = std::move(seen.problem);
  hardware.cpus = AvailableCpus();
  hardware.memory = MemoryLimitHere();
  std::error_code none;
  if (fs::is_directory("/dev/shm", none)) hardware.shm = SpaceOf("/dev/shm");
  if (!checkpoint_dir.empty()) hardware.disk = SpaceOf(checkpoint_dir);
  return hardware;
}

std::vector<HardwareLine> Describe(const Hardware& hardware) {
  std::vector<std::string> gpus;
  for (const Gpu& gpu : hardware.gpus) gpus.push_back(DescribeGpu(gpu));
  const std::string why =
      hardware.gpu_problem.empty() ? hardware.unused_gpus : "their driver says " + hardware.gpu_problem;
  const std::string none = why.empty() ? "none" : "none: " + why;
  std::vector<HardwareLine> lines = {{"GPUs", gpus.empty() ? none : Format("%zu: ", gpus.size()) + Join(gpus, "; ")},
                                     {"CPUs", DescribeCpus(hardware.cpus)},
                                     {"memory", Bytes(hardware.memory.bytes) + ", " + hardware.memory.source}};
  if (hardware.shm)
    lines.push_back({"/dev/shm", Format("%s, %s free", Bytes(hardware.shm->total_bytes).c_str(),
                                        Bytes(hardware.shm->free_bytes).c_str())});
  lines.push_back({"disk", hardware.disk
                               ? Format("%s free of %s at %s", Bytes(hardware.disk->free_bytes).c_str(),
                                        Bytes(hardware.disk->total_bytes).c_str(), hardware.disk->path.c_str())
                               : "not seen"});
  return lines;
}

}  // namespace trainyard

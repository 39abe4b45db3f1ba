// How much memory this process may use, and uses.
#ifndef TRAINYARD_TRAINER_BASE_MEMORY_H_
#define TRAINYARD_TRAINER_BASE_MEMORY_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trainyard {

struct MemoryLimit {
  uint64_t bytes;
  std::string source;  // "the machine's memory", or the file with the limit
};

// The smallest of the machine's memory and the limits of the process's cgroups (version 1 or 2). What
// cannot be read does not limit. `root`: where /proc and /sys lie.
MemoryLimit MemoryLimitHere(const std::filesystem::path& root = "/");

// What is freed on the heap stays with this process, in pieces of up to 32 MiB, for what it allocates next. Once, at
// the start. A training step takes and frees the same as the one before: given back to the kernel each time, every page
// of it would be faulted in and cleared anew. Large tensors are elsewhere, where they can be (device/tensor_memory.h).
void KeepFreedMemory();

// The limit of this process's addresses, or of its data, whichever is smaller: "ulimit -v: 1.0 GiB"; empty without.
// Which of what it maps counts is setrlimit(2)'s matter, so that it is no size that a plan could be held to.
std::string ProcessMemoryLimit();

// Says how many processes the kernel has killed so far for want of memory, whatever it was that ran out: of this
// process's cgroup, or of the nearest one around it that tells it (memory.events, or memory.oom_control of version 1),
// else of the machine (/proc/vmstat); nothing where none does. Which it is is found now, once. `root` as above.
std::function<std::optional<uint64_t>()> OomKillCounter(const std::filesystem::path& root = "/");

// What this process has in memory now; nothing when the system does not say.
std::optional<uint64_t> ResidentBytes();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_MEMORY_H_

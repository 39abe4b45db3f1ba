// When this process began: what its counters count from.
#ifndef TRAINYARD_COMMON_PROCESS_START_H_
#define TRAINYARD_COMMON_PROCESS_START_H_

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trainyard {

// In seconds since the epoch, to a second or so: proc(5)'s btime and, in ticks after it, the process' starttime. None
// where they cannot be read. Constant while the process lives: asked once.
std::optional<double> ProcessStart();

// The same of a file system under `proc` (stat and self/stat).
std::optional<double> ReadProcessStart(const std::filesystem::path& proc, int64_t ticks_per_second);

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_PROCESS_START_H_

// What people read of an error.
#ifndef TRAINYARD_TRAINER_BASE_MESSAGE_H_
#define TRAINYARD_TRAINER_BASE_MESSAGE_H_

#include <exception>
#include <optional>
#include <string>

namespace trainyard {

// "out of memory: 256.0 MiB more could not be had", for a failed allocation of the C++ library or of LibTorch; nothing
// for any other error, of whatever a typed one (error.h) tells as well.
std::optional<std::string> FailedAllocation(const std::exception& error);

// What keeps a process or a thread from being started.
inline constexpr char kThreadLimits[] =
    "ulimit -u and a container's pids.max for how many there may be, ulimit -v for their stacks";

// Without the C++ frames that LibTorch puts behind its errors, and of at most 16 KiB: a file of strangers may have
// names of megabytes. Valid UTF-8. Of a thread that could not be started, which limits those are.
std::string MessageOf(const std::exception& error);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_MESSAGE_H_

// What people read of an error.
#ifndef TRAINYARD_TRAINER_BASE_MESSAGE_H_
#define TRAINYARD_TRAINER_BASE_MESSAGE_H_

#include <exception>
#include <optional>
#include <string>

#include "trainer/base/error.h"

namespace trainyard {

// "out of memory: 256.0 MiB more could not be had", for a failed allocation of the C++ library or of LibTorch; nothing
// for any other error, of whatever a typed one (error.h) tells as well.
std::optional<std::string> FailedAllocation(const std::exception& error);

// The exit code that an error is: a typed one's own; 71 for a failed allocation, 74 for a file system's, else 70.
ExitCode CodeOf(const std::exception& error);

// What keeps a process or a thread from being started.
inline constexpr char kThreadLimits[] =
    "ulimit -u and a container's pids.max for how many there may be, ulimit -v and -d for their stacks";

// Whether a library's message, of which the code is lost, is that no thread could be started.
bool IsOfThreads(const std::string& message);

// Without the C++ frames that LibTorch puts behind its errors, and of at most 16 KiB: a file of strangers may have
// names of megabytes. Valid UTF-8. Of a thread that could not be started, which limits those are.
std::string MessageOf(const std::exception& error);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_MESSAGE_H_

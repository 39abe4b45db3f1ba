// A container's processes are a session of their own: finding and ending all of them.
#ifndef TRAINYARD_OPERATOR_LOCAL_SESSION_H_
#define TRAINYARD_OPERATOR_LOCAL_SESSION_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace trainyard::local {

// When the process `pid` started, in clock ticks since boot; nothing when there is none. With the pid
// it names a process for ever.
std::optional<std::string> StartTime(pid_t pid);

// Sends SIGKILL to every process of the session `id`, also to those in process groups of their own, until
// none is left, for a second at most. A process that began a session of its own is not among them.
void KillSession(pid_t id);

// The same for a session of an earlier life of this program, whose leader `id` started at `start`: the leader may be
// gone, and then what carries `variable` (NAME=value) in its environment is of that session, whatever has become of
// its number. Returns whether there was anything.
bool KillOldSession(pid_t id, const std::string& start, const std::string& variable);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_SESSION_H_

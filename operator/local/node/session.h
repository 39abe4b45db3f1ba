// A container's processes are a session, and carry a variable of their own: finding and ending all of them, but never
// the process that asks, which may have been started by one.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_SESSION_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_SESSION_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace trainyard::local {

// When the process `pid` started, in clock ticks since boot; nothing when there is none. With the pid
// it names a process until the next boot; with BootId, for ever.
std::optional<std::string> StartTime(pid_t pid);
// What the kernel calls this boot; empty where it does not say.
std::string BootId();

// Sends SIGKILL to every process of the session `id`, also to those in process groups of their own, until
// none is left: once at least, and then for a second at most.
void KillSession(pid_t id);

// The same, and to every process that carries `variable` (NAME=value) in its environment: what the container has put
// into sessions of its own goes with it, unless it took the variable away.
void KillContainer(pid_t id, const std::string& variable);

// What an earlier life of this program has left behind: a session whose leader `id` started at `start`, if that still
// lives, and what carries the container's variable, whoever leads it. They return whether there was anything.
bool KillOldSession(pid_t id, const std::string& start);
bool KillCarriers(const std::string& variable);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_SESSION_H_

// Processes of the selftest: forked, without an exec, so that they need no command line of their own.
#ifndef TRAINYARD_TRAINER_SELFTEST_PROCESSES_H_
#define TRAINYARD_TRAINER_SELFTEST_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

namespace trainyard::selftest {

// Runs `check` in a process of its own, which ends with 0 if it returns true; what it throws stands on standard error.
// REQUIRES: no thread was started yet. Throws Error.
pid_t Fork(const std::function<bool()>& check);
// Waits for its end.
bool Succeeded(pid_t child);

// A line of text to the process that started the group.
using Tell = std::function<void(const std::string& line)>;

// Runs `body(rank, tell)` in `size` processes. `hear` gets each line as it comes. Returns why it failed: what the first
// process that failed has thrown, or that not all have ended within `deadline`, when those that are left are killed;
// empty when all returned.
std::string RunGroup(int size, std::chrono::seconds deadline,
                     const std::function<void(int rank, const Tell& tell)>& body, const Tell& hear);

}  // namespace trainyard::selftest

#endif  // TRAINYARD_TRAINER_SELFTEST_PROCESSES_H_

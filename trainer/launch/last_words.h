// Writes a pod's termination message, and what keeps a file that takes nothing from keeping the process.
#ifndef TRAINYARD_TRAINER_LAUNCH_LAST_WORDS_H_
#define TRAINYARD_TRAINER_LAUNCH_LAST_WORDS_H_

#include <chrono>
#include <functional>
#include <string>

namespace trainyard {

// Calls `call` on a thread of its own. Returns whether it came back in time; one that did not is left to itself and
// ends with the process, so it must own what it uses. Where there can be no thread it is waited for.
bool Within(std::chrono::milliseconds patience, std::function<void()> call);

// Replaces what is in the file, which a kubelet has mounted and which therefore cannot be replaced itself. Only a
// regular file is written, and for five seconds at most. Returns what went wrong, with the file's name; empty: nothing.
std::string WriteLastWords(const std::string& path, const std::string& text);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_LAST_WORDS_H_

// Writes a pod's termination message.
#ifndef TRAINYARD_TRAINER_LAUNCH_LAST_WORDS_H_
#define TRAINYARD_TRAINER_LAUNCH_LAST_WORDS_H_

#include <string>

namespace trainyard {

// Replaces what is in the file, which a kubelet has mounted and which therefore cannot be replaced itself. Only a
// regular file is written, and for five seconds at most. Returns what went wrong, with the file's name; empty: nothing.
std::string WriteLastWords(const std::string& path, const std::string& text);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_LAST_WORDS_H_

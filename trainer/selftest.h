// `trainyard selftest`: whether this machine does what training relies on, before a long run finds out.
#ifndef TRAINYARD_TRAINER_SELFTEST_H_
#define TRAINYARD_TRAINER_SELFTEST_H_

#include <filesystem>

namespace trainyard {

// Two processes exchange numbers over Gloo, and compare what comes of it; in `directory` a file takes another one's
// place, is made durable and locked. Prints a line for each check, and what it cannot check. Makes files there and
// removes them. Returns the exit code: 69 when communication failed, 74 when storage did. Throws ConfigError when
// nothing can be written there. REQUIRES: no thread was started yet (it forks).
int SelfTest(const std::filesystem::path& directory);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_SELFTEST_H_

// `trainyard selftest`: whether this machine does what training relies on, before a long run finds out.
#ifndef TRAINYARD_TRAINER_SELFTEST_SELFTEST_H_
#define TRAINYARD_TRAINER_SELFTEST_SELFTEST_H_

#include <filesystem>
#include <optional>

namespace trainyard {

// Processes exchange numbers over Gloo, and compare what comes of it; they train a small model in every stage, and
// compare every bit; in `directory` a file takes another one's place, is made durable and locked. Rates of collectives
// and directory are measured. Worlds of 2 and, where CPUs and memory allow it, of 3 and more ranks are made: `ranks` is
// the largest; nothing: as many as there are CPUs, from 3 to 8. Says on standard error what it does; prints a line for
// each finding, what it cannot check, and a verdict, or all of it as JSON (docs/selftest.md). Makes files there and
// removes them. Returns the exit code: 69 when communication failed, 70 when stages train to other bits, 74 when
// storage did. Throws ConfigError when nothing can be written there. REQUIRES: no thread was started yet (it forks).
int SelfTest(const std::filesystem::path& directory, std::optional<int> ranks, bool json);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_SELFTEST_SELFTEST_H_

// Whether a directory is a place for checkpoints, and how fast it is.
#ifndef TRAINYARD_TRAINER_SELFTEST_STORAGE_H_
#define TRAINYARD_TRAINER_SELFTEST_STORAGE_H_

#include <filesystem>

#include "trainer/selftest/finding.h"

namespace trainyard::selftest {

// A file takes another one's place and is durable; a lock holds between processes; so many bytes a second are written
// with fsync, and read from the device as far as the kernel lets go of what it keeps. Its files are removed. What goes
// wrong is a finding. REQUIRES: no thread was started yet (it forks).
Findings CheckStorage(const std::filesystem::path& directory, const Announce& announce);

}  // namespace trainyard::selftest

#endif  // TRAINYARD_TRAINER_SELFTEST_STORAGE_H_

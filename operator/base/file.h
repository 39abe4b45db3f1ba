// Files that are there whole or not at all.
#ifndef TRAINYARD_OPERATOR_BASE_FILE_H_
#define TRAINYARD_OPERATOR_BASE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "operator/base/status.h"

namespace trainyard {

// Puts `text` under `path`, through a file beside it that is renamed. kInvalid, naming the path and the
// system's reason, when the disk refuses; then what was there before is still there. `sync`: it is on
// the disk itself before this returns, not only in the kernel.
Status WriteWhole(const std::filesystem::path& path, const std::string& text, mode_t mode, bool sync);

// All bytes of a file ("-": of standard input), or the first `most`: an endless one ends there. kNotFound when it
// cannot be read.
Result<std::string> ReadWhole(const std::filesystem::path& path, size_t most = SIZE_MAX);

// Writes all of it to an open file. The errno of the first failure, or 0.
int WriteAll(int file, const std::string& text);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_FILE_H_

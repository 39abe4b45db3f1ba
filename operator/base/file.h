// Files that are there whole or not at all, and files that others may put something else in the place of.
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
// the disk itself, under its name, before this returns, not only in the kernel; when only the name cannot be
// brought there, that is kInvalid as well, and `text` may be found or what was there before.
// REQUIRES: nobody else writes under `path` meanwhile.
Status WriteWhole(const std::filesystem::path& path, const std::string& text, mode_t mode, bool sync);

// As open(2), of a regular file alone: what a FIFO or a device would do to a reader or a writer, wait or never end, a
// stranger could do to us. -1 and errno: EINVAL for what is no such file.
int OpenRegular(const std::filesystem::path& path, int flags, mode_t mode = 0);

// A regular file, open for reading.
class RegularFile {
 public:
  explicit RegularFile(const std::filesystem::path& path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  // False when there is none, or something else in its place; it is empty then.
  bool is_open() const { return file_ >= 0; }
  // As of now: it may grow while it is read.
  uint64_t size() const;
  // Up to `most` bytes from `offset` on: fewer where the file ends.
  std::string Read(uint64_t offset, size_t most) const;
  // Where the first bytes that take disk are, from `offset` on; `offset` itself where there are none, or where the file
  // system does not say (lseek(2), SEEK_DATA).
  uint64_t DataFrom(uint64_t offset) const;

 private:
  const int file_;
};

// All bytes of a file ("-": of standard input), or the first `most`: an endless one ends there. kNotFound when it
// cannot be read.
Result<std::string> ReadWhole(const std::filesystem::path& path, size_t most = SIZE_MAX);

// The same of a regular file, never waiting for one: kNotFound, too, for whatever else stands there.
Result<std::string> ReadRegular(const std::filesystem::path& path, size_t most);

// Writes all of it to an open file. The errno of the first failure, or 0.
int WriteAll(int file, const std::string& text);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_FILE_H_

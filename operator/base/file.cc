#include "operator/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trainyard {

int WriteAll(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    done += static_cast<size_t>(written);
  }
  return 0;
}

namespace {

// A name is the folder's, and is on the disk when the folder is. The errno of what refused, or 0.
int SyncFolder(const std::filesystem::path& folder) {
  const int file = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return errno;
  // Some file systems know no such thing: there is nothing to wait for.
  const int error = fsync(file) == 0 || errno == EINVAL ? 0 : errno;
  close(file);
  return error;
}

}  // namespace

Status WriteWhole(const std::filesystem::path& path, const std::string& text, mode_t mode, bool sync) {
  const std::string part = path.string() + ".tmp";
  const auto refused = [&](int error) {
    return Status(Code::kInvalid, path.string() + ": cannot be written: " + std::strerror(error));
  };
  // What stands there is what an interruption left, or a stranger's: a FIFO would be waited for.
  unlink(part.c_str());
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) return refused(errno);
  int error = WriteAll(file, text);
  if (error == 0 && sync && fsync(file) != 0) error = errno;
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(part.c_str());
    return refused(error);
  }
  if (sync) error = SyncFolder(path.parent_path());
  return error == 0 ? Status::Ok() : refused(error);
}

int OpenRegular(const std::filesystem::path& path, int flags, mode_t mode) {
  const int file = open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);
  if (file < 0) return -1;
  struct stat info {};
  int error = fstat(file, &info) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(info.st_mode)) error = EINVAL;
  if (error == 0 && fcntl(file, F_SETFL, flags) != 0) error = errno;
  if (error == 0) return file;
  close(file);
  errno = error;
  return -1;
}

RegularFile::RegularFile(const std::filesystem::path& path) : file_(OpenRegular(path, O_RDONLY)) {}

RegularFile::~RegularFile() {
  if (file_ >= 0) close(file_);
}

uint64_t RegularFile::size() const {
  struct stat info {};
  return fstat(file_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

uint64_t RegularFile::DataFrom(uint64_t offset) const {
  const off_t data = lseek(file_, static_cast<off_t>(offset), SEEK_DATA);
  return data < 0 ? offset : static_cast<uint64_t>(data);
}

std::string RegularFile::Read(uint64_t offset, size_t most) const {
  std::string text(most, '\0');
  size_t done = 0;
  while (done < most) {
    const ssize_t got = pread(file_, text.data() + done, most - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

namespace {

// Takes `file`, or the errno of its opening when it is none.
Result<std::string> ReadAndClose(const std::filesystem::path& path, int file, size_t most) {
  std::string text;
  int error = file < 0 ? errno : 0;
  char part[1 << 16];
  while (error == 0 && text.size() < most) {
    const ssize_t got = read(file, part, std::min(sizeof part, most - text.size()));
    if (got == 0) break;
    if (got > 0) text.append(part, static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) error = errno;
  }
  if (file >= 0) close(file);
  if (error != 0) return Status(Code::kNotFound, path.string() + ": cannot be read: " + std::strerror(error));
  return text;
}

}  // namespace

Result<std::string> ReadWhole(const std::filesystem::path& path, size_t most) {
  return ReadAndClose(path, path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC), most);
}

Result<std::string> ReadRegular(const std::filesystem::path& path, size_t most) {
  const int file = OpenRegular(path, O_RDONLY);
  if (file < 0 && errno == EINVAL)
    return Status(Code::kNotFound, path.string() + ": cannot be read: it is no regular file");
  return ReadAndClose(path, file, most);
}

}  // namespace trainyard

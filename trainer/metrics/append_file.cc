#include "trainer/metrics/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/base/error.h"

namespace trainyard {

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path.string()), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw StorageError("cannot write " + path.string() + ": " + std::strerror(errno));
}

AppendFile::~AppendFile() { close(fd_); }

void AppendFile::Append(std::string_view bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = write(fd_, bytes.data() + written, bytes.size() - written);
    if (n >= 0) {
      written += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      break;
    }
  }
  if (written == bytes.size()) return;
  const int error = errno;
  // On a full disk half a piece would spoil the ones behind it.
  struct stat file {};
  if (written > 0 && fstat(fd_, &file) == 0 && S_ISREG(file.st_mode)) {
    [[maybe_unused]] const int ignored = ftruncate(fd_, file.st_size - static_cast<off_t>(written));
  }
  throw StorageError("cannot write " + path_ + ": " + std::strerror(error));
}

}  // namespace trainyard

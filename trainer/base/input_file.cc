#include "trainer/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"

namespace trainyard {
namespace {

constexpr size_t kPiece = 4 << 20;

[[noreturn]] void Fail(const std::filesystem::path& path, const std::string& problem) {
  throw StorageError("cannot read " + path.string() + ": " + problem);
}

[[noreturn]] void Refuse(const std::filesystem::path& path, const std::string& problem) {
  throw RefusedPathError("cannot read " + path.string() + ": " + problem);
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : path_(path),
      fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {  // a FIFO would wait for its writer
  if (fd_ < 0) {
    if (!IsRefusal(errno)) Fail(path_, std::strerror(errno));
    Refuse(path_, std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd_, &info) != 0) {
    const int error = errno;
    close(fd_);
    Fail(path_, std::strerror(error));
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd_);
    Refuse(path_, "not a regular file");
  }
  size_ = static_cast<uint64_t>(info.st_size);
  changed_ = info.st_mtim;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_), changed_(other.changed_) {}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

void InputFile::ReadAt(uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) Fail(path_, std::strerror(errno));
    if (got == 0) Fail(path_, "it ends at byte " + std::to_string(offset));
    offset += static_cast<uint64_t>(got);
    to = to.subspan(static_cast<size_t>(got));
  }
}

void InputFile::RequireUnchanged() const {
  struct stat now {};
  if (fstat(fd_, &now) != 0) Fail(path_, std::strerror(errno));
  const bool same = static_cast<uint64_t>(now.st_size) == size_ && now.st_mtim.tv_sec == changed_.tv_sec &&
                    now.st_mtim.tv_nsec == changed_.tv_nsec;
  if (!same) Fail(path_, "somebody has written to it since this run opened it");
}

uint64_t InputFile::Checksum(const Tick& tick) const {
  Xxh3Stream hash;
  std::vector<std::byte> piece(std::min<uint64_t>(size_, kPiece));
  for (uint64_t offset = 0; offset < size_; offset += piece.size()) {
    if (tick) tick();
    const auto part = std::span(piece).first(static_cast<size_t>(std::min<uint64_t>(piece.size(), size_ - offset)));
    ReadAt(offset, part);
    hash.Update(part);
  }
  return hash.Digest();
}

uint64_t InputFile::Glance() const {
  Xxh3Stream hash;
  const std::array<uint64_t, 1> size = {size_};
  hash.Update(std::as_bytes(std::span(size)));
  std::array<std::byte, 4096> piece;
  const std::span<std::byte> some(piece.data(), static_cast<size_t>(std::min<uint64_t>(size_, piece.size())));
  for (const uint64_t at : {uint64_t{0}, (size_ - some.size()) / 2, size_ - some.size()}) {
    ReadAt(at, some);
    hash.Update(some);
  }
  return hash.Digest();
}

uint64_t SizeOf(const std::filesystem::path& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (!IsRefusal(errno)) Fail(path, std::strerror(errno));
    Refuse(path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) Refuse(path, "not a regular file");
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace trainyard

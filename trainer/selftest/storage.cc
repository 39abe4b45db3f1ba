#include "trainer/selftest/storage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "trainer/base/clock.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/selftest/processes.h"

namespace trainyard::selftest {
namespace {

namespace fs = std::filesystem;

constexpr double kMostBytes = 64 << 20;
constexpr size_t kPiece = 1 << 20;

Finding Durability(const fs::path& file) {
  const std::string first(1 << 20, 'a'), second(1 << 20, 'b');
  WriteFileAtomic(file, first);
  const double begin = SteadySeconds();
  WriteFileAtomic(file, second);
  const double seconds = SteadySeconds() - begin;
  if (ReadFile(file) != second) throw StorageError("a file that was replaced has not the new content");
  SyncDirectory(file.parent_path());
  return {"storage",
          true,
          Format("storage: a file takes another's place, with fsync of file and folder, in %.1f ms for 1 MiB",
                 seconds * 1e3),
          {{"replace_seconds", seconds}}};
}

Finding Locks(const fs::path& file) {
  const auto locks = [&] {
    const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    const bool got = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return got;
  };
  const int held = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (held < 0 || flock(held, LOCK_EX | LOCK_NB) != 0) throw StorageError("flock fails");
  const bool excluded = !Succeeded(Fork(locks));
  close(held);
  if (!excluded) throw StorageError("flock lets two processes in");
  if (!Succeeded(Fork(locks))) throw StorageError("flock is not given back");
  return {"storage", true, "storage: a lock (flock) holds between processes, and is given back"};
}

[[noreturn]] void Refuse(const char* what) { throw StorageError(std::string(what) + ": " + std::strerror(errno)); }

// Closed at the end of its scope.
struct File {
  int fd;
  ~File() { close(fd); }
};

Finding Bandwidth(const fs::path& file, std::optional<double> free_bytes) {
  const auto pieces = static_cast<size_t>(std::min(kMostBytes, free_bytes.value_or(4 * kMostBytes) / 4)) / kPiece;
  if (pieces == 0) return {"storage", true, "storage: less than 4 MiB are free, which is too little to measure a rate"};
  const double bytes = static_cast<double>(pieces * kPiece);
  std::vector<char> piece(kPiece);
  const File open_file{open(file.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC)};
  if (open_file.fd < 0) Refuse("open");
  unlink(file.c_str());  // whoever interrupts this, where it takes longest, leaves nothing
  const double begin = SteadySeconds();
  for (size_t k = 0; k < pieces; ++k) {
    for (size_t i = 0; i < kPiece; i += 64) piece[i] = static_cast<char>(k + i / 64);  // nothing to compress away
    if (write(open_file.fd, piece.data(), kPiece) != static_cast<ssize_t>(kPiece)) Refuse("write");
  }
  if (fsync(open_file.fd) != 0) Refuse("fsync");
  const double written = SteadySeconds();
  posix_fadvise(open_file.fd, 0, 0, POSIX_FADV_DONTNEED);
  for (size_t k = 0; k < pieces; ++k) {
    if (pread(open_file.fd, piece.data(), kPiece, static_cast<off_t>(k * kPiece)) != static_cast<ssize_t>(kPiece))
      Refuse("read");
    for (size_t i = 0; i < kPiece; i += 64) {
      if (piece[i] != static_cast<char>(k + i / 64)) throw StorageError("what was read is not what was written");
    }
  }
  const double read = SteadySeconds(), write_rate = bytes / (written - begin), read_rate = bytes / (read - written);
  return {"storage",
          true,
          Format("storage: %s/s written and made durable, %s/s read, in a file of %s", HumanBytes(write_rate).c_str(),
                 HumanBytes(read_rate).c_str(), HumanBytes(bytes).c_str()),
          {{"write_bytes_per_second", write_rate}, {"read_bytes_per_second", read_rate}, {"bytes", bytes}}};
}

}  // namespace

Findings CheckStorage(const fs::path& directory, const Announce& announce) {
  const fs::path file = directory / Format("trainyard-selftest-%d", static_cast<int>(getpid()));
  Findings findings;
  try {
    announce("storage");
    findings.push_back(Durability(file));
    findings.push_back(Locks(file));
    announce("storage: rates");
    const std::optional<double> free_bytes = FreeBytes(directory);
    findings.push_back(Bandwidth(file, free_bytes));
    if (free_bytes) {
      findings.push_back({"storage",
                          true,
                          Format("storage: %s has %s free", directory.c_str(), HumanBytes(*free_bytes).c_str()),
                          {{"free_bytes", *free_bytes}}});
    } else {
      findings.push_back({"storage", true, "storage: " + directory.string() + " does not say how much is free"});
    }
  } catch (const std::exception& error) {
    findings.push_back({"storage", false, "storage in " + directory.string() + ": " + error.what()});
  }
  std::error_code ignored;
  fs::remove(file, ignored);
  return findings;
}

}  // namespace trainyard::selftest

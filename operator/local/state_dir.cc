#include "operator/local/state_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>

#include "operator/base/file.h"

namespace trainyard::local {
namespace {

Status Fail(const std::filesystem::path& path, const std::string& what, int error) {
  return Status(Code::kInvalid, "--state-dir: " + path.string() + " " + what + ": " + std::strerror(error));
}

// A name that nobody has: 64 random bits.
Result<std::filesystem::path> NewFolder() {
  std::error_code error;
  std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error) return Fail(base, "cannot be used", error.value());
  std::random_device random;
  std::ostringstream name;
  name << "trainyard-" << std::hex << (uint64_t{random()} << 32 | random());
  std::filesystem::path folder = base / name.str();
  if (mkdir(folder.c_str(), 0700) != 0) return Fail(folder, "cannot be made", errno);
  return folder;
}

// A predecessor that was killed, or a child that it was about to start, may take a moment to be gone.
bool Lock(int file) {
  for (int i = 0; i < 50; ++i) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return true;
    usleep(20000);
  }
  return false;
}

// The descriptor of the folder's lock, which is held.
Result<int> TakeLock(const std::filesystem::path& folder) {
  const int lock = open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return Fail(folder, "cannot be written", errno);
  if (Lock(lock)) return lock;
  close(lock);
  return Status(Code::kConflict, "--state-dir: " + folder.string() + " is in use by another trainyard-operator");
}

}  // namespace

Result<StateDir> StateDir::Open(const std::string& path) {
  std::filesystem::path folder = path;
  if (path.empty()) {
    Result<std::filesystem::path> made = NewFolder();
    if (!made.ok()) return made.status();
    folder = *made;
  } else {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return Fail(folder, "cannot be made", error.value());
  }
  // One spelling, whatever leads there: processes of an earlier life are known by it.
  std::error_code unresolved;
  folder = std::filesystem::canonical(folder, unresolved);
  if (unresolved) return Fail(path, "cannot be used", unresolved.value());
  const Result<int> lock = TakeLock(folder);
  if (lock.status().Is(Code::kConflict)) return Status(Code::kInvalid, lock.status().message() + "; choose another");
  if (!lock.ok()) return lock.status();
  return StateDir(folder, *lock);
}

Result<bool> StateDir::Hold() {
  struct stat held {};
  struct stat there {};
  const bool known = fstat(lock_, &held) == 0 && stat((path_ / "lock").c_str(), &there) == 0;
  if (known && held.st_dev == there.st_dev && held.st_ino == there.st_ino) return false;
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) return Fail(path_, "cannot be made", error.value());
  const Result<int> lock = TakeLock(path_);
  if (!lock.ok()) return lock.status();
  close(lock_);
  lock_ = *lock;
  return true;
}

StateDir::~StateDir() {
  if (lock_ >= 0) close(lock_);
}

Status StateDir::WriteSecret(const std::string& name, const std::string& text) const {
  return WriteWhole(path_ / name, text, 0600, false);
}

}  // namespace trainyard::local

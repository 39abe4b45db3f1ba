#include "trainer/base/file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/input_file.h"
#include "trainer/base/temporary_name.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

// So that the last fsync of a large file takes no minutes in which nothing is heard of it.
constexpr uint64_t kSyncEvery = 256 << 20;

[[noreturn]] void Fail(const std::string& what, const fs::path& path, int error) {
  throw StorageError("cannot " + what + " " + path.string() + ": " + std::strerror(error));
}

}  // namespace

fs::path ResolveVolume(const fs::path& path) {
  if (path.native().starts_with("~"))
    throw ConfigError(path.string() + ": ~ is the shell's, and no home directory here; write the path in full, or ./" +
                      path.string() + " for what has that name");
  const char* text = std::getenv("TRAINYARD_VOLUMES");
  if (!text || !*text || path.empty()) return path;
  const auto volumes = ParseJson(text);
  const bool good = volumes.is_object() && std::ranges::all_of(volumes, [](const auto& v) { return v.is_string(); });
  if (!good) throw ConfigError("TRAINYARD_VOLUMES: not a JSON object of mount path to folder: " + std::string(text));
  const std::string given = path.lexically_normal().string();
  std::string best_mount, best_host;
  for (const auto& [mount_path, host] : volumes.items()) {
    std::string mount = fs::path(mount_path).lexically_normal().string();
    while (mount.size() > 1 && mount.back() == '/') mount.pop_back();
    const bool inside = given == mount || given.starts_with(mount + "/");
    if (inside && mount.size() > best_mount.size()) {
      best_mount = mount;
      best_host = host.get<std::string>();
    }
  }
  if (best_mount.empty()) return path;
  return best_host + given.substr(best_mount.size());
}

bool IsRefusal(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
      return true;
    default:
      return false;
  }
}

fs::file_status LookAt(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!error || status.type() == fs::file_type::not_found) return status;
  if (error == std::errc::filename_too_long) return fs::file_status(fs::file_type::not_found);
  if (IsRefusal(error.value())) throw RefusedPathError("cannot look at " + path.string() + ": " + error.message());
  Fail("look at", path, error.value());
}

std::string ReadFile(const fs::path& path, uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit)
    throw StorageError(path.string() + ": " + HumanBytes(static_cast<double>(file.size())) + "; expected at most " +
                       HumanBytes(static_cast<double>(limit)));
  std::string content(file.size(), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(content)));
  return content;
}

void SyncDirectory(const fs::path& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) Fail("open directory", directory, errno);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  if (result != 0) Fail("sync directory", directory, error);
}

Replacement::Replacement(fs::path path, const std::function<void(const fs::path& temporary)>& write)
    : path_(std::move(path)), temporary_(TemporaryName(path_.string())) {
  try {
    write(temporary_);
  } catch (...) {
    unlink(temporary_.c_str());
    throw;
  }
}

Replacement::~Replacement() {
  if (!committed_) unlink(temporary_.c_str());
}

void Replacement::Commit() {
  if (rename(temporary_.c_str(), path_.c_str()) != 0) Fail("replace", path_, errno);
  committed_ = true;
  SyncDirectory(path_.parent_path().empty() ? "." : path_.parent_path());
}

void WriteFileAtomic(const fs::path& path, std::string_view content) {
  Replacement file(path, [&](const fs::path& temporary) {
    OutputFile output(temporary);
    output.Write(content);
    output.Close();
  });
  file.Commit();
}

void ThrowUnwritable(const std::string& what, int error) {
  const std::string text = what + ": " + std::strerror(error);
  if (IsRefusal(error)) throw ConfigError(text);
  throw StorageError(text);
}

void RequireWritableDirectory(const fs::path& directory, std::string_view field) {
  std::error_code error;
  fs::create_directories(directory, error);
  const fs::path probe = directory / Format(".probe-%d", getpid());
  const int fd = error ? -1 : open(probe.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0)
    ThrowUnwritable(std::string(field) + ": cannot write in " + directory.string(), error ? error.value() : errno);
  close(fd);
  unlink(probe.c_str());
}

std::optional<uint64_t> FreeBytes(const fs::path& directory) {
  struct statvfs info {};
  if (statvfs(directory.c_str(), &info) != 0) Fail("stat the file system of", directory, errno);
  if (info.f_blocks == 0) return std::nullopt;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

OutputFile::OutputFile(const fs::path& path)
    : path_(path), fd_(open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644)) {
  if (fd_ < 0) Fail("create", path_, errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

void OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      Fail("write", path_, errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    unsynced_ += static_cast<uint64_t>(written);
    if (unsynced_ < kSyncEvery) continue;
    if (fdatasync(fd_) != 0) Fail("sync", path_, errno);
    unsynced_ = 0;
  }
}

void OutputFile::Close() {
  if (fsync(fd_) != 0) Fail("sync", path_, errno);
  const int fd = fd_;
  fd_ = -1;
  if (close(fd) != 0) Fail("close", path_, errno);
}

}  // namespace trainyard

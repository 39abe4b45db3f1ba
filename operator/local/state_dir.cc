#include "operator/local/state_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace trainyard::local {
namespace {

constexpr char kSaved[] = "api.json";

Status Fail(const std::filesystem::path& path, const std::string& what, int error) {
  return Status(Code::kInvalid, "--state-dir: " + path.string() + " " + what + ": " + std::strerror(error));
}

// All of it on the disk under its final name, or an error and the old file.
Status WriteWhole(const std::filesystem::path& path, const std::string& text, mode_t mode) {
  const std::string part = path.string() + ".tmp";
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file < 0) return Fail(part, "cannot be written", errno);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      close(file);
      unlink(part.c_str());
      return Fail(part, "cannot be written", error);
    }
    done += static_cast<size_t>(written);
  }
  const bool closed = fsync(file) == 0 && close(file) == 0;
  if (!closed || rename(part.c_str(), path.c_str()) != 0) return Fail(path, "cannot be written", errno);
  return Status::Ok();
}

}  // namespace

Result<StateDir> StateDir::Open(const std::string& path) {
  std::filesystem::path folder = path;
  if (path.empty()) {
    const char* base = std::getenv("TMPDIR");
    std::string name = std::string(base && *base ? base : "/tmp") + "/trainyard-XXXXXX";
    if (!mkdtemp(name.data())) return Fail(name, "cannot be made", errno);
    folder = name;
  } else {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return Fail(folder, "cannot be made", error.value());
  }
  folder = std::filesystem::absolute(folder);
  const std::string lock_path = (folder / "lock").string();
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return Fail(folder, "cannot be written", errno);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return Status(Code::kInvalid,
                  "--state-dir: " + folder.string() + " is in use by another trainyard-operator; choose another");
  }
  return StateDir(folder, lock);
}

StateDir::~StateDir() {
  if (lock_ >= 0) close(lock_);
}

Status StateDir::Load(MemoryApi& api) const {
  std::ifstream file(path_ / kSaved, std::ios::binary);
  if (!file) return Status::Ok();
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return api.Load(Json::parse(text, nullptr, false)).With((path_ / kSaved).string());
}

Status StateDir::Save(const MemoryApi& api) {
  const uint64_t version = api.version();
  if (version == saved_) return Status::Ok();
  if (Status status = WriteWhole(path_ / kSaved, api.Dump().dump(-1, ' ', false, Json::error_handler_t::replace), 0600);
      !status.ok())
    return status;
  saved_ = version;
  return Status::Ok();
}

Status StateDir::WriteSecret(const std::string& name, const std::string& text) const {
  return WriteWhole(path_ / name, text, 0600);
}

}  // namespace trainyard::local

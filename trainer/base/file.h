// Files: whole reads, durable writes, and where a configured path really lies.
//
// Every function throws StorageError naming the path and the system's reason, unless it says
// otherwise. None keeps state; all are safe to call from any thread.
#ifndef TRAINYARD_TRAINER_BASE_FILE_H_
#define TRAINYARD_TRAINER_BASE_FILE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trainyard {

namespace fs = std::filesystem;

// Where `path` lies on this machine: without a container the volumes of a pod are folders
// elsewhere, and TRAINYARD_VOLUMES (JSON {mountPath: host path}) says where. Longest prefix wins.
// Every configured path goes through this function, once, when the configuration is resolved.
// Throws ConfigError when the variable is not such an object, and for a path that begins with ~: only a shell makes a
// home directory of it, and a folder of that name is dangerous to remove.
fs::path ResolveVolume(const fs::path& path);

// Whether an errno is a file system's answer that a path or a right is a mistake, which an attempt that follows would
// hear again. Otherwise there was no answer: a disk or quota that is full, a server that is away, no descriptor left.
bool IsRefusal(int error);

// What is at `path`, links followed: of the type not_found only when nothing is, or can be, since the name is too long
// for every file system. Nothing follows from a look that failed: it throws, RefusedPathError where the system refuses
// (IsRefusal: a folder that may not be entered), else StorageError (an NFS server that is away).
fs::file_status LookAt(const fs::path& path);

// Of a text that we have written as a whole: config.json, truth.json, evaluation.json take kilobytes, a fence 150 bytes
// an attempt. A file of strangers, or of a damaged file system, may be larger than the memory.
constexpr uint64_t kMaxText = 16 << 20;

// As large as it is when it is opened, at most `limit`. What is not a regular file may never begin, or never end: it is
// refused.
std::string ReadFile(const fs::path& path, uint64_t limit = kMaxText);

// A file beside `path` that takes its place in one step: a reader sees the old content or the new one, also after a
// crash.
class Replacement {
 public:
  // `write` makes the file that it is given, and makes it durable; if it throws, nothing stays.
  Replacement(fs::path path, const std::function<void(const fs::path& temporary)>& write);
  // Without Commit nothing stays.
  ~Replacement();
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  // Once.
  void Commit();

 private:
  const fs::path path_, temporary_;
  bool committed_ = false;
};

void WriteFileAtomic(const fs::path& path, std::string_view content);

void SyncDirectory(const fs::path& directory);

// Throws ConfigError ("cannot write where told to") where an errno is a refusal, else StorageError.
[[noreturn]] void ThrowUnwritable(const std::string& what, int error);

// Creates the directory and its parents, and proves that files can be made in it.
// Throws ConfigError where that is a mistake (IsRefusal), else StorageError.
void RequireWritableDirectory(const fs::path& directory, std::string_view field);

// What this user may still write there. Nothing where the file system does not say, as one of FUSE without statfs,
// which answers with zeros for everything.
std::optional<uint64_t> FreeBytes(const fs::path& directory);

// A file being written from start to end. Close() makes it durable; without it the destructor
// leaves whatever was written.
class OutputFile {
 public:
  explicit OutputFile(const fs::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text) { Write(std::as_bytes(std::span(text))); }
  // fsync and close.
  void Close();

 private:
  fs::path path_;
  int fd_ = -1;
  uint64_t unsynced_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_FILE_H_

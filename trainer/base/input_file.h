// A regular file that is read where it is needed, and never as a whole.
//
// Reads are pread, not a mapping: a sector that cannot be read is then an error that names the file,
// where a mapped page would end the process with SIGBUS.
#ifndef TRAINYARD_TRAINER_BASE_INPUT_FILE_H_
#define TRAINYARD_TRAINER_BASE_INPUT_FILE_H_

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <span>

namespace trainyard {

// Called while something long gets on, every few megabytes at least. May throw to end it.
using Tick = std::function<void()>;

// Movable; reading is safe for any number of threads. The file stays readable when its name is
// removed meanwhile.
class InputFile {
 public:
  // Throws StorageError when it cannot be opened; RefusedPathError when it never could, or is not a regular file.
  explicit InputFile(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  InputFile& operator=(InputFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened
  // Fills `to` from `offset` on. Throws StorageError when the file cannot be read or ends before.
  void ReadAt(uint64_t offset, std::span<std::byte> to) const;
  // Throws StorageError when size or time of change are not what they were when it was opened: what was read before and
  // what would be read now need not belong together. A look at the file, no reading.
  void RequireUnchanged() const;
  // XXH3-64 of the size, and of 4 KiB at the begin, in the middle and at the end, where a gzip has the sum of all of
  // it.
  uint64_t Glance() const;
  // XXH3-64 of the whole content, read in pieces.
  uint64_t Checksum(const Tick& tick = {}) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  timespec changed_{};  // when it was opened
};

// Of a regular file, without opening it. Throws as InputFile does.
uint64_t SizeOf(const std::filesystem::path& path);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_INPUT_FILE_H_

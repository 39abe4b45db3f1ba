// A file that grows by whole pieces.
#ifndef TRAINYARD_TRAINER_METRICS_APPEND_FILE_H_
#define TRAINYARD_TRAINER_METRICS_APPEND_FILE_H_

#include <filesystem>
#include <string>
#include <string_view>

namespace trainyard {

// Without a buffer of its own, so that the end of the process never waits for it. Opening and
// appending block as long as the file does (a pipe that nobody reads).
class AppendFile {
 public:
  // Makes the file when it is not there. Throws StorageError.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Appends all of `bytes`, or throws StorageError and has appended nothing of them (of a pipe's, perhaps a part).
  void Append(std::string_view bytes);

 private:
  const std::string path_;
  int fd_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_APPEND_FILE_H_

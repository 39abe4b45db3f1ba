// --state-dir: a folder that belongs to one running program. docs/formats.md says what lies in it.
#ifndef TRAINYARD_OPERATOR_LOCAL_STATE_DIR_H_
#define TRAINYARD_OPERATOR_LOCAL_STATE_DIR_H_

#include <filesystem>
#include <string>

#include "operator/base/status.h"

namespace trainyard::local {

class StateDir {
 public:
  // Makes the folder if need be and locks it. kInvalid when it cannot be written or another program
  // holds it. An empty path: a new folder under the system's temporary one.
  static Result<StateDir> Open(const std::string& path);
  StateDir(StateDir&& other) noexcept : path_(std::move(other.path_)), lock_(other.lock_) { other.lock_ = -1; }
  StateDir& operator=(StateDir&&) = delete;
  ~StateDir();

  // Sees to it that it is still this program's: one whose lock someone has removed, or moved away with the folder, is
  // made and locked anew, which is true. kInvalid when that cannot be, kConflict when another program was faster.
  Result<bool> Hold();

  const std::filesystem::path& path() const { return path_; }
  // A file only its owner may read.
  Status WriteSecret(const std::string& name, const std::string& text) const;

 private:
  StateDir(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;
  int lock_;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_STATE_DIR_H_

#include "trainer/base/remove_folder.h"

namespace trainyard {

std::error_code RemoveFolder(const std::filesystem::path& path, const std::function<void()>& tick) {
  std::error_code first, error;
  // An iterator would follow a link, and what it leads to is not ours.
  if (!std::filesystem::is_directory(std::filesystem::symlink_status(path, error))) {
    std::filesystem::remove(path, error);
    return error;
  }
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    tick();
    std::error_code problem;
    std::filesystem::remove_all(entry->path(), problem);
    if (problem && !first) first = problem;
  }
  std::filesystem::remove_all(path, error);
  return first ? first : error;
}

}  // namespace trainyard

#include "trainer/base/remove_folder.h"

namespace trainyard {

std::error_code RemoveFolder(const std::filesystem::path& path, const std::function<void()>& tick) {
  std::error_code first, error;
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

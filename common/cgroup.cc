#include "common/cgroup.h"

#include <fstream>
#include <optional>
#include <sstream>

namespace trainyard {
namespace {

namespace fs = std::filesystem;

// Whether one of the words between commas is `word`; of an empty list the empty one is.
bool Has(const std::string& list, const std::string& word) {
  return word.empty() ? list.empty() : ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

std::vector<fs::path> CgroupFolders(const fs::path& root, const std::string& type, const std::string& controller) {
  // "4:cpu,cpuacct:/a/b" (v1), "0::/a/b" (v2)
  std::optional<fs::path> group;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    if (Has(line.substr(first + 1, second - first - 1), type == "cgroup2" ? "" : controller))
      group = line.substr(second + 1);
  }
  if (!group) return {};
  // "31 30 0:29 <root> <mount point> <options> ... - <type> <source> <options>"
  std::ifstream mounts(root / "proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word, top, point, kind, source, options;
    words >> word >> word >> word >> top >> point;
    while (words >> word && word != "-") continue;
    words >> kind >> source >> options;
    if (kind != type || (type == "cgroup" && !Has(options, controller))) continue;
    // A container may see only its own part of the tree, under a path that its name does not show.
    const fs::path below = group->lexically_relative(top);
    const bool inside = !below.empty() && *below.begin() != ".." && below != ".";
    std::vector<fs::path> folders;
    for (fs::path path = inside ? below : fs::path(); !path.empty(); path = path.parent_path())
      folders.push_back(root / fs::path(point).relative_path() / path);
    folders.push_back(root / fs::path(point).relative_path());
    return folders;
  }
  return {};
}

}  // namespace trainyard

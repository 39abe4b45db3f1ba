// Where the files of this process's cgroups lie.
#ifndef TRAINYARD_COMMON_CGROUP_H_
#define TRAINYARD_COMMON_CGROUP_H_

#include <filesystem>
#include <string>
#include <vector>

namespace trainyard {

// Where a controller's files lie for this process: the folder of its cgroup, then its parents, up to the mount. Empty
// when the controller is not mounted. `type`: "cgroup2", which is of all controllers, or "cgroup", version 1. `root`:
// where /proc/self/{cgroup,mountinfo} and what they name lie. Source: cgroups(7).
std::vector<std::filesystem::path> CgroupFolders(const std::filesystem::path& root, const std::string& type,
                                                 const std::string& controller);

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_CGROUP_H_

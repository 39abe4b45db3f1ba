#include "common/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace trainyard {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

bool Has(const std::string& list, const std::string& word) {
  const std::vector<std::string> words = Split(list);
  return word.empty() ? list.empty() : std::find(words.begin(), words.end(), word) != words.end();
}

// Where a controller's files lie for this process: the folder of its cgroup, then its parents, up to
// the mount. Empty when the controller is not mounted.
std::vector<fs::path> Folders(const fs::path& root, const std::string& type, const std::string& controller) {
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

// CPUs of one folder's quota; infinite where there is none.
double Quota(const fs::path& folder) {
  std::string quota, period;
  std::istringstream(FirstLine(folder / "cpu.max")) >> quota >> period;
  if (quota.empty()) {
    quota = FirstLine(folder / "cpu.cfs_quota_us");
    period = FirstLine(folder / "cpu.cfs_period_us");
  }
  const double allowed = std::atof(quota.c_str()), every = std::atof(period.c_str());  // "max" and "-1" are none
  return allowed > 0 && every > 0 ? allowed / every : INFINITY;
}

// "0-2,8" -> 4; 0 when there is none.
int CountList(const std::string& list) {
  int count = 0;
  for (const std::string& range : Split(list)) {
    int first = 0, last = 0;
    const int read = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (read >= 1) count += read == 2 ? std::max(0, last - first + 1) : 1;
  }
  return count;
}

int CpusetOf(const std::vector<fs::path>& folders) {
  if (folders.empty()) return 0;
  for (const char* name : {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"}) {
    if (const int count = CountList(FirstLine(folders[0] / name)); count > 0) return count;
  }
  return 0;
}

std::string Plural(double cpus) {
  char text[64];
  std::snprintf(text, sizeof text, "%g CPU%s", cpus, cpus == 1 ? "" : "s");
  return text;
}

int AffinityCount() {
  constexpr size_t kMost = 1 << 16;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(kMost), [](cpu_set_t* s) { CPU_FREE(s); });
  const size_t bytes = CPU_ALLOC_SIZE(kMost);
  if (sched_getaffinity(0, bytes, set.get()) != 0) return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return std::max(1, CPU_COUNT_S(bytes, set.get()));
}

}  // namespace

Cpus CountCpus(const fs::path& root, int allowed) {
  const int machine = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  Cpus cpus{.count = allowed,
            .why = Plural(allowed) + (allowed < machine ? " of the affinity mask" : " of the machine"),
            .machine = machine,
            .affinity = allowed};
  const auto lower = [&](int count, std::string why) {
    cpus.count = count;
    cpus.why = std::move(why);
  };
  double quota = INFINITY;
  for (const char* type : {"cgroup2", "cgroup"}) {
    const int count = CpusetOf(Folders(root, type, "cpuset"));
    if (count > 0) cpus.cpuset = std::min(count, cpus.cpuset.value_or(count));
    if (count > 0 && count < cpus.count) lower(count, Plural(count) + " of the cgroup's cpuset");
    for (const fs::path& folder : Folders(root, type, "cpu")) quota = std::min(quota, Quota(folder));
  }
  if (std::isfinite(quota)) cpus.quota = quota;
  if (quota < cpus.count)
    lower(std::max(1, static_cast<int>(std::lround(quota))), Plural(quota) + " of the cgroup's quota");
  return cpus;
}

const Cpus& AvailableCpus() {
  static const Cpus cpus = CountCpus("/", AffinityCount());
  return cpus;
}

}  // namespace trainyard

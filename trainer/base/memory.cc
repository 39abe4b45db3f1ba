#include "trainer/base/memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <fstream>
#include <string>

#include "trainer/base/text.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

void Lower(MemoryLimit& limit, const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  uint64_t bytes = 0;
  if (!(in >> word)) return;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), bytes);  // "max" is no number
  if (error == std::errc() && end == word.data() + word.size() && bytes < limit.bytes) limit = {bytes, file.string()};
}

// The group's limit and those of the groups around it.
void LowerAll(MemoryLimit& limit, const fs::path& mount, fs::path group, const char* name) {
  for (;; group = group.parent_path()) {
    Lower(limit, mount / group.relative_path() / name);
    if (!group.has_relative_path()) return;
  }
}

}  // namespace

MemoryLimit MemoryLimitHere(const fs::path& root) {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)),
             page = static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  MemoryLimit limit{pages * page, "the machine's memory"};
  // "0::/kubepods/pod1", or of version 1 "4:memory:/kubepods/pod1" (cgroups(7)).
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controller = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controller.empty()) LowerAll(limit, root / "sys/fs/cgroup", group, "memory.max");
    if (controller == "memory") LowerAll(limit, root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
  }
  return limit;
}

std::string ProcessMemoryLimit() {
  rlimit addresses{}, data{};
  getrlimit(RLIMIT_AS, &addresses);
  getrlimit(RLIMIT_DATA, &data);
  if (addresses.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY) return "";
  const bool first = addresses.rlim_cur <= data.rlim_cur;
  return (first ? "ulimit -v: " : "ulimit -d: ") +
         HumanBytes(static_cast<double>(first ? addresses.rlim_cur : data.rlim_cur));
}

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 16 << 20);  // grows by this much at once
}

std::optional<uint64_t> ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  if (!(in >> size >> resident)) return std::nullopt;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace trainyard

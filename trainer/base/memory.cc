#include "trainer/base/memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <fstream>
#include <string>
#include <vector>

#include "common/cgroup.h"
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

// "oom_kill 3", in a line of its own.
std::optional<uint64_t> OomKillsIn(const fs::path& file) {
  std::ifstream in(file);
  std::string name;
  for (uint64_t count = 0; in >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return std::nullopt;
}

}  // namespace

MemoryLimit MemoryLimitHere(const fs::path& root) {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)),
             page = static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  MemoryLimit limit{pages * page, "the machine's memory"};
  for (const fs::path& folder : CgroupFolders(root, "cgroup2", "")) Lower(limit, folder / "memory.max");
  for (const fs::path& folder : CgroupFolders(root, "cgroup", "memory")) Lower(limit, folder / "memory.limit_in_bytes");
  return limit;
}

std::function<std::optional<uint64_t>()> OomKillCounter(const fs::path& root) {
  std::vector<fs::path> files;
  for (const fs::path& folder : CgroupFolders(root, "cgroup2", "")) files.push_back(folder / "memory.events");
  for (const fs::path& folder : CgroupFolders(root, "cgroup", "memory")) files.push_back(folder / "memory.oom_control");
  files.push_back(root / "proc/vmstat");
  const auto tells = [](const fs::path& file) { return OomKillsIn(file).has_value(); };
  const auto found = std::find_if(files.begin(), files.end(), tells);
  const fs::path file = found == files.end() ? fs::path() : *found;
  return [file] { return OomKillsIn(file); };
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

#include "common/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "common/cgroup.h"

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
    const int count = CpusetOf(CgroupFolders(root, type, "cpuset"));
    if (count > 0) cpus.cpuset = std::min(count, cpus.cpuset.value_or(count));
    if (count > 0 && count < cpus.count) lower(count, Plural(count) + " of the cgroup's cpuset");
    for (const fs::path& folder : CgroupFolders(root, type, "cpu")) quota = std::min(quota, Quota(folder));
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

#include "common/process_start.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace trainyard {

std::optional<double> ReadProcessStart(const std::filesystem::path& proc, int64_t ticks_per_second) {
  std::ifstream machine(proc / "stat");
  std::string word;
  double booted = 0;
  while (machine >> word && word != "btime") {
  }
  if (!(machine >> booted)) return std::nullopt;
  std::ifstream self(proc / "self" / "stat");
  std::string line{std::istreambuf_iterator<char>(self), {}};
  // The name is in parentheses and may hold any; starttime is the 22nd field, the state behind the name the third.
  const size_t name = line.rfind(')');
  if (name == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name + 1));
  for (int field = 3; field < 22; ++field) fields >> word;
  double ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return booted + ticks / static_cast<double>(ticks_per_second);
}

std::optional<double> ProcessStart() {
  static const std::optional<double> start = ReadProcessStart("/proc", sysconf(_SC_CLK_TCK));
  return start;
}

}  // namespace trainyard

#include "trainer/selftest/selftest.h"

#include <algorithm>
#include <cstdio>

#include "common/cpus.h"
#include "trainer/base/clock.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/memory.h"
#include "trainer/base/progress.h"
#include "trainer/base/text.h"
#include "trainer/metrics/status_server.h"
#include "trainer/selftest/finding.h"
#include "trainer/selftest/group.h"
#include "trainer/selftest/storage.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;
using selftest::Finding;
using selftest::Findings;

constexpr int kFormat = 1;  // of the JSON: docs/selftest.md
constexpr int kStorageSteps = 2;
constexpr uint64_t kProcessBytes = uint64_t{300} << 20;  // what a process takes, generously
constexpr const char* kNotChecked =
    "what a loss of power leaves, locks and renames between nodes, the network between nodes, GPUs";

// Worlds that are checked: 2, and the largest.
std::vector<int> Worlds(std::optional<int> ranks) {
  const auto held = static_cast<int>(MemoryLimitHere().bytes / 2 / kProcessBytes);
  const int largest = ranks.value_or(std::max(2, std::min(std::clamp(AvailableCpus().count, 3, 8), held)));
  return largest > 2 ? std::vector<int>{2, largest} : std::vector<int>{2};
}

// The first thing that is bad decides: whoever cannot talk or store can train nothing.
ExitCode CodeOf(const Findings& findings) {
  const std::pair<const char*, ExitCode> order[] = {
      {"communication", ExitCode::kPeer}, {"storage", ExitCode::kStorage}, {"equality", ExitCode::kInternal}};
  for (const auto& [check, code] : order) {
    for (const Finding& finding : findings) {
      if (!finding.good && finding.check == check) return code;
    }
  }
  return ExitCode::kDone;
}

std::string VerdictOf(const Findings& findings, double seconds) {
  std::vector<std::string> bad;
  for (const Finding& finding : findings) {
    if (!finding.good && std::find(bad.begin(), bad.end(), finding.check) == bad.end()) bad.push_back(finding.check);
  }
  const std::string time = " (" + HumanSeconds(seconds) + ")";
  if (bad.empty()) return "this machine does what training relies on" + time;
  return "do not train here before this is mended: " + Join(bad) + time;
}

void Print(const Findings& findings, const std::string& verdict) {
  for (const Finding& finding : findings)
    std::printf("%s %s\n", finding.good ? "good " : "BAD  ", finding.text.c_str());
  std::printf("not checked: %s\nverdict: %s\n", kNotChecked, verdict.c_str());
}

void PrintJson(const Findings& findings, const std::string& verdict, double seconds) {
  Json checks = Json::array();
  for (const Finding& finding : findings) {
    Json check = {{"check", finding.check}, {"good", finding.good}, {"message", finding.text}};
    for (const auto& [name, value] : finding.numbers.items()) check[name] = value;
    checks.push_back(check);
  }
  const Json document = {{"format", kFormat},  {"good", CodeOf(findings) == ExitCode::kDone},
                         {"verdict", verdict}, {"seconds", seconds},
                         {"checks", checks},   {"not_checked", kNotChecked}};
  std::printf("%s\n", document.dump(1, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace

int SelfTest(const fs::path& directory, std::optional<int> ranks, bool json) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored))
    throw ConfigError("--dir: " + directory.string() + ": no such directory; is the volume mounted?");
  RequireWritableDirectory(directory, "--dir");
  const double begin = SteadySeconds();
  const std::string address = StatusAddressFromEnvironment();
  const std::vector<int> worlds = Worlds(ranks);
  const int64_t total = kStorageSteps + selftest::GroupSteps() * static_cast<int64_t>(worlds.size());
  Findings findings;
  {
    // Without a thread of its own: processes are forked beside it.
    Progress progress("selftest", total, ProgressStyleFromEnvironment(), Progress::End::kNothing);
    int64_t done = 0;
    const auto announce = [&](const std::string& what) { progress.Update(std::min(done++, total - 1), what); };
    const auto add = [&](Findings more) { findings.insert(findings.end(), more.begin(), more.end()); };
    add(selftest::CheckStorage(directory, announce));
    for (const int world : worlds) {
      add(selftest::CheckGroup(world, address, announce));
      if (!findings.back().good) break;  // a larger world says no more
    }
    progress.Clear();
  }
  const double seconds = SteadySeconds() - begin;
  const std::string verdict = VerdictOf(findings, seconds);
  json ? PrintJson(findings, verdict, seconds) : Print(findings, verdict);
  return static_cast<int>(CodeOf(findings));
}

}  // namespace trainyard

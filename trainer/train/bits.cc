#include "trainer/train/bits.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include <fstream>
#include <set>
#include <vector>

#include "common/build_info.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"
#include "trainer/kernels/kernels.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return ValidUtf8(line.substr(std::min(line.size(), line.find(':') + 2)));
  }
  return "unknown";
}

std::string TextOf(const Json& bits, const std::string& name) {
  if (!bits.contains(name)) return "unknown";
  return bits[name].is_string() ? bits[name].get<std::string>() : bits[name].dump();
}

}  // namespace

Json BitsOf(const Config& config, const Plan& plan) {
  return {{"world", plan.world},
          {"micro", plan.micro},
          {"stage", "ddp"},  // zero1 and zero2 make the same bits
          {"precision", plan.precision == Precision::kBf16 ? "bf16" : "fp32"},
          {"run.deterministic", config.run.deterministic},
          {"threads", at::get_num_threads()},
          {"kernels", kernels::Kernels().name},
          {"libtorch's kernels", at::get_cpu_capability()},
          {"CPU", CpuModel()},
          {"LibTorch", TORCH_VERSION},
          {"trainyard", Build().version}};
}

std::string BitsDifference(const Json& saved, const Json& now) {
  std::set<std::string> names;
  for (const Json* bits : {&saved, &now}) {
    for (const auto& [name, value] : bits->items()) names.insert(name);
  }
  std::vector<std::string> parts;
  names.erase("threads");  // kept for people: no bit depends on it (model/parallel_for.h)
  for (const std::string& name : names) {
    const std::string before = TextOf(saved, name), after = TextOf(now, name);
    if (before != after) parts.push_back(name + " " + before + " -> " + after);
  }
  return parts.empty() ? "" : "; not bit-exact with an uninterrupted run, because " + Join(parts);
}

}  // namespace trainyard

#include "trainer/train/bits.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <caffe2/core/common.h>

#include <fstream>
#include <set>
#include <vector>

#include "common/build_info.h"
#include "trainer/base/hash.h"
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

constexpr const char *kReduce = "parallel.reduce", *kReduceIn = "precision.reduce", *kDevice = "parallel.device";

std::string TextOf(const Json& bits, const std::string& name) {
  // Older checkpoints knew one way.
  if (!bits.contains(name))
    return name == kReduce ? "last" : name == kReduceIn ? "fp32" : name == kDevice ? "cpu" : "unknown";
  return bits[name].is_string() ? bits[name].get<std::string>() : bits[name].dump();
}

}  // namespace

std::string LoadedTorch() {
  // There is no function for it; it is among the options that LibTorch was built with.
  const auto& options = caffe2::GetBuildOptions();
  const auto version = options.find("TORCH_VERSION");
  return version == options.end() ? "unknown" : version->second;
}

Json BitsOf(const Config& config, const Plan& plan) {
  const bool sums_often = plan.parallel.reduce == Reduce::kEvery && plan.world > 1 && plan.accumulation > 1;
  return {{"world", plan.world},
          {"micro", plan.micro},
          {"stage", NameOf(plan.parallel.stage)},
          {kDevice, config.parallel.device},
          {"precision", NameOf(plan.parallel.precision)},
          {kReduce, sums_often ? "every" : "last"},
          {kReduceIn, plan.parallel.bf16_reduce && plan.world > 1 ? "bf16" : "fp32"},
          {"run.deterministic", config.run.deterministic},
          {"threads", at::get_num_threads()},
          {"kernels", kernels::Kernels().name},
          {"libtorch's kernels", at::get_cpu_capability()},
          {"CPU", CpuModel()},
          {"LibTorch", LoadedTorch()},
          {"trainyard", Build().version}};
}

std::string BitsDifference(const Json& saved, const Json& now) {
  std::set<std::string> names;
  for (const Json* bits : {&saved, &now}) {
    for (const auto& [name, value] : bits->items()) names.insert(name);
  }
  std::vector<std::string> parts;
  // Kept for people: no bit depends on the threads (threads/parallel_for.h), nor on who holds what (parallel/engine.h).
  for (const char* name : {"threads", "stage"}) names.erase(name);
  for (const std::string& name : names) {
    const std::string before = TextOf(saved, name), after = TextOf(now, name);
    if (before != after) parts.push_back(name + " " + before + " -> " + after);
  }
  return parts.empty() ? "" : "; not bit-exact with an uninterrupted run, because " + Join(parts);
}

std::string ProcessorsOf(const Config& config, const Json& bits, const std::string& gpu) {
  const bool on_gpu = config.parallel.device == "cuda";
  std::string text = on_gpu ? gpu : "";
  if (!on_gpu || config.parallel.offload == "optimizer") {
    for (const char* part : {"kernels", "libtorch's kernels", "CPU"}) text += "\n" + TextOf(bits, part);
  }
  return text;
}

std::string OtherMachines(ControlPlane& control, const std::string& processors) {
  const auto mine = static_cast<int64_t>(Xxh3Of(std::span<const char>(processors)));
  const std::vector<int64_t> all = control.AllGatherNow(std::span(&mine, 1), "comparing the ranks' processors");
  std::vector<std::string> others;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) others.push_back(std::to_string(rank));
  }
  return others.empty() || control.rank() != 0
             ? ""
             : "rank " + Join(others) + " computes on another kind of processor than rank 0, and so with other last " +
                   "digits: the ranks' copies of the model drift apart by as much; nodes of one kind train alike";
}

}  // namespace trainyard

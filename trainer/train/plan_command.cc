#include "trainer/train/plan_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "trainer/base/memory.h"
#include "trainer/base/text.h"
#include "trainer/parallel/memory_plan.h"
#include "trainer/task/tasks.h"
#include "trainer/train/plan.h"

namespace trainyard {

void PrintPlan(const Config& config, int ranks, bool json) {
  ModelDeclaration model;
  DeclareModel(config, model);
  const Precision precision = PrecisionOf(config);
  const MemoryPlan memory = PlanDdpMemory(model, precision, ranks);
  const MemoryLimit limit = MemoryLimitHere();
  const int64_t needed = memory.total() * ranks;
  const bool fits = static_cast<double>(needed) <= static_cast<double>(limit.bytes);
  if (json) {
    nlohmann::ordered_json components;
    for (const MemoryPlan::Component& component : memory.components) components[component.name] = component.bytes;
    const nlohmann::ordered_json plan = {{"task", config.task.name},
                                         {"parameters", model.num_parameters()},
                                         {"trained_parameters", model.num_parameters(true)},
                                         {"ranks", ranks},
                                         {"bytes_per_rank", components},
                                         {"bytes", needed},
                                         {"limit", {{"bytes", limit.bytes}, {"source", limit.source}}},
                                         {"fits", fits}};
    std::printf("%s\n", plan.dump(1).c_str());
    return;
  }
  auto line = [](const std::string& name, const std::string& value) {
    std::printf("  %-28s %s\n", name.c_str(), value.c_str());
  };
  line("task", config.task.name + ", " + config.task.options->Describe());
  line("parameters", Format("%lld, of them %lld trained", static_cast<long long>(model.num_parameters()),
                            static_cast<long long>(model.num_parameters(true))));
  std::printf("  on each of %d rank%s (stage ddp, activations not counted):\n", ranks, ranks == 1 ? "" : "s");
  for (const MemoryPlan::Component& component : memory.components)
    line("  " + component.name, HumanBytes(static_cast<double>(component.bytes)));
  line("together", HumanBytes(static_cast<double>(needed)));
  line(limit.source, HumanBytes(static_cast<double>(limit.bytes)));
  line("verdict", fits ? "fits" : "does not fit: choose a smaller model, or a machine with more memory");
}

}  // namespace trainyard

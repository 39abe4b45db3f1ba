#include "trainer/train/plan_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/memory.h"
#include "trainer/base/text.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/task/tasks.h"
#include "trainer/train/plan.h"
#include "trainer/train/stage_memory.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNotCounted = "activations, which grow with batch.micro; batches that are read ahead; libraries";

struct Printed {
  const Config& config;
  int ranks;
  ParallelShape shape;
  ModelDeclaration model;
  std::vector<Stage> stages;
  std::vector<PlannedMoment> moments;
  MemoryLimit limit;

  int64_t Needed() const { return Largest(moments).memory.total() * ranks; }
  bool Fits() const { return static_cast<double>(Needed()) <= static_cast<double>(limit.bytes); }
  int64_t Trains(const Stage& stage) const {
    int64_t n = 0;
    for (const ParameterSpec& spec : Trained(model, stage.trainable)) n += spec.numel();
    return n;
  }
  // Unknown where it follows from the data: a single stage, and train.epochs.
  std::optional<int64_t> Steps(const Stage& stage) const {
    return stages.size() > 1 ? std::optional(stage.steps) : config.train.steps;
  }
};

Json BytesOf(const MemoryPlan& memory) {
  Json components = Json::object();
  for (const MemoryPlan::Component& component : memory.components) components[component.name] = component.bytes;
  return components;
}

Json ToJson(const Printed& p) {
  Json stages = Json::array();
  for (const PlannedMoment& moment : p.moments) {
    const Stage& stage = p.stages[moment.stage];
    if (moment.hand_over) {
      stages.push_back({{"hand_over_to", stage.name}, {"bytes_per_rank", BytesOf(moment.memory)}});
    } else {
      const std::optional<int64_t> steps = p.Steps(stage);
      stages.push_back({{"name", stage.name},
                        {"steps", steps ? Json(*steps) : Json()},
                        {"trained_parameters", p.Trains(stage)},
                        {"bytes_per_rank", BytesOf(moment.memory)}});
    }
  }
  return {{"task", p.config.task.name},
          {"parameters", p.model.num_parameters()},
          {"trained_parameters", p.model.num_parameters(true)},
          {"ranks", p.ranks},
          {"stage", NameOf(p.shape.stage)},
          {"moments", stages},
          {"bytes_per_rank", BytesOf(Largest(p.moments).memory)},
          {"bytes", p.Needed()},
          {"not_counted", kNotCounted},
          {"limit", {{"bytes", p.limit.bytes}, {"source", p.limit.source}}},
          {"fits", p.Fits()}};
}

void Line(const std::string& name, const std::string& value) {
  std::printf("  %-32s %s\n", name.c_str(), value.c_str());
}

void PrintMoment(const Printed& p, const PlannedMoment& moment) {
  const Stage& stage = p.stages[moment.stage];
  if (const std::string name = NameOf(moment, p.stages); moment.hand_over) {
    std::printf("  %s:\n", name.c_str());
  } else if (!name.empty()) {
    std::printf("  %s: %lld steps, %lld parameters trained:\n", name.c_str(), static_cast<long long>(stage.steps),
                static_cast<long long>(p.Trains(stage)));
  }
  for (const MemoryPlan::Component& component : moment.memory.components)
    Line("  " + component.name, HumanBytes(static_cast<double>(component.bytes)));
}

void Print(const Printed& p) {
  Line("task", p.config.task.name + ", " + p.config.task.options->Describe());
  Line("parameters", Format("%lld, of them %lld trained", static_cast<long long>(p.model.num_parameters()),
                            static_cast<long long>(p.model.num_parameters(true))));
  std::printf("  on each of %d rank%s (stage %s):\n", p.ranks, p.ranks == 1 ? "" : "s", NameOf(p.shape.stage));
  for (const PlannedMoment& moment : p.moments) PrintMoment(p, moment);
  const std::string peak = NameOf(Largest(p.moments), p.stages);
  Line("together", HumanBytes(static_cast<double>(p.Needed())) + (peak.empty() ? "" : ", in the " + peak));
  Line(p.limit.source, HumanBytes(static_cast<double>(p.limit.bytes)));
  const std::optional<int64_t> micro = p.config.batch.micro;
  Line("not counted", Format("%s (batch.micro is %s)", kNotCounted, micro ? std::to_string(*micro).c_str() : "auto"));
  Line("verdict",
       p.Fits()
           ? HumanBytes(static_cast<double>(p.limit.bytes) - static_cast<double>(p.Needed())) +
                 " are left for what is not counted"
           : "does not fit: choose a smaller model, fewer ranks, parallel.stage: zero1, or a machine with more memory");
}

}  // namespace

int PrintPlan(const Config& config, int ranks, bool json) {
  Printed p{config, ranks, ShapeOf(config, ranks), {}, StagesOf(config), {}, MemoryLimitHere()};
  DeclareModel(config, p.model);
  p.moments = PlanMoments(p.model, p.shape, p.stages);
  if (json) {
    std::printf("%s\n", ToJson(p).dump(1).c_str());
  } else {
    Print(p);
  }
  return static_cast<int>(p.Fits() ? ExitCode::kDone : ExitCode::kOutOfMemory);
}

}  // namespace trainyard

#include "trainer/train/stage_memory.h"

#include <algorithm>

#include "trainer/base/text.h"

namespace trainyard {
namespace {

// Of what is trained in some stage, and of buffers: what BestWeights keeps.
int64_t WeightBytes(const ModelDeclaration& declaration) {
  int64_t values = 0;
  for (const ParameterSpec& spec : declaration.parameters) values += spec.trainable ? spec.numel() : 0;
  for (const BufferSpec& spec : declaration.buffers) values += spec.numel();
  return values * 4;
}

}  // namespace

std::vector<PlannedMoment> PlanMoments(const ModelDeclaration& declaration, const ParallelShape& shape,
                                       std::span<const Stage> stages) {
  ParallelShape of_stage = shape;
  const auto averages = [&](size_t stage) {
    return stages[stage].optim ? stages[stage].optim->ema_decay.has_value() : shape.averages;
  };
  std::vector<PlannedMoment> moments;
  const int64_t weights = WeightBytes(declaration), best_in_flight = (weights + shape.world - 1) / shape.world;
  const int64_t best = shape.stage == ZeroStage::kDdp ? weights : best_in_flight;  // what is owned is kept
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::vector<std::string>& trainable = stages[i].trainable;
    if (i > 0) {
      of_stage.averages = averages(i - 1) || averages(i);
      moments.push_back({i, true, PlanHandOver(declaration, of_stage, stages[i - 1].trainable, trainable)});
      if (stages[i].from_best) moments.back().memory.Add("best weights in flight", best_in_flight, true);
    }
    of_stage.averages = averages(i);
    moments.push_back({i, false, PlanMemory(declaration, of_stage, trainable)});
    if (i + 1 < stages.size() && stages[i + 1].from_best) {
      moments.back().memory.Add("best weights, fp32", best, true);  // BestWeights holds them in host memory
      moments.back().memory.Add("best weights in flight", best_in_flight, true);
    }
  }
  return moments;
}

const PlannedMoment& Largest(std::span<const PlannedMoment> moments, bool on_gpu) {
  return *std::ranges::max_element(moments, {}, [&](const PlannedMoment& moment) { return moment.bytes(on_gpu); });
}

std::string DescribeMemory(const ModelDeclaration& declaration, const ParallelShape& shape,
                           std::span<const Stage> stages, bool on_gpu) {
  const std::vector<PlannedMoment> moments = PlanMoments(declaration, shape, stages);
  const PlannedMoment& most = Largest(moments, on_gpu);
  const std::string when = NameOf(most, stages);
  const auto human = [](int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); };
  std::string text = Format("  %-12s %s on %seach of %d rank%s%s, activations not counted\n", "memory",
                            human(most.bytes(on_gpu)).c_str(), on_gpu ? "the GPU of " : "", shape.world,
                            shape.world == 1 ? "" : "s", when.empty() ? "" : (" in the " + when).c_str());
  for (const MemoryPlan::Component& part : most.memory.components)
    text += Format("    %-30s %s%s\n", part.name.c_str(), human(part.bytes).c_str(),
                   on_gpu && part.in_host ? ", of host memory" : "");
  return text;
}

std::string NameOf(const PlannedMoment& moment, std::span<const Stage> stages) {
  if (stages.size() == 1) return "";
  return (moment.hand_over ? "hand-over to stage " : "stage ") + stages[moment.stage].name;
}

}  // namespace trainyard

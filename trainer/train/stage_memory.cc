#include "trainer/train/stage_memory.h"

#include <algorithm>

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

std::vector<PlannedMoment> PlanMoments(const ModelDeclaration& declaration, Precision precision, int world,
                                       std::span<const Stage> stages) {
  std::vector<PlannedMoment> moments;
  const int64_t best = WeightBytes(declaration), best_in_flight = (best + world - 1) / world;
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::vector<std::string>& trainable = stages[i].trainable;
    if (i > 0) {
      moments.push_back({i, true, PlanDdpHandOver(declaration, precision, world, stages[i - 1].trainable, trainable)});
      if (stages[i].from_best) moments.back().memory.Add("best weights in flight", best_in_flight);
    }
    moments.push_back({i, false, PlanDdpMemory(declaration, precision, world, trainable)});
    if (i + 1 < stages.size() && stages[i + 1].from_best) {
      moments.back().memory.Add("best weights, fp32", best);
      moments.back().memory.Add("best weights in flight", best_in_flight);
    }
  }
  return moments;
}

const PlannedMoment& Largest(std::span<const PlannedMoment> moments) {
  return *std::max_element(moments.begin(), moments.end(), [](const PlannedMoment& a, const PlannedMoment& b) {
    return a.memory.total() < b.memory.total();
  });
}

std::string NameOf(const PlannedMoment& moment, std::span<const Stage> stages) {
  if (stages.size() == 1) return "";
  return (moment.hand_over ? "hand-over to stage " : "stage ") + stages[moment.stage].name;
}

}  // namespace trainyard

#include "trainer/train/stage_memory.h"

#include <algorithm>

namespace trainyard {

std::vector<PlannedMoment> PlanMoments(const ModelDeclaration& declaration, Precision precision, int world,
                                       std::span<const Stage> stages) {
  std::vector<PlannedMoment> moments;
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::vector<std::string>& trainable = stages[i].trainable;
    if (i > 0)
      moments.push_back({i, true, PlanDdpHandOver(declaration, precision, world, stages[i - 1].trainable, trainable)});
    moments.push_back({i, false, PlanDdpMemory(declaration, precision, world, trainable)});
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

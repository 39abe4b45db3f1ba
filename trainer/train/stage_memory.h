// The moments of a run that differ in what they take.
#ifndef TRAINYARD_TRAINER_TRAIN_STAGE_MEMORY_H_
#define TRAINYARD_TRAINER_TRAIN_STAGE_MEMORY_H_

#include <span>
#include <string>
#include <vector>

#include "trainer/parallel/memory_plan.h"
#include "trainer/task/stage.h"

namespace trainyard {

struct PlannedMoment {
  size_t stage = 0;
  bool hand_over = false;  // the start of a stage behind another one
  MemoryPlan memory;       // of a rank
};

// Of a run of these stages, at least one: each hand-over and each stage, in their order.
std::vector<PlannedMoment> PlanMoments(const ModelDeclaration& declaration, const ParallelShape& shape,
                                       std::span<const Stage> stages);
const PlannedMoment& Largest(std::span<const PlannedMoment> moments);
// "stage heads", "hand-over to stage heads"; empty in a run of one stage.
std::string NameOf(const PlannedMoment& moment, std::span<const Stage> stages);

// "  memory", with what a rank is predicted to take at the moment that takes most: a line for each component.
std::string DescribeMemory(const ModelDeclaration& declaration, const ParallelShape& shape,
                           std::span<const Stage> stages);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_STAGE_MEMORY_H_

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
  // Of all of it, or of what lies on the GPU of a rank that computes on one.
  int64_t bytes(bool on_gpu) const { return on_gpu ? memory.on_gpu() : memory.total(); }
};

// Of a run of these stages, at least one: each hand-over and each stage, in their order.
std::vector<PlannedMoment> PlanMoments(const ModelDeclaration& declaration, const ParallelShape& shape,
                                       std::span<const Stage> stages);
// The one of most bytes.
const PlannedMoment& Largest(std::span<const PlannedMoment> moments, bool on_gpu);
// "stage heads", "hand-over to stage heads"; empty in a run of one stage.
std::string NameOf(const PlannedMoment& moment, std::span<const Stage> stages);

// "  memory", with what a rank is predicted to take, of a GPU where it computes on one, at the moment that takes most:
// a line for each component.
std::string DescribeMemory(const ModelDeclaration& declaration, const ParallelShape& shape,
                           std::span<const Stage> stages, bool on_gpu);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_STAGE_MEMORY_H_

// What a model that does not fit could do, computed for the job at hand.
#ifndef TRAINYARD_TRAINER_TRAIN_REMEDIES_H_
#define TRAINYARD_TRAINER_TRAIN_REMEDIES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/hardware/hardware.h"
#include "trainer/train/stage_memory.h"

namespace trainyard {

// What models may take: the memory of a GPU for one rank, or the host's for all ranks of this machine together.
struct MemoryBudget {
  uint64_t bytes = 0;
  std::string source;  // "the machine's memory", "NVIDIA L4 (22.1 GiB free)", the file of a cgroup's limit
  bool of_one_rank = false;
};
// The smallest GPU's free memory; without GPUs the host's.
MemoryBudget BudgetOf(const Hardware& hardware);

// A model, and the ranks that would hold it.
struct Footprint {
  const ModelDeclaration& model;
  std::span<const Stage> stages;
  ParallelShape shape;
  int ranks_here = 1;

  // Of the moment that takes most: bytes that count against the budget. Activations are not in it.
  int64_t Needs(const MemoryBudget& budget) const;
};

struct Remedy {
  std::string change;  // "parallel.stage: zero1"
  int64_t needs = 0;   // then
  int64_t saves = 0;   // of what counts against the budget; positive
  bool fits = false;
};

// The three cheapest: those that suffice, in the order of what they cost in time and money (no traffic, more traffic,
// other rounding, more machines), then those that save most. A larger budget is one of them.
std::vector<Remedy> Remedies(const Footprint& footprint, const MemoryBudget& budget);
// "parallel.stage: zero1 (needs 3.1 GiB, saves 1.9 GiB); --nproc 1 (...)".
std::string Describe(std::span<const Remedy> remedies);

// Throws OutOfMemoryError with the remedies when the budget is less than what the model needs; nothing is allocated.
// Less may still be too little.
void RequireMemory(const Footprint& footprint, const MemoryBudget& budget);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_REMEDIES_H_

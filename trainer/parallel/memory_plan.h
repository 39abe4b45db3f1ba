// What a model takes on one rank, computed from its declaration before anything is allocated.
#ifndef TRAINYARD_TRAINER_PARALLEL_MEMORY_PLAN_H_
#define TRAINYARD_TRAINER_PARALLEL_MEMORY_PLAN_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/model/builder.h"

namespace trainyard {

// What forward computes with; the optimizer's master is float32 either way.
enum class Precision { kFp32, kBf16, kFp16 };

// What is shared out over the ranks instead of being held by each: nothing; the optimizer's state, with the float32
// master where forward computes with something else; with zero3 the parameters, of which a rank puts a unit together
// while it computes with it; with Reduce::kEvery, from zero2 on, the gradients. (Else zero2 is zero1: with gradients
// summed on the last micro-batch there is nothing to let go earlier.)
enum class ZeroStage { kDdp, kZero1, kZero2, kZero3 };

// Whether a rank holds its part of the parameters only, and puts units together. Alone it owns everything.
inline bool InUnits(ZeroStage stage, int world) { return stage == ZeroStage::kZero3 && world > 1; }

// When the ranks' gradients are summed: once a step; with every micro-batch, so that each rank holds its shard of them.
enum class Reduce { kLast, kEvery };

struct ParallelShape {
  ZeroStage stage = ZeroStage::kDdp;
  Precision precision = Precision::kFp32;
  int world = 1;
  Reduce reduce = Reduce::kLast;
  int64_t bucket_bytes = 25 << 20;
  bool averages = false;     // of the parameters, beside them (optim.ema_decay)
  bool bf16_reduce = false;  // gradients are sent in bfloat16 (precision.reduce)
  int64_t tile_bytes = 16 << 20;
  bool offload = false;  // what the optimizer works on lies in host memory (parallel.offload)
  bool gpu = false;      // a rank computes on one
};

struct MemoryPlan {
  struct Component {
    std::string name;  // for people: "master parameters", "gradients", ...
    int64_t bytes = 0;
    bool in_host = false;  // also where a rank computes on a GPU
  };
  std::vector<Component> components;
  int64_t total() const;
  int64_t on_gpu() const;  // of a rank that computes on one
  // A component of nothing is left out.
  void Add(const char* name, int64_t bytes, bool in_host = false);
};

// What an engine allocates on one rank. `trainable`: as in EngineOptions.
MemoryPlan PlanEngine(const ModelDeclaration& declaration, const ParallelShape& shape,
                      const std::vector<std::string>& trainable = {});

// The same while it trains, with gradients that come and a checkpoint in flight; activations are not in it. Of the
// checkpoint each rank copies its part, as in a directory that all of them see; in another one rank 0 copies all.
MemoryPlan PlanMemory(const ModelDeclaration& declaration, const ParallelShape& shape,
                      const std::vector<std::string>& trainable = {});

// While one stage's engine becomes the next one's (MakeEngine of what Release has handed over): the new engine, and the
// values that it does not take over as they are; the last checkpoint of the stage before may be in flight.
MemoryPlan PlanHandOver(const ModelDeclaration& declaration, const ParallelShape& shape,
                        const std::vector<std::string>& before, const std::vector<std::string>& after);

// What forward computes with.
at::ScalarType TypeOf(DType dtype, Precision precision);
int64_t ElementBytes(DType dtype, Precision precision);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_MEMORY_PLAN_H_

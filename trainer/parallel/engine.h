// The parallel engine: what holds a model's parameters, gradients, moments and buffers, and how the ranks share them.
// Callers do not know which stage stands behind it.
//
// A step:
//   BeginStep; for each micro-batch { forward; Backward(loss, is last) }; Finish (or Drain); Update
// The collectives of a step are one fixed sequence on every rank, whatever a rank's number of micro-batches.
#ifndef TRAINYARD_TRAINER_PARALLEL_ENGINE_H_
#define TRAINYARD_TRAINER_PARALLEL_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/config/config.h"
#include "trainer/device/convert.h"
#include "trainer/device/device.h"
#include "trainer/model/pass.h"
#include "trainer/parallel/memory_plan.h"
#include "trainer/parallel/publisher.h"

namespace trainyard {

struct EngineOptions {
  ZeroStage stage = ZeroStage::kDdp;
  Precision precision = Precision::kFp32;
  Reduce reduce = Reduce::kLast;
  bool bf16_reduce = false;  // gradients are rounded to bfloat16 on their way between ranks
  int64_t bucket_bytes = 25 << 20;
  int64_t micro_batch = 1;  // most samples of one forward: rows of a gather
  // Of a unit only its inputs are kept, and backward runs its forward again, but where it says that it needs no more
  // (Keeps): less memory, at most as much again of forward, the same bits.
  bool recompute = false;
  // AdamW's state and the float32 master lie in host memory, where they are updated (offloaded_update.h).
  bool offload = false;
  int64_t tile_bytes = 16 << 20;  // of float32, that are updated at once
  OptimConfig optim;
  // Patterns of the parameters that are trained now, of those declared so; empty: all. The others rest: they are saved,
  // and cost no gradient and no moments.
  std::vector<std::string> trainable;
};

struct UpdateInput {
  double lr = 0;
  double clip = 0;               // largest norm of the whole gradient; 0 does not clip
  int64_t update = 1;            // the number of this update, from 1; skipped steps are not counted
  double loss_scale = 1;         // what losses were multiplied by before Backward
  bool finite = true;            // the consensus about the loss
  std::function<void()> before;  // called before anything that a checkpoint may still copy changes
};

struct UpdateResult {
  double grad_norm = 0;  // global, before clipping
  bool applied = false;  // false: loss or gradient was not finite, and nothing has changed
};

// Elements [begin, end) of a row-major tensor that a rank holds, float32; it is saved and loaded under its key:
// model.<p> (the master), adamw.exp_avg.<p>, adamw.exp_avg_sq.<p>, ema.<p>, buffer.<b>. `values`: (end - begin), a view
// of what the engine has, on its device or in the host's memory.
struct StateSlice {
  std::string key;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t begin = 0, end = 0;
  at::Tensor values;
  bool replicated = false;  // every rank holds the same
};

// What one stage's engine leaves to the next one's: the model's parameters, averaged where the stage had averages, and
// buffers, in one copy, and nothing else. Only engines look into it.
struct ModelValues {
  std::map<std::string, at::Tensor> tensors;  // by name
};

// Used by one thread. The model's declaration and the collectives must outlive it.
class Engine : public Weights {
 public:
  // `micro_batches`: of the rank that has most of them; the same on every rank.
  virtual void BeginStep(int64_t micro_batches) = 0;
  // The backward of a micro-batch, from its share of the loss; `last`: it is the rank's last one.
  virtual void Backward(const at::Tensor& loss, bool last) = 0;
  // After the last backward, also on a rank that has no samples: returns when the gradients are summed.
  // Throws PeerError when a collective failed.
  virtual void Finish() = 0;
  // Instead of Finish, on a rank whose data, forward or backward failed: takes part in every collective that is left,
  // so that nobody waits for it. The gradient is then of no use, and Update must not follow.
  virtual void Drain() = 0;
  // Norm, clip, AdamW, averages, buffers, and what forward computes with.
  virtual UpdateResult Update(const UpdateInput& input) = 0;
  // Of the step that was finished last: the share of buckets whose sum was there when backward ended, [0, 1].
  virtual double overlap() const = 0;

  // What this rank saves and loads; of one key several, where it owns parts. The views stay valid; after writing to
  // them, call Publish.
  virtual std::vector<StateSlice> Slices() = 0;
  // Sets this rank's part of a parameter and of its average, trained or frozen, from a whole tensor. Who sets it on one
  // rank only makes the ranks' values the same before Publish, after which forward computes with them.
  virtual void SetParameter(ParameterId id, std::span<const float> values) = 0;
  // Refreshes what forward computes with. Every rank calls it. Throws PeerError when a collective failed.
  virtual void Publish() = 0;
  // Gives `piece` the whole of one parameter or buffer, float32, in pieces and in order. Every rank calls it, for the
  // same ones in the same order; `piece` may be empty, and what it throws comes out when the collectives are over.
  // Throws PeerError when a collective failed.
  virtual void Read(ParameterId id, const Pieces& piece) = 0;
  virtual void Read(BufferId id, const Pieces& piece) = 0;
  // What forward computes with, and Read gives: the moving averages of the parameters (optim.ema_decay), or, as at the
  // start, what is trained. Where there are none it does nothing. Slices says of either which it is. Values change
  // places, so that nothing may copy them meanwhile; no step may begin before the trained ones are back. Every rank
  // calls it. Throws PeerError when a collective failed.
  virtual void ShowAverages(bool averages) = 0;
  // Hands over what outlives a stage, without a copy. Only the destructor may follow.
  virtual ModelValues Release() = 0;
};

// Allocates everything on `device`, whose tensors `collectives` are for, and fills it with what a stage before has
// left, or with the initial values of `seed`. Both must outlive the engine. Throws ConfigError for a pattern of
// optim.groups that matches no declared parameter, and std::logic_error for one of `trainable`. PlanMemory and
// PlanHandOver say what it takes.
std::unique_ptr<Engine> MakeEngine(const ModelDeclaration& declaration, const EngineOptions& options, uint64_t seed,
                                   Device& device, Collectives& collectives, ModelValues from = {});

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_ENGINE_H_

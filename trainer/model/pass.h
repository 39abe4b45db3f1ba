// One forward through a model: where it finds its parameters, and what its randomness is drawn from.
#ifndef TRAINYARD_TRAINER_MODEL_PASS_H_
#define TRAINYARD_TRAINER_MODEL_PASS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/base/random.h"
#include "trainer/model/builder.h"

namespace trainyard {

using UnitFunction = std::function<at::Tensor(at::TensorList inputs)>;

// What a unit's backward needs of its forward.
enum class Keeps {
  kMore,    // values that forward computes on the way
  kInputs,  // its inputs, and these at most once more in another type: computing it again would save nothing
};

// The values of a model's parameters and buffers: an engine (parallel/engine.h), or a test. Used by one thread.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual const ModelDeclaration& declaration() const = 0;
  // A tensor of the host's where forward computes, as Device::Upload.
  virtual at::Tensor Upload(const at::Tensor& host) { return host; }
  // In its shape and the type that forward computes with; requires a gradient if it is trained. Valid while its unit
  // is open.
  virtual at::Tensor Parameter(ParameterId id) = 0;
  // What this step has staged, else what the last update committed; float32.
  virtual at::Tensor Buffer(BufferId id) = 0;
  virtual void StageBuffer(BufferId id, const at::Tensor& value) = 0;
  // Returns fn(inputs) with the unit's parameters at hand; gradients go to `inputs` and the parameters.
  virtual at::Tensor RunUnit(UnitId unit, const UnitFunction& fn, at::TensorList inputs, Keeps keeps) = 0;
  // Rows of all ranks in global order; differentiable. x: (rows, columns) float32, other rows on every rank.
  virtual at::Tensor Gather(GatherId id, const at::Tensor& x) = 0;
  // Behind forwards of an evaluation, however many this rank has made, also when one failed: every rank calls it, and
  // where they share out parameters it returns when all have.
  virtual void EndForwards() {}
};

// Small; copies share which units are open.
class Pass {
 public:
  // A forward for a gradient: `key` is the micro-batch's (seed, step, place in the global batch).
  static Pass Training(Weights& weights, uint64_t key, int stage = 0) { return Pass(weights, true, key, stage); }
  // Nothing is dropped, staged or gathered.
  static Pass Evaluation(Weights& weights) { return Pass(weights, false, 0, 0); }

  bool training() const { return training_; }
  // Which of the task's stages is trained, from 0. REQUIRES: training.
  int stage() const { return stage_; }

  // Throws std::logic_error naming the parameter when its unit is not open.
  at::Tensor operator[](ParameterId id) const;
  at::Tensor operator[](BufferId id) const { return weights_->Buffer(id); }
  // From the next forward on; what a step that is skipped has staged leaves no trace. REQUIRES: training.
  void Stage(BufferId id, const at::Tensor& value) const { weights_->StageBuffer(id, value); }

  // What a batch holds, where forward computes: a copy, or the tensor itself where that is the host's memory.
  at::Tensor Upload(const at::Tensor& host) const { return weights_->Upload(host); }

  // What a place draws from. No operation of a model may draw from anything else.
  uint64_t Fork(Place place) const { return HashKey(key_, place.index); }

  // Opens a unit around fn, which gets `inputs`; whatever else it captures gets no gradient. Backward may call it
  // again, when the caller has returned (activation checkpointing): it captures by value what does not outlive the
  // model, and makes no Gather.
  at::Tensor Unit(UnitId unit, const UnitFunction& fn, at::TensorList inputs, Keeps keeps = Keeps::kMore) const;

  // For losses over the global batch: (rows, columns) of this rank -> the rows of all ranks in global order. The
  // gradient of a row is the sum over the ranks that used it. An evaluation, and a world of one, gives x back.
  at::Tensor Gather(GatherId id, const at::Tensor& x) const { return training_ ? weights_->Gather(id, x) : x; }

 private:
  Pass(Weights& weights, bool training, uint64_t key, int stage)
      : weights_(&weights),
        training_(training),
        key_(key),
        stage_(stage),
        open_(std::make_shared<std::vector<int>>(weights.declaration().units.size(), 0)) {}

  Weights* weights_;
  bool training_;
  uint64_t key_;
  int stage_;
  std::shared_ptr<std::vector<int>> open_;  // per unit: how often it is open
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_PASS_H_

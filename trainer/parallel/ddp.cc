// Stage 0: every rank holds everything; gradients are summed by all-reduce while backward runs.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "trainer/kernels/kernels.h"
#include "trainer/model/initialize.h"
#include "trainer/optim/adamw.h"
#include "trainer/parallel/block_norm.h"
#include "trainer/parallel/buffers.h"
#include "trainer/parallel/engine.h"
#include "trainer/parallel/gather.h"
#include "trainer/parallel/gradient_reducer.h"
#include "trainer/parallel/update_ranges.h"

namespace trainyard {
namespace {

constexpr int64_t kPiece = 1 << 20;  // values

// A parameter's values in the type that forward computes with, from float32.
void Convert(std::span<const float> from, at::Tensor& to) {
  if (to.data_ptr() == static_cast<const void*>(from.data())) return;  // the same memory
  if (to.scalar_type() == at::kBFloat16) {
    kernels::Kernels().to_bf16(from.data(), reinterpret_cast<kernels::Bf16*>(to.data_ptr()),
                               static_cast<int64_t>(from.size()));
  } else {
    std::copy(from.begin(), from.end(), to.data_ptr<float>());
  }
}

class DdpEngine : public Engine {
 public:
  DdpEngine(const ModelDeclaration& declaration, const EngineOptions& options, uint64_t seed, Collectives& collectives,
            ModelValues from)
      : declaration_(declaration),
        collectives_(collectives),
        state_(FlatLayout(Trained(declaration, options.trainable), collectives.size()), options.precision),
        reducer_(state_, collectives, options.bucket_bytes),
        optimizer_(options.optim, UpdateRanges(options.optim, state_.layout())),
        buffers_(declaration),
        gathers_(declaration, options.micro_batch, collectives, [this] { reducer_.Hold(false); }) {
    const bool first = from.tensors.empty();
    if (first) state_.Initialize(seed);
    size_t trained = 0;
    at::Tensor rounded;
    for (const ParameterSpec& spec : declaration.parameters) {
      Held held;
      const at::Tensor left = Take(from, spec.name);
      if (IsTrained(spec, options.trainable)) {
        held.trained = trained++;
        if (!first) Start(spec, seed, left, MasterOf(held));
      } else {
        held.still = MakeStill(spec, options.precision, seed, left, rounded);
      }
      held_.push_back(std::move(held));
    }
    for (size_t i = 0; i < declaration.buffers.size(); ++i) {
      if (const at::Tensor left = Take(from, declaration.buffers[i].name); left.defined()) buffers_.committed(i) = left;
    }
    if (!first) state_.PublishParameters();
  }

  const ModelDeclaration& declaration() const override { return declaration_; }

  at::Tensor Parameter(ParameterId id) override {
    const Held& held = HeldOf(id);
    return held.trained ? state_.leaves()[*held.trained] : held.still.compute;
  }
  at::Tensor Buffer(BufferId id) override { return buffers_.Get(id); }
  void StageBuffer(BufferId id, const at::Tensor& value) override { buffers_.Stage(id, value); }
  at::Tensor RunUnit(UnitId, const UnitFunction& fn, at::TensorList inputs) override { return fn(inputs); }
  at::Tensor Gather(GatherId id, const at::Tensor& x) override { return gathers_.Gather(id, x); }

  void BeginStep(int64_t micro_batches) override {
    buffers_.Discard();
    gathers_.BeginStep(micro_batches);
    reducer_.BeginStep();
    reducer_.Hold(!gathers_.complete());
  }
  void BeginBackward(bool last) override { reducer_.BeginBackward(last); }
  void Finish() override {
    gathers_.Complete();
    reducer_.Finish();
    buffers_.Reduce(collectives_);
  }
  void Drain() override {
    gathers_.Complete();
    reducer_.Drain();
    buffers_.Discard();
    buffers_.Reduce(collectives_);
  }
  double overlap() const override { return reducer_.overlap(); }

  UpdateResult Update(const UpdateInput& input) override {
    UpdateResult result;
    result.grad_norm = BlockNorm(Floats(state_.gradient), norm_scratch_);
    result.applied = input.finite && std::isfinite(result.grad_norm);
    if (!result.applied) {
      buffers_.Discard();
      return result;
    }
    if (input.before) input.before();
    optimizer_.Step(state_.UpdateBuffers(), input.update, input.lr, ClipScale(result.grad_norm, input.clip));
    buffers_.Commit();
    state_.PublishParameters();
    return result;
  }

  std::vector<StateSlice> Slices() override {
    std::vector<StateSlice> slices;
    const std::pair<const char*, at::Tensor*> kinds[] = {
        {"model.", &state_.master}, {"adamw.exp_avg.", &state_.exp_avg}, {"adamw.exp_avg_sq.", &state_.exp_avg_sq}};
    const FlatLayout& layout = state_.layout();
    for (const auto& [prefix, flat] : kinds) {
      for (size_t i = 0; i < layout.parameters().size(); ++i) {
        const ParameterSpec& spec = layout.parameters()[i];
        slices.push_back({prefix + spec.name, spec.shape, 0, spec.numel(), Part(*flat, layout.range(i)), true});
      }
    }
    for (size_t i = 0; i < held_.size(); ++i) {
      const ParameterSpec& spec = declaration_.parameters[i];
      if (held_[i].still.master.defined())
        slices.push_back({"model." + spec.name, spec.shape, 0, spec.numel(), Floats(held_[i].still.master), true});
    }
    for (size_t i = 0; i < declaration_.buffers.size(); ++i) {
      const BufferSpec& spec = declaration_.buffers[i];
      slices.push_back({"buffer." + spec.name, spec.shape, 0, spec.numel(), Floats(buffers_.committed(i)), true});
    }
    return slices;
  }

  void SetParameter(ParameterId id, std::span<const float> values) override {
    Held& held = HeldOf(id);
    if (!held.trained && !held.still.master.defined()) {
      Convert(values, held.still.compute);
    } else {
      const std::span<float> master = MasterOf(held);
      std::copy(values.begin(), values.end(), master.begin());
    }
  }

  void Publish() override {
    state_.PublishParameters();
    for (Held& held : held_) {
      if (held.still.master.defined()) Convert(Floats(held.still.master), held.still.compute);
    }
  }

  void Read(ParameterId id, const Pieces& piece) override {
    const Held& held = HeldOf(id);
    if (held.trained || held.still.master.defined()) return piece(MasterOf(held));
    // Not widened as a whole: what is frozen costs two bytes, also while it is written.
    const at::Tensor flat = held.still.compute.flatten();
    for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
      const at::Tensor wide = flat.narrow(0, begin, std::min(kPiece, flat.numel() - begin)).to(at::kFloat);
      piece(Floats(wide));
    }
  }
  void Read(BufferId id, const Pieces& piece) override {
    piece(Floats(buffers_.committed(static_cast<size_t>(id.index))));
  }

  ModelValues Release() override {
    ModelValues values;
    for (size_t i = 0; i < held_.size(); ++i) {
      const Held& held = held_[i];
      at::Tensor& left = values.tensors[declaration_.parameters[i].name];
      if (held.trained) {
        const Range range = state_.layout().range(*held.trained);
        left = state_.master.narrow(0, range.begin, range.size());
      } else {
        left = held.still.master.defined() ? held.still.master : held.still.compute;
      }
    }
    for (size_t i = 0; i < declaration_.buffers.size(); ++i)
      values.tensors[declaration_.buffers[i].name] = buffers_.committed(i);
    return values;
  }

 private:
  // A parameter that does not change: frozen (no master), or resting until another stage trains it.
  struct Still {
    at::Tensor master;   // float32 (numel), or undefined
    at::Tensor compute;  // in its shape; the master itself where that is float32
  };
  struct Held {
    std::optional<size_t> trained;  // its index in the layout
    Still still;
  };

  Held& HeldOf(ParameterId id) { return held_[static_cast<size_t>(id.index)]; }

  // Undefined where the name is not there.
  static at::Tensor Take(ModelValues& from, const std::string& name) {
    auto node = from.tensors.extract(name);
    return node ? std::move(node.mapped()) : at::Tensor();
  }

  static void Start(const ParameterSpec& spec, uint64_t seed, const at::Tensor& left, std::span<float> to) {
    if (left.defined()) {
      std::copy_n(left.data_ptr<float>(), to.size(), to.begin());
    } else {
      FillInitial(spec, seed, to);
    }
  }

  // `left` is kept as it is where it has its memory for itself; a part of another engine's flat buffer would keep all
  // of that. `rounded`: room for the float32 values of what is frozen in bfloat16, the same for all: with room of its
  // own for each, the heap would keep the holes between what stays, and a parameter would cost four bytes.
  static Still MakeStill(const ParameterSpec& spec, Precision precision, uint64_t seed, const at::Tensor& left,
                         at::Tensor& rounded) {
    const bool half = ElementBytes(spec.dtype, precision) == 2;
    Still still;
    if (left.defined() && !spec.trainable) {
      still.compute = left.view(spec.shape);
      return still;
    }
    at::Tensor values = left;
    if (!left.defined() || left.storage().nbytes() != left.nbytes()) {
      const bool passing = half && !spec.trainable;
      if (passing && (!rounded.defined() || rounded.numel() < spec.numel()))
        rounded = at::empty({spec.numel()}, at::kFloat);
      values = passing ? rounded.narrow(0, 0, spec.numel()) : at::empty({spec.numel()}, at::kFloat);
      Start(spec, seed, left, Floats(values));
    }
    still.compute = half ? at::empty(spec.shape, at::kBFloat16) : values.view(spec.shape);
    if (half) Convert(Floats(values), still.compute);
    if (spec.trainable) still.master = values;
    return still;
  }

  static std::span<float> Part(const at::Tensor& flat, Range range) {
    return Floats(flat).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
  }

  // REQUIRES: it has one.
  std::span<float> MasterOf(const Held& held) const {
    return held.trained ? Part(state_.master, state_.layout().range(*held.trained)) : Floats(held.still.master);
  }

  const ModelDeclaration& declaration_;
  Collectives& collectives_;
  FlatState state_;
  GradientReducer reducer_;
  AdamW optimizer_;
  Buffers buffers_;
  GatherSchedule gathers_;
  std::vector<Held> held_;  // per declared parameter
  std::vector<double> norm_scratch_;
};

}  // namespace

std::unique_ptr<Engine> MakeEngine(const ModelDeclaration& declaration, const EngineOptions& options, uint64_t seed,
                                   Collectives& collectives, ModelValues from) {
  RequireMatchingGroups(options.optim, Trained(declaration, {}));
  for (const std::string& pattern : options.trainable) {
    if (Trained(declaration, {pattern}).empty())
      throw std::logic_error("a stage trains " + pattern + ", which matches no parameter");
  }
  return std::make_unique<DdpEngine>(declaration, options, seed, collectives, std::move(from));
}

}  // namespace trainyard

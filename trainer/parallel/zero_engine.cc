// What ddp and ZeRO have in common, which is nearly everything.
//   ddp: every rank owns everything. Gradients are summed by all-reduce, and each rank makes the same update.
//   zero1, zero2 (Rajbhandari et al., arXiv 1910.02054): a rank owns its part of each bucket. It gets the sum of that
//   part by reduce-scatter, updates it, and gathers the others' parts. With gradients reduced on the last micro-batch
//   there is nothing that zero2 could free earlier, so the two are one; reduced with every one, it holds a shard.
//   zero3: of the parameters, too, a rank holds what it owns, and units are put together while they compute.
// What a rank owns is all that differs: sums of an element depend on the order of the ranks alone, and on the
// micro-batches that are summed before it, so all that reduce alike make the same bits.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "trainer/device/convert.h"
#include "trainer/model/initialize_together.h"
#include "trainer/optim/adamw.h"
#include "trainer/parallel/buffers.h"
#include "trainer/parallel/engine.h"
#include "trainer/parallel/gather.h"
#include "trainer/parallel/gathered_units.h"
#include "trainer/parallel/gradient_reducer.h"
#include "trainer/parallel/offloaded_update.h"
#include "trainer/parallel/publisher.h"
#include "trainer/parallel/recompute.h"
#include "trainer/parallel/unit_border.h"
#include "trainer/parallel/update_ranges.h"

namespace trainyard {
namespace {

// What this rank owns, ascending; empty: everything.
std::vector<Range> Shard(const FlatLayout& layout, const EngineOptions& options, const Collectives& collectives) {
  if (options.stage == ZeroStage::kDdp || collectives.size() == 1) return {};
  std::vector<Range> owned = layout.Owned(collectives.rank(), options.bucket_bytes);
  std::ranges::reverse(owned);
  return owned;
}

class ZeroEngine : public Engine {
 public:
  ZeroEngine(const ModelDeclaration& declaration, const EngineOptions& options, uint64_t seed, Device& device,
             Collectives& collectives, const FlatLayout& layout, ModelValues from)
      : declaration_(declaration),
        device_(device),
        collectives_(collectives),
        state_(layout,
               {.precision = options.precision,
                .shard = Shard(layout, options, collectives),
                .reduce = options.reduce,
                .in_units = InUnits(options.stage, collectives.size()),
                .averages = options.optim.ema_decay.has_value(),
                .offload = options.offload},
               device),
        every_(!state_.gradient_is_whole()),
        recompute_(options.recompute),
        reducer_(MakeGradientReducer(state_, collectives,
                                     {.bucket_bytes = options.bucket_bytes, .bf16 = options.bf16_reduce})),
        publisher_(state_, collectives, options.bucket_bytes),
        optimizer_(options.optim, UpdateRanges(options.optim, state_.layout())),
        buffers_(declaration, device.device()),
        gathers_(declaration, options.micro_batch, device.device(), collectives, [this] { ReleaseBuckets(); }),
        blocks_(at::zeros({state_.layout().total() / kBlock}, state_.gradient.options().dtype(at::kDouble))) {
    if (state_.units())
      units_.emplace(state_, collectives, declaration.units, state_.layout().Buckets(options.bucket_bytes),
                     UnitNeighbours{.buckets_are_whole = [this](size_t n) { reducer_->SendThrough(n); },
                                    .take_part_in_gather = [this] { gathers_.CompleteNext(); },
                                    .gathers_made = [this] { return gathers_.made(); }});
    if (options.offload) offloaded_.emplace(state_, device.MakeCopies(), options.tile_bytes);
    const bool first = from.tensors.empty();
    if (first) state_.Initialize(seed);
    leaves_of_unit_.resize(declaration.units.size());
    size_t trained = 0;
    at::Tensor rounded;
    for (const ParameterSpec& spec : declaration.parameters) {
      Held held;
      const at::Tensor left = Take(from, spec.name);
      if (IsTrained(spec, options.trainable)) {
        held.trained = trained++;
        leaves_of_unit_[static_cast<size_t>(spec.unit.index)].push_back(state_.leaves()[*held.trained]);
        if (!first) state_.Set(*held.trained, left);
      } else {
        held.still = MakeStill(spec, options.precision, seed, left, rounded);
      }
      held_.push_back(std::move(held));
    }
    for (size_t i = 0; i < declaration.buffers.size(); ++i) {
      if (const at::Tensor left = Take(from, declaration.buffers[i].name); left.defined()) buffers_.committed(i) = left;
    }
  }

  const ModelDeclaration& declaration() const override { return declaration_; }
  at::Tensor Upload(const at::Tensor& host) override { return device_.Upload(host); }

  at::Tensor Parameter(ParameterId id) override {
    const Held& held = HeldOf(id);
    if (!held.trained) return held.still.compute;
    publisher_.Await(*held.trained);
    return state_.leaves()[*held.trained];
  }
  at::Tensor Buffer(BufferId id) override { return buffers_.Get(id); }
  void StageBuffer(BufferId id, const at::Tensor& value) override {
    if (!recomputing_) buffers_.Stage(id, value);
  }
  at::Tensor RunUnit(UnitId unit, const UnitFunction& fn, at::TensorList inputs, Keeps keeps) override {
    const bool again = recompute_ && keeps == Keeps::kMore && at::GradMode::is_enabled();
    const UnitFunction run = again ? Recomputing(unit, fn) : fn;
    return units_ ? units_->Run(unit, run, inputs) : run(Behind(inputs));
  }
  void EndForwards() override {
    if (units_) units_->EndForwards();
    collectives_.ThrowIfFailed();  // what forward has computed, and who calls this has read, would be of no parameters
  }
  at::Tensor Gather(GatherId id, const at::Tensor& x) override {
    const auto gather = [this, id](at::TensorList in) { return gathers_.Gather(id, in[0]); };
    return units_ ? units_->RunGather(id, gather, x) : gather({x});
  }

  void BeginStep(int64_t micro_batches) override {
    if (averages_shown_) throw std::logic_error("a step begins while forward computes with averages");
    micro_batches_ = micro_batches;
    ended_ = 0;
    buffers_.Discard();
    gathers_.BeginStep(micro_batches);
    reducer_->BeginStep();
    if (units_) units_->BeginStep(micro_batches);
  }
  void Backward(const at::Tensor& loss, bool last) override {
    if (units_) units_->EndForward(true);
    reducer_->BeginBackward(units_ ? IsLastOfAll() : last);
    reducer_->Hold(units_.has_value() || !gathers_.complete(GathersFirst()));
    loss.backward();
    if (!units_ && !gathers_.complete(ended_ + 1))  // the others wait in it; Drain takes part in what is left
      throw std::logic_error(
          "a micro-batch leaves a gather out: each makes every declared gather once, and uses its result in the loss");
    if (units_) units_->EndBackward();
    reducer_->EndBackward();
    ++ended_;
  }
  void Finish() override {
    TakePartInRest();
    EndStep();
  }
  void Drain() override {
    reducer_->Drain();
    TakePartInRest();
    buffers_.Discard();
    EndStep();
  }
  double overlap() const override { return reducer_->overlap(); }

  UpdateResult Update(const UpdateInput& input) override {
    UpdateResult result;
    result.grad_norm = Norm() / input.loss_scale;
    collectives_.ThrowIfFailed();  // of a device it is known since the norm is
    result.applied = input.finite && std::isfinite(result.grad_norm);
    if (!result.applied) {
      buffers_.Discard();
      return result;
    }
    if (input.before) input.before();
    publisher_.AwaitAll();
    const auto scale = static_cast<float>(ClipScale(result.grad_norm, input.clip) / input.loss_scale);
    UpdateOwned({.number = input.update, .lr = input.lr, .grad_scale = scale});
    buffers_.Commit();
    return result;
  }

  std::vector<StateSlice> Slices() override {
    publisher_.AwaitAll();
    std::vector<StateSlice> slices;
    const auto add = [&](const char* prefix, const auto& values_of) {
      const FlatLayout& layout = state_.layout();
      for (size_t i = 0; i < layout.parameters().size(); ++i) {
        const ParameterSpec& spec = layout.parameters()[i];
        const int64_t begin = layout.range(i).begin;
        for (const OwnedPiece& piece : state_.OwnedOf(layout.range(i)))
          slices.push_back({prefix + spec.name, spec.shape, piece.flat.begin - begin, piece.flat.end - begin,
                            values_of(piece), !state_.sharded()});
      }
    };
    const auto master = [&](const OwnedPiece& piece) { return state_.MasterOf(piece); };
    const auto of = [](const at::Tensor& owned) {
      return [&owned](const OwnedPiece& piece) { return FlatState::MomentsOf(owned, piece); };
    };
    averages_shown_ ? add("model.", of(state_.average)) : add("model.", master);
    add("adamw.exp_avg.", of(state_.exp_avg));
    add("adamw.exp_avg_sq.", of(state_.exp_avg_sq));
    if (state_.average.defined()) averages_shown_ ? add("ema.", master) : add("ema.", of(state_.average));
    for (size_t i = 0; i < held_.size(); ++i) {
      const ParameterSpec& spec = declaration_.parameters[i];
      if (held_[i].still.master.defined())
        slices.push_back({"model." + spec.name, spec.shape, 0, spec.numel(), held_[i].still.master, true});
    }
    for (size_t i = 0; i < declaration_.buffers.size(); ++i) {
      const BufferSpec& spec = declaration_.buffers[i];
      slices.push_back(
          {"buffer." + spec.name, spec.shape, 0, spec.numel(), buffers_.committed(i).view({spec.numel()}), true});
    }
    return slices;
  }

  void SetParameter(ParameterId id, std::span<const float> values) override {
    Held& held = HeldOf(id);
    publisher_.AwaitAll();
    const at::Tensor from =
        at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())}, at::kFloat);
    if (held.trained) return state_.Set(*held.trained, from);
    if (held.still.master.defined()) Convert(from, held.still.master, device_);
    Convert(from, held.still.compute, device_);
  }

  void Publish() override {
    publisher_.Begin();
    for (Held& held : held_) {
      if (held.still.master.defined()) Convert(held.still.master, held.still.compute, device_);
    }
  }

  void Read(ParameterId id, const Pieces& piece) override {
    const Held& held = HeldOf(id);
    if (held.trained) return publisher_.Read(*held.trained, piece);
    if (piece) ReadPieces(held.still.master.defined() ? held.still.master : held.still.compute, piece);
  }
  void Read(BufferId id, const Pieces& piece) override {
    if (piece) ReadPieces(buffers_.committed(static_cast<size_t>(id.index)), piece);
  }

  void ShowAverages(bool averages) override {
    if (!state_.average.defined() || averages == averages_shown_) return;
    publisher_.AwaitAll();
    state_.SwapAverages();
    averages_shown_ = averages;
    publisher_.Begin();
  }

  ModelValues Release() override {
    ModelValues values;
    ShowAverages(true);
    const at::Tensor whole = publisher_.WholeMaster();
    for (size_t i = 0; i < held_.size(); ++i) {
      const Held& held = held_[i];
      at::Tensor& left = values.tensors[declaration_.parameters[i].name];
      if (held.trained) {
        const Range range = state_.layout().range(*held.trained);
        left = whole.narrow(0, range.begin, range.size());
      } else {
        left = held.still.master.defined() ? held.still.master : held.still.compute;
      }
    }
    for (size_t i = 0; i < declaration_.buffers.size(); ++i)
      values.tensors[declaration_.buffers[i].name] = buffers_.committed(i);
    return values;
  }

 private:
  // A parameter that does not change: frozen (no master), or resting until another stage trains it. On the device.
  struct Still {
    at::Tensor master;   // float32 (numel), or undefined
    at::Tensor compute;  // in its shape; the master itself where that is float32
  };
  struct Held {
    std::optional<size_t> trained;  // its index in the layout
    Still still;
  };

  // Runs the unit once more in backward, where what forward has staged must not be staged again.
  UnitFunction Recomputing(UnitId unit, const UnitFunction& fn) {
    return [this, unit, fn](at::TensorList inputs) {
      const auto again = [this, fn](at::TensorList given) {
        struct Now {
          bool& flag;
          ~Now() { flag = false; }
        } const now{recomputing_ = true};
        return fn(given);
      };
      return Recomputed(fn, again, inputs, leaves_of_unit_[static_cast<size_t>(unit.index)]);
    };
  }

  Held& HeldOf(ParameterId id) { return held_[static_cast<size_t>(id.index)]; }

  // Undefined where the name is not there.
  static at::Tensor Take(ModelValues& from, const std::string& name) {
    auto node = from.tensors.extract(name);
    return node ? std::move(node.mapped()) : at::Tensor();
  }

  // `left` is kept as it is where it has its memory for itself; a part of another engine's flat buffer would keep all
  // of that. `rounded`: room in the host's memory for the float32 values of what is frozen in 16 bits, the same for
  // all: with room of its own for each, there would be holes between what stays, and a parameter would cost four bytes.
  Still MakeStill(const ParameterSpec& spec, Precision precision, uint64_t seed, const at::Tensor& left,
                  at::Tensor& rounded) const {
    const bool half = ElementBytes(spec.dtype, precision) == 2, passing = half && !spec.trainable;
    const at::Device there = device_.device();
    Still still;
    if (left.defined() && !spec.trainable) {
      still.compute = left.view(spec.shape);
      return still;
    }
    at::Tensor values = left;
    if (!left.defined() || left.storage().nbytes() != left.nbytes()) {
      if (passing && (!rounded.defined() || rounded.numel() < spec.numel()))
        rounded = at::empty({spec.numel()}, at::kFloat);
      values = passing          ? rounded.narrow(0, 0, spec.numel())
               : left.defined() ? left.clone()
                                : at::empty({spec.numel()}, at::kFloat);
      if (!left.defined()) FillInitialTogether(spec, seed, Floats(values));
    }
    if (!passing) values = values.to(there);
    still.compute = half ? at::empty(spec.shape, at::TensorOptions(TypeOf(spec.dtype, precision)).device(there))
                         : values.view(spec.shape);
    if (half) Convert(values, still.compute, device_);
    if (spec.trainable) still.master = values;
    return still;
  }

  // The micro-batches whose gathers come before the next bucket.
  int64_t GathersFirst() const { return every_ ? ended_ + 1 : micro_batches_; }
  // With units in between, buckets have their places among those.
  void ReleaseBuckets() {
    if (!units_ && gathers_.complete(GathersFirst())) reducer_->Hold(false);
  }
  bool IsLastOfAll() const { return ended_ + 1 == micro_batches_; }
  // The micro-batches that other ranks have, and what a failure has left of this one's.
  void TakePartInRest() {
    for (; ended_ < micro_batches_; ++ended_) {
      if (units_) {
        units_->EndForward(false);
        reducer_->BeginBackward(IsLastOfAll());
        units_->EndBackward();
      }
      gathers_.Complete(ended_ + 1);
      reducer_->EndBackward();
    }
  }
  void EndStep() {
    if (units_) units_->EndStep();
    reducer_->Finish();
    buffers_.Reduce(collectives_);
  }

  // AdamW, and what forward computes with begins to come.
  void UpdateOwned(const AdamWStep& step) {
    if (offloaded_) {
      publisher_.BeginParts();
      offloaded_->Run(optimizer_, step, [&](size_t piece) { publisher_.SendPart(piece); });
      state_.RefreshWide();
      return publisher_.EndParts();
    }
    for (const OwnedPiece& piece : state_.owned())
      optimizer_.Step(device_.math(), state_.UpdateBuffers(piece), piece.flat.begin, piece.flat.end, step);
    publisher_.Begin();
  }

  // Of the whole gradient, which nobody may hold: from the sums over blocks, each of which one rank owns, in their
  // order.
  double Norm() {
    if (state_.sharded()) blocks_.zero_();
    double* sums = blocks_.data_ptr<double>();
    for (const OwnedPiece& piece : state_.owned())
      device_.math().SumBlocks(state_.GradientOf(piece).const_data_ptr<float>(), sums + piece.flat.begin / kBlock,
                               piece.flat.size() / kBlock);
    if (state_.sharded()) collectives_.Wait(collectives_.AllReduce(blocks_, "gradient norm"));
    return device_.math().NormOf(sums, blocks_.numel());
  }

  const ModelDeclaration& declaration_;
  Device& device_;
  Collectives& collectives_;
  FlatState state_;
  const bool every_;  // micro-batch's gradients are reduced
  const bool recompute_;
  bool recomputing_ = false, averages_shown_ = false;
  std::vector<std::vector<at::Tensor>> leaves_of_unit_;
  std::unique_ptr<GradientReducer> reducer_;
  std::optional<GatheredUnits> units_;  // zero3's
  Publisher publisher_;
  const AdamW optimizer_;
  std::optional<OffloadedUpdate> offloaded_;
  Buffers buffers_;
  GatherSchedule gathers_;
  at::Tensor blocks_;                      // float64: the gradient's sums of squares by blocks
  std::vector<Held> held_;                 // per declared parameter
  int64_t micro_batches_ = 0, ended_ = 0;  // of this step; the backwards that are over
};

}  // namespace

std::unique_ptr<Engine> MakeEngine(const ModelDeclaration& declaration, const EngineOptions& options, uint64_t seed,
                                   Device& device, Collectives& collectives, ModelValues from) {
  RequireMatchingGroups(options.optim, Trained(declaration, {}));
  for (const std::string& pattern : options.trainable) {
    if (Trained(declaration, {pattern}).empty())
      throw std::logic_error("a stage trains " + pattern + ", which matches no parameter");
  }
  FlatLayout layout(Trained(declaration, options.trainable), collectives.size(),
                    InUnits(options.stage, collectives.size()));
  return std::make_unique<ZeroEngine>(declaration, options, seed, device, collectives, layout, std::move(from));
}

}  // namespace trainyard

// What activation checkpointing keeps for backward, and the most that a step needs with it: predicted from what each
// unit takes without it.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/forwarding_weights.h"
#include "tests/unit/tensor_meter.h"
#include "trainer/comm/in_process.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/engine.h"
#include "trainer/parallel/unit_border.h"
#include "trainer/task/hybrid_vit_cascade/cascade_model.h"
#include "trainer/task/mace_survival/resnet3d.h"

namespace trainyard {
namespace {

// What a unit takes in a step without checkpointing, in bytes.
struct Use {
  int64_t before = 0;       // what there was when its forward began
  int64_t in_forward = 0;   // the most that its forward had beside that
  int64_t held = 0;         // what its forward has left, the result included
  int64_t saved = 0;        // of that, what checkpointing does not keep
  int64_t begun = 0;        // what there was when backward came to it
  int64_t in_backward = 0;  // the most that there was from there on, until backward came to the next one
  int64_t result = 0;
};

// What each unit takes of a step with an engine.
class Profile : public ForwardingWeights {
 public:
  Profile(Weights& weights, TensorMeter& meter) : ForwardingWeights(weights), meter_(meter) {}
  at::Tensor RunUnit(UnitId unit, const UnitFunction& fn, at::TensorList inputs, Keeps keeps) override {
    const int64_t before = meter_.now;
    meter_.most = before;
    at::Tensor y = weights_.RunUnit(unit, fn, inputs, keeps);
    const int64_t held = meter_.now - before, result = static_cast<int64_t>(y.nbytes());
    int64_t given = 0;
    for (const at::Tensor& input : inputs) given += static_cast<int64_t>(input.nbytes());
    if (keeps == Keeps::kInputs) {
      EXPECT_LE(held - result, given) << "what the unit says that it keeps";
    }
    uses.push_back({.before = before,
                    .in_forward = meter_.most - before,
                    .held = held,
                    .saved = keeps == Keeps::kMore ? held - result : 0,
                    .result = result});
    return Behind({y}, [this, i = uses.size() - 1] { Begin(i); })[0];
  }
  void EndBackward() { End(); }

  std::vector<Use> uses;
  std::vector<size_t> order;  // of backward

 private:
  void Begin(size_t i) {
    End();
    uses[i].begun = meter_.most = meter_.now;
    order.push_back(i);
  }
  void End() {
    if (!order.empty()) uses[order.back()].in_backward = meter_.most;
  }

  TensorMeter& meter_;
};

struct Peak {
  int64_t kept = 0;  // between forward and backward
  int64_t most = 0;  // of forward and backward
};

// A step in which a unit's inputs are all that is kept of it, from one in which everything is. While backward is in a
// unit there is all of it, as without checkpointing; what is not there is what those units saved that backward has yet
// to come to.
Peak Predicted(int64_t kept, const Profile& profile) {
  Peak peak{.kept = kept};
  int64_t saved = 0;  // of the units before
  for (const Use& use : profile.uses) {
    peak.most = std::max(peak.most, use.before - saved + use.in_forward);
    saved += use.saved;
  }
  peak.kept -= saved;
  for (const size_t i : profile.order) {
    const Use& use = profile.uses[i];
    saved -= use.saved;
    peak.most = std::max(peak.most, use.in_backward - saved);
    if (use.saved == 0) continue;
    // What computing it again needs on the way.
    peak.most = std::max(peak.most, use.begun - use.saved - saved + use.in_forward);
  }
  return peak;
}

using Loss = std::function<at::Tensor(const Pass& pass)>;

class ActivationMemory : public testing::Test {
 protected:
  ActivationMemory() { at::set_num_threads(1); }  // the meter is one thread's

  // With `profiled` the units' uses are in profile_ afterwards.
  Peak Step(const Loss& loss_of, bool recompute, bool profiled = false) {
    const auto communicators = MakeInProcessWorld(1);
    const auto engine = MakeEngine(
        declaration_,
        {.precision = Precision::kFp32, .micro_batch = 64, .recompute = recompute, .optim = {}, .trainable = {}}, 7,
        Host(), *communicators[0]);
    const auto meter = std::make_shared<TensorMeter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    profile_.emplace(*engine, *meter);
    engine->BeginStep(1);
    const at::Tensor loss = loss_of(Pass::Training(profiled ? static_cast<Weights&>(*profile_) : *engine, 1));
    Peak peak{.kept = meter->now, .most = meter->most};
    engine->Backward(loss, true);
    profile_->EndBackward();
    peak.most = std::max(peak.most, meter->most);
    engine->Drain();
    return peak;
  }

  // Prints MiB, for docs/benchmarks.md.
  void ExpectAsPredicted(const std::string& what, const Loss& loss) {
    const Peak off = Step(loss, false), on = Step(loss, true), profiled = Step(loss, false, true);
    const Peak predicted = Predicted(profiled.kept, *profile_);
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::cout << what << ": kept " << mib(off.kept) << ", with checkpointing " << mib(predicted.kept) << " predicted, "
              << mib(on.kept) << " measured; most " << mib(off.most) << ", " << mib(predicted.most) << " predicted, "
              << mib(on.most) << " measured (MiB)" << std::endl;
    // A result of which only copies are used is gone after a forward without checkpointing; with it, it is an input
    // that is kept: of the bottlenecks' stem, 1.7 % more than predicted.
    const double apart = 0.02 * static_cast<double>(off.most);
    EXPECT_NEAR(static_cast<double>(on.kept), static_cast<double>(predicted.kept), apart);
    EXPECT_NEAR(static_cast<double>(on.most), static_cast<double>(predicted.most), apart);
    EXPECT_LT(on.most, off.most);
  }

  ModelDeclaration declaration_;
  std::optional<Profile> profile_;
};

TEST_F(ActivationMemory, AUnitThatKeepsItsInputsIsNotComputedAgain) {
  const Scope unit = Scope(declaration_).Unit("all");
  const ParameterId weight = unit.Parameter("weight", {8}, {Initial::Kind::kNormal, 1});
  int calls = 0;
  const auto loss = [&](Keeps keeps) {
    return [&, keeps](const Pass& pass) {
      const auto run = [&calls, pass, weight](at::TensorList in) {
        ++calls;
        return in[0] * pass[weight];
      };
      return pass.Unit(unit.unit(), run, {at::ones({8})}, keeps).sum();
    };
  };
  Step(loss(Keeps::kInputs), true);
  EXPECT_EQ(calls, 1);
  Step(loss(Keeps::kMore), true);
  EXPECT_EQ(calls, 3);
}

class ResNetMemory : public ActivationMemory, public testing::WithParamInterface<mace::ResNetShape> {};

TEST_P(ResNetMemory, IsPredicted) {
  const mace::ResNet3d model(Scope(declaration_), GetParam());
  constexpr int64_t B = 4;
  const at::Tensor x = at::rand({B, 1, 64, 64, 32});
  ExpectAsPredicted("ResNet", [&](const Pass& pass) {
    GlobalBatch batch{at::ones({B}), at::zeros({})};
    return model(pass, x, batch).sum() + batch.nothing;
  });
  // Beside the stem's first result, the largest tensor of all, its backward has that one's gradient alone: neither what
  // lies between norm and pooling, nor a second summand of that gradient. The half is what is pooled, an eighth: its
  // places, its gradient, and itself. (Bottlenecks' own tensors are larger than that.)
  const Use &conv = profile_->uses[0], &pool = profile_->uses[1];
  if (GetParam().layers < 50) {
    EXPECT_LT(std::max(conv.in_backward, pool.in_backward), conv.result * 5 / 2);
  }
}

// The small preset of mace_survival, the full one narrowed, and one of bottlenecks.
INSTANTIATE_TEST_SUITE_P(Depths, ResNetMemory,
                         testing::Values(mace::ResNetShape{10, 16, 2}, mace::ResNetShape{18, 16, 1},
                                         mace::ResNetShape{50, 8, 2}));

class CascadeMemory : public ActivationMemory, public testing::WithParamInterface<size_t> {};

TEST_P(CascadeMemory, IsPredicted) {
  const hvc::ModelShape shape{.stages = {{16, 64, 4, 4}, {32, 64, 4, 4}, {64, 64, 4, 4}},
                              .token_grid = 8,
                              .xray_size = 64,
                              .xray_dim = 64,
                              .head = hvc::Head::kPatch,
                              .context = hvc::Context::kViews,
                              .mean = 0,
                              .deviation = 0.3,
                              .detail = 0.07,
                              .dropout = 0};
  const hvc::CascadeModel model(Scope(declaration_), shape, 1000);
  constexpr int64_t B = 2;
  const size_t stage = GetParam();
  const int64_t S = shape.stages[stage].size;
  const at::Tensor volume = at::rand({B, 1, S, S, S}), xrays = at::rand({B, 2, 1, 64, 64});
  const at::Tensor t = at::full({B}, 300, at::kLong);
  ExpectAsPredicted("stage " + std::to_string(stage + 1), [&](const Pass& pass) {
    const hvc::EncodedXrays encoded = model.Encode(pass, stage, xrays);
    return model.Velocity(pass, stage, {volume, t, stage > 0 ? volume : at::Tensor()}, encoded).sum();
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, CascadeMemory, testing::Values(0u, 1u, 2u));

}  // namespace
}  // namespace trainyard

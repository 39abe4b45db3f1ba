// Units that are computed again in backward: the same values, gradients and draws, and their inputs are all that is
// kept.
#include "trainer/parallel/recompute.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/unit/tensor_meter.h"

namespace trainyard {
namespace {

at::Tensor Leaf(double value) { return (at::ones({50, 1000}, at::kFloat) * value).requires_grad_(true); }

struct Outcome {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
  int64_t kept = 0;  // bytes between forward and backward
};

// Six units, of which the first and the last use one leaf, and one that none of them uses.
Outcome Train(bool recompute) {
  const at::Tensor tied = Leaf(0.3), other = Leaf(0.7), unused = Leaf(1), input = Leaf(0.1);
  const auto meter = std::make_shared<TensorMeter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  const auto unit = [&](const at::Tensor& leaf, const at::Tensor& x) {
    const UnitFunction fn = [leaf](at::TensorList in) { return at::tanh(at::sin(at::sin(in[0] * leaf)) * in[0]); };
    return recompute ? Recomputed(fn, fn, {x}, {leaf, unused}) : fn({x});
  };
  at::Tensor x = unit(tied, input);
  for (int i = 0; i < 4; ++i) x = unit(other, x);
  x = unit(tied, x);
  Outcome outcome{x.sum(), {}, meter->now};
  outcome.loss.backward();
  EXPECT_FALSE(unused.grad().defined());
  outcome.gradients = {tied.grad(), other.grad(), input.grad()};
  return outcome;
}

TEST(Recompute, GivesTheSameGradientsAndKeepsInputsAlone) {
  const Outcome kept = Train(false), again = Train(true);
  EXPECT_TRUE(again.loss.equal(kept.loss));
  for (size_t i = 0; i < kept.gradients.size(); ++i) EXPECT_TRUE(again.gradients[i].equal(kept.gradients[i])) << i;
  constexpr int64_t kActivation = 50 * 1000 * 4;
  // Five outputs that are inputs, the last unit's output, and a few numbers.
  EXPECT_LT(again.kept, 6 * kActivation + 1000);
  EXPECT_GT(kept.kept, 20 * kActivation);
}

// What stands for an input, or needs no gradient at all, is no different.
TEST(Recompute, AUnitMayGiveItsInputBack) {
  const at::Tensor x = Leaf(2), leaf = Leaf(3);
  const UnitFunction same = [](at::TensorList in) { return in[0]; };
  (Recomputed(same, same, {x}, {leaf}) * 5).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::ones_like(x) * 5));
  EXPECT_FALSE(leaf.grad().defined());
  EXPECT_FALSE(Recomputed(same, same, {x.detach()}, {}).requires_grad());
}

TEST(Recompute, WhatFailsInBackwardIsTheCallersError) {
  const at::Tensor x = Leaf(2);
  const UnitFunction good = [](at::TensorList in) { return in[0] * 2; };
  const UnitFunction bad = [](at::TensorList) -> at::Tensor { throw std::runtime_error("planted"); };
  EXPECT_THROW(Recomputed(good, bad, {x}, {}).sum().backward(), std::runtime_error);
}

// The next step's backward is a new one.
TEST(Recompute, WhatFailsWithinAUnitsBackwardIsTheCallersError) {
  const at::Tensor x = Leaf(2);
  bool fails = true;
  const UnitFunction unit = [&](at::TensorList in) {
    const at::Tensor between = in[0] * 2;
    if (between.requires_grad()) {
      between.register_hook([&](const at::Tensor& gradient) {
        if (fails) throw std::runtime_error("planted");
        return gradient;
      });
    }
    return between * 3;
  };
  EXPECT_THROW(Recomputed(unit, unit, {x}, {}).sum().backward(), std::runtime_error);
  EXPECT_FALSE(x.grad().defined());
  fails = false;
  Recomputed(unit, unit, {x}, {}).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::ones_like(x) * 6));
}

// An input that was changed since would give other values: autograd's own check says so.
TEST(Recompute, AnInputThatWasChangedIsAnError) {
  const at::Tensor x = Leaf(2);
  const UnitFunction twice = [](at::TensorList in) { return in[0] * 2; };
  at::Tensor y = x * 1;
  const at::Tensor z = Recomputed(twice, twice, {y}, {});
  y.add_(1);
  EXPECT_THROW(z.sum().backward(), std::exception);
}

}  // namespace
}  // namespace trainyard

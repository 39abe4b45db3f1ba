#include "trainer/parallel/engine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logcumsumexp.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/device/ranks.h"
#include "trainer/device/convert.h"
#include "trainer/model/layers.h"

namespace trainyard {
namespace {

// What the test task's models are made of: a frozen part in bfloat16, a batch norm, a head that is used twice, and a
// gather.
struct Net {
  explicit Net(const Scope& root)
      : unit(root.Unit("all")),
        frozen(unit / "frozen", 3, 5,
               {.bias = false,
                .weight_initial = {},
                .bias_initial = {},
                .parameters = {.trainable = false, .dtype = DType::kBfloat16}}),
        hidden(unit / "hidden", 5, 5),
        norm(unit / "norm", 5),
        head(unit / "head", 5, 1),
        unused(unit / "unused", 7, 1),
        gather(root.Gather(2)) {
    unit.Alias("also.weight", head.weight);
  }

  // x: (B, 3) -> (B, 1)
  at::Tensor Forward(const Pass& pass, const at::Tensor& x) const {
    const auto run = [pass, this](at::TensorList in) {
      const at::Tensor seen = frozen(pass, in[0].to(at::kBFloat16)).to(hidden.ComputeType(pass));
      return head(pass, norm(pass, hidden(pass, seen)).tanh());
    };
    return pass.Unit(unit.unit(), run, {pass.Upload(x)});
  }

  Scope unit;
  Linear frozen, hidden;
  BatchNorm norm;
  Linear head, unused;
  GatherId gather;
};

at::Tensor Inputs(int64_t begin, int64_t end) {
  const at::Tensor i = at::arange(begin, end, at::kFloat);
  return at::stack({(i * 0.7).sin(), (i * 1.3).cos(), i * 0.1 - 0.5}, 1);
}

// Cox's partial likelihood over the whole batch, sample i dying i-th: every sample's risk set needs the others.
at::Tensor CoxOf(const at::Tensor& risk) {
  return -(risk - at::logcumsumexp(risk.flip(0), 0).flip(0)).sum() / static_cast<double>(risk.size(0));
}

// Runs `body` on every rank, each with a net and an engine of its own.
void RunWorld(int size, const std::function<void(int, const Net&, Engine&)>& body, int64_t bucket_bytes = 256,
              ZeroStage stage = ZeroStage::kDdp) {
  std::vector<TestRank> ranks = MakeTestRanks(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ModelDeclaration declaration;
      const Net net{Scope(declaration)};
      const auto engine =
          MakeEngine(declaration,
                     {.stage = stage,
                      .precision = Precision::kFp32,
                      .bucket_bytes = bucket_bytes,
                      .micro_batch = 16,
                      .optim = {},
                      .trainable = {}},
                     7, *ranks[static_cast<size_t>(rank)].device, *ranks[static_cast<size_t>(rank)].collectives);
      body(rank, net, *engine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> Values(Engine& engine, const std::string& key) {
  for (const StateSlice& slice : engine.Slices()) {
    const at::Tensor values = slice.values.cpu();
    if (slice.key == key) return {Floats(values).begin(), Floats(values).end()};
  }
  ADD_FAILURE() << "no " << key;
  return {};
}

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(Engine, SavesWhatIsTrainedAndHasTheWhole) {
  RunWorld(1, [](int, const Net&, Engine& engine) {
    std::vector<std::string> keys;
    for (const StateSlice& slice : engine.Slices()) keys.push_back(slice.key);
    EXPECT_TRUE(Has(keys, "adamw.exp_avg_sq.head.weight"));
    EXPECT_TRUE(Has(keys, "buffer.norm.running_var"));
    EXPECT_FALSE(Has(keys, "model.frozen.weight")) << "its source is a file, or its seed";
    size_t frozen = 0;
    engine.Read(ParameterId{0}, [&](std::span<const float> values) { frozen += values.size(); });
    EXPECT_EQ(frozen, 15u) << "but it has a value, as float32";
  });
}

TEST(Engine, AFrozenBfloat16ParameterTakesTwoBytes) {
  ModelDeclaration declaration;
  const Net net{Scope(declaration)};
  const MemoryPlan plan = PlanMemory(declaration, {});
  const auto frozen = std::find_if(plan.components.begin(), plan.components.end(),
                                   [](const auto& c) { return c.name == "frozen parameters"; });
  ASSERT_NE(frozen, plan.components.end());
  EXPECT_EQ(frozen->bytes, 2 * 15);
}

// One step of Cox's loss over 16 samples. Batch norm's statistics are each rank's own, so it is left out here.
std::vector<float> CoxStep(int world, ZeroStage stage = ZeroStage::kDdp) {
  std::vector<float> moments;
  const auto step = [&](int rank, const Net& net, Engine& engine) {
    const int64_t share = 16 / world;
    engine.BeginStep(1);
    const Pass pass = Pass::Training(engine, 1);
    const at::Tensor x = Inputs(rank * share, (rank + 1) * share);
    const at::Tensor risk =
        pass.Unit(net.unit.unit(),
                  [&](at::TensorList in) {
                    return net.hidden(pass, net.frozen(pass, in[0].to(at::kBFloat16)).to(at::kFloat)).narrow(1, 0, 2);
                  },
                  {pass.Upload(x)});
    // Every rank holds the whole loss; its share is what its own samples add.
    engine.Backward(CoxOf(pass.Gather(net.gather, risk.contiguous()).select(1, 0)) / world, true);
    engine.Finish();
    engine.Update({.lr = 1, .clip = 0, .update = 1, .finite = true, .before = {}});
    std::vector<float> whole(25);
    for (const StateSlice& slice : engine.Slices()) {
      const at::Tensor values = slice.values.cpu();
      if (slice.key == "adamw.exp_avg.hidden.weight") std::ranges::copy(Floats(values), whole.begin() + slice.begin);
    }
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    moments.resize(25);
    for (size_t i = 0; i < 25; ++i) moments[i] = whole[i] != 0 ? whole[i] : moments[i];
  };
  RunWorld(world, step, 256, stage);
  return moments;
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max<double>(largest, std::abs(a[i] - b[i]));
    scale = std::max<double>(scale, std::abs(a[i]));
  }
  return largest / scale;
}

TEST(Engine, AGatheredLossHasTheGradientOfTheWholeBatch) {
  const std::vector<float> one = CoxStep(1);
  for (int world : {2, 4}) {
    const std::vector<float> whole = CoxStep(world);
    EXPECT_LT(Distance(one, whole), 1e-5) << world;  // sums in another order
    EXPECT_EQ(CoxStep(world, ZeroStage::kZero3), whole) << world;
  }
}

TEST(Engine, ARankWithFewerMicroBatchesOrAFailureTakesPartInEveryCollective) {
  for (const auto& [stage, fails] : {std::pair(ZeroStage::kDdp, false), std::pair(ZeroStage::kDdp, true),
                                     std::pair(ZeroStage::kZero3, false), std::pair(ZeroStage::kZero3, true)}) {
    const auto step = [fails](int rank, const Net& net, Engine& engine) {
      engine.BeginStep(2);
      const Pass pass = Pass::Training(engine, 1);
      const int micros = rank == 2 ? 0 : 2 - rank;
      for (int m = 0; m < micros; ++m) {
        const at::Tensor y = net.Forward(pass, Inputs(4 * m, 4 * m + 4));
        const at::Tensor all = pass.Gather(net.gather, at::cat({y, y}, 1));
        if (fails && rank == 0 && m == 1) break;  // after its forward, before its backward
        engine.Backward(all.sum(), m + 1 == micros);
      }
      fails&& rank == 0 ? engine.Drain() : engine.Finish();
      if (fails) return;
      EXPECT_TRUE(engine.Update({.lr = 0.1, .clip = 1, .update = 1, .finite = true, .before = {}}).applied);
    };
    RunWorld(3, step, 256, stage);
  }
}

// A gather that one rank cannot make is made without its rows, whether its turn was known or asked for.
TEST(Engine, AGatherThatFailsOnOneRankIsMadeWithoutIt) {
  const auto step = [](int rank, const Net& net, Engine& engine) {
    for (const bool fails : {true, false, true, false}) {
      engine.BeginStep(1);
      const Pass pass = Pass::Training(engine, 1);
      const at::Tensor y = net.Forward(pass, Inputs(0, 4));
      const at::Tensor rows = at::cat({y, y}, 1);
      const bool here = fails && rank == 1;
      if (here) {
        EXPECT_THROW(pass.Gather(net.gather, rows.to(at::kDouble)), std::logic_error);
        engine.Drain();
      } else {
        engine.Backward(pass.Gather(net.gather, rows).sum(), true);
        engine.Finish();
      }
      if (fails) continue;
      EXPECT_TRUE(engine.Update({.lr = 0.1, .clip = 1, .update = 1, .finite = true, .before = {}}).applied);
    }
  };
  for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero3}) RunWorld(3, step, 256, stage);
}

// The others wait for it in that gather: it is refused before the rank goes on to another collective.
TEST(Engine, AGatherThatOneRankLeavesOutIsRefusedThere) {
  const auto step = [](int rank, const Net& net, Engine& engine) {
    for (const bool fails : {true, false}) {
      engine.BeginStep(2);
      const Pass pass = Pass::Training(engine, 1);
      bool refused = false;
      for (int m = 0; m < 2 && !refused; ++m) {
        const at::Tensor y = net.Forward(pass, Inputs(0, 4));
        if (fails && rank == 1) {
          EXPECT_THROW(engine.Backward(y.sum(), m == 1), std::logic_error);
          refused = true;
        } else {
          engine.Backward(pass.Gather(net.gather, at::cat({y, y}, 1)).sum(), m == 1);
        }
      }
      refused ? engine.Drain() : engine.Finish();
      if (fails) continue;
      EXPECT_TRUE(engine.Update({.lr = 0.1, .clip = 1, .update = 1, .finite = true, .before = {}}).applied);
    }
  };
  for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero2}) RunWorld(3, step, 256, stage);
}

TEST(Engine, BuffersAreStagedAndCommittedByTheUpdateAlone) {
  std::vector<std::vector<float>> means(2);
  RunWorld(2, [&](int rank, const Net& net, Engine& engine) {
    const std::vector<float> before = Values(engine, "buffer.norm.running_mean");
    for (const bool finite : {false, true}) {
      engine.BeginStep(1);
      const Pass pass = Pass::Training(engine, 1);
      const at::Tensor y = net.Forward(pass, Inputs(8 * rank, 8 * rank + 8));
      const at::Tensor all = pass.Gather(net.gather, at::cat({y, y}, 1));
      engine.Backward(all.sum(), true);
      engine.Finish();
      EXPECT_EQ(Values(engine, "buffer.norm.running_mean"), before);
      engine.Update({.lr = 0.1, .clip = 1, .update = 1, .finite = finite, .before = {}});
    }
    EXPECT_NE(Values(engine, "buffer.norm.running_mean"), before);
    EXPECT_EQ(Values(engine, "buffer.norm.num_batches_tracked"), std::vector<float>{1});
    means[static_cast<size_t>(rank)] = Values(engine, "buffer.norm.running_mean");
  });
  EXPECT_EQ(means[0], means[1]) << "the ranks agree, though each saw other samples";
}

TEST(Engine, AParameterIsAtHandWhileItsUnitIsOpenOnly) {
  RunWorld(1, [](int, const Net& net, Engine& engine) {
    const Pass pass = Pass::Training(engine, 1);
    EXPECT_THROW(net.head(pass, pass.Upload(Inputs(0, 2))), std::logic_error);
    EXPECT_NO_THROW(net.Forward(pass, Inputs(0, 2)));
    EXPECT_THROW(net.head(pass, pass.Upload(Inputs(0, 2))), std::logic_error) << "it was closed again";
  });
}

// A stage that trains the head alone: the rest keeps its bits, and is saved for the stages after it.
TEST(Engine, WhatAStageDoesNotTrainRests) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    ModelDeclaration declaration;
    const Net net{Scope(declaration)};
    const std::vector<TestRank> alone = MakeTestRanks(1);
    const auto engine = MakeEngine(
        declaration,
        {.precision = precision, .bucket_bytes = 256, .micro_batch = 16, .optim = {}, .trainable = {"head.*"}}, 7,
        *alone[0].device, *alone[0].collectives);
    const std::vector<float> hidden = Values(*engine, "model.hidden.weight"),
                             head = Values(*engine, "model.head.weight");
    engine->BeginStep(1);
    const Pass pass = Pass::Training(*engine, 1);
    const at::Tensor rest = net.Forward(pass, Inputs(0, 4));
    engine->Backward(rest.sum(), true);
    engine->Finish();
    EXPECT_TRUE(engine->Update({.lr = 0.1, .clip = 0, .update = 1, .finite = true, .before = {}}).applied);
    EXPECT_EQ(Values(*engine, "model.hidden.weight"), hidden);
    EXPECT_NE(Values(*engine, "model.head.weight"), head);
    for (const StateSlice& slice : engine->Slices()) EXPECT_NE(slice.key, "adamw.exp_avg.hidden.weight");
  }
}

TEST(Engine, AStepThatIsNotFiniteChangesNothing) {
  RunWorld(1, [](int, const Net& net, Engine& engine) {
    const std::vector<float> before = Values(engine, "model.head.weight");
    engine.BeginStep(1);
    engine.Backward(net.Forward(Pass::Training(engine, 1), Inputs(0, 4)).sum() * NAN, true);
    engine.Finish();
    bool written = false;
    const UpdateResult result =
        engine.Update({.lr = 0.1, .clip = 1, .update = 1, .finite = true, .before = [&] { written = true; }});
    EXPECT_FALSE(result.applied);
    EXPECT_FALSE(written);
    EXPECT_EQ(Values(engine, "model.head.weight"), before);
    EXPECT_EQ(Values(engine, "buffer.norm.num_batches_tracked"), std::vector<float>{0});
  });
}

TEST(Builder, RefusesWhatCannotBeMeant) {
  ModelDeclaration declaration;
  const Scope root(declaration), unit = root.Unit("u");
  unit.Parameter("a", {1}, {});
  EXPECT_THROW(unit.Parameter("a", {1}, {}), std::logic_error);
  EXPECT_THROW(root.Parameter("b", {1}, {}), std::logic_error) << "of no unit";
  EXPECT_THROW(unit.Parameter("c", {1}, {}, {.trainable = true, .dtype = DType::kBfloat16}), std::logic_error);
  EXPECT_EQ(root.Unit("u").unit(), unit.unit());
  const Place first = root.NextPlace(), second = unit.NextPlace();
  EXPECT_EQ(first.index + 1, second.index);
}

}  // namespace
}  // namespace trainyard

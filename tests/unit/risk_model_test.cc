// The 3-D ResNet over ranks, and the global Cox loss behind it.
#include "trainer/task/mace_survival/risk_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include "trainer/comm/in_process.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/engine.h"
#include "trainer/task/mace_survival/cox_function.h"
#include "trainer/task/mace_survival/fold_scores.h"

namespace trainyard::mace {
namespace {

constexpr int64_t kBatch = 24;

Options Small() {
  Options options;  // the tiny preset
  options.model.width = 3;
  options.volume = {9, 7, 5};
  return options;
}

int64_t ParametersOf(const char* resnet) {
  Options options;
  options.model.preset = "full";
  options.model.resnet = resnet;
  ModelDeclaration declaration;
  const RiskModel model(Scope(declaration), options);
  return declaration.num_parameters();
}

TEST(RiskModel, HasMonaisParameters) {
  EXPECT_EQ(ParametersOf("resnet18"), 33161409);
  // monai.networks.nets.resnet34 and resnet50 of one channel and one output, to the ten thousand of the published
  // table.
  EXPECT_EQ(std::lround(ParametersOf("resnet34") / 1e4), 6347);
  EXPECT_EQ(std::lround(ParametersOf("resnet50") / 1e4), 4616);
}

// Runs `body` on every rank, each with a model and an engine of its own.
void RunWorld(int size, const std::function<void(int, const RiskModel&, Engine&)>& body,
              ZeroStage stage = ZeroStage::kDdp, bool recompute = false, Precision precision = Precision::kFp32) {
  auto communicators = MakeInProcessWorld(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ModelDeclaration declaration;
      const RiskModel model{Scope(declaration), Small()};
      const auto engine = MakeEngine(declaration,
                                     {.stage = stage,
                                      .precision = precision,
                                      .bucket_bytes = 4096,
                                      .micro_batch = kBatch,
                                      .recompute = recompute,
                                      .optim = {},
                                      .trainable = {}},
                                     7, Host(), *communicators[static_cast<size_t>(rank)]);
      body(rank, model, *engine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

at::Tensor Volumes() {
  at::Tensor x = at::empty({kBatch, 1, 9, 7, 5}, at::kFloat);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data_ptr<float>()[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)) +
                                                std::cos(0.011 * static_cast<double>(i * i % 977)));
  return x;
}

// 24 subjects of whom 3 have the event, two of them at one time: 12 %.
at::Tensor Facts() {
  at::Tensor facts = at::zeros({kBatch, GatheredRow::kColumns - 1}, at::kFloat);
  for (int64_t i = 0; i < kBatch; ++i) {
    float* row = facts.data_ptr<float>() + i * facts.size(1);
    const auto set = [row](int64_t column, float value) { row[column - 1] = value; };  // without the risk
    set(GatheredRow::kTime, static_cast<float>(100 + (i * 7) % 13 * 50));
    set(GatheredRow::kEvent, i == 3 || i == 16 || i == 22 ? 1 : 0);
    set(GatheredRow::kPlace, static_cast<float>(i));
    set(GatheredRow::kPresent, 1);
  }
  return facts;
}

using Values = std::map<std::string, std::vector<float>>;

// The gradient (its first moment after one step, times 10) and the running statistics; `local`: risk sets of a rank.
Values StepOf(int world, bool local = false, ZeroStage stage = ZeroStage::kDdp, bool recompute = false) {
  Values values;
  std::mutex mutex;
  RunWorld(
      world,
      [&](int rank, const RiskModel& model, Engine& engine) {
        const int64_t share = kBatch / world;
        const at::Tensor volumes = Volumes().narrow(0, rank * share, share),
                         facts = Facts().narrow(0, rank * share, share);
        GlobalBatch batch{facts.select(1, GatheredRow::kPresent - 1), at::zeros({}, at::kFloat)};
        engine.BeginStep(1);
        const Pass pass = Pass::Training(engine, 1);
        const Predictions of = model.Forward(pass, volumes, batch);
        const at::Tensor mine = at::cat({of.risk.unsqueeze(1), facts}, 1);
        at::Tensor rows = model.Gather(pass, mine);
        if (local) batch.nothing = batch.nothing + rows.sum() * 0;
        const GatheredLoss loss = GlobalCoxLoss(local ? mine : rows, facts.select(1, GatheredRow::kPlace - 1));
        engine.Backward(loss.sum / 3 + batch.nothing, true);
        engine.Finish();
        engine.Update({.lr = 0, .clip = 0, .update = 1, .finite = true, .before = {}});
        const std::lock_guard lock(mutex);
        for (const StateSlice& slice : engine.Slices()) {
          const bool gradient = slice.key.starts_with("adamw.exp_avg."), buffer = slice.key.starts_with("buffer.");
          if (!gradient && !buffer) continue;
          int64_t numel = 1;
          for (const int64_t side : slice.shape) numel *= side;
          auto& whole = values[slice.key];
          whole.resize(static_cast<size_t>(numel));
          for (int64_t i = slice.begin; i < slice.end; ++i)
            whole[static_cast<size_t>(i)] =
                Floats(slice.values)[static_cast<size_t>(i - slice.begin)] * (gradient ? 10 : 1);
        }
      },
      stage, recompute);
  return values;
}

// Of 24 log-risks that are rounded to bf16 some would be tied, and Cox and the concordance know nothing but their
// order.
TEST(RiskModel, LogRisksAreFloat32OfBfloat16Weights) {
  RunWorld(
      1,
      [](int, const RiskModel& model, Engine& engine) {
        const at::Tensor facts = Facts();
        GlobalBatch batch{facts.select(1, GatheredRow::kPresent - 1), at::zeros({}, at::kFloat)};
        engine.BeginStep(1);
        const Pass pass = Pass::Training(engine, 1);
        const at::Tensor risk = model.Forward(pass, Volumes(), batch).risk;
        EXPECT_EQ(risk.scalar_type(), at::kFloat);
        EXPECT_GT(risk.ne(risk.to(at::kBFloat16).to(at::kFloat)).sum().item<int64_t>(), kBatch / 2);
        const at::Tensor rows = model.Gather(pass, at::cat({risk.unsqueeze(1), facts}, 1));
        const GatheredLoss loss = GlobalCoxLoss(rows, facts.select(1, GatheredRow::kPlace - 1));
        engine.Backward(loss.sum / 3 + batch.nothing, true);
        engine.Finish();
        engine.Update({.lr = 0, .clip = 0, .update = 1, .finite = true, .before = {}});
      },
      ZeroStage::kDdp, false, Precision::kBf16);
}

// The largest difference of any element, over the largest element of any gradient.
double Apart(const Values& a, const Values& b) {
  double apart = 0, most = 0;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [key, values] : a) {
    for (size_t i = 0; i < values.size(); ++i) {
      apart = std::max(apart, std::abs(static_cast<double>(values[i]) - static_cast<double>(b.at(key)[i])));
      most = std::max(most, std::abs(static_cast<double>(values[i])));
    }
  }
  return apart / most;
}

TEST(RiskModel, FourRanksHaveTheGradientOfOne) {
  const Values one = StepOf(1);
  EXPECT_LT(Apart(one, StepOf(4)), 1e-5);
  EXPECT_LT(Apart(one, StepOf(2)), 1e-5);
  // Six subjects of a rank have no event, or one with few others at risk.
  EXPECT_GT(Apart(one, StepOf(4, true)), 0.1) << "with local risk sets it is another loss";
}

TEST(RiskModel, StagesAndRecomputingChangeNoBit) {
  const Values plain = StepOf(2);
  EXPECT_EQ(plain, StepOf(2, false, ZeroStage::kZero3));
  EXPECT_EQ(plain, StepOf(2, false, ZeroStage::kZero1));
  EXPECT_EQ(plain, StepOf(2, false, ZeroStage::kDdp, true));
}

TEST(RiskModel, AStepWithoutEventsOrSubjectsHasNoGradient) {
  RunWorld(1, [&](int, const RiskModel& model, Engine& engine) {
    for (const int64_t column : {GatheredRow::kEvent, GatheredRow::kPresent}) {
      at::Tensor facts = Facts();
      facts.select(1, column - 1).zero_();
      GlobalBatch batch{facts.select(1, GatheredRow::kPresent - 1), at::zeros({}, at::kFloat)};
      engine.BeginStep(1);
      const Pass pass = Pass::Training(engine, 1);
      const Predictions of = model.Forward(pass, Volumes(), batch);
      const GatheredLoss loss = GlobalCoxLoss(model.Gather(pass, at::cat({of.risk.unsqueeze(1), facts}, 1)),
                                              facts.select(1, GatheredRow::kPlace - 1));
      EXPECT_EQ(loss.events, 0) << "which is what the task says of the step";
      EXPECT_EQ(loss.sum.item<float>(), 0);
      engine.Backward(loss.sum + batch.nothing, true);
      engine.Finish();
      const UpdateResult update = engine.Update({.lr = 0, .clip = 0, .update = 1, .finite = true, .before = {}});
      EXPECT_EQ(update.grad_norm, 0);
    }
  });
}

TEST(RiskModel, LostNumbersAreALossThatIsNone) {
  at::Tensor rows = at::cat({at::zeros({kBatch, 1}), Facts()}, 1);
  rows[5][0] = NAN;
  EXPECT_TRUE(std::isnan(GlobalCoxLoss(rows, Facts().select(1, GatheredRow::kPlace - 1)).sum.item<float>()));
}

// One norm, and the engine around it.
struct Normed {
  Normed() : unit(Scope(declaration).Unit("all")), norm(unit, 4) {
    engine = MakeEngine(declaration, {.precision = Precision::kFp32, .micro_batch = 64, .optim = {}, .trainable = {}},
                        7, Host(), *communicators[0]);
  }
  at::Tensor Run(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const {
    const WithMoments of = norm.Moments(pass, x, batch);
    return pass.Unit(unit.unit(), [=, this](at::TensorList in) { return norm(pass, in[0], in[1]); },
                     {of.x, of.moments});
  }
  ModelDeclaration declaration;
  std::vector<std::unique_ptr<Communicator>> communicators = MakeInProcessWorld(1);
  Scope unit;
  GlobalBatchNorm norm;
  std::unique_ptr<Engine> engine;
};

TEST(GlobalBatchNorm, IsTorchsOnOneRank) {
  Normed ours;
  torch::nn::BatchNorm3d theirs(4);
  const at::Tensor x = (at::randn({6, 4, 3, 5, 2}) * 2 + 1).requires_grad_(true);
  const at::Tensor same = x.detach().clone().requires_grad_(true), weight = at::randn({6, 4, 3, 5, 2});
  GlobalBatch batch{at::ones({6}), at::zeros({})};
  ours.engine->BeginStep(1);
  const at::Tensor y = ours.Run(Pass::Training(*ours.engine, 1), x, batch), z = theirs(same);
  EXPECT_LT((y - z).abs().max().item<double>(), 1e-5);  // float32 statistics in another order
  ours.engine->Backward((y * weight).sum(), true);
  (z * weight).sum().backward();
  EXPECT_LT((x.grad() - same.grad()).abs().max().item<double>(), 1e-5);
  ours.engine->Finish();
  ours.engine->Update({.lr = 0, .clip = 0, .update = 1, .finite = true, .before = {}});
  for (const StateSlice& slice : ours.engine->Slices()) {
    if (slice.key != "buffer.running_var") continue;
    for (size_t c = 0; c < 4; ++c)
      EXPECT_NEAR(Floats(slice.values)[c], theirs->running_var[static_cast<int64_t>(c)].item<float>(), 1e-5);
  }
}

TEST(GlobalBatchNorm, WhoIsNotThereCountsNothing) {
  Normed ours;
  const at::Tensor x = at::randn({5, 4, 3, 2, 2}).requires_grad_(true);
  const Pass pass = Pass::Training(*ours.engine, 1);
  GlobalBatch all{at::ones({5}), at::zeros({})}, without{at::ones({5}), at::zeros({})};
  without.present[2] = 0;
  const at::Tensor rest = at::cat({x.narrow(0, 0, 2), x.narrow(0, 3, 2)});
  GlobalBatch four{at::ones({4}), at::zeros({})};
  const at::Tensor of_four = ours.norm.Moments(pass, rest, four).moments;
  EXPECT_TRUE(ours.norm.Moments(pass, x, without).moments.equal(of_four));
  EXPECT_FALSE(ours.norm.Moments(pass, x, all).moments.equal(of_four));
}

TEST(GlobalBatchNorm, BehindWhatIsFrozenItStaysAsItIs) {
  Normed ours;
  const at::Tensor x = at::randn({5, 4, 3, 2, 2}) * 3;
  GlobalBatch batch{at::ones({5}), at::zeros({})};
  EXPECT_TRUE(
      ours.Run(Pass::Training(*ours.engine, 1), x, batch).equal(ours.Run(Pass::Evaluation(*ours.engine), x, batch)));
}

TEST(RiskGroups, AreThirdsOfTheRiskAndNoneWithoutAnOrder) {
  std::vector<Subject> subjects(9);
  std::vector<double> risks;
  for (size_t i = 0; i < subjects.size(); ++i) {
    subjects[i].outcome = {.time = 100.0 + static_cast<double>(i), .event = i < 3};  // who has an event has the largest
    risks.push_back(-static_cast<double>(i));
  }
  const std::vector<RiskGroup> groups = ByThirds(risks, subjects);
  ASSERT_EQ(groups.size(), 3u);
  constexpr double kLast = 1000;
  EXPECT_EQ(groups[0].survival.At(kLast), 1);
  EXPECT_EQ(groups[1].survival.At(kLast), 1);
  EXPECT_EQ(groups[2].survival.At(kLast), 0);
  risks[4] = std::nan("");
  EXPECT_TRUE(ByThirds(risks, subjects).empty());
}

}  // namespace
}  // namespace trainyard::mace

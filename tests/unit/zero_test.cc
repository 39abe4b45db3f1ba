// What is shared out over the ranks changes no bit of what is trained, and less of it lies on each.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "tests/device/ranks.h"
#include "trainer/device/convert.h"
#include "trainer/model/layers.h"
#include "trainer/parallel/engine.h"
#include "trainer/parallel/flat_state.h"

namespace trainyard {
namespace {

// Odd sizes; a norm that stays float32, a frozen part, a parameter that gets no gradient on some ranks, a head under
// two names, a unit that is used twice, as is one of its parameters, and a value that two units use, one of them twice.
struct Net {
  explicit Net(const Scope& root)
      : first(root.Unit("first")),
        second(root.Unit("second")),
        frozen(first / "frozen", 3, 5,
               {.bias = false,
                .weight_initial = {},
                .bias_initial = {},
                .parameters = {.trainable = false, .dtype = DType::kBfloat16}}),
        up(first / "up", 5, 37),
        norm(second / "norm", 37),
        head(second / "head", 37, 1),
        sometimes(second / "sometimes", 1, 3) {
    second.Alias("also.weight", head.weight);
  }

  // x: (B, 3) -> a number
  at::Tensor Loss(const Pass& pass, const at::Tensor& x, bool all) const {
    const at::Tensor y = pass.Unit(first.unit(),
                                   [=, this](at::TensorList in) {
                                     return up(pass, frozen(pass, in[0].to(at::kBFloat16)).to(up.ComputeType(pass)));
                                   },
                                   {pass.Upload(x)});
    const at::Tensor z = pass.Unit(second.unit(),
                                   [=, this](at::TensorList in) {
                                     // Its input once more: with what is behind it, three summands of a gradient.
                                     const at::Tensor h = norm(pass, in[0]).tanh() + in[0] * 0.1;
                                     const at::Tensor out = head(pass, h.to(head.ComputeType(pass)));
                                     return all ? sometimes(pass, out) : out;
                                   },
                                   {y});
    return pass.Unit(first.unit(),
                     [=, this](at::TensorList in) {
                       return (in[0] * pass[up.weight].sum()).square().sum() + in[1].to(at::kFloat).sin().sum();
                     },
                     {z, y});
  }

  Scope first, second;
  Linear frozen, up;
  LayerNorm norm;
  Linear head, sometimes;
};

at::Tensor Inputs(int64_t begin, int64_t end) {
  const at::Tensor i = at::arange(begin, end, at::kFloat);
  return at::stack({(i * 0.7).sin(), (i * 1.3).cos(), i * 0.1 - 0.5}, 1);
}

struct Way {
  int world;
  Precision precision;
  ZeroStage stage;
  int64_t bucket_bytes;
  Reduce reduce = Reduce::kLast;
  int64_t micro_batches = 2;  // of a step
  bool recompute = false;
  bool offload = false;
  bool bf16_reduce = false;
};

using Values = std::map<std::string, std::vector<float>>;

std::vector<float> ValuesOf(const StateSlice& slice) {
  const at::Tensor values = slice.values.cpu();
  return {Floats(values).begin(), Floats(values).end()};
}

void Take(const StateSlice& slice, Values& values) {
  int64_t numel = 1;
  for (const int64_t size : slice.shape) numel *= size;
  std::vector<float>& whole = values[slice.key];
  if (whole.empty()) whole.assign(static_cast<size_t>(numel), -7);  // what nobody has saved
  std::ranges::copy(ValuesOf(slice), whole.begin() + slice.begin);
}

// Runs `body` on every rank, with an engine of its own.
void RunWorld(const Way& way, const std::function<void(int, const Net&, Engine&)>& body) {
  std::vector<TestRank> ranks = MakeTestRanks(way.world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < way.world; ++rank) {
    threads.emplace_back([&, rank] {
      ModelDeclaration declaration;
      const Net net{Scope(declaration)};
      EngineOptions options;
      options.stage = way.stage;
      options.precision = way.precision;
      options.bucket_bytes = way.bucket_bytes;
      options.reduce = way.reduce;
      options.recompute = way.recompute;
      options.offload = way.offload;
      options.tile_bytes = 256 * 4;  // several to a piece, where buckets are large
      options.bf16_reduce = way.bf16_reduce;
      options.optim.weight_decay = 0.1;
      options.optim.ema_decay = 0.75;
      const TestRank& here = ranks[static_cast<size_t>(rank)];
      const auto engine = MakeEngine(declaration, options, 7, *here.device, *here.collectives);
      body(rank, net, *engine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The last rank of three or more has one micro-batch less.
UpdateResult TrainStep(int rank, const Way& way, const Net& net, Engine& engine, int64_t update) {
  engine.BeginStep(way.micro_batches);
  const int64_t micros = way.micro_batches - (way.world > 2 && rank == way.world - 1 ? 1 : 0);
  for (int64_t m = 0; m < micros; ++m) {
    const at::Tensor x = Inputs(100 * update + 20 * rank + 10 * m, 100 * update + 20 * rank + 10 * m + 7);
    const at::Tensor loss = net.Loss(Pass::Training(engine, 1), x, rank != 1);
    engine.Backward(loss, m + 1 == micros);
  }
  engine.Finish();
  return engine.Update({.lr = 0.01, .clip = 0.5, .update = update, .finite = true, .before = {}});
}

// What all ranks save after five steps, put together, and the norms.
std::pair<Values, std::vector<double>> Trained(const Way& way) {
  std::vector<Values> saved(static_cast<size_t>(way.world));
  std::vector<double> norms;
  RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
    for (int64_t update = 1; update <= 5; ++update) {
      const UpdateResult result = TrainStep(rank, way, net, engine, update);
      if (rank == 0) norms.push_back(result.grad_norm);
    }
    for (const StateSlice& slice : engine.Slices()) {
      EXPECT_EQ(slice.replicated, way.stage == ZeroStage::kDdp || way.world == 1) << slice.key;
      Take(slice, saved[static_cast<size_t>(rank)]);
    }
  });
  Values whole = saved[0];
  for (const Values& part : saved) {
    for (const auto& [key, values] : part) {
      whole.try_emplace(key, values.size(), -7.f);
      for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] != -7) whole[key][i] = values[i];
      }
    }
  }
  return {whole, norms};
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Zero, EveryStageMakesTheSameBits) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const int world : {1, 2, 3, 4}) {
      const auto [expected, norms] = Trained({world, precision, ZeroStage::kDdp, 25 << 20});
      EXPECT_GE(expected.size(), 4 * 6u);
      for (const int64_t bucket_bytes : {1, 2048, 25 << 20}) {
        for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero1, ZeroStage::kZero2, ZeroStage::kZero3}) {
          SCOPED_TRACE(testing::Message() << "world " << world << ", bf16 " << (precision == Precision::kBf16)
                                          << ", stage " << static_cast<int>(stage) << ", buckets of " << bucket_bytes);
          const auto [values, seen] = Trained({world, precision, stage, bucket_bytes});
          EXPECT_EQ(seen, norms);
          ASSERT_EQ(values.size(), expected.size());
          for (const auto& [key, whole] : expected) EXPECT_TRUE(SameBits(values.at(key), whole)) << key;
        }
      }
    }
  }
}

// With every micro-batch reduced, sums are made in another order, and that order is all: who holds what, and how
// buckets are cut, changes no bit. Where a step is one micro-batch, or a rank alone, the order is the same.
TEST(Zero, GradientsThatAreSharedOutMakeTheSameBitsAmongThemselves) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const int64_t micro_batches : {1, 2, 3}) {
        if (world > 2 && micro_batches == 1) continue;  // a rank would have none at all: Drains shows that
        const Way whole{world, precision, ZeroStage::kZero2, 25 << 20, Reduce::kEvery, micro_batches};
        const auto [expected, norms] = Trained(whole);
        Way last = whole;
        last.reduce = Reduce::kLast;
        const auto [summed_last, norms_last] = Trained(last);
        const bool alike = world == 1 || micro_batches == 1;
        for (size_t i = 0; i < norms.size(); ++i) EXPECT_NEAR(norms[i] / norms_last[i], 1, 1e-3) << "in bfloat16, too";
        if (alike) {
          EXPECT_EQ(norms, norms_last);
          EXPECT_EQ(expected, summed_last);
        }
        for (const ZeroStage stage : {ZeroStage::kZero2, ZeroStage::kZero3}) {
          for (const int64_t bucket_bytes : {1, 2048, 25 << 20}) {
            SCOPED_TRACE(testing::Message()
                         << "world " << world << ", bf16 " << (precision == Precision::kBf16) << ", " << micro_batches
                         << " micro-batches, stage " << static_cast<int>(stage) << ", buckets of " << bucket_bytes);
            Way cut = whole;
            cut.stage = stage;
            cut.bucket_bytes = bucket_bytes;
            const auto [values, seen] = Trained(cut);
            EXPECT_EQ(seen, norms);
            ASSERT_EQ(values.size(), expected.size());
            for (const auto& [key, of_key] : expected) EXPECT_TRUE(SameBits(values.at(key), of_key)) << key;
          }
        }
      }
    }
  }
}

// An optimizer in host memory: tiles that are cut anywhere, beside which copies and collectives run.
TEST(Zero, AnOffloadedOptimizerChangesNoBit) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const int world : {1, 2, 3}) {
      for (const Reduce reduce : {Reduce::kLast, Reduce::kEvery}) {
        const auto expected = Trained(
            {world, precision, reduce == Reduce::kLast ? ZeroStage::kDdp : ZeroStage::kZero2, 25 << 20, reduce});
        for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero1, ZeroStage::kZero2, ZeroStage::kZero3}) {
          if (reduce == Reduce::kEvery && stage < ZeroStage::kZero2) continue;
          for (const int64_t bucket_bytes : {2048, 25 << 20}) {
            for (const bool recompute : {false, true}) {
              SCOPED_TRACE(testing::Message()
                           << "world " << world << ", bf16 " << (precision == Precision::kBf16) << ", stage "
                           << static_cast<int>(stage) << ", buckets of " << bucket_bytes << ", again " << recompute);
              Way way{world, precision, stage, bucket_bytes, reduce};
              way.recompute = recompute;
              way.offload = true;
              const auto found = Trained(way);
              EXPECT_EQ(found.second, expected.second);
              ASSERT_EQ(found.first.size(), expected.first.size());
              for (const auto& [key, values] : expected.first)
                EXPECT_TRUE(SameBits(found.first.at(key), values)) << key;
            }
          }
        }
      }
    }
  }
}

// Gradients that go from rank to rank in bfloat16: rounded before, and their sum once. Who gets it changes no bit.
TEST(Zero, GradientsSentInBfloat16MakeTheSameBitsInEveryStage) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const int world : {1, 2, 3, 4}) {
      const auto in_fp32 = Trained({world, precision, ZeroStage::kDdp, 25 << 20});
      for (const Reduce reduce : {Reduce::kLast, Reduce::kEvery}) {
        std::optional<std::pair<Values, std::vector<double>>> expected;
        for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero1, ZeroStage::kZero2, ZeroStage::kZero3}) {
          if (reduce == Reduce::kEvery && stage < ZeroStage::kZero2) continue;
          for (const int64_t bucket_bytes : {1, 2048, 25 << 20}) {
            SCOPED_TRACE(testing::Message()
                         << "world " << world << ", bf16 " << (precision == Precision::kBf16) << ", stage "
                         << static_cast<int>(stage) << ", buckets of " << bucket_bytes);
            Way way{world, precision, stage, bucket_bytes, reduce};
            way.bf16_reduce = true;
            way.offload = bucket_bytes == 2048;
            auto found = Trained(way);
            if (!expected) expected = found;
            EXPECT_EQ(found.second, expected->second);
            EXPECT_EQ(found.first, expected->first);
          }
        }
        EXPECT_EQ(expected->second == in_fp32.second, world == 1) << "alone nothing is sent";
        // Of the first step, whose weights are the same: roundings to eight bits, of gradients that partly cancel.
        EXPECT_NEAR(expected->second[0] / in_fp32.second[0], 1, 0.05);
      }
    }
  }
}

TEST(Zero, ComputingUnitsAgainChangesNoBit) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const int world : {1, 3}) {
      for (const ZeroStage stage : {ZeroStage::kZero2, ZeroStage::kZero3}) {
        for (const Reduce reduce : {Reduce::kLast, Reduce::kEvery}) {
          Way way{world, precision, stage, 2048, reduce};
          const auto kept = Trained(way);
          way.recompute = true;
          EXPECT_EQ(Trained(way), kept) << world << ", " << static_cast<int>(reduce);
        }
      }
    }
  }
}

// Every rank takes part; rank 0 gets it.
std::vector<float> ReadOn(int rank, Engine& engine, ParameterId id) {
  std::vector<float> values;
  const Pieces keep = [&](std::span<const float> piece) { values.insert(values.end(), piece.begin(), piece.end()); };
  engine.Read(id, rank == 0 ? keep : Pieces());
  return values;
}

// Reading puts the shards together, and what is read can be set again, in whatever stage.
TEST(Zero, WhatIsReadIsTheWholeAndCanBeSet) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Way way{3, precision, ZeroStage::kZero1, 2048};
    std::vector<std::vector<float>> read;
    RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
      for (int64_t update = 1; update <= 2; ++update) TrainStep(rank, way, net, engine, update);
      for (int32_t i = 0; i < static_cast<int32_t>(engine.declaration().parameters.size()); ++i) {
        std::vector<float> values = ReadOn(rank, engine, ParameterId{i});
        if (rank == 0) read.push_back(std::move(values));
      }
    });
    for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero1, ZeroStage::kZero3}) {
      std::vector<double> losses(3);
      RunWorld({3, precision, stage, 2048}, [&](int rank, const Net& net, Engine& engine) {
        for (int32_t i = 0; i < static_cast<int32_t>(read.size()); ++i)
          engine.SetParameter(ParameterId{i}, read[static_cast<size_t>(i)]);
        losses[static_cast<size_t>(rank)] =
            net.Loss(Pass::Evaluation(engine), Inputs(0, 9), true).detach().to(at::kDouble).item<double>();
        engine.EndForwards();
        for (int32_t i = 0; i < static_cast<int32_t>(read.size()); ++i) {
          const std::vector<float> again = ReadOn(rank, engine, ParameterId{i});
          EXPECT_TRUE(rank != 0 || SameBits(again, read[static_cast<size_t>(i)])) << i;
        }
      });
      EXPECT_EQ(losses[0], losses[1]);
      EXPECT_EQ(losses[0], losses[2]);
    }
  }
}

Values Saved(Engine& engine) {
  Values values;
  for (const StateSlice& slice : engine.Slices())
    values[slice.key + " from " + std::to_string(slice.begin)] = ValuesOf(slice);
  return values;
}

double EvaluatedLoss(const Net& net, Engine& engine) {
  const at::NoGradGuard no_graph;
  const at::Tensor loss = net.Loss(Pass::Evaluation(engine), Inputs(0, 9), true);
  engine.EndForwards();
  return loss.to(at::kDouble).item<double>();
}

// Shows the averages between steps; what is saved, and what is trained on, are the weights all the same.
void TrainAndShow(int rank, const Way& way, const Net& net, Engine& engine) {
  const double at_first = EvaluatedLoss(net, engine);
  engine.ShowAverages(true);
  EXPECT_EQ(EvaluatedLoss(net, engine), at_first) << "averages begin with the weights";
  engine.ShowAverages(false);
  for (int64_t update = 1; update <= 5; ++update) {
    TrainStep(rank, way, net, engine, update);
    const Values before = Saved(engine);
    const double trained = EvaluatedLoss(net, engine);
    engine.ShowAverages(true);
    engine.ShowAverages(true);
    EXPECT_EQ(Saved(engine), before);
    EXPECT_NE(EvaluatedLoss(net, engine), trained);
    EXPECT_THROW(engine.BeginStep(1), std::logic_error);
    engine.ShowAverages(false);
    EXPECT_EQ(Saved(engine), before);
    EXPECT_EQ(EvaluatedLoss(net, engine), trained);
  }
}

TEST(Zero, AveragesAreEvaluatedAndHandedOverAndChangeNothing) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero1, ZeroStage::kZero3}) {
      SCOPED_TRACE(testing::Message() << "stage " << static_cast<int>(stage));
      const Way way{3, precision, stage, 2048};
      const Values never_shown = Trained(way).first;
      RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
        TrainAndShow(rank, way, net, engine);
        for (const StateSlice& slice : engine.Slices()) {
          const std::vector<float>& whole = never_shown.at(slice.key);
          const std::vector<float> part(whole.begin() + slice.begin, whole.begin() + slice.end);
          EXPECT_TRUE(SameBits(ValuesOf(slice), part)) << slice.key;
        }
        engine.ShowAverages(true);
        for (int32_t i = 0; i < static_cast<int32_t>(engine.declaration().parameters.size()); ++i) {
          const ParameterSpec& spec = engine.declaration().parameters[static_cast<size_t>(i)];
          const std::vector<float> read = ReadOn(rank, engine, ParameterId{i});
          if (rank != 0 || !spec.trainable) continue;
          EXPECT_TRUE(SameBits(read, never_shown.at("ema." + spec.name))) << spec.name;
        }
        engine.ShowAverages(false);
        const ModelValues left = engine.Release();
        for (const auto& [key, values] : never_shown) {
          if (!key.starts_with("ema.")) continue;
          const at::Tensor floats = left.tensors.at(key.substr(4)).cpu();
          EXPECT_TRUE(SameBits({Floats(floats).begin(), Floats(floats).end()}, values)) << key;
        }
      });
    }
  }
}

TEST(Zero, AStepThatIsSkippedLeavesTheAverages) {
  for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero1, ZeroStage::kZero3}) {
    const Way way{2, Precision::kFp32, stage, 2048};
    RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
      TrainStep(rank, way, net, engine, 1);
      const Values before = Saved(engine);
      for (const bool finite : {false, true}) {  // the loss; of the second step the gradient is not
        engine.BeginStep(1);
        engine.Backward(net.Loss(Pass::Training(engine, 1), Inputs(0, 5), true) * (finite ? INFINITY : 1), true);
        engine.Finish();
        EXPECT_FALSE(engine.Update({.lr = 0.01, .clip = 0.5, .update = 2, .finite = finite, .before = {}}).applied);
      }
      EXPECT_EQ(Saved(engine), before);
      EXPECT_TRUE(TrainStep(rank, way, net, engine, 2).applied);
      EXPECT_NE(Saved(engine), before);
    });
  }
}

// A rank that cannot write what it reads goes on taking part: the others read on, and so does it.
TEST(Zero, AReaderThatFailsLeavesNobodyWaiting) {
  RunWorld({3, Precision::kBf16, ZeroStage::kZero2, 1}, [&](int rank, const Net&, Engine& engine) {
    const auto full = [](std::span<const float>) { throw std::runtime_error("no space"); };
    if (rank == 0) {
      EXPECT_THROW(engine.Read(ParameterId{1}, full), std::runtime_error);
    } else {
      engine.Read(ParameterId{1}, {});
    }
    EXPECT_EQ(ReadOn(rank, engine, ParameterId{1}).size(), rank == 0 ? 5u * 37 : 0u);
  });
}

enum class Fails { kBefore, kInUnit, kBehind, kInBackward };

// Fails in a micro-batch; behind a forward only backward throws.
void Fail(Fails fails, const Net& net, Engine& engine, bool last) {
  const Pass pass = Pass::Training(engine, 1);
  if (fails == Fails::kBefore) return;
  if (fails == Fails::kInUnit) {
    const auto throws = [](at::TensorList) -> at::Tensor { throw std::runtime_error("planted"); };
    EXPECT_THROW(pass.Unit(net.first.unit(), throws, {}), std::runtime_error);
    return;
  }
  if (fails == Fails::kInBackward)
    engine.Parameter(ParameterId{1}).register_hook([](const at::Tensor& g) -> at::Tensor {
      throw std::runtime_error("planted");
      return g;
    });
  const at::Tensor loss = net.Loss(pass, Inputs(0, 5), true);
  if (fails == Fails::kBehind) return;
  EXPECT_THROW(engine.Backward(loss, last), std::runtime_error);
  engine.Parameter(ParameterId{1}).remove_hook(0);
}

// A rank whose data, forward or backward failed takes part in every collective that is left; the next step is whole
// again. With each micro-batch reduced some of it may be over, and of the one that failed some buckets sent.
TEST(Zero, ARankThatFailsDrains) {
  for (const ZeroStage stage : {ZeroStage::kZero2, ZeroStage::kZero3}) {
    for (const Reduce reduce : {Reduce::kLast, Reduce::kEvery}) {
      for (const int64_t before : {0, 1}) {
        for (const Fails fails : {Fails::kBefore, Fails::kInUnit, Fails::kBehind, Fails::kInBackward}) {
          const Way way{3, Precision::kBf16, stage, 2048, reduce};
          RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
            engine.BeginStep(2);
            for (int64_t m = 0; m < 2; ++m) {
              if (rank == 1 && m == before) {
                Fail(fails, net, engine, m == 1);
                break;
              }
              engine.Backward(net.Loss(Pass::Training(engine, 1), Inputs(0, 5), true), m == 1);
            }
            rank == 1 ? engine.Drain() : engine.Finish();
            EXPECT_TRUE(TrainStep(rank, way, net, engine, 1).applied);
          });
        }
      }
    }
  }
}

// Then nobody knows the order of units, and the next step finds it out.
TEST(Zero, EveryRankMayFailInTheFirstMicroBatch) {
  for (const Fails fails : {Fails::kBefore, Fails::kInUnit, Fails::kBehind}) {
    const Way way{3, Precision::kBf16, ZeroStage::kZero3, 2048, Reduce::kEvery};
    RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
      engine.BeginStep(2);
      Fail(fails, net, engine, false);
      engine.Drain();
      EXPECT_TRUE(TrainStep(rank, way, net, engine, 1).applied);
    });
  }
}

// Ranks make as many forwards as they have data for, and one of them fails in one.
TEST(Zero, RanksEvaluateDifferentNumbersOfForwards) {
  RunWorld({3, Precision::kBf16, ZeroStage::kZero3, 2048}, [&](int rank, const Net& net, Engine& engine) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      const at::NoGradGuard no_graph;
      const at::Tensor first = net.Loss(Pass::Evaluation(engine), Inputs(0, 9), true);
      for (int i = 0; i < rank; ++i)
        EXPECT_TRUE(net.Loss(Pass::Evaluation(engine), Inputs(0, 9), true).equal(first)) << rank;
      if (rank == 1) Fail(Fails::kInUnit, net, engine, false);
      engine.EndForwards();
    }
    EXPECT_TRUE(TrainStep(rank, {3, Precision::kBf16, ZeroStage::kZero3, 2048}, net, engine, 1).applied);
  });
}

// What a rank does otherwise than the others is refused, with the units' names, and nobody waits for it.
TEST(Zero, UnitsInAnotherOrderAreRefused) {
  for (const bool later : {false, true}) {
    const Way way{3, Precision::kFp32, ZeroStage::kZero3, 2048};
    RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
      if (later) TrainStep(rank, way, net, engine, 1);
      engine.BeginStep(1);
      std::string refused;
      try {
        const Pass pass = Pass::Training(engine, 1);
        const at::Tensor x = pass.Upload(at::ones({1, 37}));
        if (rank == 2) pass.Unit(net.second.unit(), [&](at::TensorList in) { return net.head(pass, in[0]); }, {x});
        engine.Backward(net.Loss(pass, Inputs(0, 5), true), true);
      } catch (const std::logic_error& error) {
        refused = error.what();
      }
      refused.empty() ? engine.Finish() : engine.Drain();
      if (rank == 2 || !later) {
        EXPECT_NE(refused.find("second"), std::string::npos) << rank << ": " << refused;
        EXPECT_NE(refused.find("first"), std::string::npos) << rank << ": " << refused;
      }
      EXPECT_TRUE(TrainStep(rank, way, net, engine, 2).applied);
    });
  }
}

// The same where one of them leaves out the last unit of the first micro-batch: it hears that at its forward's end,
// when the others have been refused in that unit, and all of them ask the same questions from there on.
TEST(Zero, AUnitThatOneRankLeavesOutIsRefused) {
  for (const int64_t micro_batches : {1, 2}) {
    const Way way{3, Precision::kFp32, ZeroStage::kZero3, 2048};
    RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
      engine.BeginStep(micro_batches);
      std::string refused;
      try {
        const Pass pass = Pass::Training(engine, 1);
        at::Tensor loss;
        if (rank == 2) {
          loss = pass.Unit(net.first.unit(),
                           [&](at::TensorList in) {
                             return net.up(pass, net.frozen(pass, in[0].to(at::kBFloat16)).to(at::kFloat)).sin().sum();
                           },
                           {pass.Upload(Inputs(0, 5))});
        } else {
          loss = net.Loss(pass, Inputs(0, 5), true);
        }
        engine.Backward(loss, micro_batches == 1);
      } catch (const std::logic_error& error) {
        refused = error.what();
      }
      EXPECT_NE(refused.find("second"), std::string::npos) << rank << ": " << refused;
      engine.Drain();
      EXPECT_TRUE(TrainStep(rank, way, net, engine, 2).applied);
    });
  }
}

}  // namespace
}  // namespace trainyard

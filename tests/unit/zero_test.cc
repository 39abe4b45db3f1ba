// What is shared out over the ranks changes no bit of what is trained, and less of it lies on each.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "trainer/comm/in_process.h"
#include "trainer/model/layers.h"
#include "trainer/parallel/engine.h"

namespace trainyard {
namespace {

// Odd sizes; a norm that stays float32, a frozen part, a parameter that gets no gradient on some ranks, and a head
// under two names.
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
    const at::Tensor y = pass.Unit(
        first.unit(),
        [&](at::TensorList in) { return up(pass, frozen(pass, in[0].to(at::kBFloat16)).to(up.ComputeType(pass))); },
        {x});
    return pass.Unit(second.unit(),
                     [&](at::TensorList in) {
                       const at::Tensor out = head(pass, norm(pass, in[0]).tanh());
                       return all ? sometimes(pass, out).square().sum() : out.square().sum();
                     },
                     {y});
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
};

using Values = std::map<std::string, std::vector<float>>;

void Take(const StateSlice& slice, Values& values) {
  int64_t numel = 1;
  for (const int64_t size : slice.shape) numel *= size;
  std::vector<float>& whole = values[slice.key];
  if (whole.empty()) whole.assign(static_cast<size_t>(numel), -7);  // what nobody has saved
  std::ranges::copy(slice.values, whole.begin() + slice.begin);
}

// Runs `body` on every rank, with an engine of its own.
void RunWorld(const Way& way, const std::function<void(int, const Net&, Engine&)>& body) {
  auto communicators = MakeInProcessWorld(way.world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < way.world; ++rank) {
    threads.emplace_back([&, rank] {
      ModelDeclaration declaration;
      const Net net{Scope(declaration)};
      EngineOptions options;
      options.stage = way.stage;
      options.precision = way.precision;
      options.bucket_bytes = way.bucket_bytes;
      options.optim.weight_decay = 0.1;
      const auto engine = MakeEngine(declaration, options, 7, *communicators[static_cast<size_t>(rank)]);
      body(rank, net, *engine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A step of two micro-batches, the last rank of three or more has one.
UpdateResult TrainStep(int rank, int world, const Net& net, Engine& engine, int64_t update) {
  engine.BeginStep(2);
  const int64_t micros = world > 2 && rank == world - 1 ? 1 : 2;
  for (int64_t m = 0; m < micros; ++m) {
    const at::Tensor x = Inputs(100 * update + 20 * rank + 10 * m, 100 * update + 20 * rank + 10 * m + 7);
    const at::Tensor loss = net.Loss(Pass::Training(engine, 1), x, rank != 1);
    engine.BeginBackward(m + 1 == micros);
    loss.backward();
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
      const UpdateResult result = TrainStep(rank, way.world, net, engine, update);
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
      EXPECT_GE(expected.size(), 3 * 6u);
      for (const int64_t bucket_bytes : {1, 2048, 25 << 20}) {
        for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero1, ZeroStage::kZero2}) {
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

// Reading puts the shards together, and what is read can be set again, in whatever stage.
TEST(Zero, WhatIsReadIsTheWholeAndCanBeSet) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Way way{3, precision, ZeroStage::kZero1, 2048};
    std::vector<std::vector<float>> read;
    RunWorld(way, [&](int rank, const Net& net, Engine& engine) {
      for (int64_t update = 1; update <= 2; ++update) TrainStep(rank, 3, net, engine, update);
      engine.PrepareRead();
      if (rank != 0) return;
      for (int32_t i = 0; i < static_cast<int32_t>(engine.declaration().parameters.size()); ++i) {
        read.emplace_back();
        engine.Read(ParameterId{i}, [&](std::span<const float> piece) {
          read.back().insert(read.back().end(), piece.begin(), piece.end());
        });
      }
    });
    for (const ZeroStage stage : {ZeroStage::kDdp, ZeroStage::kZero1}) {
      std::vector<double> losses(3);
      RunWorld({3, precision, stage, 2048}, [&](int rank, const Net& net, Engine& engine) {
        for (int32_t i = 0; i < static_cast<int32_t>(read.size()); ++i)
          engine.SetParameter(ParameterId{i}, read[static_cast<size_t>(i)]);
        losses[static_cast<size_t>(rank)] =
            net.Loss(Pass::Evaluation(engine), Inputs(0, 9), true).detach().to(at::kDouble).item<double>();
        engine.PrepareRead();
        if (rank == 0) {
          for (int32_t i = 0; i < static_cast<int32_t>(read.size()); ++i) {
            std::vector<float> again;
            engine.Read(ParameterId{i},
                        [&](std::span<const float> piece) { again.insert(again.end(), piece.begin(), piece.end()); });
            EXPECT_TRUE(SameBits(again, read[static_cast<size_t>(i)])) << i;
          }
        }
      });
      EXPECT_EQ(losses[0], losses[1]);
      EXPECT_EQ(losses[0], losses[2]);
    }
  }
}

// A rank whose backward failed takes part in every collective that is left; the next step is whole again.
TEST(Zero, ARankThatFailsDrains) {
  RunWorld({3, Precision::kBf16, ZeroStage::kZero1, 2048}, [&](int rank, const Net& net, Engine& engine) {
    engine.BeginStep(1);
    if (rank == 1) {
      engine.Drain();
    } else {
      engine.BeginBackward(true);
      net.Loss(Pass::Training(engine, 1), Inputs(0, 5), true).backward();
      engine.Finish();
    }
    EXPECT_TRUE(TrainStep(rank, 3, net, engine, 1).applied);
  });
}

}  // namespace
}  // namespace trainyard

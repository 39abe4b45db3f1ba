#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "trainer/comm/in_process.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/reduce_every.h"
#include "trainer/parallel/reduce_last.h"

namespace trainyard {
namespace {

std::vector<ParameterSpec> Example() {
  const Initial normal{Initial::Kind::kNormal, 0.1};
  return {{"first", {40, 40}, UnitId{0}, normal},
          {"second", {40, 40}, UnitId{1}, normal},
          {"unused", {77}, UnitId{1}, normal},
          {"third", {40, 40}, UnitId{2}, normal}};
}

at::Tensor Loss(const FlatState& state, float input, bool use_second = true) {
  at::Tensor x = at::ones({4, 40}, at::kFloat) * input;
  x = at::tanh(at::mm(x, state.leaves()[0]));
  if (use_second) x = at::tanh(at::mm(x, state.leaves()[1]));
  x = at::tanh(at::mm(x, state.leaves()[3]));
  return x.sum();
}

// The summed gradient of `world` ranks, each with `micro` micro-batches.
at::Tensor Reduced(int world, int micro, int64_t bucket_bytes) {
  auto communicators = MakeInProcessWorld(world);
  std::vector<std::thread> threads;
  at::Tensor result;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      FlatState state(FlatLayout(Example(), world), {.precision = Precision::kFp32}, Host());
      state.Initialize(1);
      ReduceLast reducer(state, *communicators[static_cast<size_t>(rank)], {.bucket_bytes = bucket_bytes});
      reducer.BeginStep();
      for (int m = 0; m < micro; ++m) {
        reducer.BeginBackward(m + 1 == micro);
        Loss(state, 0.3f + 0.1f * static_cast<float>(rank * micro + m)).backward();
      }
      reducer.Finish();
      if (rank == 0) result = state.gradient.clone();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

TEST(GradientReducer, SumsOverRanksAndMicroBatches) {
  const at::Tensor one = Reduced(1, 6, 1 << 20), two = Reduced(2, 3, 1 << 20), three = Reduced(3, 2, 1 << 20);
  auto numbers = [](const at::Tensor& flat, int world, size_t p) {
    const FlatLayout layout(Example(), world);
    return flat.narrow(0, layout.range(p).begin, layout.range(p).size());
  };
  for (size_t p = 0; p < Example().size(); ++p) {
    // Six fp32 values of order ten in another order.
    EXPECT_TRUE(numbers(one, 1, p).allclose(numbers(two, 2, p), 1e-5, 1e-5));
    EXPECT_TRUE(numbers(one, 1, p).allclose(numbers(three, 3, p), 1e-5, 1e-5));
  }
  EXPECT_EQ(numbers(one, 1, 2).abs().sum().item<float>(), 0) << "an unused parameter's gradient is zero";
}

// What a rank adds up of each micro-batch is the sum over the ranks, in their order: here by autograd and additions
// alone.
TEST(ReduceEvery, IsTheSumOverMicroBatchesOfTheSumsOverRanks) {
  constexpr int kWorld = 3, kMicro = 2;
  const FlatLayout layout(Example(), kWorld);
  at::Tensor expected = at::zeros({layout.total()}, at::kFloat);
  for (int m = 0; m < kMicro; ++m) {
    at::Tensor of_ranks;
    for (int rank = 0; rank < kWorld; ++rank) {
      FlatState state(layout, {.precision = Precision::kFp32}, Host());
      state.Initialize(1);
      Loss(state, 0.3f + 0.1f * static_cast<float>(rank * kMicro + m)).backward();
      at::Tensor flat = at::zeros({layout.total()}, at::kFloat);
      for (size_t p = 0; p < state.leaves().size(); ++p) {
        const at::Tensor& g = state.leaves()[p].grad();
        if (g.defined()) flat.narrow(0, layout.range(p).begin, layout.range(p).size()).copy_(g.flatten());
      }
      of_ranks = rank == 0 ? flat : of_ranks + flat;
    }
    expected = m == 0 ? of_ranks : expected + of_ranks;
  }
  for (const int64_t bucket_bytes : {256, 1000, 5000, 1 << 20}) {
    auto communicators = MakeInProcessWorld(kWorld);
    std::vector<std::thread> threads;
    at::Tensor summed = at::zeros({layout.total()}, at::kFloat);
    for (int rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<Range> shard = layout.Owned(rank, bucket_bytes);
        std::ranges::reverse(shard);
        FlatState state(layout, {.precision = Precision::kFp32, .shard = shard, .reduce = Reduce::kEvery}, Host());
        state.Initialize(1);
        const auto reducer =
            MakeGradientReducer(state, *communicators[static_cast<size_t>(rank)], {.bucket_bytes = bucket_bytes});
        for (int step = 0; step < 2; ++step) {  // the second finds the first one's shard
          reducer->BeginStep();
          for (int m = 0; m < kMicro; ++m) {
            reducer->BeginBackward(m + 1 == kMicro);
            Loss(state, 0.3f + 0.1f * static_cast<float>(rank * kMicro + m)).backward();
            reducer->EndBackward();
          }
          reducer->Finish();
        }
        for (const OwnedPiece& piece : state.owned())
          summed.narrow(0, piece.flat.begin, piece.flat.size())
              .copy_(state.gradient.narrow(0, piece.at, piece.flat.size()));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(summed.equal(expected)) << bucket_bytes;
  }
}

TEST(GradientReducer, BucketsDoNotChangeABit) {
  const at::Tensor whole = Reduced(3, 2, 1 << 20);
  for (int64_t bytes : {256, 1000, 5000}) EXPECT_TRUE(whole.equal(Reduced(3, 2, bytes))) << bytes;
}

TEST(GradientReducer, RanksMayUseDifferentParameters) {
  auto communicators = MakeInProcessWorld(2);
  std::vector<std::thread> threads;
  std::vector<at::Tensor> results(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      FlatState state(FlatLayout(Example(), 2), {.precision = Precision::kFp32}, Host());
      state.Initialize(1);
      ReduceLast reducer(state, *communicators[static_cast<size_t>(rank)], {.bucket_bytes = 1000});
      for (int step = 0; step < 3; ++step) {
        reducer.BeginStep();
        reducer.BeginBackward(true);
        Loss(state, 1, rank == 0).backward();
        reducer.Finish();
      }
      results[static_cast<size_t>(rank)] = state.gradient.clone();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(results[0].equal(results[1]));
}

TEST(GradientReducer, ARankThatFailsDrains) {
  auto communicators = MakeInProcessWorld(2);
  std::thread failing([&] {
    FlatState state(FlatLayout(Example(), 2), {.precision = Precision::kFp32}, Host());
    ReduceLast reducer(state, *communicators[1], {.bucket_bytes = 1000});
    reducer.BeginStep();
    reducer.Drain();
    reducer.Finish();
    communicators[1]->Barrier("consensus");
  });
  FlatState state(FlatLayout(Example(), 2), {.precision = Precision::kFp32}, Host());
  state.Initialize(1);
  ReduceLast reducer(state, *communicators[0], {.bucket_bytes = 1000});
  reducer.BeginStep();
  reducer.BeginBackward(true);
  Loss(state, 1).backward();
  reducer.Finish();
  communicators[0]->Barrier("consensus");
  failing.join();
}

// A bucket is on its way when its last gradient has come: one more must not be added to it.
TEST(GradientReducer, ASecondGradientInOneBackwardIsAnErrorThatNamesTheParameter) {
  auto communicators = MakeInProcessWorld(1);
  FlatState state(FlatLayout(Example(), 1), {.precision = Precision::kFp32}, Host());
  state.Initialize(1);
  ReduceLast reducer(state, *communicators[0], {.bucket_bytes = 1000});
  reducer.BeginStep();
  reducer.BeginBackward(true);
  Loss(state, 1).backward();
  try {
    Loss(state, 2).backward();
    FAIL() << "the second gradient was taken";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("a gradient of third"), std::string::npos) << error.what();
  }
  reducer.BeginStep();
  reducer.BeginBackward(false);
  Loss(state, 1).backward();
  Loss(state, 2).backward();  // Before the last micro-batch it is just added.
}

// The same of each micro-batch's buckets where all of them are sent: whether they are on their way, wait for their
// turn, or went without a gradient that nobody expected any more. The rank that fails keeps no other waiting.
TEST(ReduceEvery, ASecondGradientInOneBackwardIsAnErrorThatNamesTheParameter) {
  struct Case {
    int world;
    bool held, early;
  };
  for (const Case& c : {Case{1, false, false}, Case{1, true, false}, Case{1, false, true}, Case{2, false, false},
                        Case{2, true, false}, Case{2, false, true}}) {
    auto communicators = MakeInProcessWorld(c.world);
    const FlatLayout layout(Example(), c.world);
    std::string error;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < c.world; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<Range> shard = layout.Owned(rank, 1000);
        std::ranges::reverse(shard);
        FlatState state(layout, {.precision = Precision::kFp32, .shard = shard, .reduce = Reduce::kEvery}, Host());
        state.Initialize(1);
        Communicator& communicator = *communicators[static_cast<size_t>(rank)];
        ReduceEvery reducer(state, communicator, {.bucket_bytes = 1000});
        reducer.BeginStep();
        reducer.BeginBackward(false);
        const bool fails = rank == c.world - 1;
        reducer.Hold(c.held && fails);
        if (c.early && fails) {
          reducer.SendThrough(layout.Buckets(1000).size());
        } else {
          Loss(state, 1).backward();
        }
        if (fails) {
          try {
            Loss(state, 2).backward();
          } catch (const std::exception& refused) {
            error = refused.what();
          }
          reducer.Drain();
        }
        reducer.EndBackward();
        reducer.Finish();
        communicator.Barrier("consensus");
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_NE(error.find("a gradient of third"), std::string::npos)
        << c.world << (c.held ? " held" : "") << (c.early ? " early" : "") << ": " << error;
  }
}

TEST(GradientReducer, ACollectiveStartsBeforeBackwardEnds) {
  auto communicators = MakeInProcessWorld(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator& communicator = *communicators[static_cast<size_t>(rank)];
      FlatState state(FlatLayout(Example(), 2), {.precision = Precision::kFp32}, Host());
      state.Initialize(1);
      ReduceLast reducer(state, communicator, {.bucket_bytes = 6400});
      reducer.BeginStep();
      reducer.BeginBackward(true);
      const at::Tensor loss = Loss(state, 1);
      state.leaves()[0].register_hook([](const at::Tensor& g) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the last gradient takes long
        return g;
      });
      loss.backward();
      EXPECT_TRUE(communicator.Done(0));
      reducer.Finish();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trainyard

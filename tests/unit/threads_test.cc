// What computes in several threads: the same bits for any number of them. Runs under the address sanitizer too.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "trainer/device/host_device.h"
#include "trainer/model/attention.h"
#include "trainer/model/convolve.h"
#include "trainer/model/elementwise.h"
#include "trainer/model/fused_ops.h"
#include "trainer/model/group_norm.h"
#include "trainer/model/product.h"
#include "trainer/model/rows.h"
#include "trainer/optim/adamw.h"
#include "trainer/parallel/flat_state.h"
#include "trainer/parallel/update_ranges.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using Tensors = std::vector<at::Tensor>;

// Runs `compute` with one thread and with several, also more than there are processors; restores the number.
void ExpectTheSameBits(const std::function<Tensors()>& compute) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors alone = compute();
  for (int threads : {2, 3, 16}) {
    at::set_num_threads(threads);
    // Some attempts: which thread takes what, and when, is not decided by the program.
    for (int attempt = 0; attempt < 10; ++attempt) {
      const Tensors several = compute();
      for (size_t i = 0; i < alone.size(); ++i)
        ASSERT_TRUE(several[i].equal(alone[i])) << "tensor " << i << " with " << threads << " threads";
    }
  }
  at::set_num_threads(before);
}

Tensors WithGradients(const at::Tensor& output, const Tensors& inputs) {
  const at::Tensor weight = at::cos(at::arange(output.numel(), at::kFloat)).view(output.sizes());
  Tensors all = torch::autograd::grad({(output.to(at::kFloat) * weight).sum()}, inputs);
  all.push_back(output.detach());
  return all;
}

at::Tensor Random(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(true); }

Tensors Bf16(const Tensors& tensors) {
  Tensors low;
  for (const at::Tensor& x : tensors) low.push_back(x.detach().to(at::kBFloat16).requires_grad_(true));
  return low;
}

TEST(Threads, LoopsRunOnSeveral) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  ParallelFor(0, 2, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  at::set_num_threads(before);
  EXPECT_EQ(threads.size(), 2u);
}

TEST(Threads, ProductWithoutBiasHasGradients) {
  at::Tensor x = at::randn({5, 8}).requires_grad_(), weight = at::randn({6, 8}).requires_grad_();
  Product(x, weight, std::nullopt).sum().backward();
  EXPECT_LT((x.grad() - weight.detach().sum(0)).abs().max().item<double>(), 1e-5);
  EXPECT_LT((weight.grad() - x.detach().sum(0)).abs().max().item<double>(), 1e-5);
}

TEST(Threads, Product) {
  for (const auto& [rows, inputs, outputs] : {std::tuple{3200, 64, 192},
                                              {952, 256, 64},
                                              {480, 64, 64},
                                              {480, 64, 5},
                                              {700, 10, 7},
                                              {80000, 3, 1},
                                              {37, 768, 2100},
                                              {5, 24, 100},
                                              {0, 24, 100},
                                              {3200, 24, 100},
                                              {648, 96, 8}}) {
    const at::Tensor x = Random({2, rows / 2, inputs}), weight = Random({outputs, inputs}), bias = Random({outputs});
    SCOPED_TRACE(testing::Message() << rows << " rows, " << inputs << " -> " << outputs);
    ExpectTheSameBits([&] { return WithGradients(Product(x, weight, bias), {x, weight, bias}); });
    const Tensors low = Bf16({x, weight, bias});
    ExpectTheSameBits([&] { return WithGradients(Product(low[0], low[1], low[2]), low); });
  }
}

// An evaluation: what is made in inference mode is written to by other threads, too.
TEST(Threads, ProductInInferenceMode) {
  const c10::InferenceMode inference;
  const at::Tensor x = at::randn({1500, 64});
  for (const int64_t outputs : {192, 1}) {
    const at::Tensor weight = at::randn({outputs, 64}), bias = at::randn({outputs});
    ExpectTheSameBits([&] { return Tensors{Product(x, weight, bias)}; });
  }
}

TEST(Threads, Attention) {
  const at::Tensor qkv = Random({5, 60, 3 * 32}), visible = at::randint(0, 41, {5, 20}, at::kInt);
  const at::Tensor q = Random({5, 20, 32}), kv = Random({5, 60, 2 * 32});
  for (double p : {0.0, 0.2}) {
    ExpectTheSameBits([&] { return WithGradients(PrefixAttention(qkv, visible, 4, {7, p}), {qkv}); });
    ExpectTheSameBits([&] { return WithGradients(PrefixAttentionOfQueries(q, kv, visible, 4, {7, p}), {q, kv}); });
  }
}

TEST(Threads, AttentionToEverything) {
  const at::Tensor qkv = Random({2, 77, 3 * 36}), q = Random({2, 301, 36}), kv = Random({2, 77, 2 * 36});
  for (double p : {0.0, 0.2}) {
    ExpectTheSameBits([&] { return WithGradients(SelfAttention(qkv, 3, {7, p}), {qkv}); });
    ExpectTheSameBits([&] { return WithGradients(CrossAttention(q, kv, 3, {7, p}), {q, kv}); });
  }
  const Tensors low = Bf16({q, kv});
  ExpectTheSameBits([&] { return WithGradients(CrossAttention(low[0], low[1], 3, {7, 0.2}), low); });
}

// Sizes that leave the edge of a cut anywhere in a vector.
TEST(Threads, FunctionsOfEachValueAndOfRows) {
  for (const int64_t n : {40000, 66550, 110592}) {
    for (const at::Tensor& x : {Random({n}), Random({n}).to(at::kBFloat16)}) {
      ExpectTheSameBits([&] { return WithGradients(Silu(x), {x}); });
      ExpectTheSameBits([&] { return WithGradients(Sigmoid(x), {x}); });
      const at::Tensor rows = x.narrow(0, 0, n / 24 * 24).view({-1, 24});
      ExpectTheSameBits([&] { return WithGradients(Softmax(rows), {rows}); });
    }
  }
}

TEST(Threads, NormOfGroups) {
  for (const auto& [channels, groups] : {std::pair(32, 8), {24, 8}, {48, 8}, {8, 8}}) {
    const at::Tensor x = Random({3, channels, 6, 5, 6}), weight = Random({channels}), bias = Random({channels});
    ExpectTheSameBits([&] { return WithGradients(NormOfGroups(x, groups, weight, bias, 1e-5), {x, weight, bias}); });
  }
}

TEST(Threads, WhatIsDoneToEachSample) {
  const at::Tensor x = Random({3, 2501, 51}), y = Random({3, 2501, 51}), w = Random({3, 51}), v = Random({3, 51});
  ExpectTheSameBits([&] { return WithGradients(AddGated(x, y, w), {x, y, w}); });
  ExpectTheSameBits([&] { return WithGradients(Norm(x, w, v, 1e-5), {x, w, v}); });
  ExpectTheSameBits([&] { return WithGradients(SumOfEach(x), {x}); });
  const Tensors low = Bf16({x, y, w});
  ExpectTheSameBits([&] { return WithGradients(AddGated(low[0], low[1], low[2]), low); });
  ExpectTheSameBits([&] { return WithGradients(Norm(low[0], w, v, 1e-5), {low[0], w, v}); });
}

// Interpolation as the cascade's networks use it, from and to one channel.
TEST(Threads, Interpolation) {
  const at::Tensor x = Random({2, 1, 9, 8, 7}), image = Random({2, 1, 61, 59});
  ExpectTheSameBits([&] { return WithGradients(at::upsample_trilinear3d(x, {47, 45, 43}, true), {x}); });
  ExpectTheSameBits([&] { return WithGradients(at::upsample_bilinear2d(image, {150, 151}, false), {image}); });
  ExpectTheSameBits([&] { return WithGradients(x.mean(-1), {x}); });
}

TEST(Threads, NormAndGelu) {
  const at::Tensor x = Random({2500, 48}), r = Random({2500, 48}), gamma = Random({48}), beta = Random({48});
  ExpectTheSameBits([&] { return WithGradients(DropoutAddNorm(x, r, gamma, beta, {3, 0.1}), {x, r, gamma, beta}); });
  ExpectTheSameBits([&] { return WithGradients(GeluDropout(x, {4, 0.1}), {x}); });
}

// Of odd sizes, so that no cut between threads lies where the library's vectors end.
TEST(Threads, WhatLayersAreMadeOf) {
  const at::Tensor x = Random({2501, 51}), gamma = Random({51}), beta = Random({51});
  ExpectTheSameBits([&] { return WithGradients(Norm(x, gamma, beta, 1e-5), {x, gamma, beta}); });
  ExpectTheSameBits([&] { return WithGradients(GeluTanh(x), {x}); });
  const at::Tensor low = Bf16({x})[0];
  ExpectTheSameBits([&] { return WithGradients(Norm(low, gamma, beta, 1e-5), {low, gamma, beta}); });
  ExpectTheSameBits([&] { return WithGradients(GeluTanh(low), {low}); });
  // The library's own, as the layers use them.
  const at::Tensor table = Random({1501, 51}), indices = at::randint(0, 1501, {3001});
  ExpectTheSameBits([&] { return WithGradients(at::embedding(table, indices), {table}); });
  const at::Tensor targets = at::randint(0, 51, {2501});
  ExpectTheSameBits(
      [&] { return WithGradients(at::cross_entropy_loss(x, targets, {}, at::Reduction::Sum, -100), {x}); });
  const at::Tensor added = Random({97, 51}), samples = Random({31, 97, 51});
  ExpectTheSameBits([&] { return WithGradients(AddToEach(samples, added), {samples, added}); });
}

TEST(Threads, OtherNorms) {
  const at::Tensor x = Random({37, 48, 31}), gamma = Random({48}), beta = Random({48});
  ExpectTheSameBits([&] { return WithGradients(at::group_norm(x, 6, gamma, beta, 1e-5), {x, gamma, beta}); });
  ExpectTheSameBits([&] {
    return WithGradients(at::batch_norm(x, gamma, beta, {}, {}, true, 0.1, 1e-5, false), {x, gamma, beta});
  });
  const at::Tensor rows = Random({3201, 100}), scale = Random({100});
  ExpectTheSameBits([&] {
    return WithGradients(ScaleRows(rows * at::rsqrt(rows.square().mean(-1, true) + 1e-6), scale), {rows, scale});
  });
}

TEST(Threads, Convolution) {
  const at::Tensor x = Random({37, 8, 31, 29}), weight = Random({40, 8, 3, 3}), bias = Random({40});
  ExpectTheSameBits([&] { return WithGradients(Convolve(x, weight, bias, {2, 2}, {1, 1}), {x, weight, bias}); });
  ExpectTheSameBits([&] { return WithGradients(Convolve(x, weight, {}, {1, 1}, {0, 0}), {x, weight}); });
  const at::Tensor deep = Random({5, 3, 9, 11, 10}), kernel = Random({6, 3, 3, 3, 3});
  ExpectTheSameBits([&] { return WithGradients(Convolve(deep, kernel, {}, {1, 1, 1}, {1, 1, 1}), {deep, kernel}); });
}

TEST(Threads, ConvolutionToOneChannelAndToManyOfOnePlace) {
  const at::Tensor x = Random({20, 4, 61, 59}), weight = Random({1, 4, 3, 3}), bias = Random({1});
  ExpectTheSameBits([&] { return WithGradients(Convolve(x, weight, bias, {1, 1}, {1, 1}), {x, weight, bias}); });
  const at::Tensor points = Random({301, 4, 1, 1}), wide = Random({100, 4, 1, 1}), added = Random({100});
  ExpectTheSameBits([&] {
    return WithGradients(Convolve(points, wide, added, {1, 1}, {0, 0}), {points, wide, added});
  });
}

TEST(Threads, NormUpdateAndCasts) {
  constexpr int64_t kElements = 100000;  // several tasks
  ExpectTheSameBits([] {
    FlatState state(FlatLayout({{"w", {kElements}, UnitId{0}, {Initial::Kind::kNormal, 1}}}, 1),
                    {.precision = Precision::kBf16, .averages = true}, Host());
    OptimConfig config;
    config.ema_decay = 0.9;
    state.Initialize(1);
    state.gradient.copy_(at::sin(at::arange(state.gradient.numel(), at::kFloat)));
    std::vector<double> blocks(static_cast<size_t>(state.layout().total() / kBlock));
    HostMath().SumBlocks(state.gradient.const_data_ptr<float>(), blocks.data(), std::ssize(blocks));
    const double norm = HostMath().NormOf(blocks.data(), std::ssize(blocks));
    AdamW(config, UpdateRanges(config, state.layout()))
        .Step(HostMath(), state.UpdateBuffers(state.owned()[0]), 0, state.layout().total(),
              {.number = 1, .lr = 0.1, .grad_scale = ClipScale(norm, 1)});
    state.RefreshOwned();
    return Tensors{state.master,
                   state.average,
                   state.exp_avg,
                   state.exp_avg_sq,
                   state.leaves()[0].detach(),
                   at::full({1}, norm, at::kDouble)};
  });
}

}  // namespace
}  // namespace trainyard

// Each layer against torch.nn's own module with the same values: forward, gradients, initialisation.
#include "trainer/model/layers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>

#include "trainer/comm/communicator.h"
#include "trainer/device/host_device.h"
#include "trainer/model/convolve.h"
#include "trainer/model/max_pool.h"
#include "trainer/parallel/engine.h"

namespace trainyard {
namespace {

// A declaration with one layer in one unit, and its engine.
template <class Layer>
struct Alone {
  template <class... Args>
  explicit Alone(Args&&... args) : layer(Scope(declaration).Unit("all"), std::forward<Args>(args)...) {
    engine = MakeEngine(declaration, {}, 11, Host(), *communicator);
  }
  // The layer in its opened unit.
  template <class... More>
  at::Tensor Run(const Pass& pass, const at::Tensor& x, More... more) {
    return pass.Unit({0}, [=, this](at::TensorList in) { return layer(pass, in[0], more...); }, {x});
  }
  // Gives a module of torch.nn our values, by their common names.
  template <class Module>
  void CopyTo(Module& module) {
    torch::NoGradGuard no_grad;
    auto named = module->named_parameters();
    size_t copied = 0;
    for (size_t i = 0; i < declaration.parameters.size(); ++i) {
      const ParameterSpec& spec = declaration.parameters[i];
      at::Tensor* to = named.find(spec.name);
      if (!to) continue;
      ASSERT_EQ(to->sizes().vec(), spec.shape) << spec.name;
      float* out = to->data_ptr<float>();
      engine->Read(ParameterId{static_cast<int32_t>(i)},
                   [&](std::span<const float> values) { out = std::copy(values.begin(), values.end(), out); });
      ++copied;
    }
    EXPECT_EQ(copied, named.size()) << "every parameter of the reference is one of ours";
  }
  at::Tensor Gradient(const std::string& name) {
    for (size_t i = 0; i < declaration.parameters.size(); ++i) {
      if (declaration.parameters[i].name == name) return engine->Parameter({static_cast<int32_t>(i)});
    }
    throw std::logic_error(name);
  }

  ModelDeclaration declaration;
  Layer layer;
  std::unique_ptr<Communicator> communicator = MakeSingleCommunicator();
  std::unique_ptr<Engine> engine;
};

// Values, and gradients of the input and of every parameter; 1e-5 of the largest value: sums in another order.
template <class Layer, class Module>
void ExpectLike(Alone<Layer>& ours, Module module, const at::Tensor& input) {
  ours.CopyTo(module);
  at::Tensor x = input.clone(), y = input.clone();
  if (x.is_floating_point()) {
    x.requires_grad_(true);
    y.requires_grad_(true);
  }
  const at::Tensor mine = ours.Run(Pass::Training(*ours.engine, 1), x), theirs = module->forward(y);
  auto close = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).abs().max() / b.abs().max().clamp_min(1e-3)).template item<double>();
  };
  EXPECT_LT(close(mine, theirs), 1e-5);
  const at::Tensor weights = at::randn(mine.sizes());
  std::vector<at::Tensor> my_leaves, their_leaves;
  for (const auto& parameter : module->named_parameters()) {
    my_leaves.push_back(ours.Gradient(parameter.key()));
    their_leaves.push_back(parameter.value());
  }
  if (x.requires_grad()) {
    my_leaves.push_back(x);
    their_leaves.push_back(y);
  }
  const auto g = torch::autograd::grad({(mine * weights).sum()}, my_leaves),
             e = torch::autograd::grad({(theirs * weights).sum()}, their_leaves);
  for (size_t i = 0; i < g.size(); ++i) EXPECT_LT(close(g[i], e[i]), 1e-5) << i;
}

TEST(Layers, LinearIsTorchs) {
  Alone<Linear> ours(7, 5);
  ExpectLike(ours, torch::nn::Linear(7, 5), at::randn({4, 7}));
}

TEST(Layers, EmbeddingIsTorchs) {
  Alone<Embedding> ours(11, 6);
  ExpectLike(ours, torch::nn::Embedding(11, 6), at::randint(0, 11, {3, 4}, at::kLong));
}

TEST(Layers, NormsAreTorchs) {
  Alone<LayerNorm> layer(12);
  ExpectLike(layer, torch::nn::LayerNorm(torch::nn::LayerNormOptions({12})), at::randn({3, 5, 12}));
  Alone<GroupNorm> group(3, 12);
  ExpectLike(group, torch::nn::GroupNorm(3, 12), at::randn({4, 12, 5, 5}));
}

TEST(Layers, RMSNormIsItsFormula) {
  Alone<RMSNorm> ours(8);
  const at::Tensor x = at::randn({5, 8}),
                   expected = x / (x.square().mean(-1, true) + 1e-6).sqrt();  // its weight starts at one
  EXPECT_LT((ours.Run(Pass::Evaluation(*ours.engine), x) - expected).abs().max().item<double>(), 1e-6);
}

TEST(Layers, ConvolutionsAreTorchs) {
  Alone<Convolution> two(2, 3, 4, ConvOptions{.kernel = 3, .stride = 2, .padding = 1});
  ExpectLike(two, torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).stride(2).padding(1)), at::randn({2, 3, 9, 8}));
  Alone<Convolution> three(3, 2, 3, ConvOptions{.kernel = 3, .stride = 1, .padding = 1});
  ExpectLike(three, torch::nn::Conv3d(torch::nn::Conv3dOptions(2, 3, 3).padding(1)), at::randn({2, 2, 5, 6, 4}));
}

// Where a kernel is wider than the volume, a library's gradient may have places that it never writes: what was freed
// before would be there. 1 % of the largest: the gradient is rounded to eight bits.
TEST(Layers, ABfloat16WeightsGradientIsWhole) {
  for (const std::array<int64_t, 3>& size : {std::array<int64_t, 3>{2, 2, 1}, {3, 3, 2}, {10, 9, 5}}) {
    const at::Tensor x = torch::randn({11, 40, size[0], size[1], size[2]}).to(at::kBFloat16),
                     weight = (torch::randn({40, 40, 3, 3, 3}) * 0.1).to(at::kBFloat16).requires_grad_(true),
                     wide = weight.detach().to(at::kFloat).requires_grad_(true);
    const at::Tensor dy = torch::randn_like(x);
    torch::autograd::backward({torch::conv3d(x.to(at::kFloat), wide, {}, 1, 1)}, {dy.to(at::kFloat)});
    for (int i = 0; i < 20; ++i) {
      { const at::Tensor huge = torch::full({1 << (10 + i % 10)}, 3e30), more = huge.clone(); }
      weight.mutable_grad().reset();
      torch::autograd::backward({Convolve(x, weight, {}, {1, 1, 1}, {1, 1, 1})}, {dy});
      EXPECT_LT((weight.grad().to(at::kFloat) - wide.grad()).abs().max().item<float>(),
                0.01f * wide.grad().abs().max().item<float>());
    }
  }
}

TEST(Layers, BatchNormIsTorchsWithItsStatistics) {
  Alone<BatchNorm> ours(4);
  torch::nn::BatchNorm2d module(4);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = at::randn({6, 4, 3, 3}) * 2 + 1;
    ours.engine->BeginStep(1);
    ExpectLike(ours, module, x);
    ours.engine->Finish();
    ours.engine->Update({.lr = 0, .clip = 0, .update = 1, .finite = true, .before = {}});
    ours.CopyTo(module);
  }
  const at::Tensor x = at::randn({5, 4, 2, 2});
  module->eval();
  EXPECT_LT((ours.Run(Pass::Evaluation(*ours.engine), x) - module->forward(x)).abs().max().item<double>(), 1e-5);
  for (const StateSlice& slice : ours.engine->Slices()) {
    if (slice.key != "buffer.num_batches_tracked") continue;
    EXPECT_EQ(Floats(slice.values)[0], 3);
  }
}

TEST(Layers, LoRAStartsAsItsBaseAndTrainsTwoFactors) {
  Alone<LoRALinear> ours(8, 6, 2, 0.5);
  const at::Tensor x = at::randn({3, 8});
  const Pass pass = Pass::Training(*ours.engine, 1);
  const at::Tensor base = pass.Unit(
      {0}, [&](at::TensorList in) { return ours.layer.base(pass, in[0].to(at::kBFloat16)).to(at::kFloat); }, {x});
  EXPECT_TRUE(ours.Run(pass, x).equal(base)) << "B is zero";
  EXPECT_EQ(ours.declaration.num_parameters(true), 2 * 8 + 6 * 2);
}

TEST(Layers, DropoutIsAFunctionOfItsKeyAlone) {
  Alone<Dropout> ours(0.3);
  const at::Tensor x = at::ones({200, 50});
  const Pass pass = Pass::Training(*ours.engine, 5);
  const at::Tensor first = ours.Run(pass, x);
  at::rand({100});  // a foreign draw from the global generator
  EXPECT_TRUE(ours.Run(pass, x).equal(first));
  EXPECT_FALSE(ours.Run(Pass::Training(*ours.engine, 6), x).equal(first));
  EXPECT_TRUE(ours.Run(Pass::Evaluation(*ours.engine), x).equal(x));
  const double kept = first.ne(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 0.7, 5 * std::sqrt(0.21 / 10000));  // five standard errors
  EXPECT_NEAR(first.max().item<double>(), 1 / 0.7, 1e-6);
  Alone<DropPath> path(0.4);
  const at::Tensor whole = path.Run(Pass::Training(*path.engine, 5), at::ones({400, 3, 2}));
  EXPECT_TRUE(whole.flatten(1).amin(1).equal(whole.flatten(1).amax(1))) << "whole samples";
  EXPECT_NEAR(whole.ne(0).to(at::kDouble).mean().item<double>(), 0.6, 5 * std::sqrt(0.24 / 400));
}

TEST(Layers, TwoPlacesDrawDifferently) {
  struct Two {
    explicit Two(const Scope& s) : a(s, 0.5), b(s, 0.5) {}
    at::Tensor operator()(const Pass& pass, const at::Tensor& x) const {
      return a(pass, x).ne(b(pass, x)).to(at::kFloat);
    }
    Dropout a, b;
  };
  Alone<Two> ours;
  EXPECT_NEAR(ours.Run(Pass::Training(*ours.engine, 1), at::ones({10000})).mean().item<double>(), 0.5, 0.03);
}

TEST(Layers, CausalAttentionSeesThePast) {
  const at::Tensor qkv = at::randn({2, 9, 3 * 16});
  auto part = [&](int64_t i) { return qkv.narrow(2, 16 * i, 16).view({2, 9, 2, 8}).transpose(1, 2); };
  const at::Tensor expected =
      at::scaled_dot_product_attention(part(0), part(1), part(2), {}, 0, true).transpose(1, 2).reshape({2, 9, 16});
  EXPECT_LT((CausalAttention(qkv, 2, {}) - expected).abs().max().item<double>(), 1e-5);
}

// Values of a few steps, so that most windows have several largest ones; odd and even sizes, also of one place.
TEST(Layers, MaxPool3dIsTorchs) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{2, 3, 9, 8, 11}, {1, 2, 1, 2, 3}, {3, 1, 16, 5, 6}}) {
      const at::Tensor values = (at::randn(sizes) * 2).round().relu().to(type);
      const at::Tensor ours = values.clone().requires_grad_(), theirs = values.clone().requires_grad_();
      const at::Tensor y = MaxPool3d(ours), expected = at::max_pool3d(theirs, {3, 3, 3}, {2, 2, 2}, {1, 1, 1});
      EXPECT_TRUE(at::equal(y, expected));
      const at::Tensor dy = at::randn(y.sizes()).to(type).round();  // sums of whole numbers have no order
      y.backward(dy);
      expected.backward(dy);
      EXPECT_TRUE(at::equal(ours.grad(), theirs.grad())) << type << " " << at::IntArrayRef(sizes);
    }
  }
  EXPECT_EQ(MaxPool3d(at::zeros({0, 3, 4, 5, 6})).sizes(), (std::vector<int64_t>{0, 3, 2, 3, 3}));
  at::Tensor x = at::zeros({1, 1, 4, 4, 4});
  x[0][0][3][3][3] = std::nan("");
  EXPECT_TRUE(at::isnan(MaxPool3d(x)).equal(at::isnan(at::max_pool3d(x, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}))));
}

}  // namespace
}  // namespace trainyard

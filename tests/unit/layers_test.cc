// Each layer against torch.nn's own module with the same values: forward, gradients, initialisation.
#include "trainer/model/layers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <random>

#include "trainer/comm/communicator.h"
#include "trainer/device/host_device.h"
#include "trainer/model/convolve.h"
#include "trainer/model/normalise.h"
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

struct ConvolutionCase {
  int64_t batch, inputs, outputs;
  std::vector<int64_t> size, kernel, stride, padding;
};

// Sizes, kernels and steps that meet the edges: kernels wider than the volume, outputs of one place, few channels.
ConvolutionCase RandomCase(std::mt19937& random) {
  const auto of = [&](std::initializer_list<int64_t> values) { return values.begin()[random() % values.size()]; };
  ConvolutionCase c{of({1, 2, 3, 11, 24}), of({1, 3, 8, 16, 40, 64}), of({8, 16, 40, 64, 128}), {}, {}, {}, {}};
  const int64_t kernel = of({2, 3, 3, 3, 4, 5}), stride = of({1, 1, 2, 2, 3});
  for (int64_t dimension = 0, dimensions = of({2, 3, 3}); dimension < dimensions; ++dimension) {
    c.kernel.push_back(kernel);
    c.stride.push_back(stride);
    c.padding.push_back(of({0, kernel / 2, kernel / 2}));
    c.size.push_back(std::max(of({1, 2, 2, 3, 4, 5, 8}), kernel - 2 * c.padding.back()));
  }
  return c;
}

// Memory that is free and holds NaN, in blocks of the sizes that such a convolution takes.
void Poison() {
  std::vector<at::Tensor> held;
  for (int64_t elements = 1 << 10; elements <= 1 << 20; elements *= 4) {
    for (int i = 0; i < 4; ++i)
      held.push_back(at::full({elements}, std::numeric_limits<float>::quiet_NaN(), at::kBFloat16));
  }
}

// A library's 16-bit convolution may have places that it never writes, or reads what nobody wrote: what was freed
// before would be there. 1 % of the largest: what is compared is rounded to eight bits.
TEST(Layers, ABfloat16ConvolutionIsThatOfFloat32) {
  std::mt19937 random(17);
  std::vector<ConvolutionCase> cases{
      {24, 64, 128, {4, 4, 2}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}},  // wrong with AMX, as the two below
      {8, 16, 40, {11, 4}, {3, 3}, {2, 2}, {1, 0}},
      {3, 3, 32, {1, 2, 4}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
      {11, 40, 40, {2, 2, 1}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},  // a wrong gradient of the weight with avx512_bf16
      {2, 16, 16, {20, 18, 12}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
      {5, 1, 16, {20, 18, 33}, {7, 7, 7}, {2, 2, 2}, {3, 3, 3}},  // a stem's: more than one block of samples, of places
      {1, 1, 40, {9, 8, 7}, {7, 7, 7}, {1, 1, 1}, {3, 3, 3}},
      {2, 1, 3, {1, 2, 1}, {7, 7, 7}, {2, 2, 2}, {3, 3, 3}},
      {2, 1, 8, {9, 9, 9}, {7, 7, 7}, {2, 2, 2}, {2, 3, 3}}};  // almost one
  for (int i = 0; i < 150; ++i) cases.push_back(RandomCase(random));
  for (const ConvolutionCase& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.size) + " kernel " + testing::PrintToString(c.kernel) + " stride " +
                 testing::PrintToString(c.stride) + " padding " + testing::PrintToString(c.padding) + ", channels " +
                 std::to_string(c.inputs) + " to " + std::to_string(c.outputs) + ", batch " + std::to_string(c.batch));
    std::vector<int64_t> x_shape{c.batch, c.inputs}, w_shape{c.outputs, c.inputs};
    x_shape.insert(x_shape.end(), c.size.begin(), c.size.end());
    w_shape.insert(w_shape.end(), c.kernel.begin(), c.kernel.end());
    const auto leaf = [](const at::Tensor& values) { return values.detach().clone().requires_grad_(true); };
    const at::Tensor x = leaf(at::randn(x_shape).to(at::kBFloat16)),
                     weight = leaf((at::randn(w_shape) * 0.1).to(at::kBFloat16)), wide_x = leaf(x.to(at::kFloat)),
                     wide_weight = leaf(weight.to(at::kFloat));
    const std::vector<int64_t> ones(c.size.size(), 1), zeros(c.size.size(), 0);
    const at::Tensor expected = at::convolution(wide_x, wide_weight, {}, c.stride, c.padding, ones, false, zeros, 1);
    Poison();
    const at::Tensor y = Convolve(x, weight, {}, c.stride, c.padding);
    const at::Tensor dy = at::randn_like(y);
    torch::autograd::backward({expected}, {dy.to(at::kFloat)});
    Poison();
    torch::autograd::backward({y}, {dy});
    const auto expect_like = [](const at::Tensor& ours, const at::Tensor& theirs, const char* what) {
      EXPECT_LE((ours.to(at::kFloat) - theirs).abs().max().item<float>(), 0.01f * theirs.abs().max().item<float>())
          << what;
    };
    expect_like(y, expected, "y");
    expect_like(x.grad(), wide_x.grad(), "dx");
    expect_like(weight.grad(), wide_weight.grad(), "dw");
  }
}

// A weight's gradient is a sum over blocks of samples, of which the last may be shorter.
TEST(Layers, ConvolutionsWeightGradientIsOfEverySample) {
  for (const int64_t samples : {1, 4, 5, 37}) {
    const at::Tensor x = at::randn({samples, 3, 6, 5}), weight = at::randn({4, 3, 3, 3}).requires_grad_(true);
    const at::Tensor exact = weight.detach().to(at::kDouble).requires_grad_(true);
    const at::Tensor y = Convolve(x, weight, {}, {1, 1}, {1, 1}), dy = at::randn_like(y);
    const std::vector<int64_t> ones{1, 1}, zeros{0, 0};
    torch::autograd::backward({y}, {dy});
    torch::autograd::backward({at::convolution(x.to(at::kDouble), exact, {}, ones, ones, ones, false, zeros, 1)},
                              {dy.to(at::kDouble)});
    // Some thousand products of normal numbers in float32.
    EXPECT_LE((weight.grad() - exact.grad()).abs().max().item<double>(), 1e-3) << samples;
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

// A norm that changes nothing, and the stem's pooling behind it. Values of a few steps, so that most windows have
// several largest ones; odd and even sizes, also of one place.
TEST(Layers, ANormWithPoolingIsTorchs) {
  const auto ours = [](const at::Tensor& x) {
    const int64_t C = x.size(1);
    return Normalised(x, at::stack({at::zeros({C}), at::ones({C})}), at::ones({C}), at::zeros({C}), 0,
                      AfterNorm::kReluMaxPool);
  };
  const auto theirs = [](const at::Tensor& x) { return at::max_pool3d(at::relu(x), {3, 3, 3}, {2, 2, 2}, {1, 1, 1}); };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{2, 3, 9, 8, 11}, {1, 2, 1, 2, 3}, {3, 1, 16, 5, 6}, {1, 1, 1, 1, 1}}) {
      const at::Tensor values = (at::randn(sizes) * 2).round().to(type);
      const at::Tensor x = values.clone().requires_grad_(), same = values.clone().requires_grad_();
      const at::Tensor y = ours(x), expected = theirs(same);
      EXPECT_TRUE(at::equal(y, expected));
      const at::Tensor dy = at::randn(y.sizes()).to(type).round();  // sums of whole numbers have no order
      y.backward(dy);
      expected.backward(dy);
      EXPECT_TRUE(at::equal(x.grad(), same.grad())) << type << " " << at::IntArrayRef(sizes);
    }
  }
  EXPECT_EQ(ours(at::zeros({0, 3, 4, 5, 6})).sizes(), (std::vector<int64_t>{0, 3, 2, 3, 3}));
  at::Tensor x = at::zeros({1, 1, 4, 4, 4});
  x[0][0][3][3][3] = std::nan("");
  EXPECT_TRUE(at::isnan(ours(x)).equal(at::isnan(theirs(x))));
}

}  // namespace
}  // namespace trainyard

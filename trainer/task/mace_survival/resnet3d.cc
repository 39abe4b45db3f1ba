#include "trainer/task/mace_survival/resnet3d.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/relu.h>

#include <array>
#include <cmath>
#include <map>
#include <string>

#include "trainer/model/convolve.h"

namespace trainyard::mace {
namespace {

using Kind = Initial::Kind;

constexpr int64_t kBottleneck = 4;  // a bottleneck's outputs are so many times its planes

struct Depth {
  std::array<int64_t, 4> blocks;
  bool bottleneck;
};
const std::map<int64_t, Depth> kDepths = {
    {10, {{1, 1, 1, 1}, false}}, {18, {{2, 2, 2, 2}, false}}, {34, {{3, 4, 6, 3}, false}}, {50, {{3, 4, 6, 3}, true}}};

NormedConv Normed(const Scope& conv, const Scope& norm, int64_t inputs, int64_t outputs, const ConvOptions& options) {
  return {Conv3d(conv, inputs, outputs, options), GlobalBatchNorm(norm, outputs)};
}

// run(block's number, inputs, planes, stride) for each, in order; returns the channels behind the last.
template <class Run>
int64_t ForEachBlock(const ResNetShape& shape, Run run) {
  const Depth& depth = kDepths.at(shape.layers);
  int64_t inputs = shape.width;
  for (size_t stage = 0; stage < depth.blocks.size(); ++stage) {
    const int64_t planes = shape.width << stage;
    for (int64_t i = 0; i < depth.blocks[stage]; ++i) {
      run(stage, i, inputs, planes, i == 0 && stage > 0 ? 2 : 1, depth.bottleneck);
      inputs = planes * (depth.bottleneck ? kBottleneck : 1);
    }
  }
  return inputs;
}

}  // namespace

Conv3d::Conv3d(const Scope& s, int64_t inputs, int64_t outputs, const ConvOptions& options)
    : stride(3, options.stride), padding(3, options.padding) {
  const int64_t k = options.kernel, volume = k * k * k;
  const double deviation = std::sqrt(2 / static_cast<double>(outputs * volume));
  weight = s.Parameter("weight", {outputs, inputs, k, k, k}, {Kind::kNormal, deviation});
  if (options.bias)  // torch.nn.Conv3d's own
    bias = s.Parameter("bias", {outputs}, {Kind::kUniform, 1 / std::sqrt(static_cast<double>(inputs * volume))});
}

at::Tensor Conv3d::operator()(const Pass& pass, const at::Tensor& x) const {
  const at::Tensor w = pass[weight];
  return Convolve(x.to(w.scalar_type()), w, bias ? std::optional(pass[*bias]) : std::nullopt, stride, padding);
}

ResidualBlock::ResidualBlock(const Scope& s, int64_t inputs, int64_t planes, int64_t stride, bool bottleneck)
    : unit(s.unit()) {
  const int64_t outputs = planes * (bottleneck ? kBottleneck : 1);
  if (bottleneck) {
    convs.push_back(Normed(s / "conv1", s / "bn1", inputs, planes, {.kernel = 1, .bias = false}));
    convs.push_back(
        Normed(s / "conv2", s / "bn2", planes, planes, {.kernel = 3, .stride = stride, .padding = 1, .bias = false}));
    convs.push_back(Normed(s / "conv3", s / "bn3", planes, outputs, {.kernel = 1, .bias = false}));
  } else {
    convs.push_back(
        Normed(s / "conv1", s / "bn1", inputs, planes, {.kernel = 3, .stride = stride, .padding = 1, .bias = false}));
    convs.push_back(Normed(s / "conv2", s / "bn2", planes, planes, {.kernel = 3, .padding = 1, .bias = false}));
  }
  if (stride != 1 || inputs != outputs)
    shortcut = Normed(s / "downsample" / "0", s / "downsample" / "1", inputs, outputs, {.kernel = 1, .stride = stride});
}

at::Tensor ResidualBlock::operator()(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const {
  // A convolution ends each part: what its norm needs of the other ranks is gathered outside of the unit.
  const auto first = [=, this](at::TensorList in) { return convs[0].conv(pass, in[0]); };
  const Keeps keeps = convs.size() == 2 ? Keeps::kInputs : Keeps::kMore;  // a bottleneck's is a product of rows
  WithMoments y = convs[0].norm.Moments(pass, pass.Unit(unit, first, {x}, keeps), batch);
  for (size_t i = 1; i < convs.size(); ++i) {
    const auto run = [=, this](at::TensorList in) {
      return convs[i].conv(pass, convs[i - 1].norm(pass, in[0], in[1], AfterNorm::kRelu));
    };
    y = convs[i].norm.Moments(pass, pass.Unit(unit, run, {y.x, y.moments}), batch);
  }
  if (!shortcut) {
    const auto run = [=, this](at::TensorList in) { return at::relu(convs.back().norm(pass, in[0], in[1]) + in[2]); };
    return pass.Unit(unit, run, {y.x, y.moments, x});
  }
  const auto past = [=, this](at::TensorList in) { return shortcut->conv(pass, in[0]); };
  const WithMoments s = shortcut->norm.Moments(pass, pass.Unit(unit, past, {x}), batch);
  const auto run = [=, this](at::TensorList in) {
    return at::relu(convs.back().norm(pass, in[0], in[1]) + shortcut->norm(pass, in[2], in[3]));
  };
  return pass.Unit(unit, run, {y.x, y.moments, s.x, s.moments});
}

ResNet3d::ResNet3d(const Scope& s, const ResNetShape& shape)
    : stem_(s.Unit("stem")),
      first_(Normed(stem_ / "conv1", stem_ / "bn1", 1, shape.width,
                    {.kernel = 7, .stride = shape.first_stride, .padding = 3, .bias = false})) {
  features_ = ForEachBlock(
      shape, [&](size_t stage, int64_t i, int64_t inputs, int64_t planes, int64_t stride, bool bottleneck) {
        const std::string name = "layer" + std::to_string(stage + 1), number = std::to_string(i);
        blocks_.emplace_back(s.Unit(name + "." + number) / name / number, inputs, planes, stride, bottleneck);
      });
}

at::Tensor ResNet3d::Stem(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const {
  const auto conv = [=, this](at::TensorList in) { return first_.conv(pass, in[0]); };
  const WithMoments of = first_.norm.Moments(pass, pass.Unit(stem_.unit(), conv, {x}, Keeps::kInputs), batch);
  const auto pool = [=, this](at::TensorList in) { return first_.norm(pass, in[0], in[1], AfterNorm::kReluMaxPool); };
  return pass.Unit(stem_.unit(), pool, {of.x, of.moments});
}

at::Tensor ResNet3d::operator()(const Pass& pass, const at::Tensor& x, GlobalBatch& batch) const {
  at::Tensor y = Stem(pass, x, batch);
  for (const ResidualBlock& block : blocks_) y = block(pass, y, batch);
  return y.to(at::kFloat).flatten(2).mean(2);
}

double FlopsOf(const ResNetShape& shape, const std::vector<int64_t>& volume) {
  std::vector<int64_t> sides = volume;
  double products = 0;
  const auto shrink = [&](int64_t stride) {
    for (int64_t& side : sides) side = (side - 1) / stride + 1;
  };
  const auto add = [&](int64_t inputs, int64_t outputs, int64_t kernel) {
    products += static_cast<double>(inputs * outputs * kernel * kernel * kernel) *
                static_cast<double>(sides[0] * sides[1] * sides[2]);
  };
  shrink(shape.first_stride);
  add(1, shape.width, 7);
  shrink(2);
  ForEachBlock(shape, [&](size_t, int64_t, int64_t inputs, int64_t planes, int64_t stride, bool bottleneck) {
    const int64_t outputs = planes * (bottleneck ? kBottleneck : 1);
    if (bottleneck) add(inputs, planes, 1);
    shrink(stride);
    add(bottleneck ? planes : inputs, planes, 3);
    bottleneck ? add(planes, outputs, 1) : add(planes, outputs, 3);
    if (stride != 1 || inputs != outputs) add(inputs, outputs, 1);
  });
  return 6 * products;
}

}  // namespace trainyard::mace

#include "trainer/task/hybrid_vit_cascade/cascade_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "trainer/model/attention.h"
#include "trainer/model/elementwise.h"
#include "trainer/model/fused_ops.h"
#include "trainer/model/product.h"
#include "trainer/model/rows.h"

namespace trainyard::hvc {
namespace {

using Kind = Initial::Kind;
constexpr Initial kZero{Kind::kConstant, 0};
constexpr ConvOptions kThree{.kernel = 3, .stride = 1, .padding = 1}, kOne{.kernel = 1, .stride = 1, .padding = 0},
    kSeven{.kernel = 7, .stride = 2, .padding = 3}, kHalving{.kernel = 3, .stride = 2, .padding = 1};
constexpr int64_t kGroups = 8;
constexpr double kPriorShare = 0.1;

LinearOptions NoBias() { return {.bias = false, .weight_initial = {}, .bias_initial = {}, .parameters = {}}; }
LinearOptions StartsAtZero() {
  return {.bias = true, .weight_initial = kZero, .bias_initial = kZero, .parameters = {}};
}

// The mean of each row, without the library's cuts.  x: (B, C, h, w) -> (B, C)
at::Tensor MeanOverPixels(const at::Tensor& x) {
  const at::Tensor rows = x.flatten(2).flatten(0, 1);
  return (SumOfEach(rows) / static_cast<double>(rows.size(1))).view({x.size(0), x.size(1)});
}

// (B, V, C, h, w) -> (B, C, h, w)
at::Tensor MeanOverViews(const at::Tensor& x) {
  at::Tensor sum = x.select(1, 0);
  for (int64_t view = 1; view < x.size(1); ++view) sum = sum + x.select(1, view);
  return (sum / static_cast<double>(x.size(1))).contiguous();
}

// (B, V, C, h, w) -> (B, V h w, C)
at::Tensor PixelsOfViews(const at::Tensor& x) { return x.flatten(3).transpose(2, 3).flatten(1, 2).contiguous(); }

// (B, C, h, w) -> (B, h w, C)
at::Tensor PixelRows(const at::Tensor& features) { return features.flatten(2).transpose(1, 2).contiguous(); }

std::string StageName(size_t index) { return "stage" + std::to_string(index + 1); }

// Channels behind each halving: a quarter of the width, a half, and from then on all of it.
std::vector<int64_t> EmbeddingWidths(const StageShape& shape, int64_t grid) {
  std::vector<int64_t> widths;
  for (int64_t size = shape.size; size > grid; size /= 2)
    widths.push_back(widths.empty() ? shape.dim / 4 : widths.size() == 1 ? shape.dim / 2 : shape.dim);
  return widths;
}

}  // namespace

at::Tensor UpSampled(const at::Tensor& volume, int64_t size) {
  return volume.size(-1) == size ? volume : at::upsample_trilinear3d(volume, {size, size, size}, false);
}

at::Tensor PlaceCodes(const std::vector<int64_t>& sizes, int64_t dim) {
  const auto axes = std::ssize(sizes), pairs = dim / (2 * axes);
  std::vector<int64_t> shape = sizes;
  shape.push_back(dim);
  const at::Tensor codes = at::zeros(shape, at::kFloat);
  for (int64_t axis = 0; axis < axes; ++axis) {
    const int64_t size = sizes[static_cast<size_t>(axis)];
    const at::Tensor along = at::zeros({size, 2 * pairs}, at::kFloat);
    float* out = along.data_ptr<float>();
    for (int64_t place = 0; place < size; ++place) {
      const double at = (static_cast<double>(place) + 0.5) / static_cast<double>(size) * std::numbers::pi;
      for (int64_t i = 0; i < pairs; ++i) {
        const double share = pairs > 1 ? static_cast<double>(i) / static_cast<double>(pairs - 1) : 0;
        const double angle = at * std::pow(static_cast<double>(size), share);
        *out++ = static_cast<float>(std::sin(angle));
        *out++ = static_cast<float>(std::cos(angle));
      }
    }
    std::vector<int64_t> line(sizes.size() + 1, 1);
    line[static_cast<size_t>(axis)] = size;
    line.back() = 2 * pairs;
    codes.narrow(-1, axis * 2 * pairs, 2 * pairs).copy_(along.view(line));
  }
  return codes.view({-1, dim});
}

std::vector<std::string> TrainedBy(size_t index) {
  std::vector<std::string> patterns = {"stages." + StageName(index) + ".*",
                                       "prev_stage_projectors." + StageName(index) + ".*"};
  if (index == 0) patterns = {"stages.stage1.*", "xray_encoder.*", "time_embed.*"};
  return patterns;
}

// ---- X-rays -------------------------------------------------------------------------------------

XrayEncoder::XrayEncoder(const Scope& root, int64_t dim)
    : unit(root.Unit("x-ray encoder")),
      conv1(unit / "xray_encoder.encoder.0", 2, 1, dim / 8, kSeven),
      conv2(unit / "xray_encoder.encoder.3", 2, dim / 8, dim / 4, kThree),
      conv3(unit / "xray_encoder.encoder.6", 2, dim / 4, dim, kThree),
      embed1(unit / "time_embed.0", 1, dim / 2),
      embed2(unit / "time_embed.2", dim / 2, dim / 2),
      time1(unit / "xray_encoder.time_mlp.0", dim / 2, dim),
      time2(unit / "xray_encoder.time_mlp.2", dim, 2 * dim),
      to_cond(unit / "xray_encoder.to_cond", dim, 2 * dim) {}

at::Tensor XrayEncoder::Features(const Pass& pass, const at::Tensor& xrays) const {
  const auto run = [=, this](at::TensorList in) {
    at::Tensor x = in[0].flatten(0, 1).to(embed1.ComputeType(pass));
    x = at::max_pool2d(at::relu(conv1(pass, x)), {3, 3}, {2, 2}, {1, 1});
    x = at::max_pool2d(at::relu(conv2(pass, x)), {2, 2}, {2, 2});
    return at::relu(conv3(pass, x)).unflatten(0, {in[0].size(0), in[0].size(1)});
  };
  return pass.Unit(unit.unit(), run, {xrays});
}

at::Tensor XrayEncoder::Condition(const Pass& pass, const at::Tensor& features, const at::Tensor& t) const {
  const auto run = [=, this](at::TensorList in) {
    const at::Tensor time = in[1].unsqueeze(1).to(in[0].scalar_type());
    const at::Tensor embedded = embed2(pass, Silu(embed1(pass, time)));
    return time2(pass, Silu(time1(pass, embedded))) + to_cond(pass, MeanOverPixels(in[0]));
  };
  return pass.Unit(unit.unit(), run, {features, t});
}

// ---- Lifting ------------------------------------------------------------------------------------

DepthLifting::DepthLifting(const Scope& s, int64_t dim, int64_t size)
    : size(size),
      conv1(s / "depth_lifter.depth_networks" / ("depth_" + std::to_string(size)) / "depth_net.0", 2, dim, dim / 2,
            kThree),
      conv2(s / "depth_lifter.depth_networks" / ("depth_" + std::to_string(size)) / "depth_net.3", 2, dim / 2, dim / 4,
            kThree),
      conv3(s / "depth_lifter.depth_networks" / ("depth_" + std::to_string(size)) / "depth_net.6", 2, dim / 4, size,
            kOne),
      mask(s / "depth_lifter.depth_networks" / ("depth_" + std::to_string(size)) / "prior_modulation.0", 2, dim, size,
           kOne),
      norm1(s / "depth_lifter.depth_networks" / ("depth_" + std::to_string(size)) / "depth_net.1", kGroups, dim / 2),
      norm2(s / "depth_lifter.depth_networks" / ("depth_" + std::to_string(size)) / "depth_net.4", kGroups, dim / 4),
      to_volume_weight(
          (s / "depth_to_volume")
              .Parameter("weight", {1, dim, 1, 1, 1}, {Kind::kUniform, 1 / std::sqrt(static_cast<double>(dim))})),
      to_volume_bias(
          (s / "depth_to_volume").Parameter("bias", {1}, {Kind::kUniform, 1 / std::sqrt(static_cast<double>(dim))})) {}

at::Tensor DepthLifting::Lift(const Pass& pass, const at::Tensor& features) const {
  at::Tensor x = Silu(norm1(pass, conv1(pass, features)));
  x = Silu(norm2(pass, conv2(pass, x)));
  const auto depths_last = [](const at::Tensor& y) { return y.permute({0, 2, 3, 1}).contiguous().to(at::kFloat); };
  const at::Tensor weights = Softmax(depths_last(conv3(pass, x))) * Sigmoid(depths_last(mask(pass, features)));
  const at::Tensor shares = weights / (weights.sum(-1, true) + 1e-8);
  const at::Tensor pixels = features.permute({0, 2, 3, 1}).contiguous();
  const at::Tensor values = Product(pixels, pass[to_volume_weight].view({1, -1}), std::nullopt).to(at::kFloat);
  const at::Tensor lifted = (shares * values).permute({0, 3, 1, 2}).contiguous().unsqueeze(-1);
  return AddToEach(lifted, pass[to_volume_bias].to(at::kFloat));
}

// ---- Transformer --------------------------------------------------------------------------------

Block::Block(const Scope& s, const StageShape& shape, int64_t context_dim, int64_t condition_dim, double dropout)
    : unit(s.unit()),
      dim(shape.dim),
      heads(shape.heads),
      modulation(s / "adaln.linear", condition_dim, 6 * shape.dim, StartsAtZero()),
      qkv(s / "self_attn.qkv", shape.dim, 3 * shape.dim, NoBias()),
      self_out(s / "self_attn.proj", shape.dim, shape.dim),
      q(s / "cross_attn.q", shape.dim, shape.dim, NoBias()),
      kv(s / "cross_attn.kv", context_dim, 2 * shape.dim, NoBias()),
      cross_out(s / "cross_attn.proj", shape.dim, shape.dim),
      up(s / "mlp.0", shape.dim, 4 * shape.dim),
      down(s / "mlp.3", 4 * shape.dim, shape.dim),
      norm1(s / "norm1", shape.dim),
      norm2(s / "norm2", shape.dim),
      norm3(s / "norm3", shape.dim),
      self_weights(s, dropout),
      self_output(s, dropout),
      cross_weights(s, dropout),
      cross_output(s, dropout),
      hidden_dropout(s, dropout),
      mlp_output(s, dropout) {}

at::Tensor Block::operator()(const Pass& pass, const at::Tensor& x, const at::Tensor& context,
                             const at::Tensor& condition) const {
  const std::vector<at::Tensor> m = modulation(pass, condition).chunk(6, 1);  // each (B, D): shift, scale, gate, twice
  // norm(y) (1 + scale) + shift is the norm of a weight and a bias for each sample.
  const auto modulated = [&pass](const LayerNorm& norm, const at::Tensor& y, const at::Tensor& shift,
                                 const at::Tensor& scale) {
    const at::Tensor slope = scale.to(at::kFloat) + 1;
    return Norm(y, ScaleRows(slope, pass[norm.weight]), ScaleRows(slope, pass[norm.bias]) + shift.to(at::kFloat),
                norm.eps);
  };
  const at::Tensor attended = SelfAttention(qkv(pass, modulated(norm1, x, m[0], m[1])), heads, self_weights.Draw(pass));
  at::Tensor y = AddGated(x, self_output(pass, self_out(pass, attended)), m[2]);
  const at::Tensor seen = CrossAttention(q(pass, norm2(pass, y)), kv(pass, context), heads, cross_weights.Draw(pass));
  y = y + cross_output(pass, cross_out(pass, seen));
  const at::Tensor hidden = GeluDropout(up(pass, modulated(norm3, y, m[3], m[4])), hidden_dropout.Draw(pass));
  return AddGated(y, mlp_output(pass, down(pass, hidden)), m[5]);
}

// ---- A stage ------------------------------------------------------------------------------------

StageNet::StageNet(const Scope& root, const ModelShape& shape, size_t index)
    : shape_(shape.stages[index]),
      grid_(shape.token_grid),
      head_(shape.head),
      places_(shape.context == Context::kViews),
      lifting_unit_(root.Unit(StageName(index) + " lifting")),
      embedding_unit_(root.Unit(StageName(index) + " embedding")),
      head_unit_(root.Unit(StageName(index) + " head")),
      lifting_(lifting_unit_ / "stages" / StageName(index), shape.xray_dim, shape_.size),
      positions_((embedding_unit_ / "stages" / StageName(index) / "vit_backbone")
                     .Parameter("pos_embed", {1, grid_ * grid_ * grid_, shape_.dim}, {Kind::kNormal, 0.02})),
      norm_(head_unit_ / "stages" / StageName(index) / "vit_backbone.norm", shape_.dim),
      output_(head_unit_ / "stages" / StageName(index) / "vit_backbone.output_proj", shape_.dim,
              head_ == Head::kPatch ? (shape_.size / grid_) * (shape_.size / grid_) * (shape_.size / grid_) : 1,
              StartsAtZero()) {
  const Scope backbone = embedding_unit_ / "stages" / StageName(index) / "vit_backbone";
  int64_t channels = index > 0 ? 2 : 1, place = 0;
  for (const int64_t width : EmbeddingWidths(shape_, grid_)) {
    embedding_.convolutions.emplace_back(backbone / "voxel_embed" / std::to_string(place), 3, channels, width,
                                         kHalving);
    embedding_.norms.emplace_back(backbone / "voxel_embed" / std::to_string(place + 1), kGroups, width);
    channels = width;
    place += 3;
  }
  if (channels != shape_.dim)
    embedding_.convolutions.emplace_back(backbone / "voxel_embed" / std::to_string(place), 3, channels, shape_.dim,
                                         kThree);
  const int64_t previous_dim = shape.xray_dim / 2, condition_dim = 2 * shape.xray_dim;
  if (index > 0) previous_.emplace(embedding_unit_ / "prev_stage_projectors" / StageName(index), 1, previous_dim);
  for (int64_t i = 0; i < shape_.depth; ++i) {
    const std::string number = std::to_string(i);
    blocks_.emplace_back(
        root.Unit(StageName(index) + " block " + number) / "stages" / StageName(index) / "vit_backbone.blocks" / number,
        shape_, shape.xray_dim, condition_dim + (index > 0 ? previous_dim : 0), shape.dropout);
  }
}

at::Tensor StageNet::Prior(const Pass& pass, const at::Tensor& features) const {
  const auto run = [=, this](at::TensorList in) {
    const at::Tensor lifted = lifting_.Lift(pass, in[0]).squeeze(-1).unsqueeze(1);
    return at::upsample_trilinear3d(lifted, {shape_.size, shape_.size, shape_.size}, true);
  };
  return pass.Unit(lifting_unit_.unit(), run, {features});
}

at::Tensor StageNet::Tokens(const Pass& pass, const at::Tensor& volume) const {
  at::Tensor x = volume.to(pass[positions_].scalar_type());
  for (size_t i = 0; i < embedding_.convolutions.size(); ++i) {
    x = embedding_.convolutions[i](pass, x);
    if (i < embedding_.norms.size()) x = Silu(embedding_.norms[i](pass, x));
  }
  at::Tensor places = pass[positions_].squeeze(0);
  if (places_) places = places + PlaceCodes({grid_, grid_, grid_}, shape_.dim).to(places.options());
  return AddToEach(x.flatten(2).transpose(1, 2).contiguous(), places);
}

at::Tensor StageNet::Volume(const Pass& pass, const at::Tensor& tokens) const {
  const at::Tensor y = output_(pass, norm_(pass, tokens)).to(at::kFloat);
  const int64_t B = y.size(0), G = grid_, S = shape_.size, P = S / G;
  if (head_ == Head::kUpsample) return at::upsample_trilinear3d(y.view({B, 1, G, G, G}), {S, S, S}, true);
  return y.view({B, G, G, G, P, P, P}).permute({0, 1, 4, 2, 5, 3, 6}).reshape({B, 1, S, S, S});
}

at::Tensor StageNet::Forward(const Pass& pass, const NoisedVolume& volume, const EncodedXrays& xrays,
                             const at::Tensor& condition) const {
  at::Tensor x = volume.x + xrays.prior * kPriorShare, told = condition;
  if (previous_) {
    x = at::cat({x, volume.previous}, 1);
    const at::Tensor mean = MeanOverPixels(volume.previous.flatten(3));
    const auto project = [=, this](at::TensorList in) { return (*previous_)(pass, in[0]); };
    told = at::cat({told, pass.Unit(embedding_unit_.unit(), project, {mean.to(condition.scalar_type())})}, 1);
  }
  at::Tensor tokens =
      pass.Unit(embedding_unit_.unit(), [=, this](at::TensorList in) { return Tokens(pass, in[0]); }, {x});
  for (const Block& block : blocks_)
    tokens = pass.Unit(block.unit, [pass, &block](at::TensorList in) { return block(pass, in[0], in[1], in[2]); },
                       {tokens, xrays.context, told});
  return pass.Unit(head_unit_.unit(), [=, this](at::TensorList in) { return Volume(pass, in[0]); }, {tokens});
}

// ---- The cascade --------------------------------------------------------------------------------

CascadeModel::CascadeModel(const Scope& root, const ModelShape& shape, int64_t timesteps)
    : schedule_(timesteps),
      context_(shape.context),
      mean_(shape.mean),
      deviation_(shape.deviation),
      detail_(shape.detail),
      encoder_(root, shape.xray_dim) {
  for (size_t i = 0; i < shape.stages.size(); ++i) stages_.emplace_back(root, shape, i);
}

EncodedXrays CascadeModel::Encode(const Pass& pass, size_t stage, const at::Tensor& xrays) const {
  const at::Tensor views = encoder_.Features(pass, xrays), features = MeanOverViews(views);
  at::Tensor context = context_ == Context::kViews ? PixelsOfViews(views) : PixelRows(features);
  if (context_ == Context::kViews) {
    const at::Tensor places = PlaceCodes({views.size(1), views.size(3), views.size(4)}, views.size(2));
    context = AddToEach(context, places.to(context.options()));
  }
  return {features, context, stages_[stage].Prior(pass, features)};
}

at::Tensor CascadeModel::Velocity(const Pass& pass, size_t stage, const NoisedVolume& volume,
                                  const EncodedXrays& xrays) const {
  const at::Tensor time = pass.Upload(volume.t.to(at::kFloat) / static_cast<double>(schedule_.steps()));
  const at::Tensor condition = encoder_.Condition(pass, xrays.features, time);
  const at::Tensor said = stages_[stage].Forward(pass, volume, xrays, condition);
  return Expectation(stage, volume) + said * Uncertainty(stage, volume.t).to(said.device());
}

at::Tensor CascadeModel::Uncertainty(size_t stage, const at::Tensor& t) const {
  const NoiseLevel level(schedule_, t);
  const double deviation = Deviation(stage);
  return deviation / (level.signal.square() * (deviation * deviation) + level.noise.square()).sqrt();
}

at::Tensor CascadeModel::Expectation(size_t stage, const NoisedVolume& volume) const {
  const NoiseLevel level(schedule_, volume.t, volume.x.device());
  const double variance = Deviation(stage) * Deviation(stage);
  const at::Tensor total = level.signal.square() * variance + level.noise.square();
  const at::Tensor x = volume.x * (level.signal * (1 - variance));
  return (stage > 0 ? x - volume.previous : x - mean_) * (level.noise / total);
}

}  // namespace trainyard::hvc

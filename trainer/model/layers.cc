#include "trainer/model/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rsqrt.h>

#include <cmath>

#include "trainer/model/attention.h"
#include "trainer/model/convolve.h"
#include "trainer/model/device_ops.h"
#include "trainer/model/fused_ops.h"
#include "trainer/model/group_norm.h"
#include "trainer/model/product.h"
#include "trainer/model/rows.h"

namespace trainyard {
namespace {

using Kind = Initial::Kind;
constexpr ParameterOptions kNorm{.trainable = true, .dtype = DType::kFloat32};

Initial Bound(int64_t fan_in) { return {Kind::kUniform, 1 / std::sqrt(static_cast<double>(fan_in))}; }

}  // namespace

Linear::Linear(const Scope& s, int64_t inputs, int64_t outputs, const LinearOptions& options)
    : weight(s.Parameter("weight", {outputs, inputs}, options.weight_initial.value_or(Bound(inputs)),
                         options.parameters)) {
  if (options.bias)
    bias = s.Parameter("bias", {outputs}, options.bias_initial.value_or(Bound(inputs)), options.parameters);
}

at::Tensor Linear::operator()(const Pass& pass, const at::Tensor& x) const {
  return Product(x, pass[weight], bias ? std::optional(pass[*bias]) : std::nullopt);
}

LoRALinear::LoRALinear(const Scope& s, int64_t inputs, int64_t outputs, int64_t rank, double scale, bool bias)
    : base(s / "base_layer", inputs, outputs,
           {.bias = bias,
            .weight_initial = {},
            .bias_initial = {},
            .parameters = {.trainable = false, .dtype = DType::kBfloat16}}),
      a(s / "lora_A", inputs, rank, {.bias = false, .weight_initial = {}, .bias_initial = {}, .parameters = {}}),
      b(s / "lora_B", rank, outputs,
        {.bias = false, .weight_initial = Initial{Kind::kConstant, 0}, .bias_initial = {}, .parameters = {}}),
      scale(scale) {}

at::Tensor LoRALinear::operator()(const Pass& pass, const at::Tensor& x) const {
  const at::Tensor frozen = base(pass, x.to(at::kBFloat16)).to(x.scalar_type());
  return frozen + b(pass, a(pass, x)) * scale;
}

Embedding::Embedding(const Scope& s, int64_t count, int64_t width, double deviation)
    : weight(s.Parameter("weight", {count, width}, {Kind::kNormal, deviation})) {}

at::Tensor Embedding::operator()(const Pass& pass, const at::Tensor& indices) const {
  return at::embedding(pass[weight], indices);
}

LayerNorm::LayerNorm(const Scope& s, int64_t width, double eps)
    : weight(s.Parameter("weight", {width}, {Kind::kConstant, 1}, kNorm)),
      bias(s.Parameter("bias", {width}, {Kind::kConstant, 0}, kNorm)),
      width(width),
      eps(eps) {}

at::Tensor LayerNorm::operator()(const Pass& pass, const at::Tensor& x) const {
  return Norm(x, pass[weight], pass[bias], eps);
}

RMSNorm::RMSNorm(const Scope& s, int64_t width, double eps)
    : weight(s.Parameter("weight", {width}, {Kind::kConstant, 1}, kNorm)), eps(eps) {}

at::Tensor RMSNorm::operator()(const Pass& pass, const at::Tensor& x) const {
  const at::Tensor wide = x.to(at::kFloat);
  return ScaleRows(wide * at::rsqrt(wide.square().mean(-1, true) + eps), pass[weight]).to(x.scalar_type());
}

GroupNorm::GroupNorm(const Scope& s, int64_t groups, int64_t channels, double eps)
    : weight(s.Parameter("weight", {channels}, {Kind::kConstant, 1}, kNorm)),
      bias(s.Parameter("bias", {channels}, {Kind::kConstant, 0}, kNorm)),
      groups(groups),
      eps(eps) {}

at::Tensor GroupNorm::operator()(const Pass& pass, const at::Tensor& x) const {
  return NormOfGroups(x.to(at::kFloat), groups, pass[weight], pass[bias], eps).to(x.scalar_type());
}

BatchNorm::BatchNorm(const Scope& s, int64_t channels, double eps, double momentum)
    : weight(s.Parameter("weight", {channels}, {Kind::kConstant, 1}, kNorm)),
      bias(s.Parameter("bias", {channels}, {Kind::kConstant, 0}, kNorm)),
      mean(s.Buffer("running_mean", {channels}, 0, BufferPolicy::kMean)),
      variance(s.Buffer("running_var", {channels}, 1, BufferPolicy::kMean)),
      batches(s.Buffer("num_batches_tracked", {}, 0, BufferPolicy::kMean)),
      eps(eps),
      momentum(momentum) {}

at::Tensor BatchNorm::operator()(const Pass& pass, const at::Tensor& x) const {
  // The operation changes its running statistics in place: copies, which only an update commits.
  const at::Tensor running_mean = pass[mean].clone(), running_variance = pass[variance].clone();
  // The library cuts sums over rows by threads, but sums over the places of one channel it does not: where a sample is
  // one place, samples become places.
  const bool one_place = x.numel() == x.size(0) * x.size(1);
  at::Tensor y = x.to(at::kFloat);
  y = one_place ? y.flatten(1).t().unsqueeze(0) : y;
  y = at::batch_norm(y.contiguous(), pass[weight], pass[bias], running_mean, running_variance, pass.training(),
                     momentum, eps, false);
  if (one_place) y = y.squeeze(0).t().contiguous().view(x.sizes());
  if (pass.training()) {
    pass.Stage(mean, running_mean);
    pass.Stage(variance, running_variance);
    pass.Stage(batches, pass[batches] + 1);
  }
  return y.to(x.scalar_type());
}

Convolution::Convolution(const Scope& s, int dimensions, int64_t inputs, int64_t outputs, const ConvOptions& options)
    : stride(static_cast<size_t>(dimensions), options.stride),
      padding(static_cast<size_t>(dimensions), options.padding) {
  std::vector<int64_t> shape = {outputs, inputs};
  int64_t fan_in = inputs;
  for (int i = 0; i < dimensions; ++i) {
    shape.push_back(options.kernel);
    fan_in *= options.kernel;
  }
  weight = s.Parameter("weight", shape, Bound(fan_in));
  if (options.bias) bias = s.Parameter("bias", {outputs}, Bound(fan_in));
}

at::Tensor Convolution::operator()(const Pass& pass, const at::Tensor& x) const {
  return Convolve(x, pass[weight], bias ? std::optional(pass[*bias]) : std::nullopt, stride, padding);
}

at::Tensor Dropout::operator()(const Pass& pass, const at::Tensor& x) const {
  const DropoutDraw draw = Draw(pass);
  return draw.p > 0 ? x * KeepMask(x.sizes(), x.options(), draw) : x;
}

at::Tensor DropPath::operator()(const Pass& pass, const at::Tensor& x) const {
  if (!pass.training() || p == 0) return x;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = x.size(0);
  return x * KeepMask(sizes, x.options(), {pass.Fork(place), p});
}

at::Tensor CausalAttention(const at::Tensor& qkv, int64_t heads, const DropoutDraw& dropout) {
  const at::Tensor no_queries = at::empty({qkv.size(0), 0}, qkv.options().dtype(at::kInt));
  return PrefixAttention(qkv, no_queries, heads, dropout);
}

}  // namespace trainyard

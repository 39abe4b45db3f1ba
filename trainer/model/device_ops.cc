#include "trainer/model/device_ops.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trainer/model/device_rows.h"

namespace trainyard {
namespace {

at::Generator GeneratorOf(at::Device device, uint64_t key) {
  if (device.is_cpu() || device.is_meta()) return at::detail::createCPUGenerator(key);
  at::Generator generator =
      at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(key);
  return generator;
}

at::Tensor Dropped(const at::Tensor& x, const DropoutDraw& dropout) {
  return dropout.p > 0 ? x * KeepMask(x.sizes(), x.options(), dropout) : x;
}

// (B, rows, H E) -> (B, H, rows, E)
at::Tensor Heads(const at::Tensor& x, int64_t heads) {
  return x.unflatten(2, {heads, x.size(2) / heads}).transpose(1, 2);
}

// (B, 1, rows, R), true where a row sees a row: those of the context what comes before, each query its prefix and
// itself. `queries_only`: of the queries alone.
at::Tensor MaskOf(const at::Tensor& visible, int64_t context, bool queries_only) {
  const int64_t B = visible.size(0), Q = visible.size(1);
  const at::Tensor column = at::arange(context + Q, visible.options().dtype(at::kLong));
  const at::Tensor query = column.narrow(0, context, Q).unsqueeze(1);
  const at::Tensor queries = column.lt(visible.unsqueeze(2)).logical_or(column.eq(query));
  if (queries_only) return queries.unsqueeze(1);
  const at::Tensor rows = column.le(column.narrow(0, 0, context).unsqueeze(1));
  return at::cat({rows.unsqueeze(0).expand({B, context, context + Q}), queries}, 1).unsqueeze(1);
}

// q: (B, H, rows, E), k, v: (B, H, R, E); `mask`: what a row sees, where it does not see everything, or, `causal`, what
// comes before it and itself. -> (B, rows, H E)
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
                  bool causal, const DropoutDraw& dropout) {
  at::Tensor attended;
  if (dropout.p == 0) {
    attended = at::scaled_dot_product_attention(q, k, v, mask, 0, causal);
  } else {
    // The library's own dropout draws from the device's generator, which others draw from as well.
    at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * (1 / std::sqrt(static_cast<double>(q.size(3))));
    if (mask || causal) {
      const at::Tensor place = at::arange(q.size(2), q.options().dtype(at::kLong));
      const at::Tensor sees = mask ? *mask : place.le(place.unsqueeze(1));
      scores = scores.masked_fill(sees.logical_not(), -std::numeric_limits<float>::infinity());
    }
    attended = at::matmul(Dropped(at::softmax(scores, -1, at::kFloat).to(q.scalar_type()), dropout), v);
  }
  return attended.transpose(1, 2).flatten(2);
}

}  // namespace

at::Tensor KeepMask(at::IntArrayRef sizes, const at::TensorOptions& like, const DropoutDraw& dropout) {
  const at::Generator generator = GeneratorOf(like.device(), dropout.key);
  return at::empty(sizes, like).bernoulli_(1 - dropout.p, generator).div_(1 - dropout.p);
}

namespace device_ops {

at::Tensor PrefixAttention(const at::Tensor& qkv, const at::Tensor& visible, int64_t heads,
                           const DropoutDraw& dropout) {
  const std::vector<at::Tensor> parts = qkv.chunk(3, 2);
  const bool causal = visible.size(1) == 0;
  return Attend(Heads(parts[0], heads), Heads(parts[1], heads), Heads(parts[2], heads),
                causal ? std::nullopt : std::optional(MaskOf(visible, qkv.size(1) - visible.size(1), false)), causal,
                dropout);
}

at::Tensor PrefixAttentionOfQueries(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible, int64_t heads,
                                    const DropoutDraw& dropout) {
  const std::vector<at::Tensor> parts = kv.chunk(2, 2);
  return Attend(Heads(q, heads), Heads(parts[0], heads), Heads(parts[1], heads),
                MaskOf(visible, kv.size(1) - q.size(1), true), false, dropout);
}

at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, const DropoutDraw& dropout) {
  const std::vector<at::Tensor> parts = qkv.chunk(3, 2);
  return Attend(Heads(parts[0], heads), Heads(parts[1], heads), Heads(parts[2], heads), std::nullopt, false, dropout);
}

at::Tensor CrossAttention(const at::Tensor& q, const at::Tensor& kv, int64_t heads, const DropoutDraw& dropout) {
  const std::vector<at::Tensor> parts = kv.chunk(2, 2);
  return Attend(Heads(q, heads), Heads(parts[0], heads), Heads(parts[1], heads), std::nullopt, false, dropout);
}

at::Tensor DropoutAddNorm(const at::Tensor& x, const at::Tensor& r, const at::Tensor& gamma, const at::Tensor& beta,
                          const DropoutDraw& dropout) {
  return Norm(x + Dropped(r, dropout), gamma, beta, 1e-5);
}

// A device's kernels want one type; weights and statistics are float32.
at::Tensor Norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps) {
  if (gamma.dim() == 2) {
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
    shape.front() = gamma.size(0);
    shape.back() = gamma.size(1);
    const at::Tensor y = at::layer_norm(x.to(at::kFloat), {gamma.size(1)}, {}, {}, eps);
    return (y * gamma.view(shape) + beta.view(shape)).to(x.scalar_type());
  }
  if (IsNormWidth(gamma.size(0))) return NormOfRows(x, gamma, beta, eps);
  return at::layer_norm(x.to(at::kFloat), gamma.sizes(), gamma, beta, eps).to(x.scalar_type());
}

at::Tensor GeluDropout(const at::Tensor& x, const DropoutDraw& dropout) { return Dropped(at::gelu(x), dropout); }
at::Tensor GeluTanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  return bias ? ProductOfRows(x, weight, *bias) : at::linear(x, weight);
}

at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding) {
  const std::vector<int64_t> ones(stride.size(), 1), zeros(stride.size(), 0);
  return at::convolution(x, weight, bias, stride, padding, ones, false, zeros, 1);
}

at::Tensor SampleMoments(const at::Tensor& x) {
  const at::Tensor places = x.flatten(2);
  return at::cat({places.mean(2), places.var(2, /*unbiased=*/false)}, 1);
}

at::Tensor MomentsTogether(const at::Tensor& rows) {
  const int64_t C = (rows.size(1) - 1) / 2;
  const at::Tensor wide = rows.to(at::kDouble), weight = wide.narrow(1, 0, 1).detach();
  const at::Tensor share = weight / weight.sum().clamp_min(1);
  const at::Tensor means = wide.narrow(1, 1, C), variances = wide.narrow(1, 1 + C, C);
  const at::Tensor mean = (share * means).sum(0);
  const at::Tensor variance = (share * (variances + (means - mean).square())).sum(0);
  return at::stack({mean, variance}).to(at::kFloat);
}

at::Tensor Normalise(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& weight, const at::Tensor& bias,
                     double eps) {
  std::vector<int64_t> channels(static_cast<size_t>(x.dim()), 1);
  channels[1] = x.size(1);
  const at::Tensor slope = weight * at::rsqrt(moments[1] + eps);
  return (x - moments[0].view(channels)) * slope.view(channels) + bias.view(channels);
}

}  // namespace device_ops
}  // namespace trainyard

#include "trainer/model/convolve.h"

#include <ATen/Version.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <vector>

#include "trainer/model/device_ops.h"
#include "trainer/model/product.h"
#include "trainer/model/stem.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Geometry {
  std::vector<int64_t> stride, padding, ones, zeros;
  Geometry(at::IntArrayRef s, at::IntArrayRef p)
      : stride(s.vec()), padding(p.vec()), ones(s.size(), 1), zeros(s.size(), 0) {}
  at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) const {
    return at::convolution(x, weight, bias, stride, padding, ones, false, zeros, 1);
  }
  // Of x and the weight, as `wanted` says; the other is undefined.
  std::array<at::Tensor, 2> Gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                      std::array<bool, 2> wanted) const {
    const auto [dx, dw, db] = at::convolution_backward(dy, x, weight, {}, stride, padding, ones, false, zeros, 1,
                                                       {wanted[0], wanted[1], false});
    return {dx, dw};
  }
};

at::Tensor Wide(const at::Tensor& values) { return values.to(at::kFloat); }

// dy: (B, C, ...) -> (C)
at::Tensor SumOfChannels(const at::Tensor& dy) {
  const at::Tensor places = dy.flatten(2);
  at::Tensor sums = at::empty({dy.size(1)}, dy.options());
  ParallelBlocks(dy.size(1), 1, [&](int64_t channel, int64_t) {
    sums.select(0, channel).copy_(places.select(1, channel).sum(1).sum());
  });
  return sums;
}

// Of few places: a product with what each of them has seen of x, once for all samples. The library goes over the whole
// weight for each sample.
at::Tensor GradientOfFewPlaces(const Geometry& geometry, const at::Tensor& dy, const at::Tensor& x,
                               const at::Tensor& weight) {
  constexpr int64_t kOutputs = 64;  // of a task
  std::vector<int64_t> padding;     // of the last axis first, before and behind
  for (auto p = geometry.padding.rbegin(); p != geometry.padding.rend(); ++p) padding.insert(padding.end(), 2, *p);
  at::Tensor seen = at::constant_pad_nd(Wide(x), padding);
  const int64_t axes = x.dim() - 2;
  for (int64_t i = 0; i < axes; ++i)
    seen = seen.unfold(2 + i, weight.size(2 + i), geometry.stride[static_cast<size_t>(i)]);
  // (B, inputs, places..., kernel...) -> (B places, inputs kernel)
  const at::Tensor rows = seen.flatten(2, 1 + axes).transpose(1, 2).flatten(2).flatten(0, 1).contiguous();
  const at::Tensor of_dy = Wide(dy).flatten(2).transpose(1, 2).flatten(0, 1).contiguous();
  at::Tensor dw = at::empty({weight.size(0), rows.size(1)}, rows.options());
  ParallelBlocks(weight.size(0), kOutputs, [&](int64_t begin, int64_t size) {
    at::Tensor part = dw.narrow(0, begin, size);
    at::mm_out(part, of_dy.narrow(1, begin, size).t(), rows);
  });
  return dw.view(weight.sizes()).to(weight.scalar_type());
}

// A sum over blocks of samples, each computed by one thread: so many that the threads of a rank have equal parts of a
// usual batch, and no more, since each is as large as the weight. In float32: oneDNN's gradient of a 16-bit weight has
// values that nobody wrote in many shapes (with avx512_bf16 and with AMX; 3 x 3 x 3 over 2 x 2 x 1 places is one), and
// with AMX some end the process. (A stem's kernels take the 16-bit values themselves, and sum in float32.)
at::Tensor WeightGradient(const Geometry& geometry, const at::Tensor& dy, const at::Tensor& x,
                          const at::Tensor& weight) {
  constexpr int64_t kLeast = 4, kMostParts = 8;
  const int64_t samples = x.size(0), size_of_part = std::max(kLeast, (samples + kMostParts - 1) / kMostParts);
  constexpr int64_t kFewPlaces = 256;
  if (dy.numel() / dy.size(1) <= kFewPlaces) return GradientOfFewPlaces(geometry, dy, x, weight);
  const bool is_stem = IsStem(x, weight, geometry.stride, geometry.padding);
  const at::Tensor wide = weight.to(at::kFloat);
  std::vector<at::Tensor> parts(static_cast<size_t>((samples + size_of_part - 1) / size_of_part));
  ParallelBlocks(samples, size_of_part, [&](int64_t begin, int64_t size) {
    const at::Tensor of_dy = dy.narrow(0, begin, size), of_x = x.narrow(0, begin, size);
    parts[static_cast<size_t>(begin / size_of_part)] =
        is_stem ? StemWeightGradient(of_dy, of_x, geometry.stride[0])
                : geometry.Gradients(Wide(of_dy), Wide(of_x), wide, {false, true})[1];
  });
  at::Tensor sum = parts.empty() ? at::zeros_like(wide) : parts[0];
  for (size_t i = 1; i < parts.size(); ++i) sum.add_(parts[i]);
  return sum.to(weight.scalar_type());
}

// Whether oneDNN's convolution of 16-bit values may put into y what nobody wrote. With AMX it did in 1,358 of 40,802
// random shapes, compared with float32 over memory that held NaN: only where the last size of y is one, or where the
// kernel is wider than the volume. The gradient of x was right in all of them.
bool IsUnsafeIn16Bits(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding) {
  if (x.scalar_type() == at::kFloat) return false;
  for (int64_t i = 2; i < x.dim(); ++i) {
    if (weight.size(i) > x.size(i)) return true;
  }
  return x.size(-1) + 2 * padding.back() - weight.size(-1) < stride.back();
}

// Whether all of it is computed in float32 and rounded. oneDNN's 16-bit convolutions want AVX-512, for float16 more;
// where they are not, LibTorch's own stand in, which add up the gradient of x in 16 bits: 2 % off where rounding alone
// is 0.4, and five times slower.
bool IsWide(const at::Tensor& x) {
  static const bool avx512 = at::get_cpu_capability() == "AVX512";
  return x.scalar_type() == at::kHalf || (x.scalar_type() == at::kBFloat16 && !avx512);
}

struct ConvolveFunction : Function<ConvolveFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->saved_data["stride"] = stride.vec();
    ctx->saved_data["padding"] = padding.vec();
    const Geometry geometry(stride, padding);
    if (!bias && IsStem(x, weight, stride, padding)) return ConvolveStem(x, weight, stride[0]);
    if (!IsWide(x) && !IsUnsafeIn16Bits(x, weight, stride, padding)) return geometry.Convolve(x, weight, bias);
    return geometry.Convolve(Wide(x), Wide(weight), bias ? std::optional(Wide(*bias)) : std::nullopt)
        .to(x.scalar_type());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = grads[0].contiguous();
    const Geometry geometry(ctx->saved_data["stride"].toIntVector(), ctx->saved_data["padding"].toIntVector());
    at::Tensor dx, dw, db;
    if (ctx->needs_input_grad(0) && IsWide(x)) {
      dx = geometry.Gradients(Wide(dy), Wide(x), Wide(weight), {true, false})[0].to(x.scalar_type());
    } else if (ctx->needs_input_grad(0)) {
      dx = geometry.Gradients(dy, x, weight, {true, false})[0];
    }
    if (ctx->needs_input_grad(1)) dw = WeightGradient(geometry, dy, x, weight);
    // An absent bias is no input: it has no place among those that may need a gradient.
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) db = SumOfChannels(dy);
    return {dx, dw, db, {}, {}};
  }
};

bool IsProduct(const at::Tensor& weight, at::IntArrayRef padding) {
  const auto is_one = [](int64_t size) { return size == 1; };
  return std::ranges::all_of(weight.sizes().slice(2), is_one) &&
         std::ranges::all_of(padding, [](int64_t size) { return size == 0; });
}

// A kernel of one place: a product for each. Not the library's convolution, which cuts it for its threads (seen of
// oneDNN's with AVX-512).
at::Tensor MultiplyPlaces(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                          at::IntArrayRef stride) {
  at::Tensor places = x;
  for (size_t i = 0; i < stride.size(); ++i) {
    if (stride[i] > 1) places = places.slice(static_cast<int64_t>(i) + 2, 0, std::nullopt, stride[i]);
  }
  const at::Tensor y = Product(places.movedim(1, -1).contiguous(), weight.flatten(1), bias);
  return y.movedim(-1, 1).contiguous();
}

}  // namespace

at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding) {
  if (!x.is_cpu()) return device_ops::Convolve(x, weight, bias, stride, padding);
  if (IsProduct(weight, padding)) return MultiplyPlaces(x, weight, bias, stride);
  return ConvolveFunction::apply(x, weight, bias, stride, padding);
}

}  // namespace trainyard

#include "trainer/model/product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "trainer/model/parallel_for.h"
#include "trainer/model/rows.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Rows or columns of a weight whose gradients one task computes: wide enough for the library's kernels.
constexpr int64_t kWidthPerTask = 64;
constexpr int64_t kRowsPerTask = 4096;

// dy^T x.  dy: (rows, outputs), x: (rows, inputs) -> (outputs, inputs)
at::Tensor WeightGradient(const at::Tensor& dy, const at::Tensor& x) {
  at::Tensor gradient = at::empty({dy.size(1), x.size(1)}, dy.options());
  const bool by_outputs = dy.size(1) >= x.size(1);
  ParallelBlocks(std::max(dy.size(1), x.size(1)), kWidthPerTask, [&](int64_t begin, int64_t size) {
    at::Tensor part = gradient.narrow(by_outputs ? 0 : 1, begin, size);
    by_outputs ? at::mm_out(part, dy.narrow(1, begin, size).t(), x)
               : at::mm_out(part, dy.t(), x.narrow(1, begin, size));
  });
  return gradient;
}

// x: (rows, n), w: (n, 1) -> x w, in x's type. Not the library's product: it cuts the rows for its threads, and what is
// left over at a cut is computed in another order.
at::Tensor TimesOneColumn(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor row = w.t().to(at::kFloat);
  at::Tensor y = at::empty({x.size(0), 1}, x.options());
  ParallelBlocks(x.size(0), kRowsPerTask, [&](int64_t begin, int64_t size) {
    y.narrow(0, begin, size).copy_((x.narrow(0, begin, size).to(at::kFloat) * row).sum(1, true));
  });
  return y;
}

// x: (..., inputs), weight: (outputs, inputs)
at::Tensor Forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (weight.size(0) != 1) return at::linear(x, weight, bias);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  const at::Tensor y = TimesOneColumn(x.reshape({-1, weight.size(1)}), weight.t()).view(shape);
  return bias ? y + *bias : y;
}

struct ProductFunction : Function<ProductFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    return Forward(x, weight, bias);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = grads[0].reshape({-1, weight.size(0)});
    at::Tensor dx, dw, db;
    if (ctx->needs_input_grad(0))
      dx = (weight.size(1) == 1 ? TimesOneColumn(dy, weight) : dy.mm(weight)).view(x.sizes());
    if (ctx->needs_input_grad(1)) dw = WeightGradient(dy, x.reshape({-1, weight.size(1)}));
    // An absent bias is no input: it has no place among those that may need a gradient.
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) db = SumRows(dy);
    return {dx, dw, db};
  }
};

}  // namespace

at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  return ProductFunction::apply(x, weight, bias);
}

}  // namespace trainyard

#include "trainer/model/product.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Rows or columns of a weight whose gradients one task computes: wide enough for the library's kernels.
constexpr int64_t kWidthPerTask = 64;

// dy^T x.  dy: (rows, outputs), x: (rows, inputs) -> (outputs, inputs)
at::Tensor WeightGradient(const at::Tensor& dy, const at::Tensor& x) {
  at::Tensor gradient = at::empty({dy.size(1), x.size(1)}, dy.options());
  const bool by_outputs = dy.size(1) >= x.size(1);
  const int64_t width = std::max(dy.size(1), x.size(1)), tasks = (width + kWidthPerTask - 1) / kWidthPerTask;
  ParallelFor(0, tasks, 1, [&](int64_t first, int64_t last) {
    const at::NoGradGuard no_grad;  // a property of the thread
    const OneLibraryThread one_thread;
    for (int64_t task = first; task < last; ++task) {
      const int64_t begin = task * kWidthPerTask, size = std::min(kWidthPerTask, width - begin);
      at::Tensor part = gradient.narrow(by_outputs ? 0 : 1, begin, size);
      by_outputs ? at::mm_out(part, dy.narrow(1, begin, size).t(), x)
                 : at::mm_out(part, dy.t(), x.narrow(1, begin, size));
    }
  });
  return gradient;
}

struct ProductFunction : Function<ProductFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    return at::linear(x, weight, bias);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = grads[0].reshape({-1, weight.size(0)});
    at::Tensor dx, dw, db;
    if (ctx->needs_input_grad(0)) dx = dy.mm(weight).view(x.sizes());
    if (ctx->needs_input_grad(1)) dw = WeightGradient(dy, x.reshape({-1, weight.size(1)}));
    // An absent bias is no input: it has no place among those that may need a gradient.
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) db = dy.sum(0);
    return {dx, dw, db};
  }
};

}  // namespace

at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  return ProductFunction::apply(x, weight, bias);
}

}  // namespace trainyard

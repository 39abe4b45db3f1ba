#include "trainer/model/rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kColumnsPerTask = 64;  // a few cache lines of each row

struct ScaleRowsFunction : Function<ScaleRowsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w) {
    ctx->save_for_backward({x, w});
    return x * w;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], &dy = grads[0];
    at::Tensor dx, dw;
    if (ctx->needs_input_grad(0)) dx = dy * w;
    if (ctx->needs_input_grad(1)) dw = SumRows((dy * x).reshape({-1, w.numel()}));
    return {dx, dw};
  }
};

struct AddToEachFunction : Function<AddToEachFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& r) {
    ctx->saved_data["shape"] = r.sizes().vec();
    return x + r;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor& dy = grads[0];
    const std::vector<int64_t> shape = ctx->saved_data["shape"].toIntVector();
    at::Tensor dr;
    if (ctx->needs_input_grad(1)) dr = SumRows(dy.reshape({-1, c10::multiply_integers(shape)})).view(shape);
    return {dy, dr};
  }
};

}  // namespace

at::Tensor SumRows(const at::Tensor& x) {
  if (!x.is_cpu()) return x.sum(0);
  at::Tensor sums = at::empty({x.size(1)}, x.options());
  ParallelBlocks(x.size(1), kColumnsPerTask, [&](int64_t begin, int64_t size) {
    at::Tensor part = sums.narrow(0, begin, size);
    at::sum_out(part, x.narrow(1, begin, size), 0);
  });
  return sums;
}

at::Tensor ScaleRows(const at::Tensor& x, const at::Tensor& w) { return ScaleRowsFunction::apply(x, w); }
at::Tensor AddToEach(const at::Tensor& x, const at::Tensor& r) { return AddToEachFunction::apply(x, r); }

}  // namespace trainyard

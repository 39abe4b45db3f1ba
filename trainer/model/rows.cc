#include "trainer/model/rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "trainer/threads/parallel_for.h"

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

// x: (B, rows, columns) -> (B, columns)
at::Tensor SumRowsOfSamples(const at::Tensor& x) {
  if (!x.is_cpu()) return x.sum(1);
  at::Tensor sums = at::empty({x.size(0), x.size(2)}, x.options());
  for (int64_t b = 0; b < x.size(0); ++b) sums.select(0, b).copy_(SumRows(x.select(0, b)));
  return sums;
}

struct AddGatedFunction : Function<AddGatedFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& y, const at::Tensor& gate) {
    ctx->save_for_backward({y, gate});
    return at::addcmul(x, y, gate.unsqueeze(1));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &y = saved[0], &gate = saved[1], &dout = grads[0];
    at::Tensor dy, dgate;
    if (ctx->needs_input_grad(1)) dy = dout * gate.unsqueeze(1);
    if (ctx->needs_input_grad(2)) dgate = SumRowsOfSamples(dout * y);
    return {dout, dy, dgate};
  }
};

// Elements that one thread adds up: where a sum is cut does not depend on the threads.
constexpr int64_t kElementsPerPart = 1 << 15;

struct SumOfEachFunction : Function<SumOfEachFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->saved_data["sizes"] = x.sizes().vec();
    const at::Tensor flat = x.reshape({x.size(0), -1});
    const int64_t elements = flat.size(1), parts = (elements + kElementsPerPart - 1) / kElementsPerPart;
    at::Tensor sums = at::empty({flat.size(0), parts}, x.options());
    ParallelBlocks(flat.size(0) * parts, 1, [&](int64_t i, int64_t) {
      const int64_t b = i / parts, begin = i % parts * kElementsPerPart;
      const int64_t size = std::min(kElementsPerPart, elements - begin);
      sums.select(0, b).select(0, i % parts).copy_(flat.select(0, b).narrow(0, begin, size).sum());
    });
    at::Tensor totals = at::empty({flat.size(0)}, x.options());
    ParallelBlocks(flat.size(0), 1, [&](int64_t b, int64_t) { totals.select(0, b).copy_(sums.select(0, b).sum()); });
    return totals;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    std::vector<int64_t> ones(sizes.size(), 1);
    ones[0] = sizes[0];
    return {grads[0].view(ones).expand(sizes)};
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
at::Tensor AddGated(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gate) {
  return AddGatedFunction::apply(x, y, gate);
}
at::Tensor SumOfEach(const at::Tensor& x) { return x.is_cpu() ? SumOfEachFunction::apply(x) : x.flatten(1).sum(1); }

}  // namespace trainyard

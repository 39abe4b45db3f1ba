#include "trainer/model/elementwise.h"

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kValuesPerTask = 1 << 14;  // whole vectors of any width

// run(first, number) for blocks of rows of so many values.
template <class Run>
void OverBlocks(int64_t rows, int64_t width, const Run& run) {
  ParallelBlocks(rows, std::max<int64_t>(kValuesPerTask / std::max<int64_t>(width, 1), 1), run);
}

at::Tensor Flat(const at::Tensor& x) { return x.contiguous().view({x.numel()}); }
at::Tensor Rows(const at::Tensor& x) { return x.contiguous().view({-1, x.size(-1)}); }

struct SiluFunction : Function<SiluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const at::Tensor x = Flat(given), y = at::empty_like(x);
    OverBlocks(x.numel(), 1, [&](int64_t begin, int64_t size) {
      at::Tensor part = y.narrow(0, begin, size);
      at::silu_out(part, x.narrow(0, begin, size));
    });
    ctx->save_for_backward({x});
    return y.view(given.sizes());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0], dy = Flat(grads[0]), dx = at::empty_like(x);
    OverBlocks(x.numel(), 1, [&](int64_t begin, int64_t size) {
      at::Tensor part = dx.narrow(0, begin, size);
      at::silu_backward_out(part, dy.narrow(0, begin, size), x.narrow(0, begin, size));
    });
    return {dx.view(grads[0].sizes())};
  }
};

struct SigmoidFunction : Function<SigmoidFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const at::Tensor x = Flat(given), y = at::empty_like(x);
    OverBlocks(x.numel(), 1, [&](int64_t begin, int64_t size) {
      at::Tensor part = y.narrow(0, begin, size);
      at::sigmoid_out(part, x.narrow(0, begin, size));
    });
    ctx->save_for_backward({y});
    return y.view(given.sizes());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor y = ctx->get_saved_variables()[0], dy = Flat(grads[0]), dx = at::empty_like(y);
    OverBlocks(y.numel(), 1, [&](int64_t begin, int64_t size) {
      at::Tensor part = dx.narrow(0, begin, size);
      at::sigmoid_backward_out(part, dy.narrow(0, begin, size), y.narrow(0, begin, size));
    });
    return {dx.view(grads[0].sizes())};
  }
};

struct SoftmaxFunction : Function<SoftmaxFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const at::Tensor x = Rows(given), y = at::empty_like(x);
    OverBlocks(x.size(0), x.size(1), [&](int64_t begin, int64_t size) {
      at::Tensor part = y.narrow(0, begin, size);
      at::_softmax_out(part, x.narrow(0, begin, size), 1, false);
    });
    ctx->save_for_backward({y});
    return y.view(given.sizes());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor y = ctx->get_saved_variables()[0], dy = Rows(grads[0]), dx = at::empty_like(y);
    OverBlocks(y.size(0), y.size(1), [&](int64_t begin, int64_t size) {
      at::Tensor part = dx.narrow(0, begin, size);
      at::_softmax_backward_data_out(part, dy.narrow(0, begin, size), y.narrow(0, begin, size), 1, y.scalar_type());
    });
    return {dx.view(grads[0].sizes())};
  }
};

}  // namespace

at::Tensor Silu(const at::Tensor& x) { return x.is_cpu() ? SiluFunction::apply(x) : at::silu(x); }
at::Tensor Sigmoid(const at::Tensor& x) { return x.is_cpu() ? SigmoidFunction::apply(x) : at::sigmoid(x); }
at::Tensor Softmax(const at::Tensor& x) { return x.is_cpu() ? SoftmaxFunction::apply(x) : at::softmax(x, -1); }

}  // namespace trainyard

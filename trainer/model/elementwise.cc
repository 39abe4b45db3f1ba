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
#include <array>

#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kValuesPerTask = 1 << 14;  // whole vectors of any width

// y = compute(parts of `given`) for blocks of rows, each of some thousand values, of tensors of one shape.
template <size_t N, class Compute>
at::Tensor ByBlocks(const std::array<at::Tensor, N>& given, const Compute& compute) {
  at::Tensor y = at::empty_like(given[0]);
  const int64_t rows = y.size(0), width = y.numel() / std::max<int64_t>(rows, 1);
  ParallelBlocks(rows, std::max<int64_t>(kValuesPerTask / std::max<int64_t>(width, 1), 1),
                 [&](int64_t begin, int64_t size) {
                   at::Tensor part = y.narrow(0, begin, size);
                   std::array<at::Tensor, N> parts;
                   for (size_t i = 0; i < N; ++i) parts[i] = given[i].narrow(0, begin, size);
                   compute(part, parts);
                 });
  return y;
}

at::Tensor Flat(const at::Tensor& x) { return x.contiguous().view({x.numel()}); }
at::Tensor Rows(const at::Tensor& x) { return x.contiguous().view({-1, x.size(-1)}); }

struct SiluFunction : Function<SiluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const at::Tensor x = Flat(given);
    ctx->save_for_backward({x});
    return ByBlocks<1>({x}, [](at::Tensor& y, const auto& of) { at::silu_out(y, of[0]); }).view(given.sizes());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const auto gradient = [](at::Tensor& dx, const auto& of) { at::silu_backward_out(dx, of[0], of[1]); };
    return {ByBlocks<2>({Flat(grads[0]), x}, gradient).view(grads[0].sizes())};
  }
};

struct SigmoidFunction : Function<SigmoidFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const at::Tensor y = ByBlocks<1>({Flat(given)}, [](at::Tensor& to, const auto& of) { at::sigmoid_out(to, of[0]); });
    ctx->save_for_backward({y});
    return y.view(given.sizes());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor y = ctx->get_saved_variables()[0];
    const auto gradient = [](at::Tensor& dx, const auto& of) { at::sigmoid_backward_out(dx, of[0], of[1]); };
    return {ByBlocks<2>({Flat(grads[0]), y}, gradient).view(grads[0].sizes())};
  }
};

struct SoftmaxFunction : Function<SoftmaxFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const at::Tensor y =
        ByBlocks<1>({Rows(given)}, [](at::Tensor& to, const auto& of) { at::_softmax_out(to, of[0], 1, false); });
    ctx->save_for_backward({y});
    return y.view(given.sizes());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor y = ctx->get_saved_variables()[0];
    const auto gradient = [](at::Tensor& dx, const auto& of) {
      at::_softmax_backward_data_out(dx, of[0], of[1], 1, of[1].scalar_type());
    };
    return {ByBlocks<2>({Rows(grads[0]), y}, gradient).view(grads[0].sizes())};
  }
};

}  // namespace

at::Tensor Silu(const at::Tensor& x) { return x.is_cpu() ? SiluFunction::apply(x) : at::silu(x); }
at::Tensor Sigmoid(const at::Tensor& x) { return x.is_cpu() ? SigmoidFunction::apply(x) : at::sigmoid(x); }
at::Tensor Softmax(const at::Tensor& x) { return x.is_cpu() ? SoftmaxFunction::apply(x) : at::softmax(x, -1); }

}  // namespace trainyard

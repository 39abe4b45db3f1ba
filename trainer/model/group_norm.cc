#include "trainer/model/group_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/model/parallel_for.h"
#include "trainer/model/rows.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

int64_t PlacesOf(const at::Tensor& x) { return x.numel() / std::max<int64_t>(x.size(0) * x.size(1), 1); }

struct GroupNormFunction : Function<GroupNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, int64_t groups, const at::Tensor& weight,
                            const at::Tensor& bias, double eps) {
    const at::Tensor x = given.contiguous(), y = at::empty_like(x);
    const at::Tensor mean = at::empty({x.size(0), groups}, x.options()), rate = at::empty_like(mean);
    ParallelBlocks(x.size(0), 1, [&](int64_t b, int64_t) {
      const auto [part, of, reciprocal] =
          at::native_group_norm(x.narrow(0, b, 1), weight, bias, 1, x.size(1), PlacesOf(x), groups, eps);
      y.select(0, b).copy_(part[0]);
      mean.select(0, b).copy_(of[0]);
      rate.select(0, b).copy_(reciprocal[0]);
    });
    ctx->save_for_backward({x, weight, mean, rate});
    ctx->saved_data["groups"] = groups;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &rate = saved[3], dy = grads[0].contiguous();
    const int64_t B = x.size(0), C = x.size(1), groups = ctx->saved_data["groups"].toInt();
    const at::Tensor dx = at::empty_like(x), dw = at::empty({B, C}, x.options()), db = at::empty_like(dw);
    ParallelBlocks(B, 1, [&](int64_t b, int64_t) {
      const auto [part, of_weight, of_bias] = at::native_group_norm_backward(
          dy.narrow(0, b, 1), x.narrow(0, b, 1), mean.narrow(0, b, 1), rate.narrow(0, b, 1), weight, 1, C, PlacesOf(x),
          groups, {true, true, true});
      dx.select(0, b).copy_(part[0]);
      dw.select(0, b).copy_(of_weight);
      db.select(0, b).copy_(of_bias);
    });
    return {dx, {}, SumRows(dw), SumRows(db), {}};
  }
};

}  // namespace

at::Tensor NormOfGroups(const at::Tensor& x, int64_t groups, const at::Tensor& weight, const at::Tensor& bias,
                        double eps) {
  return x.is_cpu() ? GroupNormFunction::apply(x, groups, weight, bias, eps)
                    : at::group_norm(x, groups, weight, bias, eps);
}

}  // namespace trainyard

#include "trainer/model/group_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/model/rows.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

int64_t PlacesOf(const at::Tensor& x) { return x.numel() / std::max<int64_t>(x.size(0) * x.size(1), 1); }

// A group of a sample's channels.
struct Group {
  int64_t sample, index, width;
  // x: (B, C, ...) -> (1, width, ...), and of (C) the same channels.
  at::Tensor Of(const at::Tensor& x) const { return x.narrow(0, sample, 1).narrow(1, index * width, width); }
  at::Tensor OfChannels(const at::Tensor& x) const { return x.narrow(0, index * width, width); }
};

template <class Run>
void ForGroups(int64_t samples, int64_t groups, int64_t width, const Run& run) {
  ParallelBlocks(samples * groups, 1, [&](int64_t i, int64_t) { run(Group{i / groups, i % groups, width}); });
}

struct GroupNormFunction : Function<GroupNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, int64_t groups, const at::Tensor& weight,
                            const at::Tensor& bias, double eps) {
    const at::Tensor x = given.contiguous();
    at::Tensor y = at::empty_like(x);
    const at::Tensor mean = at::empty({x.size(0), groups}, x.options()), rate = at::empty_like(mean);
    ForGroups(x.size(0), groups, x.size(1) / groups, [&](const Group& g) {
      const auto [part, of, reciprocal] =
          at::native_group_norm(g.Of(x), g.OfChannels(weight), g.OfChannels(bias), 1, g.width, PlacesOf(x), 1, eps);
      g.Of(y).copy_(part);
      mean.select(0, g.sample).narrow(0, g.index, 1).copy_(of[0]);
      rate.select(0, g.sample).narrow(0, g.index, 1).copy_(reciprocal[0]);
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
    ForGroups(B, groups, C / groups, [&](const Group& g) {
      const auto of_group = [&g](const at::Tensor& t) { return t.narrow(0, g.sample, 1).narrow(1, g.index, 1); };
      const auto [part, of_weight, of_bias] =
          at::native_group_norm_backward(g.Of(dy), g.Of(x), of_group(mean), of_group(rate), g.OfChannels(weight), 1,
                                         g.width, PlacesOf(x), 1, {true, true, true});
      g.Of(dx).copy_(part);
      g.OfChannels(dw.select(0, g.sample)).copy_(of_weight);
      g.OfChannels(db.select(0, g.sample)).copy_(of_bias);
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

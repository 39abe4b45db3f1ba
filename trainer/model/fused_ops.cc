#include "trainer/model/fused_ops.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/kernels/kernels.h"
#include "trainer/model/device_ops.h"
#include "trainer/model/with_kernels.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using kernels::GeluForm;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Rows that one task of a parallel loop works on; the cut does not depend on the number of threads,
// so neither do the sums over rows.
constexpr int64_t kRowsPerTask = 512;

// Rows, of which each group of as many has a scale and a shift of its own: one group, or a sample each.
struct NormRows {
  int64_t groups, rows_of_each, D;

  NormRows(int64_t elements, const at::Tensor& gamma)
      : groups(gamma.numel() / gamma.size(-1)),
        rows_of_each(groups > 0 ? elements / gamma.numel() : 0),
        D(gamma.size(-1)) {}
  int64_t rows() const { return groups * rows_of_each; }
  int64_t tasks_of_each() const { return (rows_of_each + kRowsPerTask - 1) / kRowsPerTask; }

  // Calls run(task, group, first row, last row) for each task; a task is of one group.
  template <class Run>
  void OverTasks(Run run) const {
    const int64_t each = tasks_of_each();
    ParallelFor(0, groups * each, 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        const int64_t group = task / each, begin = task % each * kRowsPerTask;
        const int64_t base = group * rows_of_each;
        run(task, group, base + begin, base + std::min(rows_of_each, begin + kRowsPerTask));
      }
    });
  }
};

template <class T>
kernels::NormArgs<T> NormArgsOf(const at::Tensor& gamma, kernels::Dropout dropout, const at::Tensor& z,
                                const at::Tensor& mean, const at::Tensor& rstd) {
  kernels::NormArgs<T> a{};
  a.D = gamma.size(-1);
  a.dropout = dropout;
  a.gamma = gamma.data_ptr<float>();
  a.z = Data<T>(z);
  a.mean = mean.data_ptr<float>();
  a.rstd = rstd.data_ptr<float>();
  return a;
}

struct NormFunction : Function<NormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& r,
                            const at::Tensor& gamma, const at::Tensor& beta, double eps, int64_t key, double p) {
    const NormRows rows(x.numel(), gamma);
    at::Tensor y = at::empty_like(x);
    const at::Tensor z = r ? at::empty_like(x) : x;
    at::Tensor mean = at::empty({rows.rows()}, gamma.options()), rstd = at::empty({rows.rows()}, gamma.options());
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
      auto base = NormArgsOf<T>(gamma, ToDropout({static_cast<uint64_t>(key), p}), z, mean, rstd);
      base.eps = static_cast<float>(eps);
      base.x = Data<T>(x);
      base.r = r ? Data<T>(*r) : nullptr;
      base.beta = beta.data_ptr<float>();
      base.y = Data<T>(y);
      rows.OverTasks([&](int64_t, int64_t group, int64_t begin, int64_t end) {
        auto a = base;
        a.gamma += group * rows.D;
        a.beta += group * rows.D;
        kernels.norm_forward(a, begin, end);
      });
    });
    ctx->save_for_backward({gamma, z, mean, rstd});
    ctx->saved_data["adds"] = r.has_value();
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &gamma = saved[0], &z = saved[1];
    const double p = ctx->saved_data["p"].toDouble();
    const at::Tensor dy = grads[0].contiguous();
    const NormRows rows(z.numel(), gamma);
    at::Tensor dx = at::empty_like(z), dr = p > 0 ? at::empty_like(z) : dx;
    // Of no rows as well, there is a sum: zero.
    at::Tensor partial =
        at::zeros({rows.groups, std::max<int64_t>(1, rows.tasks_of_each()), 2, rows.D}, gamma.options());
    WithKernels(z.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
      const auto base = NormArgsOf<T>(gamma, ToDropout({static_cast<uint64_t>(ctx->saved_data["key"].toInt()), p}), z,
                                      saved[2], saved[3]);
      rows.OverTasks([&](int64_t task, int64_t group, int64_t begin, int64_t end) {
        auto a = base;
        a.gamma += group * rows.D;
        a.dy = Data<T>(dy);
        a.dx = Data<T>(dx);
        a.dr = Data<T>(dr);
        a.dgamma = partial.data_ptr<float>() + task * 2 * rows.D;
        a.dbeta = a.dgamma + rows.D;
        kernels.norm_backward(a, begin, end);
      });
    });
    at::Tensor sums = partial.select(1, 0);
    for (int64_t task = 1; task < rows.tasks_of_each(); ++task) sums.add_(partial.select(1, task));
    if (!ctx->saved_data["adds"].toBool()) dr = at::Tensor();
    return {dx, dr, sums.select(1, 0).view(gamma.sizes()), sums.select(1, 1).view(gamma.sizes()), {}, {}, {}};
  }
};

at::Tensor ApplyNorm(const at::Tensor& x, const std::optional<at::Tensor>& r, const at::Tensor& gamma,
                     const at::Tensor& beta, double eps, const DropoutDraw& dropout) {
  const bool of_samples = gamma.dim() == 2 && gamma.size(0) == x.size(0);
  if ((gamma.dim() != 1 && !of_samples) || gamma.size(-1) != x.size(-1) || beta.sizes() != gamma.sizes())
    throw std::logic_error("a norm takes weights and biases of (D), or of (B, D)");
  return NormFunction::apply(x.contiguous(), r, gamma.contiguous(), beta.contiguous(), eps,
                             static_cast<int64_t>(dropout.key), dropout.p);
}

struct GeluFunction : Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, GeluForm form, int64_t key, double p) {
    at::Tensor y = at::empty_like(x);
    Run(x, y, x, y, form, key, p, false);
    ctx->save_for_backward({x});
    ctx->saved_data["form"] = static_cast<int64_t>(form);
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0], dy = grads[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    const auto form = static_cast<GeluForm>(ctx->saved_data["form"].toInt());
    Run(x, dx, dy, dx, form, ctx->saved_data["key"].toInt(), ctx->saved_data["p"].toDouble(), true);
    return {dx, {}, {}, {}};
  }

 private:
  static void Run(const at::Tensor& x, at::Tensor& y, const at::Tensor& dy, at::Tensor& dx, GeluForm form, int64_t key,
                  double p, bool backward) {
    const int64_t D = x.size(-1), rows = x.numel() / D;
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
      const auto kernel = backward ? kernels.gelu_backward : kernels.gelu_forward;
      const kernels::GeluArgs<T> a{
          form, D, ToDropout({static_cast<uint64_t>(key), p}), Data<T>(x), Data<T>(y), Data<T>(dy), Data<T>(dx)};
      ParallelFor(0, rows, kRowsPerTask, [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
    });
  }
};

}  // namespace

at::Tensor DropoutAddNorm(const at::Tensor& x, const at::Tensor& r, const at::Tensor& gamma, const at::Tensor& beta,
                          const DropoutDraw& dropout) {
  if (!x.is_cpu()) return device_ops::DropoutAddNorm(x, r, gamma, beta, dropout);
  return ApplyNorm(x, r.contiguous(), gamma, beta, 1e-5, dropout);
}

at::Tensor Norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps) {
  if (!x.is_cpu()) return device_ops::Norm(x, gamma, beta, eps);
  return ApplyNorm(x, std::nullopt, gamma, beta, eps, {});
}

at::Tensor GeluDropout(const at::Tensor& x, const DropoutDraw& dropout) {
  if (!x.is_cpu()) return device_ops::GeluDropout(x, dropout);
  return GeluFunction::apply(x.contiguous(), GeluForm::kExact, static_cast<int64_t>(dropout.key), dropout.p);
}

at::Tensor GeluTanh(const at::Tensor& x) {
  if (!x.is_cpu()) return device_ops::GeluTanh(x);
  return GeluFunction::apply(x.contiguous(), GeluForm::kTanh, int64_t{0}, 0.0);
}

}  // namespace trainyard

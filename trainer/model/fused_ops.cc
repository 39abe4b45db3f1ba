#include "trainer/model/fused_ops.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/kernels/kernels.h"
#include "trainer/model/device_ops.h"
#include "trainer/model/parallel_for.h"
#include "trainer/model/with_kernels.h"

namespace trainyard {
namespace {

using kernels::GeluForm;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

template <class T>
T* Data(const at::Tensor& x) {
  return reinterpret_cast<T*>(x.data_ptr());
}

kernels::Dropout ToDropout(uint64_t key, double p) { return {key, static_cast<float>(p)}; }

// q may be packed with k and v in one tensor; then all strides are 3 D.
kernels::AttentionShape ShapeOf(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible,
                                AttentionLayout layout, bool packed, kernels::Dropout dropout) {
  kernels::AttentionShape s{};
  s.B = kv.size(0);
  s.C = layout.context;
  s.Q = visible.size(1);
  s.H = layout.heads;
  const int64_t width = packed ? kv.size(2) / 3 : kv.size(2) / 2;
  s.E = width / layout.heads;
  s.q_stride = q.size(2);
  s.kv_stride = kv.size(2);
  s.queries_only = !packed;
  s.dropout = dropout;
  return s;
}

template <class T>
kernels::AttentionArgs<T> ArgsOf(const kernels::AttentionShape& s, const at::Tensor& q, const at::Tensor& kv,
                                 const at::Tensor& visible) {
  const int64_t width = s.H * s.E;
  kernels::AttentionArgs<T> a{};
  a.q = Data<T>(q);
  a.k = Data<T>(kv) + (s.queries_only ? 0 : width);
  a.v = a.k + width;
  a.visible = visible.data_ptr<int32_t>();
  return a;
}

template <class Run>
void OverHeads(const kernels::AttentionShape& s, Run run) {
  ParallelFor(0, s.B * s.H, 1, run);
}

void RunForward(const kernels::AttentionShape& s, const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible,
                at::Tensor& out, at::Tensor& lse) {
  WithKernels(q.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
    auto a = ArgsOf<T>(s, q, kv, visible);
    a.out = Data<T>(out);
    a.lse = lse.data_ptr<float>();
    OverHeads(s, [&](int64_t begin, int64_t end) { kernels.attention_forward(s, a, begin, end); });
  });
}

void RunBackward(const kernels::AttentionShape& s, const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible,
                 const at::Tensor& lse, const at::Tensor& dout, at::Tensor& dq, at::Tensor& dkv) {
  const int64_t width = s.H * s.E;
  WithKernels(q.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
    auto a = ArgsOf<T>(s, q, kv, visible);
    a.lse = lse.data_ptr<float>();
    a.dout = Data<T>(dout);
    a.dq = Data<T>(dq);
    a.dk = Data<T>(dkv) + (s.queries_only ? 0 : width);
    a.dv = a.dk + width;
    OverHeads(s, [&](int64_t begin, int64_t end) { kernels.attention_backward(s, a, begin, end); });
  });
}

// The keys of a hash have 64 bits; the autograd context keeps signed integers.
struct PackedAttention : Function<PackedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, const at::Tensor& visible, int64_t context,
                            int64_t heads, int64_t key, double p) {
    const auto s = ShapeOf(qkv, qkv, visible, {context, heads}, true, ToDropout(static_cast<uint64_t>(key), p));
    at::Tensor out = at::empty({s.B, s.C + s.Q, s.H * s.E}, qkv.options());
    at::Tensor lse = at::empty({s.B, s.H, s.C + s.Q}, qkv.options().dtype(at::kFloat));
    RunForward(s, qkv, qkv, visible, out, lse);
    ctx->save_for_backward({qkv, visible, lse});
    ctx->saved_data["context"] = context;
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &qkv = saved[0], &visible = saved[1];
    const auto s =
        ShapeOf(qkv, qkv, visible, {ctx->saved_data["context"].toInt(), ctx->saved_data["heads"].toInt()}, true,
                ToDropout(static_cast<uint64_t>(ctx->saved_data["key"].toInt()), ctx->saved_data["p"].toDouble()));
    at::Tensor dqkv = at::empty_like(qkv);
    RunBackward(s, qkv, qkv, visible, saved[2], grads[0].contiguous(), dqkv, dqkv);
    return {dqkv, {}, {}, {}, {}, {}};
  }
};

struct QueryAttention : Function<QueryAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible,
                            int64_t context, int64_t heads, int64_t key, double p) {
    const auto s = ShapeOf(q, kv, visible, {context, heads}, false, ToDropout(static_cast<uint64_t>(key), p));
    at::Tensor out = at::empty_like(q);
    at::Tensor lse = at::empty({s.B, s.H, s.Q}, q.options().dtype(at::kFloat));
    RunForward(s, q, kv, visible, out, lse);
    ctx->save_for_backward({q, kv, visible, lse});
    ctx->saved_data["context"] = context;
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &kv = saved[1], &visible = saved[2];
    const auto s =
        ShapeOf(q, kv, visible, {ctx->saved_data["context"].toInt(), ctx->saved_data["heads"].toInt()}, false,
                ToDropout(static_cast<uint64_t>(ctx->saved_data["key"].toInt()), ctx->saved_data["p"].toDouble()));
    at::Tensor dq = at::empty_like(q), dkv = at::empty_like(kv);
    RunBackward(s, q, kv, visible, saved[3], grads[0].contiguous(), dq, dkv);
    return {dq, dkv, {}, {}, {}, {}, {}};
  }
};

// Rows that one task of a parallel loop works on; the cut does not depend on the number of threads,
// so neither do the sums over rows.
constexpr int64_t kRowsPerTask = 512;

template <class T>
kernels::NormArgs<T> NormArgsOf(const at::Tensor& gamma, kernels::Dropout dropout, const at::Tensor& z,
                                const at::Tensor& mean, const at::Tensor& rstd) {
  kernels::NormArgs<T> a{};
  a.D = gamma.numel();
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
    const int64_t rows = x.numel() / gamma.numel();
    at::Tensor y = at::empty_like(x);
    const at::Tensor z = r ? at::empty_like(x) : x;
    at::Tensor mean = at::empty({rows}, gamma.options()), rstd = at::empty({rows}, gamma.options());
    WithKernels(x.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
      auto a = NormArgsOf<T>(gamma, ToDropout(static_cast<uint64_t>(key), p), z, mean, rstd);
      a.eps = static_cast<float>(eps);
      a.x = Data<T>(x);
      a.r = r ? Data<T>(*r) : nullptr;
      a.beta = beta.data_ptr<float>();
      a.y = Data<T>(y);
      ParallelFor(0, rows, kRowsPerTask, [&](int64_t begin, int64_t end) { kernels.norm_forward(a, begin, end); });
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
    const int64_t rows = saved[2].numel(), D = gamma.numel(), tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
    at::Tensor dx = at::empty_like(z), dr = p > 0 ? at::empty_like(z) : dx;
    at::Tensor partial = at::zeros({tasks, 2, D}, gamma.options());
    WithKernels(z.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
      const auto base = NormArgsOf<T>(gamma, ToDropout(static_cast<uint64_t>(ctx->saved_data["key"].toInt()), p), z,
                                      saved[2], saved[3]);
      ParallelFor(0, tasks, 1, [&](int64_t first, int64_t last) {
        for (int64_t task = first; task < last; ++task) {
          auto a = base;
          a.dy = Data<T>(dy);
          a.dx = Data<T>(dx);
          a.dr = Data<T>(dr);
          a.dgamma = partial.data_ptr<float>() + task * 2 * D;
          a.dbeta = a.dgamma + D;
          kernels.norm_backward(a, task * kRowsPerTask, std::min(rows, (task + 1) * kRowsPerTask));
        }
      });
    });
    at::Tensor sums = partial[0];
    for (int64_t task = 1; task < tasks; ++task) sums.add_(partial[task]);
    if (!ctx->saved_data["adds"].toBool()) dr = at::Tensor();
    return {dx, dr, sums[0], sums[1], {}, {}, {}};
  }
};

at::Tensor ApplyNorm(const at::Tensor& x, const std::optional<at::Tensor>& r, const at::Tensor& gamma,
                     const at::Tensor& beta, double eps, const DropoutDraw& dropout) {
  return NormFunction::apply(x.contiguous(), r, gamma, beta, eps, static_cast<int64_t>(dropout.key), dropout.p);
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
          form, D, ToDropout(static_cast<uint64_t>(key), p), Data<T>(x), Data<T>(y), Data<T>(dy), Data<T>(dx)};
      ParallelFor(0, rows, kRowsPerTask, [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
    });
  }
};

}  // namespace

at::Tensor PrefixAttention(const at::Tensor& qkv, const at::Tensor& visible, AttentionLayout layout,
                           const DropoutDraw& dropout) {
  if (!qkv.is_cpu()) return device_ops::PrefixAttention(qkv, visible, layout, dropout);
  return PackedAttention::apply(qkv.contiguous(), visible, layout.context, layout.heads,
                                static_cast<int64_t>(dropout.key), dropout.p);
}

at::Tensor PrefixAttentionOfQueries(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible,
                                    AttentionLayout layout, const DropoutDraw& dropout) {
  if (!q.is_cpu()) return device_ops::PrefixAttentionOfQueries(q, kv, visible, layout, dropout);
  return QueryAttention::apply(q.contiguous(), kv.contiguous(), visible, layout.context, layout.heads,
                               static_cast<int64_t>(dropout.key), dropout.p);
}

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

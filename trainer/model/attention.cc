#include "trainer/model/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/kernels/kernels.h"
#include "trainer/model/device_ops.h"
#include "trainer/model/with_kernels.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {
namespace {

using kernels::Sight;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Queries, and keys and values side by side; where the three are in one tensor, it is `q`, and `kv` is not there.
struct Operands {
  at::Tensor q, kv;
  bool packed() const { return !kv.defined(); }
  const at::Tensor& keys() const { return packed() ? q : kv; }
  int64_t width() const { return q.size(2) / (packed() ? 3 : 1); }
};

template <class T>
kernels::AttentionArgs<T> ArgsOf(const Operands& in, const at::Tensor& visible, const at::Tensor& lse) {
  kernels::AttentionArgs<T> a{};
  a.q = Data<T>(in.q);
  a.k = Data<T>(in.keys()) + (in.packed() ? in.width() : 0);
  a.v = a.k + in.width();
  a.visible = visible.defined() ? visible.data_ptr<int32_t>() : nullptr;
  a.lse = lse.data_ptr<float>();
  return a;
}

template <class Run>
void OverHeads(const kernels::AttentionShape& s, Run run) {
  ParallelFor(0, s.B * s.H, 1, run);
}

// The keys of a hash have 64 bits; the autograd context keeps signed integers.
struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const std::optional<at::Tensor>& kv,
                            const std::optional<at::Tensor>& visible, int64_t heads, int64_t sight, int64_t key,
                            double p) {
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["sight"] = sight;
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    const Operands in{q, kv.value_or(at::Tensor())};
    const at::Tensor seen = visible.value_or(at::Tensor());
    const auto s = ShapeOf(ctx, in, seen);
    at::Tensor out = at::empty({s.B, q.size(1), in.width()}, q.options());
    at::Tensor lse = at::empty({s.B, s.H, q.size(1)}, q.options().dtype(at::kFloat));
    WithKernels(q.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
      auto a = ArgsOf<T>(in, seen, lse);
      a.out = Data<T>(out);
      OverHeads(s, [&](int64_t begin, int64_t end) { kernels.attention_forward(s, a, begin, end); });
    });
    ctx->save_for_backward({in.q, in.kv, seen, lse});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Operands in{saved[0], saved[1]};
    const auto s = ShapeOf(ctx, in, saved[2]);
    const at::Tensor dout = grads[0].contiguous();
    const Operands din{at::empty_like(in.q), in.packed() ? at::Tensor() : at::empty_like(in.kv)};
    WithKernels(in.q.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
      auto a = ArgsOf<T>(in, saved[2], saved[3]);
      a.dout = Data<T>(dout);
      a.dq = Data<T>(din.q);
      a.dk = Data<T>(din.keys()) + (a.k - Data<T>(in.keys()));
      a.dv = a.dk + in.width();
      OverHeads(s, [&](int64_t begin, int64_t end) { kernels.attention_backward(s, a, begin, end); });
    });
    return {din.q, din.kv, {}, {}, {}, {}, {}};
  }

 private:
  static kernels::AttentionShape ShapeOf(AutogradContext* ctx, const Operands& in, const at::Tensor& visible) {
    kernels::AttentionShape s{};
    s.sight = static_cast<Sight>(ctx->saved_data["sight"].toInt());
    s.B = in.q.size(0);
    s.H = ctx->saved_data["heads"].toInt();
    s.E = in.width() / s.H;
    s.Q = s.sight == Sight::kEverything ? in.q.size(1) : visible.size(1);
    s.C = in.keys().size(1) - (s.sight == Sight::kEverything ? 0 : s.Q);
    s.q_stride = in.q.size(2);
    s.kv_stride = in.keys().size(2);
    s.dropout = ToDropout({static_cast<uint64_t>(ctx->saved_data["key"].toInt()), ctx->saved_data["p"].toDouble()});
    return s;
  }
};

// The kernels go by addresses: what does not fit would be read behind its end.
bool OperandsFit(const at::Tensor& q, const std::optional<at::Tensor>& kv, int64_t heads) {
  if (q.dim() != 3) return false;
  if (!kv) return q.size(2) % (3 * heads) == 0;
  return kv->dim() == 3 && kv->scalar_type() == q.scalar_type() && kv->size(0) == q.size(0) &&
         kv->size(2) == 2 * q.size(2) && q.size(2) % heads == 0;
}

bool VisibleFits(Sight sight, const at::Tensor& q, const at::Tensor& keys, const at::Tensor& visible) {
  if (visible.dim() != 2 || visible.scalar_type() != at::kInt || visible.size(0) != q.size(0)) return false;
  return visible.size(1) <= keys.size(1) && (sight != Sight::kPrefixOfQueries || visible.size(1) == q.size(1));
}

at::Tensor Attend(Sight sight, const at::Tensor& q, const std::optional<at::Tensor>& kv,
                  const std::optional<at::Tensor>& visible, int64_t heads, const DropoutDraw& dropout) {
  if (!OperandsFit(q, kv, heads))
    throw std::logic_error("attention takes queries and keys of one type and batch, of a width that its heads divide");
  if (visible && !VisibleFits(sight, q, kv ? *kv : q, *visible))
    throw std::logic_error("attention takes a visible (B, Q) of int32, for no more rows than there are");
  const auto contiguous = [](const std::optional<at::Tensor>& t) { return t ? std::optional(t->contiguous()) : t; };
  return AttentionFunction::apply(q.contiguous(), contiguous(kv), contiguous(visible), heads,
                                  static_cast<int64_t>(sight), static_cast<int64_t>(dropout.key), dropout.p);
}

}  // namespace

at::Tensor PrefixAttention(const at::Tensor& qkv, const at::Tensor& visible, int64_t heads,
                           const DropoutDraw& dropout) {
  if (!qkv.is_cpu()) return device_ops::PrefixAttention(qkv, visible, heads, dropout);
  return Attend(Sight::kPrefix, qkv, std::nullopt, visible, heads, dropout);
}

at::Tensor PrefixAttentionOfQueries(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible, int64_t heads,
                                    const DropoutDraw& dropout) {
  if (!q.is_cpu()) return device_ops::PrefixAttentionOfQueries(q, kv, visible, heads, dropout);
  return Attend(Sight::kPrefixOfQueries, q, kv, visible, heads, dropout);
}

at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, const DropoutDraw& dropout) {
  if (!qkv.is_cpu()) return device_ops::SelfAttention(qkv, heads, dropout);
  return Attend(Sight::kEverything, qkv, std::nullopt, std::nullopt, heads, dropout);
}

at::Tensor CrossAttention(const at::Tensor& q, const at::Tensor& kv, int64_t heads, const DropoutDraw& dropout) {
  if (!q.is_cpu()) return device_ops::CrossAttention(q, kv, heads, dropout);
  return Attend(Sight::kEverything, q, kv, std::nullopt, heads, dropout);
}

}  // namespace trainyard

#include "trainer/model/device_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <vector>

namespace trainyard::device_ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

std::tuple<Tensor, Tensor, Tensor> Norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  const auto [y, mean, rstd] = at::native_layer_norm(x.to(at::kFloat), gamma.sizes(), gamma, beta, eps);
  return {y.to(x.scalar_type()), mean.flatten(), rstd.flatten()};
}

std::tuple<Tensor, Tensor, Tensor> NormBackward(const Tensor& dy, const Tensor& x, const Tensor& gamma,
                                                const Tensor& mean, const Tensor& rstd) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  const auto [dx, dgamma, dbeta] =
      at::native_layer_norm_backward(dy.to(at::kFloat), x.to(at::kFloat), gamma.sizes(), mean.view(shape),
                                     rstd.view(shape), gamma, gamma, {true, true, true});
  return {dx.to(x.scalar_type()), dgamma, dbeta};
}

Tensor SumColumns(const Tensor& x) { return x.sum(0); }

// logits: (rows, at least `classes`) -> of each row its loss, and the logarithm of the sum of exponentials.
std::tuple<Tensor, Tensor> LossOfLogits(const Tensor& logits, const Tensor& targets, int64_t classes, int64_t ignored) {
  const Tensor wide = logits.narrow(1, 0, classes).to(at::kFloat), lse = wide.logsumexp(1);
  const Tensor counts = targets.ne(ignored), there = targets.masked_fill(counts.logical_not(), 0).unsqueeze(1);
  return {(lse - wide.gather(1, there).squeeze(1)).masked_fill(counts.logical_not(), 0), lse};
}

// The gradient takes the logits' place; behind the classes it is zero.
void LossGradient(const Tensor& grad, Tensor& logits, const Tensor& targets, const Tensor& lse, int64_t classes,
                  int64_t ignored) {
  const Tensor counts = targets.ne(ignored).unsqueeze(1);
  const Tensor there = targets.unsqueeze(1).masked_fill(counts.logical_not(), 0);
  const Tensor shares = (logits.narrow(1, 0, classes).to(at::kFloat) - lse.unsqueeze(1)).exp();
  const Tensor less = shares.scatter_add(1, there, counts.to(at::kFloat).neg());
  logits.zero_();
  logits.narrow(1, 0, classes).copy_((less * grad).masked_fill(counts.logical_not(), 0));
}

using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

struct Operations {
  torch::Library library{torch::Library::DEF, "trainyard", std::nullopt, __FILE__, __LINE__};
  c10::TypedOperatorHandle<ThreeTensors(const Tensor&, const Tensor&, const Tensor&, double)> norm =
      Define<decltype(Norm)>("norm", "(Tensor x, Tensor gamma, Tensor beta, float eps) -> (Tensor, Tensor, Tensor)",
                             &Norm);
  c10::TypedOperatorHandle<ThreeTensors(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)>
      norm_backward = Define<decltype(NormBackward)>(
          "norm_backward", "(Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd) -> (Tensor, Tensor, Tensor)",
          &NormBackward);
  c10::TypedOperatorHandle<Tensor(const Tensor&)> sum_columns =
      Define<decltype(SumColumns)>("sum_columns", "(Tensor x) -> Tensor", &SumColumns);
  c10::TypedOperatorHandle<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, int64_t, int64_t)> loss =
      Define<decltype(LossOfLogits)>(
          "loss", "(Tensor logits, Tensor targets, int classes, int ignored) -> (Tensor, Tensor)", &LossOfLogits);
  c10::TypedOperatorHandle<void(const Tensor&, Tensor&, const Tensor&, const Tensor&, int64_t, int64_t)> loss_gradient =
      Define<decltype(LossGradient)>(
          "loss_gradient",
          "(Tensor grad, Tensor(a!) logits, Tensor targets, Tensor lse, int classes, int ignored) -> ()",
          &LossGradient);

 private:
  template <class Signature>
  c10::TypedOperatorHandle<Signature> Define(const std::string& name, const std::string& schema, Signature* of_aten) {
    library.def((name + schema).c_str());
    library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, of_aten));
    return c10::Dispatcher::singleton().findSchemaOrThrow(("trainyard::" + name).c_str(), "").typed<Signature>();
  }
};

const Operations& Ops() {
  static const Operations operations;
  return operations;
}

struct NormFunction : Function<NormFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, mean, rstd] = Ops().norm.call(x, gamma, beta, eps);
    ctx->save_for_backward({x, gamma, mean, rstd});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = ctx->get_saved_variables();
    const auto [dx, dgamma, dbeta] = Ops().norm_backward.call(grads[0], saved[0], saved[1], saved[2], saved[3]);
    return {dx, dgamma, dbeta, Tensor()};
  }
};

struct BiasedProduct : Function<BiasedProduct> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const at::AutoDispatchBelowADInplaceOrView below;
    // Of each what the other's gradient needs.
    ctx->save_for_backward({weight.requires_grad() ? x : Tensor(), x.requires_grad() ? weight : Tensor()});
    ctx->saved_data["x"] = x.sizes().vec();
    ctx->saved_data["contiguous"] = weight.is_contiguous();
    return at::linear(x, weight, bias);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const Tensor dy = grads[0].reshape({-1, grads[0].size(-1)});
    Tensor dx, dw, db;
    if (ctx->needs_input_grad(0)) dx = at::mm(dy, weight).view(ctx->saved_data["x"].toIntVector());
    // As the weight lies: a transposed one gets a gradient that is contiguous where it is itself.
    if (ctx->needs_input_grad(1)) {
      const Tensor rows = x.reshape({-1, x.size(-1)});
      dw = ctx->saved_data["contiguous"].toBool() ? at::mm(dy.t(), rows) : at::mm(rows.t(), dy).t();
    }
    if (ctx->needs_input_grad(2)) db = Ops().sum_columns.call(dy);
    return {dx, dw, db};
  }
};

// With rows of zeros behind: of rows of logits that begin at any address, such as those of GPT-2's vocabulary, the
// library's products take several times as long.
Tensor Padded(const Tensor& weight) {
  constexpr int64_t kRows = 64;
  const int64_t classes = weight.size(0), more = (kRows - classes % kRows) % kRows;
  return more == 0 ? weight : at::constant_pad_nd(weight, {0, 0, 0, more});
}

struct TokenLossFunction : Function<TokenLossFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& targets,
                        int64_t ignored) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor padded = Padded(weight), logits = at::mm(x, padded.t());
    const auto [losses, lse] = Ops().loss.call(logits, targets, weight.size(0), ignored);
    ctx->save_for_backward({x, padded, targets, logits, lse});
    ctx->saved_data["classes"] = weight.size(0);
    ctx->saved_data["ignored"] = ignored;
    return losses.sum();
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &padded = saved[1];
    Tensor gradient = saved[3];
    const int64_t classes = ctx->saved_data["classes"].toInt();
    Ops().loss_gradient.call(grads[0], gradient, saved[2], saved[4], classes, ctx->saved_data["ignored"].toInt());
    gradient.unsafeGetTensorImpl()->bump_version();  // a second backward throws, and takes no gradient for logits
    Tensor dx, dw;
    if (ctx->needs_input_grad(0)) dx = at::mm(gradient, padded);
    if (ctx->needs_input_grad(1)) dw = at::mm(gradient.t(), x).narrow(0, 0, classes);
    return {dx, dw, Tensor(), Tensor()};
  }
};

}  // namespace

bool IsNormWidth(int64_t width) {
  return width == 64 || width == 128 || (width > 0 && width <= 2048 && width % 256 == 0);
}

Tensor NormOfRows(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return NormFunction::apply(x, gamma, beta, eps);
}

Tensor ProductOfRows(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return BiasedProduct::apply(x, weight, bias);
}

Tensor TokenLoss(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t ignored) {
  return TokenLossFunction::apply(x, weight, targets, ignored);
}

}  // namespace trainyard::device_ops

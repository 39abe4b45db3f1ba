#include "trainer/task/mace_survival/risk_model.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include "trainer/model/product.h"

namespace trainyard::mace {
namespace {

// torch.nn.Linear's weight, and MONAI's bias.
const LinearOptions kHead{
    .bias = true, .weight_initial = {}, .bias_initial = Initial{Initial::Kind::kConstant, 0}, .parameters = {}};

at::Tensor Copy(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {std::ssize(values)}, at::kFloat).clone();
}

// In float32 whatever the weights are: of neighbouring log-risks that are rounded to bf16 hundreds become one, and
// Cox's order and the concordance are of nothing but such neighbours.
at::Tensor InFloat(const Pass& pass, const Linear& head, const at::Tensor& x) {
  return Product(x, pass[head.weight].to(at::kFloat), pass[*head.bias].to(at::kFloat));
}

}  // namespace

RiskModel::RiskModel(const Scope& s, const Options& options)
    : body_(s, {options.shape().layers, options.shape().width, options.shape().first_stride}),
      heads_(s.Unit("heads")),
      dropout_(heads_, options.model.dropout),
      risk_(heads_ / "fc", body_.features(), 1, kHead),
      gather_(s.Gather(GatheredRow::kColumns)) {
  s.Optional("features.*");
  s.Optional("scaling.*");
  if (!options.pretrains()) return;
  const int64_t F = options.model.features;
  features_.emplace(heads_ / "features", body_.features(), F, kHead);
  mean_ = (s / "scaling").Buffer("mean", {F}, 0, BufferPolicy::kRankZero);
  deviation_ = (s / "scaling").Buffer("deviation", {F}, 0, BufferPolicy::kRankZero);
}

Predictions RiskModel::Forward(const Pass& pass, const at::Tensor& volumes, GlobalBatch& batch) const {
  const at::Tensor pooled = body_(pass, volumes, batch);
  const auto heads = [=, this](at::TensorList in) {
    const at::Tensor x = dropout_(pass, in[0]), risk = InFloat(pass, risk_, x);
    return features_ ? at::cat({risk, InFloat(pass, *features_, x)}, 1) : risk;
  };
  const at::Tensor all = pass.Unit(heads_.unit(), heads, {pooled});
  return {all.select(1, 0), features_ ? all.narrow(1, 1, all.size(1) - 1) : at::Tensor()};
}

void RiskModel::StageScaling(const Pass& pass, const Scaling& scaling) const {
  pass.Stage(*mean_, Copy(scaling.mean));
  pass.Stage(*deviation_, Copy(scaling.deviation));
}

}  // namespace trainyard::mace

#include "trainer/task/mace_survival/cox_function.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "trainer/task/mace_survival/risk_model.h"

namespace trainyard::mace {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A sum whose gradient is known.
struct Known : Function<Known> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor&, const at::Tensor& gradient, double sum) {
    ctx->save_for_backward({gradient});
    at::Tensor value = at::empty({}, gradient.options());
    value.fill_(sum);
    return value;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {ctx->get_saved_variables()[0] * grads[0], {}, {}};
  }
};

struct Subjects {
  std::vector<int64_t> rows;  // that are present
  std::vector<double> risk;
  std::vector<Outcome> outcomes;
  std::vector<uint8_t> mine;
};

Subjects Present(const at::Tensor& rows, const at::Tensor& mine) {
  const at::Tensor all = rows.detach().cpu().contiguous(), own = mine.contiguous();
  const std::set<float> places(own.data_ptr<float>(), own.data_ptr<float>() + own.numel());
  Subjects subjects;
  for (int64_t r = 0; r < all.size(0); ++r) {
    const float* row = all.data_ptr<float>() + r * GatheredRow::kColumns;
    if (row[GatheredRow::kPresent] == 0) continue;
    subjects.rows.push_back(r);
    subjects.risk.push_back(static_cast<double>(row[GatheredRow::kRisk]));
    subjects.outcomes.push_back(
        {static_cast<double>(row[GatheredRow::kTime]) + static_cast<double>(row[GatheredRow::kTimeRest]),
         row[GatheredRow::kEvent] > 0});
    subjects.mine.push_back(places.contains(row[GatheredRow::kPlace]) ? 1 : 0);
  }
  return subjects;
}

}  // namespace

SplitTime Split(double time) {
  const auto first = static_cast<float>(time);
  return {first, static_cast<float>(time - static_cast<double>(first))};
}

GatheredLoss GlobalCoxLoss(const at::Tensor& rows, const at::Tensor& mine) {
  Subjects subjects = Present(rows, mine);
  GatheredLoss loss;
  for (const Outcome& outcome : subjects.outcomes) loss.events += outcome.event ? 1 : 0;
  at::Tensor gradient = at::zeros(rows.sizes(), at::kFloat);
  double sum = 0;
  // A network that has lost its numbers says so by the loss, and has no order of risks.
  if (!std::ranges::all_of(subjects.risk, [](double risk) { return std::isfinite(risk); })) {
    sum = std::numeric_limits<double>::quiet_NaN();
    std::ranges::fill(subjects.risk, 0);
  } else if (!subjects.rows.empty()) {
    const CoxLoss cox = CoxPartialLikelihood(subjects.risk, subjects.outcomes, subjects.mine);
    for (size_t i = 0; i < subjects.rows.size(); ++i)
      gradient.data_ptr<float>()[subjects.rows[i] * GatheredRow::kColumns] = static_cast<float>(cox.gradient[i]);
    sum = cox.sum;
  }
  loss.sum = Known::apply(rows, gradient.to(rows.device()), sum);
  return loss;
}

}  // namespace trainyard::mace

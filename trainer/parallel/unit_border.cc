#include "trainer/parallel/unit_border.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <string>
#include <utility>

namespace trainyard {
namespace {

using torch::autograd::variable_list;

// Lets gradients pass, and says so first.
struct Border : torch::autograd::Node {
  explicit Border(std::function<void()> function) : passed(std::move(function)) {}
  std::string name() const override { return "UnitBorder"; }
  variable_list apply(variable_list&& gradients) override {
    if (passed) passed();
    return std::move(gradients);
  }
  std::function<void()> passed;
};

}  // namespace

std::vector<at::Tensor> Behind(at::TensorList values, std::function<void()> passed) {
  std::vector<at::Tensor> variables, behind(values.begin(), values.end());
  for (const at::Tensor& value : values) {
    if (value.requires_grad()) variables.push_back(value);
  }
  if (variables.empty() || !at::GradMode::is_enabled()) return behind;
  const std::shared_ptr<Border> node(new Border(std::move(passed)), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(at::TensorList(variables)));
  for (at::Tensor& value : behind) {
    if (!value.requires_grad()) continue;
    value = value.detach();
    torch::autograd::create_gradient_edge(value, node);
  }
  return behind;
}

}  // namespace trainyard

#include "trainer/parallel/recompute.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace trainyard {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Where the backward of a result begins: with its gradient, which is gone once it is used, and so is the result.
// torch::autograd::grad holds what it is given until it returns: both would be there to the end of a unit's backward.
struct Beginning : torch::autograd::Node {
  explicit Beginning(at::Tensor&& of) : gradient(std::move(of)) {}
  std::string name() const override { return "Beginning"; }
  variable_list apply(variable_list&&) override {
    variable_list given(1);
    given[0] = std::move(gradient);
    return given;
  }
  at::Tensor gradient;
};

// The gradients of `variables` from the result's.
variable_list Gradients(at::Tensor&& result, at::Tensor&& gradient, const variable_list& variables) {
  // On the gradient's device, for that is where the node's stream is from; of no size, since nobody looks at it.
  at::Tensor nothing = at::empty({0}, gradient.options());
  const at::Tensor its_gradient = at::empty_like(nothing);
  const std::shared_ptr<Beginning> beginning(new Beginning(std::move(gradient)), torch::autograd::deleteNode);
  beginning->set_next_edges(torch::autograd::collect_next_edges(result));
  torch::autograd::create_gradient_edge(nothing, beginning);
  result.reset();
  return torch::autograd::grad({nothing}, variables, {its_gradient}, std::nullopt, false, true);
}

struct Recompute : torch::autograd::Node {
  Recompute(UnitFunction function, at::TensorList given, at::TensorList leaves)
      : again(std::move(function)), parameters(leaves.begin(), leaves.end()) {
    for (const at::Tensor& input : given) inputs.emplace_back(input, false);
  }

  std::string name() const override { return "Recompute"; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (SavedVariable& input : inputs) input.reset_data();
    again = nullptr;
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    variable_list all(inputs.size() + parameters.size());
    if (!gradients[0].defined()) return all;
    const at::AutoGradMode graph(true);
    std::vector<at::Tensor> given;
    for (const SavedVariable& input : inputs) {
      const at::Tensor value = input.unpack();
      given.push_back(value.detach());
      given.back().requires_grad_(value.requires_grad());
    }
    at::Tensor result = again(given);
    variable_list of;
    std::vector<size_t> places;
    for (size_t i = 0; i < all.size(); ++i) {
      const at::Tensor& variable = i < given.size() ? given[i] : parameters[i - given.size()];
      if (!variable.requires_grad() || !task_should_compute_output(i)) continue;
      of.push_back(variable);
      places.push_back(i);
    }
    if (!result.requires_grad() || of.empty()) return all;
    variable_list found = Gradients(std::move(result), std::move(gradients[0]), of);
    for (size_t i = 0; i < places.size(); ++i) all[places[i]] = std::move(found[i]);
    return all;
  }

  UnitFunction again;
  std::vector<SavedVariable> inputs;
  std::vector<at::Tensor> parameters;
};

}  // namespace

at::Tensor Recomputed(const UnitFunction& first, const UnitFunction& again, at::TensorList inputs,
                      at::TensorList parameters) {
  std::vector<at::Tensor> variables(inputs.begin(), inputs.end());
  variables.insert(variables.end(), parameters.begin(), parameters.end());
  at::Tensor result;
  {
    const at::NoGradGuard no_graph;
    result = first(inputs).detach();  // a variable of its own, also where it is an input
  }
  if (!torch::autograd::compute_requires_grad(at::TensorList(variables))) return result;
  const std::shared_ptr<Recompute> node(new Recompute(again, inputs, parameters), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(at::TensorList(variables)));
  torch::autograd::create_gradient_edge(result, node);
  return result;
}

}  // namespace trainyard

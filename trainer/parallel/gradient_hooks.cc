#include "trainer/parallel/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "trainer/base/error.h"

namespace trainyard {
struct GradientHooks::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientHooks* owner, size_t leaf) : owner(owner), leaf(leaf) {}
  void operator()(const at::Tensor&) override {
    const at::Tensor gradient = std::exchange(owner->leaves_[leaf].mutable_grad(), at::Tensor());
    if (!gradient.defined()) return;  // of a unit that was computed again and has not used it
    owner->arrived_(leaf, gradient.contiguous().view({gradient.numel()}));
  }
  GradientHooks* owner;
  size_t leaf;
};

GradientHooks::GradientHooks(std::vector<at::Tensor> leaves, std::function<void(size_t, const at::Tensor&)> arrived)
    : leaves_(std::move(leaves)), arrived_(std::move(arrived)) {
  for (size_t i = 0; i < leaves_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(leaves_[i], std::make_unique<Hook>(this, i));
}

GradientHooks::~GradientHooks() {
  Forget();
  for (const at::Tensor& leaf : leaves_) torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
}

void GradientHooks::Forget() {
  for (const at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
}

std::vector<std::vector<size_t>> BucketsOf(const FlatLayout& layout, const std::vector<Range>& buckets) {
  std::vector<std::vector<size_t>> of(layout.parameters().size());
  for (size_t p = 0; p < of.size(); ++p) {
    const Range range = layout.range(p);
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (range.begin < buckets[b].end && buckets[b].begin < range.end) of[p].push_back(b);
    }
  }
  return of;
}

void AddGradient(Device& device, const at::Tensor& values, at::Tensor to, bool first) {
  if (values.scalar_type() == at::kFloat) {
    first ? to.copy_(values) : to.add_(values);
    return;
  }
  first ? device.math().Widen(values.const_data_ptr(), values.scalar_type(), to.data_ptr<float>(), values.numel())
        : device.math().Add(values.const_data_ptr(), values.scalar_type(), to.data_ptr<float>(), values.numel());
}

void RefuseGradient(const ParameterSpec& spec) {
  throw Error(ExitCode::kInternal, "a gradient of " + spec.name +
                                       " arrived in a backward in which its bucket may be on its way already: a second "
                                       "one, or one that was not expected any more");
}

}  // namespace trainyard

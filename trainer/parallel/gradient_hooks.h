// The gradients of a model's leaves, as backward finishes them.
#ifndef TRAINYARD_TRAINER_PARALLEL_GRADIENT_HOOKS_H_
#define TRAINYARD_TRAINER_PARALLEL_GRADIENT_HOOKS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/parallel/flat_layout.h"

namespace trainyard {

// One thread at a time: the caller's, or autograd's for a device, in a backward that the caller waits for. Installed in
// the constructor and removed in the destructor.
class GradientHooks {
 public:
  // `arrived` gets the leaf's number and its gradient of this backward, (numel) and contiguous, in the leaf's type; the
  // leaf keeps none. What it throws, backward throws.
  GradientHooks(std::vector<at::Tensor> leaves, std::function<void(size_t, const at::Tensor&)> arrived);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // After a backward that failed: what it left at the leaves.
  void Forget();

 private:
  struct Hook;
  std::vector<at::Tensor> leaves_;
  std::function<void(size_t, const at::Tensor&)> arrived_;
};

// Of each parameter the numbers of the buckets that it overlaps, ascending.
std::vector<std::vector<size_t>> BucketsOf(const FlatLayout& layout, const std::vector<Range>& buckets);

// Adds values of the type that forward computes with to float32 ones, both on `device`; `first`: they take the place of
// what is there.
void AddGradient(Device& device, const at::Tensor& values, at::Tensor to, bool first);

// A second gradient of one backward, or one whose bucket was sent without it.
[[noreturn]] void RefuseGradient(const ParameterSpec& spec);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_GRADIENT_HOOKS_H_

#include "trainer/parallel/gradient_reducer.h"

#include <ATen/ops/empty.h>

#include "trainer/parallel/reduce_every.h"
#include "trainer/parallel/reduce_last.h"

namespace trainyard {

BF16Slots::BF16Slots(int64_t elements, Device& device) : device_(device) {
  for (at::Tensor& slot : slots_) {
    if (elements > 0) slot = at::empty({elements}, at::TensorOptions(at::kBFloat16).device(device.device()));
  }
}

int64_t BF16Slots::Bytes(int64_t elements) { return elements * static_cast<int64_t>(kSlots) * 2; }

at::Tensor BF16Slots::Round(size_t number, const at::Tensor& values) {
  at::Tensor slot = Of(number, values.numel());
  Convert(values, slot, device_);
  return slot;
}

at::Tensor BF16Slots::Of(size_t number, int64_t elements) const {
  return slots_[number % kSlots].narrow(0, 0, elements);
}

std::unique_ptr<GradientReducer> MakeGradientReducer(FlatState& state, Collectives& collectives,
                                                     const ReducerOptions& options) {
  if (state.gradient_is_whole()) return std::make_unique<ReduceLast>(state, collectives, options);
  return std::make_unique<ReduceEvery>(state, collectives, options);
}

}  // namespace trainyard

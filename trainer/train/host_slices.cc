#include "trainer/train/host_slices.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace trainyard {

HostSlices::HostSlices(std::vector<StateSlice> slices) : there_(std::move(slices)), here_(there_) {
  for (StateSlice& slice : here_) {
    if (!slice.values.is_cpu()) slice.values = at::empty(slice.values.sizes(), slice.values.scalar_type());
  }
}

void HostSlices::Fetch() {
  for (size_t i = 0; i < here_.size(); ++i) {
    if (!there_[i].values.is_cpu()) here_[i].values.copy_(there_[i].values);
  }
}

void HostSlices::Return() {
  for (size_t i = 0; i < here_.size(); ++i) {
    if (!there_[i].values.is_cpu()) there_[i].values.copy_(here_[i].values);
  }
}

}  // namespace trainyard

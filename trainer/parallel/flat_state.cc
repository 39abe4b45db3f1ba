#include "trainer/parallel/flat_state.h"

#include <ATen/ops/zeros.h>

#include "trainer/kernels/kernels.h"
#include "trainer/model/initialize.h"

namespace trainyard {

std::span<float> Floats(const at::Tensor& flat) { return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())}; }

FlatState::FlatState(FlatLayout layout, Precision precision) : layout_(std::move(layout)), precision_(precision) {
  const int64_t total = layout_.total();
  for (at::Tensor* flat : {&master, &gradient, &exp_avg, &exp_avg_sq}) *flat = at::zeros({total}, at::kFloat);
  if (precision_ == Precision::kBf16) compute_ = at::zeros({total}, at::kBFloat16);
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const ParameterSpec& spec = layout_.parameters()[i];
    const at::Tensor& flat = compute_.defined() && spec.dtype != DType::kFloat32 ? compute_ : master;
    at::Tensor leaf = flat.narrow(0, layout_.range(i).begin, spec.numel()).view(spec.shape).detach();
    leaf.requires_grad_(true);
    leaves_.push_back(leaf);
  }
}

void FlatState::Initialize(uint64_t seed) {
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const ParameterSpec& spec = layout_.parameters()[i];
    const Range range = layout_.range(i);
    FillInitial(spec, seed,
                Floats(master).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size())));
  }
  PublishParameters();
}

void FlatState::PublishParameters() {
  if (!compute_.defined()) return;
  kernels::Kernels().to_bf16(master.data_ptr<float>(), reinterpret_cast<kernels::Bf16*>(compute_.data_ptr()),
                             layout_.total());
}

}  // namespace trainyard

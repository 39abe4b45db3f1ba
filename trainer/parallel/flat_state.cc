#include "trainer/parallel/flat_state.h"

#include <ATen/ops/zeros.h>

#include "trainer/kernels/kernels.h"
#include "trainer/model/initialize.h"
#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

constexpr int64_t kElementsPerTask = 16384;  // at least

}  // namespace

std::span<float> Floats(const at::Tensor& flat) { return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())}; }

FlatState::FlatState(FlatLayout layout, Precision precision) : layout_(std::move(layout)) {
  const int64_t total = layout_.total();
  for (at::Tensor* flat : {&master, &gradient, &exp_avg, &exp_avg_sq}) *flat = at::zeros({total}, at::kFloat);
  if (precision == Precision::kBf16) compute_ = at::zeros({total}, at::kBFloat16);
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

AdamWBuffers FlatState::UpdateBuffers() const {
  return {master.data_ptr<float>(), exp_avg.data_ptr<float>(), exp_avg_sq.data_ptr<float>(),
          gradient.data_ptr<float>()};
}

void FlatState::PublishParameters() {
  if (!compute_.defined()) return;
  const float* from = master.data_ptr<float>();
  auto* to = reinterpret_cast<kernels::Bf16*>(compute_.data_ptr());
  ParallelFor(0, layout_.total(), kElementsPerTask,
              [&](int64_t begin, int64_t end) { kernels::Kernels().to_bf16(from + begin, to + begin, end - begin); });
}

}  // namespace trainyard

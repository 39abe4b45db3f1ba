#include "trainer/parallel/flat_state.h"

#include <ATen/ops/zeros.h>

#include "trainer/base/random.h"
#include "trainer/kernels/kernels.h"

namespace trainyard {
namespace {

double Draw(const Initial& initial, KeyedRandom& random) {
  switch (initial.kind) {
    case Initial::Kind::kConstant:
      return initial.scale;
    case Initial::Kind::kUniform:
      return initial.scale * (2 * random.UniformDouble() - 1);
    case Initial::Kind::kNormal:
      return initial.scale * random.Normal();
    case Initial::Kind::kTruncatedNormal:
      break;
  }
  for (;;) {  // torch.nn.init.trunc_normal_ cuts at the absolute values -2 and 2.
    const double x = initial.scale * random.Normal();
    if (x >= -2 && x <= 2) return x;
  }
}

}  // namespace

std::span<float> Floats(const at::Tensor& flat) { return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())}; }

FlatState::FlatState(FlatLayout layout, Precision precision) : layout_(std::move(layout)), precision_(precision) {
  const int64_t total = layout_.total();
  for (at::Tensor* flat : {&master, &gradient, &exp_avg, &exp_avg_sq}) *flat = at::zeros({total}, at::kFloat);
  if (precision_ == Precision::kBf16) compute_ = at::zeros({total}, at::kBFloat16);
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const ParameterSpec& spec = layout_.parameters()[i];
    const at::Tensor& flat = compute_.defined() && !spec.keep_fp32 ? compute_ : master;
    at::Tensor leaf = flat.narrow(0, layout_.range(i).begin, spec.numel()).view(spec.shape).detach();
    leaf.requires_grad_(true);
    leaves_.push_back(leaf);
    index_[spec.name] = i;
  }
}

const at::Tensor& FlatState::leaf(const std::string& name) const { return leaves_[index_.at(name)]; }

void FlatState::Initialize(uint64_t seed) {
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const ParameterSpec& spec = layout_.parameters()[i];
    KeyedRandom random(seed, "init " + spec.name);
    const Range range = layout_.range(i);
    for (float& x : Floats(master).subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()))) {
      x = static_cast<float>(Draw(spec.initial, random));
    }
  }
  PublishParameters();
}

void FlatState::PublishParameters() {
  if (!compute_.defined()) return;
  kernels::Kernels().to_bf16(master.data_ptr<float>(), reinterpret_cast<kernels::Bf16*>(compute_.data_ptr()),
                             layout_.total());
}

}  // namespace trainyard

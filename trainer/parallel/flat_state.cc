#include "trainer/parallel/flat_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/model/initialize_together.h"

namespace trainyard {

FlatState::FlatState(FlatLayout layout, const FlatStateOptions& options, Device& device)
    : layout_(std::move(layout)), device_(device), sharded_(!options.shard.empty()) {
  const int64_t total = layout_.total();
  int64_t size = 0;
  for (const Range& range : sharded_ ? options.shard : std::vector<Range>{{0, total}}) {
    owned_.push_back({range, size});
    size += range.size();
  }
  const bool apart = options.precision != Precision::kFp32 || options.offload, in_units = options.in_units;
  const at::ScalarType type = TypeOf(DType::kCompute, options.precision);
  const auto there = at::TensorOptions(at::kFloat).device(device.device());
  const auto updated = options.offload ? at::TensorOptions(at::kFloat) : there;
  master = at::zeros({apart || in_units ? size : total}, updated);
  gradient = at::zeros({options.reduce == Reduce::kEvery ? size : total}, there);
  for (at::Tensor* moments : {&exp_avg, &exp_avg_sq}) *moments = at::zeros({size}, updated);
  if (options.averages) average = at::zeros({size}, updated);
  if (apart) compute_ = at::zeros({in_units ? size : total}, there.dtype(type));
  if (in_units) units_.emplace(layout_, type, device.device());
  int64_t wide = 0;
  for (const ParameterSpec& spec : layout_.parameters()) {
    const bool stays = type != at::kFloat && (sharded_ || options.offload) && spec.dtype == DType::kFloat32;
    wide_offsets_.push_back(stays ? wide : -1);
    if (stays) wide += (spec.numel() + kBlock - 1) / kBlock * kBlock;
  }
  if (wide > 0) wide_ = at::zeros({wide}, there);
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const ParameterSpec& spec = layout_.parameters()[i];
    const bool in_wide = wide_offsets_[i] >= 0;
    const at::Tensor& flat = in_wide                                                          ? wide_
                             : apart && (type == at::kFloat || spec.dtype != DType::kFloat32) ? compute_
                                                                                              : master;
    const int64_t begin = in_wide ? wide_offsets_[i] : layout_.range(i).begin;
    at::Tensor leaf =
        in_units && !in_wide ? units_->Leaf(i) : flat.narrow(0, begin, spec.numel()).view(spec.shape).detach();
    leaf.requires_grad_(true);
    leaves_.push_back(leaf);
  }
}

std::vector<OwnedPiece> FlatState::OwnedOf(Range range) const {
  std::vector<OwnedPiece> pieces;
  for (const OwnedPiece& piece : owned_) {
    const int64_t begin = std::max(range.begin, piece.flat.begin), end = std::min(range.end, piece.flat.end);
    if (begin < end) pieces.push_back({{begin, end}, piece.at + begin - piece.flat.begin});
  }
  return pieces;
}

at::Tensor FlatState::MasterOf(const OwnedPiece& piece) const {
  return master.narrow(0, master_is_whole() ? piece.flat.begin : piece.at, piece.flat.size());
}

at::Tensor FlatState::GradientOf(const OwnedPiece& piece) const {
  return gradient.narrow(0, gradient_is_whole() ? piece.flat.begin : piece.at, piece.flat.size());
}

at::Tensor FlatState::MomentsOf(const at::Tensor& moments, const OwnedPiece& piece) {
  return moments.narrow(0, piece.at, piece.flat.size());
}

at::Tensor FlatState::ComputeOf(const OwnedPiece& piece) const {
  return compute_.narrow(0, units_ ? piece.at : piece.flat.begin, piece.flat.size());
}

AdamWBuffers FlatState::UpdateBuffers(const OwnedPiece& piece) const {
  const auto floats = [](const at::Tensor& tensor) { return tensor.data_ptr<float>(); };
  return {floats(MasterOf(piece)), floats(MomentsOf(exp_avg, piece)), floats(MomentsOf(exp_avg_sq, piece)),
          floats(GradientOf(piece)), average.defined() ? floats(MomentsOf(average, piece)) : nullptr};
}

void FlatState::SwapAverages() {
  for (const OwnedPiece& piece : owned_) Swap(MasterOf(piece), MomentsOf(average, piece));
}

void FlatState::Initialize(uint64_t seed) {
  const bool in_gradient = gradient_is_whole() && gradient.is_cpu();
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const Range range = layout_.range(i);
    const at::Tensor values =
        in_gradient ? gradient.narrow(0, range.begin, range.size()) : at::empty({range.size()}, at::kFloat);
    FillInitialTogether(layout_.parameters()[i], seed, Floats(values));
    Set(i, values);
  }
  gradient.zero_();
}

void FlatState::Set(size_t parameter, const at::Tensor& values) {
  const Range range = layout_.range(parameter);
  if (master_is_whole()) Convert(values, master.narrow(0, range.begin, range.size()), device_);
  for (const OwnedPiece& piece : OwnedOf(range)) {
    const at::Tensor mine = values.narrow(0, piece.flat.begin - range.begin, piece.flat.size());
    if (!master_is_whole()) Convert(mine, MasterOf(piece), device_);
    if (average.defined()) Convert(mine, MomentsOf(average, piece), device_);
  }
  if (compute_.defined() && units_) {
    for (const OwnedPiece& piece : OwnedOf(range)) Convert(MasterOf(piece), ComputeOf(piece), device_);
  }
  // The leaf is the master, or apart from it.
  if (!units_ || wide_offsets_[parameter] >= 0) Convert(values, leaves_[parameter].detach(), device_);
}

void FlatState::RefreshOwned() {
  if (!compute_.defined()) return;
  for (const OwnedPiece& piece : owned_) Convert(MasterOf(piece), ComputeOf(piece), device_);
  RefreshWide();
}

void FlatState::RefreshWide() {
  if (!wide_.defined()) return;
  wide_.variable_data().fill_(-0.f);
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const Range range = layout_.range(i);
    if (wide_offsets_[i] < 0) continue;
    for (const OwnedPiece& piece : OwnedOf(range))
      Convert(MasterOf(piece), wide_.narrow(0, wide_offsets_[i] + piece.flat.begin - range.begin, piece.flat.size()),
              device_);
  }
}

}  // namespace trainyard

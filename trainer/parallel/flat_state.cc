#include "trainer/parallel/flat_state.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/model/initialize.h"
#include "trainer/model/parallel_for.h"
#include "trainer/model/with_kernels.h"

namespace trainyard {
namespace {

constexpr int64_t kElementsPerTask = 16384;  // at least

std::span<float> Part(const at::Tensor& flat, int64_t begin, int64_t size) {
  return Floats(flat).subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
}

}  // namespace

std::span<float> Floats(const at::Tensor& flat) { return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())}; }

void Convert(std::span<const float> from, const at::Tensor& to) {
  if (to.data_ptr() == static_cast<const void*>(from.data())) return;  // the same memory
  if (to.scalar_type() == at::kFloat) {
    float* floats = to.data_ptr<float>();
    return ParallelFor(0, static_cast<int64_t>(from.size()), kElementsPerTask, [&](int64_t begin, int64_t end) {
      std::copy(from.data() + begin, from.data() + end, floats + begin);
    });
  }
  WithKernels(to.scalar_type(), [&]<class T>(const kernels::Typed<T>& kernels) {
    auto* halves = static_cast<T*>(to.mutable_data_ptr());
    ParallelFor(0, static_cast<int64_t>(from.size()), kElementsPerTask,
                [&](int64_t begin, int64_t end) { kernels.round(from.data() + begin, halves + begin, end - begin); });
  });
}

FlatState::FlatState(FlatLayout layout, const FlatStateOptions& options)
    : layout_(std::move(layout)), sharded_(!options.shard.empty()) {
  const int64_t total = layout_.total();
  int64_t size = 0;
  for (const Range& range : sharded_ ? options.shard : std::vector<Range>{{0, total}}) {
    owned_.push_back({range, size});
    size += range.size();
  }
  const bool apart = options.precision != Precision::kFp32 || options.offload, in_units = options.in_units;
  const at::ScalarType type = TypeOf(DType::kCompute, options.precision);
  master = at::zeros({apart || in_units ? size : total}, at::kFloat);
  gradient = at::zeros({options.reduce == Reduce::kEvery ? size : total}, at::kFloat);
  for (at::Tensor* moments : {&exp_avg, &exp_avg_sq}) *moments = at::zeros({size}, at::kFloat);
  if (options.averages) average = at::zeros({size}, at::kFloat);
  if (apart) compute_ = at::zeros({in_units ? size : total}, type);
  if (in_units) units_.emplace(layout_, type);
  int64_t wide = 0;
  for (const ParameterSpec& spec : layout_.parameters()) {
    const bool stays = type != at::kFloat && (sharded_ || options.offload) && spec.dtype == DType::kFloat32;
    wide_offsets_.push_back(stays ? wide : -1);
    if (stays) wide += (spec.numel() + kBlock - 1) / kBlock * kBlock;
  }
  if (wide > 0) wide_ = at::zeros({wide}, at::kFloat);
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

std::span<float> FlatState::MasterOf(const OwnedPiece& piece) const {
  return Part(master, master_is_whole() ? piece.flat.begin : piece.at, piece.flat.size());
}

std::span<float> FlatState::GradientOf(const OwnedPiece& piece) const { return Floats(GradientTensor(piece)); }

at::Tensor FlatState::GradientTensor(const OwnedPiece& piece) const {
  return gradient.narrow(0, gradient_is_whole() ? piece.flat.begin : piece.at, piece.flat.size());
}

at::Tensor FlatState::MasterTensor(const OwnedPiece& piece) const {
  return master.narrow(0, master_is_whole() ? piece.flat.begin : piece.at, piece.flat.size());
}

at::Tensor FlatState::ComputeTensor(const OwnedPiece& piece) const {
  return compute_.narrow(0, units_ ? piece.at : piece.flat.begin, piece.flat.size());
}

std::span<float> FlatState::MomentsOf(const at::Tensor& moments, const OwnedPiece& piece) {
  return Part(moments, piece.at, piece.flat.size());
}

AdamWBuffers FlatState::UpdateBuffers(const OwnedPiece& piece) const {
  return {MasterOf(piece).data(), MomentsOf(exp_avg, piece).data(), MomentsOf(exp_avg_sq, piece).data(),
          GradientOf(piece).data(), average.defined() ? MomentsOf(average, piece).data() : nullptr};
}

void FlatState::SwapAverages() {
  for (const OwnedPiece& piece : owned_) std::ranges::swap_ranges(MasterOf(piece), MomentsOf(average, piece));
}

void FlatState::Initialize(uint64_t seed) {
  std::vector<float> room;
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const Range range = layout_.range(i);
    if (!gradient_is_whole()) room.resize(static_cast<size_t>(range.size()));
    const std::span<float> values = gradient_is_whole() ? Part(gradient, range.begin, range.size()) : std::span(room);
    FillInitial(layout_.parameters()[i], seed, values);
    Set(i, values);
  }
  gradient.zero_();
}

void FlatState::Set(size_t parameter, std::span<const float> values) {
  const Range range = layout_.range(parameter);
  if (master_is_whole()) std::ranges::copy(values, Part(master, range.begin, range.size()).begin());
  for (const OwnedPiece& piece : OwnedOf(range)) {
    const std::span<const float> mine =
        values.subspan(static_cast<size_t>(piece.flat.begin - range.begin), static_cast<size_t>(piece.flat.size()));
    if (!master_is_whole()) std::ranges::copy(mine, MasterOf(piece).begin());
    if (average.defined()) std::ranges::copy(mine, MomentsOf(average, piece).begin());
  }
  if (compute_.defined() && units_) {
    for (const OwnedPiece& piece : OwnedOf(range)) Convert(MasterOf(piece), ComputeTensor(piece));
  }
  // The leaf is the master, or apart from it.
  if (!units_ || wide_offsets_[parameter] >= 0) Convert(values, leaves_[parameter].detach().view({range.size()}));
}

void FlatState::RefreshOwned() {
  if (!compute_.defined()) return;
  for (const OwnedPiece& piece : owned_) Convert(MasterOf(piece), ComputeTensor(piece));
  RefreshWide();
}

void FlatState::RefreshWide() {
  if (!wide_.defined()) return;
  std::ranges::fill(Floats(wide_), -0.f);
  for (size_t i = 0; i < layout_.parameters().size(); ++i) {
    const Range range = layout_.range(i);
    if (wide_offsets_[i] < 0) continue;
    for (const OwnedPiece& piece : OwnedOf(range))
      Convert(MasterOf(piece), wide_.narrow(0, wide_offsets_[i] + piece.flat.begin - range.begin, piece.flat.size()));
  }
}

}  // namespace trainyard

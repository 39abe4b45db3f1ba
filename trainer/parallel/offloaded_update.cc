#include "trainer/parallel/offloaded_update.h"

#include <algorithm>

#include "trainer/device/host_device.h"

namespace trainyard {
namespace {

// Of a tile, for pieces of at most so many.
int64_t TileElements(int64_t largest_piece, int64_t tile_bytes) {
  const int64_t most = std::max(kBlock, tile_bytes / static_cast<int64_t>(sizeof(float)) / kBlock * kBlock);
  return std::min(largest_piece, most);
}

int64_t LargestOf(const std::vector<OwnedPiece>& owned) {
  int64_t largest = 0;
  for (const OwnedPiece& piece : owned) largest = std::max(largest, piece.flat.size());
  return largest;
}

}  // namespace

OffloadedUpdate::OffloadedUpdate(FlatState& state, std::unique_ptr<TileCopies> copies, int64_t tile_bytes)
    : state_(state), copies_(std::move(copies)) {
  const int64_t elements = TileElements(LargestOf(state_.owned()), tile_bytes);
  for (size_t i = 0; i < state_.owned().size(); ++i) {
    const OwnedPiece& piece = state_.owned()[i];
    for (int64_t begin = piece.flat.begin; begin < piece.flat.end; begin += elements) {
      const int64_t end = std::min(piece.flat.end, begin + elements);
      tiles_.push_back({i, {{begin, end}, piece.at + begin - piece.flat.begin}, end == piece.flat.end});
    }
  }
  const at::ScalarType type = state_.compute().scalar_type();
  for (size_t slab = 0; slab < kSlabs; ++slab) {
    gradients_[slab] = copies_->HostMemory(elements, at::kFloat);
    // What is not rounded goes from the master itself, but for a device whose copies want memory of their own.
    if (type != at::kFloat || !state_.compute().is_cpu()) rounded_[slab] = copies_->HostMemory(elements, type);
  }
}

int64_t OffloadedUpdate::Bytes(int64_t largest_piece, at::ScalarType compute, int64_t tile_bytes, bool gpu) {
  const int64_t element = 4 + (compute == at::kFloat && !gpu ? 0 : static_cast<int64_t>(c10::elementSize(compute)));
  return TileElements(largest_piece, tile_bytes) * element * static_cast<int64_t>(kSlabs);
}

void OffloadedUpdate::Run(const AdamW& optimizer, const AdamWStep& step,
                          const std::function<void(size_t piece)>& refreshed) {
  const auto is_back = [&](size_t tile) {
    copies_->Wait(returned_[tile % kSlabs]);
    if (tiles_[tile].ends) refreshed(tiles_[tile].owned);
  };
  if (!tiles_.empty()) Fetch(0);
  for (size_t k = 0; k < tiles_.size(); ++k) {
    const OwnedPiece& piece = tiles_[k].piece;
    if (k + 1 < tiles_.size()) Fetch(k + 1);  // into the slab of the tile before, which is over
    copies_->Wait(fetched_[k % kSlabs]);
    AdamWBuffers buffers = state_.UpdateBuffers(piece);
    buffers.gradient = gradients_[k % kSlabs].const_data_ptr<float>();
    optimizer.Step(HostMath(), buffers, piece.flat.begin, piece.flat.end, step);
    returned_[k % kSlabs] = Return(k);
    if (k > 0) is_back(k - 1);
  }
  if (!tiles_.empty()) is_back(tiles_.size() - 1);
}

void OffloadedUpdate::Fetch(size_t tile) {
  const OwnedPiece& piece = tiles_[tile].piece;
  fetched_[tile % kSlabs] =
      copies_->Copy(state_.GradientOf(piece), gradients_[tile % kSlabs].narrow(0, 0, piece.flat.size()));
}

// The slab of rounded values is free: the tile before the last one is back.
TileCopies::Event OffloadedUpdate::Return(size_t tile) {
  const OwnedPiece& piece = tiles_[tile].piece;
  at::Tensor values = state_.MasterOf(piece);
  if (rounded_[0].defined()) {
    const at::Tensor rounded = rounded_[tile % kSlabs].narrow(0, 0, piece.flat.size());
    Convert(values, rounded, state_.device());
    values = rounded;
  }
  return copies_->Copy(values, state_.ComputeOf(piece));
}

}  // namespace trainyard

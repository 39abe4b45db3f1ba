// AdamW of what lies in host memory, a tile after the other (ZeRO-Offload: Ren et al., arXiv 2101.06840).
//
//   copies    gradient of tile k + 1 -> host      new parameters of tile k - 1 -> device
//   threads           AdamW, averages and rounding of tile k
//   network                                       parts of a bucket whose tiles are back
//
// A tile's bits do not depend on where it is cut, so all of them are those of an update without tiles.
#ifndef TRAINYARD_TRAINER_PARALLEL_OFFLOADED_UPDATE_H_
#define TRAINYARD_TRAINER_PARALLEL_OFFLOADED_UPDATE_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/device/tile_copies.h"
#include "trainer/optim/adamw.h"
#include "trainer/parallel/flat_state.h"

namespace trainyard {

// Used by one thread; `state` must outlive it.
class OffloadedUpdate {
 public:
  // `tile_bytes`: of float32. REQUIRES: state.compute() is apart from the master.
  OffloadedUpdate(FlatState& state, std::unique_ptr<TileCopies> copies, int64_t tile_bytes);

  // Bytes of the slabs on a rank that owns pieces of at most `largest_piece` elements; on a GPU also what is not
  // rounded has one to go back through.
  static int64_t Bytes(int64_t largest_piece, at::ScalarType compute, int64_t tile_bytes, bool gpu);

  // Updates what the rank owns. `refreshed` is told the number of each owned piece, ascending, when what forward
  // computes with has its new values; of the leaves that stay float32 it has none (FlatState::RefreshWide).
  void Run(const AdamW& optimizer, const AdamWStep& step, const std::function<void(size_t piece)>& refreshed);

 private:
  static constexpr size_t kSlabs = 2;  // one is used while the other is copied
  struct Tile {
    size_t owned = 0;  // the piece's number
    OwnedPiece piece;  // a part of it
    bool ends = false;
  };
  // The new values of a tile, on their way to what forward computes with.
  TileCopies::Event Return(size_t tile);
  void Fetch(size_t tile);

  FlatState& state_;
  std::unique_ptr<TileCopies> copies_;
  std::vector<Tile> tiles_;  // ascending
  std::array<at::Tensor, kSlabs> gradients_, rounded_;
  std::array<TileCopies::Event, kSlabs> fetched_{}, returned_{};
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_OFFLOADED_UPDATE_H_

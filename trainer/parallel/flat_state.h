// The tensors of a rank: fp32 master parameters, gradients, moments and averages as flat buffers, and
// the leaves that the model computes with.
#ifndef TRAINYARD_TRAINER_PARALLEL_FLAT_STATE_H_
#define TRAINYARD_TRAINER_PARALLEL_FLAT_STATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/device/convert.h"
#include "trainer/device/device.h"
#include "trainer/optim/adamw.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/parallel/memory_plan.h"
#include "trainer/parallel/unit_memory.h"

namespace trainyard {

// A run of elements that a rank owns: it updates and saves them.
struct OwnedPiece {
  Range flat;      // in the layout
  int64_t at = 0;  // of its first element among all that the rank owns
};

// What of a layout a rank holds.
struct FlatStateOptions {
  Precision precision = Precision::kFp32;
  // What this rank owns, ascending; empty: everything, alone or as every other rank does. Of a shard the moments, the
  // averages and, where forward computes with another type, the master are held, and nothing of them beyond it; with
  // kEvery the gradient, too.
  std::vector<Range> shard;
  Reduce reduce = Reduce::kLast;
  bool in_units = false;  // of the parameters, too: the leaves have memory while `units` gives it to them
  bool averages = false;
  // What the optimizer works on lies in host memory: forward computes with copies of the master, in float32, too.
  bool offload = false;
};

class FlatState {
 public:
  // Allocates everything, 64-byte aligned and zero, padding included: on `device`, which must outlive it, but for what
  // `offload` leaves to the host. The leaves are views of the master, or, apart from it, copies in the type of
  // `precision` (except those declared as DType::kFloat32).
  FlatState(FlatLayout layout, const FlatStateOptions& options, Device& device);

  const FlatLayout& layout() const { return layout_; }
  Device& device() const { return device_; }
  bool sharded() const { return sharded_; }

  // Float32. The gradient: (total), or (owned) with kEvery. The moments: (owned). The averages: (owned), undefined
  // where there are none. The master: (total) where the leaves are views of it or the rank owns everything, else
  // (owned).
  at::Tensor master, gradient, exp_avg, exp_avg_sq, average;
  bool master_is_whole() const { return master.numel() == layout_.total(); }
  bool gradient_is_whole() const { return gradient.numel() == layout_.total(); }

  // Ascending; together what the rank owns.
  const std::vector<OwnedPiece>& owned() const { return owned_; }
  // The parts of `range` that the rank owns, ascending.
  std::vector<OwnedPiece> OwnedOf(Range range) const;
  // Views of a piece: of its master, its gradient, of (owned) tensors as the moments are, and of what forward computes
  // with. REQUIRES, of the last: compute() is defined.
  at::Tensor MasterOf(const OwnedPiece& piece) const;
  at::Tensor GradientOf(const OwnedPiece& piece) const;
  static at::Tensor MomentsOf(const at::Tensor& moments, const OwnedPiece& piece);
  at::Tensor ComputeOf(const OwnedPiece& piece) const;
  // What the optimizer works on: element 0 is the piece's first.
  AdamWBuffers UpdateBuffers(const OwnedPiece& piece) const;

  // Leaf i belongs to parameter i of the layout, in its shape; requires_grad.
  const std::vector<at::Tensor>& leaves() const { return leaves_; }
  // What forward computes with where that is apart from the master: (total), with `in_units` (owned); else undefined.
  const at::Tensor& compute() const { return compute_; }
  // What leaves have no memory of their own for; nothing where they have.
  std::optional<UnitMemory>& units() { return units_; }
  // What the rank owns of what forward computes with: (owned). REQUIRES: units().
  const at::Tensor& parameter_shard() const { return compute_.defined() ? compute_ : master; }
  // The leaves that stay float32 beside `compute` where the master is not whole, or not at hand: (n), undefined where
  // there are none.
  const at::Tensor& wide() const { return wide_; }
  bool IsWide(size_t parameter) const { return wide_offsets_[parameter] >= 0; }

  // Sets every parameter to its Initial, the same for every world size. Uses `gradient` where that is whole and the
  // host's.
  void Initialize(uint64_t seed);
  // Exchanges the averages with what is owned of the master.
  void SwapAverages();
  // Sets the whole of a parameter, float32 (numel), wherever it lies: what the rank owns of its master and average, and
  // what forward computes with.
  void Set(size_t parameter, const at::Tensor& values);
  // After what is owned of the master has changed: that part of what forward computes with. The rest of `wide` becomes
  // -0, which leaves every float as it is when it is added to it.
  void RefreshOwned();
  // Of `wide` alone.
  void RefreshWide();

 private:
  FlatLayout layout_;
  Device& device_;
  bool sharded_;
  std::vector<OwnedPiece> owned_;
  std::optional<UnitMemory> units_;
  at::Tensor compute_, wide_;
  std::vector<int64_t> wide_offsets_;  // of each parameter in `wide`; -1: it is not there
  std::vector<at::Tensor> leaves_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_FLAT_STATE_H_

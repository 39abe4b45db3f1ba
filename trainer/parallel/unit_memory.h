// Leaves without memory of their own: a unit's are whole while it is bound to one of a few slots (ZeRO 3).
#ifndef TRAINYARD_TRAINER_PARALLEL_UNIT_MEMORY_H_
#define TRAINYARD_TRAINER_PARALLEL_UNIT_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorOptions.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/parallel/flat_layout.h"

namespace trainyard {

// Each slot is as large as the largest unit. What autograd keeps of a leaf keeps no memory: it shares the storage that
// a unit's leaves have together, and finds the values again when the unit is bound again, wherever that is.
// Used by one thread; bound units may be written to by another.
class UnitMemory {
 public:
  // One unit computes while the next one comes.
  static constexpr size_t kSlots = 2;

  UnitMemory(const FlatLayout& layout, at::ScalarType type, at::Device device);
  // What the slots take.
  static int64_t Bytes(const FlatLayout& layout, at::ScalarType type);

  // Of parameter i of the layout, in its shape. Reading it while its unit is not bound ends the process: its address is
  // null.
  at::Tensor Leaf(size_t i) const;

  // A unit's whole parameters in a slot: where `range` of the layout, which lies in one run of the unit, is.
  at::Tensor In(size_t slot, UnitId unit, Range range) const;
  void Bind(size_t slot, UnitId unit);
  void Unbind(UnitId unit);

 private:
  struct Unit {
    std::vector<UnitRun> runs;
    int64_t size = 0;  // elements of all of them
    at::Storage storage;
  };
  static std::vector<Unit> UnitsOf(const FlatLayout& layout);
  static int64_t PlaceOf(const Unit& unit, int64_t flat);
  Unit& Of(UnitId unit) { return units_[static_cast<size_t>(unit.index)]; }
  const Unit& Of(UnitId unit) const { return units_[static_cast<size_t>(unit.index)]; }

  const at::TensorOptions options_;
  std::vector<Unit> units_;  // by UnitId; those that train nothing are empty
  std::vector<ParameterSpec> parameters_;
  std::vector<Range> ranges_;
  std::array<at::Tensor, kSlots> slots_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_UNIT_MEMORY_H_

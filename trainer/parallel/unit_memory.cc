#include "trainer/parallel/unit_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/set.h>

#include <algorithm>

namespace trainyard {

std::vector<UnitMemory::Unit> UnitMemory::UnitsOf(const FlatLayout& layout) {
  std::vector<Unit> units;
  for (const UnitRun& run : layout.runs()) {
    const auto index = static_cast<size_t>(run.unit.index);
    if (units.size() <= index) units.resize(index + 1);
    units[index].runs.push_back(run);
    units[index].size += run.range.size();
  }
  return units;
}

int64_t UnitMemory::Bytes(const FlatLayout& layout, at::ScalarType type) {
  int64_t largest = 0;
  for (const Unit& unit : UnitsOf(layout)) largest = std::max(largest, unit.size);
  return largest * static_cast<int64_t>(kSlots * c10::elementSize(type));
}

UnitMemory::UnitMemory(const FlatLayout& layout, at::ScalarType type, at::Device device)
    : options_(at::TensorOptions(type).device(device)), units_(UnitsOf(layout)), parameters_(layout.parameters()) {
  const int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (size_t i = 0; i < parameters_.size(); ++i) ranges_.push_back(layout.range(i));
  for (Unit& unit : units_)
    unit.storage = at::Storage(at::Storage::use_byte_size_t(), static_cast<size_t>(unit.size * bytes),
                               at::DataPtr(nullptr, device), nullptr, false);
  const int64_t slot = Bytes(layout, type) / static_cast<int64_t>(kSlots) / bytes;
  for (at::Tensor& memory : slots_) memory = at::empty({slot}, options_);
}

int64_t UnitMemory::PlaceOf(const Unit& unit, int64_t flat) {
  int64_t before = 0;
  for (const UnitRun& run : unit.runs) {
    if (flat >= run.range.begin && flat < run.range.end) return before + flat - run.range.begin;
    before += run.range.size();
  }
  return before;
}

at::Tensor UnitMemory::Leaf(size_t i) const {
  const Unit& unit = Of(parameters_[i].unit);
  at::Tensor leaf = at::empty({0}, options_);
  std::vector<int64_t> strides(parameters_[i].shape.size(), 1);
  for (size_t d = strides.size(); d > 1; --d) strides[d - 2] = strides[d - 1] * parameters_[i].shape[d - 1];
  leaf.set_(unit.storage, PlaceOf(unit, ranges_[i].begin), parameters_[i].shape, strides);
  return leaf;
}

at::Tensor UnitMemory::In(size_t slot, UnitId unit, Range range) const {
  return slots_[slot].narrow(0, PlaceOf(Of(unit), range.begin), range.size());
}

void UnitMemory::Bind(size_t slot, UnitId unit) {
  Of(unit).storage.set_data_ptr_noswap(at::DataPtr(slots_[slot].data_ptr(), options_.device()));
}

void UnitMemory::Unbind(UnitId unit) { Of(unit).storage.set_data_ptr_noswap(at::DataPtr(nullptr, options_.device())); }

}  // namespace trainyard

#include "trainer/train/best_weights.h"

#include <algorithm>

namespace trainyard {
namespace {

std::vector<StateSlice> WeightsOf(Engine& engine) {
  std::vector<StateSlice> slices = engine.Slices();
  std::erase_if(slices, [](const StateSlice& slice) { return slice.key.starts_with("adamw."); });
  return slices;
}

}  // namespace

void BestWeights::Keep(Engine& engine) {
  std::vector<StateSlice> weights = WeightsOf(engine);
  kept_.resize(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    kept_[i].of = std::move(weights[i]);
    kept_[i].values.assign(kept_[i].of.values.begin(), kept_[i].of.values.end());
  }
}

void BestWeights::Restore(Engine& engine) const {
  const std::vector<StateSlice> weights = WeightsOf(engine);
  for (size_t i = 0; i < weights.size(); ++i)
    std::copy(kept_[i].values.begin(), kept_[i].values.end(), weights[i].values.begin());
  engine.Publish();
}

std::vector<StateSlice> BestWeights::Slices() {
  std::vector<StateSlice> slices;
  for (Kept& kept : kept_) {
    slices.push_back(kept.of);
    slices.back().key = "best." + kept.of.key;
    slices.back().values = kept.values;
  }
  return slices;
}

}  // namespace trainyard

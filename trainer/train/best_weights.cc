#include "trainer/train/best_weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <set>

namespace trainyard {
namespace {

const std::string kAverage = "ema.", kModel = "model.";

// An average's is that of its parameter: whether a run has averages may change when it goes on.
std::string KeptKey(const std::string& key) {
  return key.starts_with(kAverage) ? kModel + key.substr(kAverage.size()) : key;
}

// What is evaluated.
std::vector<StateSlice> WeightsOf(Engine& engine) {
  std::vector<StateSlice> slices = engine.Slices();
  std::set<std::string> averaged;
  for (const StateSlice& slice : slices) {
    if (slice.key.starts_with(kAverage)) averaged.insert(KeptKey(slice.key));
  }
  std::erase_if(
      slices, [&](const StateSlice& slice) { return slice.key.starts_with("adamw.") || averaged.contains(slice.key); });
  for (StateSlice& slice : slices) slice.key = KeptKey(slice.key);
  return slices;
}

}  // namespace

void BestWeights::Keep(Engine& engine) {
  std::vector<StateSlice> weights = WeightsOf(engine);
  kept_.resize(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    kept_[i].of = std::move(weights[i]);
    at::Tensor& values = kept_[i].values;
    if (!values.defined() || values.sizes() != kept_[i].of.values.sizes())
      values = at::empty(kept_[i].of.values.sizes(), at::kFloat);
    values.copy_(kept_[i].of.values);
    kept_[i].of.values.reset();  // the engine may go
  }
}

void BestWeights::Restore(Engine& engine) const {
  std::map<std::pair<std::string, int64_t>, const Kept*> kept;
  for (const Kept& slice : kept_) kept[{slice.of.key, slice.of.begin}] = &slice;
  for (const StateSlice& slice : engine.Slices()) {
    const auto found = kept.find({KeptKey(slice.key), slice.begin});
    if (found != kept.end()) slice.values.copy_(found->second->values);
  }
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

#include "trainer/task/mace_survival/survival_batch.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/task/mace_survival/cox_function.h"
#include "trainer/task/mace_survival/risk_model.h"

namespace trainyard::mace {

void FillBatch(std::span<const Sample* const> samples, const std::vector<int64_t>& volume, int64_t features,
               SurvivalBatch& batch) {
  const int64_t B = std::ssize(samples), places = volume[0] * volume[1] * volume[2];
  batch.volumes = at::zeros({B, 1, volume[0], volume[1], volume[2]}, at::kFloat);
  batch.facts = at::zeros({B, GatheredRow::kColumns - 1}, at::kFloat);
  batch.features = at::zeros({B, features}, at::kFloat);
  batch.denominators = {0, 0};
  for (int64_t b = 0; b < B; ++b) {
    const auto* sample = static_cast<const VolumeSample*>(samples[static_cast<size_t>(b)]);
    float* row = batch.facts.data_ptr<float>() + b * batch.facts.size(1);
    const auto set = [row](int64_t column, float value) { row[column - 1] = value; };  // without the risk
    set(GatheredRow::kPlace, -1);                                                      // nobody's
    if (!sample) continue;
    const Subject& subject = *sample->subject;
    const SplitTime time = Split(subject.outcome.time);
    set(GatheredRow::kTime, time.time);
    set(GatheredRow::kTimeRest, time.rest);
    set(GatheredRow::kEvent, subject.outcome.event ? 1 : 0);
    set(GatheredRow::kPlace, sample->place);
    set(GatheredRow::kPresent, 1);
    std::ranges::copy(sample->volume.values, batch.volumes.data_ptr<float>() + b * places);
    if (features > 0) std::ranges::copy(subject.features, batch.features.data_ptr<float>() + b * features);
    batch.denominators[0] += subject.outcome.event ? 1 : 0;
    batch.denominators[1] += 1;
  }
}

}  // namespace trainyard::mace

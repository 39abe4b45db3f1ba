#include "trainer/train/inputs.h"

#include "trainer/base/hash.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {

std::unique_ptr<Loader> MakeLoader(const Config& config, const Plan& plan, std::span<const StageRun> stages,
                                   const Task& task, int rank, const Decisions& decisions, int64_t first, int64_t end) {
  const auto seed = static_cast<uint64_t>(config.run.seed);
  std::vector<int64_t> stage_ends;
  for (const StageRun& stage : stages) stage_ends.push_back(stage.end);
  const Range share = plan.ShareOf(rank);
  return std::make_unique<Loader>(
      task.dataset(),
      SampleStream(task.MakeOrder(seed), seed, config.data.last == "drop" ? EpochEnd::kDrop : EpochEnd::kCarry,
                   plan.global_batch),
      [&task](std::span<const Sample* const> samples) {
        const OneLibraryThread one_thread;
        return task.Collate(samples);
      },
      ShareLayout{plan.global_batch, share.begin, share.end, plan.micro}, first, end,
      LoaderOptions{.threads = decisions.loader.count,
                    .prefetch = decisions.prefetch,
                    .hash_inputs = !config.train.record.empty(),
                    .skip_bad = config.faults.bad_sample == "skip",
                    .stage_ends = std::move(stage_ends)});
}

GatheredInputs GatherInputs(const Share& share, ControlPlane& control) {
  std::vector<int64_t> ids, hashes;
  for (const auto& batch : share) {
    ids.insert(ids.end(), batch->ids.begin(), batch->ids.end());
    hashes.insert(hashes.end(), batch->input_hashes.begin(), batch->input_hashes.end());
  }
  hashes.resize(ids.size(), 0);
  GatheredInputs gathered;
  gathered.ids = control.AllGatherNow(ids, "record");
  const std::vector<int64_t> all = control.AllGatherNow(hashes, "record");
  gathered.hash = Xxh3Of(std::span<const int64_t>(all));
  return gathered;
}

}  // namespace trainyard

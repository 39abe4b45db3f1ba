#include "trainer/task/hybrid_vit_cascade/cascade_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "trainer/task/hybrid_vit_cascade/cascade_evaluation.h"
#include "trainer/task/hybrid_vit_cascade/cascade_loss.h"

namespace trainyard::hvc {
namespace {

class CascadeTask : public Task {
 public:
  explicit CascadeTask(const Config& config)
      : options_(OptionsOf(config)),
        seed_(static_cast<uint64_t>(config.run.seed)),
        steps_(options_.StageSteps(config)),
        first_(static_cast<size_t>(options_.first_stage - 1)),
        patients_(config.data.path, options_),
        skip_bad_(config.faults.bad_sample == "skip"),
        means_(patients_, skip_bad_),
        train_(patients_, options_, first_),
        model_(Scope(declaration_), options_.shape(), options_.timesteps) {}

  const Dataset& dataset() const override { return train_; }

  std::unique_ptr<Batch> Collate(std::span<const Sample* const> samples) const override {
    auto batch = std::make_unique<CascadeBatch>();
    FillBatch(samples, patients_.shape(), model_.schedule(), options_.previous_noise, first_, *batch);
    return batch;
  }

  const ModelDeclaration& model() const override { return declaration_; }
  size_t num_terms() const override { return 2; }
  std::vector<std::string> train_metrics() const override { return {"train/diffusion", "train/physics"}; }

  LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double> denominators) const override {
    const auto& given = static_cast<const CascadeBatch&>(batch);
    const size_t stage = first_ + static_cast<size_t>(given.stage);
    CascadeBatch nothing;  // where no sample could be read: zeros of the stage's size, so that ranks do the same
    const bool read = given.denominators[0] > 0;
    if (!read) {
      const std::vector<const Sample*> null(given.ids.size(), nullptr);
      FillBatch(null, patients_.shape(), model_.schedule(), 0, stage, nothing);
    }
    const CascadeBatch& b = read ? given : nothing;
    const SampleLosses losses = LossesOf(model_, pass, stage, b, options_.intensity, options_.times());
    const at::Tensor weight = pass.Upload(b.weight);
    const at::Tensor diffusion = (losses.diffusion * weight).sum(), physics = (losses.physics * weight).sum();
    const double samples = std::max(1.0, denominators[0]), weights = std::max(1e-12, denominators[1]);
    const at::Tensor share = diffusion / samples + physics * (options_.stage[stage].physics / samples);
    return {share, at::stack({diffusion.detach() / samples, physics.detach() / weights}).to(at::kDouble)};
  }

  std::unique_ptr<Evaluation> Evaluate(EvaluationKind kind, int64_t step, Weights& weights, int rank,
                                       int world) const override {
    return MakeCascadeEvaluation({.model = model_,
                                  .weights = weights,
                                  .patients = patients_,
                                  .means = means_,
                                  .options = options_,
                                  .stage = first_ + StageAt(step),
                                  .thorough = kind == EvaluationKind::kFinal,
                                  .skip_bad = skip_bad_,
                                  .seed = seed_,
                                  .rank = rank,
                                  .world = world});
  }

 private:
  // That of a step that was made; of none, which is outside of a run, the last.
  size_t StageAt(int64_t step) const {
    size_t stage = 0;
    for (int64_t end = steps_[0]; step > end && stage + 1 < steps_.size(); end += steps_[++stage]) continue;
    return step == 0 ? steps_.size() - 1 : stage;
  }

  const Options options_;
  const uint64_t seed_;
  const std::vector<int64_t> steps_;
  const size_t first_;
  const Patients patients_;
  const bool skip_bad_;
  const MeanVolumes means_;
  const TrainingSet train_;
  ModelDeclaration declaration_;
  const CascadeModel model_;
};

}  // namespace

void DeclareCascade(const Config& config, ModelDeclaration& model) {
  const Options& options = OptionsOf(config);
  CascadeModel(Scope(model), options.shape(), options.timesteps);
}

std::vector<Stage> CascadeStages(const Config& config) {
  const Options& options = OptionsOf(config);
  std::vector<Stage> stages;
  for (const int64_t steps : options.StageSteps(config)) {
    const size_t index = static_cast<size_t>(options.first_stage - 1) + stages.size();
    Stage stage;
    stage.name = "stage" + std::to_string(index + 1);
    stage.steps = steps;
    stage.trainable = TrainedBy(index);
    stage.from_best = options.from_best && !stages.empty();
    stages.push_back(stage);
  }
  return stages;
}

std::unique_ptr<Task> BuildCascadeTask(const Config& config) { return std::make_unique<CascadeTask>(config); }

}  // namespace trainyard::hvc

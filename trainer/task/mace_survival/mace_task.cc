#include "trainer/task/mace_survival/mace_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "trainer/task/mace_survival/cox_function.h"
#include "trainer/task/mace_survival/event_order.h"
#include "trainer/task/mace_survival/survival_batch.h"
#include "trainer/task/mace_survival/survival_evaluation.h"
#include "trainer/task/sample_cache.h"

namespace trainyard::mace {
namespace {

constexpr int kPretraining = 0;  // where there is any, it is the first stage

std::vector<uint8_t> EventsOf(const std::vector<Subject>& subjects) {
  std::vector<uint8_t> events;
  for (const Subject& subject : subjects) events.push_back(subject.outcome.event ? 1 : 0);
  return events;
}

VolumeOptions VolumesOf(const Options& options, bool augment) {
  return {options.shape().volume, options.window[0], options.window[1], augment};
}

// Of the training fold.
SmartCacheOptions CacheOf(const Config& config, const Options& options, int64_t subjects) {
  const std::vector<int64_t> size = options.shape().volume;
  return CacheOptionsOf(config, options.cache, subjects, size[0] * size[1] * size[2] * int64_t{sizeof(float)},
                        PreparationOf(VolumesOf(options, false)).description());
}

std::vector<const Subject*> Pointers(std::initializer_list<const std::vector<Subject>*> folds) {
  std::vector<const Subject*> pointers;
  for (const std::vector<Subject>* fold : folds) {
    for (const Subject& subject : *fold) pointers.push_back(&subject);
  }
  return pointers;
}

class MaceTask : public Task {
 public:
  explicit MaceTask(const Config& config)
      : options_(OptionsOf(config)),
        volume_(options_.shape().volume),
        cohort_(config.data.path, {options_.image_column, options_.fold_column,
                                   options_.pretrains() ? OptionalInt(options_.model.features) : std::nullopt}),
        scaling_(cohort_.FitScaling()),
        cache_(CacheOf(config, options_, std::ssize(cohort_.train()))),
        training_(MakeVolumes(cohort_, Pointers({&cohort_.train()}), VolumesOf(options_, options_.augment), cache_)),
        evaluated_(MakeVolumes(cohort_, Pointers({&cohort_.val(), &cohort_.train()}), VolumesOf(options_, false))),
        truth_(ReadTruth(cohort_.table())),
        only_pretrains_(options_.only_pretrains(config)),
        skip_bad_(config.faults.bad_sample == "skip"),
        threads_(config.data.workers),
        model_(Scope(declaration_), options_) {}

  const Dataset& dataset() const override { return *training_; }
  std::shared_ptr<const Order> MakeOrder(uint64_t seed) const override {
    if (!options_.event_fraction) return MakeWindowOrder(cache_.length, cache_.window, seed);
    return std::make_shared<EventOrder>(EventsOf(cohort_.train()), *options_.event_fraction, options_.pretrain_epochs,
                                        cache_.window, seed);
  }
  std::unique_ptr<Batch> Collate(std::span<const Sample* const> samples) const override {
    auto batch = std::make_unique<SurvivalBatch>();
    FillBatch(samples, volume_, std::ssize(cohort_.feature_names()), *batch);
    return batch;
  }

  const ModelDeclaration& model() const override { return declaration_; }
  // Risk sets and batch norms are of a step's whole batch.
  bool batch_coupled() const override { return true; }
  size_t num_terms() const override { return 2; }
  // Train/Events says where a loss of 0 comes from: a batch without an event has none.
  std::vector<std::string> train_metrics() const override { return {"Train/Loss", "Train/Events"}; }
  SampleWork WorkPerSample() const override {
    const ModelShape shape = options_.shape();
    return {.tokens = {}, .flops = FlopsOf({shape.layers, shape.width, shape.first_stride}, volume_)};
  }

  LossResult Loss(const Pass& pass, const Batch& given, std::span<const double> denominators) const override {
    const auto& b = static_cast<const SurvivalBatch&>(given);
    const at::Tensor facts = pass.Upload(b.facts), present = b.facts.select(1, GatheredRow::kPresent - 1);
    GlobalBatch batch{facts.select(1, GatheredRow::kPresent - 1), at::zeros({}, facts.options())};
    const Predictions of = model_.Forward(pass, pass.Upload(b.volumes), batch);
    if (options_.pretrains()) model_.StageScaling(pass, scaling_);
    const at::Tensor share = options_.pretrains() && pass.stage() == kPretraining
                                 ? FeatureLoss(pass, of, b, batch, denominators[1])
                                 : CoxShare(pass, of, facts, b, denominators[0]);
    const double events = present.dot(b.facts.select(1, GatheredRow::kEvent - 1)).item<double>();
    const at::Tensor loss = share.detach().to(at::kDouble);
    return {share + batch.nothing, at::stack({loss, at::full({}, events, loss.options())})};
  }

  std::unique_ptr<Evaluation> Evaluate(EvaluationKind kind, int64_t, Weights& weights, int rank,
                                       int world) const override {
    return MakeSurvivalEvaluation({.model = model_,
                                   .weights = weights,
                                   .cohort = cohort_,
                                   .volumes = *evaluated_,
                                   .size = volume_,
                                   .truth = truth_,
                                   .scaling = scaling_,
                                   .final = kind == EvaluationKind::kFinal,
                                   .only_pretrains = only_pretrains_,
                                   .skip_bad = skip_bad_,
                                   .threads = threads_,
                                   .rank = rank,
                                   .world = world});
  }

 private:
  // The part of the negative log partial likelihood that this rank's events have, over risk sets of all ranks.
  at::Tensor CoxShare(const Pass& pass, const Predictions& of, const at::Tensor& facts, const SurvivalBatch& b,
                      double events) const {
    const at::Tensor rows = model_.Gather(pass, at::cat({of.risk.unsqueeze(1), facts}, 1));
    const GatheredLoss loss = GlobalCoxLoss(rows, b.facts.select(1, GatheredRow::kPlace - 1));
    return loss.sum * (events > 0 ? 1 / events : 0);
  }
  // The mean squared error of the scaled features.
  at::Tensor FeatureLoss(const Pass& pass, const Predictions& of, const SurvivalBatch& b, GlobalBatch& batch,
                         double samples) const {
    model_.GatherNothing(pass, batch);
    const at::Tensor targets = pass.Upload((b.features - Tensor(scaling_.mean)) / Tensor(scaling_.deviation));
    const at::Tensor errors = (of.features - targets).square().sum(1) * batch.present;
    return errors.sum() / (samples * static_cast<double>(scaling_.mean.size()));
  }
  static at::Tensor Tensor(const std::vector<float>& values) {
    return at::from_blob(const_cast<float*>(values.data()), {std::ssize(values)}, at::kFloat);
  }

  const Options options_;
  const std::vector<int64_t> volume_;
  const Cohort cohort_;
  const Scaling scaling_;
  const SmartCacheOptions cache_;
  const std::unique_ptr<Dataset> training_, evaluated_;
  const std::map<std::string, double> truth_;
  const bool only_pretrains_, skip_bad_;
  const OptionalInt threads_;
  ModelDeclaration declaration_;
  RiskModel model_;
};

}  // namespace

void DeclareRiskModel(const Config& config, ModelDeclaration& model) { RiskModel(Scope(model), OptionsOf(config)); }

std::vector<Stage> StagesOf(const Config& config) {
  const Options& options = OptionsOf(config);
  const std::vector<std::string> body = {"conv1.*", "bn1.*", "layer*"};
  const auto with = [&](const char* head) {
    std::vector<std::string> patterns = body;
    patterns.emplace_back(head);
    return patterns;
  };
  std::vector<Stage> stages;
  const auto add = [&](const char* name, int64_t epochs, std::vector<std::string> trainable,
                       std::vector<std::string> metrics) {
    Stage& stage = stages.emplace_back();
    stage.name = name;
    stage.epochs = epochs;
    stage.trainable = std::move(trainable);
    stage.metrics = std::move(metrics);
  };
  const std::vector<std::string> of_risk = {kConcordance, kRiskLoss};
  if (options.pretrains())
    add("pretrain", options.only_pretrains(config) ? 0 : options.pretrain_epochs, with("features.*"), {kFeatureLoss});
  if (options.only_pretrains(config)) return stages;
  if (options.freeze_epochs > 0) add("head", options.freeze_epochs, {"fc.*"}, of_risk);
  if (stages.empty()) return {Stage{}};
  add("finetune", 0, with("fc.*"), of_risk);
  return stages;
}

std::unique_ptr<Task> BuildMaceTask(const Config& config) { return std::make_unique<MaceTask>(config); }

}  // namespace trainyard::mace

#include "trainer/task/mace_survival/survival_evaluation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "common/cpus.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/data/loader.h"
#include "trainer/task/mace_survival/fold_scores.h"
#include "trainer/task/mace_survival/survival_batch.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard::mace {
namespace {

// Volumes of a forward, the same for every world size: four, and of large ones, whose activations would take more than
// training's of a small share, one.
constexpr int64_t kGroup = 4, kManyVoxels = int64_t{1} << 21;
constexpr int64_t kMostThreads = 4;
constexpr int kRiskBuckets = 30;

// 0, 1, 2, ...
class InOrder : public Order {
 public:
  explicit InOrder(int64_t items) : items_(items) {}
  int64_t items() const override { return items_; }
  int64_t ItemAt(int64_t, int64_t position) const override { return position; }

 private:
  int64_t items_;
};

int64_t GroupOf(const std::vector<int64_t>& size) { return size[0] * size[1] * size[2] > kManyVoxels ? 1 : kGroup; }

// Slots: each subject's risk; whether its volume could be read; then, with pre-training, each val subject's mean
// squared error of the features.
class SurvivalEvaluation : public Evaluation {
 public:
  explicit SurvivalEvaluation(const EvaluationSetup& setup)
      : setup_(setup),
        val_(std::ssize(setup.cohort.val())),
        count_(val_ + (setup.final ? std::ssize(setup.cohort.train()) : 0)),
        group_(GroupOf(setup.size)) {
    slots_.assign(static_cast<size_t>(2 * count_ + (features() > 0 ? val_ : 0)), 0);
  }

  int num_chunks() const override {
    const int64_t together = group_ * setup_.world;
    return static_cast<int>((count_ + together - 1) / together);
  }

  void RunChunk(int chunk) override {
    const c10::InferenceMode inference;
    if (!loader_) StartLoader();
    const Share share = loader_->Next();
    const auto& batch = static_cast<const SurvivalBatch&>(*share.at(0));
    RequireVal(batch);
    const Pass pass = Pass::Evaluation(setup_.weights);
    const at::Tensor facts = pass.Upload(batch.facts);
    GlobalBatch all{facts.select(1, GatheredRow::kPresent - 1), at::zeros({}, facts.options())};
    const Predictions of = OnHost(setup_.model.Forward(pass, pass.Upload(batch.volumes), all));
    const at::Tensor errors = features() > 0 ? FeatureErrors(pass, of, batch) : at::Tensor();
    const int64_t first = (int64_t{chunk} * setup_.world + setup_.rank) * group_;
    for (int64_t i = 0; i < group_ && first + i < count_; ++i) {
      if (batch.facts[i][GatheredRow::kPresent - 1].item<float>() == 0) continue;  // it could not be read
      slots_[static_cast<size_t>(first + i)] = of.risk[i].item<double>();
      slots_[static_cast<size_t>(count_ + first + i)] = 1;
      if (errors.defined() && first + i < val_)
        slots_[static_cast<size_t>(2 * count_ + first + i)] = errors[i].item<double>();
    }
  }

  std::vector<double>& slots() override { return slots_; }

  std::map<std::string, double> Metrics() const override {
    const FoldScores scores = Scores();
    std::map<std::string, double> metrics = {{kConcordance, scores.concordance}, {kRiskLoss, scores.loss}};
    for (const auto& [year, auc] : scores.auc) metrics[Format("Val/tAUC@%dy", year)] = auc;
    for (const auto& [year, brier] : scores.brier) metrics[Format("Val/Brier@%dy", year)] = brier;
    if (scores.integrated_brier) metrics["Val/IBS"] = *scores.integrated_brier;
    if (scores.train_concordance) metrics["Train/Cindex"] = *scores.train_concordance;
    if (scores.oracle) metrics["Val/Cindex_oracle"] = *scores.oracle;
    if (features() > 0) metrics[kFeatureLoss] = FeatureLoss();
    return metrics;
  }

  std::vector<EventContent> Artifacts() const override {
    std::vector<EventContent> artifacts;
    const std::vector<RiskGroup> groups = ByThirds(Risks(0, val_), setup_.cohort.val());
    for (const RiskGroup& group : groups) artifacts.emplace_back(AsCurve("Val/Survival_" + group.name, group.survival));
    if (!groups.empty()) artifacts.emplace_back(PlotSurvival("Val/Survival", groups));
    artifacts.emplace_back(HistogramOf("Val/Risk", Risks(0, val_), kRiskBuckets));
    if (!setup_.final) return artifacts;
    artifacts.emplace_back(AsCurve("Train/Baseline_hazard", Scores().baseline));
    Curve risks{"Val/Risk", {}, Risks(0, val_)};
    for (int64_t i = 0; i < val_; ++i) risks.x.push_back(static_cast<double>(i));
    artifacts.emplace_back(std::move(risks));
    return artifacts;
  }

  std::string Table() const override {
    if (!setup_.final) return "";
    if (setup_.only_pretrains)
      return Format("val: %lld subjects; feature loss %.4f (of pre-training alone: nothing has trained the risk)\n",
                    static_cast<long long>(val_), FeatureLoss());
    return TableOf(Scores(), setup_.cohort);
  }

 private:
  double FeatureLoss() const {
    double sum = 0;
    for (int64_t i = 0; i < val_; ++i) sum += slots_[static_cast<size_t>(2 * count_ + i)];
    return sum / static_cast<double>(val_);
  }
  int64_t features() const { return std::ssize(setup_.cohort.feature_names()); }

  void StartLoader() {
    const int64_t threads = setup_.threads.value_or(std::min<int64_t>(AvailableCpus().count, kMostThreads));
    const int64_t together = group_ * setup_.world, begin = setup_.rank * group_;
    // What the last chunk has too few subjects for begins again from the first; nobody looks at that.
    SampleStream stream(std::make_shared<InOrder>(count_), 0, EpochEnd::kCarry, together);
    loader_ = std::make_unique<Loader>(
        setup_.volumes, std::move(stream),
        [this](std::span<const Sample* const> samples) -> std::unique_ptr<Batch> {
          const OneLibraryThread one_thread;
          auto batch = std::make_unique<SurvivalBatch>();
          FillBatch(samples, setup_.size, features(), *batch);
          return batch;
        },
        ShareLayout{together, begin, begin + group_, group_}, 0, num_chunks(),
        LoaderOptions{.threads = static_cast<int>(std::clamp<int64_t>(threads, 1, kGroup * 2)),
                      .skip_bad = setup_.skip_bad});
  }

  // What was left out of training is left out of what is said about it. A metric over some of the val fold would be no
  // other run's.
  void RequireVal(const Batch& batch) const {
    for (const SkippedSample& skipped : batch.skipped) {
      if (skipped.id < val_) throw DataError(skipped.error);
      std::fprintf(stderr,
                   "warning: left out of the baseline hazard and of Train/Cindex: %s (faults.bad_sample: skip)\n",
                   skipped.error.c_str());
    }
  }

  // (B): of the features, scaled as the weights say.
  static Predictions OnHost(const Predictions& of) {
    return {of.risk.cpu(), of.features.defined() ? of.features.cpu() : at::Tensor()};
  }

  at::Tensor FeatureErrors(const Pass& pass, const Predictions& of, const SurvivalBatch& batch) const {
    at::Tensor mean = setup_.model.mean(pass).cpu(), deviation = setup_.model.deviation(pass).cpu();
    if (!deviation.any().item<bool>()) {  // weights that were never trained
      const auto tensor = [](const std::vector<float>& values) {
        return at::from_blob(const_cast<float*>(values.data()), {std::ssize(values)}, at::kFloat);
      };
      mean = tensor(setup_.scaling.mean);
      deviation = tensor(setup_.scaling.deviation);
    }
    return (of.features - (batch.features - mean) / deviation).square().mean(1);
  }

  std::vector<double> Risks(int64_t begin, int64_t end) const { return {slots_.begin() + begin, slots_.begin() + end}; }
  FoldScores Scores() const {
    TrainingRisks train;
    for (int64_t i = val_; i < count_; ++i) {
      if (slots_[static_cast<size_t>(count_ + i)] == 0) continue;
      train.risks.push_back(slots_[static_cast<size_t>(i)]);
      train.outcomes.push_back(setup_.cohort.train()[static_cast<size_t>(i - val_)].outcome);
    }
    return ScoreFolds(Risks(0, val_), train, setup_.cohort, setup_.truth);
  }

  EvaluationSetup setup_;
  int64_t val_, count_, group_;  // subjects of the val fold; all that are predicted; of a forward
  std::unique_ptr<Loader> loader_;
  std::vector<double> slots_;
};

}  // namespace

std::unique_ptr<Evaluation> MakeSurvivalEvaluation(const EvaluationSetup& setup) {
  return std::make_unique<SurvivalEvaluation>(setup);
}

}  // namespace trainyard::mace

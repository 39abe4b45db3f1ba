#include "trainer/task/algorithm_distillation/distillation_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/stack.h>

#include "trainer/task/algorithm_distillation/distillation_batch.h"
#include "trainer/task/algorithm_distillation/distillation_evaluation.h"
#include "trainer/task/algorithm_distillation/histories.h"

namespace trainyard::ad {
namespace {

// What one head contributes: its share of the loss and, for people, (2) float64: loss and accuracy.
struct HeadLoss {
  at::Tensor share, metrics;
};

// logits: (B, Q, K) float32. The sum over targets, divided by the step's number of targets.
HeadLoss LossOfHead(const at::Tensor& logits, const at::Tensor& targets, double denominator) {
  const at::Tensor flat = logits.reshape({-1, logits.size(-1)}), wanted = targets.reshape({-1});
  const double scale = denominator > 0 ? 1 / denominator : 0;
  HeadLoss head;
  head.share = at::cross_entropy_loss(flat, wanted, {}, at::Reduction::Sum, kIgnored) * scale;
  const at::NoGradGuard no_grad;
  const at::Tensor correct = flat.argmax(-1).eq(wanted).sum();
  head.metrics = at::stack({head.share.detach().to(at::kDouble), correct.to(at::kDouble) * scale});
  return head;
}

struct WindowSample : Sample {
  explicit WindowSample(Window w) : window(std::move(w)) {}
  Window window;
};

// The windows of the training tasks.
class WindowDataset : public Dataset {
 public:
  WindowDataset(const Histories& histories, const TaskSet& set, const Options& options)
      : histories_(histories), windows_(histories, set.train, set.tasks, options) {}
  int64_t size() const override { return windows_.size(); }
  std::string fingerprint(const Tick&) const override { return histories_.Fingerprint(); }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override {
    return std::make_unique<WindowSample>(windows_.at(key.id));
  }
  uint64_t Hash(const Sample& sample) const override {
    return HashWindow(static_cast<const WindowSample&>(sample).window);
  }

 private:
  const Histories& histories_;
  Windows windows_;
};

class DistillationTask : public Task {
 public:
  explicit DistillationTask(const Config& config)
      : config_(config),
        options_(OptionsOf(config_)),
        set_(MakeTaskSet(options_.env)),
        histories_(ReadHistories(config.data.path, set_.tasks, options_)),
        train_(histories_, set_, options_),
        test_(histories_, set_.test, set_.tasks, options_),
        model_(Scope(declaration_), options_),
        compressed_(options_.mode == "compressed") {}

  const Dataset& dataset() const override { return train_; }

  std::unique_ptr<Batch> Collate(std::span<const Sample* const> samples) const override {
    auto batch = std::make_unique<DistillationBatch>();
    std::vector<Window> windows;
    for (const Sample* sample : samples) {
      windows.push_back(sample ? static_cast<const WindowSample*>(sample)->window : Window{});
      // A place without a sample asks once, and nobody counts the answer.
      if (!sample) windows.back().queries.push_back({0, 0, kIgnored, kIgnored});
    }
    FillBatch(windows, *batch);
    return batch;
  }

  const ModelDeclaration& model() const override { return declaration_; }
  size_t num_terms() const override { return 2; }
  std::vector<std::string> train_metrics() const override {
    if (!compressed_) return {"train/loss_action", "train/acc_action"};
    return {"train/loss_action", "train/acc_action", "train/loss_token_type", "train/acc_token_type"};
  }

  SampleWork WorkPerSample() const override {
    const int64_t rows = options_.model.context;  // in standard mode one of them is the last query
    if (compressed_) return WorkOf(options_, rows, options_.loss == "every_position" ? kRolloutSteps + 1 : 1);
    return WorkOf(options_, rows - 1, options_.loss == "every_position" ? rows : 1);
  }

  LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double> denominators) const override {
    const auto& b = static_cast<const DistillationBatch&>(batch);
    const TransformerOutput output = model_.Forward(pass, b.input);
    const HeadLoss action = LossOfHead(output.actions, pass.Upload(b.actions), denominators[0]);
    if (!compressed_) return {action.share, action.metrics};
    const HeadLoss type = LossOfHead(output.types, pass.Upload(b.types), denominators[1]);
    return {action.share + options_.type_loss_weight * type.share, at::cat({action.metrics, type.metrics})};
  }

  std::unique_ptr<Evaluation> Evaluate(EvaluationKind kind, int64_t, Weights& weights, int rank,
                                       int world) const override {
    const EvaluationSetup setup{config_, model_, weights, test_, set_, rank, world};
    const bool play = kind == EvaluationKind::kFinal && options_.eval_episodes > 0;
    return play ? MakeInContextEvaluation(setup) : MakeHistoryEvaluation(setup);
  }

 private:
  Config config_;
  const Options& options_;  // of config_
  TaskSet set_;
  Histories histories_;
  WindowDataset train_;
  Windows test_;
  ModelDeclaration declaration_;
  Transformer model_;
  bool compressed_;
};

}  // namespace

void DeclareTransformer(const Config& config, ModelDeclaration& model) { Transformer(Scope(model), OptionsOf(config)); }

std::unique_ptr<Task> BuildDistillationTask(const Config& config) { return std::make_unique<DistillationTask>(config); }

}  // namespace trainyard::ad

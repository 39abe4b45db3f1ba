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

class DistillationTask : public Task {
 public:
  explicit DistillationTask(const Config& config)
      : config_(config),
        options_(OptionsOf(config_)),
        set_(MakeTaskSet(options_.env)),
        histories_(ReadHistories(config.data.path, static_cast<int64_t>(set_.tasks.size()), options_.max_transitions)),
        train_(histories_, set_.train, set_.tasks, options_),
        test_(histories_, set_.test, set_.tasks, options_),
        model_(Scope(declaration_), options_),
        compressed_(options_.mode == "compressed") {}

  int64_t num_samples() const override { return train_.size(); }
  std::string fingerprint() const override { return histories_.Fingerprint(); }

  std::unique_ptr<Batch> Collate(std::span<const int64_t> ids, bool hash_inputs) const override {
    auto batch = std::make_unique<DistillationBatch>();
    batch->ids.assign(ids.begin(), ids.end());
    std::vector<Window> windows;
    for (int64_t id : ids) windows.push_back(train_.at(id));
    if (hash_inputs) {
      for (const Window& window : windows) batch->input_hashes.push_back(HashWindow(window));
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

  LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double> denominators) const override {
    const auto& b = static_cast<const DistillationBatch&>(batch);
    const TransformerOutput output = model_.Forward(pass, b.input);
    const HeadLoss action = LossOfHead(output.actions, b.actions, denominators[0]);
    if (!compressed_) return {action.share, action.metrics};
    const HeadLoss type = LossOfHead(output.types, b.types, denominators[1]);
    return {action.share + options_.type_loss_weight * type.share, at::cat({action.metrics, type.metrics})};
  }

  std::vector<std::string> evaluation_metrics() const override {
    if (!compressed_) return {"test/loss_action", "test/acc_action"};
    return {"test/loss_action", "test/acc_action", "test/loss_token_type", "test/acc_token_type"};
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
  Windows train_, test_;
  ModelDeclaration declaration_;
  Transformer model_;
  bool compressed_;
};

}  // namespace

std::unique_ptr<Task> BuildDistillationTask(const Config& config) { return std::make_unique<DistillationTask>(config); }

}  // namespace trainyard::ad

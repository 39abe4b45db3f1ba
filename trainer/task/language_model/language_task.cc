#include "trainer/task/language_model/language_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <span>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"
#include "trainer/task/language_model/language_batch.h"
#include "trainer/task/language_model/loss_evaluation.h"

namespace trainyard::lm {
namespace {

struct TokenSample : Sample {
  explicit TokenSample(std::vector<Token> w) : window(std::move(w)) {}
  std::vector<Token> window;
};

class TokenDataset : public Dataset {
 public:
  TokenDataset(const Corpus& corpus, int64_t context) : corpus_(corpus), windows_(corpus.train(), context) {}
  int64_t size() const override { return windows_.size(); }
  std::string fingerprint(const Tick& tick) const override {
    std::string identity = corpus_.identity(tick);
    RequireTruthOf(corpus_.path(), identity.substr(0, identity.find(',')));
    return identity;
  }
  std::string glance(const Tick&) const override { return corpus_.glance(); }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override {
    return std::make_unique<TokenSample>(windows_.Read(key.id));
  }
  uint64_t Hash(const Sample& sample) const override {
    return Xxh3Of(std::span<const Token>(static_cast<const TokenSample&>(sample).window));
  }

 private:
  const Corpus& corpus_;
  Windows windows_;
};

void RequireOneWindow(int64_t windows, const TokenStream& stream, int64_t context, const char* part) {
  if (windows > 0) return;
  throw DataError(
      Format("data.path: %lld tokens are %s, and one window of model.context + 1 needs %lld; see "
             "data.test_fraction and data.test_shard",
             static_cast<long long>(stream.size()), part, static_cast<long long>(context + 1)));
}

class LanguageTask : public Task {
 public:
  explicit LanguageTask(const Config& config)
      : options_(OptionsOf(config)),
        shape_(options_.shape()),
        corpus_(config.data.path, {options_.test_fraction, options_.test_shard}, shape_.vocab),
        truth_(ReadTruth(config.data.path)),
        train_(corpus_, shape_.context),
        test_(corpus_.test(), shape_.context),
        model_(Scope(declaration_), shape_) {
    RequireOneWindow(train_.size(), corpus_.train(), shape_.context, "for training");
    RequireOneWindow(test_.size(), corpus_.test(), shape_.context, "held out");
  }

  const Dataset& dataset() const override { return train_; }

  std::unique_ptr<Batch> Collate(std::span<const Sample* const> samples) const override {
    auto batch = std::make_unique<LanguageBatch>();
    std::vector<std::span<const Token>> windows;
    for (const Sample* sample : samples)
      windows.push_back(sample ? std::span(static_cast<const TokenSample*>(sample)->window) : std::span<const Token>());
    FillBatch(windows, shape_.context, *batch);
    return batch;
  }

  const ModelDeclaration& model() const override { return declaration_; }
  size_t num_terms() const override { return 1; }
  std::vector<std::string> train_metrics() const override { return {}; }  // the loss says it all

  SampleWork WorkPerSample() const override { return WorkOf(shape_); }

  std::string ExportConfig() const override { return ConfigOf(shape_); }

  LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double> denominators) const override {
    const auto& b = static_cast<const LanguageBatch&>(batch);
    const at::Tensor sum = model_.SumOfLosses(pass, pass.Upload(b.tokens), pass.Upload(b.targets), kIgnored);
    return {sum * (denominators[0] > 0 ? 1 / denominators[0] : 0), at::empty({0}, at::kDouble)};
  }

  std::unique_ptr<Evaluation> Evaluate(EvaluationKind kind, int64_t, Weights& weights, int rank,
                                       int world) const override {
    const bool last = kind == EvaluationKind::kFinal;
    return MakeLossEvaluation(
        {model_, weights, test_, options_.eval_windows, last ? truth_ : std::nullopt, rank, world});
  }

 private:
  Options options_;
  ModelShape shape_;
  Corpus corpus_;
  std::optional<Truth> truth_;
  TokenDataset train_;
  Windows test_;
  ModelDeclaration declaration_;
  Gpt2 model_;
};

}  // namespace

void DeclareGpt2(const Config& config, ModelDeclaration& model) { Gpt2(Scope(model), OptionsOf(config).shape()); }

std::unique_ptr<Task> BuildLanguageTask(const Config& config) { return std::make_unique<LanguageTask>(config); }

}  // namespace trainyard::lm

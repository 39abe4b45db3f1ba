#include "tests/task/patchwork_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/model/layers.h"
#include "trainer/model/product.h"

namespace trainyard::patchwork {
namespace {

constexpr int64_t kInputs = 7, kWidth = 11, kClasses = 13;
constexpr int64_t kFrozenWidth = 1000;
const LinearOptions kFrozen{.bias = false,
                            .weight_initial = {},
                            .bias_initial = {},
                            .parameters = {.trainable = false, .dtype = DType::kBfloat16}};
// What is gathered of a sample: its hidden state, then its place, class, time and whether the event was seen.
constexpr int64_t kId = kWidth, kClass = kWidth + 1, kTime = kWidth + 2, kEvent = kWidth + 3, kColumns = kWidth + 4;

struct Options : TaskOptions {
  int64_t first = 0;
  bool from_best = false;
  int64_t samples = 97;
  int64_t frozen_layers = 0;
  double dropout = 0;
  void Declare(FieldTable& table) override {
    table.Int("task.first", first, 0, FieldClass::kSchedule, "Steps of the first stage; 0: there is one stage.");
    table.Bool("task.from_best", from_best, FieldClass::kSchedule,
               "The second stage starts from the first one's best weights.");
    table.Int("task.samples", samples, 1, FieldClass::kIdentity, "Samples of the data set, which is computed.");
    table.Int("model.frozen_layers", frozen_layers, 0, FieldClass::kIdentity,
              "Further frozen layers, of a million parameters in bfloat16 each.", 1000);
    table.Number("model.dropout", dropout, 0, 0.9, FieldClass::kIdentity, "Dropout probability.");
  }
  void Check(const Config&) const override {}
  std::string Describe() const override { return "for tests"; }
  std::vector<Metric> Metrics() const override {
    return {{"test/loss_class", Better::kLower}, {"test/loss_cox", Better::kLower}};
  }
};

struct PatchSample : Sample {
  std::vector<float> inputs;           // (kInputs)
  float id, label, time, event, rare;  // rare: takes the branch that few samples take
};

class PatchDataset : public Dataset {
 public:
  explicit PatchDataset(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  std::string fingerprint(const Tick&) const override { return "patchwork-" + std::to_string(size_); }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override {
    KeyedRandom random(5, "patchwork", static_cast<uint64_t>(key.id));
    auto sample = std::make_unique<PatchSample>();
    double score = 0;
    for (int64_t i = 0; i < kInputs; ++i) {
      sample->inputs.push_back(static_cast<float>(random.Normal()));
      score += sample->inputs.back() * (i % 3 - 1);
    }
    // Its place in the stream: a batch over the end of an epoch may hold a sample twice.
    sample->id = static_cast<float>(key.epoch * size_ + key.position);
    sample->label = static_cast<float>(static_cast<int64_t>(std::floor(score * 2 + 50)) % kClasses);
    sample->time = static_cast<float>(std::exp(score * 0.5 + 0.3 * random.Normal()));
    sample->event = random.Uniform() < 0.7f ? 1.f : 0.f;
    sample->rare = key.id % 5 == 0 ? 1.f : 0.f;
    // A transform: another one in each epoch.
    KeyedRandom jitter(key.key, "jitter");
    for (float& x : sample->inputs) x += 0.01f * static_cast<float>(jitter.Normal());
    return sample;
  }
  uint64_t Hash(const Sample& sample) const override {
    uint64_t hash = 0;
    for (const float x : static_cast<const PatchSample&>(sample).inputs) {
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      hash = HashKey(hash, bits);
    }
    return hash;
  }

 private:
  int64_t size_;
};

struct PatchBatch : Batch {
  at::Tensor inputs;  // (B, kInputs) float32
  at::Tensor facts;   // (B, 4) float32: place, class, time, event
  at::Tensor rare;    // (B, 1) float32: 0 or 1
};

PatchBatch Uploaded(const Pass& pass, const PatchBatch& batch) {
  PatchBatch there;
  there.inputs = pass.Upload(batch.inputs);
  there.facts = pass.Upload(batch.facts);
  there.rare = pass.Upload(batch.rare);
  return there;
}

struct Net {
  explicit Net(const Scope& root, const Options& options)
      : body(root.Unit("body")),
        heads(root.Unit("heads")),
        frozen(body / "frozen", kInputs, kWidth, kFrozen),
        hidden(body / "hidden", kWidth, kWidth),
        rare(body / "rare", kWidth, kWidth),
        dropout(body, options.dropout),
        norm(heads / "norm", kWidth),
        codes(heads / "codes", kClasses, kWidth, 0.3),
        risk(heads / "risk", kWidth, 1),
        gather(root.Gather(kColumns)) {
    heads.Alias("classifier.weight", codes.weight);
    for (int64_t i = 0; i < options.frozen_layers; ++i)
      more_frozen.emplace_back(body / "more_frozen" / std::to_string(i), kFrozenWidth, kFrozenWidth, kFrozen);
  }

  // (B, kWidth) float32
  at::Tensor Body(const Pass& pass, const PatchBatch& batch) const {
    const auto run = [=, this](at::TensorList in) {
      const at::Tensor x = in[0].to(at::kBFloat16);
      at::Tensor far = at::constant_pad_nd(x, {0, kFrozenWidth - kInputs});
      for (const Linear& layer : more_frozen) far = layer(pass, far).tanh();
      const at::Tensor near = frozen(pass, x), all = more_frozen.empty() ? near : near + far.narrow(1, 0, kWidth);
      const at::Tensor seen = all.to(hidden.ComputeType(pass));
      at::Tensor h = dropout(pass, hidden(pass, seen).tanh());
      // The branch is not even taken where no sample of the micro-batch needs it.
      if (batch.rare.sum().item<float>() > 0) h = h + rare(pass, h) * batch.rare.to(h.scalar_type());
      return h.to(at::kFloat);
    };
    return pass.Unit(body.unit(), run, {batch.inputs});
  }
  // Class scores and risk of rows: (R, kClasses + 1) float32. The class embedding is the classifier as well: an input
  // reads its mean, the output multiplies by it.
  at::Tensor Heads(const Pass& pass, const at::Tensor& rows) const {
    const auto run = [=, this](at::TensorList in) {
      const at::Tensor table = pass[codes.weight].to(at::kFloat);
      const at::Tensor h = norm(pass, in[0] + table.mean(0, true));
      const at::Tensor scores = Product(h, table, std::nullopt);
      return at::cat({scores, risk(pass, h.to(risk.ComputeType(pass))).to(at::kFloat)}, 1);
    };
    return pass.Unit(heads.unit(), run, {rows});
  }

  Scope body, heads;
  Linear frozen, hidden, rare;
  std::vector<Linear> more_frozen;  // one after the other
  Dropout dropout;
  BatchNorm norm;
  Embedding codes;
  Linear risk;
  GatherId gather;
};

// Sums over the rows that `mine` marks: cross entropy, and Breslow's negative log partial likelihood with risk sets of
// all rows. scores: (R, kClasses + 1), facts: (R, 4).
std::pair<at::Tensor, at::Tensor> Losses(const at::Tensor& scores, const at::Tensor& facts, const at::Tensor& mine) {
  const at::Tensor classes = facts.select(1, 1).to(at::kLong), time = facts.select(1, 2), event = facts.select(1, 3);
  const at::Tensor log_p = scores.narrow(1, 0, kClasses).log_softmax(1);
  const at::Tensor entropy = -(log_p.gather(1, classes.unsqueeze(1)).squeeze(1) * mine).sum();
  const at::Tensor risk = scores.select(1, kClasses);
  const at::Tensor in_risk_set = time.unsqueeze(0).ge(time.unsqueeze(1));  // row i: who is there at i's time
  const at::Tensor log_sum = at::where(in_risk_set, risk.unsqueeze(0), -INFINITY).logsumexp(1);
  const at::Tensor cox = ((log_sum - risk) * event * mine).sum();
  return {entropy, cox};
}

class PatchEvaluation : public Evaluation {
 public:
  PatchEvaluation(const Task& task, const Net& net, Weights& weights, int rank)
      : task_(task), net_(net), weights_(weights), rank_(rank) {}
  int num_chunks() const override { return 2; }
  void RunChunk(int chunk) override {
    if (chunk != 0 || rank_ != 0) return;
    const c10::InferenceMode inference;
    std::vector<std::unique_ptr<Sample>> samples;
    std::vector<const Sample*> pointers;
    for (int64_t id = 0; id < std::min<int64_t>(20, task_.dataset().size()); ++id) {
      samples.push_back(task_.dataset().Read({id, 0, id, 1}));
      pointers.push_back(samples.back().get());
    }
    const auto batch = task_.Collate(pointers);
    const Pass pass = Pass::Evaluation(weights_);
    const PatchBatch b = Uploaded(pass, static_cast<const PatchBatch&>(*batch));
    const at::Tensor scores = net_.Heads(pass, net_.Body(pass, b));
    const auto [entropy, cox] = Losses(scores, b.facts, b.facts.select(1, 0) * 0 + 1);
    slots_ = {entropy.item<double>() / static_cast<double>(pointers.size()), cox.item<double>()};
  }
  std::vector<double>& slots() override { return slots_; }
  std::map<std::string, double> Metrics() const override {
    return {{"test/loss_class", slots_[0]}, {"test/loss_cox", slots_[1]}};
  }

 private:
  const Task& task_;
  const Net& net_;
  Weights& weights_;
  int rank_;
  std::vector<double> slots_ = {0, 0};
};

class PatchworkTask : public Task {
 public:
  explicit PatchworkTask(const Config& config)
      : options_(dynamic_cast<const Options&>(*config.task.options)),
        dataset_(options_.samples),
        net_(Scope(declaration_), options_) {}

  const Dataset& dataset() const override { return dataset_; }
  bool batch_coupled() const override { return true; }

  std::unique_ptr<Batch> Collate(std::span<const Sample* const> samples) const override {
    const auto B = static_cast<int64_t>(samples.size());
    auto batch = std::make_unique<PatchBatch>();
    batch->inputs = at::zeros({B, kInputs}, at::kFloat);
    batch->facts = at::zeros({B, 4}, at::kFloat);
    batch->rare = at::zeros({B, 1}, at::kFloat);
    batch->denominators = {0, 0};
    for (int64_t b = 0; b < B; ++b) {
      const auto* sample = static_cast<const PatchSample*>(samples[static_cast<size_t>(b)]);
      float* facts = batch->facts.data_ptr<float>() + 4 * b;
      facts[0] = -1;  // nobody's
      if (!sample) continue;
      std::copy(sample->inputs.begin(), sample->inputs.end(), batch->inputs.data_ptr<float>() + b * kInputs);
      std::copy_n(std::initializer_list<float>{sample->id, sample->label, sample->time, sample->event}.begin(), 4,
                  facts);
      batch->rare.data_ptr<float>()[b] = sample->rare;
      batch->denominators[0] += 1;
      batch->denominators[1] += sample->event;
    }
    return batch;
  }

  const ModelDeclaration& model() const override { return declaration_; }
  size_t num_terms() const override { return 2; }
  std::vector<std::string> train_metrics() const override { return {"train/loss_class", "train/loss_cox"}; }

  LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double> denominators) const override {
    const PatchBatch b = Uploaded(pass, static_cast<const PatchBatch&>(batch));
    const at::Tensor rows = pass.Gather(net_.gather, at::cat({net_.Body(pass, b), b.facts}, 1));
    const at::Tensor facts = rows.narrow(1, kId, 4);
    // This rank's share: the terms of its own samples, over risk sets and statistics of all.
    const at::Tensor mine =
        facts.select(1, 0).unsqueeze(1).eq(b.facts.select(1, 0).unsqueeze(0)).any(1) * facts.select(1, 0).ge(0);
    const auto [entropy, cox] = Losses(net_.Heads(pass, rows.narrow(1, 0, kWidth)), facts, mine.to(at::kFloat));
    const at::Tensor one = entropy / std::max(1.0, denominators[0]), two = cox / std::max(1.0, denominators[1]);
    return {one + two, at::stack({one.detach().to(at::kDouble), two.detach().to(at::kDouble)})};
  }

  std::unique_ptr<Evaluation> Evaluate(EvaluationKind, int64_t, Weights& weights, int rank, int) const override {
    return std::make_unique<PatchEvaluation>(*this, net_, weights, rank);
  }

 private:
  const Options options_;
  PatchDataset dataset_;
  ModelDeclaration declaration_;
  Net net_;
};

}  // namespace

std::shared_ptr<TaskOptions> MakeOptions() { return std::make_shared<Options>(); }
void DeclareNet(const Config& config, ModelDeclaration& model) {
  Net(Scope(model), dynamic_cast<const Options&>(*config.task.options));
}
std::vector<Stage> StagesOf(const Config& config) {
  const auto& options = dynamic_cast<const Options&>(*config.task.options);
  const int64_t first = options.first;
  if (first == 0) return {Stage{}};
  Stage body, heads;
  body.name = "body";
  body.steps = first;
  body.trainable = {"hidden.*", "rare.*", "codes.*"};
  heads.name = "heads";
  heads.steps = config.train.steps.value_or(0) - first;
  heads.from_best = options.from_best;
  heads.trainable = {"norm.*", "risk.*", "hidden.bias"};
  return {body, heads};
}
std::unique_ptr<Task> BuildPatchworkTask(const Config& config) { return std::make_unique<PatchworkTask>(config); }

}  // namespace trainyard::patchwork

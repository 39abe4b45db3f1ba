#include "trainer/task/faulty_task.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <thread>

#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr std::chrono::seconds kSlow(7);  // longer than people are left without a word

enum class Place {
  kLoader,
  kDisk,
  kForward,
  kBackward,
  kEvaluation,
  kNonfinite,
  kSlowForward,
  kSlowEvaluation,
  kDiverge
};

constexpr std::pair<const char*, Place> kPlaces[] = {{"loader", Place::kLoader},
                                                     {"disk", Place::kDisk},
                                                     {"forward", Place::kForward},
                                                     {"backward", Place::kBackward},
                                                     {"evaluation", Place::kEvaluation},
                                                     {"nonfinite", Place::kNonfinite},
                                                     {"slow_forward", Place::kSlowForward},
                                                     {"slow_evaluation", Place::kSlowEvaluation},
                                                     {"diverge", Place::kDiverge}};

// Counts the calls of the place and says when it is time.
struct Fault {
  Place place;
  std::string name;  // of the place
  int64_t call = 0;
  std::atomic<int64_t> calls{0};

  bool Due(Place where) { return where == place && calls++ == call; }
  bool DueFromNowOn(Place where) { return where == place && calls++ >= call; }
  std::string Message() const { return "injected fault in " + name; }
};

class FaultyEvaluation : public Evaluation {
 public:
  FaultyEvaluation(std::unique_ptr<Evaluation> inner, Fault& fault) : inner_(std::move(inner)), fault_(fault) {}
  int num_chunks() const override { return inner_->num_chunks(); }
  void RunChunk(int chunk) override {
    if (fault_.Due(Place::kEvaluation)) throw std::runtime_error(fault_.Message());
    if (fault_.Due(Place::kSlowEvaluation)) std::this_thread::sleep_for(kSlow);
    inner_->RunChunk(chunk);
  }
  std::vector<double>& slots() override { return inner_->slots(); }
  std::map<std::string, double> Metrics() const override { return inner_->Metrics(); }
  std::vector<EventContent> Artifacts() const override { return inner_->Artifacts(); }
  std::string Table() const override { return inner_->Table(); }

 private:
  std::unique_ptr<Evaluation> inner_;
  Fault& fault_;
};

class FaultyDataset : public Dataset {
 public:
  FaultyDataset(const Dataset& inner, Fault& fault) : inner_(inner), fault_(fault) {}
  int64_t size() const override { return inner_.size(); }
  std::string fingerprint(const Tick& tick) const override { return inner_.fingerprint(tick); }
  std::string glance(const Tick& tick) const override { return inner_.glance(tick); }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override {
    if (fault_.Due(Place::kLoader) || fault_.DueFromNowOn(Place::kDisk)) throw DataError(fault_.Message());
    return inner_.Read(key);
  }
  uint64_t Hash(const Sample& sample) const override { return inner_.Hash(sample); }

 private:
  const Dataset& inner_;
  Fault& fault_;
};

class FaultyTask : public Task {
 public:
  FaultyTask(std::unique_ptr<Task> inner, Place place, const std::string& name, int64_t call)
      : inner_(std::move(inner)), fault_{place, name, call}, dataset_(inner_->dataset(), fault_) {}

  const Dataset& dataset() const override { return dataset_; }
  std::shared_ptr<const Order> MakeOrder(uint64_t seed) const override { return inner_->MakeOrder(seed); }
  std::unique_ptr<Batch> Collate(std::span<const Sample* const> samples) const override {
    return inner_->Collate(samples);
  }
  const ModelDeclaration& model() const override { return inner_->model(); }
  SampleWork WorkPerSample() const override { return inner_->WorkPerSample(); }
  bool batch_coupled() const override { return inner_->batch_coupled(); }
  size_t num_terms() const override { return inner_->num_terms(); }
  std::vector<std::string> train_metrics() const override { return inner_->train_metrics(); }

  LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double> denominators) const override {
    if (fault_.Due(Place::kForward)) throw std::runtime_error(fault_.Message());
    if (fault_.Due(Place::kSlowForward)) std::this_thread::sleep_for(kSlow);
    if (fault_.Due(Place::kDiverge)) inner_->Loss(pass, batch, denominators);  // collectives that nobody else makes
    LossResult result = inner_->Loss(pass, batch, denominators);
    if (fault_.Due(Place::kNonfinite)) result.share = result.share * std::numeric_limits<double>::quiet_NaN();
    if (fault_.Due(Place::kBackward)) {
      result.share = result.share * 1.0;
      result.share.register_hook(
          [message = fault_.Message()](const at::Tensor&) -> at::Tensor { throw std::runtime_error(message); });
    }
    return result;
  }

  std::unique_ptr<Evaluation> Evaluate(EvaluationKind kind, int64_t step, Weights& weights, int rank,
                                       int world) const override {
    return std::make_unique<FaultyEvaluation>(inner_->Evaluate(kind, step, weights, rank, world), fault_);
  }

 private:
  std::unique_ptr<Task> inner_;
  mutable Fault fault_;
  FaultyDataset dataset_;
};

// Nothing when it is none, or not all of the text.
std::optional<int64_t> Number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

std::unique_ptr<Task> WithTestFault(std::unique_ptr<Task> task, int rank) {
  const std::string text = EnvText("TRAINYARD_TEST_FAULT");
  if (text.empty()) return task;
  const std::vector<std::string> parts = Split(text, ':');
  const auto* place = std::find_if(std::begin(kPlaces), std::end(kPlaces),
                                   [&](const auto& known) { return known.first == parts.front(); });
  const auto failing = Number(parts.size() == 3 ? parts[1] : ""), call = Number(parts.size() == 3 ? parts[2] : "");
  if (place == std::end(kPlaces) || !failing || !call) {
    std::vector<std::string> names;
    for (const auto& known : kPlaces) names.emplace_back(known.first);
    throw ConfigError("TRAINYARD_TEST_FAULT: " + text + " is not allowed; expected place:rank:call, the place one of " +
                      Join(names));
  }
  if (*failing != rank) return task;
  return std::make_unique<FaultyTask>(std::move(task), place->second, place->first, *call);
}

}  // namespace trainyard

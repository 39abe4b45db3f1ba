// A task: data set, collation, model, loss and evaluation. The training loop knows nothing else.
#ifndef TRAINYARD_TRAINER_TASK_TASK_H_
#define TRAINYARD_TRAINER_TASK_TASK_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/batch.h"
#include "trainer/data/sample_stream.h"
#include "trainer/metrics/event.h"
#include "trainer/model/pass.h"
#include "trainer/task/work.h"

namespace trainyard {

struct LossResult {
  // This rank's share of the global loss for one micro-batch: a scalar to call backward on. Shares
  // are summed over micro-batches and ranks, never averaged.
  at::Tensor share;
  // Values for people, (n) float64, each divided by the global denominators already; summed like the loss. In the
  // order of Task::train_metrics. Nobody reads either before the step's consensus: no forward waits for a device.
  at::Tensor metrics;
};

// One evaluation, cut into chunks so that a stop can be obeyed between them.
//
// Every result lies in a slot that exactly one rank fills (the others leave zero), so the sum over
// ranks is exact and the metrics do not depend on the world size.
class Evaluation {
 public:
  virtual ~Evaluation() = default;
  virtual int num_chunks() const = 0;  // the same on every rank
  virtual void RunChunk(int chunk) = 0;
  virtual std::vector<double>& slots() = 0;  // the same size on every rank
  // From the slots summed over ranks.
  virtual std::map<std::string, double> Metrics() const = 0;
  // What numbers do not tell: curves, images, histograms, texts.
  virtual std::vector<EventContent> Artifacts() const { return {}; }
  // A table for people; empty when the metrics say it all.
  virtual std::string Table() const { return ""; }
};

enum class EvaluationKind {
  kPeriodic,  // cheap: every train.eval_every steps
  kFinal,     // thorough: after the last step, and by `trainyard eval`
};

// Immutable after construction: the values of its model are an engine's. Safe for any number of threads.
class Task {
 public:
  virtual ~Task() = default;

  // Data. `dataset` lives as long as the task.
  virtual const Dataset& dataset() const = 0;
  // Which samples an epoch holds, and in which order.
  virtual std::shared_ptr<const Order> MakeOrder(uint64_t seed) const {
    return std::make_shared<PermutedOrder>(dataset().size(), seed);
  }
  // A micro-batch of samples in their order. A null one could not be read: it keeps its place and counts nothing.
  virtual std::unique_ptr<Batch> Collate(std::span<const Sample* const> samples) const = 0;

  // Model.
  virtual const ModelDeclaration& model() const = 0;
  // Whether the samples of a batch interact (batch norm, risk sets): then a rank's share is one micro-batch.
  virtual bool batch_coupled() const { return false; }
  virtual size_t num_terms() const = 0;                        // of the loss; denominators of a batch
  virtual std::vector<std::string> train_metrics() const = 0;  // TensorBoard tags
  // What one sample costs, for people who compare speeds; optional.
  virtual SampleWork WorkPerSample() const { return {}; }
  // Of the model, for a program that loads an export: the text of `config.json` beside it, in the form that such a
  // program knows. Empty: there is none.
  virtual std::string ExportConfig() const { return ""; }
  // `denominators`: Batch::denominators summed over the step's micro-batches and ranks.
  virtual LossResult Loss(const Pass& pass, const Batch& batch, std::span<const double> denominators) const = 0;

  // This rank's part of an evaluation of these weights, which must outlive it; it draws from (run.seed, step) alone.
  virtual std::unique_ptr<Evaluation> Evaluate(EvaluationKind kind, int64_t step, Weights& weights, int rank,
                                               int world) const = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_TASK_H_

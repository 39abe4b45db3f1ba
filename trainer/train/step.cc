#include "trainer/train/step.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "trainer/base/clock.h"
#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/comm/fail_together.h"
#include "trainer/optim/schedule.h"
#include "trainer/train/out_of_memory.h"

namespace trainyard {
namespace {

// What a task has promised of its results: a wrong size would be read, or written, behind its end.
[[noreturn]] void RefuseResult(const Config& config, const std::string& problem) {
  throw std::logic_error("task " + config.task.name + ": " + problem);
}

void RequireDenominators(const Config& config, const Task& task, const Share& share) {
  for (const auto& batch : share) {
    if (batch->denominators.size() != task.num_terms())
      RefuseResult(config, Format("Batch::denominators has %zu values; num_terms() says %zu",
                                  batch->denominators.size(), task.num_terms()));
  }
}

void RequireLoss(const Config& config, const Task& task, const LossResult& loss) {
  const auto metrics = static_cast<int64_t>(task.train_metrics().size());
  if (!loss.share.defined() || loss.share.numel() != 1) RefuseResult(config, "LossResult::share is no scalar");
  if (!loss.metrics.defined() || loss.metrics.scalar_type() != at::kDouble)
    RefuseResult(config, "LossResult::metrics is not float64");
  if (loss.metrics.numel() != metrics)
    RefuseResult(config, Format("LossResult::metrics has %lld values; train_metrics() names %lld",
                                static_cast<long long>(loss.metrics.numel()), static_cast<long long>(metrics)));
}

}  // namespace

void PhaseClock::Enter(const std::string& phase) {
  const double now = SteadySeconds();
  if (!phase_.empty()) seconds_[phase_] += now - since_;
  phase_ = phase;
  if (recorder_) recorder_->Phase(phase);
  since_ = now;
}

Step::Step(const Config& config, const Plan& plan, const Task& task, Engine& engine, ControlPlane& control,
           PhaseClock& clock)
    : config_(config), plan_(plan), task_(task), engine_(engine), control_(control), clock_(clock) {}

StepResult Step::Run(const std::function<const Share&()>& fetch, TrainState& train, CheckpointWriter* writer,
                     bool wants_save) {
  Local local;
  local.wants_save = wants_save;
  local.loss_scale = ScaleOf(train).factor;
  const Share nothing;
  const Share* share = &nothing;
  engine_.BeginStep(plan_.accumulation);
  // 1. Data.
  clock_.Enter("data");
  try {
    const Share& fetched = fetch();
    if (writer) writer->ThrowIfFailed();
    RequireDenominators(config_, task_, fetched);
    share = &fetched;
  } catch (...) {
    local.error = std::current_exception();
  }
  StepResult result;
  try {
    result = ComputeTogether(*share, train.step, local);
  } catch (...) {
    // Peers that have gone meanwhile, of the same cause perhaps, must not hide what has failed here.
    if (local.error) std::rethrow_exception(local.error);
    throw;
  }
  // 5. Clip and optimizer.
  clock_.Enter("optimizer");
  Update(train, result, writer);
  clock_.Enter("other");
  return result;
}

StepResult Step::ComputeTogether(const Share& share, int64_t step, Local& local) {
  // 2. Denominators: every rank's valid targets.
  clock_.Enter("communication");
  const std::vector<double> denominators = Denominators(share, local.error != nullptr);
  // 3. Forward and backward; gradients leave as they come.
  if (!local.error) ForwardBackward(share, denominators, step, local);
  clock_.Enter("communication");
  local.error ? engine_.Drain() : engine_.Finish();
  // 4. Consensus.
  StepResult result = Agree(local);
  result.overlap = engine_.overlap();
  return result;
}

std::vector<double> Step::Denominators(const Share& share, bool failed) {
  // Behind the terms: samples that could be read. What a rank that failed would have had is unknown; it is not none.
  std::vector<double> sums(task_.num_terms() + 1, 0);
  for (const auto& batch : share) {
    for (size_t i = 0; i < batch->denominators.size(); ++i) sums[i] += batch->denominators[i];
    sums.back() += static_cast<double>(batch->ids.size() - batch->skipped.size());
  }
  if (failed) sums.back() = 1;
  control_.AllReduceNow(sums, "denominators");
  if (sums.back() == 0)
    throw DataError("no sample of this step could be read (faults.bad_sample: skip): there is nothing to train on");
  sums.pop_back();
  return sums;
}

void Step::ForwardBackward(const Share& share, const std::vector<double>& denominators, int64_t step, Local& local) {
  try {
    for (size_t m = 0; m < share.size(); ++m) {
      // Randomness depends on the step and on the micro-batch's place in the global batch alone.
      const int64_t place = plan_.ShareOf(control_.rank()).begin + static_cast<int64_t>(m) * plan_.micro;
      const uint64_t key = HashKey(static_cast<uint64_t>(config_.run.seed), static_cast<uint64_t>(step),
                                   static_cast<uint64_t>(step * plan_.global_batch + place));
      clock_.Enter("forward");
      const LossResult loss = task_.Loss(Pass::Training(engine_, key, plan_.stage), *share[m], denominators);
      RequireLoss(config_, task_, loss);
      local.losses.push_back({loss.share.detach(), loss.metrics});
      clock_.Enter("backward");
      engine_.Backward(local.loss_scale == 1 ? loss.share : loss.share * local.loss_scale, m + 1 == share.size());
    }
  } catch (...) {
    local.error = NameWhatIsTooLarge(std::current_exception(), plan_, task_.batch_coupled(), step + 1);
  }
}

StepResult Step::Agree(Local& local) {
  // Loss, stop, save, metrics, then how many ranks have failed.
  constexpr size_t kMetrics = 3;
  std::vector<double> values(kMetrics + task_.train_metrics().size(), 0);
  values[1] = StopRequested() ? 1 : 0;
  values[2] = local.wants_save ? 1 : 0;
  try {  // here a device says what became of the forward
    for (const LossResult& loss : local.losses) {
      values[0] += loss.share.item<double>();
      const at::Tensor metrics = loss.metrics.cpu().contiguous();
      for (size_t i = kMetrics; i < values.size(); ++i) values[i] += metrics.data_ptr<double>()[i - kMetrics];
    }
  } catch (...) {
    if (!local.error) local.error = std::current_exception();
  }
  const size_t failures = values.size();
  values.push_back(local.error ? 1 : 0);
  // A rank that failed may hold a loss that is no number; it must not hide the others' flags.
  if (local.error) std::fill_n(values.begin(), failures, 0.0);
  control_.AllReduceNow(values, "consensus");
  if (values[failures] > 0) FailTogether(control_, local.error, "this step");
  StepResult result;
  result.loss = values[0];
  result.stop = values[1] > 0;
  result.save = values[2] > 0;
  result.metrics.assign(values.begin() + kMetrics, values.begin() + static_cast<std::ptrdiff_t>(failures));
  return result;
}

LossScale Step::ScaleOf(const TrainState& train) const {
  if (plan_.parallel.precision != Precision::kFp16) return {};
  return train.loss_scale.value_or(LossScale{.factor = config_.precision.loss_scale});
}

void Step::Update(TrainState& train, StepResult& result, CheckpointWriter* writer) {
  result.lr = LearningRate(config_.schedule, plan_.peak_lr, train.clean_steps, plan_.schedule_steps);
  if (config_.schedule.name == "plateau" && train.plateau.multiplier < 1)
    result.lr = std::max(result.lr * train.plateau.multiplier, config_.schedule.min_lr);
  const auto wait_for_checkpoint = [&] {
    if (!writer) return;
    clock_.Enter("checkpoint");
    writer->WaitCopied();
    clock_.Enter("optimizer");
  };
  LossScale scale = ScaleOf(train);
  const UpdateResult update = engine_.Update({.lr = result.lr,
                                              .clip = config_.optim.clip,
                                              .update = train.clean_steps + 1,
                                              .loss_scale = scale.factor,
                                              .finite = std::isfinite(result.loss),
                                              .before = wait_for_checkpoint});
  result.grad_norm = update.grad_norm;
  result.finite = update.applied;
  result.loss_scale = scale.factor;
  result.overflow = !update.applied && std::isfinite(result.loss) && scale.MayOverflow();
  train.loss_scale.reset();
  if (plan_.parallel.precision == Precision::kFp16) {
    scale.Update(update.applied, config_.precision.loss_scale_interval);
    train.loss_scale = scale;
  }
  if (update.applied) {
    ++train.clean_steps;
    train.skipped_in_row = 0;
  } else if (!result.overflow) {
    ++train.skipped_in_row;
  }
  ++train.step;
}

}  // namespace trainyard

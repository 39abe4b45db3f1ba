#include "trainer/train/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/optim/schedule.h"
#include "trainer/parallel/block_norm.h"

namespace trainyard {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

void PhaseClock::Enter(const std::string& phase) {
  const double now = Now();
  if (!phase_.empty()) seconds_[phase_] += now - since_;
  phase_ = phase;
  since_ = now;
}

Step::Step(const Config& config, const Plan& plan, Task& task, FlatState& state, Communicator& communicator,
           PhaseClock& clock)
    : config_(config),
      plan_(plan),
      task_(task),
      state_(state),
      communicator_(communicator),
      clock_(clock),
      reducer_(state, communicator, static_cast<int64_t>(config.parallel.bucket_mib * (1 << 20))),
      optimizer_(config.optim, state) {}

StepResult Step::Run(const std::function<const Share&()>& fetch, TrainState& train, CheckpointWriter* writer) {
  Local local;
  local.metrics.assign(task_.train_metrics().size(), 0);
  const Share nothing;
  const Share* share = &nothing;
  reducer_.BeginStep();
  // 1. Data.
  clock_.Enter("data");
  try {
    const Share& fetched = fetch();
    if (writer) writer->ThrowIfFailed();
    share = &fetched;
  } catch (...) {
    local.error = std::current_exception();
  }
  // 2. Denominators: every rank's valid targets.
  clock_.Enter("communication");
  const std::vector<double> denominators = Denominators(*share);
  // 3. Forward and backward; buckets leave as they fill.
  if (!local.error) ForwardBackward(*share, denominators, train.step, local);
  clock_.Enter("communication");
  local.error ? reducer_.Drain() : reducer_.Finish();
  // 4. Consensus.
  StepResult result = Agree(local);
  result.overlap = reducer_.overlap();
  // 5. Clip and optimizer.
  clock_.Enter("optimizer");
  Update(train, result, writer);
  clock_.Enter("other");
  return result;
}

std::vector<double> Step::Denominators(const Share& share) {
  std::vector<double> sums(task_.num_terms(), 0);
  for (const auto& batch : share) {
    for (size_t i = 0; i < batch->denominators.size(); ++i) sums[i] += batch->denominators[i];
  }
  communicator_.AllReduceNow(sums, "denominators");
  return sums;
}

void Step::ForwardBackward(const Share& share, const std::vector<double>& denominators, int64_t step, Local& local) {
  try {
    for (size_t m = 0; m < share.size(); ++m) {
      // Randomness depends on the step and on the micro-batch's place in the global batch alone.
      const int64_t first =
          step * plan_.global_batch + communicator_.rank() * plan_.share + static_cast<int64_t>(m) * plan_.micro;
      const uint64_t key =
          HashKey(static_cast<uint64_t>(config_.run.seed), static_cast<uint64_t>(step), static_cast<uint64_t>(first));
      clock_.Enter("forward");
      const LossResult loss = task_.Loss(*share[m], denominators, key);
      local.loss += loss.share.item<double>();
      for (size_t i = 0; i < loss.metrics.size(); ++i) local.metrics[i] += loss.metrics[i];
      clock_.Enter("backward");
      reducer_.BeginBackward(m + 1 == share.size());
      loss.share.backward();
    }
  } catch (...) {
    local.error = std::current_exception();
  }
}

StepResult Step::Agree(const Local& local) {
  // Loss, stop, metrics, then one slot per rank that says whether it failed.
  std::vector<double> values = {local.loss, StopRequested() ? 1.0 : 0.0};
  values.insert(values.end(), local.metrics.begin(), local.metrics.end());
  const size_t failures = values.size();
  values.resize(failures + static_cast<size_t>(communicator_.size()), 0);
  values[failures + static_cast<size_t>(communicator_.rank())] = local.error ? 1 : 0;
  // A rank that failed may hold a loss that is no number; it must not hide the others' flags.
  if (local.error) std::fill_n(values.begin(), failures, 0.0);
  communicator_.AllReduceNow(values, "consensus");
  if (local.error) std::rethrow_exception(local.error);
  for (size_t r = failures; r < values.size(); ++r) {
    if (values[r] != 0) throw PeerError(Format("rank %zu failed in this step", r - failures));
  }
  StepResult result;
  result.loss = values[0];
  result.stop = values[1] > 0;
  result.metrics.assign(values.begin() + 2, values.begin() + static_cast<std::ptrdiff_t>(failures));
  return result;
}

void Step::Update(TrainState& train, StepResult& result, CheckpointWriter* writer) {
  const std::span<const float> gradient = Floats(state_.gradient);
  result.grad_norm = BlockNorm(gradient, norm_scratch_);
  result.lr =
      LearningRate(config_.schedule, plan_.peak_lr, train.clean_steps, plan_.total_steps) * train.plateau.multiplier;
  if (train.plateau.multiplier < 1) result.lr = std::max(result.lr, config_.schedule.min_lr);
  result.finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (result.finite) {
    const float scale = ClipScale(result.grad_norm, config_.optim.clip);
    if (writer) {
      clock_.Enter("checkpoint");
      writer->WaitCopied();
      clock_.Enter("optimizer");
    }
    optimizer_.Step(train.clean_steps + 1, result.lr, scale);
    state_.PublishParameters();
    ++train.clean_steps;
    train.skipped_in_row = 0;
  } else {
    ++train.skipped_in_row;
  }
  ++train.step;
}

}  // namespace trainyard

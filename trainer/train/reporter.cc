#include "trainer/train/reporter.h"

#include <chrono>
#include <cstdio>

#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr std::chrono::milliseconds kPublishInterval(500);
constexpr double kThroughputWindowSeconds = 5;

}  // namespace

StatusPublisher::StatusPublisher(bool serve) : channel_(ReportChannel::FromEnvironment()) {
  if (!channel_.connected() && serve) {
    server_ = std::make_unique<StatusServer>(StatusAddressFromEnvironment(), StatusPortFromEnvironment(),
                                             [this] { return std::vector<RankStatus>{board_.Get()}; });
  }
  thread_ = std::thread([this] {
    while (!stopping_) {
      channel_.SendStatus(board_.Get());
      for (int i = 0; i < 10 && !stopping_; ++i) std::this_thread::sleep_for(kPublishInterval / 10);
    }
    channel_.SendStatus(board_.Get());
  });
}

StatusPublisher::~StatusPublisher() {
  stopping_ = true;
  thread_.join();
}

Reporter::Reporter(const Config& config, const Plan& plan, const Task& task, const Session& session,
                   StatusPublisher& publisher, const TrainState& train)
    : config_(config),
      plan_(plan),
      metric_names_(task.train_metrics()),
      attempt_(session.attempt),
      leader_(session.world.rank == 0),
      records_(!config.train.record.empty()),
      board_(publisher.board()),
      window_start_(UnixTime()),
      window_step_(train.step) {
  board_.Update([&](RankStatus& s) {
    s.step = train.step;
    s.total_steps = plan.total_steps;
    s.micro_batch = plan.micro;
  });
  if (!leader_) return;
  telemetry_ = std::make_unique<Telemetry>(config.run.dir, config.metrics.tensorboard, session.attempt, train.step);
  if (records_) record_ = std::make_unique<Record>(config.train.record, train.step);
  progress_ = std::make_unique<Progress>("step", plan.total_steps, ProgressStyleFromEnvironment());
}

void Reporter::ReportStep(const TrainState& train, const StepResult& result, const std::vector<int64_t>& samples,
                          uint64_t input_hash, const PhaseClock& clock, const CheckpointWriter& writer) {
  const double now = UnixTime();
  if (now - window_start_ >= kThroughputWindowSeconds || samples_per_second_ == 0) {
    samples_per_second_ =
        static_cast<double>((train.step - window_step_) * plan_.global_batch) / std::max(1e-9, now - window_start_);
  }
  if (now - window_start_ >= kThroughputWindowSeconds) {
    window_start_ = now;
    window_step_ = train.step;
  }
  const double eta =
      samples_per_second_ > 0
          ? static_cast<double>((plan_.total_steps - train.step) * plan_.global_batch) / samples_per_second_
          : 0;
  ReportCheckpoint(writer);
  board_.Update([&](RankStatus& s) {
    s.phase = "training";
    s.step = train.step;
    s.loss = result.loss;
    s.learning_rate = result.lr;
    s.grad_norm = result.grad_norm;
    s.samples_per_second = samples_per_second_;
    s.eta_seconds = eta;
    s.last_step_time = s.last_progress_time = now;
    ++(result.finite ? s.steps_ok : s.steps_skipped);
    s.phase_seconds = clock.seconds();
    if (auto it = s.phase_seconds.find("checkpoint"); it != s.phase_seconds.end())
      s.checkpoint_stall_seconds = it->second;
    if (telemetry_) s.telemetry_dropped = telemetry_->dropped();
  });
  if (!leader_) return;
  if (record_) {
    record_->Write({.attempt = attempt_,
                    .step = train.step,
                    .samples = samples,
                    .input_xxh3 = input_hash,
                    .loss = result.loss,
                    .grad_norm = result.grad_norm,
                    .lr = result.lr});
  }
  if (train.step % config_.train.log_every == 0 || train.step == plan_.total_steps) {
    Scalars scalars = {{"train/loss", result.loss},
                       {"train/lr", result.lr},
                       {"train/grad_norm", result.grad_norm},
                       {"train/samples_per_second", samples_per_second_},
                       {"train/overlap", result.overlap}};
    for (size_t i = 0; i < metric_names_.size(); ++i) scalars.emplace_back(metric_names_[i], result.metrics[i]);
    telemetry_->Add(train.step, std::move(scalars));
  }
  progress_->Update(train.step,
                    Format("loss %.4f  lr %.2e  %.0f samples/s", result.loss, result.lr, samples_per_second_));
}

void Reporter::ReportCheckpoint(const CheckpointWriter& writer) {
  const auto last = writer.last();
  if (!last) return;
  board_.Update([&](RankStatus& s) { s.checkpoint = {last->step, last->time, last->bytes, true, last->seconds}; });
}

void Reporter::ReportEvaluation(int64_t step, const std::map<std::string, double>& metrics) {
  evaluation_progress_.reset();
  if (!leader_) return;
  Scalars scalars;
  std::string text;
  for (const auto& [name, value] : metrics) {
    if (!name.starts_with("curve/")) {
      scalars.emplace_back(name, value);
      text += Format("  %s %.4f", name.c_str(), value);
    }
  }
  telemetry_->Add(step, std::move(scalars));
  Say(Format("evaluation after step %lld:%s", static_cast<long long>(step), text.c_str()));
}

void Reporter::EvaluationProgress(int done, int total) {
  board_.Progress("evaluating");
  if (!leader_) return;
  progress_->Clear();
  if (!evaluation_progress_)
    evaluation_progress_ = std::make_unique<Progress>("evaluation", total, ProgressStyleFromEnvironment());
  evaluation_progress_->Update(done, "");
}

void Reporter::Say(const std::string& text) {
  if (!leader_) return;
  if (progress_) progress_->Clear();
  if (evaluation_progress_) evaluation_progress_->Clear();
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace trainyard

#include "trainer/train/reporter.h"

#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/text.h"
#include "trainer/base/memory.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/config/fields.h"
#include "trainer/metrics/json_lines.h"
#include "trainer/metrics/tensorboard.h"

namespace trainyard {
namespace {

constexpr std::chrono::milliseconds kPublishInterval(500);

using Json = nlohmann::json;

double Sum(const std::map<std::string, double>& seconds) {
  double sum = 0;
  for (const auto& [phase, value] : seconds) sum += value;
  return sum;
}

double Of(const std::map<std::string, double>& seconds, const char* phase) {
  const auto it = seconds.find(phase);
  return it == seconds.end() ? 0 : it->second;
}

// What decides the result of training, with what `auto` became.
HParams HParamsOf(const Config& config, const Plan& plan, int world) {
  std::map<std::string, Json> values;
  Config copy = config;
  for (const Field& field : Fields(copy)) {
    if (field.field_class != FieldClass::kFree) values[field.path] = field.get();
  }
  values["batch.global"] = plan.global_batch;
  values["batch.micro"] = plan.micro;
  values["train.steps"] = plan.total_steps;
  values["precision.compute"] = NameOf(plan.parallel.precision);
  values["world"] = world;
  HParams parameters;
  for (const auto& [name, value] : values) {
    if (value.is_null()) continue;
    parameters.values.emplace_back(name, value.is_boolean()  ? HParam(value.get<bool>())
                                         : value.is_number() ? HParam(value.get<double>())
                                         : value.is_string() ? HParam(value.get<std::string>())
                                                             : HParam(value.dump()));
  }
  return parameters;
}

}  // namespace

StatusPublisher::StatusPublisher(bool serve) : channel_(ReportChannel::FromEnvironment()) {
  if (!channel_.connected() && serve) {
    const auto listening = StatusServer::ListenOn(StatusAddressFromEnvironment(), StatusPortFromEnvironment());
    server_ = std::make_unique<StatusServer>(listening, [this] { return std::vector<RankStatus>{Now()}; });
  }
  thread_ = std::thread([this] {
    const auto publish = [this] {
      try {
        channel_.SendStatus(Now());
      } catch (const std::exception&) {  // No memory: what training makes of that is its own matter.
      }
    };
    // A process may end, or be asked to, just behind them: what is said of that then goes by the last status.
    // Without a copy of it, for which there may be no memory.
    const auto news = [this] {
      std::tuple<size_t, bool, int64_t> now;
      board_.Update([&](const RankStatus& s) {
        now = {std::hash<std::string>()(s.phase), s.startup.first_step_seconds.has_value(), s.checkpoint.step};
      });
      return now;
    };
    while (!stopping_) {
      const auto told = news();
      publish();
      for (int i = 0; i < 10 && !stopping_ && news() == told; ++i) std::this_thread::sleep_for(kPublishInterval / 10);
    }
    publish();
  });
}

RankStatus StatusPublisher::Now() const {
  RankStatus status = board_.Get();
  if (const auto bytes = ResidentBytes()) status.host_memory_bytes = static_cast<double>(*bytes);
  return status;
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
      work_(task.WorkPerSample()),
      attempt_(session.attempt),
      leader_(session.world.rank == 0),
      records_(!config.train.record.empty()),
      board_(publisher.board()),
      throughput_(train.step) {
  board_.Update([&](RankStatus& s) {
    s.step = train.step;
    if (!s.startup.step) s.startup.step = train.step;
    s.total_steps = plan.total_steps;
    s.micro_batch = plan.micro;
  });
  if (!leader_) return;
  // By value: a sink may outlive this.
  as_owner_ = [directory = config.checkpoint.dir, writer = Writer{session.job_uid, session.attempt}](
                  const std::function<void()>& change) { Fence::AsOwner(directory, writer, change); };
  OpenSinks(config, train, as_owner_);
  telemetry_->Add(train.step, HParamsOf(config, plan, session.world.size));
  progress_ = std::make_unique<Progress>("step", plan.total_steps, ProgressStyleFromEnvironment());
}

void Reporter::OpenRecord(int64_t step, const Tick& tick) {
  record_ = std::make_unique<Record>(config_.train.record, step, attempt_, as_owner_, tick);
  if (const auto kept = record_->kept_step(); kept && *kept < step)
    Warn(
        Format("train.record: %s has no lines of the steps %lld to %lld: they were not recorded, or lost with a "
               "machine's power",
               config_.train.record.c_str(), static_cast<long long>(*kept) + 1, static_cast<long long>(step)));
}

Reporter::~Reporter() {
  if (!telemetry_) return;
  for (const std::string& loss : telemetry_->Close()) Say("warning: " + loss);
}

// What they open may block, so that it is opened on their threads.
void Reporter::OpenSinks(const Config& config, const TrainState& train, const AsOwner& as_owner) {
  telemetry_ = std::make_unique<Telemetry>(attempt_);
  telemetry_->To("jsonl", [options = JsonLinesOptions{config.run.dir, train.step, train.evaluation_pending, as_owner}] {
    return OpenJsonLines(options);
  });
  if (config.metrics.tensorboard) {
    telemetry_->To("tensorboard", [directory = config.run.dir + "/tensorboard", step = train.step] {
      return OpenTensorBoard(directory, step);
    });
  }
}

// Steps at today's speed, and the evaluations between them, if one has shown how long they take.
std::optional<double> Reporter::Remaining(int64_t step, const PhaseClock& clock) const {
  const auto speed = throughput_.steps_per_second();
  if (!speed) return std::nullopt;
  const int64_t every = config_.train.eval_every;
  const int64_t evaluations = every > 0 ? (plan_.total_steps + every - 1) / every - step / every : 1;
  const double evaluation =
      evaluations_ > 0 ? Of(clock.seconds(), "evaluation") / static_cast<double>(evaluations_) : 0;
  return static_cast<double>(plan_.total_steps - step) / *speed + static_cast<double>(evaluations) * evaluation;
}

Reporter::Speed Reporter::SpeedNow() const {
  Speed speed;
  const std::optional<double> steps = throughput_.steps_per_second();
  if (!steps) return speed;
  speed.samples = *steps * static_cast<double>(plan_.global_batch);
  if (work_.tokens) speed.tokens = *speed.samples * *work_.tokens;
  if (work_.flops && config_.metrics.peak_tflops)
    speed.mfu = *speed.samples * *work_.flops / (*config_.metrics.peak_tflops * 1e12 * plan_.world);
  return speed;
}

void Reporter::ReportStep(const TrainState& train, const StepResult& result, const GatheredInputs& inputs,
                          const PhaseClock& clock, const LoaderTimes& loader, const CheckpointWriter& writer) {
  throughput_.AddStep(train.step, Sum(clock.seconds()) - Of(clock.seconds(), "evaluation"));
  const Speed speed = SpeedNow();
  const std::optional<double> eta = Remaining(train.step, clock);
  ReportCheckpoint(writer);
  board_.Update([&](RankStatus& s) {
    s.phase = "training";
    s.step = train.step;
    s.loss = result.loss;
    s.learning_rate = result.lr;
    s.grad_norm = result.grad_norm;
    s.samples_per_second = speed.samples;
    s.tokens_per_second = speed.tokens;
    s.mfu = speed.mfu;
    s.data_seconds = {{"read", loader.read},
                      {"decode", loader.decode},
                      {"transform", loader.transform},
                      {"collate", loader.collate},
                      {"wait", loader.wait}};
    if (loader.cache_hits + loader.cache_misses > 0)
      s.cache_reads = {{"hit", loader.cache_hits}, {"miss", loader.cache_misses}};
    s.eta_seconds = eta;
    ++(result.finite ? s.steps_ok : s.steps_skipped);
    if (!result.finite && !result.overflow) ++s.steps_nonfinite;
    if (train.loss_scale) s.loss_scale = result.loss_scale;
    s.phase_seconds = clock.seconds();
    s.checkpoint_stall_seconds = Of(s.phase_seconds, "checkpoint");
    if (telemetry_) s.telemetry_dropped = telemetry_->dropped();
  });
  board_.Stepped();
  if (!leader_) return;
  if (record_) {
    record_->Write({.attempt = attempt_,
                    .step = train.step,
                    .samples = inputs.ids,
                    .input_xxh3 = inputs.hash,
                    .loss = result.loss,
                    .grad_norm = result.grad_norm,
                    .lr = result.lr});
  }
  if (train.step % config_.train.log_every == 0 || train.step == plan_.total_steps) {
    Scalars scalars = {{"train/loss", result.loss},
                       {"train/lr", result.lr},
                       {"train/grad_norm", result.grad_norm},
                       {"train/overlap", result.overlap}};
    if (train.loss_scale) scalars.emplace_back("train/loss_scale", result.loss_scale);
    if (speed.samples) scalars.emplace_back("train/samples_per_second", *speed.samples);
    if (const int64_t reads = loader.cache_hits + loader.cache_misses; reads > 0)
      scalars.emplace_back("train/cache_hit_rate", static_cast<double>(loader.cache_hits) / static_cast<double>(reads));
    if (speed.tokens) scalars.emplace_back("train/tokens_per_second", *speed.tokens);
    if (speed.mfu) scalars.emplace_back("train/mfu", *speed.mfu);
    for (size_t i = 0; i < metric_names_.size(); ++i) scalars.emplace_back(metric_names_[i], result.metrics[i]);
    telemetry_->Add(train.step, std::move(scalars));
  }
  for (const std::string& warning : telemetry_->TakeWarnings()) Warn(warning);
  std::string detail = Format("loss %.4f  lr %.2e", result.loss, result.lr);
  if (speed.tokens) {
    detail += Format("  %.0f tokens/s", *speed.tokens);
  } else if (speed.samples) {
    detail += Format("  %.0f samples/s", *speed.samples);
  }
  progress_->Update(train.step, detail, eta);
}

void Reporter::ReportCheckpoint(const CheckpointWriter& writer) {
  const auto last = writer.last();
  if (!last) return;
  const std::string path = std::filesystem::absolute(writer.directory()).lexically_normal().string();
  board_.Update(
      [&](RankStatus& s) { s.checkpoint = {last->step, last->time, last->bytes, true, last->seconds, path}; });
}

void Reporter::ReportEvaluation(int64_t step, const EvaluationResult& result) {
  ++evaluations_;
  if (!leader_) return;
  evaluation_progress_.reset();
  Scalars scalars;
  std::string text;
  for (const auto& [name, value] : result.metrics) {
    scalars.emplace_back(name, value);
    text += Format("  %s %.4f", name.c_str(), value);
  }
  telemetry_->Add(step, std::move(scalars));
  for (const EventContent& artifact : result.artifacts) telemetry_->Add(step, artifact);
  if (!result.table.empty()) telemetry_->Add(step, Text{"test/table", "```\n" + result.table + "```\n"});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - evaluation_began_;
  Say(Format("evaluation after step %lld (%s):%s", static_cast<long long>(step), HumanSeconds(took.count()).c_str(),
             text.c_str()));
}

void Reporter::ReportComplete(int64_t step) {
  if (leader_) telemetry_->Add(step, RunComplete{});
}

void Reporter::EvaluationProgress(int done, int total) {
  board_.Progress("evaluating");
  if (!leader_) return;
  if (done > 0) return evaluation_progress_->Update(done, "");
  evaluation_began_ = std::chrono::steady_clock::now();
  progress_->Clear();
  evaluation_progress_ =
      std::make_unique<Progress>("evaluation", total, ProgressStyleFromEnvironment(), Progress::End::kNothing);
  evaluation_progress_->Await(0, "evaluation");
}

void Reporter::AwaitFirstStep(int64_t done) {
  if (!leader_) return;
  progress_->Await(done, Format("step %lld of %lld, first step", static_cast<long long>(done) + 1,
                                static_cast<long long>(plan_.total_steps)));
}

void Reporter::Warn(const std::string& text) {
  if (leader_) {
    Say("warning: " + text);
  } else {
    std::fprintf(stderr, "warning: %s\n", text.c_str());  // into this rank's log
  }
  board_.Update([&](RankStatus& s) {
    constexpr size_t kKept = 20;  // A status is one line of bounded length.
    s.warnings.push_back(Cut(ValidUtf8(text), 300));
    if (s.warnings.size() > kKept) s.warnings.erase(s.warnings.begin());
  });
}

void Reporter::Say(const std::string& text) {
  if (!leader_) return;
  if (evaluation_progress_) progress_->Clear();
  (evaluation_progress_ ? evaluation_progress_ : progress_)->Print(text);
}

}  // namespace trainyard

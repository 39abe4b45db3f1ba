#include "trainer/train/train_loop.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/comm/fail_together.h"
#include "trainer/config/relations.h"
#include "trainer/task/tasks.h"
#include "trainer/train/bits.h"
#include "trainer/train/consequences.h"
#include "trainer/train/evaluator.h"
#include "trainer/train/export.h"
#include "trainer/train/run_directory.h"
#include "trainer/train/stage_memory.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

// What the evaluation after `step` said when it was made; nothing when it is not there.
std::optional<std::string> LastTable(const Config& config, int64_t step) {
  const fs::path file = config.run.dir + "/evaluation.json";
  std::string text;
  try {
    text = ReadFile(file);
  } catch (const StorageError&) {  // The run is complete without it.
  }
  const Json evaluation = ParseJson(text);
  const bool ours = evaluation.is_object() && evaluation.value("step", Json()) == step;
  if (!ours || !evaluation.value("table", Json()).is_string()) return std::nullopt;
  return evaluation["table"].get<std::string>();
}

// optim.lr_scaling counts the ranks that the run began with: batch.global is the same whoever goes on.
Plan PlanWithRate(const Config& config, const Decisions& decisions, const Task& task, TrainState& train) {
  Plan plan = MakePlan(config, decisions, *task.MakeOrder(static_cast<uint64_t>(config.run.seed)));
  if (train.lr_world == 0) train.lr_world = plan.world;
  plan.lr_world = static_cast<int>(train.lr_world);
  plan.peak_lr = ScaledRate(config.optim, plan.lr_world);
  return plan;
}

// The first stage from `now` on that an early stop would end with others behind it; empty: there is none.
std::string StageOfAnEarlyStop(const Config& config, const std::vector<StageRun>& stages, int64_t now) {
  const std::string& metric = config.train.early_stop.metric;
  for (auto at = static_cast<size_t>(now); !metric.empty() && at + 1 < stages.size(); ++at) {
    if (stages[at].stage.Counts(metric)) return stages[at].stage.name;
  }
  return "";
}

// printf knows a nan with a sign, which means nothing.
std::string Plain(double value) { return std::isnan(value) ? "nan" : Format("%g", value); }

// The model's configuration is that of the run: it is the same beside any weights of it.
void CommitExport(const Task& task, const fs::path& folder, Replacement& weights) {
  if (const std::string config = task.ExportConfig(); !config.empty()) WriteFileAtomic(folder / "config.json", config);
  weights.Commit();
}

// Rank 0 saves them and says where they are; the others learn whether it could, since any of them may be the one that
// is quoted. The policy counts, also on a full disk, where they cannot be saved.
std::string SaveSamples(const fs::path& file, const Json& content, ControlPlane& control) {
  std::string problem;
  if (control.rank() == 0) {
    try {
      WriteFileAtomic(file, content.dump() + "\n");
    } catch (const StorageError& error) {
      problem = error.what();
    }
  }
  double failed = problem.empty() ? 0 : 1;
  control.AllReduceNow(std::span(&failed, 1), "saving a step's samples");
  if (failed == 0) return "its samples are in " + file.string();
  return "its samples are not saved: " + (problem.empty() ? "rank 0 cannot write " + file.string() : problem);
}

// Each rank makes its plan from its own machine and data: what decides how samples are shared out has to be one.
void RequireSamePlan(const Plan& plan, ControlPlane& control) {
  const std::vector<int64_t> mine = {plan.global_batch, plan.micro,  plan.accumulation,
                                     plan.total_steps,  plan.window, plan.window_replaced};
  const std::vector<int64_t> all = control.AllGatherNow(mine, "comparing the ranks' plans");
  for (size_t at = 0; at < all.size(); at += mine.size()) {
    if (std::equal(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(at))) continue;
    throw ConfigError(
        Format("rank %zu has planned other batches (%lld samples, micro-batches of %lld, %lld steps) than rank %d "
               "(%lld, %lld, %lld): their machines differ; set batch.global, batch.micro and train.steps",
               at / mine.size(), static_cast<long long>(all[at]), static_cast<long long>(all[at + 1]),
               static_cast<long long>(all[at + 3]), control.rank(), static_cast<long long>(mine[0]),
               static_cast<long long>(mine[1]), static_cast<long long>(mine[3])));
  }
}

}  // namespace

TrainLoop::TrainLoop(const Config& config, const Grounds& grounds, StatusPublisher& publisher,
                     std::unique_ptr<Task> task, Session session, const Resume& resume)
    : config_(config),
      publisher_(publisher),
      task_(std::move(task)),
      session_(std::move(session)),
      train_(resume.train),
      decisions_(DecideFor(grounds, *task_, resume.global_batch)),
      plan_(PlanWithRate(config, decisions_, *task_, train_)),
      stages_(PlanStages(config, plan_)),
      engine_(BuildEngine(stage(), *task_, *session_.device, *session_.communicator)),
      clock_(session_.hang ? &session_.hang->recorder() : nullptr),
      checkpoints_(config, plan_, resume.fingerprint, *engine_, best_, session_, resume),
      rank_zero_(session_.store, *session_.control, session_.life),
      step_(std::make_unique<Step>(stage().config, stage().plan, *task_, *engine_, *session_.control, clock_)),
      reporter_(config, plan_, *task_, session_, publisher, train_) {
  RequireSamePlan(plan_, *session_.control);
  RequireStage(train_, stages_);
  RequireSameWindow(plan_, resume.window);
  reporter_.ReportCheckpoint(*checkpoints_.writer());
  if (reporter_.records())
    rank_zero_.Do("reading train.record", [&](const Tick& tick) { reporter_.OpenRecord(train_.step, tick); });
  ResumeBest(resume.has_best);
  checkpoints_.Load();
  rank_zero_.Do("recording the run's identity", [&](const Tick& tick) {
    RecordIdentity(config, resume.fingerprint, {session_.job_uid, session_.attempt}, tick);
    RemoveUnfinishedExports(config.run.dir, tick);
  });
  reporter_.Say("Trainyard: attempt " + std::to_string(session_.attempt) + ", " + resume.message +
                (resume.step > 0 ? BitsDifference(resume.bits, BitsOf(config, plan_)) : "") + "\n" +
                Describe(plan_, config, task_->model().num_parameters(), task_->dataset().size()) +
                Describe(grounds.hardware, decisions_) +
                DescribeMemory(task_->model(), plan_.parallel, StagesOf(config), decisions_.device != "cpu") +
                (publisher.port() ? Format("  %-12s http://%s:%d/status\n", "status",
                                           StatusAddressFromEnvironment().c_str(), publisher.port())
                                  : ""));
  const Hardware& hardware = grounds.hardware;
  const std::string gpu = hardware.gpus.empty() ? "" : hardware.gpus.front().name;
  if (const std::string others = OtherMachines(*session_.control, ProcessorsOf(config, BitsOf(config, plan_), gpu));
      !others.empty())
    reporter_.Warn(others);
  if (grounds.given.parallel.device == "auto" && !hardware.unused_gpus.empty())
    reporter_.Warn("GPUs: " + hardware.unused_gpus + "; this run computes on the host's processors");
  for (const std::string& warning : resume.warnings) reporter_.Warn(warning);
  if (resume.step > 0 && !resume.has_averages && stage().config.optim.ema_decay)
    reporter_.Warn("optim.ema_decay: the checkpoint holds no averages; they begin with its weights");
  for (const std::string& doubt : Doubts(config, plan_.total_steps)) reporter_.Warn(doubt);
  if (const std::string early = StageOfAnEarlyStop(config, stages_, train_.stage); !early.empty())
    reporter_.Warn(
        Format("train.early_stop: it ends the run in whichever stage %s stops improving; in %s already, the "
               "stages behind are not trained",
               config.train.early_stop.metric.c_str(), early.c_str()));
  if (AtEnd()) {
    const std::string why =
        train_.ended_early ? "an early stop has ended this run"
                           : Format("%lld of %lld steps are done; more train.steps or train.epochs go on",
                                    static_cast<long long>(train_.step), static_cast<long long>(plan_.total_steps));
    reporter_.Say(Format("  %-12s nothing is left to train: %s", "complete", why.c_str()));
  }
}

// A checkpoint that was made before the next stage was to start from the best weights does not hold them.
void TrainLoop::ResumeBest(bool saved) {
  if (!stage().keeps_best) return;
  if (train_.best_step > 0 && saved) return best_.Keep(*engine_);  // so that there is room for them
  if (train_.best_step > 0)
    reporter_.Warn(
        Format("the checkpoint does not hold the weights of its best evaluation, after step %lld; the stage's "
               "best is looked for from here on",
               static_cast<long long>(train_.best_step)));
  train_.ForgetBest();
  if (train_.step == stage().end) train_.evaluation_pending = true;  // the last one that may say what is best
}

void TrainLoop::Run() {
  publisher_.board().Progress("training");
  if (AgreeOnStop(*session_.control, "before the first step"))
    throw StoppedError("stopped on request before the first step; nothing was trained in this attempt");
  if (train_.evaluation_pending || (AtEnd() && !HasResults())) Evaluate();
  loader_ =
      MakeLoader(config_, plan_, stages_, *task_, session_.world.rank, decisions_, train_.step, plan_.total_steps);
  if (!AtEnd()) reporter_.AwaitFirstStep(train_.step);
  while (!AtEnd()) {
    if (train_.step >= stage().end) NextStage();
    const StepResult step = TakeStep();
    const bool due = EvaluationDue();
    if (step.stop) SaveAndStop(due);
    if (due) Evaluate();
    if (checkpoints_.IsDue(train_, step.save)) BeginSaving();
  }
  Finish();
}

// It first waits for the checkpoint in flight, whose writer says meanwhile that it gets on.
void TrainLoop::BeginSaving() {
  clock_.Enter("checkpoint");
  publisher_.board().Progress("saving");
  checkpoints_.Begin(train_);
  publisher_.board().Progress("training");
  clock_.Enter("other");
}

// Fewer train.steps than the run had before may end it where nothing was evaluated.
bool TrainLoop::HasResults() {
  double found = session_.world.rank == 0 && LastTable(config_, train_.step) ? 1 : 0;
  session_.control->AllReduceNow(std::span(&found, 1), "looking for the last evaluation");
  return found > 0;
}

void TrainLoop::SettleCheckpoint(bool everyone_lives) {
  if (!everyone_lives) return checkpoints_.writer()->Settle(std::chrono::seconds(1));
  try {
    checkpoints_.writer()->ThrowIfFailed();
  } catch (const std::exception&) {
    return;  // that is the failure
  }
  publisher_.board().Progress("saving");
  try {
    checkpoints_.writer()->Finish();  // ends when one of the others gives no sign of life
  } catch (const std::exception& error) {
    std::fprintf(stderr, "warning: the checkpoint that was being written is lost: %s\n", error.what());
  }
}

std::exception_ptr TrainLoop::CauseOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ToldError&) {
    checkpoints_.writer()->Settle(std::chrono::seconds(1));
  } catch (const std::exception&) {
    return error;
  }
  try {
    checkpoints_.writer()->ThrowIfFailed();
  } catch (const StorageError&) {
    return std::current_exception();
  } catch (const std::exception&) {  // another one's failure
  }
  return error;
}

bool TrainLoop::EvaluationDue() const {
  return AtEnd() || train_.step == stage().end ||
         (config_.train.eval_every > 0 && train_.step % config_.train.eval_every == 0);
}

// What a stage has trained becomes what the next one starts from.
void TrainLoop::NextStage() {
  const StageRun& next = stages_[static_cast<size_t>(train_.stage) + 1];
  if (next.stage.from_best && best_.empty())
    throw NonFiniteError(
        Format("the stage %s starts from the best weights of %s, and no evaluation there gave a "
               "number for checkpoint.keep_best (%s)",
               next.stage.name.c_str(), stage().stage.name.c_str(), config_.checkpoint.keep_best.c_str()));
  checkpoints_.writer()->WaitTaken();  // the memory, too, of a copy of this stage
  if (next.stage.from_best) best_.Restore(*engine_);
  best_.Forget();
  step_.reset();
  ModelValues left = engine_->Release();
  engine_.reset();  // two at once would take more than any stage does
  engine_ = BuildEngine(next, *task_, *session_.device, *session_.communicator, std::move(left));
  checkpoints_.SetEngine(*engine_);
  step_ = std::make_unique<Step>(next.config, next.plan, *task_, *engine_, *session_.control, clock_);
  train_.BeginStage(train_.stage + 1);
  reporter_.Say(Format("stage %lld of %zu, %s: steps %lld to %lld", static_cast<long long>(train_.stage) + 1,
                       stages_.size(), next.stage.name.c_str(), static_cast<long long>(next.first) + 1,
                       static_cast<long long>(next.end)));
}

StepResult TrainLoop::TakeStep() {
  Share share;  // gone before the next one is there
  const auto fetch = [&]() -> const Share& { return share = loader_->Next(); };
  StepResult result = step_->Run(fetch, train_, checkpoints_.writer(), checkpoints_.WantsSave());
  for (const auto& batch : share) {
    for (const SkippedSample& skipped : batch->skipped)
      reporter_.Warn(Format("sample %lld counts nothing: %s (faults.bad_sample: skip)",
                            static_cast<long long>(skipped.id), skipped.error.c_str()));
  }
  GatheredInputs inputs;
  if (reporter_.records() || (!result.finite && !result.overflow)) inputs = GatherInputs(share, *session_.control);
  reporter_.ReportStep(train_, result, inputs, clock_, loader_->times(), *checkpoints_.writer());
  if (result.overflow) {
    reporter_.Say(
        Format("step %lld: a gradient was too large for fp16; it was skipped, and the loss scale is %.10g now",
               static_cast<long long>(train_.step), train_.loss_scale->factor));
  } else if (!result.finite) {
    OnNonFinite(result, inputs.ids);
  }
  return result;
}

// Every rank comes here or none: loss and norm are global.
void TrainLoop::OnNonFinite(const StepResult& result, const std::vector<int64_t>& ids) {
  const std::string file = config_.run.dir + Format("/nonfinite-step-%lld.json", static_cast<long long>(train_.step));
  const Json content = {{"step", train_.step},
                        {"loss", Json::parse(JsonFloat(result.loss))},
                        {"grad_norm", Json::parse(JsonFloat(result.grad_norm))},
                        {"samples", ids}};
  const std::string what =
      Format("step %lld is not finite (loss %s, gradient norm %s); %s", static_cast<long long>(train_.step),
             Plain(result.loss).c_str(), Plain(result.grad_norm).c_str(),
             SaveSamples(file, content, *session_.control).c_str());
  if (config_.faults.nonfinite == "stop") throw NonFiniteError(what + " (faults.nonfinite: stop)");
  if (train_.skipped_in_row > config_.faults.max_skips)
    throw NonFiniteError(what + Format("; %lld steps in a row were skipped (faults.max_skips)",
                                       static_cast<long long>(train_.skipped_in_row)));
  reporter_.Warn(what + "; the update was skipped");
}

void TrainLoop::Evaluate() {
  clock_.Enter("evaluation");
  ShowAverages(true);
  RunOneEvaluation(AtEnd() ? EvaluationKind::kFinal : EvaluationKind::kPeriodic);
  if (train_.ended_early && !final_done_) RunOneEvaluation(EvaluationKind::kFinal);
  ShowAverages(false);
  train_.evaluation_pending = false;
  clock_.Enter("other");
}

void TrainLoop::ShowAverages(bool averages) {
  checkpoints_.writer()->WaitCopied();
  engine_->ShowAverages(averages);
}

void TrainLoop::RunOneEvaluation(EvaluationKind kind) {
  publisher_.board().Progress("evaluating");
  const auto result = EvaluateOrSave(kind);
  if (!result) SaveAndStop(true);
  reporter_.ReportEvaluation(train_.step, *result);
  if (kind == EvaluationKind::kFinal) {
    final_done_ = true;
    table_ = result->table;
    Json evaluation = result->Numbers();
    evaluation["step"] = train_.step;
    evaluation["table"] = result->table;
    WriteOrSave("writing evaluation.json", train_, [&](const Tick&) {
      checkpoints_.writer()->AsOwner(
          [&] { WriteFileAtomic(config_.run.dir + "/evaluation.json", evaluation.dump(1) + "\n"); });
    });
  }
  if (kind == EvaluationKind::kFinal && train_.ended_early) return;  // The periodic one has been acted upon.
  Act(result->metrics);
}

// Of an evaluation that fails, as it would again, what was trained before it is kept; the next attempt begins with it.
std::optional<EvaluationResult> TrainLoop::EvaluateOrSave(EvaluationKind kind) {
  try {
    return RunEvaluation(*task_, kind, train_.step, *engine_, *session_.control,
                         [&](int done, int total) { reporter_.EvaluationProgress(done, total); });
  } catch (...) {
    if (EveryoneLives(std::current_exception())) SaveUnevaluated();
    throw;
  }
}

void TrainLoop::SaveUnevaluated() {
  try {
    double all = 1;  // who has failed alone would wait for the others' parts
    session_.control->AllReduceNow(std::span(&all, 1), "saving what could not be evaluated");
    train_.evaluation_pending = true;
    Save();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "warning: what was trained up to step %lld is not saved: %s\n",
                 static_cast<long long>(train_.step), error.what());
  }
}

// Where there is no room for the result of an evaluation, there may be some for the checkpoint: what was trained is
// then saved before the ranks end, as `before` the evaluation, which the next attempt repeats.
void TrainLoop::WriteOrSave(const std::string& what, const TrainState& before,
                            const std::function<void(const Tick&)>& write, const std::function<void()>& help) {
  std::exception_ptr error;
  const auto guarded = [&](const Tick& tick) {
    try {
      write(tick);
    } catch (const StorageError&) {
      error = std::current_exception();
    } catch (const fs::filesystem_error&) {
      error = std::current_exception();
    }
  };
  rank_zero_.Do(what, guarded, help);
  double failed = error ? 1 : 0;
  session_.control->AllReduceNow(std::span(&failed, 1), what);
  if (failed == 0) return;
  train_ = before;
  train_.evaluation_pending = true;
  Save();
  FailTogether(*session_.control, error, what);
}

void TrainLoop::Act(const std::map<std::string, double>& metrics) {
  const TrainState before = train_;
  const Consequences consequences = ActOn(metrics, stage().config, stage().stage, AtEnd(), train_);
  if (consequences.new_best) KeepBest(metrics.at(config_.checkpoint.keep_best), before);
  if (!consequences.stop_early) return;
  train_.ended_early = true;
  const EarlyStopConfig& early = config_.train.early_stop;
  reporter_.Say(Format("early stop after step %lld: %s has not improved for %lld evaluations",
                       static_cast<long long>(train_.step), early.metric.c_str(),
                       static_cast<long long>(early.patience)));
}

void TrainLoop::KeepBest(double value, const TrainState& before) {
  if (stage().keeps_best) {
    checkpoints_.writer()->WaitCopied();
    best_.Keep(*engine_);
  }
  const fs::path folder = stage().best_dir;
  const auto write = [&](const Tick& tick) {
    Replacement weights = ExportModel(*engine_, config_, folder / "model.safetensors", tick);
    checkpoints_.writer()->AsOwner([&] {
      // First of all: best.json must never stand beside the weights of another step.
      std::error_code ignored;
      fs::remove(folder / "best.json", ignored);
      CommitExport(*task_, folder, weights);
      WriteFileAtomic(
          folder / "best.json",
          Json{{"step", train_.step}, {"metric", config_.checkpoint.keep_best}, {"value", value}}.dump(1) + "\n");
    });
  };
  WriteOrSave("writing the best weights", before, write, [&] { TakePartInExport(*engine_); });
}

void TrainLoop::Save() {
  publisher_.board().Progress("saving");
  checkpoints_.SaveNow(train_);
  reporter_.ReportCheckpoint(*checkpoints_.writer());
}

void TrainLoop::SaveAndStop(bool evaluation_pending) {
  train_.evaluation_pending = evaluation_pending;
  Save();
  throw StoppedError(Format("stopped on request after step %lld of %lld; its checkpoint is durable",
                            static_cast<long long>(train_.step), static_cast<long long>(plan_.total_steps)));
}

void TrainLoop::Finish() {
  Save();
  ShowAverages(true);
  const auto write = [&](const Tick& tick) {
    const fs::path folder = config_.run.dir + "/export";
    Replacement weights = ExportModel(*engine_, config_, folder / "model.safetensors", tick);
    checkpoints_.writer()->AsOwner([&] { CommitExport(*task_, folder, weights); });
  };
  rank_zero_.Do("writing the export", write, [&] { TakePartInExport(*engine_); });
  publisher_.board().Progress("done");
  reporter_.ReportComplete(train_.step);
  if (session_.world.rank != 0) return;
  if (table_.empty()) table_ = LastTable(config_, train_.step).value_or("");  // nothing was left to do
  std::string text = table_.empty() ? "" : "\n" + table_;
  text += Format("\n%-12s %s\n%-12s %s/%s\n%-12s %s/export/model.safetensors\n%-12s %s/tensorboard", "run",
                 config_.run.dir.c_str(), "checkpoint", config_.checkpoint.dir.c_str(), StepName(train_.step).c_str(),
                 "weights", config_.run.dir.c_str(), "TensorBoard", config_.run.dir.c_str());
  reporter_.Say(text);
}

}  // namespace trainyard

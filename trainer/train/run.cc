#include "trainer/train/run.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/config/relations.h"
#include "trainer/data/loader.h"
#include "trainer/task/faulty_task.h"
#include "trainer/task/tasks.h"
#include "trainer/train/checkpoints.h"
#include "trainer/train/evaluator.h"
#include "trainer/train/places.h"
#include "trainer/train/step.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::unique_ptr<Loader> MakeLoader(const Config& config, const Plan& plan, const Task& task, int rank, int64_t first,
                                   int64_t end) {
  const auto seed = static_cast<uint64_t>(config.run.seed);
  const Range share = plan.ShareOf(rank);
  return std::make_unique<Loader>(
      task.dataset(),
      SampleStream(task.MakeOrder(seed), seed, config.data.last == "drop" ? EpochEnd::kDrop : EpochEnd::kCarry,
                   plan.global_batch),
      [&task](std::span<const Sample* const> samples) { return task.Collate(samples); },
      ShareLayout{plan.global_batch, share.begin, share.end, plan.micro}, first, end,
      LoaderOptions{.threads = plan.loader_threads,
                    .prefetch = config.data.prefetch,
                    .hash_inputs = !config.train.record.empty(),
                    .skip_bad = config.faults.bad_sample == "skip"});
}

// Every rank's samples and, where they were hashed, inputs, in global order.
struct GatheredInputs {
  std::vector<int64_t> ids;
  uint64_t hash = 0;
};

GatheredInputs GatherInputs(const Share& share, ControlPlane& control) {
  std::vector<int64_t> ids, hashes;
  for (const auto& batch : share) {
    ids.insert(ids.end(), batch->ids.begin(), batch->ids.end());
    hashes.insert(hashes.end(), batch->input_hashes.begin(), batch->input_hashes.end());
  }
  hashes.resize(ids.size(), 0);
  GatheredInputs gathered;
  gathered.ids = control.AllGatherNow(ids, "record");
  const std::vector<int64_t> all = control.AllGatherNow(hashes, "record");
  gathered.hash = Xxh3Of(std::span<const int64_t>(all));
  return gathered;
}

// Of a declared metric, less is better.
double Badness(const Config& config, const std::string& metric, const std::map<std::string, double>& values) {
  const auto value = values.find(metric);
  if (value == values.end())
    throw std::logic_error("the evaluation does not give " + metric + ", which the task declares");
  return Badness(config.task.options->Metrics(), metric, value->second);
}

std::unique_ptr<Engine> BuildEngine(const Config& config, const Plan& plan, const Task& task,
                                    Collectives& collectives) {
  return MakeEngine(task.model(),
                    {.precision = plan.precision,
                     .bucket_bytes = static_cast<int64_t>(config.parallel.bucket_mib * (1 << 20)),
                     .micro_batch = plan.micro,
                     .optim = config.optim,
                     .trainable = {}},
                    static_cast<uint64_t>(config.run.seed), collectives);
}

// What does not fit together, or into memory, is refused before anything is written or allocated.
Plan FirstPlan(const Config& config, const Task& task, int world, int ranks_here) {
  const Plan plan = MakePlan(config, task.dataset().size(), world, 0);
  RequireMemory(PlanDdpMemory(task.model(), plan.precision, world), task.model().num_parameters(), ranks_here);
  return plan;
}

// The parts of a run, in the order in which they are built.
class Training {
 public:
  Training(const Config& config, StatusPublisher& publisher, std::unique_ptr<Task> task, Session session,
           const Resume& resume)
      : config_(config),
        publisher_(publisher),
        task_(std::move(task)),
        session_(std::move(session)),
        train_(resume.train),
        plan_(MakePlan(config, task_->dataset().size(), session_.world.size, resume.global_batch)),
        engine_(BuildEngine(config, plan_, *task_, *session_.communicator)),
        checkpoints_(config, plan_, task_->dataset().fingerprint(), *engine_, session_, resume),
        step_(config, plan_, *task_, *engine_, *session_.communicator, clock_),
        reporter_(config, plan_, *task_, session_, publisher, train_) {
    checkpoints_.Load();
    reporter_.Say("Trainyard: attempt " + std::to_string(session_.attempt) + ", " + resume.message + "\n" +
                  Describe(plan_, config, task_->model().num_parameters(), task_->dataset().size()) +
                  (publisher.port() ? Format("  %-12s http://%s:%d/status\n", "status",
                                             StatusAddressFromEnvironment().c_str(), publisher.port())
                                    : ""));
    for (const std::string& warning : resume.warnings) reporter_.Warn(warning);
    for (const std::string& doubt : Doubts(config, plan_.total_steps)) reporter_.Warn(doubt);
    if (AtEnd()) {
      reporter_.Say(Format("  %-12s nothing is left to train: %s", "complete",
                           train_.ended_early ? "an early stop has ended this run"
                                              : "all its steps are done; more train.steps or train.epochs go on"));
    }
  }

  void Run() {
    publisher_.board().Progress("training");
    if (AgreeOnStop(*session_.communicator, "before the first step"))
      throw StoppedError("stopped on request before the first step; nothing was trained in this attempt");
    if (train_.evaluation_pending) Evaluate();
    loader_ = MakeLoader(config_, plan_, *task_, session_.world.rank, train_.step, plan_.total_steps);
    while (!AtEnd()) {
      const bool stop = TakeStep();
      const bool due = EvaluationDue();
      if (stop) SaveAndStop(due);
      if (due) Evaluate();
      clock_.Enter("checkpoint");
      checkpoints_.MaybeSave(train_);
      clock_.Enter("other");
    }
    Finish();
  }

  // A failing rank still helps to complete a checkpoint that is being written, for a moment.
  void SettleCheckpoint() { checkpoints_.writer()->Settle(std::chrono::seconds(3)); }

 private:
  bool AtEnd() const { return train_.step >= plan_.total_steps || train_.ended_early; }
  bool EvaluationDue() const {
    return AtEnd() || (config_.train.eval_every > 0 && train_.step % config_.train.eval_every == 0);
  }

  // Returns whether some rank was asked to stop.
  bool TakeStep() {
    const auto fetch = [&]() -> const Share& { return share_ = loader_->Next(); };
    const StepResult result = step_.Run(fetch, train_, checkpoints_.writer());
    for (const auto& batch : share_) {
      for (const SkippedSample& skipped : batch->skipped)
        reporter_.Warn(Format("sample %lld counts nothing: %s (faults.bad_sample: skip)",
                              static_cast<long long>(skipped.id), skipped.error.c_str()));
    }
    GatheredInputs inputs;
    if (reporter_.records() || !result.finite) inputs = GatherInputs(share_, *session_.communicator);
    reporter_.ReportStep(train_, result, inputs.ids, inputs.hash, clock_, *checkpoints_.writer());
    if (!result.finite) OnNonFinite(result, inputs.ids);
    return result.stop;
  }

  // Every rank comes here or none: loss and norm are global.
  void OnNonFinite(const StepResult& result, const std::vector<int64_t>& ids) {
    const std::string file = config_.run.dir + Format("/nonfinite-step-%lld.json", static_cast<long long>(train_.step));
    const std::string what = Format("step %lld is not finite (loss %g, gradient norm %g); its samples are in %s",
                                    static_cast<long long>(train_.step), result.loss, result.grad_norm, file.c_str());
    if (session_.world.rank == 0)
      WriteFileAtomic(file, Json{{"step", train_.step},
                                 {"loss", JsonFloat(result.loss)},
                                 {"grad_norm", JsonFloat(result.grad_norm)},
                                 {"samples", ids}}
                                    .dump() +
                                "\n");
    if (config_.faults.nonfinite == "stop") throw NonFiniteError(what + " (faults.nonfinite: stop)");
    if (train_.skipped_in_row > config_.faults.max_skips)
      throw NonFiniteError(what + Format("; %lld steps in a row were skipped (faults.max_skips)",
                                         static_cast<long long>(train_.skipped_in_row)));
    reporter_.Warn(what + "; the update was skipped");
  }

  void Evaluate() {
    clock_.Enter("evaluation");
    RunOneEvaluation(AtEnd() ? EvaluationKind::kFinal : EvaluationKind::kPeriodic);
    if (train_.ended_early && !final_done_) RunOneEvaluation(EvaluationKind::kFinal);
    train_.evaluation_pending = false;
    clock_.Enter("other");
  }

  void RunOneEvaluation(EvaluationKind kind) {
    publisher_.board().Progress("evaluating");
    const auto result = RunEvaluation(*task_, kind, train_.step, *engine_, *session_.communicator,
                                      [&](int done, int total) { reporter_.EvaluationProgress(done, total); });
    if (!result) SaveAndStop(true);
    reporter_.ReportEvaluation(train_.step, *result);
    if (kind == EvaluationKind::kFinal) {
      final_done_ = true;
      table_ = result->table;
      Json evaluation = result->Numbers();
      evaluation["step"] = train_.step;
      evaluation["table"] = result->table;
      if (session_.world.rank == 0) WriteFileAtomic(config_.run.dir + "/evaluation.json", evaluation.dump(1) + "\n");
    }
    if (kind == EvaluationKind::kFinal && train_.ended_early) return;  // The periodic one has been acted upon.
    Act(result->metrics);
  }

  // What follows from an evaluation; the same on every rank.
  void Act(const std::map<std::string, double>& metrics) {
    if (config_.schedule.name == "plateau")
      train_.plateau.Update(config_.schedule, Badness(config_, config_.schedule.metric, metrics));
    if (const std::string& best = config_.checkpoint.keep_best; !best.empty()) {
      const double badness = Badness(config_, best, metrics);
      if (badness < train_.best) {
        train_.best = badness;
        train_.best_step = train_.step;
        if (session_.world.rank == 0) {
          ExportModel(*engine_, config_.run.dir + "/best/model.safetensors");
          WriteFileAtomic(config_.run.dir + "/best/best.json",
                          Json{{"step", train_.step}, {"metric", best}, {"value", metrics.at(best)}}.dump(1) + "\n");
        }
      }
    }
    const EarlyStopConfig& early = config_.train.early_stop;
    if (!early.metric.empty() && !AtEnd() && train_.early_stop.Update(early, Badness(config_, early.metric, metrics))) {
      train_.ended_early = true;
      reporter_.Say(Format("early stop after step %lld: %s has not improved for %lld evaluations",
                           static_cast<long long>(train_.step), early.metric.c_str(),
                           static_cast<long long>(early.patience)));
    }
  }

  [[noreturn]] void SaveAndStop(bool evaluation_pending) {
    publisher_.board().Progress("saving");
    train_.evaluation_pending = evaluation_pending;
    checkpoints_.SaveNow(train_);
    reporter_.ReportCheckpoint(*checkpoints_.writer());
    throw StoppedError(Format("stopped on request after step %lld of %lld; its checkpoint is durable",
                              static_cast<long long>(train_.step), static_cast<long long>(plan_.total_steps)));
  }

  void Finish() {
    publisher_.board().Progress("saving");
    checkpoints_.SaveNow(train_);
    reporter_.ReportCheckpoint(*checkpoints_.writer());
    if (session_.world.rank == 0) ExportModel(*engine_, config_.run.dir + "/export/model.safetensors");
    session_.communicator->Barrier("end");
    publisher_.board().Progress("done");
    reporter_.ReportComplete(train_.step);
    if (session_.world.rank != 0) return;
    std::string text = table_.empty() ? "" : "\n" + table_;
    text += Format("\n%-12s %s\n%-12s %s/%s\n%-12s %s/export/model.safetensors\n%-12s %s/tensorboard", "run",
                   config_.run.dir.c_str(), "checkpoint", config_.checkpoint.dir.c_str(), StepName(train_.step).c_str(),
                   "weights", config_.run.dir.c_str(), "TensorBoard", config_.run.dir.c_str());
    reporter_.Say(text);
  }

  const Config& config_;
  StatusPublisher& publisher_;
  std::unique_ptr<Task> task_;
  Session session_;
  TrainState train_;
  Plan plan_;
  std::unique_ptr<Engine> engine_;
  PhaseClock clock_;
  Checkpoints checkpoints_;
  Step step_;
  Reporter reporter_;
  std::unique_ptr<Loader> loader_;
  Share share_;
  bool final_done_ = false;
  std::string table_;
};

void ApplyDeterminism(const Config& config) {
  at::globalContext().setDeterministicAlgorithms(config.run.deterministic, false);
  // Buffers are written before they are read; filling them first would only cost time.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

// A world of one around a task, without any file: for dry runs and evaluations.
struct Alone {
  explicit Alone(const Config& config)
      : task(BuildTask(config)),
        plan(FirstPlan(config, *task, 1, 1)),
        communicator(MakeSingleCommunicator()),
        engine(BuildEngine(config, plan, *task, *communicator)) {
    ApplyDeterminism(config);
  }
  std::unique_ptr<Task> task;
  Plan plan;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Engine> engine;
};

}  // namespace

void RunTraining(const Config& config, StatusPublisher& publisher) {
  ApplyDeterminism(config);
  publisher.board().Progress("rendezvous");
  const World world = WorldFromEnvironment();
  if (world.rank == 0) CheckPlaces(config);
  std::unique_ptr<Task> task = WithTestFault(BuildTask(config), world.rank);
  FirstPlan(config, *task, world.size, world.local_size);
  Session session = JoinWorld(config, task->dataset().fingerprint());
  publisher.channel().SendHello(session.attempt, config.run.dir);
  publisher.board().Update([&](RankStatus& s) {
    s.job_uid = session.job_uid;
    s.attempt = session.attempt;
  });
  publisher.board().Progress("loading");
  const Resume resume = ChooseResume(config, task->dataset().fingerprint(), session);
  Training training(config, publisher, std::move(task), std::move(session), resume);
  try {
    training.Run();
  } catch (...) {
    training.SettleCheckpoint();
    throw;
  }
}

void DryRun(const Config& config) {
  CheckPlaces(config);
  Alone alone(config);
  if (!config.init.from.empty()) LoadWeights(config.init.from, *alone.engine);
  PhaseClock clock;
  Step step(config, alone.plan, *alone.task, *alone.engine, *alone.communicator, clock);
  TrainState train;
  const Share share = MakeLoader(config, alone.plan, *alone.task, 0, 0, 1)->Next();
  const StepResult result = step.Run([&]() -> const Share& { return share; }, train, nullptr);
  std::printf("%s  dry run      one batch: loss %.6g, gradient norm %.6g; nothing was written\n",
              Describe(alone.plan, config, alone.task->model().num_parameters(), alone.task->dataset().size()).c_str(),
              result.loss, result.grad_norm);
  for (const std::string& doubt : Doubts(config, alone.plan.total_steps))
    std::printf("  %-12s %s\n", "warning", doubt.c_str());
}

void EvaluateCheckpoint(const Config& config, const std::string& path) {
  Alone alone(config);
  LoadModel(path, config, alone.task->dataset().fingerprint(), *alone.engine);
  std::unique_ptr<Progress> bar;
  const auto result = RunEvaluation(
      *alone.task, EvaluationKind::kFinal, 0, *alone.engine, *alone.communicator, [&](int done, int total) {
        if (!bar) bar = std::make_unique<Progress>("evaluation", total, ProgressStyleFromEnvironment());
        bar->Update(done, "");
      });
  if (!result) throw StoppedError("stopped on request");
  std::printf("%s\n%s\n", result->table.c_str(), result->Numbers().dump(1).c_str());
}

}  // namespace trainyard

#include "trainer/train/run.h"

#include <ATen/Context.h>

#include <algorithm>
#include <exception>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/memory.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/fail_together.h"
#include "trainer/comm/store.h"
#include "trainer/config/relations.h"
#include "trainer/device/open_device.h"
#include "trainer/device/tensor_memory.h"
#include "trainer/task/faulty_task.h"
#include "trainer/task/tasks.h"
#include "trainer/train/evaluator.h"
#include "trainer/train/frozen.h"
#include "trainer/train/places.h"
#include "trainer/train/remedies.h"
#include "trainer/train/resume.h"
#include "trainer/train/run_directory.h"
#include "trainer/train/train_loop.h"

namespace trainyard {
namespace {

Plan PlanOf(const Config& config, const Grounds& grounds, const Task& task, int64_t resumed_global) {
  return MakePlan(config, DecideFor(grounds, task, resumed_global),
                  *task.MakeOrder(static_cast<uint64_t>(config.run.seed)));
}

void ApplyDeterminism(const Config& config) {
  at::globalContext().setDeterministicAlgorithms(config.run.deterministic, false);
  // Buffers are written before they are read; filling them first would only cost time.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setAllowTF32CuDNN(false);  // fp32 is 24 bits, also in a convolution
}

// The configuration with what is decided before the data is read; this process is set up for it.
Config SetUp(const Grounds& grounds) {
  const Decisions decisions = DecideWithoutData(grounds);
  Apply(decisions.environment);
  ApplyThreads(decisions.threads.count);
  Config config = Resolved(grounds.given, decisions);
  ApplyDeterminism(config);
  return config;
}

// Whether an auto batch may be that of a checkpoint, which rank 0 finds later; the others know nothing of it.
bool MayKeepBatch(const Config& config, const World& world) {
  if (config.batch.global) return false;
  const std::string& resume = config.checkpoint.resume;
  return world.rank != 0 || HasBegun(config) || (resume != "auto" && resume != "never") ||
         !ListSteps(config.checkpoint.dir).empty();
}

// What does not fit together, or into memory, is refused before anything is written or allocated.
void RequireFeasible(const Config& config, const Grounds& grounds, const Task& task) {
  const Plan plan = PlanOf(config, grounds, task, 0);
  if (!MayKeepBatch(config, grounds.world)) PlanStages(config, plan);
  if (config.parallel.device != "cpu") return;  // what is free there may still be a last attempt's
  const std::vector<Stage> stages = StagesOf(config);
  RequireMemory({task.model(), stages, plan.parallel, grounds.world.local_size}, BudgetOf(grounds.hardware));
}

// What a start would be refused for when it has taken the run over is found before: a mistake ends nobody else.
void RequirePlanFor(const SavedState& saved, const Config& config, const Grounds& grounds, const Task& task) {
  const Plan plan = PlanOf(config, grounds, task, saved.global_batch);
  RequireStage(saved.train, PlanStages(config, plan));
  RequireSameWindow(plan, saved.window);
}

int64_t SamplesOf(const Task& task, const Config& config) {
  return task.MakeOrder(static_cast<uint64_t>(config.run.seed))->items();
}

// A world of one around a task, without any file: for dry runs and evaluations.
struct Alone {
  // `resumed_global`: as of DecideFor, but for data of fewer samples.
  explicit Alone(const Config& given, int64_t resumed_global = 0)
      : grounds(GroundsHere(given, {})),
        config(SetUp(grounds)),
        task(BuildTask(config)),
        stages(PlanStages(config, PlanOf(config, grounds, *task, std::min(resumed_global, SamplesOf(*task, config))))),
        device(OpenDevice(config.parallel.device, 0)),
        collectives(device->Connect(std::make_shared<MemoryStore>(), {})),
        control(MakeSingleCommunicator()) {
    // One engine, and no checkpoint: less than a run takes, whose other stages never come here.
    const MemoryBudget budget = BudgetOf(grounds.hardware);
    const int64_t engine_bytes = PlanEngine(task->model(), plan().parallel, stages.back().stage.trainable).total();
    if (config.parallel.device == "cpu" && static_cast<uint64_t>(engine_bytes) > budget.bytes)
      RequireMemory({task->model(), std::span(&stages.back().stage, 1), plan().parallel, 1}, budget);
    engine = BuildEngine(stages.back(), *task, *device, *collectives);
  }
  const Plan& plan() const { return stages.back().plan; }

  const Grounds grounds;
  const Config config;
  std::unique_ptr<Task> task;
  std::vector<StageRun> stages;
  std::unique_ptr<Device> device;
  std::unique_ptr<Collectives> collectives;
  std::unique_ptr<Communicator> control;
  std::unique_ptr<Engine> engine;  // of the last stage, whose checkpoints are evaluated
};

// The state of a checkpoint, or of the newest in a directory of them whose state can be read; nothing of a file of
// weights, which has none.
std::optional<SavedState> StateOf(const std::string& path) {
  if (!fs::is_directory(path)) return std::nullopt;
  return SavedStateOf(FindCheckpoint("--checkpoint", path, [](OpenCheckpoint&) {}));
}

// As of which stage weights are evaluated; says so where there are several.
size_t StageOf(const std::string& path, const std::optional<SavedState>& saved, const std::vector<StageRun>& stages) {
  const size_t last = stages.size() - 1, stage = saved ? std::min(static_cast<size_t>(saved->train.stage), last) : last;
  if (last == 0) return stage;
  const Stage& of = stages[stage].stage;
  std::fprintf(stderr, "note: %s %s %s (%zu of %zu)%s\n", path.c_str(),
               saved ? "is of the stage" : "does not say of which stage it is, and is evaluated as of the last,",
               of.name.c_str(), stage + 1, stages.size(),
               of.metrics.empty() ? "" : ("; what that trains is judged by " + Join(of.metrics) + " alone").c_str());
  return stage;
}

}  // namespace

void RunTraining(const Config& given, StatusPublisher& publisher, const Endings& endings) {
  KeepFreedMemory();
  publisher.board().Progress("rendezvous");
  const World world = WorldFromEnvironment();
  PoolTensors(MemoryLimitHere().bytes / static_cast<uint64_t>(world.local_size));
  const Grounds grounds = GroundsHere(given, world);
  const Config config = SetUp(grounds);
  if (world.rank == 0) CheckPlaces(config);
  std::unique_ptr<Task> task = WithTestFault(BuildTask(config), world.rank);
  RequireFeasible(config, grounds, *task);
  Session session =
      JoinWorld(config, task->dataset(),
                {endings.named, endings.stuck, endings.joined, [&publisher] { publisher.board().Alive(); }});
  publisher.channel().SendHello(session.attempt, config.run.dir);
  publisher.board().Joined(session.job_uid, session.attempt);
  publisher.board().Progress("loading");
  Resume resume =
      TakeOver(config, session, [&](const SavedState& saved) { RequirePlanFor(saved, config, grounds, *task); });
  if (!session.predecessor.empty())
    std::fprintf(stderr,
                 "warning: %s is still alive; attempt %lld takes the run over, and that one will save "
                 "nothing more, and end within seconds\n",
                 session.predecessor.c_str(), static_cast<long long>(session.attempt));
  for (const std::string& held : {config.run.dir, config.checkpoint.dir}) {
    if (world.rank == 0) session.marks.push_back(std::make_unique<RunningMark>(held, session.attempt));
  }
  TrainLoop loop(config, grounds, publisher, std::move(task), std::move(session), resume);
  resume.source.reset();
  std::exception_ptr failure;
  try {
    loop.Run();
    return;
  } catch (const std::exception&) {
    failure = loop.CauseOf(std::current_exception());
  }
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    endings.failing(error);
    loop.SettleCheckpoint(EveryoneLives(failure));
    throw;
  }
}

void DryRun(const Config& given) {
  CheckPlaces(given);
  Alone alone(given);
  const Config& config = alone.config;
  if (!config.init.from.empty()) LoadWeights("init.from", config.init.from, WeightsUse::kStart, config, *alone.engine);
  PhaseClock clock;
  Step step(alone.stages.back().config, alone.plan(), *alone.task, *alone.engine, *alone.control, clock);
  TrainState train;
  const Decisions decisions = DecideFor(alone.grounds, *alone.task, 0);
  const int64_t first = alone.stages.back().first;  // the engine is of the last stage
  const Share share =
      MakeLoader(config, alone.plan(), alone.stages, *alone.task, 0, decisions, first, first + 1)->Next();
  const StepResult result = step.Run([&]() -> const Share& { return share; }, train, nullptr);
  std::printf(
      "%s%s  dry run      one batch: loss %.6g, gradient norm %.6g; nothing was written\n",
      Describe(alone.plan(), config, alone.task->model().num_parameters(), alone.task->dataset().size()).c_str(),
      Describe(alone.grounds.hardware, decisions).c_str(), result.loss, result.grad_norm);
  for (const std::string& doubt : Doubts(config, alone.plan().total_steps))
    std::printf("  %-12s %s\n", "warning", doubt.c_str());
}

void EvaluateCheckpoint(const Config& given, const std::string& path) {
  Config plain = given;
  plain.optim.ema_decay.reset();  // a checkpoint's averages are loaded as the weights
  std::optional<SavedState> saved = StateOf(path);
  Alone alone(plain, saved ? saved->global_batch : 0);
  const Config& config = alone.config;
  const auto obey = [] {
    if (StopRequested()) throw StoppedError("stopped on request while the data was read");
  };
  const std::optional<int64_t> step =
      LoadModel(path, config, FingerprintOf(config, alone.task->dataset().fingerprint(obey), obey), *alone.engine);
  // A checkpoint does not hold what is never trained.
  if (!config.init.from.empty() && fs::is_directory(path))
    LoadFrom(config.init.from, LoadedPart::kFrozen, *alone.engine, *alone.control, std::make_shared<MemoryStore>(), {});
  alone.engine->Publish();
  if (saved && step && saved->train.step != *step)  // the newest is damaged, or another one by now
    saved = SavedStateOf(OpenCheckpoint::Open(CheckpointsAt("--checkpoint", path) / StepName(*step)));
  const size_t stage = StageOf(path, saved, alone.stages);
  // Outside of a run no step was made (0), of which tasks evaluate the last stage; of another one its last step.
  const int64_t at = stage + 1 == alone.stages.size() ? 0 : alone.stages[stage].end;
  std::unique_ptr<Progress> bar;
  const auto result =
      RunEvaluation(*alone.task, EvaluationKind::kFinal, at, *alone.engine, *alone.control, [&](int done, int total) {
        if (done > 0) return bar->Update(done, "");
        bar = std::make_unique<Progress>("evaluation", total, ProgressStyleFromEnvironment(), Progress::End::kNothing);
        bar->Await(0, "evaluation");
      });
  bar.reset();
  if (!result) throw StoppedError("stopped on request");
  nlohmann::json numbers = result->Numbers();
  if (step) numbers["step"] = *step;
  if (alone.stages.size() > 1) numbers["stage"] = alone.stages[stage].stage.name;
  std::printf("%s\n%s\n", result->table.c_str(), numbers.dump(1).c_str());
}

}  // namespace trainyard

#include "trainer/train/run.h"

#include <ATen/Context.h>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/memory.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/config/relations.h"
#include "trainer/task/faulty_task.h"
#include "trainer/task/tasks.h"
#include "trainer/train/evaluator.h"
#include "trainer/train/frozen.h"
#include "trainer/train/places.h"
#include "trainer/train/resume.h"
#include "trainer/train/run_directory.h"
#include "trainer/train/stage_memory.h"
#include "trainer/train/threads.h"
#include "trainer/train/train_loop.h"

namespace trainyard {
namespace {

// What does not fit together, or into memory, is refused before anything is written or allocated.
void RequireFeasible(const Config& config, const Task& task, const World& world) {
  const Plan plan = MakePlan(config, task, world.size, 0);
  PlanStages(config, plan);
  const std::vector<Stage> stages = StagesOf(config);
  const std::vector<PlannedMoment> moments = PlanMoments(task.model(), plan.parallel, stages);
  const PlannedMoment& largest = Largest(moments);
  RequireMemory(largest.memory, NameOf(largest, stages), task.model().num_parameters(), world.local_size);
}

void ApplyDeterminism(const Config& config) {
  at::globalContext().setDeterministicAlgorithms(config.run.deterministic, false);
  // Buffers are written before they are read; filling them first would only cost time.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

// A world of one around a task, without any file: for dry runs and evaluations.
struct Alone {
  explicit Alone(const Config& config)
      : task(BuildTask(config)),
        stages(PlanStages(config, MakePlan(config, *task, 1, 0))),
        communicator(MakeSingleCommunicator()) {
    ApplyDeterminism(config);
    // One engine, and no checkpoint: less than a run takes, whose other stages never come here.
    const ModelDeclaration& model = task->model();
    RequireMemory(PlanEngine(model, plan().parallel, stages.back().stage.trainable), "", model.num_parameters(), 1);
    engine = BuildEngine(stages.back(), *task, *communicator);
  }
  const Plan& plan() const { return stages.back().plan; }

  std::unique_ptr<Task> task;
  std::vector<StageRun> stages;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Engine> engine;  // of the last stage, whose checkpoints are evaluated
};

}  // namespace

void RunTraining(const Config& config, StatusPublisher& publisher) {
  KeepFreedMemory();
  ApplyDeterminism(config);
  publisher.board().Progress("rendezvous");
  const World world = WorldFromEnvironment();
  const std::string threads = ApplyThreads(world);
  if (world.rank == 0) CheckPlaces(config);
  std::unique_ptr<Task> task = WithTestFault(BuildTask(config), world.rank);
  RequireFeasible(config, *task, world);
  Session session = JoinWorld(config, task->dataset());
  session.threads = threads;
  publisher.channel().SendHello(session.attempt, config.run.dir);
  if (!session.predecessor.empty())
    std::fprintf(stderr,
                 "warning: %s of this run is still alive; attempt %lld takes the run over, and that one will save "
                 "nothing more and end\n",
                 session.predecessor.c_str(), static_cast<long long>(session.attempt));
  publisher.board().Joined(session.job_uid, session.attempt);
  publisher.board().Progress("loading");
  Resume resume = TakeOver(config, session);
  TrainLoop loop(config, publisher, std::move(task), std::move(session), resume);
  resume.source.reset();
  try {
    loop.Run();
  } catch (...) {
    loop.SettleCheckpoint();
    throw;
  }
}

void DryRun(const Config& config) {
  CheckPlaces(config);
  ApplyThreads({});
  Alone alone(config);
  if (!config.init.from.empty()) LoadWeights("init.from", config.init.from, *alone.engine);
  PhaseClock clock;
  Step step(alone.stages.back().config, alone.plan(), *alone.task, *alone.engine, *alone.communicator, clock);
  TrainState train;
  const int threads = LoaderThreads(config.data.workers, AvailableCpus(), 1).count;
  const Share share = MakeLoader(config, alone.plan(), *alone.task, 0, threads, 0, 1)->Next();
  const StepResult result = step.Run([&]() -> const Share& { return share; }, train, nullptr);
  std::printf(
      "%s  dry run      one batch: loss %.6g, gradient norm %.6g; nothing was written\n",
      Describe(alone.plan(), config, alone.task->model().num_parameters(), alone.task->dataset().size()).c_str(),
      result.loss, result.grad_norm);
  for (const std::string& doubt : Doubts(config, alone.plan().total_steps))
    std::printf("  %-12s %s\n", "warning", doubt.c_str());
}

void EvaluateCheckpoint(const Config& config, const std::string& path) {
  ApplyThreads({});
  Alone alone(config);
  const auto obey = [] {
    if (StopRequested()) throw StoppedError("stopped on request while the data was read");
  };
  const std::optional<int64_t> step =
      LoadModel(path, config, FingerprintOf(config, alone.task->dataset().fingerprint(obey), obey), *alone.engine);
  // A checkpoint does not hold what is never trained.
  if (!config.init.from.empty() && fs::is_directory(path))
    LoadFrom(config.init.from, LoadedPart::kFrozen, *alone.engine, *alone.communicator,
             std::make_shared<MemoryStore>());
  alone.engine->Publish();
  std::unique_ptr<Progress> bar;
  const auto result = RunEvaluation(
      *alone.task, EvaluationKind::kFinal, 0, *alone.engine, *alone.communicator, [&](int done, int total) {
        if (done > 0) return bar->Update(done, "");
        bar = std::make_unique<Progress>("evaluation", total, ProgressStyleFromEnvironment(), Progress::End::kNothing);
        bar->Await(0, "evaluation");
      });
  bar.reset();
  if (!result) throw StoppedError("stopped on request");
  nlohmann::json numbers = result->Numbers();
  if (step) numbers["step"] = *step;
  std::printf("%s\n%s\n", result->table.c_str(), numbers.dump(1).c_str());
}

}  // namespace trainyard

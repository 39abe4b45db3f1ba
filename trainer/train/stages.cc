#include "trainer/train/stages.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/optim/schedule.h"
#include "trainer/task/tasks.h"
#include "trainer/train/checkpoints.h"

namespace trainyard {

std::vector<StageRun> PlanStages(const Config& config, const Plan& plan) {
  const int64_t total_steps = plan.total_steps;
  const std::vector<Stage> stages = StagesOf(config);
  std::vector<StageRun> runs;
  int64_t step = 0;
  std::string sum;
  for (const Stage& stage : stages) {
    StageRun run{stage,  step, step + (stages.size() == 1 ? total_steps : stage.steps),
                 config, plan, config.run.dir + "/best"};
    if (stages.size() > 1) run.best_dir += "/" + stage.name;
    if (run.end <= run.first)
      throw ConfigError(Format("train.steps: %lld leaves the stage %s no step", static_cast<long long>(total_steps),
                               stage.name.c_str()));
    run.config.optim = stage.optim.value_or(config.optim);
    run.config.schedule = stage.schedule.value_or(config.schedule);
    run.plan.schedule_steps = run.end - run.first;
    run.plan.peak_lr = ScaledRate(run.config.optim, plan.world);
    step = run.end;
    sum += (sum.empty() ? "" : " + ") + std::to_string(stage.steps) + " (" + stage.name + ")";
    if (stage.from_best && config.checkpoint.keep_best.empty())
      throw ConfigError("checkpoint.keep_best: missing; the stage " + stage.name +
                        " starts from the best weights of the one before");
    runs.push_back(std::move(run));
  }
  if (step != total_steps)
    throw ConfigError(Format("train.steps: %lld is not what the stages add up to: %s",
                             static_cast<long long>(total_steps), sum.c_str()));
  return runs;
}

namespace {

// The best weights of the last stage, if they are those that the run remembers: another attempt may have come further,
// and left others.
void LoadBest(const std::string& directory, int64_t best_step, Engine& to) {
  const std::string file = directory + "/best.json";
  std::error_code error;
  const auto best = std::filesystem::exists(file, error) ? ParseJson(ReadFile(file)) : nlohmann::json();
  if (!best.is_object() || best.value("step", int64_t{-1}) != best_step)
    throw StorageError(
        Format("%s does not hold the best weights of this run, of step %lld; the next stage starts from "
               "them",
               directory.c_str(), static_cast<long long>(best_step)));
  try {
    LoadWeights(directory, directory + "/model.safetensors", to);
  } catch (const ConfigError& error) {  // The run has written it: nobody's configuration is wrong.
    throw StorageError(error.what());
  }
}

}  // namespace

std::unique_ptr<Engine> BuildEngine(const StageRun& stage, const Task& task, Collectives& collectives,
                                    ModelValues from) {
  return MakeEngine(task.model(),
                    {.precision = stage.plan.precision,
                     .bucket_bytes = static_cast<int64_t>(stage.config.parallel.bucket_mib * (1 << 20)),
                     .micro_batch = stage.plan.micro,
                     .optim = stage.config.optim,
                     .trainable = stage.stage.trainable},
                    static_cast<uint64_t>(stage.config.run.seed), collectives, std::move(from));
}

void TakeBest(Engine& engine, const std::string& best_dir, int64_t best_step, Communicator& communicator) {
  std::exception_ptr error;
  double failed = 0;
  if (communicator.rank() == 0) {
    try {
      LoadBest(best_dir, best_step, engine);
    } catch (...) {
      error = std::current_exception();
      failed = 1;
    }
  }
  communicator.AllReduceNow(std::span(&failed, 1), "best weights of the last stage");
  if (error) std::rethrow_exception(error);
  if (failed > 0) throw PeerError("rank 0 could not read the best weights in " + best_dir);
  for (const StateSlice& slice : engine.Slices()) {
    if (slice.key.starts_with("adamw.")) continue;
    at::Tensor part = at::from_blob(slice.values.data(), {slice.end - slice.begin}, at::kFloat);
    communicator.Wait(communicator.Broadcast(part, 0, "best weights of the last stage"));
  }
  engine.Publish();
}

}  // namespace trainyard

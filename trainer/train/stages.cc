#include "trainer/train/stages.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/optim/schedule.h"
#include "trainer/task/tasks.h"

namespace trainyard {

namespace {

// Of one that begins at `first`. An epoch's last step may hold samples of the next epoch.
int64_t StepsOf(const Stage& stage, int64_t first, const Plan& plan) {
  if (stage.epochs == 0) return stage.steps;
  // In double precision first: an absurd number of epochs must not leave the range of steps.
  const double samples = static_cast<double>(stage.epochs) * static_cast<double>(plan.epoch_samples) +
                         static_cast<double>(first) * static_cast<double>(plan.global_batch);
  if (samples / static_cast<double>(plan.global_batch) > static_cast<double>(plan.total_steps)) return plan.total_steps;
  const int64_t end = first * plan.global_batch + stage.epochs * plan.epoch_samples;
  return (end + plan.global_batch - 1) / plan.global_batch - first;
}

// A metric that is watched, and says nothing about what any stage trains, would be watched in vain.
void RequireCounted(const Config& config, const std::vector<Stage>& stages) {
  const std::string plateau = config.schedule.name == "plateau" ? config.schedule.metric : "";
  for (const auto& [field, metric] : {std::pair{"schedule.metric", plateau},
                                      {"train.early_stop.metric", config.train.early_stop.metric},
                                      {"checkpoint.keep_best", config.checkpoint.keep_best}}) {
    const auto counts = [&](const Stage& stage) { return stage.Counts(metric); };
    if (metric.empty() || std::ranges::any_of(stages, counts)) continue;
    throw ConfigError(Format("%s: %s says nothing about what this run trains; allowed: %s", field, metric.c_str(),
                             Join(stages.front().metrics).c_str()));
  }
}

}  // namespace

std::vector<StageRun> PlanStages(const Config& config, const Plan& plan) {
  const int64_t total_steps = plan.total_steps;
  const std::vector<Stage> stages = StagesOf(config);
  RequireCounted(config, stages);
  std::vector<StageRun> runs;
  int64_t step = 0;
  std::string sum;
  for (const Stage& stage : stages) {
    const bool last = runs.size() + 1 == stages.size();
    const int64_t steps = last && stage.epochs == 0 && (stages.size() == 1 || stage.steps == 0)
                              ? total_steps - step
                              : StepsOf(stage, step, plan);
    StageRun run{stage, step, step + steps, config, plan, config.run.dir + "/best"};
    if (stages.size() > 1) run.best_dir += "/" + stage.name;
    if (run.end <= run.first)
      throw ConfigError(Format("train.steps: %lld leaves the stage %s no step", static_cast<long long>(total_steps),
                               stage.name.c_str()));
    run.config.optim = stage.optim.value_or(config.optim);
    run.config.schedule = stage.schedule.value_or(config.schedule);
    run.plan.schedule_steps = run.end - run.first;
    run.plan.stage = static_cast<int>(runs.size());
    run.plan.peak_lr = ScaledRate(run.config.optim, plan.lr_world);
    step = run.end;
    sum += (sum.empty() ? "" : " + ") + std::to_string(steps) + " (" + stage.name + ")";
    if (stage.from_best && config.checkpoint.keep_best.empty())
      throw ConfigError("checkpoint.keep_best: missing; the stage " + stage.name +
                        " starts from the best weights of the one before");
    if (stage.from_best && !runs.empty()) runs.back().keeps_best = true;
    runs.push_back(std::move(run));
  }
  if (step != total_steps)
    throw ConfigError(Format("train.steps: %lld is not what the stages add up to: %s",
                             static_cast<long long>(total_steps), sum.c_str()));
  return runs;
}

void RequireStage(const TrainState& train, const std::vector<StageRun>& stages) {
  const StageRun& stage = stages[static_cast<size_t>(train.stage)];
  const bool last = train.stage + 1 == std::ssize(stages);
  const bool inside = train.step >= stage.first && (last || train.step <= stage.end);
  // A stage that begins later would run past the end of its schedule; an evaluation before its first step is another's.
  const int64_t made = train.clean_steps;
  if (inside &&
      (made > train.step - stage.first || (train.stage > 0 && train.step == stage.first && train.evaluation_pending)))
    throw ConfigError(
        Format("train.steps: the checkpoint of step %lld has made %lld steps of the stage %s, which begins with step "
               "%lld here; give the stages before it their own steps, so that it begins where it has begun",
               static_cast<long long>(train.step), static_cast<long long>(made), stage.stage.name.c_str(),
               static_cast<long long>(stage.first) + 1));
  if (inside) return;
  throw ConfigError(
      Format("train.steps: the checkpoint of step %lld is of the stage %s, which has the steps %lld to %lld "
             "here; give it, with train.steps and the stages' own steps, a range that %lld lies in",
             static_cast<long long>(train.step), stage.stage.name.c_str(), static_cast<long long>(stage.first) + 1,
             static_cast<long long>(stage.end), static_cast<long long>(train.step)));
}

std::unique_ptr<Engine> BuildEngine(const StageRun& stage, const Task& task, Device& device, Collectives& collectives,
                                    ModelValues from) {
  return MakeEngine(task.model(),
                    {.stage = stage.plan.parallel.stage,
                     .precision = stage.plan.parallel.precision,
                     .reduce = stage.plan.parallel.reduce,
                     .bf16_reduce = stage.plan.parallel.bf16_reduce,
                     .bucket_bytes = stage.plan.parallel.bucket_bytes,
                     .micro_batch = stage.plan.micro,
                     .recompute = stage.config.train.activation_checkpointing,
                     .offload = stage.plan.parallel.offload,
                     .tile_bytes = stage.plan.parallel.tile_bytes,
                     .optim = stage.config.optim,
                     .trainable = stage.stage.trainable},
                    static_cast<uint64_t>(stage.config.run.seed), device, collectives, std::move(from));
}

}  // namespace trainyard

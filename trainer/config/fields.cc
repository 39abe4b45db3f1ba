#include "trainer/config/fields.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace trainyard {
namespace {

using Json = nlohmann::json;
constexpr auto kIdentity = FieldClass::kIdentity;
constexpr auto kSchedule = FieldClass::kSchedule;
constexpr auto kFree = FieldClass::kFree;
// Far above what anyone means, and low enough that no product of them leaves 64 bits.
constexpr int64_t kMaxBatch = int64_t{1} << 24, kMaxSteps = int64_t{1} << 38, kMaxEpochs = int64_t{1} << 24;
constexpr double kInfinity = FieldTable::kInfinity;

void Betas(FieldTable& t, const std::string& path, std::vector<double>& value, FieldClass c, const std::string& doc) {
  const std::string allowed = "two numbers in [0, 1)";
  auto set = [&value, path, allowed](const Json& j) {
    if (!j.is_array() || j.size() != 2) RefuseValue(path, j, allowed);
    for (const Json& beta : j) {
      if (!beta.is_number() || beta.get<double>() < 0 || beta.get<double>() >= 1) RefuseValue(path, j, allowed);
    }
    value = j.get<std::vector<double>>();
  };
  t.Add({path, c, "list of number", allowed, doc, [&value] { return Json(value); }, set});
}

Json GroupsToJson(const std::vector<ParameterGroupConfig>& groups) {
  Json list = Json::array();
  for (const auto& group : groups) {
    Json item = {{"match", group.match}, {"lr", group.lr}};
    if (group.weight_decay) item["weight_decay"] = *group.weight_decay;
    list.push_back(item);
  }
  return list;
}

ParameterGroupConfig ParseGroup(const std::string& path, const Json& item, const std::string& allowed) {
  if (!item.is_object() || !item.contains("match") || !item["match"].is_string()) RefuseValue(path, item, allowed);
  ParameterGroupConfig group;
  for (const auto& [key, value] : item.items()) {
    const bool number = value.is_number() && value.get<double>() >= 0;
    if (key == "match") {
      group.match = value.get<std::string>();
    } else if (key == "lr" && number) {
      group.lr = value.get<double>();
    } else if (key == "weight_decay" && number) {
      group.weight_decay = value.get<double>();
    } else {
      RefuseValue(path, item, allowed);
    }
  }
  return group;
}

void Groups(FieldTable& t, const std::string& path, std::vector<ParameterGroupConfig>& value, FieldClass c,
            const std::string& doc) {
  const std::string allowed = "a list of {match: pattern, lr: multiplier >= 0, weight_decay: number >= 0}";
  auto set = [&value, path, allowed](const Json& j) {
    if (!j.is_array()) RefuseValue(path, j, allowed);
    std::vector<ParameterGroupConfig> groups;
    for (const Json& item : j) groups.push_back(ParseGroup(path, item, allowed));
    value = groups;
  };
  t.Add({path, c, "list of object", allowed, doc, [&value] { return GroupsToJson(value); }, set});
}

void NameField(FieldTable& t, Config& c) {
  t.Text("task.name", c.task.name, kIdentity, "What is trained. `trainyard tasks` lists them.");
}

void DataFields(FieldTable& t, Config& c) {
  t.Text("data.path", c.data.path, kFree,
         "The data set: a folder or a file; the formats of each task are in docs/formats.md.");
  t.Choice("data.last", c.data.last, {"carry", "drop"}, kIdentity,
           "The end of an epoch that fills no batch: carried into the next batch, or dropped.");
  t.OptInt("data.workers", c.data.workers, "auto", 1, kFree,
           "Threads that read and collate samples, per rank; auto is the rank's part of the CPUs but two, from 1 to 3.",
           1024);
  t.OptInt("data.prefetch", c.data.prefetch, "auto", 1, kFree,
           "Micro-batches read ahead of training, per rank; auto is 4 above 64 GiB of memory, 3 above 32, else 2.",
           1024);
  t.OptInt("batch.global", c.batch.global, "auto", 1, kIdentity,
           "Samples of one optimizer step, over all ranks. auto: micro x ranks x accumulation, at most 256 where one "
           "of each "
           "is no more; without GPUs 32 x ranks. docs/plan.md has the rules.",
           kMaxBatch);
  t.OptInt("batch.micro", c.batch.micro, "auto", 1, kFree,
           "Samples of one forward and backward on one rank; accumulation follows. auto: 2 to 16, by the memory of the "
           "GPU; without GPUs 4, or of a given batch the largest divisor of a rank's share up to 64.",
           kMaxBatch);
}

void TrainFields(FieldTable& t, Config& c) {
  t.OptInt("train.steps", c.train.steps, "null", 1, kSchedule,
           "Optimizer steps. Exactly one of steps and epochs is set.", kMaxSteps);
  t.OptInt("train.epochs", c.train.epochs, "null", 1, kSchedule, "Passes over the data, rounded up to whole steps.",
           kMaxEpochs);
  t.Int("train.eval_every", c.train.eval_every, 0, kSchedule,
        "Steps between evaluations; 0: only after the last step.");
  t.Int("train.log_every", c.train.log_every, 1, kFree, "Steps between lines of the log and points in TensorBoard.");
  t.Bool(
      "train.activation_checkpointing", c.train.activation_checkpointing, kFree,
      "Keep of each layer its inputs only and compute the rest again in backward: less memory, slower steps, the same "
      "bits.");
  t.Text("train.record", c.train.record, kFree,
         "A file for one JSON line per step: sample ids, input hash, loss, norm, rate.");
  t.Text("train.early_stop.metric", c.train.early_stop.metric, kSchedule,
         "The evaluation metric to watch, such as test/loss_action; empty: no early stop.");
  t.Int("train.early_stop.patience", c.train.early_stop.patience, 1, kSchedule,
        "Evaluations without improvement before the run ends; with more of them, one that has ended goes on.");
  t.Number("train.early_stop.min_delta", c.train.early_stop.min_delta, 0, kInfinity, kSchedule,
           "What counts as an improvement.");
}

void OptimFields(FieldTable& t, Config& c) {
  t.Number("optim.lr", c.optim.lr, 0, kInfinity, kSchedule, "Peak learning rate of AdamW.");
  Betas(t, "optim.betas", c.optim.betas, kSchedule, "AdamW's decay of the two moments.");
  t.Number("optim.eps", c.optim.eps, 0, 1, kSchedule, "AdamW's epsilon.");
  t.Number("optim.weight_decay", c.optim.weight_decay, 0, kInfinity, kSchedule, "Decoupled weight decay.");
  t.Choice("optim.decay", c.optim.decay, {"all", "matrices"}, kSchedule,
           "Which parameters decay: all, or those with two or more dimensions.");
  t.Number("optim.clip", c.optim.clip, 0, kInfinity, kSchedule, "Largest norm of the whole gradient; 0 does not clip.");
  t.Choice("optim.lr_scaling", c.optim.lr_scaling, {"none", "linear", "sqrt"}, kSchedule,
           "Multiplies lr by the number of ranks that the run began with, or by its square root.");
  Groups(t, "optim.groups", c.optim.groups, kSchedule,
         "Parameters whose name matches the pattern (* and ?) get lr x multiplier and their own decay; the first "
         "match wins.");
  t.OptNumber(
      "optim.ema_decay", c.optim.ema_decay, "null", 0, 1, kSchedule,
      "After each update a moving average of the parameters becomes decay x average + (1 - decay) x parameters; "
      "it is what is evaluated and exported. null: there is none.");
  t.Choice("schedule.name", c.schedule.name, {"constant", "cosine", "linear", "onecycle", "plateau"}, kSchedule,
           "Learning rate over the optimizer steps; all but onecycle start with a linear warm-up.");
  t.Int("schedule.warmup", c.schedule.warmup, 0, kSchedule, "Steps of linear warm-up.");
  t.Number("schedule.min_lr", c.schedule.min_lr, 0, kInfinity, kSchedule,
           "Where cosine and linear end, and the floor of plateau.");
  t.Number("schedule.pct_start", c.schedule.pct_start, 0.001, 0.999, kSchedule,
           "onecycle: the share of steps that rise.");
  t.Number("schedule.div_factor", c.schedule.div_factor, 1, kInfinity, kSchedule,
           "onecycle: lr / div_factor is the start.");
  t.Number("schedule.final_div_factor", c.schedule.final_div_factor, 1, kInfinity, kSchedule,
           "onecycle: start / final_div_factor is the end.");
  t.Text("schedule.metric", c.schedule.metric, kSchedule, "plateau: the evaluation metric to watch.");
  t.Number("schedule.factor", c.schedule.factor, 0.0001, 0.9999, kSchedule,
           "plateau: what the rate is multiplied by. A run that goes on under another schedule has that one's rate, "
           "and back under plateau what it was lowered to.");
  t.Int("schedule.patience", c.schedule.patience, 0, kSchedule,
        "plateau: evaluations without improvement that are tolerated.");
}

void EngineFields(FieldTable& t, Config& c) {
  t.Choice("precision.compute", c.precision.compute, {"auto", "fp32", "bf16", "fp16"}, kSchedule,
           "Type of parameters and activations; the optimizer's master is fp32. auto is bf16 from compute "
           "capability 8.0, fp16 from 7.0, else, and without a GPU, fp32.");
  t.AutoIs([] { return Json("fp32"); });
  t.Number("precision.loss_scale", c.precision.loss_scale, 1, 16777216, kSchedule,
           "fp16: what losses are multiplied by at first, a power of two; halved when a gradient is infinite.");
  t.Int("precision.loss_scale_interval", c.precision.loss_scale_interval, 1, kSchedule,
        "fp16: the loss scale is doubled after so many updates in a row.");
  t.Choice("precision.reduce", c.precision.reduce, {"fp32", "bf16"}, kSchedule,
           "Type in which gradients go from rank to rank; a rank's own sums over micro-batches are fp32 either way.");
  t.Choice("parallel.device", c.parallel.device, {"auto", "cpu", "cuda"}, kFree,
           "What ranks compute with: the host's processors, or a GPU each. auto: GPUs where some of compute capability "
           "7.5 or more are seen and the plug-in for them opens (docs/gpu.md), else processors; a driver that does not "
           "answer ends the run.");
  t.Choice("parallel.stage", c.parallel.stage, {"auto", "ddp", "zero1", "zero2", "zero3"}, kFree,
           "What is shared out over ranks: nothing; the optimizer's state (zero1, zero2); with parallel.reduce: every "
           "the gradients, too (zero2); and the parameters (zero3). See docs/parallel.md; auto is zero2 "
           "on two GPUs or more, zero3 where one has less than 6 GB, else ddp.");
  t.Number("parallel.bucket_mib", c.parallel.bucket_mib, 0.001, 65536, kFree,
           "Gradients are reduced in buckets of so many MiB while backward goes on.");
  t.Choice("parallel.reduce", c.parallel.reduce, {"auto", "last", "every"}, kFree,
           "When gradients are summed over ranks: with the last micro-batch of a step, or with every one (zero2, "
           "zero3), so that each rank holds its part of them only; auto is every for zero3, else last.");
  t.Choice(
      "parallel.offload", c.parallel.offload, {"none", "optimizer"}, kFree,
      "What lies in host memory, and is updated there by the rank's threads: nothing, or AdamW's moments, the float32 "
      "master and averages. It changes no bit on CPUs, where it saves nothing.");
  t.Number("parallel.rendezvous_seconds", c.parallel.rendezvous_seconds, 0.1, 86400, kFree,
           "How long ranks wait for each other at the start.");
  t.Number("parallel.collective_seconds", c.parallel.collective_seconds, 0.1, 86400, kFree,
           "How long one collective may take before the group fails.");
}

void RunFields(FieldTable& t, Config& c) {
  t.Text("checkpoint.dir", c.checkpoint.dir, kFree,
         "Where checkpoints lie; default TRAINYARD_CHECKPOINT_DIR, else run.dir/checkpoints.");
  t.Int("checkpoint.every", c.checkpoint.every, 0, kFree,
        "Steps between checkpoints, besides the one after the last step or on a stop; 0: checkpoint.minutes decides.");
  t.Number(
      "checkpoint.minutes", c.checkpoint.minutes, 0, 1e6, kFree,
      "Without checkpoint.every: minutes from one checkpoint to the next; a killed run loses little more. 0: none.");
  t.Int("checkpoint.keep_last", c.checkpoint.keep_last, 1, kFree, "The newest so many checkpoints stay.");
  t.Text("checkpoint.keep_best", c.checkpoint.keep_best, kFree,
         "An evaluation metric: the weights of its best value are exported to run.dir/best.");
  t.Int("checkpoint.keep_every", c.checkpoint.keep_every, 0, kFree,
        "Checkpoints of every so many steps stay for ever; 0: none.");
  t.Text(
      "checkpoint.resume", c.checkpoint.resume, kFree,
      "auto: from the newest good checkpoint in checkpoint.dir; never; or a checkpoint's directory. The last two hold "
      "until an attempt of the job has started; then it is auto.");
  t.Text("run.dir", c.run.dir, kFree, "Everything of a run; default TRAINYARD_CHECKPOINT_DIR/run, else runs/<task>.");
  t.Int("run.seed", c.run.seed, 0, kIdentity, "Seed of initialisation, sample order and dropout.");
  t.Bool(
      "run.deterministic", c.run.deterministic, kFree,
      "LibTorch's operations use implementations that make the same bits each time; ours do so either way. false: "
      "whatever LibTorch finds fastest. Two tasks need operations that have none on a GPU: there it becomes false, and "
      "a configuration that says true ends the run.");
  t.Text("init.from", c.init.from, kFree,
         "A safetensors file with weights to start from. Its content is part of the run's identity, its path is not.");
  t.Choice(
      "faults.nonfinite", c.faults.nonfinite, {"stop", "skip"}, kFree,
      "A loss or gradient that is not finite: stop (exit 72), or skip the step. Weights that are not are never saved: "
      "the run ends with 72 in either case.");
  t.Int("faults.max_skips", c.faults.max_skips, 1, kFree, "Skipped steps in a row before the run stops after all.");
  t.Choice("faults.bad_sample", c.faults.bad_sample, {"fail", "skip"}, kFree,
           "A sample that cannot be read: end with 65, or keep its place in the batch with weight 0 and say so.");
  t.Bool("metrics.tensorboard", c.metrics.tensorboard, kFree, "Write TensorBoard event files.");
  t.OptNumber("metrics.peak_tflops", c.metrics.peak_tflops, "null", 1e-6, 1e9, kFree,
              "What the device, or the processors, of one rank can compute at most, in 10^12 operations of "
              "precision.compute a second; null: unknown, and no MFU is reported.");
}

}  // namespace

std::vector<Field> TaskFields(TaskOptions& options) {
  FieldTable table;
  options.Declare(table);
  for (const Field& field : table.fields()) {
    if (!field.path.starts_with("task.") && !field.path.starts_with("model.") && !field.path.starts_with("data."))
      throw std::logic_error(field.path + ": a task's fields are below task., model. and data.");
  }
  return table.Take();
}

std::vector<Field> Fields(Config& config) {
  FieldTable table;
  NameField(table, config);
  if (config.task.options) {
    for (Field& field : TaskFields(*config.task.options)) table.Add(std::move(field));
  }
  DataFields(table, config);
  TrainFields(table, config);
  OptimFields(table, config);
  EngineFields(table, config);
  RunFields(table, config);
  return table.Take();
}

}  // namespace trainyard

#include "trainer/manual.h"

#include <initializer_list>
#include <map>
#include <utility>

namespace trainyard {
namespace {

using cli::Entry;
using cli::Manual;

std::vector<Entry> Codes(std::initializer_list<int> codes) {
  static const std::map<int, std::string> words = {
      {0, "Done."},
      {2, "The command line is wrong."},
      {64, "The configuration is wrong, or names a place that is not there or cannot be written."},
      {65, "The data is cut short, malformed, or lacks a part."},
      {69,
       "A peer or the network failed, a port is in use, or a newer start has taken the run over; this is not the "
       "cause."},
      {70, "Something of ours broke."},
      {71, "Out of memory."},
      {72,
       "Stopped by the policy for losses that are not finite (faults.nonfinite: stop), or for weights that are not."},
      {73, "A rank stood still while the others waited for it."},
      {74, "Storage failed, or no existing checkpoint is good."},
      {75, "Stopped on request; what was trained is durable, and the same command goes on with it."}};
  std::vector<Entry> entries;
  for (const int code : codes) entries.push_back({std::to_string(code), words.at(code)});
  return entries;
}

std::vector<Entry> WithSignal(std::vector<Entry> codes) {
  codes.push_back({"128+N", "Ended by signal N."});
  return codes;
}

std::vector<Entry> Joined(std::vector<Entry> all, const std::vector<Entry>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const std::vector<Entry>& ConfigVariables() {
  static const std::vector<Entry> entries = {
      {"TRAINYARD_CONFIG", "The configuration file, without --config."},
      {"TRAINYARD_CHECKPOINT_DIR",
       "What checkpoint.dir is when nothing sets it; run.dir is then the folder run in it."},
      {"TRAINYARD_VOLUMES", "JSON {mount path: folder}: where paths of the configuration lie on this machine."}};
  return entries;
}

const std::vector<Entry>& RunVariables() {
  static const std::vector<Entry> entries = {
      {"OMP_NUM_THREADS",
       "Threads of a rank. Without it, the CPUs that this process may use, shared by the node's ranks."},
      {"TRAINYARD_PROGRESS", "bar, lines or none. Without it, a bar on a terminal and lines elsewhere."},
      {"COLUMNS", "How wide the bar may be where no terminal says it."},
      {"TRAINYARD_JOB_UID", "Whose attempts are counted, from the operator. Without it, run.dir has a uid of its own."},
      {"TRAINYARD_ATTEMPT", "The attempt's number, from 1, beside TRAINYARD_JOB_UID."},
      {"TRAINYARD_POD_IP",
       "The address that this node's ranks and its status port use. Without it, the status port is on 127.0.0.1."},
      {"TRAINYARD_STATUS_PORT", "Port of /status and /metrics. Without it, any free one, which is printed."},
      {"TRAINYARD_TERMINATION_LOG", "The file for the last words: a line of JSON, 4096 bytes at most."},
      {"TORCH_CPP_LOG_LEVEL", "LibTorch's own messages: INFO, WARNING or ERROR. Without it, only fatal ones."}};
  return entries;
}

const std::vector<Entry>& RunFiles() {
  static const std::vector<Entry> entries = {
      {"run.dir", "config.json, uid and attempt; log.jsonl, tensorboard/, logs/, export/ (docs/formats.md)."},
      {"checkpoint.dir", "A folder for each step, fence, latest."}};
  return entries;
}

Manual Launch() {
  return {
      .description =
          "Starts the ranks of this node as processes (ps shows `trainyard: rank 0 of 2`), watches them, and ends with "
          "the exit code of the one that was the cause. It looks at the configuration once, before anything starts. "
          "SIGTERM, Ctrl-C or a terminal that closes (SIGHUP, unless it is ignored, as by nohup) ends the run behind "
          "the step that it is in, with a checkpoint; a second SIGTERM or Ctrl-C at once.\n\n"
          "On several nodes it runs once on each. The nodes and who is the first come from --nnodes, --node-rank and "
          "--master, else from PET_* or, without PET_NNODES, from WORLD_SIZE, or from SLURM. The first one's launcher "
          "serves the store on MASTER_PORT.\n\n"
          "Started again, the same command goes on from the newest checkpoint that is good.",
      .environment = Joined(
          {{"PET_NNODES, PET_NODE_RANK", "How many nodes, and which this is, from 0."},
           {"PET_NPROC_PER_NODE", "What --nproc is when it is not given. Without it LOCAL_WORLD_SIZE, or 1."},
           {"MASTER_ADDR, MASTER_PORT",
            "Where the first node is. They win over PET_MASTER_ADDR and PET_MASTER_PORT. "
            "The port is 29500 on several nodes, any free one on one."},
           {"WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, RANK",
            "The nodes, without PET_NNODES: WORLD_SIZE over LOCAL_WORLD_SIZE (1), which is --nproc, and GROUP_RANK, or "
            "RANK over LOCAL_WORLD_SIZE."},
           {"SLURM_NNODES, SLURM_NODEID, SLURM_STEP_NODELIST, SLURM_JOB_NODELIST, SLURM_JOB_ID",
            "The nodes, without either: the first host of the list is the master, on port 20000 + the job's number "
            "modulo 10000 (docs/slurm.md). So too what --nnodes leaves open, for as many nodes as SLURM has."},
           {"LD_PRELOAD, CUDA_INJECTION64_PATH",
            "Where one is set, as by a profiler, each rank is executed as `trainyard train`, which it can follow; "
            "otherwise a rank is a fork of the launcher."},
           {"GOMP_SPINCOUNT, OMP_WAIT_POLICY",
            "libgomp's own: how long threads that wait for each other stay awake. Milliseconds without them, which is "
            "fastest on CPUs of one's own; where others use them too, OMP_WAIT_POLICY=passive is."}},
          Joined(ConfigVariables(), RunVariables())),
      .files = RunFiles(),
      .exit_codes = WithSignal(Codes({0, 2, 64, 65, 69, 70, 71, 72, 73, 74, 75})),
      .examples = {{"trainyard launch --nproc 2 --config job.yaml --set run.seed=7", "Two ranks on this machine"},
                   {"trainyard launch --nnodes 2 --node-rank 0 --master 10.0.0.1 --nproc 2 --config job.yaml",
                    "The first of two nodes; on the other one --node-rank is 1"}},
      .see_also = {"trainyard train", "docs/config.md", "docs/slurm.md", "docs/formats.md"}};
}

Manual Train() {
  return {
      .description =
          "Is one rank. torchrun or srun starts it, and `trainyard launch` does without it; alone it is a world of "
          "one. Which rank it is "
          "comes from RANK and WORLD_SIZE, else from SLURM_PROCID and SLURM_NTASKS.",
      .environment = Joined(
          {{"RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK", "torchrun's, with its meaning."},
           {"MASTER_ADDR, MASTER_PORT", "Where the store is. Needed in a world of more than one; the port is 29500."},
           {"TORCHELASTIC_USE_AGENT_STORE, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT",
            "From a launcher: it serves the store, and tells one start from the next."},
           {"SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODEID, SLURM_NNODES, SLURM_TASKS_PER_NODE, "
            "SLURM_STEP_NODELIST, SLURM_JOB_NODELIST, SLURM_JOB_ID",
            "The rank, without RANK and WORLD_SIZE."}},
          Joined(ConfigVariables(), RunVariables())),
      .files = RunFiles(),
      .exit_codes = WithSignal(Codes({0, 2, 64, 65, 69, 70, 71, 72, 73, 74, 75})),
      .examples = {{"trainyard train --config job.yaml --dry-run",
                    "To see what a configuration becomes, without writing anything"},
                   {"torchrun --nproc-per-node 2 --no-python trainyard train --config job.yaml", "Under torchrun"}},
      .see_also = {"trainyard launch", "docs/config.md", "docs/your-own-program.md"}};
}

Manual Eval() {
  return {
      .description =
          "Loads a checkpoint or an export and evaluates it thoroughly, by the task's own measure, on one rank. "
          "The configuration says which data. A checkpoint of a task with stages is evaluated as of the stage that it "
          "is in, a file of weights, which says nothing of it, as of the last. The table and the numbers go to "
          "standard output, and no file is written.",
      .environment =
          Joined(ConfigVariables(), {{"OMP_NUM_THREADS", "Threads."}, {"TRAINYARD_PROGRESS", "bar, lines or none."}}),
      .files = {},
      .exit_codes = Codes({0, 2, 64, 65, 70, 71, 74, 75}),
      .examples = {{"trainyard eval --config job.yaml --checkpoint runs/language_model/checkpoints",
                    "The newest good checkpoint"},
                   {"trainyard eval --config job.yaml --checkpoint runs/language_model/best/model.safetensors",
                    "The best weights"}},
      .see_also = {"trainyard checkpoint verify", "docs/formats.md"}};
}

// Of a table of tasks without any synthetic data there is nothing to show.
Manual Synth(const std::vector<std::string>& tasks) {
  std::vector<Entry> examples;
  if (!tasks.empty())
    examples.push_back({"trainyard synth " + tasks.front() + " --out data/" + tasks.front() + " --seed 1", ""});
  return {.description =
              "Writes a synthetic data set in a task's own format, with its ground truth. The same options give the "
              "same bytes. A folder that holds this data already stays as it is.",
          .environment = {},
          .files = {{"DIR/synth.json", "What was asked for, and whether the data is whole."}},
          .exit_codes = Codes({0, 2, 64, 74}),
          .examples = std::move(examples),
          .see_also = {"trainyard tasks", "docs/formats.md"}};
}

Manual SynthTask(const std::string& task) {
  return {.description =
              "Writes the data set into a folder, and says how to train on it. Ctrl-C leaves a folder that is not "
              "whole; the same command writes it again.",
          .environment = {{"TRAINYARD_VOLUMES", "JSON {mount path: folder}: where --out lies on this machine."}},
          .files = {{"DIR/synth.json", "What was asked for, and whether the data is whole."}},
          .exit_codes = WithSignal({{"0", "The data is there."},
                                    {"2", "The command line is wrong."},
                                    {"64", "The folder holds something else, or cannot be made."},
                                    {"74", "Storage failed."}}),
          .examples = {{"trainyard synth " + task + " --out data/tiny --size tiny --seed 1", ""}},
          .see_also = {"trainyard launch", "docs/formats.md"}};
}

Manual Plan() {
  return {
      .description =
          "Says what of this machine a run may use (of its CPUs and memory, what the cgroup leaves), what is decided "
          "for it and why, what the model takes on a rank, part by part, and whether this machine can hold it; if "
          "not, which three changes would cost least, and what each saves. The run's banner says the same. It reads "
          "no data and makes no tensor. Activations, which grow with batch.micro, are not counted.",
      .environment = ConfigVariables(),
      .files = {},
      .exit_codes = {{"0", "This machine can hold what was counted."},
                     {"2", "The command line is wrong."},
                     {"64", "The configuration is wrong."},
                     {"71", "Not even what was counted fits."}},
      .examples = {{"trainyard plan --config job.yaml --ranks 2", ""},
                   {"trainyard plan --config job.yaml --json", "For a script"}},
      .see_also = {"trainyard train", "docs/plan.md", "docs/config.md"}};
}

void AddCheckpoint(cli::Manuals& manuals) {
  const std::string base = "trainyard checkpoint";
  const std::vector<Entry> variables = {
      {"TRAINYARD_VOLUMES", "JSON {mount path: folder}: where the paths lie on this machine."}};
  manuals[base] = {.description = "Looks into checkpoints, changes none, and may run beside a training.",
                   .environment = {},
                   .files = {},
                   .exit_codes = {},
                   .examples = {{"trainyard checkpoint ls runs/language_model/checkpoints", ""}},
                   .see_also = {"docs/formats.md"}};
  manuals[base + " ls"] = {.description =
                               "Lists the steps with size, attempt, job and state, as far as manifests, the fence and "
                               "the sizes of files show "
                               "it; then those that were moved aside. It reads no tensors: `verify` does.",
                           .environment = variables,
                           .files = {},
                           .exit_codes = Codes({0, 2, 64, 74}),
                           .examples = {{"trainyard checkpoint ls runs/language_model/checkpoints", ""}},
                           .see_also = {"trainyard checkpoint verify", "docs/formats.md"}};
  manuals[base + " verify"] = {
      .description =
          "Reads every file of a checkpoint, or of all in a directory, and the fence, and compares the checksums.",
      .environment = variables,
      .files = {},
      .exit_codes = {{"0", "All are good."},
                     {"2", "The command line is wrong."},
                     {"64", "There is no checkpoint."},
                     {"74", "One is bad, or no fence lists who wrote it."}},
      .examples = {{"trainyard checkpoint verify runs/language_model/checkpoints", ""}},
      .see_also = {"trainyard checkpoint ls", "docs/formats.md"}};
  manuals[base + " export"] = {
      .description =
          "Writes the model as one safetensors file: every parameter and buffer in float32, under its state_dict name. "
          "The "
          "configuration comes from the checkpoint, and no data is read. Parameters that were frozen are in no "
          "checkpoint: they come from the file of init.from, or from the seed.",
      .environment = variables,
      .files = {},
      .exit_codes = Codes({0, 2, 64, 74}),
      .examples = {{"trainyard checkpoint export runs/language_model/checkpoints --out model.safetensors", ""}},
      .see_also = {"docs/formats.md"}};
  manuals[base + " diff"] = {.description =
                                 "Compares the tensors of two checkpoints, one at a time, whatever the number of ranks "
                                 "that wrote them. It shows "
                                 "the 20 that differ most.",
                             .environment = variables,
                             .files = {},
                             .exit_codes = {{"0", "All tensors are equal."},
                                            {"1", "One differs."},
                                            {"2", "The command line is wrong."},
                                            {"64", "There is no checkpoint."},
                                            {"74", "One is bad."}},
                             .examples = {{"trainyard checkpoint diff run-a/checkpoints run-b/checkpoints --all", ""}},
                             .see_also = {"trainyard checkpoint verify"}};
}

}  // namespace

cli::Manuals TrainerManuals(const std::vector<std::string>& synthetic) {
  cli::Manuals manuals;
  manuals["trainyard"] = {
      .description =
          "Trains models on the CPUs of one machine or many, and explains itself: it says what it chose and why, and "
          "its "
          "exit code says what was the cause when a run ends. A run is one YAML file (docs/config.md).",
      .environment = {},
      .files = {},
      .exit_codes = WithSignal(Codes({0, 2, 64, 65, 69, 70, 71, 72, 73, 74, 75})),
      .examples = {{"trainyard tasks", "What can be trained"},
                   {"trainyard launch --nproc 2 --config job.yaml", "A run with two ranks"}},
      .see_also = {"trainyard-operator", "docs/cli.md", "docs/architecture.md"}};
  manuals["trainyard launch"] = Launch();
  manuals["trainyard train"] = Train();
  manuals["trainyard eval"] = Eval();
  manuals["trainyard synth"] = Synth(synthetic);
  for (const std::string& task : synthetic) manuals["trainyard synth " + task] = SynthTask(task);
  manuals["trainyard plan"] = Plan();
  AddCheckpoint(manuals);
  manuals["trainyard tasks"] = {.description = "Lists what task.name may be, and what each task trains.",
                                .environment = {},
                                .files = {},
                                .exit_codes = {{"0", "Listed."}},
                                .examples = {{"trainyard tasks", ""}},
                                .see_also = {"docs/config.md", "docs/adding-a-task.md"}};
  manuals["trainyard selftest"] = {
      .description =
          "Checks what training relies on, before a long run finds out. Processes sum a million numbers over Gloo, as "
          "ranks do, and compare every sum; they train a small model in every stage, and compare every bit of weights "
          "and moments, or name the first tensor that differs; in a directory a file takes another one's place, is "
          "made "
          "durable, and is locked against another process, as checkpoints are. Rates of the collectives and of the "
          "directory are measured. Its files are removed. What it cannot check it says. It takes seconds, and at most "
          "30 for each of two worlds.",
      .environment = {{"TRAINYARD_POD_IP", "The address that the processes talk over. Without it 127.0.0.1."},
                      {"TRAINYARD_VOLUMES", "JSON {mount path: folder}: where --dir lies on this machine."}},
      .files = {{"DIR/trainyard-selftest-N", "While it runs."}},
      .exit_codes = {{"0", "All is good."},
                     {"2", "The command line is wrong."},
                     {"64", "The directory cannot be written."},
                     {"69", "Communication failed."},
                     {"70", "Stages train to other bits."},
                     {"74", "Storage failed."}},
      .examples = {{"trainyard selftest --dir /checkpoints", "For the volume that checkpoints go to"},
                   {"trainyard selftest --json", "For a script"}},
      .see_also = {"trainyard plan", "docs/selftest.md"}};
  manuals["trainyard config-reference"] = {
      .description =
          "Prints every field of a configuration in Markdown: type, default, what is allowed, what it means.",
      .environment = {},
      .files = {},
      .exit_codes = {{"0", "Printed."}},
      .examples = {{"trainyard config-reference > docs/config.md", ""}},
      .see_also = {"docs/config.md"}};
  return manuals;
}

}  // namespace trainyard

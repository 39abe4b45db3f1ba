// The command line of the trainer.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/command_line/program.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/message.h"
#include "trainer/base/process_title.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/commands.h"
#include "trainer/checkpoint/diff.h"
#include "trainer/comm/gloo.h"
#include "trainer/config/load.h"
#include "trainer/device/plugin.h"
#include "trainer/launch_command.h"
#include "trainer/libraries.h"
#include "trainer/manual.h"
#include "trainer/selftest/selftest.h"
#include "trainer/synth_command.h"
#include "trainer/task/tasks.h"
#include "trainer/train/export.h"
#include "trainer/train/plan_command.h"
#include "trainer/train/run.h"
#include "trainer/train_command.h"

namespace trainyard {
namespace {

void AddConfigOptions(CLI::App* command, CommonOptions& options) {
  command
      ->add_option("--config", options.config,
                   "the configuration, YAML or JSON (docs/config.md); default: TRAINYARD_CONFIG")
      ->type_name("FILE");
  command->add_option("--set", options.sets, "a value, as section.key=value, which wins over the file")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

void ListTasks() {
  for (const TaskEntry& task : Tasks())
    std::printf("%-24s %s%s\n", task.name, task.summary, task.build ? "" : " (not there yet)");
}

std::vector<std::string> TasksWithSyntheticData() {
  std::vector<std::string> names;
  for (const TaskEntry& task : Tasks()) {
    if (task.synthesis) names.emplace_back(task.name);
  }
  return names;
}

struct Commands {
  CLI::App app{"the trainer: distributed training that explains itself"};
  cli::Program program{.name = "trainyard", .manuals = TrainerManuals(TasksWithSyntheticData()), .version = [] {
                         return VersionText("trainyard", TrainerLibraries()) + "\nplug-in " + Describe(CudaPlugin());
                       }};
  cli::References references;
  CommonOptions common;
  std::string nproc, checkpoint, out, init_from, first, second, directory = ".";
  std::unique_ptr<SynthCommand> synth;
  std::optional<int> ranks;
  NodeFlags nodes;
  bool dry_run = false, quiet = false, json = false, all = false;
};

void AddCheckpointCommands(Commands& c) {
  CLI::App* checkpoint = c.app.add_subcommand("checkpoint", "looks into checkpoints");
  checkpoint->require_subcommand(1);
  checkpoint->add_subcommand("ls", "lists the steps of a directory")
      ->add_option("dir", c.first, "a directory of checkpoints")
      ->required()
      ->type_name("DIR");
  checkpoint->add_subcommand("verify", "checks sizes and checksums")
      ->add_option("dir", c.first, "a checkpoint, or a directory of them")
      ->required()
      ->type_name("DIR");
  CLI::App* export_command = checkpoint->add_subcommand("export", "writes the model as one safetensors file");
  export_command->add_option("dir", c.first, "a checkpoint, or a directory of them (the newest good one)")
      ->required()
      ->type_name("DIR");
  export_command->add_option("--out", c.out, "the file to write")->required()->type_name("FILE");
  export_command
      ->add_option("--init-from", c.init_from,
                   "where the file of the run's init.from is now; only for a model with frozen parameters")
      ->type_name("FILE");
  CLI::App* diff = checkpoint->add_subcommand("diff", "compares the tensors of two checkpoints");
  diff->add_option("dir", c.first, "one checkpoint")->required()->type_name("DIR");
  diff->add_option("other", c.second, "the other")->required()->type_name("DIR");
  diff->add_flag("--all", c.all, "every tensor that differs, not only the 20 that differ most");
}

void Build(Commands& c) {
  cli::AddFlags(c.app, c.program);
  c.app.require_subcommand(1);
  CLI::App* launch = c.app.add_subcommand("launch", "starts the ranks of this node and watches them");
  AddConfigOptions(launch, c.common);
  launch
      ->add_option("--nproc", c.nproc,
                   "ranks on this node: a number, or auto (without GPUs one, which uses all CPUs through its threads); "
                   "default: PET_NPROC_PER_NODE, else LOCAL_WORLD_SIZE, else 1")
      ->type_name("N");
  launch->add_option("--nnodes", c.nodes.nodes, "how many nodes; default: PET_NNODES, WORLD_SIZE or SLURM's, else 1")
      ->check(CLI::Range(1, kMaxRanks))
      ->type_name("N");
  launch->add_option("--node-rank", c.nodes.node, "which of them this is, from 0; default: PET_NODE_RANK or SLURM's")
      ->check(CLI::Range(0, kMaxRanks - 1))
      ->type_name("N");
  launch
      ->add_option("--master", c.nodes.master,
                   "the first node, by a name or an address of its own that the others reach; default: MASTER_ADDR, "
                   "MASTER_PORT")
      ->type_name("HOST[:PORT]");
  launch->add_option("--record", c.common.record, "write one JSON line per step to this file")->type_name("FILE");
  launch->add_flag("--quiet", c.quiet, "leave the ranks' output to run.dir/logs");
  CLI::App* train = c.app.add_subcommand("train", "is one rank of a run");
  AddConfigOptions(train, c.common);
  train->add_option("--record", c.common.record, "write one JSON line per step to this file")->type_name("FILE");
  train->add_flag("--dry-run", c.dry_run, "resolve and validate everything, run one batch, write nothing");
  CLI::App* eval = c.app.add_subcommand("eval", "evaluates a checkpoint thoroughly");
  AddConfigOptions(eval, c.common);
  eval->add_option("--checkpoint", c.checkpoint,
                   "a checkpoint, a directory of checkpoints, a run.dir, or a .safetensors file")
      ->required()
      ->type_name("PATH");
  CLI::App* synth = c.app.add_subcommand("synth", "writes synthetic data for a task");
  synth->require_subcommand(1);
  c.synth = std::make_unique<SynthCommand>(*synth);
  AddCheckpointCommands(c);
  c.app.add_subcommand("tasks", "lists the tasks");
  CLI::App* plan =
      c.app.add_subcommand("plan", "says what a run here decides and why, and whether this machine can hold it");
  AddConfigOptions(plan, c.common);
  plan->add_option("--ranks", c.ranks, "ranks on this machine, 1 to 4096; default: one for each GPU, at least one")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  plan->add_flag("--json", c.json, "the same as JSON");
  CLI::App* selftest =
      c.app.add_subcommand("selftest", "checks communication, storage and the bits of the stages on this machine");
  selftest->add_option("--dir", c.directory, "where checkpoints would lie; default: the working directory")
      ->type_name("DIR");
  selftest->add_option("--ranks", c.ranks, "the largest world, 2 to 64; default: one rank a CPU, from 3 to 8")
      ->check(CLI::Range(2, 64))
      ->type_name("N");
  selftest->add_flag("--json", c.json, "the same as JSON");
  c.app.add_subcommand("config-reference", "prints every field of a configuration");
  cli::AddReferences(c.app, c.program, c.references);
}

int Run(Commands& c, const ProcessTitle& title) {
  const CLI::App& command = *c.app.get_subcommands().at(0);
  const std::string name = command.get_name();
  if (name == "launch") return LaunchCommand(c.common, c.nproc, c.nodes, c.quiet, title);
  if (name == "train") return TrainCommand(c.common, c.dry_run);
  if (name != "eval") UnblockStopSignals();
  if (name == "eval") {
    InstallStopHandlers({.first = "\ntrainyard: stopping the evaluation; a second signal ends at once\n"});
    EvaluateCheckpoint(Load(c.common), ResolveVolume(c.checkpoint).string());
  } else if (name == "synth") {
    c.synth->Run();
  } else if (name == "checkpoint") {
    const std::string what = command.get_subcommands().at(0)->get_name();
    if (what == "ls") return ListCheckpoints(ResolveVolume(c.first));
    if (what == "verify") return VerifyCheckpoints(ResolveVolume(c.first));
    if (what == "diff") return DiffCheckpoints(ResolveVolume(c.first), ResolveVolume(c.second), c.all);
    ExportCheckpoint(ResolveVolume(c.first).string(), ResolveVolume(c.out).string(),
                     ResolveVolume(c.init_from).string());
  } else if (name == "plan") {
    return PrintPlan(Load(c.common), c.ranks, c.json);
  } else if (name == "selftest") {
    return SelfTest(ResolveVolume(c.directory), c.ranks, c.json);
  } else if (name == "tasks") {
    ListTasks();
  } else if (name == "config-reference") {
    std::fputs(ConfigDocument(TaskDeclarations()).c_str(), stdout);
  } else {
    std::fputs(cli::Reference(c.app, c.program, c.references, name).c_str(), stdout);
  }
  return 0;
}

// The subcommand that the words name, as far as they do; `at` is then the first word behind it.
const CLI::App* CommandOf(const CLI::App& app, int argc, char** argv, int& at) {
  const CLI::App* command = &app;
  for (at = 1; at < argc; ++at) {
    const auto subs = command->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == argv[at]; });
    if (subs.empty()) break;
    command = subs[0];
  }
  return command;
}

// What is wrong where a command was expected and another word stands; empty when that is not it.
std::string UnknownCommand(const CLI::App& app, int argc, char** argv) {
  int at = 0;
  const CLI::App* command = CommandOf(app, argc, argv, at);
  if (at >= argc || argv[at][0] == '-' || command->get_subcommands([](const CLI::App*) { return true; }).empty())
    return "";
  const std::string word = argv[at];
  const bool task = std::ranges::any_of(Tasks(), [&](const TaskEntry& entry) { return entry.name == word; });
  return command->get_name() == "synth" && task ? "the task " + word + " has no synthetic data"
                                                : "unknown command " + word;
}

// What to add to CLI11's words about an unknown one: the nearest known one, and whose help to read.
std::string Suggest(const CLI::App& app, int argc, char** argv) {
  int at = 0;
  const CLI::App* command = CommandOf(app, argc, argv, at);
  std::vector<std::string> subs, options;
  for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; }))
    subs.push_back(sub->get_name());
  for (const CLI::Option* option : command->get_options()) options.push_back(option->get_name());
  std::string nearest;
  if (!subs.empty() && at < argc) nearest = NearestName(argv[at], subs);
  for (int i = at; i < argc && nearest.empty(); ++i) {
    const std::string word = argv[i], flag = word.substr(0, word.find('='));
    if (word.starts_with("--") && std::find(options.begin(), options.end(), flag) == options.end())
      nearest = NearestName(flag, options);
  }
  std::string meant = nearest.empty() ? "" : "; did you mean " + nearest + "?";
  for (int i = at + 1; i < argc && meant.empty() && subs.empty(); ++i) {
    const std::string before = i > 1 ? argv[i - 2] : "", word = argv[i];
    if (before == "--set" && word.find('=') != std::string::npos && !word.starts_with("-"))
      meant = "; each setting has a --set of its own: --set " + std::string(argv[i - 1]) + " --set " + word;
  }
  if (meant.empty() && !subs.empty() && at < argc) meant = "; expected one of " + Join(subs);
  std::string name = "trainyard";
  for (int i = 1; i < at; ++i) name += std::string(" ") + argv[i];
  // In one line: where a container's log is asked for the cause, its last line is told.
  return meant + (meant.ends_with("?") ? " `" : "; `") + name + " --help` has " +
         (subs.empty() ? "its options" : "the commands");
}

// A checkpoint of many ranks is as many files, which are open together. The usual soft limit, 1024, is for programs
// that use select.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Main(int argc, char** argv) {
  prctl(PR_SET_NAME, "trainyard");  // of a rank that is executed as /proc/self/exe, ps would say "exe"
  KeepNoRecordsOfC10d();
  Commands commands;
  Build(commands);
  try {
    commands.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::CallForHelp*>(&error))
      std::fputs(cli::Help(commands.app, commands.program).c_str(), stdout);
    if (error.get_exit_code() == 0)  // --version is printed by CLI11
      return cli::Printed("trainyard", dynamic_cast<const CLI::CallForHelp*>(&error) ? 0 : commands.app.exit(error));
    const std::string unknown = UnknownCommand(commands.app, argc, argv);
    std::fprintf(stderr, "trainyard: %s%s\n", unknown.empty() ? error.what() : unknown.c_str(),
                 Suggest(commands.app, argc, argv).c_str());
    return static_cast<int>(ExitCode::kUsage);
  }
  RaiseDescriptorLimit();
  signal(SIGCHLD, SIG_DFL);  // Where whoever started this ignores it, the kernel would keep no child's end.
  signal(SIGXFSZ, SIG_IGN);  // A file that may not grow is an error of the write, which names it.
  const std::string name = commands.app.get_subcommands().at(0)->get_name();
  const int code = Guarded(name, [&] { return Run(commands, {argc, argv}); });
  // What a run prints is no result: that lies in its files.
  return name == "launch" || name == "train" ? code : cli::Printed("trainyard", code);
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }

// The command line of the trainer.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "common/command_line/program.h"
#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/message.h"
#include "trainer/base/process_title.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/commands.h"
#include "trainer/checkpoint/diff.h"
#include "trainer/comm/c10d_store.h"
#include "trainer/config/load.h"
#include "trainer/device/plugin.h"
#include "trainer/launch/child.h"
#include "trainer/launch/last_words.h"
#include "trainer/launch/launcher.h"
#include "trainer/launch/preflight.h"
#include "trainer/launch/route.h"
#include "trainer/launch/verdict.h"
#include "trainer/libraries.h"
#include "trainer/manual.h"
#include "trainer/metrics/status_server.h"
#include "trainer/selftest/selftest.h"
#include "trainer/synth_command.h"
#include "trainer/task/tasks.h"
#include "trainer/train/export.h"
#include "trainer/train/places.h"
#include "trainer/train/plan_command.h"
#include "trainer/train/run.h"
#include "trainer/train/session.h"

namespace trainyard {
namespace {

struct CommonOptions {
  std::string config;
  std::vector<std::string> sets;
  std::string record;
};

void AddConfigOptions(CLI::App* command, CommonOptions& options) {
  command
      ->add_option("--config", options.config,
                   "the configuration, YAML or JSON (docs/config.md); default: TRAINYARD_CONFIG")
      ->type_name("FILE");
  command->add_option("--set", options.sets, "a value, as section.key=value, which wins over the file")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

Config Load(const CommonOptions& options) {
  std::vector<std::string> sets = options.sets;
  if (!options.record.empty()) sets.push_back("train.record=" + options.record);
  return LoadConfig(options.config, sets, TaskDeclarations());
}

// The termination message of a rank that runs without a launcher.
void WriteTerminationMessage(const RankStatus& status, int code, const std::string& message) {
  const std::string path = EnvText(env::kTerminationLog);
  if (path.empty()) return;
  RankEnd end;
  end.rank = status.rank;
  end.exit_code = code;
  end.step = status.KnownStep();
  end.checkpoint_step = status.checkpoint.step;
  end.message = message;
  const std::string problem = WriteLastWords(path, TerminationMessage(end, status.attempt, status.startup));
  if (!problem.empty()) std::fprintf(stderr, "trainyard: %s\n", problem.c_str());
}

// Also where something else in the environment is wrong.
int RankAsFarAsKnown() {
  for (const char* name : {env::kRank, "SLURM_PROCID"}) {
    try {
      if (const std::optional<int> rank = EnvInt(name, 0, kMaxRanks)) return *rank;
    } catch (const ConfigError&) {
      // It is what the message is about.
    }
  }
  return 0;
}

// A rank under a launcher, or beside rank 0, leaves the words to them.
StopWords WordsOfTraining() {
  StopWords words{.launched = !EnvText(kReportFdVariable).empty()};
  const std::string rank = EnvText(env::kRank);
  if (words.launched || (!rank.empty() && rank != "0")) return words;
  words.first = "\ntrainyard: stopping after this step, then saving; a second signal ends at once, without saving\n";
  words.second = "\ntrainyard: ended at once on a second signal, as asked; nothing more was saved\n";
  return words;
}

int Train(const CommonOptions& options, bool dry_run) {
  if (dry_run) {
    EndOnStop("\ntrainyard: ended by a signal; a dry run writes nothing\n");
    UnblockStopSignals();
    DryRun(Load(options));
    return 0;
  }
  InstallStopHandlers(WordsOfTraining());
  const World world = WorldFromEnvironment();
  std::unique_ptr<StatusPublisher> publisher;  // null: its port is in use
  std::atomic<int> code = 0;                   // set once; then the launcher knows why
  std::string message;
  try {
    publisher = std::make_unique<StatusPublisher>(world.local_rank == 0);
    publisher->board().Update([&](RankStatus& s) {
      s.rank = world.rank;
      s.world = world.size;
    });
    const auto failing = [&](const std::exception& error) {
      if (publisher->channel().SendEnd(static_cast<int>(CodeOf(error)), MessageOf(error)))
        code = static_cast<int>(CodeOf(error));
    };
    const auto named = [&](const std::string& verdict) {
      int expected = 0;
      const int hang = static_cast<int>(ExitCode::kHang);
      // Whoever had failed before it was waited for has said so.
      if (code.compare_exchange_strong(expected, hang) && !publisher->channel().SendEnd(hang, verdict)) {
        std::fprintf(stderr, "trainyard: rank %d: %s\n", world.rank, verdict.c_str());
        WriteTerminationMessage(publisher->board().Get(), hang, verdict);
      }
      // The others read the verdict in the store, which may be this process's.
      std::this_thread::sleep_for(std::chrono::seconds(2));
      std::_Exit(code);
    };
    RunTraining(Load(options), *publisher, {failing, named});
  } catch (const std::exception& error) {
    code = static_cast<int>(CodeOf(error));
    message = MessageOf(error);
    if (!publisher || !publisher->channel().SendEnd(code, message))
      std::fprintf(stderr, "trainyard: rank %d: %s\n", world.rank, message.c_str());
    SayEnded(world, message);
  }
  if (!publisher) {
    RankStatus status;
    status.rank = world.rank;
    WriteTerminationMessage(status, code, message);
  } else if (!publisher->channel().connected()) {
    WriteTerminationMessage(publisher->board().Get(), code, message);
  }
  return code;
}

// Runs the command `name`; what it throws is said, and becomes an exit code.
int Guarded(const std::string& name, const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard: %s\n", MessageOf(error).c_str());
    // Before there were ranks, or a rank before it knew its world.
    RankStatus status;
    if (name == "train") status.rank = RankAsFarAsKnown();
    const int code = static_cast<int>(CodeOf(error));
    if (name == "launch" || name == "train") WriteTerminationMessage(status, code, MessageOf(error));
    return code;
  }
}

// Becomes `trainyard train` with these options. Returns only when the system refuses.
int ExecuteRank(const CommonOptions& options) {
  std::vector<std::string> words = {"/proc/self/exe", "train"};
  if (!options.config.empty()) words.insert(words.end(), {"--config", options.config});
  for (const std::string& set : options.sets) words.insert(words.end(), {"--set", set});
  if (!options.record.empty()) words.insert(words.end(), {"--record", options.record});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  std::fprintf(stderr, "trainyard: cannot execute %s: %s\n", arguments[0], std::strerror(errno));
  return errno == ENOENT ? 127 : 126;
}

int LaunchRanks(const CommonOptions& options, const std::string& nproc, NodeFlags nodes, bool quiet,
                const ProcessTitle& title) {
  RequireRereadable(options.config);
  const Config config = Load(options);  // A mistake is named once, before any process is started.
  std::optional<int> procs;
  if (nproc == "auto") {
    // Without GPUs one rank uses all processors through its threads.
    procs = std::max(
        1, CountApart("the GPUs", [&] { return static_cast<int>(GroundsHere(config, {}).hardware.gpus.size()); }));
  } else if (!nproc.empty()) {
    if (nproc.find_first_not_of("0123456789") != std::string::npos || nproc.size() > 4 || std::stoi(nproc) < 1) {
      throw UsageError("--nproc: " + nproc + " is not allowed; expected a number >= 1, or auto");
    }
    procs = std::stoi(nproc);
  }
  LaunchOptions launch;
  nodes.nproc = procs;
  launch.world = NodeWorldFromEnvironment(nodes);
  RequireSensible(launch.world);
  // Who traces programs may see no fork: a rank then is a program of its own.
  const bool forkable = IsForkable();
  launch.rank = [&, forkable] {
    if (!forkable) return ExecuteRank(options);
    title.Set("trainyard: rank " + EnvText(env::kRank) + " of " + EnvText(env::kWorldSize));
    return Guarded("train", [&] { return Train(options, false); });
  };
  launch.rank0_address = StatusAddressFromEnvironment();
  // Where the others look for it. Nobody who names the first node need name it once more.
  if (!nodes.master.empty() && launch.world.nodes > 1 && launch.world.node == 0 && EnvText(env::kPodIp).empty())
    launch.store_address = LocalAddressTowards(launch.world.master_addr);
  const std::string store = launch.store_address.empty() ? launch.rank0_address : launch.store_address;
  launch.status_port = StatusPortFromEnvironment();
  launch.termination_log = EnvText(env::kTerminationLog);
  launch.quiet = quiet;
  const StoreFactory stores{[&](int fd, int port) -> std::unique_ptr<Store> {
                              return std::make_unique<C10dStore>(C10dStoreOptions{.host = store,
                                                                                  .port = port,
                                                                                  .host_here = true,
                                                                                  .listen_fd = fd,
                                                                                  .timeout = std::chrono::seconds(30),
                                                                                  .stop = {}});
                            },
                            [&](const std::string& address, int port) -> std::unique_ptr<Store> {
                              return std::make_unique<C10dStore>(C10dStoreOptions{.host = address,
                                                                                  .port = port,
                                                                                  .host_here = false,
                                                                                  .listen_fd = {},
                                                                                  .timeout = std::chrono::seconds(1),
                                                                                  .stop = {}});
                            }};
  if (launch.world.node == 0) {
    try {
      CheckPlaces(config);
    } catch (const Error& error) {
      const int ranks = launch.world.nodes * launch.world.procs;
      TellOtherNodes(launch, stores, [&](int port) {
        SayEnded({.size = ranks, .master_addr = store, .master_port = port, .store_is_hosted = true}, error.what());
      });
      throw;
    }
  }
  return Launch(launch, stores);
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
                   "default: PET_NPROC_PER_NODE, else 1")
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
  selftest->add_option("--dir", c.directory, "where checkpoints would lie")->capture_default_str()->type_name("DIR");
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
  if (name == "launch") return LaunchRanks(c.common, c.nproc, c.nodes, c.quiet, title);
  if (name == "train") return Train(c.common, c.dry_run);
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
  return meant + "\nRun `" + name + " --help` for " + (subs.empty() ? "its options." : "the commands.");
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
  Commands commands;
  Build(commands);
  try {
    commands.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::CallForHelp*>(&error))
      return std::fputs(cli::Help(commands.app, commands.program).c_str(), stdout) < 0;
    if (error.get_exit_code() == 0) return commands.app.exit(error);  // --version
    const std::string unknown = UnknownCommand(commands.app, argc, argv);
    std::fprintf(stderr, "trainyard: %s%s\n", unknown.empty() ? error.what() : unknown.c_str(),
                 Suggest(commands.app, argc, argv).c_str());
    return static_cast<int>(ExitCode::kUsage);
  }
  RaiseDescriptorLimit();
  signal(SIGXFSZ, SIG_IGN);  // A file that may not grow is an error of the write, which names it.
  return Guarded(commands.app.get_subcommands().at(0)->get_name(), [&] { return Run(commands, {argc, argv}); });
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }

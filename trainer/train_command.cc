#include "trainer/train_command.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/message.h"
#include "trainer/base/stop_signal.h"
#include "trainer/config/load.h"
#include "trainer/launch/last_words.h"
#include "trainer/launch/report_channel.h"
#include "trainer/launch/verdict.h"
#include "trainer/launch/world.h"
#include "trainer/task/tasks.h"
#include "trainer/train/run.h"
#include "trainer/train/session.h"

namespace trainyard {
namespace {

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

// What a rank ends with. Safe for any thread.
class Ending {
 public:
  // `publisher`: null as long as there is none.
  Ending(const World& world, const std::unique_ptr<StatusPublisher>& publisher)
      : rank_(world.rank), publisher_(publisher) {}

  // Tells the launcher, or the terminal. Only the first one counts: what comes behind follows from it.
  void Say(ExitCode code, const std::string& message) {
    const std::lock_guard lock(mutex_);
    if (code_ != ExitCode::kDone) return;
    code_ = code;
    message_ = message;
    if (!publisher_ || !publisher_->channel().SendEnd(static_cast<int>(code), message))
      std::fprintf(stderr, "trainyard: rank %d: %s\n", rank_, message.c_str());
  }
  // Writes the termination message where no launcher does, and returns the exit code.
  int Write() {
    const std::lock_guard lock(mutex_);
    RankStatus status;
    status.rank = rank_;
    if (publisher_) status = publisher_->board().Get();
    const int code = static_cast<int>(code_);
    if (!publisher_ || !publisher_->channel().connected()) WriteTerminationMessage(status, code, message_);
    return code;
  }

 private:
  const int rank_;
  const std::unique_ptr<StatusPublisher>& publisher_;
  std::mutex mutex_;
  ExitCode code_ = ExitCode::kDone;
  std::string message_;
};

}  // namespace

Config Load(const CommonOptions& options) {
  std::vector<std::string> sets = options.sets;
  if (!options.record.empty()) sets.push_back("train.record=" + options.record);
  return LoadConfig(options.config, sets, TaskDeclarations());
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

int TrainCommand(const CommonOptions& options, bool dry_run) {
  if (dry_run) {
    EndOnStop("\ntrainyard: ended by a signal; a dry run writes nothing\n");
    UnblockStopSignals();
    DryRun(Load(options));
    return 0;
  }
  InstallStopHandlers(WordsOfTraining());
  const World world = WorldFromEnvironment();
  std::unique_ptr<StatusPublisher> publisher;  // null: its port is in use
  Ending ending(world, publisher);
  bool joined = false;
  try {
    publisher = std::make_unique<StatusPublisher>(world.local_rank == 0);
    publisher->board().Update([&](RankStatus& s) {
      s.rank = world.rank;
      s.world = world.size;
    });
    const auto failing = [&](const std::exception& error) { ending.Say(CodeOf(error), MessageOf(error)); };
    const auto named = [&](const std::string& verdict) {
      ending.Say(ExitCode::kHang, verdict);
      const int code = ending.Write();
      // The others read the verdict in the store, which may be this process's.
      std::this_thread::sleep_for(std::chrono::seconds(2));
      std::_Exit(code);
    };
    const auto stuck = [&](const std::string& failure) {
      ending.Say(ExitCode::kPeer, failure);
      std::_Exit(ending.Write());
    };
    RunTraining(Load(options), *publisher, {failing, named, stuck, [&] { joined = true; }});
  } catch (const StrangerError& error) {
    ending.Say(CodeOf(error), MessageOf(error));
  } catch (const std::exception& error) {
    ending.Say(CodeOf(error), MessageOf(error));
    SayEnded(world, joined, MessageOf(error));
  }
  return ending.Write();
}

}  // namespace trainyard

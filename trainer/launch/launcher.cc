#include "trainer/launch/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "common/json.h"
#include "operator/api/exit_reason.h"
#include "operator/api/worker_env.h"
#include "trainer/base/clock.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/listen.h"
#include "trainer/base/progress.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/launch/child.h"
#include "trainer/launch/last_words.h"
#include "trainer/launch/log_writer.h"
#include "trainer/launch/other_nodes.h"
#include "trainer/launch/rank_output.h"
#include "trainer/launch/report_channel.h"
#include "trainer/launch/verdict.h"
#include "trainer/metrics/status.h"
#include "trainer/metrics/status_server.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
constexpr double kCollectSeconds = 5;  // after the first failure, before SIGKILL
// After the first rank has ended with 0, before SIGKILL. What then is left to do is no part of the run: to free memory,
// to close the logs (three seconds), to end. It takes moments, on a machine that swaps some seconds.
constexpr double kEndSeconds = 30;
// The same once a stop is asked for: whoever stops a pod gives it 30 seconds in all.
constexpr double kStoppedEndSeconds = 5;
// After SIGKILL. A process that is still there waits within the kernel, for a volume that does not answer; the kernel
// ends it whenever that comes back.
constexpr double kKillSeconds = 5;
constexpr double kSignOffSeconds = 5;
// How long ranks may outlive the launchers of other nodes.
constexpr double kForsakenSeconds = 30;
constexpr std::chrono::seconds kTerminalPatience(1);  // at the end, for a terminal that was behind
// What may wait for the terminal: what a rank writes in a burst, and more than anybody reads who comes back to it.
constexpr size_t kTerminalBytes = size_t{16} << 20;
constexpr double kRefusalSeconds = 10;  // how far apart the nodes of a world may start and still hear of it

const char* NameOf(int stop_signal) {
  return stop_signal == SIGINT ? "SIGINT" : stop_signal == SIGHUP ? "SIGHUP" : "SIGTERM";
}

// What a second signal has ended is explained by it, whichever rank was the first to go.
RankEnd EndedOnRequest(RankEnd end, int signal) {
  end.message = Format("ended at once on a second signal (%s), as asked; nothing more was saved", NameOf(signal));
  end.signal = signal;
  end.exit_code = 128 + signal;
  return end;
}

struct Rank {
  Child child;
  RankOutput output;
  std::string report_line;  // an unfinished line of the report channel
  RankStatus status;        // guarded by Node::mutex_
  std::string end_message;
  std::optional<int> end_code;     // which it is about to end with
  std::optional<double> end_time;  // since when
  bool running = true;
  RankEnd end;
  double heard = SteadySeconds();  // when it last reported
};

class Node {
 public:
  Node(const LaunchOptions& options, LogWriter& terminal)
      : options_(options), terminal_(terminal), oom_watch_(options.oom_kills) {}

  void Start(const std::string& master_addr, int master_port) {
    const NodeWorld& world = options_.world;
    for (int local = 0; local < world.procs; ++local) {
      const int rank = world.node * world.procs + local;
      const ChildOptions child{options_.rank,
                               {{env::kRank, std::to_string(rank)},
                                {env::kLocalRank, std::to_string(local)},
                                {env::kWorldSize, std::to_string(world.nodes * world.procs)},
                                {env::kLocalWorldSize, std::to_string(world.procs)},
                                {env::kGroupRank, std::to_string(world.node)},
                                {env::kMasterAddr, master_addr},
                                {env::kMasterPort, std::to_string(master_port)},
                                {env::kUseAgentStore, "True"},
                                {"TRAINYARD_PROGRESS", rank == 0 ? ProgressMode() : "none"}}};
      const bool echo = local == 0 && !options_.quiet;
      const Child started = StartChild(child);
      ranks_.push_back({started, RankOutput(echo ? &terminal_ : nullptr), "", {}, "", {}, {}, true, {}});
      ranks_.back().status.rank = rank;
      ranks_.back().end.rank = rank;
    }
  }

  std::vector<RankStatus> Statuses() {
    const std::lock_guard lock(mutex_);
    std::vector<RankStatus> statuses;
    for (const Rank& rank : ranks_) statuses.push_back(rank.status);
    return statuses;
  }

  // Until every rank has ended.
  void Watch(int signal_fd, const OtherNodes* others) {
    while (AnyRunning()) {
      std::vector<pollfd> fds = {{signal_fd, POLLIN, 0}};
      for (const Rank& rank : ranks_) {
        fds.push_back({rank.child.output, POLLIN, 0});
        fds.push_back({rank.child.report, POLLIN, 0});
      }
      poll(fds.data(), fds.size(), 200);
      if (fds[0].revents) ReadSignals(signal_fd);
      for (Rank& rank : ranks_) Drain(rank);
      Reap();
      oom_watch_.Look(SteadySeconds());
      KillStragglers();
      KillLatecomers();
      if (others) KillForsaken(*others);
      GiveUpOnImmortals();
    }
  }

  // Whether a second stop has been asked for by now.
  bool AskedAgain(int signal_fd) {
    ReadSignals(signal_fd);
    return second_signal_ != 0;
  }

  int64_t attempt() const { return attempt_; }
  // What the rank's end is explained by, once the second signal came: by that, unless it had failed by itself before.
  RankEnd Explained(RankEnd end) const {
    const bool failed = !end.signalled_by_us && end.time < killing_ && end.exit_code != 0 &&
                        end.exit_code != static_cast<int>(ExitCode::kPeer) &&
                        end.exit_code != static_cast<int>(ExitCode::kStopped);
    return second_signal_ == 0 || end.exit_code == 0 || failed ? end : EndedOnRequest(std::move(end), second_signal_);
  }
  std::vector<RankEnd> Ends() const {
    std::vector<RankEnd> ends;
    for (const Rank& rank : ranks_) ends.push_back(rank.end);
    return ends;
  }

  // From here on the ranks' logs have their time to be written to the end. `note`: what the first one says last.
  void FinishLogs(const std::string& note) {
    if (!note.empty()) ranks_.front().output.Log("launch: " + note + "\n");
    for (Rank& rank : ranks_) rank.output.FinishLog();
  }
  // Waits for that, and says what they lack.
  void CloseLogs() {
    for (Rank& rank : ranks_) {
      if (const std::string lost = rank.output.CloseLog(); !lost.empty()) terminal_.Say("launch: " + lost + "\n");
    }
  }
  // Whether what a rank wrote stands on the terminal.
  bool Echoed(size_t local) const { return ranks_[local].output.echoes(); }

 private:
  static std::string ProgressMode() {
    switch (ProgressStyleFromEnvironment()) {
      case ProgressStyle::kBar:
        return "bar";
      case ProgressStyle::kLines:
        return "lines";
      case ProgressStyle::kNone:
        return "none";
    }
    return "none";
  }

  bool AnyRunning() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
  }

  void ReadSignals(int signal_fd) {
    signalfd_siginfo info{};
    while (read(signal_fd, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      if (info.ssi_signo == SIGTSTP) {
        Suspend();
        continue;
      }
      const StopSignal now = StopSignalNow(static_cast<int>(info.ssi_signo), info.ssi_code);
      if (!first_stop_) {
        first_stop_ = now;
        SayStopping(now);
        for (const Rank& rank : ranks_) {
          if (!rank.running) continue;
          kill(rank.child.pid, SIGTERM);
          kill(rank.child.pid, SIGCONT);  // one that somebody has stopped would never hear of it
        }
      } else if (second_signal_ == 0 && AsksAgain(*first_stop_, now)) {
        second_signal_ = now.number;
        KillAll();
      }
    }
  }

  // Ctrl-Z: the ranks, which the terminal does not reach, rest as long as this process does.
  void Suspend() const {
    for (const int number : {SIGSTOP, SIGCONT}) {
      for (const Rank& rank : ranks_) {
        if (rank.running) kill(rank.child.pid, number);
      }
      if (number == SIGSTOP) raise(SIGSTOP);  // until fg, or bg
    }
  }

  // A step may take long: whoever asked learns at once that he was heard. A bar's line is left as it is.
  void SayStopping(const StopSignal& stop) const {
    if (!AnyRunning()) {
      return terminal_.Say(
          Format("launch: %s: the ranks have ended; other nodes are waited for; a second one ends that\n",
                 NameOf(stop.number)));
    }
    const std::string& phase = ranks_.front().status.phase;
    const std::string again = stop.number == SIGINT ? "Ctrl-C again" : "a second signal";
    terminal_.Say(Format("%slaunch: %s: %s; %s ends at once, without saving\n",
                         ProgressStyleFromEnvironment() == ProgressStyle::kBar ? "\n" : "", NameOf(stop.number),
                         phase == "training"                    ? "stopping after this step, then saving"
                         : phase == "evaluating"                ? "stopping the evaluation, then saving"
                         : phase == "saving" || phase == "done" ? "ending when it is saved"
                                                                : "stopping before the first step",
                         again.c_str()));
  }

  // What is there, at most a megabyte: a rank that never stops to write must not keep the loop from signals and from
  // the other ranks. What stays is told by the next poll.
  template <class Take>
  static void ReadSome(int fd, const Take& take) {
    char buffer[65536];
    for (int turn = 0; turn < 16 && fd >= 0; ++turn) {
      const ssize_t n = read(fd, buffer, sizeof buffer);
      if (n <= 0) return;
      take(std::string_view(buffer, static_cast<size_t>(n)));
    }
  }

  void Drain(Rank& rank) {
    ReadSome(rank.child.output, [&](std::string_view text) { rank.output.Append(text); });
    ReadSome(rank.child.report, [&](std::string_view text) { rank.report_line.append(text); });
    for (size_t end; (end = rank.report_line.find('\n')) != std::string::npos;) {
      ReadReport(rank, rank.report_line.substr(0, end));
      rank.report_line.erase(0, end + 1);
    }
  }

  void ReadReport(Rank& rank, const std::string& line) {
    const Json json = ParseJson(line);
    if (!json.is_object()) return;
    rank.heard = SteadySeconds();
    if (json.contains("status")) {
      const std::lock_guard lock(mutex_);
      rank.status = RankStatus::FromJson(json["status"]);
    } else if (json.contains("hello")) {
      attempt_ = json["hello"]["attempt"].get<int64_t>();
      OpenLogs(json["hello"]["run_dir"].get<std::string>());
    } else if (json.contains("end")) {
      rank.end_message = json["end"]["message"].get<std::string>();
      rank.end_code = json["end"]["code"].get<int>();
      rank.end_time = std::min(json["end"]["time"].get<double>(), rank.heard);
      rank.output.Log(Format("trainyard: rank %d: %s\n", rank.end.rank, rank.end_message.c_str()));
    }
  }

  void OpenLogs(const std::string& run_dir) {
    for (Rank& rank : ranks_) {
      rank.output.OpenLog(run_dir +
                          Format("/logs/attempt-%lld-rank-%d.log", static_cast<long long>(attempt_), rank.end.rank));
    }
  }

  // Collects every child that has ended, also ones that are not ours: as PID 1 we inherit orphans.
  void Reap() {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto it =
          std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return rank.child.pid == pid; });
      if (it == ranks_.end()) continue;
      HasEnded(*it, status);
    }
  }

  // `status`: what waitpid says.
  void HasEnded(Rank& rank, int status) {
    Drain(rank);
    close(std::exchange(rank.child.output, -1));
    close(std::exchange(rank.child.report, -1));
    rank.running = false;
    RankEnd& end = rank.end;
    const double now = SteadySeconds();
    // We may have been stopped or starved since it failed, and have what followed from that before us first.
    end.time = rank.end_time.value_or(now);
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    // What had died before of another one is a cause.
    end.signalled_by_us = end.signal == SIGKILL && killing_ > 0;
    // Whoever had told its own failure has failed of that, whoever killed it while it waited for a disk.
    const bool asked = end.signalled_by_us && second_signal_ != 0;
    if (end.signal != 0 && !asked && rank.end_code.value_or(0) != 0) {
      end.signal = 0;
      end.signalled_by_us = false;
      status = *rank.end_code << 8;  // as of an exit
    }
    // A rank ends with 0 when the run is complete and durable: whoever was killed behind that has missed nothing.
    if (end.signalled_by_us && first_done_ > 0) end.signal = 0;
    // Nobody is left who would know better: the run has lost its peers.
    if (end.signalled_by_us && !forsaken_.empty()) {
      end.signal = 0;
      end.signalled_by_us = false;
      status = static_cast<int>(ExitCode::kPeer) << 8;
      rank.end_message = forsaken_;
    }
    end.exit_code = end.signal ? 128 + end.signal : WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    end.step = rank.status.KnownStep();
    end.checkpoint_step = rank.status.checkpoint.step;
    end.out_of_memory = end.signal == SIGKILL && !end.signalled_by_us && oom_watch_.Explains(now);
    end.message = !rank.end_message.empty() ? rank.end_message
                  : end.out_of_memory
                      ? "killed by the kernel, for want of memory (signal 9); smaller batch.micro, data.prefetch "
                        "or data.workers take less"
                  : end.signal ? Format("killed by signal %d (%s)", end.signal, strsignal(end.signal))
                               : "";
    end.tail = rank.output.Tail();
    double& first = end.exit_code == 0 ? first_done_ : first_failure_;
    if (first == 0) first = now;
  }

  // The numbers of the ranks that have not ended.
  std::string Running() const {
    std::vector<std::string> running;
    for (const Rank& rank : ranks_) {
      if (rank.running) running.push_back(std::to_string(rank.end.rank));
    }
    return Join(running, ", ");
  }

  void KillStragglers() {
    if (first_failure_ == 0 || killing_ > 0 || SteadySeconds() - first_failure_ <= kCollectSeconds || !AnyRunning())
      return;
    terminal_.Say(Format("launch: %s after the first %s these ranks did not end by themselves, and were killed: %s\n",
                         HumanSeconds(kCollectSeconds).c_str(), first_stop_ ? "had ended" : "failure",
                         Running().c_str()));
    KillAll();
  }

  void KillLatecomers() {
    const double patience = first_stop_ ? kStoppedEndSeconds : kEndSeconds;
    if (first_done_ == 0 || killing_ > 0 || SteadySeconds() - first_done_ <= patience || !AnyRunning()) return;
    terminal_.Say(Format("launch: the run is complete; %s after the first rank had ended rank %s did not: killed\n",
                         HumanSeconds(patience).c_str(), Running().c_str()));
    KillAll();
  }

  // A rank that lives learns of the others' end by itself. Where no launcher answers either, only those are ended that
  // give no sign to this one.
  void KillForsaken(const OtherNodes& others) {
    const auto [sign, seconds] = others.Now();
    const double now = SteadySeconds();
    const auto silent = [&](const Rank& rank) { return !rank.running || now - rank.heard > kForsakenSeconds; };
    if (killing_ > 0 || sign == OtherNodes::Sign::kThere || seconds <= kForsakenSeconds || !AnyRunning()) return;
    if (sign == OtherNodes::Sign::kUnreachable && !std::ranges::all_of(ranks_, silent)) return;
    forsaken_ = Format("killed %s after another node's launcher %s: it had not ended by itself",
                       HumanSeconds(kForsakenSeconds).c_str(),
                       sign == OtherNodes::Sign::kEnded ? "had ended" : "was last heard of");
    terminal_.Say(Format("launch: rank %s: %s\n", Running().c_str(), forsaken_.c_str()));
    KillAll();
  }

  void GiveUpOnImmortals() {
    if (killing_ == 0 || SteadySeconds() - killing_ <= kKillSeconds || !AnyRunning()) return;
    terminal_.Say(Format("launch: %s after SIGKILL rank %s is still there, waiting within the kernel: left to it\n",
                         HumanSeconds(kKillSeconds).c_str(), Running().c_str()));
    for (Rank& rank : ranks_) {
      if (rank.running) HasEnded(rank, SIGKILL);  // As waitpid will say to whoever collects it.
    }
  }

  void KillAll() {
    killing_ = SteadySeconds();
    for (const Rank& rank : ranks_) {
      if (rank.running) kill(rank.child.pid, SIGKILL);
    }
  }

  const LaunchOptions& options_;
  LogWriter& terminal_;
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  int64_t attempt_ = 0;
  std::optional<StopSignal> first_stop_;
  double first_failure_ = 0, first_done_ = 0, killing_ = 0;  // since when, on the steady clock; 0: not yet
  int second_signal_ = 0;
  OomWatch oom_watch_;
  std::string forsaken_;  // why what still ran was killed, where the other nodes were gone
};

int BlockSignals() {
  sigset_t set = StopSignalSet();
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGTSTP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

// Until the launchers of all nodes are done with the store: this node's is. Or until `stop`.
void AwaitSignOff(Store& store, int nodes, double seconds, const std::function<bool()>& stop) {
  const double deadline = SteadySeconds() + seconds;
  int64_t done = store.Add(kLaunchersDone, 1);
  while (done < nodes && SteadySeconds() < deadline && !stop()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = store.Add(kLaunchersDone, 0);
  }
}

// Leaves the store up until every node's launcher is done with it. Only then do other nodes than 0
// need it: `store` is null there.
void SignOff(std::shared_ptr<Store> store, const NodeWorld& world, const StoreFactory& stores,
             const std::string& master, int port, const std::function<bool()>& stop) {
  if (world.nodes == 1) return;
  try {
    if (!store) store = stores.connect(master, port);
    AwaitSignOff(*store, world.node == 0 ? world.nodes : 0, kSignOffSeconds, stop);
  } catch (const Error&) {
    // The host is gone: it waited long enough.
  }
}

// What is left, for whoever wonders what to do next. A mistake of the configuration or of the data is mended first.
std::string WhatIsLeft(const RankEnd& end) {
  if (end.signal == 0 && (end.exit_code < static_cast<int>(ExitCode::kPeer) || end.checkpoint_step == 0 ||
                          end.exit_code == static_cast<int>(ExitCode::kStopped)))
    return "";
  if (end.checkpoint_step == 0) return "; nothing is known to be durable: the same command goes on from what there is";
  const auto step = static_cast<long long>(end.checkpoint_step);
  // It has failed since, or somebody has taken away what lay there.
  if (end.exit_code == static_cast<int>(ExitCode::kStorage))
    return Format("; step %lld was durable: the same command goes on from it if the storage still has it", step);
  return Format("; step %lld is durable: the same command goes on from it", step);
}

// `echoed`: what the culprit wrote stands on the terminal already.
void Explain(const RankEnd& culprit, int ranks, bool echoed, LogWriter& terminal) {
  if (culprit.exit_code == 0) return;
  if (culprit.message.empty()) {
    for (const std::string& line : echoed ? std::vector<std::string>() : culprit.tail)
      terminal.Say(Format("[rank %d] %s\n", culprit.rank, line.c_str()));
    terminal.Say(Format("launch: rank %d ended with exit code %d (%s)\n", culprit.rank, culprit.exit_code,
                        ReasonOf(culprit).c_str()));
  } else {
    terminal.Say(Format("launch: rank %d of %d: %s%s (exit code %d, %s)\n", culprit.rank, ranks,
                        culprit.message.c_str(), WhatIsLeft(culprit).c_str(), culprit.exit_code,
                        ReasonOf(culprit).c_str()));
  }
}

const std::string& StoreAddress(const LaunchOptions& options) {
  return options.store_address.empty() ? options.rank0_address : options.store_address;
}

}  // namespace

int Launch(const LaunchOptions& options, const StoreFactory& stores) {
  const int signal_fd = BlockSignals();
  const NodeWorld& world = options.world;
  LogWriter terminal({.max_bytes = kTerminalBytes, .closing = kTerminalPatience});
  Node node(options, terminal);
  std::pair<int, int> listening{-1, world.master_port};
  const std::string master = world.node == 0 ? StoreAddress(options) : world.master_addr;
  if (world.node == 0) listening = Listen(env::kMasterPort, master, world.master_port);
  const std::pair<int, int> status = StatusServer::ListenOn(options.rank0_address, options.status_port);
  if (StopPending()) throw StoppedError("stopped on request before the ranks were started");
  // Every thread of this process comes after the forks. The ranks' connections wait in the socket's queue while the
  // store behind it is made.
  node.Start(master, listening.second);
  terminal.Open(STDERR_FILENO, "standard error");
  StatusServer server(status, [&node] { return node.Statuses(); });
  std::shared_ptr<Store> store = world.node == 0 ? stores.host(listening.first, listening.second) : nullptr;
  terminal.Say(Format("launch: %d rank%s on node %d of %d; status on http://%s:%d/status\n", world.procs,
                      world.procs > 1 ? "s" : "", world.node, world.nodes, options.rank0_address.c_str(),
                      server.port()));
  {
    std::optional<OtherNodes> others;
    const auto connect = [&] { return store ? store : stores.connect(master, listening.second); };
    if (world.nodes > 1) others.emplace(connect);
    node.Watch(signal_fd, others ? &*others : nullptr);
  }
  const std::vector<RankEnd> ends = node.Ends();
  const size_t cause = Culprit(ends);
  const RankEnd culprit = node.Explained(ends[cause]);
  Explain(culprit, world.nodes * world.procs, node.Echoed(cause), terminal);
  if (!options.termination_log.empty()) {
    const std::string problem = WriteLastWords(
        options.termination_log, TerminationMessage(culprit, node.attempt(), node.Statuses().front().startup));
    if (!problem.empty()) terminal.Say("launch: " + problem + "\n");
  }
  node.FinishLogs(terminal.Flush(kTerminalPatience));
  // What may wait comes last: whoever stops a pod gives it so long, and reads what it left.
  SignOff(std::move(store), world, stores, master, listening.second, [&] { return node.AskedAgain(signal_fd); });
  node.CloseLogs();
  return culprit.exit_code;
}

void TellOtherNodes(const LaunchOptions& options, const StoreFactory& stores,
                    const std::function<void(int port)>& say) {
  if (options.world.nodes == 1) return;
  try {
    const auto [fd, port] = Listen(env::kMasterPort, StoreAddress(options), options.world.master_port);
    const std::unique_ptr<Store> store = stores.host(fd, port);
    say(port);
    AwaitSignOff(*store, options.world.nodes, kRefusalSeconds, StopPending);
  } catch (const Error&) {
    // Then they wait for parallel.rendezvous_seconds.
  }
}

}  // namespace trainyard

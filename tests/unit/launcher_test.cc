#include "trainer/launch/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/stop_signal.h"
#include "trainer/launch/child.h"
#include "trainer/launch/last_words.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

// Becomes a shell that runs the script.
int Shell(const std::string& script) {
  execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
  return 127;
}

// Ranks are shell scripts; the launcher runs in a child process, as it takes over signals.
class LauncherTest : public testing::Test {
 protected:
  LauncherTest() : directory_(fs::path(testing::TempDir()) / ("launcher-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~LauncherTest() override { fs::remove_all(directory_); }

  // Starts the launcher of `procs` ranks that run `script`; returns its pid. `terminal`: a file that takes the place of
  // one; empty: it is told to be quiet. `nodes`: this is the first of so many, and the others do not come.
  pid_t Start(int procs, const std::string& script, const std::string& terminal = "", int nodes = 1) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    if (!terminal.empty()) dup2(open(terminal.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
    LaunchOptions options;
    options.world.procs = procs;
    options.world.nodes = nodes;
    options.rank = [script] { return Shell(script); };
    options.rank0_address = "127.0.0.1";
    options.termination_log = (directory_ / "termination").string();
    options.quiet = terminal.empty();
    const fs::path kills = OomKills();
    options.oom_kills = [kills] { return std::optional<uint64_t>(fs::exists(kills) ? fs::file_size(kills) : 0); };
    const StoreFactory stores{[](int fd, int) {
                                close(fd);
                                return std::make_unique<MemoryStore>();
                              },
                              {}};
    int code = 99;
    try {
      code = Launch(options, stores);
    } catch (...) {
    }
    _exit(code);
  }

  static int Wait(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  nlohmann::json Termination() { return nlohmann::json::parse(ReadFile(directory_ / "termination")); }

  void WaitFor(const fs::path& file) {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (!fs::exists(file) && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(fs::exists(file));
  }

  // As many bytes as the kernel has killed processes for want of memory.
  fs::path OomKills() const { return directory_ / "oom-kills"; }

  // What a rank writes in a shell to have a log in the test's folder.
  std::string Hello() const {
    return "echo '{\"hello\": {\"attempt\": 1, \"run_dir\": \"" + (directory_ / "run").string() +
           "\"}}' >&$TRAINYARD_REPORT_FD; ";
  }
  // What a rank that is about to end writes in a shell, with the moment since which it is.
  static std::string Failed(int code, const std::string& message, double time = 0) {
    const nlohmann::json end = {{"code", code}, {"time", time}, {"message", message}};
    return "echo '" + nlohmann::json{{"end", end}}.dump() + "' >&$TRAINYARD_REPORT_FD; ";
  }
  // A rank that runs `first`, touches `ready` with its number, and `seconds` after a SIGTERM ends with 75. Ranks start
  // with that blocked, and it stays so: a handler's exception is lost while a file is closed, and a signal that comes
  // just before a sleep does not end it.
  static std::string EndsOnAStop(const std::string& ready, const std::string& first = "", int seconds = 0,
                                 int code = 75) {
    return "exec python3 -c \"import os,signal,sys,time\n" + first + "sys.stdout.flush()\nopen('" + ready +
           "' + os.environ['RANK'], 'w').close()\nsignal.sigwait([15])\ntime.sleep(" + std::to_string(seconds) +
           ")\nsys.exit(" + std::to_string(code) + ")\"";
  }
  // The log of rank 0 as a pipe that nobody reads: a volume that does not answer.
  fs::path Pipe() const {
    fs::path path = directory_ / "run" / "logs" / "attempt-1-rank-0.log";
    fs::create_directories(path.parent_path());
    mkfifo(path.c_str(), 0600);
    return path;
  }
  // The launcher's code; a launcher that does not end in a minute is killed.
  static int WaitAMinute(pid_t pid) {
    const auto deadline = Clock::now() + std::chrono::minutes(1);
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) kill(pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  fs::path directory_;
};

// A process that has ended and that nobody has collected.
bool IsZombie(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");  // Its size is 0: ReadFile would find nothing.
  return std::string(std::istreambuf_iterator<char>(stat), {}).find(") Z") != std::string::npos;
}

TEST_F(LauncherTest, AllRanksSucceed) {
  EXPECT_EQ(Wait(Start(3,
                       "test $WORLD_SIZE = 3 && test $LOCAL_WORLD_SIZE = 3 && test $MASTER_ADDR = 127.0.0.1 && test "
                       "$TORCHELASTIC_USE_AGENT_STORE = True")),
            0);
  EXPECT_EQ(Termination()["reason"], "Completed");
}

TEST_F(LauncherTest, TheCauseWinsOverItsConsequences) {
  // Rank 0 fails at once as a peer, rank 2 later for a reason of its own.
  EXPECT_EQ(Wait(Start(3, "case $RANK in 0) exit 69;; 1) exit 69;; 2) sleep 0.3; echo broken file; exit 65;; esac")),
            65);
  EXPECT_EQ(Termination()["rank"], 2);
  EXPECT_EQ(Termination()["tail"][0], "broken file");
}

// Three such attempts are not three at the same step.
TEST_F(LauncherTest, TheStepIsToldOnceItIsKnown) {
  const auto step_after = [&](const std::string& status) {
    EXPECT_EQ(Wait(Start(1, "echo '{\"status\": " + status + "}' >&$TRAINYARD_REPORT_FD; exit 74")), 74);
    return Termination().at("step");
  };
  EXPECT_EQ(step_after(R"({"phase": "starting", "step": null, "total_steps": null})"), nullptr);
  EXPECT_EQ(step_after(R"({"phase": "training", "step": 0, "total_steps": 8})"), 0);
}

TEST_F(LauncherTest, WhomTheKernelHasKilledForWantOfMemoryIsTheCause) {
  const std::string killed = "kill -9 $$; sleep 60", count = "printf x >> " + OomKills().string() + "; ";
  EXPECT_EQ(Wait(Start(2, "case $RANK in 0) exit 70;; 1) sleep 0.3; " + count + killed + ";; esac")), 137);
  EXPECT_EQ(Termination()["rank"], 1) << "70 may be what came of it";
  EXPECT_EQ(Termination()["reason"], "OOMKilled");
  EXPECT_EQ(Termination()["message"],
            "killed by the kernel, for want of memory (signal 9); smaller batch.micro, data.prefetch or data.workers "
            "take less");
  EXPECT_EQ(Wait(Start(1, killed)), 137) << "a byte is there since the start";
  EXPECT_EQ(Termination()["reason"], "Signal9");
  EXPECT_EQ(Termination()["message"], "killed by signal 9 (Killed)");
  EXPECT_EQ(Wait(Start(2, "case $RANK in 0) " + killed + ";; 1) sleep 0.3; " + count + killed + ";; esac")), 137);
  EXPECT_EQ(Termination()["rank"], 1) << "one was counted, which explains one";
}

// What failed last may have taken with it what was durable before.
TEST_F(LauncherTest, WhatIsPromisedDependsOnWhatFailed) {
  const auto said = [&](int code, int64_t durable) {
    const nlohmann::json status = {
        {"phase", "training"}, {"step", 9}, {"total_steps", 20}, {"checkpoint_step", durable}};
    const std::string told = "echo '" + nlohmann::json{{"status", status}}.dump() + "' >&$TRAINYARD_REPORT_FD; ";
    const fs::path terminal = directory_ / "terminal";
    EXPECT_EQ(Wait(Start(1, told + Failed(code, "broken") + "exit " + std::to_string(code), terminal)), code);
    const std::string text = ReadFile(terminal);
    const size_t from = text.find("broken") + 6;
    return text.substr(from, text.find(" (exit code") - from);
  };
  EXPECT_EQ(said(70, 8), "; step 8 is durable: the same command goes on from it");
  EXPECT_EQ(said(74, 8), "; step 8 was durable: the same command goes on from it if the storage still has it");
  EXPECT_EQ(said(64, 8), "") << "the mistake comes first";
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_F(LauncherTest, WhatARankReportsStandsInItsLogAndOnceOnTheTerminal) {
  const std::string terminal = (directory_ / "terminal").string(), run = (directory_ / "run").string();
  EXPECT_EQ(Wait(Start(1, Hello() + "echo working; " + Failed(65, "broken file") + "exit 65", terminal)), 65);
  EXPECT_EQ(CountOf(ReadFile(terminal), "broken file"), 1) << ReadFile(terminal);
  const std::string log = ReadFile(run + "/logs/attempt-1-rank-0.log");
  EXPECT_EQ(log, "working\ntrainyard: rank 0: broken file\n");
}

// As it is seen by a launcher that was stopped, or starved, while its ranks failed, one because of another.
TEST_F(LauncherTest, OfEqualsTheCauseIsTheOneThatFailedFirstAndNotTheOneFoundFirst) {
  const std::string gone = (directory_ / "gone").string();
  const std::string followed = "echo $$ > " + gone + "; " + Failed(69, "connection closed by peer", 200) + "exit 69";
  const std::string until_gone = "while [ ! -s " + gone + " ] || kill -0 $(cat " + gone + "); do sleep 0.05; done; ";
  const std::string failed = until_gone + Failed(69, "the store did not answer", 100) + "exit 69";
  EXPECT_EQ(Wait(Start(2, "if [ $RANK = 0 ]; then " + followed + "; else " + failed + "; fi")), 69);
  EXPECT_EQ(Termination()["message"], "the store did not answer");
}

TEST_F(LauncherTest, ALogThatTakesNothingDelaysNoStop) {
  const fs::path pipe = Pipe();
  const std::string ready = (directory_ / "ready").string(), terminal = (directory_ / "terminal").string();
  const pid_t launcher = Start(1, Hello() + EndsOnAStop(ready, "for i in range(100000): print('line', i)\n"), terminal);
  WaitFor(ready + "0");
  kill(launcher, SIGTERM);
  EXPECT_EQ(WaitAMinute(launcher), 75);
  const std::string said = ReadFile(terminal);
  EXPECT_EQ(CountOf(said, pipe.string() + " lacks 100000 lines: it is not written in time"), 1)
      << said.substr(said.size() - std::min<size_t>(said.size(), 1000));
}

TEST_F(LauncherTest, ATerminalThatTakesNothingDelaysNoStop) {
  const std::string ready = (directory_ / "ready").string(), terminal = (directory_ / "terminal").string();
  mkfifo(terminal.c_str(), 0600);
  const int reader = open(terminal.c_str(), O_RDONLY | O_NONBLOCK);  // It never reads.
  const pid_t launcher = Start(1, Hello() + EndsOnAStop(ready, "for i in range(100000): print('line', i)\n"), terminal);
  WaitFor(ready + "0");
  kill(launcher, SIGTERM);
  EXPECT_EQ(WaitAMinute(launcher), 75);
  close(reader);
  EXPECT_EQ(Termination()["exit_code"], 75);
  const std::string log = ReadFile(directory_ / "run" / "logs" / "attempt-1-rank-0.log");
  EXPECT_EQ(CountOf(log, "line "), 100000);
  EXPECT_NE(log.find("line 99999\nlaunch: standard error lacks "), std::string::npos)
      << log.substr(log.size() - std::min<size_t>(log.size(), 1000));
}

TEST_F(LauncherTest, ATerminalThatIsSlowGetsEverythingInOrder) {
  const std::string terminal = (directory_ / "terminal").string();
  mkfifo(terminal.c_str(), 0600);
  const int reader = open(terminal.c_str(), O_RDWR | O_NONBLOCK);
  const pid_t launcher = Start(1, "seq 1 300000; sleep 1; exit 65", terminal);
  std::string said, all;
  for (int i = 1; i <= 300000; ++i) all += std::to_string(i) + "\n";
  const auto deadline = Clock::now() + std::chrono::minutes(1);
  char buffer[65536];
  while (said.find("exit code 65") == std::string::npos && Clock::now() < deadline) {
    const ssize_t n = read(reader, buffer, sizeof buffer);
    if (n > 0) said.append(buffer, static_cast<size_t>(n));
    if (n <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(WaitAMinute(launcher), 65);
  close(reader);
  const size_t begin = said.find('\n') + 1;  // behind what the launcher says of the start
  EXPECT_TRUE(said.substr(begin, all.size()) == all) << said.size() << " bytes";
}

TEST_F(LauncherTest, ALogThatIsSlowGetsEverythingInOrder) {
  const fs::path pipe = Pipe();
  const std::string ready = (directory_ / "ready").string(), go = (directory_ / "go").string();
  const pid_t launcher = Start(1, Hello() + "seq 1 300000; touch " + ready + "; until [ -e " + go +
                                      " ]; do sleep 0.01; done; " + Failed(65, "broken file") + "exit 65");
  WaitFor(ready);
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::ofstream(go).flush();
  });
  std::string log;
  std::ifstream stream(pipe);
  log.assign(std::istreambuf_iterator<char>(stream), {});
  end.join();
  EXPECT_EQ(WaitAMinute(launcher), 65);
  std::string all;
  for (int i = 1; i <= 300000; ++i) all += std::to_string(i) + "\n";
  EXPECT_TRUE(log == all + "trainyard: rank 0: broken file\n")
      << log.size() << " bytes, " << log.substr(log.size() - std::min<size_t>(log.size(), 100));
}

TEST_F(LauncherTest, WhatARankDiedOfBeforeAllAreKilledIsACause) {
  const std::string go = (directory_ / "go").string(), pid = (directory_ / "pid").string();
  const pid_t launcher =
      Start(2, "trap '' TERM; echo $$ > " + pid + "$RANK.tmp; mv " + pid + "$RANK.tmp " + pid + "$RANK; until [ -e " +
                   go + " ]; do sleep 0.01; done; if [ $RANK = 0 ]; then exit 69; fi; kill -SEGV $$");
  WaitFor(pid + "0");
  WaitFor(pid + "1");
  const pid_t ranks[] = {std::stoi(ReadFile(pid + "0")), std::stoi(ReadFile(pid + "1"))};
  kill(launcher, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  // Both are dead before the second signal is read, which kills whoever is known to run.
  kill(launcher, SIGSTOP);
  std::ofstream(go).flush();
  const auto deadline = Clock::now() + std::chrono::minutes(1);
  for (pid_t rank : ranks)
    while (!IsZombie(rank) && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(launcher, SIGINT);
  kill(launcher, SIGCONT);
  EXPECT_EQ(WaitAMinute(launcher), 128 + SIGINT);
  EXPECT_EQ(Termination()["rank"], 1) << "not the peer that it left, as if we had killed it";
}

TEST_F(LauncherTest, TheLastWordsAreWrittenBeforeOtherNodesAreWaitedFor) {
  const std::string terminal = (directory_ / "terminal").string();
  const pid_t launcher = Start(1, "echo broken file; exit 65", terminal, 2);
  WaitFor(directory_ / "termination");
  EXPECT_EQ(waitpid(launcher, nullptr, WNOHANG), 0) << "it waits for five seconds";
  kill(launcher, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const auto start = Clock::now();
  kill(launcher, SIGTERM);
  EXPECT_EQ(WaitAMinute(launcher), 65) << "the verdict stands";
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(3)) << "a second signal ends that";
  EXPECT_EQ(Termination()["reason"], "BadData");
  EXPECT_EQ(CountOf(ReadFile(terminal), "launch: SIGTERM: the ranks have ended"), 1) << ReadFile(terminal);
}

TEST_F(LauncherTest, LastWordsOfARankWithoutAReportStandOnceOnTheTerminal) {
  const std::string terminal = (directory_ / "terminal").string();
  EXPECT_EQ(Wait(Start(2, "if [ $RANK = 0 ]; then echo broken file; exit 65; fi", terminal)), 65);
  EXPECT_EQ(CountOf(ReadFile(terminal), "broken file"), 1) << ReadFile(terminal);
  EXPECT_EQ(Wait(Start(2, "if [ $RANK = 1 ]; then echo broken file; exit 65; fi", terminal)), 65);
  EXPECT_EQ(CountOf(ReadFile(terminal), "broken file"), 1)
      << "nobody has repeated rank 1 before: " << ReadFile(terminal);
}

TEST_F(LauncherTest, AKilledRankIsTheCauseAndHangingOnesGo) {
  const auto start = Clock::now();
  EXPECT_EQ(Wait(Start(2, "if [ $RANK = 1 ]; then kill -9 $$; fi; trap '' TERM; sleep 60")), 137);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(50)) << "five seconds to end by themselves, then SIGKILL";
  EXPECT_EQ(Termination()["signal"], 9);
  EXPECT_EQ(Termination()["rank"], 1);
}

TEST_F(LauncherTest, WhoDoesNotEndOnceTheRunIsCompleteIsKilledAndTheRunIsComplete) {
  const std::string terminal = (directory_ / "terminal").string();
  const auto start = Clock::now();
  EXPECT_EQ(WaitAMinute(Start(2, "if [ $RANK = 1 ]; then kill -STOP $$; fi", terminal)), 0);
  EXPECT_GT(Clock::now() - start, std::chrono::seconds(25)) << "it has a while to end by itself";
  EXPECT_EQ(Termination()["reason"], "Completed");
  EXPECT_EQ(
      CountOf(ReadFile(terminal), "the run is complete; 30s after the first rank had ended rank 1 did not: killed"), 1)
      << ReadFile(terminal);
}

TEST_F(LauncherTest, AStopIsObeyedSoonOnceTheRunIsComplete) {
  const std::string terminal = (directory_ / "terminal").string(), pid = (directory_ / "pid").string();
  const pid_t launcher = Start(
      2,
      "if [ $RANK = 1 ]; then trap '' TERM; exec sleep 600; fi; echo $$ > " + pid + ".tmp; mv " + pid + ".tmp " + pid,
      terminal);
  WaitFor(pid);
  // The run is complete when its first rank has ended, not when it has said who it is.
  const pid_t first = static_cast<pid_t>(std::stol(ReadFile(pid)));
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (kill(first, 0) == 0 && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto start = Clock::now();
  kill(launcher, SIGTERM);
  EXPECT_EQ(WaitAMinute(launcher), 0);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(
      CountOf(ReadFile(terminal), "the run is complete; 5.0s after the first rank had ended rank 1 did not: killed"), 1)
      << ReadFile(terminal);
}

TEST_F(LauncherTest, WhoOutlivesSigkillIsLeftToTheKernel) {
  const std::string terminal = (directory_ / "terminal").string(), file = (directory_ / "pid").string();
  const std::string go = (directory_ / "go").string();
  const pid_t launcher = Start(2,
                               "if [ $RANK = 1 ]; then echo $$ > " + file + ".tmp; mv " + file + ".tmp " + file +
                                   "; exec sleep 60; fi; until [ -e " + go + " ]; do sleep 0.01; done; exit 65",
                               terminal);
  WaitFor(file);
  // Nobody but its tracer learns of its end: as good as a process that waits within the kernel.
  const pid_t rank = std::stoi(ReadFile(file));
  ASSERT_EQ(ptrace(PTRACE_SEIZE, rank, nullptr, nullptr), 0);
  std::ofstream(go).flush();
  EXPECT_EQ(WaitAMinute(launcher), 65);
  EXPECT_EQ(Termination()["exit_code"], 65);
  EXPECT_EQ(CountOf(ReadFile(terminal), "5.0s after SIGKILL rank 1 is still there"), 1) << ReadFile(terminal);
  Wait(rank);
}

TEST_F(LauncherTest, ATerminationLogThatIsNoFileIsNotWaitedFor) {
  const std::string terminal = (directory_ / "terminal").string();
  const fs::path pipe = directory_ / "termination";
  mkfifo(pipe.c_str(), 0600);
  EXPECT_EQ(WaitAMinute(Start(1, "exit 65", terminal)), 65);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // One that somebody has open is no file either.
  EXPECT_EQ(WaitAMinute(Start(1, "exit 65", terminal + "2")), 65);
  close(reader);
  const std::string words =
      "launch: cannot write the termination message to " + pipe.string() + ": it is not a regular file";
  EXPECT_EQ(CountOf(ReadFile(terminal), words), 1) << ReadFile(terminal);
  EXPECT_EQ(CountOf(ReadFile(terminal + "2"), words), 1) << ReadFile(terminal + "2");
}

TEST_F(LauncherTest, LastWordsReplaceWhatIsThere) {
  const std::string path = (directory_ / "words").string();
  EXPECT_EQ(WriteLastWords(path, "a long first message"), "");
  EXPECT_EQ(WriteLastWords(path, "short"), "");
  EXPECT_EQ(ReadFile(path), "short");
  EXPECT_EQ(WriteLastWords((directory_ / "no" / "words").string(), "x"), "cannot write the termination message to " +
                                                                             (directory_ / "no" / "words").string() +
                                                                             ": No such file or directory");
}

TEST_F(LauncherTest, AStopIsForwarded) {
  const std::string ready = (directory_ / "ready").string();
  const pid_t launcher = Start(2, EndsOnAStop(ready));
  WaitFor(ready + "0");
  WaitFor(ready + "1");
  kill(launcher, SIGTERM);
  EXPECT_EQ(Wait(launcher), 75);
}

TEST_F(LauncherTest, AStopBeforeThereAreRanksStartsNone) {
  const std::string started = (directory_ / "started").string();
  const pid_t pid = fork();
  if (pid == 0) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop, nullptr);
    raise(SIGTERM);
    LaunchOptions options;
    options.rank = [started] { return Shell("touch " + started); };
    options.rank0_address = "127.0.0.1";
    int code = 99;
    try {
      code = Launch(options, {[](int fd, int) { return close(fd), std::make_unique<MemoryStore>(); }, {}});
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
    }
    _exit(code);
  }
  EXPECT_EQ(Wait(pid), 75);
  EXPECT_FALSE(fs::exists(started));
}

TEST_F(LauncherTest, ASecondSignalEndsEverythingAtOnce) {
  const std::string ready = (directory_ / "ready").string();
  const pid_t launcher = Start(1, "trap '' TERM; touch " + ready + "; sleep 60");
  WaitFor(ready);
  kill(launcher, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  kill(launcher, SIGINT);
  EXPECT_EQ(Wait(launcher), 128 + SIGINT);
  EXPECT_EQ(Termination()["exit_code"], 128 + SIGINT) << "what was asked for, not the SIGKILL that did it";
  EXPECT_EQ(Termination()["reason"], "Signal2");
  EXPECT_NE(Termination()["message"].get<std::string>().find("a second signal (SIGINT), as asked"), std::string::npos);
}

// The cause was there before anybody asked again.
TEST_F(LauncherTest, ASecondSignalDoesNotHideWhatHadFailedBefore) {
  const std::string ready = (directory_ / "ready").string();
  const pid_t launcher = Start(
      2, "if [ $RANK = 1 ]; then trap '' TERM; touch " + ready + "1; sleep 60; fi; " + EndsOnAStop(ready, "", 0, 74));
  WaitFor(ready + "0");
  WaitFor(ready + "1");
  kill(launcher, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  kill(launcher, SIGTERM);
  EXPECT_EQ(Wait(launcher), 74);
  EXPECT_EQ(Termination()["rank"], 0);
}

// It waits for a disk then, and the others have gone of it.
TEST_F(LauncherTest, WhatARankHasSaidItFailsWithIsTheCauseAlsoWhereItDoesNotEnd) {
  const pid_t launcher = Start(
      2, "if [ $RANK = 1 ]; then sleep 0.5; exit 69; fi; " + Failed(71, "out of memory") + "trap '' TERM; sleep 60");
  EXPECT_EQ(Wait(launcher), 71);
  EXPECT_EQ(Termination()["rank"], 0);
  EXPECT_EQ(Termination()["message"], "out of memory");
  EXPECT_EQ(Termination()["signal"], 0);
}

// The one that was killed first is the cause, although the other was killed as well, and had a report.
TEST_F(LauncherTest, WhoHadFailedOfAPeerAndWasKilledThenIsNotTheCause) {
  const std::string told = (directory_ / "told").string();
  const pid_t launcher = Start(2, "if [ $RANK = 0 ]; then " + Failed(69, "connection reset by peer") + "touch " + told +
                                      "; else while [ ! -e " + told + " ]; do sleep 0.01; done; fi; kill -9 $$");
  EXPECT_EQ(Wait(launcher), 137);
  EXPECT_EQ(Termination()["rank"], 1);
}

// As from a terminal and from a program around us: the ranks still save and end with 75.
TEST_F(LauncherTest, OneStopOnTwoPathsIsOne) {
  const std::string ready = (directory_ / "ready").string();
  const pid_t launcher = Start(1, EndsOnAStop(ready, "", /*seconds=*/1));
  WaitFor(ready + "0");
  kill(launcher, SIGINT);
  kill(launcher, SIGTERM);
  EXPECT_EQ(Wait(launcher), 75);
}

TEST(StopSignal, WhatCountsAsASecondOne) {
  const StopSignal process{SIGTERM, false, 1000}, terminal{SIGINT, true, 1000};
  EXPECT_FALSE(AsksAgain(terminal, {SIGTERM, false, 1499})) << "a program around us forwards what the terminal said";
  EXPECT_FALSE(AsksAgain(process, {SIGINT, true, 1499}));
  EXPECT_FALSE(AsksAgain(process, {SIGTERM, false, 1499}));
  EXPECT_TRUE(AsksAgain(process, {SIGTERM, false, 1500}));
  EXPECT_TRUE(AsksAgain(process, {SIGINT, true, 1500}));
  EXPECT_TRUE(AsksAgain(terminal, {SIGINT, true, 1001})) << "a terminal sends each Ctrl-C once";
}

TEST_F(LauncherTest, RanksDoNotOutliveTheLauncher) {
  const std::string file = (directory_ / "pid").string();
  const pid_t launcher = Start(1, "echo $$ > " + file + ".tmp; mv " + file + ".tmp " + file + "; sleep 60");
  WaitFor(file);
  const pid_t rank = std::stoi(ReadFile(file));
  kill(launcher, SIGKILL);
  Wait(launcher);
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (kill(rank, 0) == 0 && Clock::now() < deadline) {
    std::ifstream stat("/proc/" + std::to_string(rank) + "/stat");  // it may go at any moment
    const std::string text{std::istreambuf_iterator<char>(stat), {}};
    if (text.empty() || text.find(") Z") != std::string::npos)
      break;  // gone, or an orphan that nobody has collected yet
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LT(Clock::now(), deadline);
}

// A rank is a fork: what it shares with the launcher, and what it must not.
TEST_F(LauncherTest, ARankHasWhatTheLauncherHasLoadedAndNoneOfItsDescriptors) {
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string loaded = "before the fork";
    const int kept = fcntl(STDIN_FILENO, F_DUPFD, 10);
    fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    LaunchOptions options;
    options.world.procs = 3;
    options.rank0_address = "127.0.0.1";
    options.rank = [&] {
      int closed_by_exec = 0;  // sockets, pipes of other ranks, the launcher's signals
      for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
        const int flags = fcntl(std::stoi(entry.path().filename()), F_GETFD);
        if (flags >= 0 && (flags & FD_CLOEXEC) != 0) ++closed_by_exec;
      }
      const bool as_exec = closed_by_exec == 1 /* the iterator's own */ && fcntl(kept, F_GETFD) == 0;
      return loaded == "before the fork" && as_exec ? 0 : 1;
    };
    _exit(Launch(options, {[](int fd, int) { return close(fd), std::make_unique<MemoryStore>(); }, {}}));
  }
  EXPECT_EQ(Wait(pid), 0);
}

TEST(CountApart, AnswersFromAProcessOfItsOwn) {
  const pid_t here = getpid();
  EXPECT_EQ(CountApart("numbers", [here] { return here == getpid() ? 1 : 300; }), 300);
}

TEST(CountApart, SaysWhyThereIsNoAnswer) {
  const auto problem = [](const std::function<int()>& count) -> std::string {
    try {
      CountApart("the GPUs", count);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(problem([]() -> int { throw ConfigError("no such driver"); }), "cannot look at the GPUs: no such driver");
  EXPECT_EQ(problem([]() -> int { _exit(3); }), "cannot look at the GPUs: ended with exit code 3");
  EXPECT_EQ(problem([]() -> int { return raise(SIGKILL); }), "cannot look at the GPUs: killed by signal 9 (Killed)");
}

}  // namespace
}  // namespace trainyard

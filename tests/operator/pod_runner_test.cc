// Pods as processes, and what they do to the files that the node reads of them.
#include "operator/local/node/pod_runner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "operator/base/file.h"
#include "operator/local/node/session.h"
#include "tests/operator/builders.h"

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;

class SetClock : public Clock {
 public:
  Time Now() const override { return now; }
  Time now = reconcile::kNow;
};

class PodRunnerTest : public testing::Test {
 protected:
  PodRunnerTest() : folder_(fs::path(testing::TempDir()) / ("runner-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    node_.state = folder_;
  }
  ~PodRunnerTest() override { fs::remove_all(folder_); }

  static Json Container(const std::string& name, const std::string& script) {
    return {{"name", name},
            {"command", {"sh", "-c", script}},
            {"env", Json::array({{{"name", "TRAINYARD_TERMINATION_LOG"}, {"value", "any"}}})},
            {"terminationMessagePolicy", "FallbackToLogsOnError"}};
  }
  static Json Pod(const std::string& script) {
    return {{"metadata", {{"namespace", "default"}, {"name", "p"}, {"uid", "u"}}},
            {"spec", {{"containers", Json::array({Container("c", script)})}}}};
  }
  void AdvanceUntil(PodRunner& runner, const std::function<bool()>& done) {
    const Resolver nobody{.host = [](const auto&, const auto&, const auto&) { return std::nullopt; },
                          .service = [](const auto&) { return std::nullopt; }};
    for (int i = 0; i < 1000 && !done(); ++i) {
      runner.Advance(nobody);
      usleep(10000);
    }
    ASSERT_TRUE(done());
  }
  // How the pod's container ended.
  Json End(PodRunner& runner) {
    AdvanceUntil(runner, [&] { return runner.Ended(); });
    return runner.PodStatus()["containerStatuses"][0]["state"]["terminated"];
  }

  const fs::path folder_;
  NodeFacts node_;
  SetClock clock_;
};

TEST_F(PodRunnerTest, TheLastWordsAreOfTheMessageOrOfTheLog) {
  PodRunner quiet(node_, Pod("echo said; exit 3"), clock_);
  EXPECT_EQ(End(quiet)["message"], "said\n");
  Json pod = Pod("echo said; printf why > $TRAINYARD_TERMINATION_LOG; exit 3");
  pod["metadata"]["uid"] = "v";
  PodRunner loud(node_, pod, clock_);
  const Json end = End(loud);
  EXPECT_EQ(end["message"], "why");
  EXPECT_EQ(end["exitCode"], 3);
}

TEST_F(PodRunnerTest, WhatIsStillBeingWrittenHasAnEnd) {
  PodRunner runner(node_, Pod("exit 1"), clock_);
  fs::create_directories(runner.files().root());
  const fs::path log = runner.files().Log("c");
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::string block(1 << 16, 'x');
    std::ofstream file(log, std::ios::app);
    for (int i = 0; i < 10000 && !stop; ++i) file << block << std::flush;
  });
  const Json end = End(runner);
  stop = true;
  writer.join();
  EXPECT_LE(end["message"].get<std::string>().size(), 2048u);
}

// Opening a FIFO waits for its other end, and a device may never end.
TEST_F(PodRunnerTest, WhatIsNoFileIsNotWaitedFor) {
  const std::pair<const char*, const char*> cases[] = {
      {"rm $TRAINYARD_LOG; mkfifo $TRAINYARD_TERMINATION_LOG $TRAINYARD_LOG && exit 3", ""},
      {"ln -sf /dev/zero $TRAINYARD_TERMINATION_LOG && ln -sf /dev/zero $TRAINYARD_LOG && exit 3", ""},
      {"mkfifo $TRAINYARD_LOG.times && echo x && exit 3", "x\n"}};
  for (const auto& [script, message] : cases) {
    Json pod = Pod(script);
    pod["metadata"]["name"] = "p" + std::to_string(std::string(script).size());
    PodRunner runner(node_, pod, clock_);
    const Json end = End(runner);
    EXPECT_EQ(end["exitCode"], 3) << end;
    EXPECT_EQ(end.value("message", ""), message);
  }
}

TEST_F(PodRunnerTest, AContainerWhoseLogIsNoFileDoesNotStart) {
  Json pod = Pod("exit 0");
  const std::string log = "$(dirname $TRAINYARD_LOG)/c.log";
  pod["spec"]["initContainers"] = Json::array({Container("i", "mkfifo " + log)});
  PodRunner runner(node_, pod, clock_);
  EXPECT_EQ(End(runner)["reason"], "StartError");
}

TEST_F(PodRunnerTest, WhatStandsInAFilesWayIsNotWaitedFor) {
  Json pod = Pod("exit 0");
  const Json item = {{"path", "a"}, {"fieldRef", {{"fieldPath", "metadata.annotations['a']"}}}};
  pod["spec"]["volumes"] = Json::array({{{"name", "info"}, {"downwardAPI", {{"items", Json::array({item})}}}}});
  PodRunner runner(node_, pod, clock_);
  EXPECT_EQ(End(runner)["exitCode"], 0);
  const fs::path file = runner.files().root() / "volumes/info/a";
  ASSERT_EQ(mkfifo((file.string() + ".tmp").c_str(), 0600), 0);
  pod["metadata"]["annotations"]["a"] = "new";
  runner.Update(pod);
  std::string text;
  std::ifstream(file) >> text;
  EXPECT_EQ(text, "new");
}

TEST_F(PodRunnerTest, AStatusThatSomeoneElseWroteIsReadWithCare) {
  PodRunner runner(node_, Pod("exit 0"), clock_);
  const Json::array_t statuses = {
      5,
      {{"conditions", {5, nullptr, "Ready", Json::object(), {{"type", 5}, {"lastTransitionTime", 5}}}}},
      {{"conditions", 5}, {"containerStatuses", {5}}, {"podIP", 5}}};
  for (const Json& status : statuses) {
    Json pod = Pod("exit 0");
    pod["status"] = status;
    runner.Update(pod);
    EXPECT_EQ(runner.PodStatus()["conditions"].size(), 4u) << status;
  }
  EXPECT_EQ(End(runner)["exitCode"], 0);
}

// A node that leaves at once, without having seen the container's end.
TEST_F(PodRunnerTest, WhatAContainerPutIntoASessionOfItsOwnGoesWithItsRunner) {
  const fs::path file = folder_ / "daemon";
  pid_t daemon = 0;
  {
    PodRunner runner(node_, Pod("setsid sh -c 'echo $$$$ > " + file.string() + "; exec sleep 600' & sleep 600"),
                     clock_);
    AdvanceUntil(runner, [&] { return (std::ifstream(file) >> daemon) && daemon > 0; });
  }
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(daemon) + "/stat"), stat);
  EXPECT_TRUE(stat.empty() || stat.find(") Z ") != std::string::npos) << stat;
}

TEST_F(PodRunnerTest, AConditionKeepsItsTime) {
  PodRunner runner(node_, Pod("exit 0"), clock_);
  Json pod = Pod("exit 0");
  pod["status"] = runner.PodStatus();
  runner.Update(pod);
  clock_.now = After(clock_.now, 100);
  EXPECT_EQ(runner.PodStatus()["conditions"], pod["status"]["conditions"]);
}

// Neither a deadline that no time can say nor one that was not written by a server.
TEST_F(PodRunnerTest, ADeadlineThatCannotBeReadIsNotNow) {
  PodRunner runner(node_, Pod("trap '' TERM; echo up; while :; do sleep 0.01; done"), clock_);
  std::error_code none;
  AdvanceUntil(runner, [&] { return fs::exists(runner.files().Log("c"), none); });
  AdvanceUntil(runner, [&] { return fs::file_size(runner.files().Log("c"), none) > 0; });
  Json pod = Pod("");
  pod["metadata"]["deletionTimestamp"] = "14701-06-01T00:00:00Z";
  pod["metadata"]["deletionGracePeriodSeconds"] = 40;
  runner.Update(pod);
  clock_.now = After(clock_.now, 39);
  runner.Update(pod);
  int rounds = 0;
  AdvanceUntil(runner, [&] { return ++rounds > 20; });
  EXPECT_FALSE(runner.Ended());
  clock_.now = After(clock_.now, 1);
  EXPECT_EQ(End(runner)["signal"], 9);
}

TEST(SessionTest, AProgramWithoutItsFirstThreadIsKilled) {
  const std::string mark = "TRAINYARD_TEST_MARK=" + std::to_string(getpid());
  for (const bool by_mark : {false, true}) {
    std::string program = TRAINYARD_LOST_FIRST_THREAD, variable = mark;
    char* arguments[] = {program.data(), nullptr};
    char* environment[] = {variable.data(), nullptr};
    pid_t pid = 0;
    ASSERT_EQ(posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments, environment), 0);
    std::string stat;
    for (int i = 0; i < 1000 && stat.find(") Z ") == std::string::npos; ++i) {
      usleep(10000);
      std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
    }
    EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0) << stat;
    by_mark ? void(KillCarriers(mark)) : KillSession(pid);
    int end = 0;
    pid_t got = 0;
    for (int i = 0; i < 500 && got == 0; ++i) {
      got = waitpid(pid, &end, WNOHANG);
      usleep(10000);
    }
    EXPECT_EQ(got, pid) << "it runs on";
    EXPECT_TRUE(WIFSIGNALED(end));
    if (got == 0) kill(pid, SIGKILL);
  }
}

// `local` may be started again from a shell that one of its own containers had started, and then carries its variable.
TEST(SessionTest, ACarrierSparesItself) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a program of its own, which has the variable from its start
  const std::string name = "TRAINYARD_TEST_CARRIER", own = std::to_string(getpid());
  setenv(name.c_str(), own.c_str(), 0);
  const std::string mark = name + "=" + std::getenv(name.c_str());
  EXPECT_EXIT(_exit(KillCarriers(mark) ? 1 : 0), testing::ExitedWithCode(0), "");
  unsetenv(name.c_str());
}

pid_t Spawn(const std::string& program, const std::string& variable, size_t others = 0) {
  std::string name = program, entry = variable, other = "OTHER=";
  char* arguments[] = {name.data(), nullptr};
  std::vector<char*> environment(others, other.data());
  environment.insert(environment.end(), {entry.data(), nullptr});
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, name.c_str(), nullptr, nullptr, arguments, environment.data()), 0);
  return pid;
}

// What has ended between the look for it and the look at it cannot be read any more.
TEST(SessionTest, ProcessesThatComeAndGoMeanwhileAreNoError) {
  std::atomic<int> left = 4;
  std::vector<std::jthread> others;
  for (int t = left; t > 0; --t) {
    others.emplace_back([&] {
      for (int i = 0; i < 500; ++i) waitpid(Spawn("/bin/true", "TRAINYARD_TEST_OTHER=1"), nullptr, 0);
      --left;
    });
  }
  while (left > 0) EXPECT_FALSE(KillCarriers("TRAINYARD_TEST_NOBODY=1"));
}

// While a process becomes another program it shows no environment for a moment: it is looked at again. With many
// variables it is seen as well while the kernel counts them, where the range of them is empty.
void ExpectKilledWhileItBecomesAnother(size_t variables) {
  const fs::path script = fs::path(testing::TempDir()) / ("becomes-" + std::to_string(getpid()));
  ASSERT_TRUE(WriteWhole(script, "#!/bin/sh\nexec \"$0\"\n", 0700, false).ok());
  const std::string mark = "TRAINYARD_TEST_MARK=" + std::to_string(getpid());
  for (int i = 0; i < 100; ++i) {
    const pid_t pid = Spawn(script, mark, variables);
    usleep(1000 + 37 * i);
    EXPECT_TRUE(KillCarriers(mark)) << i;
    int end = 0;
    const pid_t got = waitpid(pid, &end, WNOHANG);
    EXPECT_EQ(got, pid) << i << ": it is left";
    if (got == pid) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  fs::remove(script);
}

TEST(SessionTest, AProcessThatBecomesAnotherProgramIsKilled) { ExpectKilledWhileItBecomesAnother(0); }

TEST(SessionTest, AProcessWithManyVariablesThatBecomesAnotherProgramIsKilled) {
  ExpectKilledWhileItBecomesAnother(30000);
}

// For the next life of `local`, which may be one after a reboot.
TEST_F(PodRunnerTest, AProcessIsNotedWithItsBoot) {
  PodRunner runner(node_, Pod("sleep 600"), clock_);
  const fs::path file = runner.files().root() / "processes";
  std::error_code none;
  AdvanceUntil(runner, [&] { return fs::exists(file, none); });
  std::string pid, start, boot;
  std::ifstream(file) >> pid >> start >> boot;
  EXPECT_EQ(StartTime(std::stoi(pid)), start);
  EXPECT_EQ(boot, BootId());
  EXPECT_EQ(boot.size(), 36u) << boot;
}

}  // namespace
}  // namespace trainyard::local

// A watch that fails, told in the log and in /readyz.
#include "operator/watch_trouble.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "operator/runtime.h"
#include "tests/operator/scripted_client.h"

namespace trainyard {
namespace {

using kube::Trouble, kube::TurnedClock;

// Lines that a test may count.
class CountedLog {
 public:
  ~CountedLog() { close(descriptor_); }
  const Logger& log() const { return log_; }
  std::vector<std::string> Lines() const {
    std::ifstream file("/proc/self/fd/" + std::to_string(descriptor_));  // from its beginning: a description of its own
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

 private:
  const int descriptor_ = memfd_create("log", MFD_CLOEXEC);
  const Logger log_{descriptor_, Logger::Form::kJson, LogLevel::kInfo};
};

TEST(TroubleLog, IsSaidAfterTwoSecondsAMinuteAndThenEveryFive) {
  CountedLog file;
  TroubleLog log(kube::kPods, file.log());
  TurnedClock clock;
  const Trouble trouble{Status(Code::kForbidden, "no right"), clock.Steady()};
  std::vector<int> said;  // at which second
  for (int second = 0; second <= 1000; ++second, clock.Pass(1)) {
    const size_t before = file.Lines().size();
    log.Look(trouble, clock.Steady());
    if (file.Lines().size() > before) said.push_back(second);
  }
  EXPECT_EQ(said, (std::vector<int>{2, 62, 362, 662, 962}));
  const std::string line = file.Lines().front();
  EXPECT_NE(line.find("no right"), std::string::npos) << line;
  EXPECT_NE(line.find("\"pods\""), std::string::npos) << line;
  EXPECT_NE(line.find("grant the operator get, list and watch on pods"), std::string::npos) << line;
}

TEST(TroubleLog, AFirstListThatIsNeverWholeIsSaid) {
  CountedLog file;
  TroubleLog log(kube::kPods, file.log());
  TurnedClock clock;
  std::vector<int> said;  // at which second
  for (int second = 0; second <= 400; ++second, clock.Pass(1)) {
    const size_t before = file.Lines().size();
    log.LookAtList(false, clock.Steady());
    if (file.Lines().size() > before) said.push_back(second);
  }
  EXPECT_EQ(said, (std::vector<int>{30, 330}));
  clock.Pass(1000);
  log.LookAtList(true, clock.Steady());
  EXPECT_EQ(file.Lines().size(), 2u);
  EXPECT_NE(file.Lines().front().find("\"pods\""), std::string::npos);
}

TEST(TroubleLog, ItsEndIsSaidOnceAndANewOneBeginsAnew) {
  CountedLog file;
  TroubleLog log(kube::kPods, file.log());
  TurnedClock clock;
  const auto look = [&](bool troubled, Instant since) {
    log.Look(troubled ? std::optional(Trouble{Status(Code::kUnavailable, "nobody"), since}) : std::nullopt,
             clock.Steady());
    return file.Lines().size();
  };
  const Instant first = clock.Steady();
  EXPECT_EQ(look(true, first), 0u);
  clock.Pass(1);
  EXPECT_EQ(look(false, {}), 0u) << "a short one is not worth a line, nor is its end";
  const Instant second = clock.Steady();
  clock.Pass(3);
  EXPECT_EQ(look(true, second), 1u);
  EXPECT_EQ(look(false, {}), 2u);
  EXPECT_NE(file.Lines().back().find("the watch works again"), std::string::npos);
  EXPECT_EQ(look(false, {}), 2u);
  const Instant third = clock.Steady();
  clock.Pass(3);
  EXPECT_EQ(look(true, third), 3u);
}

TEST(Explain, SaysWhatToDo) {
  const auto text = [](Code code, const std::string& message, const kube::Resource& resource) {
    return Explain({Status(code, message), {}}, resource);
  };
  EXPECT_EQ(text(Code::kNotFound, "no such path", kube::kTrainingJobs),
            "NotFound: no such path; the server does not know trainingjobs.trainyard.dev: apply what "
            "`trainyard-operator crd` prints");
  EXPECT_NE(text(Code::kUnauthorized, "who?", kube::kPods).find("token or certificate"), std::string::npos);
  EXPECT_NE(text(Code::kUnavailable, "TLS: the certificate is another's", kube::kPods).find("certificate-authority"),
            std::string::npos);
  EXPECT_NE(text(Code::kUnavailable, "connection refused", kube::kPods).find("whether the API server runs"),
            std::string::npos);
  EXPECT_EQ(text(Code::kInternal, "odd", kube::kPods), "InternalError: odd") << "nothing is better than a guess";
}

// A server whose lists and watches fail or live as a test says, for threads that pump it.
class Switched : public kube::ScriptedClient {
 public:
  explicit Switched(TurnedClock& clock) : ScriptedClient(clock) {}
  Result<kube::ListEnd> List(const kube::Resource& resource, const std::string&, const kube::ListOptions&,
                             const std::function<void(const kube::Json&)>&) override {
    const MutexLock lock(mutex_);
    if (!refusal_.ok() && resource == kube::kPods) return refusal_;
    return kube::ListEnd{.resource_version = "1", .continue_token = ""};
  }
  Status Watch(const kube::Resource&, const std::string&, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent)>&, const StopFlag& stop) override {
    if (options.initial_events) return Status(Code::kInvalid, "sendInitialEvents is forbidden");
    options.accepted();
    while (stop.Sleep(1)) {
    }
    return Status::Ok();
  }
  void Refuse(const Status& status) {
    const MutexLock lock(mutex_);
    refusal_ = status;
  }

 private:
  Mutex mutex_;
  Status refusal_ GUARDED_BY(mutex_);
};

// Waits until /readyz would say what has `part`; what it says then.
std::string Said(const Runtime& runtime, const std::string& part) {
  const Instant start = SteadyNow();
  while (SecondsBetween(start, SteadyNow()) < 60) {
    const std::string said = runtime.Unready();
    if (part.empty() ? said.empty() : said.find(part) != std::string::npos) return said;
    usleep(1000);
  }
  return "waited a minute; it says: " + runtime.Unready();
}

TEST(Readiness, ComesWithTheFirstWholeListsAndNamesTheTroubleBefore) {
  TurnedClock turned;
  const SystemClock clock;
  const Logger log(STDERR_FILENO, Logger::Form::kJson, LogLevel::kError);
  Switched client(turned);
  client.Refuse(Status(Code::kForbidden, "no right to pods"));
  StopFlag stop;
  Runtime runtime(client, client, clock, log, stop, {});
  EXPECT_EQ(runtime.Unready(), "the caches have not had their first lists");
  runtime.Start();
  EXPECT_EQ(Said(runtime, "no right"),
            "Forbidden: list pods: no right to pods; grant the operator get, list and watch on pods, in the namespaces "
            "that it watches");
  client.Refuse(Status::Ok());
  EXPECT_EQ(Said(runtime, ""), "");
}

}  // namespace
}  // namespace trainyard

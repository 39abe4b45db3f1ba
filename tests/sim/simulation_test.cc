// The real reconciler, queue, stores and reflectors against the in-memory API, with a virtual clock.
// TRAINYARD_SIM_SEEDS=first:count chooses the seeds; one that fails prints itself and its history.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "operator/api/labels.h"
#include "operator/kube/controller.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/reconciler.h"
#include "tests/operator/builders.h"
#include "tests/sim/world.h"

namespace trainyard::sim {
namespace {

using reconcile::JobObject;

class NoReports : public reconcile::ReportSource {
 public:
  std::optional<reconcile::Report> Get(const std::string&) const override { return std::nullopt; }
};

// One operator process: all that a crash destroys.
class Operator {
 public:
  Operator(local::MemoryApi& api, const OldLists& old, const Clock& clock, Dice& dice, const double& trouble)
      : client_(api, old, dice, trouble),
        clock_(clock),
        queue_(clock),
        caches_(client_, clock, "", 1, [this](const std::string& key) { queue_.Add(key); }),
        events_(client_, clock, "sim"),
        log_(STDERR_FILENO, Logger::Form::kText, LogLevel::kError),
        reconciler_(client_, clock, caches_, reports_, events_, log_,
                    {.progress_interval_seconds = 10, .parallel_requests = 1}) {}

  // One watch or list of one cache, when it is due.
  void PumpOne(size_t which) {
    if (clock_.Now() >= due_[which]) due_[which] = After(clock_.Now(), caches_.reflectors()[which]->Pump(stop_));
  }
  // One key, if one is due.
  bool WorkOne() {
    if (!caches_.synced()) return false;
    const std::optional<std::string> key = queue_.TryGet();
    if (!key) return false;
    kube::Settle(queue_, *key, reconciler_.Reconcile(*key), log_, counters_);
    return true;
  }
  int64_t writes() const { return client_.writes(); }

 private:
  TroubledClient client_;
  const Clock& clock_;
  kube::WorkQueue queue_;
  reconcile::Caches caches_;
  kube::EventRecorder events_;
  Logger log_;
  NoReports reports_;
  reconcile::Reconciler reconciler_;
  kube::ControllerCounters counters_;
  kube::StopFlag stop_;
  std::array<Time, 2> due_{};  // of each cache's next list or watch
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : dice_(seed),
        api_(clock_, seed),
        old_(api_),
        kubelets_(api_, clock_, dice_, KubeletOptions()),
        operators_(dice_.Chance(0.25) ? 2 : 1) {
    old_.Record();
    for (auto& each : operators_) each = MakeOperator();
    history_ << operators_.size() << " operator(s)\n";
  }

  // Empty when every invariant held and all jobs came to their end; else what broke.
  std::string Run() {
    const int64_t jobs = 1 + dice_.Below(2);
    for (int64_t i = 0; i < jobs; ++i) CreateJob("job" + std::to_string(i));
    for (int step = 0; step < kTroubledSteps + kCalmSteps; ++step) {
      if (step == kTroubledSteps) Calm();
      Act(step < kTroubledSteps);
      // Most steps change no object, and then there is nothing new to look at.
      const bool changed = std::exchange(checked_, api_.version()) != api_.version();
      if (std::string broken = changed ? Check() : ""; !broken.empty()) return broken;
      if (step > kTroubledSteps && (changed || step == kTroubledSteps + 1) && AllEnded()) return CheckEnd();
    }
    return "a job has not come to its end: " + Phases();
  }
  std::string history() const { return history_.str(); }

 private:
  static constexpr int kTroubledSteps = 250, kCalmSteps = 4000;

  Kubelets::Options KubeletOptions() {
    mode_ = dice_.Below(3);
    return {.failure = mode_ == 1 ? 0.0 : 0.08,
            .disruption = mode_ == 0 ? 0.0 : 0.05,
            .hang = dice_.Chance(0.3) ? 0.1 : 0.0,
            .silence = dice_.Chance(0.2) ? 0.5 : 0.0,
            .good_attempt = 1 + dice_.Below(7)};
  }
  std::unique_ptr<Operator> MakeOperator() { return std::make_unique<Operator>(api_, old_, clock_, dice_, trouble_); }

  void CreateJob(const std::string& name) {
    Json job = JobObject(name, 1 + dice_.Below(4));
    // Short waits: the more attempts while there is trouble, the more can go wrong.
    job["spec"]["restart"] = {{"maxRestarts", 20},
                              {"sameStepLimit", 1000},
                              {"backoff", {{"initialSeconds", dice_.Below(3)}, {"maxSeconds", 5}}}};
    if (dice_.Chance(0.3)) job["spec"]["cleanPodPolicy"] = dice_.Chance(0.5) ? "All" : "None";
    api_.Create(kube::kTrainingJobs, "default", job, {});
  }

  void Act(bool troubled) {
    clock_.Advance(dice_.Between(0, 1.5));
    if (dice_.Chance(0.2)) old_.Record();
    std::unique_ptr<Operator>& actor = operators_[static_cast<size_t>(dice_.Below(operator_count()))];
    try {
      switch (dice_.Below(6)) {
        case 0:
          actor->PumpOne(0);
          break;
        case 1:
          actor->PumpOne(1);
          break;
        case 2:
        case 3:
          actor->WorkOne();
          break;
        case 4:
          kubelets_.Step();
          break;
        case 5:
          api_.CollectGarbage();
          break;
      }
    } catch (const Crash&) {
      history_ << FormatTime(clock_.Now()) << " the operator crashed\n";
      actor = MakeOperator();
    }
    if (troubled && dice_.Chance(0.02)) Meddle();
  }

  // A person with kubectl.
  void Meddle() {
    const std::string name = "job" + std::to_string(dice_.Below(2));
    switch (dice_.Below(3)) {
      case 0:
        touched_.insert(name);
        api_.Patch(kube::kTrainingJobs, "default", name, "", local::PatchType::kMerge,
                   {{"spec", {{"suspend", dice_.Chance(0.5)}}}}, {});
        break;
      case 1:
        if (mode_ != 0) DeleteOnePod();  // a disruption
        break;
      case 2:
        api_.Delete(kube::kTrainingJobs, "default", name, {});
        if (dice_.Chance(0.7)) CreateJob(name);
        break;
    }
  }

  void DeleteOnePod() {
    const local::ApiResult pods = api_.List(kube::kPods, "default", {});
    for (const Json& pod : pods.body["items"]) {
      if (!dice_.Chance(0.3)) continue;
      api_.Delete(kube::kPods, "default", pod["metadata"]["name"], {});
      return;
    }
  }

  void Calm() {
    trouble_ = 0;
    kubelets_.Revive();
    for (const Json& job : Jobs()) {
      api_.Patch(kube::kTrainingJobs, "default", job["metadata"]["name"], "", local::PatchType::kMerge,
                 {{"spec", {{"suspend", false}}}}, {});
    }
  }

  std::vector<Json> Jobs() const { return api_.List(kube::kTrainingJobs, "", {}).body["items"]; }

  std::string Check() {
    std::map<std::string, std::set<std::string>> attempts;
    std::map<std::string, int> ranks;
    std::map<std::string, int64_t> newest, oldest_new;  // oldest_new: of the pods that the last step made
    const local::ApiResult pods = api_.List(kube::kPods, "", {});
    for (const Json& pod : pods.body["items"]) {
      const Json& labels = pod["metadata"]["labels"];
      const std::string uid = labels[api::kLabelJobUid], attempt = labels[api::kLabelAttempt],
                        rank = labels[api::kLabelRank];
      if (!local::HasEnded(pod)) attempts[uid].insert(attempt);
      // Of two operators at once, one may act on what was true seconds ago: then the fence of the
      // checkpoints keeps the older attempt from committing, and the newest of all is the status' own.
      if (attempts[uid].size() > 1 && operators_.size() == 1) return "two attempts of " + uid + " are alive";
      newest[uid] = std::max<int64_t>(newest[uid], std::stoll(attempt));
      if (seen_.insert(pod["metadata"]["uid"]).second) {
        const auto [first, added] = oldest_new.emplace(uid, std::stoll(attempt));
        first->second = std::min<int64_t>(first->second, std::stoll(attempt));
      }
      if (++ranks[uid + "/" + attempt + "/" + rank] > 1) return "two pods of rank " + rank;
    }
    for (const Json& job : Jobs()) {
      const std::string uid = job["metadata"]["uid"];
      const int64_t attempt = job.value("/status/attempt"_json_pointer, int64_t{0}),
                    total = job.value("/status/restarts/total"_json_pointer, int64_t{0});
      if (attempt != attempts_[uid]) {
        history_ << FormatTime(clock_.Now()) << " " << job["metadata"]["name"].get<std::string>() << " attempt "
                 << attempt << " restarts " << total << "\n";
      }
      if (attempt < attempts_[uid]) return "attempt of " + uid + " went back";
      if (attempt != attempts_[uid]) begun_[uid] = clock_.Now();
      // Of two operators at once, one may rely for a while on what it has confirmed.
      const bool late =
          operators_.size() == 1 || SecondsBetween(begun_[uid], clock_.Now()) > reconcile::kConfirmedSeconds;
      if (late && oldest_new.contains(uid) && oldest_new[uid] < attempt)
        return "a pod of attempt " + std::to_string(oldest_new[uid]) + " was created when " + std::to_string(attempt) +
               " had begun";
      if (newest[uid] > attempt)
        return "pods of attempt " + std::to_string(newest[uid]) + " came before it was read back";
      if (total < totals_[uid] || total > totals_[uid] + 1)
        return "restarts of " + uid + " jumped from " + std::to_string(totals_[uid]) + " to " + std::to_string(total);
      attempts_[uid] = attempt;
      totals_[uid] = total;
    }
    return "";
  }

  bool AllEnded() {
    for (const Json& job : Jobs()) {
      std::vector<api::FieldError> ignored;
      if (!reconcile::IsFinished(api::JobFromJson(job, ignored).status)) return false;
    }
    return true;
  }

  // Lets the last cleaning happen, then looks at what is left.
  std::string CheckEnd() {
    for (int i = 0; i < 300; ++i) Act(false);
    std::set<std::string> uids;
    for (const Json& job : Jobs()) {
      std::vector<api::FieldError> ignored;
      const api::TrainingJob parsed = api::JobFromJson(job, ignored);
      uids.insert(parsed.uid);
      const api::Restarts& restarts = parsed.status.restarts;
      const auto failed = static_cast<int64_t>(kubelets_.failed[parsed.uid].size());
      if (parsed.status.phase != api::kSucceeded) return parsed.name + " ended as " + parsed.status.phase;
      if (mode_ == 1 && restarts.charged != 0) return "disruptions were charged: " + std::to_string(restarts.charged);
      // A failure in an attempt that is being suspended or disrupted may not be seen, or not be the cause.
      const bool exact = mode_ == 0 && !touched_.contains(parsed.name);
      if (restarts.charged > failed || (exact && (restarts.charged != failed || restarts.total != failed)))
        return std::to_string(restarts.charged) + " of " + std::to_string(restarts.total) +
               " restarts were charged, and " + std::to_string(failed) + " attempts failed";
    }
    const local::ApiResult pods = api_.List(kube::kPods, "", {});
    for (const Json& pod : pods.body["items"]) {
      if (!uids.contains(pod["metadata"]["labels"].value(api::kLabelJobUid, "")))
        return "pod " + pod["metadata"]["name"].get<std::string>() + " outlived its job";
      if (!local::HasEnded(pod)) return "pod " + pod["metadata"]["name"].get<std::string>() + " outlived its job's end";
    }
    const int64_t writes = Writes();
    for (int i = 0; i < 100; ++i) Act(false);
    if (Writes() != writes) return "a job at rest was written to";
    return "";
  }

  int64_t operator_count() const { return static_cast<int64_t>(operators_.size()); }
  int64_t Writes() const {
    int64_t writes = 0;
    for (const auto& each : operators_) writes += each->writes();
    return writes;
  }

  std::string Phases() {
    std::string text;
    for (const Json& job : Jobs())
      text += job["metadata"]["name"].get<std::string>() + " " + job.value("status", Json()).dump() + "\n";
    return text;
  }

  VirtualClock clock_;
  Dice dice_;
  double trouble_ = 0.5;
  int64_t mode_ = 0;  // 0: only failures, 1: only disruptions, 2: both
  local::MemoryApi api_;
  OldLists old_;
  uint64_t checked_ = 0;               // the version that Check saw last
  std::set<std::string> seen_;         // pods, by uid
  std::map<std::string, Time> begun_;  // the newest attempt, by the job's uid
  Kubelets kubelets_;
  std::vector<std::unique_ptr<Operator>> operators_;  // two: one has not heard yet that it no longer leads
  std::set<std::string> touched_;                     // jobs that someone suspended
  std::map<std::string, int64_t> attempts_, totals_;
  std::ostringstream history_;
};

// Shares of the seeds, so that they run side by side.
constexpr uint64_t kShares = 4;

class SimulationTest : public testing::TestWithParam<uint64_t> {};

TEST_P(SimulationTest, EverySeedKeepsTheInvariants) {
  uint64_t first = 1, count = TRAINYARD_SIM_DEFAULT_SEEDS;
  if (const char* text = std::getenv("TRAINYARD_SIM_SEEDS")) {
    ASSERT_EQ(std::sscanf(text, "%lu:%lu", &first, &count), 2) << "TRAINYARD_SIM_SEEDS=first:count";
  }
  int failures = 0;
  for (uint64_t seed = first + GetParam(); seed < first + count && failures < 3; seed += kShares) {
    Simulation simulation(seed);
    const std::string broken = simulation.Run();
    if (broken.empty()) continue;
    ++failures;
    ADD_FAILURE() << "seed " << seed << " (again: TRAINYARD_SIM_SEEDS=" << seed << ":1): " << broken << "\n"
                  << simulation.history();
  }
}

INSTANTIATE_TEST_SUITE_P(Share, SimulationTest, testing::Range(uint64_t{0}, kShares));

}  // namespace
}  // namespace trainyard::sim

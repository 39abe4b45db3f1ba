// A job whose requests a test refuses, an operator that lives with that, and two clocks.
#ifndef TRAINYARD_TESTS_OPERATOR_TROUBLE_FIXTURE_H_
#define TRAINYARD_TESTS_OPERATOR_TROUBLE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "operator/base/json_access.h"
#include "tests/operator/builders.h"
#include "tests/operator/reconciler_parts.h"
#include "tests/sim/dice.h"

namespace trainyard::reconcile {

// Requests that a test refuses, by "verb plural name", and how often each was made.
class RefusingClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  std::function<Status(const std::string& request)> answer = [](const std::string&) { return Status::Ok(); };
  std::map<std::string, int> made;
  Status lost;  // what the next write of a status says, which is done all the same

  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                   const kube::FieldPaths& fields) override {
    const Status status = Judge("get " + resource.plural + " " + name);
    return status.ok() ? MemoryClient::Get(resource, ns, name, fields) : status;
  }
  Result<kube::ListEnd> List(const kube::Resource& resource, const std::string& ns, const kube::ListOptions& options,
                             const std::function<void(const Json&)>& on_item) override {
    const Status status = Judge("list " + resource.plural);
    return status.ok() ? MemoryClient::List(resource, ns, options, on_item) : status;
  }
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override {
    const Status status = Judge((options.dry_run ? "dry-run " : "create ") + resource.plural + " " +
                                json::Text(json::Field(object, "metadata"), "name"));
    return status.ok() ? MemoryClient::Create(resource, ns, object, options) : status;
  }
  Result<Json> MergePatch(const kube::Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch,
                          const kube::WriteOptions& options) override {
    Status status = Judge("patch " + resource.plural + " " + name);
    if (!status.ok()) return status;
    Result<Json> written = MemoryClient::MergePatch(resource, ns, name, subresource, patch, options);
    if (subresource == "status" && !lost.ok()) return std::exchange(lost, Status::Ok());
    return written;
  }
  Status Delete(const kube::Resource& resource, const std::string& ns, const std::string& name,
                const kube::DeleteOptions& options) override {
    const Status status = Judge("delete " + resource.plural + " " + name);
    return status.ok() ? MemoryClient::Delete(resource, ns, name, options) : status;
  }

 private:
  // One after the other: pods are created by several threads.
  Status Judge(const std::string& request) {
    const MutexLock lock(mutex_);
    ++made[request];
    return answer(request);
  }
  Mutex mutex_;
};

inline const Status kNotAllowed(Code::kForbidden, "no such right"),
    kDenied(Code::kInvalid, "admission webhook denied it"), kBroken(Code::kUnavailable, "failed calling webhook"),
    kAway(Code::kUnavailable, "connection refused");

// Not the API server's, and set by someone while the machine's own time goes on.
class AheadClock : public Clock {
 public:
  explicit AheadClock(const Clock& of) : of_(of) {}
  Time Now() const override { return After(of_.Now(), seconds); }
  Instant Steady() const override { return of_.Steady(); }
  double seconds = 0;

 private:
  const Clock& of_;
};

class TroubleTest : public testing::Test {
 protected:
  static constexpr size_t kJobs = 0, kPods = 1;

  void Start(int64_t workers, const Json& spec = Json::object()) {
    Json job = JobObject("job", workers);
    job["spec"].update(spec);
    const local::ApiResult created = api_.Create(kube::kTrainingJobs, "default", job, {});
    ASSERT_TRUE(created.ok()) << created.body;
  }
  void Remove() {
    api_.Delete(kube::kTrainingJobs, "default", "job", {});
    while (api_.CollectGarbage() > 0) {
    }
    Live(1);
  }
  void Pump(size_t cache) { caches_.reflectors()[cache]->Pump(stop_); }
  // One look at the job, whatever the queue says.
  kube::ReconcileResult Look() { return reconciler_.Reconcile("default/job"); }
  // Looks as the operator does, with its backoff, for so long. The cache's short watches begin anew each time, and tell
  // all there is: the job is woken by what changes.
  void Live(double seconds) {
    const Instant end = After(clock_.Steady(), seconds);
    for (; SecondsBetween(clock_.Steady(), end) > 0; clock_.Advance(0.2)) {
      Pump(kJobs);
      Pump(kPods);
      const std::string version = api_.List(kube::kPods, "", {}).body["metadata"]["resourceVersion"];
      if (version != seen_) queue_.Add("default/job");
      seen_ = version;
      if (const std::optional<std::string> key = queue_.TryGet())
        kube::Settle(queue_, *key, reconciler_.Reconcile(*key), log_);
    }
  }
  void Edit(const Json& spec) {
    const Json patch = {{"spec", spec}};
    ASSERT_TRUE(api_.Patch(kube::kTrainingJobs, "default", "job", "", local::PatchType::kMerge, patch, {}).ok());
  }
  void SetPod(const std::string& name, const Json& status) {
    ASSERT_TRUE(
        api_.Patch(kube::kPods, "default", name, "status", local::PatchType::kMerge, {{"status", status}}, {}).ok());
  }
  void BindPod(const std::string& name) {
    const Json bound = {{"spec", {{"nodeName", "n1"}}}};
    ASSERT_TRUE(api_.Patch(kube::kPods, "default", name, "", local::PatchType::kMerge, bound, {}).ok());
  }
  void RunPod(const std::string& name) {
    SetPod(name,
           {{"phase", "Running"},
            {"conditions", {{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "True"}}}}});
  }
  void EndPod(const std::string& name, int code) {
    const Json end = {{"exitCode", code}, {"reason", "Error"}, {"finishedAt", FormatTime(clock_.Now())}};
    SetPod(name, {{"phase", code == 0 ? "Succeeded" : "Failed"},
                  {"containerStatuses", {{{"name", "trainer"}, {"state", {{"terminated", end}}}}}}});
  }
  Json StatusOfJob() const { return api_.Get(kube::kTrainingJobs, "default", "job").body.value("status", Json()); }
  Json Condition(const std::string& type) const {
    const Json status = StatusOfJob();
    for (const Json& condition : json::List(status, "conditions")) {
      if (condition["type"] == type) return condition;
    }
    return {{"status", ""}, {"reason", ""}, {"message", ""}};
  }
  int Events(const std::string& reason) const {
    const Json events = api_.List(kube::kEvents, "", {}).body["items"];
    return static_cast<int>(
        std::count_if(events.begin(), events.end(), [&](const Json& event) { return event["reason"] == reason; }));
  }
  size_t Pods() const { return api_.List(kube::kPods, "", {}).body["items"].size(); }
  // Refuses what begins so.
  void Refuse(const std::string& request, const Status& status) {
    client_.answer = [=](const std::string& made) { return made.starts_with(request) ? status : Status::Ok(); };
  }
  void Allow() {
    client_.answer = [](const std::string&) { return Status::Ok(); };
  }
  // Two pods of a new job's first attempt, of which neither its status nor the cache hears.
  void MakePodsUnheardOf() {
    Start(2);
    Pump(kJobs);
    Pump(kPods);
    client_.answer = [&](const std::string& request) {
      const bool late = client_.made["create pods job-1-0"] > 0 && request.starts_with("patch trainingjobs");
      return late ? kAway : Status::Ok();
    };
    while (Pods() < 2) {
      (void)Look();
      Pump(kJobs);
    }
    Allow();
    ASSERT_EQ(StatusOfJob()["workers"].value("created", 0), 0);
  }

  sim::VirtualClock clock_;
  AheadClock ahead_{clock_};  // the operator's
  local::MemoryApi api_{clock_, 1};
  RefusingClient client_{api_};
  CacheClient cache_client_{api_};
  kube::StopFlag stop_;
  kube::WorkQueue queue_{clock_};
  Caches caches_{cache_client_, clock_, "", 1, [](const std::string&, double) {}};
  std::string seen_;
  NoReports reports_;
  kube::EventRecorder events_{client_, clock_, "test"};
  Logger log_{-1, Logger::Form::kText, LogLevel::kError};
  Reconciler reconciler_{client_, ahead_, caches_, reports_, events_, log_, {.parallel_requests = 4}};
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_TESTS_OPERATOR_TROUBLE_FIXTURE_H_

// The services of a job, as the executor makes, turns and drops them in the in-memory API.
#include "operator/reconcile/services.h"

#include <string>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/worker_pod.h"
#include "tests/operator/apply_fixture.h"

namespace trainyard::reconcile {
namespace {

class ServicesTest : public ApplyTest {};

TEST_F(ServicesTest, ADeletedServiceComesBack) {
  ASSERT_TRUE(executor_.Apply(job_, Creates(2), outcome_).ok());
  api_.Delete(kube::kServices, "default", "job", {});
  ASSERT_TRUE(executor_.Apply(job_, Creates(0), outcome_).ok());
  EXPECT_EQ(api_.Get(kube::kServices, "default", "job").http, 404) << "it was seen a moment ago";
  clock_.Advance(61);
  ASSERT_TRUE(executor_.Apply(job_, Creates(0), outcome_).ok());
  EXPECT_EQ(api_.Get(kube::kServices, "default", "job").http, 200);
}

std::string Variable(const Json& pod, const std::string& name) {
  for (const Json& variable : pod["spec"]["containers"][0]["env"]) {
    if (variable["name"] == name) return variable.value("value", variable.value("valueFrom", Json()).dump());
  }
  return "";
}

TEST_F(ServicesTest, WorkersAreMadeWithTheAddressOfTheFirst) {
  ASSERT_TRUE(executor_.Apply(job_, Creates(2), outcome_).ok());
  const Json service = api_.Get(kube::kServices, "default", "job-master").body;
  const std::string address = service["spec"]["clusterIP"];
  EXPECT_EQ(outcome_.master, address);
  EXPECT_EQ(service["spec"]["selector"],
            (Json{{"trainyard.dev/job-uid", job_.uid}, {"trainyard.dev/attempt", "1"}, {"trainyard.dev/rank", "0"}}));
  EXPECT_EQ(service["spec"]["ports"].size(), 1u);
  EXPECT_EQ(service["spec"]["ports"][0]["port"], MasterPort(job_.uid, 1));
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  for (const char* name : {"MASTER_ADDR", "PET_MASTER_ADDR"}) {
    EXPECT_EQ(Variable(api_.Get(kube::kPods, "default", "job-1-1").body, name), address);
    EXPECT_EQ(Variable(api_.Get(kube::kPods, "default", "job-1-0").body, name),
              R"({"fieldRef":{"fieldPath":"status.podIP"}})");
  }
}

TEST_F(ServicesTest, TheServiceStandsForTheNewestAttempt) {
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  const Json before = api_.Get(kube::kServices, "default", "job-master").body["spec"];
  api_.Delete(kube::kPods, "default", "job-1-0", {});
  SetAttempt(2);
  outcome_ = {};
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  const Json after = api_.Get(kube::kServices, "default", "job-master").body["spec"];
  EXPECT_EQ(after["clusterIP"], before["clusterIP"]);
  EXPECT_EQ(outcome_.master, before["clusterIP"]);
  EXPECT_EQ(after["selector"]["trainyard.dev/attempt"], "2");
  EXPECT_EQ(after["ports"][0]["port"], MasterPort(job_.uid, 2));
  EXPECT_EQ(after["ports"][0]["targetPort"], MasterPort(job_.uid, 2));
}

// The first lists of an operator that begins may show an attempt with all of its pods that has long been followed by
// another.
TEST_F(ServicesTest, AnOldCopyOfTheJobTurnsNoService) {
  SetAttempt(2);
  const TrainingJob old = job_;
  SetAttempt(3);
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  Executor other(client_, clock_, 1);
  Plan plan;
  plan.status = old.status;
  plan.needs_services = true;
  const Status status = other.Apply(old, plan, outcome_);
  EXPECT_TRUE(status.Is(Code::kConflict)) << status.ToString();
  const Json service = api_.Get(kube::kServices, "default", "job-master").body;
  EXPECT_EQ(service["spec"]["selector"]["trainyard.dev/attempt"], "3");
}

// The pods that are there have its address.
TEST_F(ServicesTest, AServiceThatWasDeletedComesBackWithItsAddress) {
  ASSERT_TRUE(executor_.Apply(job_, Creates(2), outcome_).ok());
  job_.status.master.address = outcome_.master;
  for (const bool taken : {false, true}) {
    ASSERT_TRUE(api_.Delete(kube::kServices, "default", "job-master", {}).ok());
    if (taken) {
      const Json other = {{"apiVersion", "v1"},
                          {"kind", "Service"},
                          {"metadata", {{"name", "other"}}},
                          {"spec", {{"clusterIP", outcome_.master}, {"ports", {{{"port", 1}}}}}}};
      ASSERT_TRUE(api_.Create(kube::kServices, "default", other, {}).ok());
    }
    clock_.Advance(61);
    Outcome again;
    ASSERT_TRUE(executor_.Apply(job_, Creates(0), again).ok());
    EXPECT_EQ(again.master == outcome_.master, !taken);
    EXPECT_EQ(api_.Get(kube::kServices, "default", "job-master").body["spec"]["clusterIP"], again.master);
  }
}

// Notes what it takes to be rid of a service.
class DroppingClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                   const kube::FieldPaths& fields) override {
    gets += resource == kube::kServices;
    return MemoryClient::Get(resource, ns, name, fields);
  }
  Status Delete(const kube::Resource& resource, const std::string& ns, const std::string& name,
                const kube::DeleteOptions& options) override {
    EXPECT_EQ(resource, kube::kServices);
    EXPECT_FALSE(options.uid.empty());
    ++deletes;
    return forbidden ? Status(Code::kForbidden, "no") : MemoryClient::Delete(resource, ns, name, options);
  }
  int gets = 0, deletes = 0;
  bool forbidden = false;
};

class DropTest : public ServicesTest {
 protected:
  DropTest() {
    EXPECT_TRUE(executor_.Apply(job_, Creates(0), outcome_).ok());
    Say(kFailedCondition);
  }
  // The job has ended, or is suspended.
  void Say(const char* condition) {
    SetCondition(job_.status, condition, true, "Test", "", kNow, 1);
    drop_ = Plan();
    drop_.status = job_.status;
    drop_.drops_master = true;
  }
  bool HasMaster() const { return api_.Get(kube::kServices, "default", "job-master").http == 200; }

  DroppingClient dropping_{api_};
  Executor executor_{dropping_, clock_, 1};
  Plan drop_;
};

TEST_F(DropTest, TheAddressOfAJobThatHasEndedIsGivenBackByOneRequest) {
  ASSERT_TRUE(HasMaster());
  dropping_.gets = 0;
  for (int pass = 0; pass < 3; ++pass) ASSERT_TRUE(executor_.Apply(job_, drop_, outcome_).ok());
  EXPECT_FALSE(HasMaster());
  EXPECT_EQ(api_.Get(kube::kServices, "default", "job").http, 200) << "its names take no address";
  EXPECT_EQ(dropping_.deletes, 1);
  EXPECT_EQ(dropping_.gets, 0);
  Executor later(dropping_, clock_, 1);
  for (int pass = 0; pass < 3; ++pass) ASSERT_TRUE(later.Apply(job_, drop_, outcome_).ok());
  EXPECT_EQ(dropping_.deletes, 1);
  EXPECT_EQ(dropping_.gets, 1) << "whoever begins looks once";
}

TEST_F(DropTest, AnotherProcessFindsIt) {
  Executor later(dropping_, clock_, 1);
  ASSERT_TRUE(later.Apply(job_, drop_, outcome_).ok());
  EXPECT_FALSE(HasMaster());
  ASSERT_TRUE(executor_.Apply(job_, drop_, outcome_).ok()) << "not found";
  EXPECT_EQ(outcome_.problem.reason, "");
}

TEST_F(DropTest, SomeoneElsesServiceStays) {
  ASSERT_TRUE(api_.Delete(kube::kServices, "default", "job-master", {}).ok());
  const Json other = {{"apiVersion", "v1"},
                      {"kind", "Service"},
                      {"metadata", {{"name", "job-master"}}},
                      {"spec", {{"ports", {{{"port", 1}}}}}}};
  ASSERT_TRUE(api_.Create(kube::kServices, "default", other, {}).ok());
  ASSERT_TRUE(executor_.Apply(job_, drop_, outcome_).ok());
  Executor later(dropping_, clock_, 1);
  ASSERT_TRUE(later.Apply(job_, drop_, outcome_).ok());
  EXPECT_TRUE(HasMaster());
}

TEST_F(DropTest, WithoutTheRightItGoesWithTheJob) {
  dropping_.forbidden = true;
  for (int pass = 0; pass < 3; ++pass) ASSERT_TRUE(executor_.Apply(job_, drop_, outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "");
  EXPECT_EQ(dropping_.deletes, 1);
}

TEST_F(DropTest, AResumedJobTakesAnotherAddress) {
  SetAttempt(1);
  Say(kSuspendedCondition);
  ASSERT_TRUE(executor_.Apply(job_, drop_, outcome_).ok());
  EXPECT_FALSE(HasMaster());
  ASSERT_TRUE(executor_.Apply(job_, Creates(2), outcome_).ok());
  EXPECT_TRUE(HasMaster());
  EXPECT_FALSE(outcome_.master_moved);
  EXPECT_FALSE(outcome_.master.empty());
  // And is suspended again.
  ASSERT_TRUE(executor_.Apply(job_, drop_, outcome_).ok());
  EXPECT_FALSE(HasMaster());
}

// The first list of an operator that begins may be older than the resumption.
TEST_F(DropTest, AnOldCopyOfAResumedJobTakesNoAddress) {
  SetAttempt(1);
  Say(kSuspendedCondition);
  Executor later(dropping_, clock_, 1);
  EXPECT_TRUE(later.Apply(job_, drop_, outcome_).Is(Code::kConflict));
  EXPECT_TRUE(HasMaster());
  api_.Patch(kube::kTrainingJobs, "default", "job", "", local::PatchType::kMerge, {{"spec", {{"suspend", true}}}}, {});
  ASSERT_TRUE(later.Apply(job_, drop_, outcome_).ok());
  EXPECT_FALSE(HasMaster());
}

TEST_F(ServicesTest, AClusterWithoutAServiceProxyHasNames) {
  job_.spec.rendezvous = api::kByName;
  ASSERT_TRUE(executor_.Apply(job_, Creates(2), outcome_).ok());
  EXPECT_EQ(outcome_.master, "job-1-0.job.default.svc");
  EXPECT_EQ(Variable(api_.Get(kube::kPods, "default", "job-1-1").body, "MASTER_ADDR"), outcome_.master);
  EXPECT_EQ(api_.Get(kube::kServices, "default", "job-master").http, 404);
}

}  // namespace
}  // namespace trainyard::reconcile

// What becomes of a job whose requests fail: its status says so, is written all the same, and is right again
// afterwards.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "operator/base/json_access.h"
#include "operator/reconcile/conditions.h"
#include "tests/operator/trouble_fixture.h"

namespace trainyard::reconcile {
namespace {

// What a job that begins cannot do stands in WorkersReady, in one event, and is gone once it can.
TEST_F(TroubleTest, WhatKeepsAJobFromStartingIsSaid) {
  const struct {
    const char* request;
    Status answer;
    const char *reason, *words;
  } cases[] = {
      {"create services job", kNotAllowed, "Forbidden", "create service job: no such right"},
      {"create services job", kDenied, "ServiceRefused", "create service job: admission webhook denied it"},
      {"create services job-master", kBroken, "RequestFailed", "create service job-master: failed calling webhook"},
      {"create pods", kDenied, "PodRefused", "create pod job-1-0: admission webhook denied it"},
      {"create pods", kBroken, "RequestFailed", "create pod job-1-0: failed calling webhook"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.request) + " " + c.answer.ToString());
    const int before = Events(c.reason);
    Refuse(c.request, c.answer);
    Start(2);
    Live(20);
    EXPECT_EQ(Condition("WorkersReady")["status"], "False");
    EXPECT_EQ(Condition("WorkersReady")["reason"], c.reason);
    const std::string message = Condition("WorkersReady")["message"];
    EXPECT_NE(message.find(c.words), std::string::npos) << message;
    EXPECT_EQ(Events(c.reason) - before, 1);
    Allow();
    Live(60);
    EXPECT_EQ(Pods(), 2u);
    EXPECT_EQ(Condition("WorkersReady")["reason"], "Waiting");
    Remove();
  }
}

TEST_F(TroubleTest, WhatKeepsTheNextAttemptFromStartingIsSaid) {
  Start(1);
  Live(5);
  Refuse("get trainingjobs", kBroken);
  EndPod("job-1-0", 70);
  Live(30);
  EXPECT_EQ(StatusOfJob()["attempt"], 2);
  EXPECT_EQ(Condition("WorkersReady")["reason"], "RequestFailed");
  const std::string message = Condition("WorkersReady")["message"];
  EXPECT_NE(message.find("confirm the attempt: failed calling webhook"), std::string::npos) << message;
  EXPECT_EQ(client_.made["create pods job-2-0"], 0);
  Allow();
  Live(60);
  EXPECT_EQ(client_.made["create pods job-2-0"], 1);
}

// What is known is written, whatever cannot be done.
TEST_F(TroubleTest, AStatusIsWrittenAlsoWhenARequestFailed) {
  Start(4);
  Refuse("create pods job-1-3", kBroken);
  Live(5);
  EXPECT_EQ(StatusOfJob()["workers"]["created"], 3);
  EndPod("job-1-0", 0);
  Live(5);
  EXPECT_EQ(StatusOfJob()["workers"]["done"], "0");
}

// Other words each time are no reason to write each time: a write wakes the job.
TEST_F(TroubleTest, AFailureInOtherWordsIsWrittenOnceAMinute) {
  int times = 0;
  client_.answer = [&](const std::string& request) {
    return request.starts_with("create pods") ? Status(Code::kUnavailable, "try " + std::to_string(++times))
                                              : Status::Ok();
  };
  Start(1);
  Live(1);
  const int before = client_.made["patch trainingjobs job"];
  Live(200);
  EXPECT_GT(times, 10);
  EXPECT_LE(client_.made["patch trainingjobs job"] - before, 4);
  const std::string message = Condition("WorkersReady")["message"];
  EXPECT_EQ(message.find("try 1;"), std::string::npos) << "the newer ones come: " << message;
  EXPECT_EQ(Events("RequestFailed"), 1);
}

// A right that is missing shows at the deletion of what is left of an attempt.
TEST_F(TroubleTest, AStalePodThatMayNotBeDeletedIsNamed) {
  Start(2);
  Live(5);
  Refuse("delete pods", kNotAllowed);
  EndPod("job-1-0", 70);
  EndPod("job-1-1", 70);
  Live(20);
  EXPECT_EQ(StatusOfJob()["attempt"], 2);
  EXPECT_EQ(Condition("WorkersReady")["reason"], "Forbidden");
  const std::string message = Condition("WorkersReady")["message"];
  EXPECT_NE(message.find("delete pod job-1-"), std::string::npos) << message;
  EXPECT_EQ(Events("Forbidden"), 1);
  EXPECT_LE(client_.made["delete pods job-1-0"], 6) << "with a wait that doubles";
  Allow();
  Live(60);
  EXPECT_EQ(Condition("WorkersReady")["reason"], "Waiting");
  EXPECT_EQ(client_.made["create pods job-2-1"], 1);
}

TEST_F(TroubleTest, ThePatchOfAServiceThatIsRefusedIsSaid) {
  Start(1);
  Live(5);
  Refuse("patch services", kNotAllowed);
  EndPod("job-1-0", 70);
  Live(30);
  EXPECT_EQ(StatusOfJob()["attempt"], 2);
  EXPECT_EQ(Condition("WorkersReady")["reason"], "Forbidden");
}

// The workers that run are ready, whatever the look at their services says; that it fails is said once.
TEST_F(TroubleTest, ARunningJobStaysReady) {
  Start(1);
  Live(2);
  RunPod("job-1-0");
  Live(2);
  ASSERT_EQ(StatusOfJob()["phase"], "Running");
  Refuse("get services", kNotAllowed);
  Live(600);
  EXPECT_EQ(Condition("WorkersReady")["status"], "True");
  EXPECT_EQ(StatusOfJob()["phase"], "Running");
  EXPECT_EQ(Events("Forbidden"), 1);
  const Json events = api_.List(kube::kEvents, "", {}).body["items"];
  for (const Json& event : events) {
    if (event["reason"] == "Forbidden") {
      EXPECT_EQ(event["note"], "get service job: no such right");
    }
  }
}

// Where no condition may say it, an event does, once for each time of trouble.
TEST_F(TroubleTest, WhatFailsForARunningJobIsSaidOnce) {
  Start(1);
  Live(2);
  RunPod("job-1-0");
  Live(2);
  for (int times = 1; times <= 2; ++times) {
    Refuse("get services", kBroken);
    Live(600);
    EXPECT_EQ(Condition("WorkersReady")["status"], "True");
    EXPECT_EQ(StatusOfJob()["phase"], "Running");
    EXPECT_EQ(Events("RequestFailed"), times);
    Allow();
    Live(700);
  }
}

// No later pass has it.
TEST_F(TroubleTest, WhatFailsForARunningJobIsSaidAlsoWhereItsStatusIsNotWritten) {
  Start(1);
  Live(2);
  RunPod("job-1-0");
  Live(2);
  client_.answer = [&](const std::string& request) {
    if (request.starts_with("get services")) return kNotAllowed;
    const bool first = request == "patch trainingjobs job" && client_.made["get services job"] == 1;
    return first ? Status(Code::kConflict, "someone was faster") : Status::Ok();
  };
  client_.made.clear();
  Live(65);
  ASSERT_GT(client_.made["get services job"], 0);
  EXPECT_EQ(Events("Forbidden"), 1);
}

TEST_F(TroubleTest, WhatFailsForAJobThatHasEndedIsSaidOnce) {
  Start(2, {{"successPolicy", "RankZero"}});
  Live(2);
  Refuse("delete pods", kBroken);
  EndPod("job-1-0", 0);
  Live(600);
  EXPECT_EQ(StatusOfJob()["phase"], "Succeeded");
  EXPECT_EQ(Pods(), 2u);
  EXPECT_EQ(Events("RequestFailed"), 1);
}

// A pod's own word is no problem of a request, whatever it is called.
TEST_F(TroubleTest, APodsReasonIsNotTakenBack) {
  Start(2);
  Live(2);
  const Json waiting = {{"reason", "ConnectionRefused"}, {"message", "the runtime does not answer"}};
  SetPod("job-1-1", {{"conditions", {{{"type", "PodScheduled"}, {"status", "True"}}}},
                     {"containerStatuses", {{{"name", "trainer"}, {"state", {{"waiting", waiting}}}}}}});
  Live(5);
  EXPECT_EQ(Condition("WorkersReady")["reason"], "ConnectionRefused");
  const std::string message = Condition("WorkersReady")["message"];
  EXPECT_NE(message.find("the runtime does not answer"), std::string::npos) << message;
}

// Of one attempt all pods look for worker 0 at the same place.
TEST_F(TroubleTest, AnotherAddressOfTheMasterIsAnotherAttempt) {
  Start(4);
  Refuse("create pods job-1-3", kBroken);
  Live(5);
  ASSERT_EQ(Pods(), 3u);
  const std::string address = api_.Get(kube::kServices, "default", "job-master").body["spec"]["clusterIP"];
  ASSERT_EQ(StatusOfJob()["master"]["address"], address);
  api_.Delete(kube::kServices, "default", "job-master", {});
  const Json other = {{"apiVersion", "v1"},
                      {"kind", "Service"},
                      {"metadata", {{"name", "other"}}},
                      {"spec", {{"clusterIP", address}, {"ports", {{{"port", 1}}}}}}};
  ASSERT_TRUE(api_.Create(kube::kServices, "default", other, {}).ok());
  Live(70);  // until it is looked at again
  Allow();
  Live(60);
  const Json status = StatusOfJob(), pods = api_.List(kube::kPods, "", {}).body["items"];
  EXPECT_EQ(status["attempt"], 2);
  EXPECT_EQ(json::Whole(json::Field(status, "restarts"), "total"), 0) << "nothing failed";
  EXPECT_EQ(Events("MasterAddressChanged"), 1);
  const std::string now = api_.Get(kube::kServices, "default", "job-master").body["spec"]["clusterIP"];
  EXPECT_NE(now, address);
  ASSERT_EQ(pods.size(), 4u);
  for (const Json& pod : pods) {
    EXPECT_EQ(pod["metadata"]["labels"]["trainyard.dev/attempt"], "2");
    const std::string& name = pod["metadata"]["name"].get_ref<const std::string&>();
    EXPECT_TRUE(name == "job-2-0" || pod["spec"].dump().find(now) != std::string::npos) << name;
  }
}

// Its workers have found each other: they need no new place for that.
TEST_F(TroubleTest, ARunningJobStaysWhereItIs) {
  Start(1);
  Live(2);
  RunPod("job-1-0");
  Live(2);
  const std::string address = api_.Get(kube::kServices, "default", "job-master").body["spec"]["clusterIP"];
  api_.Delete(kube::kServices, "default", "job-master", {});
  const Json other = {{"apiVersion", "v1"},
                      {"kind", "Service"},
                      {"metadata", {{"name", "other"}}},
                      {"spec", {{"clusterIP", address}, {"ports", {{{"port", 1}}}}}}};
  ASSERT_TRUE(api_.Create(kube::kServices, "default", other, {}).ok());
  Live(70);
  EXPECT_EQ(StatusOfJob()["attempt"], 1);
  EXPECT_EQ(StatusOfJob()["phase"], "Running");
}

// A person may make it, in the job's name, without an address.
TEST_F(TroubleTest, AMasterWithoutAnAddressIsNone) {
  Refuse("create services job-master", kBroken);
  Start(2);
  Live(2);
  const Json job = api_.Get(kube::kTrainingJobs, "default", "job").body;
  const Json owner = {{"apiVersion", "trainyard.dev/v1alpha1"},
                      {"kind", "TrainingJob"},
                      {"name", "job"},
                      {"uid", job["metadata"]["uid"]},
                      {"controller", true}};
  const Json master = {{"apiVersion", "v1"},
                       {"kind", "Service"},
                       {"metadata", {{"name", "job-master"}, {"ownerReferences", {owner}}}},
                       {"spec", {{"clusterIP", "None"}, {"ports", {{{"port", 1}}}}}}};
  ASSERT_TRUE(api_.Create(kube::kServices, "default", master, {}).ok());
  Allow();
  Live(20);
  EXPECT_EQ(Pods(), 0u);
  EXPECT_EQ(Condition("WorkersReady")["reason"], "NoMasterAddress");
  api_.Delete(kube::kServices, "default", "job-master", {});
  Live(60);
  EXPECT_EQ(Pods(), 2u);
  EXPECT_EQ(Condition("WorkersReady")["reason"], "Waiting");
}

// The end of a job waits for nothing; its groups go when they can.
TEST_F(TroubleTest, AnEndIsWrittenThoughItsGroupsDoNotGo) {
  Start(1, {{"scheduling", {{"gang", "volcano"}}}});
  Live(2);
  ASSERT_EQ(api_.List(kube::kVolcanoPodGroups, "", {}).body["items"].size(), 1u);
  Refuse("list podgroups", kBroken);
  EndPod("job-1-0", 0);
  Live(5);
  EXPECT_EQ(StatusOfJob()["phase"], "Succeeded");
  Allow();
  Live(60);
  EXPECT_EQ(api_.List(kube::kVolcanoPodGroups, "", {}).body["items"].size(), 0u);
  const int lists = client_.made["list podgroups"];
  Edit({{"ttlSecondsAfterFinished", 100000}});
  Live(60);
  EXPECT_EQ(client_.made["list podgroups"], lists) << "once";
}

TEST_F(TroubleTest, ASuspensionIsWrittenThoughItsGroupsDoNotGo) {
  Start(1, {{"scheduling", {{"gang", "volcano"}}}});
  Live(2);
  Refuse("list podgroups", kBroken);
  Edit({{"suspend", true}});
  Live(2);
  api_.Delete(kube::kPods, "default", "job-1-0", {.grace_seconds = 0});
  Live(5);
  EXPECT_EQ(StatusOfJob()["phase"], "Suspended");
  Allow();
  Live(60);
  EXPECT_EQ(api_.List(kube::kVolcanoPodGroups, "", {}).body["items"].size(), 0u);
}

// A job is suspended when no pod is left, and not when a cache shows none.
TEST_F(TroubleTest, NoJobIsSuspendedWhileItsPodsCome) {
  ASSERT_NO_FATAL_FAILURE(MakePodsUnheardOf());
  Edit({{"suspend", true}});
  for (int i = 0; i < 5; ++i) {
    Pump(kJobs);
    (void)Look();
    EXPECT_NE(StatusOfJob()["phase"], "Suspended");
  }
  // Another operator knows nothing of what was made, and its cache is older than that.
  Reconciler other(client_, clock_, caches_, reports_, events_, log_, {});
  for (int i = 0; i < 5; ++i) {
    Pump(kJobs);
    (void)other.Reconcile("default/job");
    EXPECT_NE(StatusOfJob()["phase"], "Suspended");
  }
  Live(5);
  EXPECT_EQ(StatusOfJob()["phase"], "Suspended");
  EXPECT_EQ(Pods(), 0u);
}

// The job is suspended, changed and resumed before anyone has seen any of that; its status, and the cache, have not
// heard of the pods that were made.
TEST_F(TroubleTest, PodsOfTwoSpecsShareNoAttempt) {
  Reconciler other(client_, clock_, caches_, reports_, events_, log_, {});
  // The process that made them knows so; one that comes after it does not.
  for (Reconciler* next : {&reconciler_, &other}) {
    client_.made.clear();
    ASSERT_NO_FATAL_FAILURE(MakePodsUnheardOf());
    Edit({{"suspend", true}});
    Edit({{"suspend", false}, {"workers", 3}});
    for (int i = 0; i < 5; ++i) {
      Pump(kJobs);
      (void)next->Reconcile("default/job");
    }
    EXPECT_EQ(StatusOfJob()["attempt"], 2);
    Live(60);
    EXPECT_EQ(client_.made["create pods job-1-2"], 0);
    EXPECT_EQ(Pods(), 3u);
    EXPECT_EQ(StatusOfJob()["attempt"], 2);
    EXPECT_EQ(json::Whole(json::Field(StatusOfJob(), "restarts"), "total"), 0) << "nothing failed";
    Remove();
  }
}

// A pod that is out of the watch's sight: its deletion wakes nobody.
TEST_F(TroubleTest, WhatKeepsAJobFromRestIsSaid) {
  Start(2);
  Live(2);
  Refuse("delete pods", kBroken);
  Edit({{"suspend", true}});
  Live(2);
  ASSERT_EQ(StatusOfJob()["attempt"], 2);
  const Json patch = {{"metadata", {{"labels", {{"trainyard.dev/managed", nullptr}}}}}};
  ASSERT_TRUE(api_.Patch(kube::kPods, "default", "job-1-0", "", local::PatchType::kMerge, patch, {}).ok());
  Allow();
  Live(700);
  EXPECT_EQ(StatusOfJob()["phase"], "Suspending");
  EXPECT_EQ(Condition("WorkersReady")["reason"], "RequestFailed");
  const std::string message = Condition("WorkersReady")["message"];
  EXPECT_NE(message.find("pod job-1-0 is left without the label trainyard.dev/managed"), std::string::npos) << message;
  EXPECT_GE(Events("RequestFailed"), 1);
  api_.Delete(kube::kPods, "default", "job-1-0", {.grace_seconds = 0});
  seen_ = api_.List(kube::kPods, "", {}).body["metadata"]["resourceVersion"];
  Live(62);
  EXPECT_EQ(StatusOfJob()["phase"], "Suspended");
  EXPECT_NE(Condition("WorkersReady")["reason"], "RequestFailed");
}

// What is left of a job's pods for its next turn is no reason to hurry where the API answers nothing.
TEST_F(TroubleTest, ATurnThatFailsWaitsAsAnyRequestThatFails) {
  Start(600);
  Refuse("create pods job-1-0", Status(Code::kUnavailable, "connection refused"));
  for (int look = 0; look < 5; ++look) {
    Pump(kJobs);
    const kube::ReconcileResult result = Look();
    if (result.status.ok()) continue;  // what comes before pods
    EXPECT_GE(result.requeue_after_seconds.value_or(60), kCacheLagSeconds) << look;
  }
  EXPECT_GE(client_.made["create pods job-1-0"], 2);
  EXPECT_EQ(Pods(), 0u);
}

// Whoever refused the template may think otherwise since.
TEST_F(TroubleTest, ATemplateThatWasRefusedIsAskedForAgain) {
  Refuse("dry-run pods", kDenied);
  Start(1);
  Live(5);
  EXPECT_EQ(StatusOfJob()["phase"], "Invalid");
  EXPECT_EQ(client_.made["dry-run pods job-1-0"], 1);
  Live(1800);
  EXPECT_LE(client_.made["dry-run pods job-1-0"], 8) << "every five minutes";
  EXPECT_EQ(Events("TemplateRefused"), 1);
  Refuse("dry-run pods", kBroken);
  Live(400);
  EXPECT_EQ(StatusOfJob()["phase"], "Invalid") << "no answer is no other verdict";
  Allow();
  Live(400);
  EXPECT_EQ(Condition("InvalidSpec")["status"], "False");
  EXPECT_EQ(Pods(), 1u);
}

// What becomes of a job is counted and told by whoever wrote it, though nobody told them so.
TEST_F(TroubleTest, AWriteWhoseAnswerIsLostIsCountedAndTold) {
  for (const Status& answer :
       {Status(Code::kUnavailable, "read: the connection broke"),
        Status(Code::kConflict, "the repeated one was too late"), Status(Code::kDeadline, "65 s")}) {
    SCOPED_TRACE(answer.ToString());
    const int64_t counted = reconciler_.metrics().failures()["CommandNotFound"];
    const int told = Events("Failed");
    Start(1);
    Live(5);
    EndPod("job-1-0", 127);
    Pump(kJobs);
    Pump(kPods);
    client_.lost = answer;
    Live(10);
    EXPECT_EQ(StatusOfJob()["phase"], "Failed");
    EXPECT_EQ(reconciler_.metrics().failures()["CommandNotFound"], counted + 1);
    EXPECT_EQ(Events("Failed"), told + 1);
    Remove();
  }
}

// Its template and config are not kept: what the attempt was made from would be compared with nothing.
TEST_F(TroubleTest, ABadEditOfALongSpecForgetsNothingOfTheAttempts) {
  Start(2, {{"config", {{"note", std::string(40'000, 'x')}, {"run", {{"dir", "/x"}}}}}});
  Live(3);
  const Json status = {{"status", {{"checkpoint", {{"step", 40}}}}}};
  ASSERT_TRUE(api_.Patch(kube::kTrainingJobs, "default", "job", "status", local::PatchType::kMerge, status, {}).ok());
  Live(1);
  const Json before = StatusOfJob();
  Edit({{"sharedMemory", {{"sizeLimit", "much"}}}});
  EndPod("job-1-0", 0);
  EndPod("job-1-1", 70);
  Live(30);
  const Json after = StatusOfJob();
  EXPECT_EQ(after["attempt"], 2);
  EXPECT_EQ(after["checkpoint"]["step"], 40);
  EXPECT_EQ(after["checkpointHash"], before["checkpointHash"]);
}

// Hundreds of them would fill the operator's memory: their specs are read when they are needed.
TEST_F(TroubleTest, AJobWithALongSpecRunsAsAnyOther) {
  const Json config = {{"note", std::string(40'000, 'x')}};
  Start(2, {{"config", config}});
  Live(3);
  ASSERT_EQ(Pods(), 2u);
  EXPECT_TRUE(caches_.jobs().Get("default/job")->apart);
  EXPECT_TRUE(caches_.jobs().Get("default/job")->config.empty());
  const Json pod = api_.Get(kube::kPods, "default", "job-1-1").body;
  EXPECT_EQ(Json::parse(pod["metadata"]["annotations"]["trainyard.dev/config"].get<std::string>()), config);
  RunPod("job-1-0");
  RunPod("job-1-1");
  Live(10);
  EXPECT_EQ(StatusOfJob()["phase"], "Running");
  // Of a namespace one is looked at: another worker comes again.
  kube::ReconcileResult other;
  client_.answer = [&](const std::string& request) {
    if (request == "get trainingjobs job") std::thread([&] { other = Look(); }).join();
    return Status::Ok();
  };
  (void)Look();
  EXPECT_LT(other.requeue_after_seconds.value_or(9), 1);
  // While it cannot be read nothing is decided, and that is said.
  Refuse("get trainingjobs", kBroken);
  EndPod("job-1-0", 70);
  EndPod("job-1-1", 69);
  Live(10);
  EXPECT_EQ(StatusOfJob()["attempt"], 1);
  EXPECT_EQ(Events("RequestFailed"), 1);
  Allow();
  Live(100);
  EXPECT_EQ(StatusOfJob()["attempt"], 2);
  EXPECT_EQ(Pods(), 2u);
  EndPod("job-2-0", 0);
  EndPod("job-2-1", 0);
  Live(5);
  EXPECT_EQ(StatusOfJob()["phase"], "Succeeded");
}

// The watch never tells of it, and each pass would say that our pods are old.
TEST_F(TroubleTest, APodWithoutItsLabelThatHoldsAnAttemptBackIsNamed) {
  Start(2);
  Live(2);
  Refuse("delete pods", kBroken);
  EndPod("job-1-1", 70);
  Live(20);
  const Json patch = {{"metadata", {{"labels", {{"trainyard.dev/managed", nullptr}}}}}};
  ASSERT_TRUE(api_.Patch(kube::kPods, "default", "job-1-0", "", local::PatchType::kMerge, patch, {}).ok());
  Allow();
  Live(400);
  const std::string message = Condition("WorkersReady")["message"];
  EXPECT_NE(message.find("pod job-1-0 is left without the label trainyard.dev/managed"), std::string::npos) << message;
}

// It is found as another job's then, if that exists.
TEST_F(TroubleTest, APodThatIsSaidToBeAnotherJobsIsNamed) {
  Start(2);
  Live(2);
  Refuse("delete pods", kBroken);
  EndPod("job-1-1", 70);
  Live(20);
  const Json patch = {{"metadata", {{"labels", {{"trainyard.dev/job-name", "another"}}}}}};
  ASSERT_TRUE(api_.Patch(kube::kPods, "default", "job-1-0", "", local::PatchType::kMerge, patch, {}).ok());
  Allow();
  Live(400);
  const std::string message = Condition("WorkersReady")["message"];
  EXPECT_NE(message.find("or trainyard.dev/job-name=job: give it back"), std::string::npos) << message;
}

}  // namespace
}  // namespace trainyard::reconcile

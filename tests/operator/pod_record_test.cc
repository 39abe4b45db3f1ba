#include <gtest/gtest.h>

#include "operator/kube/parse_object.h"
#include "operator/reconcile/culprit.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

// As the cache gets it: of what the record needs nothing may be left out.
PodRecord RecordOf(const Json& pod, TextPool& texts) {
  return PodFromJson(kube::ObjectParser(0, FieldsOfPod()).Parse(pod.dump()), texts);
}
PodRecord RecordOf(const Json& pod) {
  TextPool texts;
  return RecordOf(pod, texts);
}

TEST(PodRecord, AnyStatusIsRead) {
  const char* pods[] = {
      "3", "null", R"({"metadata":[],"status":"x"})",
      R"({"status":{"conditions":[null,{"type":3}],"containerStatuses":[{"name":null,"state":{"terminated":{"exitCode":"1","finishedAt":null}}}]}})"};
  for (const char* pod : pods) EXPECT_EQ(RecordOf(Json::parse(pod)).rank, -1) << pod;
}

TEST(PodRecord, APortThatIsNoneIsNotAsked) {
  for (const char* value : {"", "x", "65536", "-1", "99999999999999999999"}) {
    const Json pod = {
        {"spec",
         {{"containers",
           Json::array(
               {{{"name", "c"}, {"env", Json::array({{{"name", "TRAINYARD_STATUS_PORT"}, {"value", value}}})}}})}}}};
    EXPECT_EQ(RecordOf(pod).status_port, 0) << value;
  }
}

// Anyone may put the label on a pod, and the server asks of an owner's uid that it is not empty.
TEST(PodRecord, AnOwnersUidThatIsNoneIsNotKept) {
  const auto of = [](const std::string& uid) {
    return RecordOf({{"metadata", {{"ownerReferences", Json::array({{{"controller", true}, {"uid", uid}}})}}}})
        .owner_uid;
  };
  EXPECT_EQ(of("u-1"), "u-1");
  EXPECT_EQ(of(std::string(1 << 20, 'u')), "");
}

TEST(PodRecord, TellsWhetherItsOwnerIsItsLabelsJob) {
  Json pod = {{"metadata",
               {{"labels", {{"trainyard.dev/job-uid", "u-1"}}},
                {"ownerReferences", Json::array({{{"apiVersion", "trainyard.dev/v1alpha1"},
                                                  {"kind", "TrainingJob"},
                                                  {"controller", true},
                                                  {"uid", "u-1"}}})}}}};
  EXPECT_TRUE(RecordOf(pod).of_job);
  EXPECT_FALSE(RecordOf(pod).orphan);
  EXPECT_EQ(RecordOf(pod).job_uid, "u-1");
  Json other = pod;
  other["metadata"]["labels"]["trainyard.dev/job-uid"] = "u-2";
  EXPECT_FALSE(RecordOf(other).of_job);
  other = pod;
  other["metadata"]["ownerReferences"][0]["kind"] = "Job";
  EXPECT_FALSE(RecordOf(other).of_job);
  other["metadata"]["ownerReferences"][0]["controller"] = false;
  EXPECT_FALSE(RecordOf(other).orphan) << "whose it is decides its owner";
  pod["metadata"].erase("ownerReferences");
  EXPECT_FALSE(RecordOf(pod).of_job);
  EXPECT_TRUE(RecordOf(pod).orphan);
}

TEST(PodRecord, ADeletionWasAskedForBeforeItsGrace) {
  const Json pod = {
      {"metadata", {{"deletionTimestamp", "2026-03-01T12:01:00Z"}, {"deletionGracePeriodSeconds", 60}}},
      {"status",
       {{"phase", "Running"},
        {"conditions",
         Json::array(
             {{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "Why"}, {"message", "because"}}})}}}};
  const PodRecord record = RecordOf(pod);
  EXPECT_EQ(record.deleted_at, kNow);
  EXPECT_EQ(record.disruption, "Why: because");
  EXPECT_FALSE(record.over);
}

TEST(PodRecord, ADeletionWasNotAskedForBeforeThePodWasThere) {
  Json pod = {{"metadata",
               {{"creationTimestamp", "2026-03-01T12:00:00Z"},
                {"deletionTimestamp", "2026-03-01T12:01:00Z"},
                {"deletionGracePeriodSeconds", 1000000000000}}}};
  EXPECT_FALSE(RecordOf(pod).deleted_at);
  pod["metadata"]["deletionGracePeriodSeconds"] = 60;
  EXPECT_EQ(RecordOf(pod).deleted_at, kNow);
}

// The kubelet takes away what has ended, without grace, and the API server writes the time of that.
TEST(PodRecord, WhenAForcedDeletionWasAskedForIsUnknown) {
  const PodRecord record =
      RecordOf({{"metadata", {{"deletionTimestamp", "2026-03-01T12:00:00Z"}, {"deletionGracePeriodSeconds", 0}}}});
  EXPECT_TRUE(record.deleting);
  EXPECT_TRUE(record.forced);
  EXPECT_FALSE(record.deleted_at);
  EXPECT_EQ(record.gone_by, kNow);
}

// Everything that the record has comes from a pod that was read without what is not read, too.
TEST(PodRecord, WhatIsNotReadDecidesNothing) {
  Json init = {{"name", "wait"}, {"image", "x"}, {"restartPolicy", "Always"}};
  Json trainer = {{"name", "trainer"},
                  {"env", Json::array({{{"name", "OTHER"}, {"value", "unread"}},
                                       {{"name", "TRAINYARD_STATUS_PORT"}, {"value", "9400"}}})}};
  for (Json* container : {&init, &trainer}) {
    for (const char* list : {"args", "command", "envFrom", "ports", "volumeMounts"}) (*container)[list] = {"unread"};
    for (const char* part : {"lifecycle", "livenessProbe", "readinessProbe", "resources", "securityContext"})
      (*container)[part] = {{"unread", 1}};
  }
  const Json pod = {
      {"metadata", {{"name", "a-0"}, {"uid", "u"}, {"managedFields", {1}}}},
      {"spec",
       {{"nodeName", "n"},
        {"containers", Json::array({{{"name", "first"}}, trainer})},
        {"initContainers", Json::array({init})},
        {"tolerations", {1}},
        {"volumes", {{{"name", "v"}}}}}},
      {"status",
       {{"phase", "Running"},
        {"initContainerStatuses", Json::array({{{"name", "wait"}, {"state", {{"terminated", {{"exitCode", 3}}}}}}})},
        {"containerStatuses", Json::array({{{"name", "first"}, {"state", {{"terminated", {{"exitCode", 9}}}}}},
                                           {{"name", "trainer"},
                                            {"lastState", {{"terminated", {{"reason", "unread"}}}}},
                                            {"state", {{"terminated", {{"exitCode", 7}}}}}}})}}}};
  const Json read = kube::ObjectParser(0, FieldsOfPod()).Parse(pod.dump());
  EXPECT_EQ(read.dump().find("unread"), std::string::npos) << read;
  for (const Json& each : {pod, read}) {
    const PodRecord record = PodFromJson(each);
    EXPECT_EQ(record.status_port, 9400);
    EXPECT_EQ(record.node.str(), "n");
    EXPECT_TRUE(record.over);
    ASSERT_TRUE(record.end);
    EXPECT_EQ(record.end->exit_code, 7) << "of the trainer, and not of a sidecar";
  }
}

// Each field that the record has is among those that are asked for.
TEST(PodRecord, WhatIsReadIsAskedFor) {
  Json pod = {
      {"metadata", {{"name", "a-0"}, {"uid", "u"}}},
      {"spec",
       {{"containers", Json::array({{{"name", "trainer"}}})},
        {"initContainers", Json::array({{{"name", "proxy"}, {"restartPolicy", "Always"}}, {{"name", "setup"}}})}}},
      {"status",
       {{"podIP", "10.0.0.1"},
        {"conditions",
         Json::array({{{"type", "PodScheduled"}, {"status", "True"}, {"lastTransitionTime", "2026-03-01T12:00:00Z"}}})},
        {"initContainerStatuses",
         Json::array({{{"name", "proxy"}, {"state", {{"terminated", {{"exitCode", 3}}}}}}})}}}};
  const PodRecord record = RecordOf(pod);
  EXPECT_EQ(record.name, "a-0");
  EXPECT_EQ(record.uid, "u");
  EXPECT_EQ(record.ip, "10.0.0.1");
  EXPECT_EQ(record.scheduled_at, kNow);
  EXPECT_FALSE(record.end) << "the kubelet starts a sidecar again";
  pod["status"]["initContainerStatuses"][0]["name"] = "setup";
  ASSERT_TRUE(RecordOf(pod).end);
  EXPECT_EQ(RecordOf(pod).end->init_container, "setup");
}

// The kubelet's word on the whole pod explains more than that its container was killed; the container's own word more
// than the pod's.
TEST(PodRecord, AnEvictionIsTheCauseAndNotTheSignalThatItSent) {
  const std::string why = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Gi\".";
  const auto end_of = [&](const std::string& container_reason) {
    const Json terminated = {{"exitCode", 137}, {"reason", container_reason}};
    return *RecordOf({{"spec", {{"containers", {{{"name", "trainer"}}}}}},
                      {"status",
                       {{"phase", "Failed"},
                        {"reason", "Evicted"},
                        {"message", why},
                        {"containerStatuses", {{{"name", "trainer"}, {"state", {{"terminated", terminated}}}}}}}}})
                .end;
  };
  for (const char* reason : {"ContainerStatusUnknown", "Error", ""}) {
    const PodEnd end = end_of(reason);
    EXPECT_EQ(end.reason, "Evicted") << reason;
    EXPECT_EQ(end.exit_code, 137);
    EXPECT_EQ(end.words.message, why);
    EXPECT_TRUE(end.of_pod);
  }
  EXPECT_EQ(end_of("OOMKilled").reason, "OOMKilled");
}

// Told to stop when its activeDeadlineSeconds were over, a script that saves ends well: the run is not complete.
TEST(PodRecord, AnEndThatTheKubeletBroughtIsNoSuccess) {
  Json pod = Json::parse(R"({"spec": {"containers": [{"name": "trainer"}]}, "status": {
    "phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active on the node longer than it may",
    "containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}})");
  const PodRecord record = RecordOf(pod);
  EXPECT_EQ(record.end->reason, "DeadlineExceeded");
  EXPECT_TRUE(IsFailure(record));
  pod["status"].erase("reason");  // as where a sidecar has failed
  EXPECT_FALSE(IsFailure(RecordOf(pod)));
}

// A kubelet that has no room for it, or no device: nothing of it has run, and a rule on the code 1 does not mean it.
TEST(PodRecord, APodThatNeverRanHasNoExitCode) {
  const PodRecord record = RecordOf(
      {{"status", {{"phase", "Failed"}, {"reason", "UnexpectedAdmissionError"}, {"message", "no such device"}}}});
  ASSERT_TRUE(record.end);
  EXPECT_FALSE(record.end->exit_code);
  EXPECT_EQ(record.end->reason, "UnexpectedAdmissionError");
  EXPECT_EQ(record.end->words.message, "no such device");
  EXPECT_TRUE(IsFailure(record));
}

// As a mesh's webhook does, whose proxy is to run first. The proxy runs on, and has a Ready and an end of its own.
TEST(PodRecord, AContainerThatAWebhookPutsFirstIsNotTheTrainer) {
  const Json env = Json::array({{{"name", "TRAINYARD_STATUS_PORT"}, {"value", "9400"}}});
  const Json pod = {
      {"spec", {{"containers", {{{"name", "proxy"}, {"env", Json::array()}}, {{"name", "main"}, {"env", env}}}}}},
      {"status",
       {{"phase", "Running"},
        {"containerStatuses",
         {{{"name", "proxy"}, {"state", {{"running", {{"startedAt", "2026-03-01T11:00:00Z"}}}}}},
          {{"name", "main"},
           {"state", {{"terminated", {{"exitCode", 65}, {"startedAt", "2026-03-01T12:00:00Z"}}}}}}}}}}};
  const PodRecord record = RecordOf(pod);
  EXPECT_EQ(record.status_port, 9400);
  ASSERT_TRUE(record.end);
  EXPECT_EQ(record.end->exit_code, 65);
  EXPECT_EQ(record.started_at, kNow);
}

// By its annotation the reflector knows that the first list is whole.
TEST(PodRecord, OfABookmarkEverythingIsRead) {
  const Json bookmark = {
      {"type", "BOOKMARK"},
      {"object",
       {{"kind", "Pod"},
        {"metadata", {{"annotations", {{kube::kInitialEventsEnd, "true"}}}, {"resourceVersion", "7"}}},
        {"spec", {{"containers", nullptr}}}}}};
  EXPECT_EQ(kube::ObjectParser(1, FieldsOfPod()).Parse(bookmark.dump()), bookmark);
}

// A kubelet tells of the ends first, and of the phase when it has taken the pod apart: seconds later on a busy machine.
// A pod that was deleted in between would lose its logs.
TEST(PodRecord, IsOverWhenEveryContainerHasEnded) {
  const Json ended = {{"terminated", {{"exitCode", 0}}}}, runs = {{"running", Json::object()}};
  const auto over = [](const Json& trainer, const Json& sidecar, const char* phase) {
    return RecordOf({{"spec", {{"containers", {{{"name", "trainer"}}, {{"name", "sidecar"}}}}}},
                     {"status",
                      {{"phase", phase},
                       {"containerStatuses",
                        {{{"name", "trainer"}, {"state", trainer}}, {{"name", "sidecar"}, {"state", sidecar}}}}}}})
        .over;
  };
  EXPECT_FALSE(over(ended, runs, "Running"));
  EXPECT_TRUE(over(ended, ended, "Running"));
  EXPECT_TRUE(over(ended, runs, "Failed")) << "evicted";
  EXPECT_FALSE(RecordOf({{"status", {{"phase", "Pending"}}}}).over);
}

// A sidecar of the initContainers is told to end behind the others, and may still be writing: its worker has ended, its
// pod has not.
TEST(PodRecord, ASidecarThatRunsKeepsItFromBeingOver) {
  const Json trainer = {{"name", "trainer"}, {"state", {{"terminated", {{"exitCode", 0}}}}}};
  const auto read = [&](const Json& uploader, const char* phase) {
    return RecordOf({{"metadata", {{"deletionTimestamp", "2026-03-01T12:01:00Z"}}},
                     {"spec",
                      {{"containers", {{{"name", "trainer"}}}},
                       {"initContainers", {{{"name", "uploader"}, {"restartPolicy", "Always"}}}}}},
                     {"status",
                      {{"phase", phase},
                       {"containerStatuses", Json::array({trainer})},
                       {"initContainerStatuses", {{{"name", "uploader"}, {"state", uploader}}}}}}});
  };
  const PodRecord running = read({{"running", Json::object()}}, "Running");
  EXPECT_FALSE(running.over);
  EXPECT_TRUE(running.end) << "the worker's end is its trainer's";
  EXPECT_TRUE(read({{"terminated", {{"exitCode", 0}}}}, "Running").over);
  EXPECT_TRUE(read({{"running", Json::object()}}, "Succeeded").over) << "the kubelet's last word";
}

TEST(PodRecord, WhatPodsHaveInCommonIsHeldOnce) {
  TextPool texts;
  const auto pod = [&](const std::string& name, const std::string& node) {
    return RecordOf(
        {{"metadata", {{"name", name}, {"namespace", "default"}, {"labels", {{"trainyard.dev/job-name", "job"}}}}},
         {"spec", {{"nodeName", node}}},
         {"status",
          {{"conditions",
            Json::array({{{"type", "Ready"}, {"status", "True"}}, {{"type", "Gate"}, {"status", "False"}}})}}}},
        texts);
  };
  const PodRecord a = pod("a", "one"), b = pod("b", "one"), c = pod("c", "two");
  EXPECT_EQ(&a.node.str(), &b.node.str());
  EXPECT_EQ(&a.job_key.str(), &c.job_key.str());
  EXPECT_EQ(a.job_key, "default/job");
  EXPECT_EQ(texts.size(), 4u);
  EXPECT_TRUE(a.HasCondition("Ready"));
  EXPECT_FALSE(a.HasCondition("Gate"));
  EXPECT_FALSE(a.HasCondition("Read"));
  EXPECT_FALSE(a.HasCondition(""));
}

// Nodes and jobs come and go for years.
TEST(TextPool, LetsGoOfWhatNobodyHolds) {
  TextPool texts;
  const SharedText held = texts.Keep("held");
  for (int i = 0; i < 100000; ++i) texts.Keep("node-" + std::to_string(i));
  EXPECT_LE(texts.size(), 2048u);
  EXPECT_EQ(&texts.Keep("held").str(), &held.str());
}

}  // namespace
}  // namespace trainyard::reconcile

// Pods that are placed together: the objects, and the executor with them against the in-memory API.
#include "operator/reconcile/gang.h"

#include <gtest/gtest.h>

#include "operator/local/api/memory_client.h"
#include "operator/reconcile/apply.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"
#include "tests/sim/dice.h"

namespace trainyard::reconcile {
namespace {

TrainingJob GangJob(const Json& scheduling, int64_t workers = 4) {
  Json object = JobObject("job", workers);
  object["spec"]["scheduling"] = scheduling;
  const JobRecord record = JobFromApi(object);
  EXPECT_TRUE(record.errors.empty()) << api::Join(record.errors);
  return WholeJob(object);
}

Json Joined(const TrainingJob& job, int64_t attempt = 1) {
  Json pod = WorkerPod(job, attempt, 0, "");
  JoinGang(job, attempt, pod);
  return pod;
}

TEST(Gang, EachSchedulersGroup) {
  const struct {
    const char *scheduling, *version, *spec;
  } cases[] = {
      {R"({"gang":"native","priorityClassName":"high"})", "scheduling.k8s.io/v1alpha2",
       R"({"schedulingPolicy":{"gang":{"minCount":4}}})"},
      {R"({"gang":"volcano"})", "scheduling.volcano.sh/v1beta1", R"({"minMember":4})"},
      {R"({"gang":"volcano","queue":"research","priorityClassName":"high"})", "scheduling.volcano.sh/v1beta1",
       R"({"minMember":4,"queue":"research","priorityClassName":"high"})"},
      {R"({"gang":"coscheduling","priorityClassName":"high"})", "scheduling.x-k8s.io/v1alpha1", R"({"minMember":4})"},
  };
  for (const auto& c : cases) {
    const TrainingJob job = GangJob(Json::parse(c.scheduling));
    ASSERT_TRUE(GangOf(job));
    const Json group = PodGroup(job, 3);
    EXPECT_EQ(group["apiVersion"], c.version);
    EXPECT_EQ(group["kind"], "PodGroup");
    EXPECT_EQ(group["metadata"]["name"], "job-3");
    EXPECT_EQ(group["spec"], Json::parse(c.spec)) << c.scheduling;
    EXPECT_TRUE(OwnedBy(group, job.uid));
    EXPECT_EQ(group["metadata"]["labels"]["trainyard.dev/attempt"], "3");
  }
  EXPECT_FALSE(GangOf(GangJob({{"gang", "none"}})));
  EXPECT_FALSE(GangOf(GangJob({{"priorityClassName", "high"}})));
}

TEST(Gang, PodsReferToItByWhatTheSchedulerReads) {
  const Json native = Joined(GangJob({{"gang", "native"}, {"priorityClassName", "high"}}), 2);
  EXPECT_EQ(native["spec"]["schedulingGroup"], (Json{{"podGroupName", "job-2"}}));
  EXPECT_EQ(native["spec"]["priorityClassName"], "high");
  EXPECT_FALSE(native["spec"].contains("schedulerName"));

  TrainingJob volcano = GangJob({{"gang", "volcano"}});
  EXPECT_EQ(Joined(volcano)["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "job-1");
  EXPECT_EQ(Joined(volcano)["spec"]["schedulerName"], "volcano");
  volcano.spec.pod_template["spec"]["schedulerName"] = "volcano-of-ours";
  EXPECT_EQ(Joined(volcano)["spec"]["schedulerName"], "volcano-of-ours");

  const Json plugin = Joined(GangJob({{"gang", "coscheduling"}}));
  EXPECT_EQ(plugin["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "job-1");
  EXPECT_FALSE(plugin["spec"].contains("schedulerName")) << "the template names it";

  EXPECT_EQ(Joined(GangJob(Json::object())), WorkerPod(GangJob(Json::object()), 1, 0, "")) << "nothing without one";
}

TEST(Gang, KueuesGroupIsAnAttempt) {
  TrainingJob job = GangJob(Json::object());
  EXPECT_EQ(QueueOf(job), "");
  job.labels = {{"kueue.x-k8s.io/queue-name", "team"}};
  const Json metadata = Joined(job, 3)["metadata"];
  EXPECT_EQ(metadata["labels"]["kueue.x-k8s.io/queue-name"], "team");
  EXPECT_EQ(metadata["labels"]["kueue.x-k8s.io/pod-group-name"], "job-3");
  EXPECT_EQ(metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"], "4");
  EXPECT_EQ(metadata["annotations"]["kueue.x-k8s.io/retriable-in-group"], "false");
  // Its pods would be let in one by one.
  job.labels = Json::object();
  job.spec.pod_template["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "by-template";
  EXPECT_EQ(Joined(job)["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"], "job-1");
}

TEST(Gang, ChangesWhatAnAttemptIsMadeFrom) {
  const std::string plain = SpecHash(GangJob(Json::object()));
  EXPECT_EQ(SpecHash(GangJob({{"gang", "none"}})), plain) << "older attempts keep their hash";
  std::set<std::string> hashes = {plain};
  for (const char* scheduling : {R"({"gang":"volcano"})", R"({"gang":"native"})", R"({"gang":"volcano","queue":"a"})",
                                 R"({"priorityClassName":"a"})"})
    EXPECT_TRUE(hashes.insert(SpecHash(GangJob(Json::parse(scheduling)))).second) << scheduling;
}

TEST(Gang, AQueueOfTheJobChangesWhatAnAttemptIsMadeFrom) {
  TrainingJob job = GangJob(Json::object());
  const std::string plain = SpecHash(job);
  EXPECT_EQ(plain, "93435cd0bdf0bd14") << "of jobs without a queue, as it was before there were any";
  job.labels = {{"other", "label"}};
  EXPECT_EQ(SpecHash(job), plain);
  job.labels = {{"kueue.x-k8s.io/queue-name", "a"}};
  const std::string first = SpecHash(job);
  EXPECT_NE(first, plain);
  job.labels = {{"kueue.x-k8s.io/queue-name", "b"}};
  EXPECT_NE(SpecHash(job), first);
}

TEST(Gang, TheConditionSaysWhatItWaitsFor) {
  const struct {
    const char *status, *news;
  } cases[] = {
      {R"({})", ""},
      {R"({"conditions":[{"type":"PodGroupScheduled","status":"False","reason":"Unschedulable","message":"2 of 4"}]})",
       "Unschedulable: 2 of 4"},
      {R"({"conditions":[{"type":"PodGroupScheduled","status":"True","reason":"Scheduled"}]})", ""},
      {R"({"phase":"Inqueue","conditions":[{"type":"Unschedulable","status":"True","reason":"NotEnoughResources"}]})",
       "Inqueue, NotEnoughResources"},
      {R"({"phase":"Scheduling"})", "Scheduling"},
      {R"({"phase":7,"conditions":["x",{"type":3}]})", ""},
  };
  for (const auto& c : cases) EXPECT_EQ(GroupNews({{"status", Json::parse(c.status)}}), c.news) << c.status;

  Scene scene(2);
  scene.spec().scheduling.gang = api::kNativeGang;
  PodRecord& pod = scene.Pod(0);
  scene.Pod(1).scheduled = pod.scheduled = pod.ready = false;
  pod.waiting_reason = "SchedulingGated";
  scene.job().labels = {{"kueue.x-k8s.io/queue-name", "team"}};
  const Observed observed = scene.Observe();
  Plan plan = MakePlan(observed, kNow);
  EXPECT_TRUE(plan.needs_group);
  NoteGroup(observed, "Pending", plan, kNow);
  const api::Condition* scheduled = FindCondition(plan.status, kScheduledCondition);
  EXPECT_EQ(scheduled->reason, "SchedulingGated");
  EXPECT_EQ(
      scheduled->message,
      "0 of 2 workers are scheduled; job-1-0: SchedulingGated; Kueue's queue team has not let pod group job-1 in; "
      "PodGroup job-1: Pending");

  Scene placed(2);
  placed.spec().scheduling.gang = api::kNativeGang;
  placed.Pod(0).ready = placed.Pod(1).ready = false;
  EXPECT_FALSE(placed.Decide().needs_group) << "nobody asks for it any more";
}

// kube-scheduler tells the workers that would fit to wait for the others, and the others what they lack.
TEST(Gang, TheConditionSaysWhatTheOneLacksThatDoesNotFit) {
  Scene scene(4);
  for (int64_t rank = 0; rank < 4; ++rank) {
    PodRecord& pod = scene.Pod(rank);
    pod.scheduled = pod.ready = false;
    pod.waiting_reason = "Unschedulable";
    pod.waiting_message = rank < 2 ? "waiting for minCount pods from a gang" : "0/2 nodes are available";
  }
  const auto message = [&] {
    const Plan plan = scene.Decide();
    return FindCondition(plan.status, kScheduledCondition)->message;
  };
  const std::string first =
      "0 of 4 workers are scheduled; job-1-0: Unschedulable: waiting for minCount pods from a gang";
  EXPECT_EQ(message(), first) << "without a gang each pod says why it waits itself";
  scene.spec().scheduling.gang = api::kNativeGang;
  EXPECT_EQ(message(), first + "; job-1-2: Unschedulable: 0/2 nodes are available");
}

// Notes the order of creations, and may be a cluster without the kind, or without the right.
class GangClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override {
    if (resource == kube::kVolcanoPodGroups && refusal.code() != Code::kOk) {
      ++refused;
      return refusal;
    }
    created.push_back(resource.kind + " " + object["metadata"]["name"].get<std::string>());
    return MemoryClient::Create(resource, ns, object, options);
  }
  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                   const kube::FieldPaths& fields) override {
    looks += resource == kube::kVolcanoPodGroups;
    return MemoryClient::Get(resource, ns, name, fields);
  }
  Result<kube::ListEnd> List(const kube::Resource& resource, const std::string& ns, const kube::ListOptions& options,
                             const std::function<void(const Json&)>& on_item) override {
    lists += resource == kube::kVolcanoPodGroups;
    return MemoryClient::List(resource, ns, options, on_item);
  }
  Status refusal;
  int refused = 0, looks = 0, lists = 0;
  std::vector<std::string> created;
};

class PodGroupsTest : public testing::Test {
 protected:
  PodGroupsTest() {
    Json object = JobObject("job", 2);
    object["spec"]["scheduling"] = {{"gang", "volcano"}};
    api_.Create(kube::kTrainingJobs, "default", object, {});
    SetAttempt(1);
  }
  void SetAttempt(int64_t attempt) {
    api_.Patch(kube::kTrainingJobs, "default", "job", "status", local::PatchType::kMerge,
               {{"status", {{"attempt", attempt}, {"observedGeneration", 1}}}}, {});
    job_ = WholeJob(api_.Get(kube::kTrainingJobs, "default", "job").body);
  }
  // Until all are placed.
  Outcome Create() {
    Plan plan;
    plan.status = job_.status;
    for (int64_t rank = 0; rank < job_.spec.workers; ++rank) plan.creates.push_back(rank);
    plan.needs_services = plan.needs_group = true;
    Outcome outcome;
    const Status status = executor_.Apply(job_, plan, outcome);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return outcome;
  }
  void DeletePods() {
    for (const char* name : {"job-1-0", "job-1-1"}) api_.Delete(kube::kPods, "default", name, {.grace_seconds = 0});
  }
  std::vector<std::string> Groups() const {
    std::vector<std::string> names;
    const local::ApiResult list = api_.List(kube::kVolcanoPodGroups, "", {});
    for (const Json& group : list.body["items"]) names.push_back(group["metadata"]["name"]);
    return names;
  }
  using Names = std::vector<std::string>;

  sim::VirtualClock clock_;
  local::MemoryApi api_{clock_, 1};
  GangClient client_{api_};
  Executor executor_{client_, clock_, 1};
  TrainingJob job_;
};

TEST_F(PodGroupsTest, ComesBeforeThePodsAndGoesWithTheJob) {
  EXPECT_EQ(Create().problem.reason, "");
  EXPECT_EQ(client_.created,
            (Names{"Service job", "Service job-master", "PodGroup job-1", "Pod job-1-0", "Pod job-1-1"}));
  EXPECT_EQ(api_.Get(kube::kPods, "default", "job-1-1").body["spec"]["schedulerName"], "volcano");
  EXPECT_EQ(Groups(), Names{"job-1"});
  api_.Delete(kube::kTrainingJobs, "default", "job", {});
  api_.CollectGarbage();
  EXPECT_EQ(Groups(), Names{});
}

TEST_F(PodGroupsTest, AnAttemptHasOneOfItsOwn) {
  Create();
  DeletePods();
  SetAttempt(3);  // 2 may have had none
  EXPECT_EQ(Create().problem.reason, "");
  EXPECT_EQ(Groups(), Names{"job-3"});
}

// The first lists of an operator that begins may show an attempt with all of its pods that has long been followed by
// another.
TEST_F(PodGroupsTest, AnOldCopyOfTheJobDeletesNone) {
  Create();
  DeletePods();
  SetAttempt(2);
  const TrainingJob old = job_;
  SetAttempt(3);
  Create();
  ASSERT_EQ(Groups(), Names{"job-3"});
  Executor other(client_, clock_, 1);
  Plan plan;
  plan.status = old.status;
  plan.needs_group = true;
  Outcome outcome;
  const Status status = other.Apply(old, plan, outcome);
  EXPECT_TRUE(status.Is(Code::kConflict)) << status.ToString();
  EXPECT_EQ(Groups(), Names{"job-3"});
}

// Another's group of the name, also one that carries our labels.
TEST_F(PodGroupsTest, SomeoneElsesIsLeftAlone) {
  const Json labels = {{"trainyard.dev/job-uid", job_.uid}};
  for (const char* name : {"job-1", "job-7"})
    api_.Create(kube::kVolcanoPodGroups, "default",
                {{"apiVersion", "scheduling.volcano.sh/v1beta1"},
                 {"kind", "PodGroup"},
                 {"metadata", {{"name", name}, {"labels", labels}}},
                 {"spec", {{"minMember", 1}}}},
                {});
  EXPECT_EQ(Create().problem.reason, "NameInUse");
  EXPECT_EQ(Create().problem.reason, "NameInUse") << "it is waited for";
  SetAttempt(2);
  EXPECT_EQ(Create().problem.reason, "") << "another attempt has another name";
  EXPECT_EQ(Groups(), (Names{"job-1", "job-2", "job-7"}));
}

TEST_F(PodGroupsTest, AClusterWithoutTheKindIsAStandingProblem) {
  client_.refusal = Status(Code::kNotFound, "the server could not find the requested resource");
  double waited = 0;
  for (int round = 1; round <= 6; ++round) {
    const Outcome outcome = Create();
    EXPECT_EQ(outcome.problem.reason, "GangUnavailable");
    for (const char* word :
         {"scheduling.volcano.sh/v1beta1 PodGroup", "spec.scheduling.gang is volcano", "needs Volcano"})
      EXPECT_NE(outcome.problem.message.find(word), std::string::npos) << outcome.problem.message;
    EXPECT_GT(outcome.problem.retry_seconds, std::min(waited, 40.0));
    waited = outcome.problem.retry_seconds;
    EXPECT_EQ(Create().problem.reason, "GangUnavailable") << "and it is still said";
    EXPECT_EQ(client_.refused, round) << "whoever asks in between costs nothing";
    clock_.Advance(waited + 0.1);
  }
  EXPECT_EQ(api_.List(kube::kPods, "", {}).body["items"].size(), 0u);
  client_.refusal = Status::Ok();
  EXPECT_EQ(Create().problem.reason, "");
  EXPECT_EQ(api_.List(kube::kPods, "", {}).body["items"].size(), 2u);
}

TEST_F(PodGroupsTest, ARightThatIsMissingIsNamed) {
  client_.refusal = Status(Code::kForbidden, "cannot create resource podgroups");
  const Outcome outcome = Create();
  EXPECT_EQ(outcome.problem.reason, "Forbidden");
  EXPECT_NE(outcome.problem.message.find("manifests/gangs.yaml"), std::string::npos) << outcome.problem.message;
  client_.refusal = Status(Code::kInvalid, "queue research is closed");
  clock_.Advance(100);
  EXPECT_EQ(Create().problem.reason, "PodGroupRefused");
}

// The spec may change until the attempt's first pod exists.
TEST_F(PodGroupsTest, OneOfAnotherSizeIsReplaced) {
  Create();
  DeletePods();
  job_.spec.workers = 5;
  clock_.Advance(kGroupSeconds);
  EXPECT_EQ(Create().problem.reason, "");
  EXPECT_EQ(Groups(), Names{"job-1"});
  EXPECT_EQ(api_.Get(kube::kVolcanoPodGroups, "default", "job-1").body["spec"]["minMember"], 5);
}

TEST_F(PodGroupsTest, WhatItWaitsForIsAskedOnceAMinute) {
  Create();
  const Json status = {{"phase", "Pending"}};
  api_.Patch(kube::kVolcanoPodGroups, "default", "job-1", "", local::PatchType::kMerge, {{"status", status}}, {});
  const int before = client_.looks;
  EXPECT_EQ(Create().group_news, "");
  EXPECT_EQ(client_.looks, before);
  clock_.Advance(kGroupSeconds);
  EXPECT_EQ(Create().group_news, "Pending");
  EXPECT_EQ(Create().group_news, "Pending") << "it stands until the next look";
  EXPECT_EQ(client_.looks, before + 1);
  // Someone deleted it: it comes back.
  api_.Delete(kube::kVolcanoPodGroups, "default", "job-1", {});
  clock_.Advance(kGroupSeconds);
  EXPECT_EQ(Create().problem.reason, "");
  EXPECT_EQ(Groups(), Names{"job-1"});
}

// Someone deletes it, and a finalizer keeps it while pods name it: they would wait for ever for one in its place.
TEST_F(PodGroupsTest, OneThatIsGoingServesThePodsThatThereAre) {
  const auto finalizers = [&](const Json& names) {
    api_.Patch(kube::kVolcanoPodGroups, "default", "job-1", "", local::PatchType::kMerge,
               {{"metadata", {{"finalizers", names}}}}, {});
  };
  Create();
  finalizers({"scheduling.k8s.io/podgroup-protection"});
  api_.Delete(kube::kVolcanoPodGroups, "default", "job-1", {});
  EXPECT_EQ(Groups(), Names{"job-1"});
  clock_.Advance(kGroupSeconds);
  EXPECT_EQ(Create().problem.reason, "NameInUse") << "before the first pod it makes way for another";
  job_.status.workers.created = 1;
  clock_.Advance(100);
  EXPECT_EQ(Create().problem.reason, "");
  finalizers(Json::array());
  EXPECT_EQ(Groups(), Names{});
  clock_.Advance(kGroupSeconds);
  EXPECT_EQ(Create().problem.reason, "");
  EXPECT_EQ(Groups(), Names{"job-1"});
}

TEST_F(PodGroupsTest, GoesWhenTheJobEndsOrIsSuspended) {
  Scene ended(1), suspended(1, 2);
  for (Scene* scene : {&ended, &suspended}) scene->spec().scheduling.gang = api::kVolcanoGang;
  EXPECT_FALSE(ended.Run(1).Decide().drops_groups);
  Scene done(1);
  done.spec().scheduling.gang = api::kVolcanoGang;
  done.Ended(0, 0);
  EXPECT_FALSE(done.Decide().drops_groups) << "the end is written first";
  done.status() = done.Decide().status;
  EXPECT_TRUE(done.Decide().drops_groups);
  suspended.spec().suspend = true;
  EXPECT_TRUE(suspended.Decide().drops_groups);
  Scene never(1, 0);
  never.spec().scheduling.gang = api::kVolcanoGang;
  never.spec().suspend = true;
  EXPECT_FALSE(never.Decide().drops_groups) << "it never had one";

  Create();
  EXPECT_EQ(Groups(), Names{"job-1"});
  Plan plan;
  plan.status = job_.status;
  plan.drops_groups = true;
  Outcome outcome;
  EXPECT_TRUE(executor_.Apply(job_, plan, outcome).ok());
  EXPECT_EQ(Groups(), Names{});
  const int lists = client_.lists;
  EXPECT_TRUE(executor_.Apply(job_, plan, outcome).ok()) << "a second time";
  EXPECT_EQ(client_.lists, lists) << "once";
  // Resumed and suspended again.
  DeletePods();
  Create();
  EXPECT_EQ(Groups(), Names{"job-1"});
  EXPECT_TRUE(executor_.Apply(job_, plan, outcome).ok());
  EXPECT_EQ(Groups(), Names{});
}

}  // namespace
}  // namespace trainyard::reconcile

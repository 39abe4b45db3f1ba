#include "operator/local/api/memory_api.h"

#include <gtest/gtest.h>

#include <ctime>

#include "operator/local/api/memory_client.h"
#include "tests/operator/builders.h"
#include "tests/operator/max_resident.h"

namespace trainyard::local {
namespace {

using reconcile::JobObject;

class MemoryApiTest : public testing::Test {
 protected:
  ApiResult CreateJob(const std::string& name = "job") {
    return api_.Create(kube::kTrainingJobs, "default", JobObject(name, 2), {});
  }
  ApiResult Merge(const Json& patch, const std::string& sub = "") {
    return api_.Patch(kube::kTrainingJobs, "default", "job", sub, PatchType::kMerge, patch, {});
  }
  ApiResult CreatePod(const std::string& name, const Json& extra = Json::object()) {
    Json pod = {{"apiVersion", "v1"},
                {"kind", "Pod"},
                {"metadata", {{"name", name}}},
                {"spec", {{"containers", Json::array({{{"name", "c"}, {"image", "x"}}})}}}};
    pod.merge_patch(extra);
    return api_.Create(kube::kPods, "default", pod, {});
  }
  std::vector<std::string> Events(const Resource& resource, uint64_t since, const std::string& labels = "") {
    std::vector<kube::WatchEvent> events;
    EXPECT_TRUE(api_.Next(resource, "", *Selector::Parse(resource, labels, ""), since, 0, events));
    std::vector<std::string> out;
    for (const kube::WatchEvent& event : events)
      out.push_back(event.type + " " + event.object["metadata"]["name"].get<std::string>());
    return out;
  }
  SystemClock clock_;
  MemoryApi api_{clock_, 1};
};

TEST_F(MemoryApiTest, CreateFillsInWhatAServerDoes) {
  const ApiResult made = CreateJob();
  ASSERT_EQ(made.http, 201) << made.body;
  EXPECT_EQ(made.body["metadata"]["generation"], 1);
  EXPECT_NE(made.body["metadata"]["uid"], "uid-job") << "a uid is the server's to give";
  EXPECT_FALSE(made.body.contains("status"));
  EXPECT_EQ(CreateJob().http, 409);
  EXPECT_EQ(CreateJob().body["reason"], "AlreadyExists");
}

TEST_F(MemoryApiTest, DryRunStoresNothing) {
  EXPECT_EQ(api_.Create(kube::kTrainingJobs, "default", JobObject("job", 1), {.dry_run = true}).http, 201);
  EXPECT_EQ(api_.Get(kube::kTrainingJobs, "default", "job").http, 404);
}

TEST_F(MemoryApiTest, SpecAndStatusHaveTheirOwnDoors) {
  CreateJob();
  const ApiResult spec = Merge({{"spec", {{"suspend", true}}}, {"status", {{"attempt", 9}}}});
  EXPECT_EQ(spec.body["metadata"]["generation"], 2);
  EXPECT_FALSE(spec.body.contains("status"));
  const ApiResult status = Merge({{"spec", {{"suspend", false}}}, {"status", {{"attempt", 1}}}}, "status");
  EXPECT_EQ(status.body["spec"]["suspend"], true);
  EXPECT_EQ(status.body["status"]["attempt"], 1);
  EXPECT_EQ(status.body["metadata"]["generation"], 2) << "a status is no new generation";
}

TEST_F(MemoryApiTest, AFieldThatIsDroppedIsNoNewGeneration) {
  CreateJob();
  const ApiResult result = Merge({{"spec", {{"wrokers", 3}}}});
  ASSERT_TRUE(result.ok()) << result.body;
  EXPECT_EQ(result.body["metadata"]["generation"], 1);
  EXPECT_EQ(result.warnings, std::vector<std::string>{"unknown field \"spec.wrokers\""});
}

TEST_F(MemoryApiTest, MetadataIsChecked) {
  CreateJob();
  for (const char* metadata :
       {R"({"labels":{"k":5}})", R"({"labels":[1]})", R"({"labels":{"k":"bad value!"}})",
        R"({"labels":{"bad key":"x"}})", R"({"annotations":{"a":{"b":1}}})", R"({"ownerReferences":[{"kind":5}]})"})
    EXPECT_EQ(Merge({{"metadata", Json::parse(metadata)}}).http, 422) << metadata;
  EXPECT_TRUE(Merge({{"metadata", {{"labels", {{"a.b/c_d", "1.x"}}}}}}).ok());
  EXPECT_EQ(api_.Create(kube::kTrainingJobs, "My Team", JobObject("job", 2), {}).http, 400)
      << "the object's is another";
  Json elsewhere = JobObject("job", 2);
  elsewhere["metadata"]["namespace"] = "My Team";
  EXPECT_EQ(api_.Create(kube::kTrainingJobs, "My Team", elsewhere, {}).http, 404);
}

TEST_F(MemoryApiTest, WhatAnEarlierVersionLetInCanStillBeWritten) {
  CreateJob();
  Json dump = api_.Dump();
  dump["collections"]["trainingjobs.trainyard.dev"]["default/job"]["metadata"]["labels"] = {{"team", "a b"}};
  ASSERT_TRUE(api_.Load(dump).ok());
  EXPECT_TRUE(Merge({{"status", {{"attempt", 1}}}}, "status").ok());
  EXPECT_TRUE(Merge({{"spec", {{"suspend", true}}}}).ok());
  EXPECT_EQ(Merge({{"metadata", {{"labels", {{"other", "c d"}}}}}}).http, 422);
  EXPECT_TRUE(Merge({{"metadata", {{"labels", {{"team", "a_b"}}}}}}).ok());
}

TEST_F(MemoryApiTest, AJsonPatchGrowsNothingBeyondTheLimits) {
  CreateJob();
  const auto patch = [this](const Json& operations) {
    return api_.Patch(kube::kTrainingJobs, "default", "job", "", PatchType::kJson, operations, {});
  };
  Json add = {{"op", "add"}, {"path", "/spec/config"}, {"value", {{"a", Json::object()}}}};
  Json deeper = Json::array({add}), wider = Json::array({add}), sunk = Json::array({add});
  std::string leaf = "/spec/config/a/a";
  for (int i = 0; i < 14; ++i) {  // each copy into its own leaf is twice as deep
    deeper.push_back({{"op", "copy"}, {"from", "/spec/config"}, {"path", leaf}});
    leaf += leaf.substr(std::string("/spec/config").size());
  }
  EXPECT_EQ(patch(deeper).http, 422);
  for (int i = 0; i < 60; ++i)  // and each beside what is there twice as large
    wider.push_back({{"op", "copy"}, {"from", "/spec/config"}, {"path", "/spec/config/" + std::to_string(i)}});
  EXPECT_EQ(patch(wider).http, 413);
  Json text = {{"op", "add"}, {"path", "/spec/config"}, {"value", {{"s", std::string(1 << 20, 'x')}}}};
  Json much = Json::array({text});
  for (int i = 0; i < 8; ++i)
    much.push_back({{"op", "copy"}, {"from", "/spec/config/s"}, {"path", "/spec/config/" + std::to_string(i)}});
  EXPECT_EQ(patch(much).http, 413);
  // `add` and `move` need no copy for the same.
  std::string path = "/spec/config";
  for (int i = 0; i < 100; ++i) {
    sunk.push_back({{"op", "add"}, {"path", path}, {"value", {{"a", {{"a", Json::object()}}}}}});
    path += "/a/a";
  }
  EXPECT_EQ(patch(sunk).http, 422);
  const Json test = {{"op", "test"}, {"path", "/kind"}, {"value", "TrainingJob"}};
  EXPECT_EQ(patch(Json(10000, test)).http, 200);
  const ApiResult many = patch(Json(10001, test));
  EXPECT_EQ(many.http, 413);
  EXPECT_EQ(many.body["message"], "The allowed maximum operations in a JSON patch is 10000, got 10001");
  EXPECT_EQ(patch(Json::array({{{"op", "add"}, {"path", "/spec/workers/x"}, {"value", 1}}})).http, 422)
      << "a number has no fields";
  EXPECT_EQ(api_.Get(kube::kTrainingJobs, "default", "job").body["spec"]["workers"], 2);
}

TEST_F(MemoryApiTest, AJsonPatchMovesAsRemoveAndAdd) {
  CreateJob();
  const auto patch = [this](const Json& config, const std::string& from, const std::string& path) {
    const Json set = {{"op", "add"}, {"path", "/spec/config"}, {"value", config}};
    const Json move = {{"op", "move"}, {"from", "/spec/config" + from}, {"path", "/spec/config" + path}};
    return api_.Patch(kube::kTrainingJobs, "default", "job", "", PatchType::kJson, Json::array({set, move}), {});
  };
  const struct {
    Json config;
    std::string from, path;
    int http;
    Json then;
  } cases[] = {
      {{{"a", {1}}, {"b", 2}}, "/b", "/a/0", 200, {{"a", {2, 1}}}},
      {{{"a", {1, 2, 3}}}, "/a/0", "/a/2", 200, {{"a", {2, 3, 1}}}},
      {{{"a", {1, 2}}}, "/a/0", "/a/2", 422, {}},  // there is none behind the other any more
      {{{"a", 1}}, "/a", "/a", 200, {{"a", 1}}},
      // What it would go into is where it was: a text, then another object than the one that was looked at.
      {{{"l", {{{"a", 1}}, "s"}}}, "/l/0", "/l/0/b", 422, {}},
      {{{"l", {{{"a", 1}}, {{"c", 1}}}}}, "/l/0", "/l/0/b", 422, {}},
      {{{"a", {{"b", 1}}}}, "/a", "/a/b/c", 422, {}},
      {{{"l", {{{"a", 1}}, "s"}}}, "/l/0/a", "/l/1/b", 422, {}},
      {{{"a", 1}}, "/b", "/c", 422, {}},
  };
  for (const auto& [config, from, path, http, then] : cases) {
    const ApiResult result = patch(config, from, path);
    EXPECT_EQ(result.http, http) << config << " " << from << " " << path << " " << result.body;
    EXPECT_TRUE(http != 200 || result.body["spec"]["config"] == then) << from << " " << path << " " << result.body;
  }
  for (const char* part : {"from", "path"}) {
    Json copy = {{"op", "copy"}, {"from", "/spec/workers"}, {"path", "/spec/config"}};
    copy.erase(part);
    EXPECT_EQ(api_.Patch(kube::kTrainingJobs, "default", "job", "", PatchType::kJson, Json::array({copy}), {}).http,
              422);
  }
}

// Under the lock of all requests.
TEST_F(MemoryApiTest, AJsonPatchDoesNotTakeLong) {
  CreateJob();
  Json operations = Json::array();
  operations.push_back({{"op", "add"}, {"path", "/spec/config"}, {"value", {{"l", Json(3500000, 0)}}}});
  for (int i = 0; i < 9999; ++i) operations.push_back({{"op", "add"}, {"path", "/spec/config/l/0"}, {"value", 0}});
  const std::clock_t start = std::clock();
  EXPECT_EQ(api_.Patch(kube::kTrainingJobs, "default", "job", "", PatchType::kJson, operations, {}).http, 413);
  EXPECT_LT(std::clock() - start, kTimeFactor * 10 * CLOCKS_PER_SEC);
  operations = Json::array({{{"op", "add"}, {"path", "/spec/config"}, {"value", {{"l", Json(1000, 0)}}}}});
  for (int i = 0; i < 2500; ++i) {
    operations.push_back({{"op", "remove"}, {"path", "/spec/config/l/0"}});
    operations.push_back({{"op", "add"}, {"path", "/spec/config/l/-"}, {"value", 0}});
    operations.push_back({{"op", "move"}, {"from", "/spec/config/l/0"}, {"path", "/spec/config/l/999"}});
  }
  EXPECT_EQ(api_.Patch(kube::kTrainingJobs, "default", "job", "", PatchType::kJson, operations, {}).http, 200);
}

// So many bytes, in a part that nobody looks at.
Json Padded(size_t bytes, char with = 'x') {
  return {{"spec", {{"template", {{"metadata", {{"annotations", {{"a", std::string(bytes, with)}}}}}}}}}};
}

TEST_F(MemoryApiTest, AnObjectIsAsLargeAsEtcdTakes) {
  Json job = JobObject("job", 2);
  job.merge_patch(Padded(2 << 20));
  const ApiResult refused = api_.Create(kube::kTrainingJobs, "default", job, {});
  EXPECT_EQ(refused.http, 413);
  EXPECT_EQ(refused.body["reason"], "RequestEntityTooLarge");
  CreateJob();
  EXPECT_EQ(Merge(Padded(1 << 20)).http, 200);
  EXPECT_EQ(Merge(Padded(2 << 20)).http, 413);
  // An earlier version let one in.
  Json dump = api_.Dump();
  dump["collections"]["trainingjobs.trainyard.dev"]["default/job"].merge_patch(Padded(2 << 20));
  ASSERT_TRUE(api_.Load(dump).ok());
  EXPECT_EQ(Merge({{"metadata", {{"labels", {{"a", "b"}}}}}}).http, 413) << "larger than it was";
  EXPECT_EQ(Merge({{"spec", {{"suspend", true}}}}).http, 200);
  EXPECT_EQ(Merge(Padded(100)).http, 200);
}

TEST_F(MemoryApiTest, TheHistoryIsBoundedInBytes) {
  CreateJob();
  uint64_t since = api_.version();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Merge(Padded(1 << 20, i % 2 == 0 ? 'a' : 'b')).ok());
  std::vector<kube::WatchEvent> events;
  EXPECT_FALSE(api_.Next(kube::kTrainingJobs, "", Selector(), since, 0, events)) << "100 MiB";
  since = api_.version() - 50;
  ASSERT_TRUE(api_.Next(kube::kTrainingJobs, "", Selector(), since, 0, events));
  EXPECT_EQ(events.size(), 50u);
}

// One that nests deeper than objects may now.
TEST_F(MemoryApiTest, WhatAnEarlierVersionNestedDeeperCanStillBeWritten) {
  CreateJob();
  Json dump = api_.Dump(), config = Json::object();
  for (int i = 0; i < 93; ++i) config = {{"a", std::move(config)}};
  dump["collections"]["trainingjobs.trainyard.dev"]["default/job"]["spec"]["config"] = config;
  ASSERT_TRUE(api_.Load(dump).ok());
  EXPECT_TRUE(Merge({{"status", {{"attempt", 1}}}}, "status").ok());
  for (int i = 0; i < 5; ++i) config = {{"a", std::move(config)}};
  EXPECT_EQ(Merge({{"spec", {{"config", config}}}}).http, 422);
}

TEST_F(MemoryApiTest, APatchLeavesAnObject) {
  CreateJob();
  EXPECT_EQ(Merge({{"metadata", nullptr}}).http, 400);
  const Json number = Json::array({{{"op", "replace"}, {"path", ""}, {"value", 5}}});
  EXPECT_EQ(api_.Patch(kube::kTrainingJobs, "default", "job", "", PatchType::kJson, number, {}).http, 400);
  EXPECT_EQ(api_.Patch(kube::kTrainingJobs, "default", "other", "", PatchType::kApply, {{"metadata", "x"}}, {}).http,
            400);
}

TEST_F(MemoryApiTest, AnOldVersionConflicts) {
  const std::string old = CreateJob().body["metadata"]["resourceVersion"];
  ASSERT_EQ(Merge({{"metadata", {{"labels", {{"a", "b"}}}}}}).http, 200);
  EXPECT_EQ(Merge({{"metadata", {{"resourceVersion", old}}}, {"status", {{"attempt", 1}}}}, "status").http, 409);
  EXPECT_EQ(Merge({{"status", {{"attempt", 1}}}}, "status").http, 200)
      << "without a version a merge patch never conflicts";
}

TEST_F(MemoryApiTest, AWriteThatChangesNothingMakesNoVersion) {
  CreateJob();
  const uint64_t before = api_.version();
  EXPECT_EQ(Merge({{"spec", {{"workers", 2}}}}).http, 200);
  EXPECT_EQ(api_.version(), before);
}

TEST_F(MemoryApiTest, ValidatesAgainstTheSchemaAndTheRules) {
  Json job = JobObject("job", 0);
  const ApiResult range = api_.Create(kube::kTrainingJobs, "default", job, {});
  EXPECT_EQ(range.http, 422);
  EXPECT_NE(range.body["message"].get<std::string>().find("spec.workers"), std::string::npos) << range.body;
  EXPECT_EQ(
      api_.Create(kube::kTrainingJobs, "default", JobObject("a-name-that-is-longer-than-forty-characters", 1), {}).http,
      422);
  CreateJob();
  ASSERT_EQ(Merge({{"status", {{"phase", "Running"}, {"attempt", 2}}}}, "status").http, 200);
  EXPECT_EQ(Merge({{"spec", {{"workers", 3}}}}).http, 422) << "a running job keeps its size";
  EXPECT_EQ(Merge({{"status", {{"attempt", 1}}}}, "status").http, 422) << "attempts do not go back";
  ASSERT_EQ(Merge({{"spec", {{"suspend", true}}}}).http, 200);
  EXPECT_EQ(Merge({{"spec", {{"workers", 3}, {"suspend", false}}}}).http, 200);
}

TEST_F(MemoryApiTest, APodHasTheShapeOfAPod) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"spec":{"containers":[]}})", "spec.containers"},
      {R"({"spec":{"containers":[7]}})", "spec.containers[0]"},
      {R"({"spec":{"containers":[{"name":7}]}})", "spec.containers[0].name"},
      {R"({"spec":{"containers":[{"name":"c","command":"ls"}]}})", "spec.containers[0].command"},
      {R"({"spec":{"containers":[{"name":"c","env":3}]}})", "spec.containers[0].env"},
      {R"({"spec":{"volumes":3}})", "spec.volumes"}};
  for (const auto& [patch, field] : cases) {
    const ApiResult refused = CreatePod("p", Json::parse(patch));
    // What cannot be read as a pod is no pod; one without containers is a wrong one.
    EXPECT_EQ(refused.http, std::string(patch).find("[]") == std::string::npos ? 400 : 422) << patch;
    EXPECT_NE(refused.body.dump().find(field), std::string::npos) << refused.body;
  }
}

TEST_F(MemoryApiTest, UnknownFieldsAreDroppedOrRefused) {
  Json job = JobObject("job", 1);
  job["spec"]["workerz"] = 3;
  EXPECT_EQ(api_.Create(kube::kTrainingJobs, "default", job, {.strict = true}).http, 400);
  const ApiResult lenient = api_.Create(kube::kTrainingJobs, "default", job, {});
  EXPECT_EQ(lenient.http, 201);
  EXPECT_FALSE(lenient.body["spec"].contains("workerz"));
  EXPECT_EQ(lenient.warnings, std::vector<std::string>{"unknown field \"spec.workerz\""});
}

TEST_F(MemoryApiTest, AWatchSeesEveryChangeInOrder) {
  const uint64_t start = api_.version();
  CreateJob("a");
  CreateJob("b");
  api_.Delete(kube::kTrainingJobs, "default", "a", {});
  EXPECT_EQ(Events(kube::kTrainingJobs, start), (std::vector<std::string>{"ADDED a", "ADDED b", "DELETED a"}));
  EXPECT_TRUE(Events(kube::kPods, start).empty());
}

TEST_F(MemoryApiTest, LabelsThatChangeMoveObjectsInAndOutOfAWatch) {
  const uint64_t start = api_.version();
  CreatePod("p");
  const auto label = [&](const Json& value) {
    api_.Patch(kube::kPods, "default", "p", "", PatchType::kMerge, {{"metadata", {{"labels", {{"x", value}}}}}}, {});
  };
  label("1");
  label("2");
  label(nullptr);
  EXPECT_EQ(Events(kube::kPods, start, "x"), (std::vector<std::string>{"ADDED p", "MODIFIED p", "DELETED p"}));
}

TEST_F(MemoryApiTest, AWatchInWhichNothingComesSaysSoOnce) {
  MemoryClient client(api_);
  const StopFlag stop;
  int silences = 0;
  const auto watch = [&](const std::string& from, const Status& found) {
    const auto silent = [&] {
      ++silences;
      return found;
    };
    return client.Watch(
        kube::kPods, "", {.resource_version = from, .timeout_seconds = 2, .silent = silent, .silent_seconds = 0.5},
        [](const kube::WatchEvent&) { return true; }, stop);
  };
  const std::string before = std::to_string(api_.version());
  EXPECT_TRUE(watch(before, Status::Ok()).ok());
  EXPECT_EQ(silences, 1);
  EXPECT_TRUE(watch(before, Status(Code::kAhead, "found")).Is(Code::kAhead));
  EXPECT_EQ(silences, 2);
  CreatePod("p");
  EXPECT_TRUE(watch(before, Status::Ok()).ok());
  EXPECT_EQ(silences, 2);
}

TEST_F(MemoryApiTest, AnOldWatchIsGone) {
  const uint64_t start = api_.version();
  CreateJob();
  api_.Compact();
  uint64_t since = start;
  std::vector<kube::WatchEvent> events;
  EXPECT_FALSE(api_.Next(kube::kTrainingJobs, "", Selector(), since, 0, events));
}

TEST_F(MemoryApiTest, ABoundPodIsDeletedInTwoSteps) {
  CreatePod("p", {{"spec", {{"terminationGracePeriodSeconds", 40}}}});
  api_.Patch(kube::kPods, "default", "p", "", PatchType::kMerge, {{"spec", {{"nodeName", "n"}}}}, {});
  EXPECT_EQ(api_.Delete(kube::kPods, "default", "p", {.uid = "another"}).http, 409);
  api_.Delete(kube::kPods, "default", "p", {});
  const ApiResult going = api_.Get(kube::kPods, "default", "p");
  ASSERT_EQ(going.http, 200);
  EXPECT_EQ(going.body["metadata"]["deletionGracePeriodSeconds"], 40);
  api_.Delete(kube::kPods, "default", "p", {.grace_seconds = 0});
  EXPECT_EQ(api_.Get(kube::kPods, "default", "p").http, 404);
}

TEST_F(MemoryApiTest, WhatLostItsOwnerGoes) {
  const std::string uid = CreateJob().body["metadata"]["uid"];
  CreatePod("p", {{"metadata",
                   {{"ownerReferences", Json::array({{{"uid", uid},
                                                      {"apiVersion", "trainyard.dev/v1alpha1"},
                                                      {"kind", "TrainingJob"},
                                                      {"name", "job"}}})}}}});
  CreatePod("q");
  EXPECT_EQ(api_.CollectGarbage(), 0);
  api_.Delete(kube::kTrainingJobs, "default", "job", {});
  EXPECT_EQ(api_.CollectGarbage(), 1);
  EXPECT_EQ(api_.Get(kube::kPods, "default", "p").http, 404);
  EXPECT_EQ(api_.Get(kube::kPods, "default", "q").http, 200);
}

TEST_F(MemoryApiTest, ListsInPagesOfOneSnapshot) {
  for (const char* name : {"a", "b", "c", "d", "e"}) CreateJob(name);
  std::vector<std::string> names;
  kube::ListOptions options{.limit = 2};
  do {
    const ApiResult page = api_.List(kube::kTrainingJobs, "default", options);
    ASSERT_EQ(page.http, 200);
    for (const Json& item : page.body["items"]) names.push_back(item["metadata"]["name"]);
    options.continue_token = page.body["metadata"].value("continue", "");
  } while (!options.continue_token.empty());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  options.continue_token = "1:default/a";
  EXPECT_EQ(api_.List(kube::kTrainingJobs, "default", options).body["items"].size(), 0u) << "what there was then";
  api_.Compact();
  EXPECT_EQ(api_.List(kube::kTrainingJobs, "default", options).http, 410);
}

TEST_F(MemoryApiTest, ServerSideApplyOwnsFields) {
  const auto apply = [&](const Json& spec, const std::string& manager, bool force = false) {
    Json config = {{"apiVersion", "trainyard.dev/v1alpha1"},
                   {"kind", "TrainingJob"},
                   {"metadata", {{"name", "job"}}},
                   {"spec", JobObject("job", 2)["spec"]}};
    config["spec"].merge_patch(spec);
    return api_.Patch(kube::kTrainingJobs, "default", "job", "", PatchType::kApply, config,
                      {.manager = manager, .force = force});
  };
  ASSERT_EQ(apply({{"suspend", true}}, "one").http, 201);
  EXPECT_EQ(apply({{"suspend", false}}, "two").http, 409);
  const ApiResult forced = apply({{"suspend", false}}, "two", true);
  ASSERT_EQ(forced.http, 200);
  const Json& managers = forced.body["metadata"]["managedFields"];
  EXPECT_EQ(managers[0]["manager"], "one");
  EXPECT_FALSE(managers[0]["fieldsV1"]["f:spec"].contains("f:suspend")) << "it was taken over";
  EXPECT_TRUE(managers[0]["fieldsV1"]["f:spec"].contains("f:workers")) << "this both want";
  // What a manager no longer sets goes, unless another one also sets it.
  ASSERT_EQ(apply({{"cleanPodPolicy", "All"}}, "three").http, 200);
  const ApiResult dropped = apply(Json::object(), "three");
  EXPECT_EQ(dropped.body["spec"]["cleanPodPolicy"], "Running") << "the default is back";
  EXPECT_TRUE(dropped.body["spec"].contains("suspend"));
}

TEST_F(MemoryApiTest, LivesOnAfterARestart) {
  CreateJob();
  const Json before = api_.Get(kube::kTrainingJobs, "default", "job").body;
  MemoryApi again(clock_, 2);
  ASSERT_TRUE(again.Load(api_.Dump()).ok());
  EXPECT_EQ(again.Get(kube::kTrainingJobs, "default", "job").body, before);
  EXPECT_GT(again.version(), api_.version());
  EXPECT_FALSE(again.Load(Json::array()).ok());
}

TEST(Selector, Requirements) {
  const Json object = {{"metadata", {{"name", "n"}, {"labels", {{"a", "1"}, {"b", "2"}}}}},
                       {"status", {{"phase", "Running"}}}};
  const std::pair<const char*, bool> cases[] = {{"", true},
                                                {"a=1", true},
                                                {"a==1,b=2", true},
                                                {"a=2", false},
                                                {"a!=2", true},
                                                {"c!=2", true},
                                                {"a", true},
                                                {"!a", false},
                                                {"!c", true},
                                                {"c", false},
                                                {"a in (0,1)", true},
                                                {"a in (0, 2)", false},
                                                {"a notin (0,2)", true},
                                                {"c notin (1)", true}};
  for (const auto& [text, matches] : cases) {
    const Result<local::Selector> selector = local::Selector::Parse(kube::kPods, text, "");
    ASSERT_TRUE(selector.ok()) << text;
    EXPECT_EQ(selector->Matches(object), matches) << text;
  }
  EXPECT_TRUE(local::Selector::Parse(kube::kPods, "", "metadata.name=n,status.phase!=Failed")->Matches(object));
  EXPECT_FALSE(local::Selector::Parse(kube::kPods, "", "spec.secret=1").ok());
  EXPECT_FALSE(local::Selector::Parse(kube::kPods, "a ~ (b)", "").ok());
}

// One of a version whose schema had no defaults: a write to it is no change of its spec.
TEST_F(MemoryApiTest, WhatWasStoredBeforeADefaultHasItNow) {
  CreateJob();
  Json dump = api_.Dump();
  for (auto& [name, objects] : dump["collections"].items()) {
    for (auto& [key, object] : objects.items()) {
      if (object.value("kind", "") == "TrainingJob") object["spec"].erase("deadlines");
    }
  }
  ASSERT_TRUE(api_.Load(dump).ok());
  EXPECT_EQ(api_.Get(kube::kTrainingJobs, "default", "job").body["spec"]["deadlines"]["stallSeconds"], 600);
  const ApiResult patched = Merge({{"status", {{"phase", "Running"}, {"attempt", 1}}}}, "status");
  ASSERT_EQ(patched.http, 200);
  EXPECT_EQ(patched.body["metadata"]["generation"], 1);
}

}  // namespace
}  // namespace trainyard::local

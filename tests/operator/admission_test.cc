// What a pod may become once it is there.
#include "operator/local/api/admission.h"

#include <gtest/gtest.h>

#include <ctime>

#include "operator/local/api/memory_api.h"
#include "tests/operator/max_resident.h"

namespace trainyard::local {
namespace {

class PodUpdateTest : public testing::Test {
 protected:
  PodUpdateTest() {
    const Json container = {{"name", "c"}, {"image", "x"}};
    const Json pod = {{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"metadata", {{"name", "p"}}},
                      {"spec", {{"containers", Json::array({container})}, {"activeDeadlineSeconds", 60}}}};
    EXPECT_EQ(api_.Create(kube::kPods, "default", pod, {}).http, 201);
  }
  ApiResult Merge(const std::string& patch, const std::string& subresource = "") {
    return api_.Patch(kube::kPods, "default", "p", subresource, PatchType::kMerge, Json::parse(patch), {});
  }
  Json Pod() const { return api_.Get(kube::kPods, "default", "p").body; }

  SystemClock clock_;
  MemoryApi api_{clock_, 1};
};

TEST_F(PodUpdateTest, ItsSpecStaysAsItIs) {
  const Json before = Pod();
  const std::pair<const char*, const char*> cases[] = {
      {R"({"spec":{"containers":[]}})", "pod updates may not add or remove containers"},
      {R"({"spec":{"containers":[{"name":"c","image":"x"},{"name":"d","image":"x"}]}})", "add or remove containers"},
      {R"({"spec":{"initContainers":[{"name":"i","image":"x"}]}})", "add or remove containers"},
      {R"({"spec":{"containers":[{"name":"d","image":"x"}]}})", "may not change fields other than"},
      {R"({"spec":{"restartPolicy":"Never"}})", "may not change fields other than"},
      {R"({"spec":{"terminationGracePeriodSeconds":1}})", "may not change fields other than"},
      {R"({"spec":{"activeDeadlineSeconds":61}})", "may not change fields other than"},
      {R"({"spec":{"activeDeadlineSeconds":null}})", "may not change fields other than"},
      {R"({"spec":{"hostname":"h"}})", "may not change fields other than"},
      {R"({"spec":null})", "Required value"}};
  for (const auto& [patch, why] : cases) {
    const ApiResult refused = Merge(patch);
    EXPECT_EQ(refused.http, 422) << patch;
    EXPECT_NE(refused.body.dump().find(why), std::string::npos) << patch << ": " << refused.body;
  }
  EXPECT_EQ(Pod(), before);
}

TEST_F(PodUpdateTest, ButForTheFewFieldsThatMayChange) {
  for (const char* patch :
       {R"({"spec":{"containers":[{"name":"c","image":"y"}]}})", R"({"spec":{"nodeName":"n"}})",
        R"({"spec":{"activeDeadlineSeconds":59}})", R"({"spec":{"restartPolicy":null}})",
        R"({"spec":{"tolerations":[{"key":"a","operator":"Exists"}]}})", R"({"metadata":{"labels":{"a":"1"}}})"}) {
    const ApiResult result = Merge(patch);
    EXPECT_EQ(result.http, 200) << patch << ": " << result.body;
  }
  EXPECT_EQ(Merge(R"({"spec":{"nodeName":"m"}})").http, 422) << "it has one";
  EXPECT_EQ(Merge(R"({"spec":{"tolerations":[]}})").http, 422) << "they are only added to";
  EXPECT_EQ(Pod()["spec"]["restartPolicy"], "Always") << "the default, as before";
}

TEST_F(PodUpdateTest, ATolerationKeepsAllButItsTime) {
  const auto set = [this](const std::string& list) { return Merge(R"({"spec":{"tolerations":)" + list + "}}"); };
  ASSERT_EQ(set(R"([{"key":"a","effect":"NoExecute","operator":"Exists","tolerationSeconds":5}])").http, 200);
  EXPECT_EQ(set(R"([{"key":"b"},{"key":"a","effect":"NoExecute","operator":"Exists","tolerationSeconds":9}])").http,
            200);
  EXPECT_EQ(Pod()["spec"]["tolerations"][1]["tolerationSeconds"], 9);
  EXPECT_EQ(set(R"([{"key":"b"},{"key":"a","effect":"NoExecute","operator":"Exists"}])").http, 200);
  const ApiResult refused = set(R"([{"key":"b"},{"key":"a","effect":"NoSchedule","operator":"Exists"}])");
  EXPECT_EQ(refused.http, 422);
  EXPECT_EQ(refused.body["details"]["causes"][0]["field"], "spec.tolerations") << refused.body;
  Json many = Json::array();
  for (int i = 0; i < 20000; ++i) many.push_back({{"key", "k" + std::to_string(i)}});
  many.push_back({{"key", "a"}, {"effect", "NoExecute"}, {"operator", "Exists"}});
  many.push_back({{"key", "b"}});
  const std::clock_t start = std::clock();
  EXPECT_EQ(set(many.dump()).http, 200);
  many.push_back({{"key", "c"}});
  EXPECT_EQ(set(many.dump()).http, 200);
  EXPECT_LT(std::clock() - start, kTimeFactor * 10 * CLOCKS_PER_SEC) << "under the lock of all requests";
}

TEST_F(PodUpdateTest, GatesOnlyGo) {
  api_.Create(
      kube::kPods, "default",
      Json::parse(
          R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"gated"},"spec":{"containers":[{"name":"c","image":"x"}],
                              "schedulingGates":[{"name":"a.b/c"},{"name":"a.b/d"}]}})"),
      {});
  const auto set = [this](const char* list) {
    return api_.Patch(kube::kPods, "default", "gated", "", PatchType::kMerge,
                      {{"spec", {{"schedulingGates", Json::parse(list)}}}}, {});
  };
  const ApiResult refused = set(R"([{"name":"a.b/c"},{"name":"a.b/e"}])");
  EXPECT_EQ(refused.http, 422);
  EXPECT_EQ(refused.body["details"]["causes"][0]["field"], "spec.schedulingGates[1].name") << refused.body;
  EXPECT_EQ(set(R"([{"name":"a.b/d"}])").http, 200);
  EXPECT_EQ(set(R"([{"name":"a.b/c"}])").http, 422) << "it is gone";
  EXPECT_EQ(set("null").http, 200);
  EXPECT_EQ(set(R"([{"name":"a.b/d"}])").http, 422);
}

TEST_F(PodUpdateTest, AStrategicPatchDoesNotTakeLong) {
  const auto patch = [this](const Json& body) {
    return api_.Patch(kube::kPods, "default", "p", "", PatchType::kStrategic, body, {});
  };
  Json many = Json::array();
  for (int i = 0; i < 80000; ++i) many.push_back({{"name", "v" + std::to_string(i)}});
  const std::clock_t start = std::clock();
  EXPECT_EQ(patch({{"spec", {{"volumes", many}}}}).http, 413);
  EXPECT_EQ(patch({{"metadata", {{"finalizers", many}}}}).http, 413);
  EXPECT_LT(std::clock() - start, kTimeFactor * 10 * CLOCKS_PER_SEC) << "under the lock of all requests";
}

TEST_F(PodUpdateTest, ItsStatusHasTypes) {
  for (const char* status :
       {R"(5)", R"({"conditions":[5]})", R"({"conditions":{}})", R"({"conditions":[{"type":5,"status":"True"}]})",
        R"({"conditions":[{"type":"Ready","status":true}]})", R"({"containerStatuses":[5]})",
        R"({"containerStatuses":[{"state":5}]})",
        R"({"containerStatuses":[{"state":{"terminated":{"exitCode":"1"}}}]})", R"({"podIP":5})", R"({"phase":{}})",
        R"({"reason":1})", R"({"message":[]})"}) {
    EXPECT_EQ(Merge(std::string(R"({"status":)") + status + "}", "status").http, 400) << status;
  }
  EXPECT_EQ(Merge(R"({"status":{"podIP":"127.0.0.2","resize":"Deferred","conditions":[{"type":"Ready","status":"True",
                      "lastProbeTime":null,"observedGeneration":1}]}})",
                  "status")
                .http,
            200);
  EXPECT_EQ(Pod()["status"]["resize"], "Deferred") << "a server knows more than is looked at here";
}

}  // namespace
}  // namespace trainyard::local

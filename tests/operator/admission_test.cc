// What a pod may become once it is there.
#include "operator/local/api/admission.h"

#include <gtest/gtest.h>

#include "operator/local/api/memory_api.h"

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

#include "operator/local/node/limits.h"

#include <gtest/gtest.h>

#include "tests/operator/builders.h"

namespace trainyard::local {
namespace {

using reconcile::JobObject;

// A good job with `patch` on its pod's spec.
nlohmann::json JobWith(const char* patch) {
  nlohmann::json job = JobObject("job", 2);
  job["spec"]["template"]["spec"].merge_patch(nlohmann::json::parse(patch));
  return job;
}

TEST(Obstacles, AreNamedBeforeAnythingRuns) {
  const struct {
    const char *patch, *says;
  } cases[] = {
      {R"({"initContainers":[{"name":"side","command":["x"],"restartPolicy":"Always"}]})",
       "container side: restartPolicy"},
      {R"({"containers":[{"name":"a"}]})", "container a: has no command"},
      {R"({"containers":[{"name":"a","args":["x"]}]})", "container a: has no command"},
      {R"({"containers":[{"name":"a","command":["x"],"envFrom":[{"secretRef":{"name":"s"}}]}]})",
       "envFrom: secretRef s"},
      {R"({"containers":[{"name":"a","command":["x"],"env":[{"name":"V","valueFrom":{"configMapKeyRef":{"name":"c","key":"k"}}}]}]})",
       "env V: configMapKeyRef"},
      {R"({"containers":[{"name":"a","command":["x"],"env":[{"name":"V","valueFrom":{"fieldRef":{"fieldPath":"metadata.bogus"}}}]}]})",
       "env V: fieldRef metadata.bogus"},
      {R"({"containers":[{"name":"a","command":["x"],"volumeMounts":[{"name":"v","mountPath":"/v"}]}]})",
       "container a: volumeMounts: the pod has no volume v"},
      {R"({"volumes":[{"name":"v"}],"containers":[{"name":"a","command":["x"],"volumeMounts":[{"name":"v","mountPath":"/v","subPath":"../x"}]}]})",
       "subPath ../x leaves the volume"},
      {R"({"volumes":[{"name":"v"}],"containers":[{"name":"a","command":["x"],"volumeMounts":[{"name":"v","mountPath":"/v","subPathExpr":"x"}]}]})",
       "subPathExpr is not supported"},
      {R"({"volumes":[{"name":"v","configMap":{"name":"c"}}]})", "volume v: configMap does not exist"},
      {R"({"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"../../x"}}]})",
       "claimName ../../x is no DNS name"},
      {R"({"volumes":[{"name":"../v","emptyDir":{}}]})", "volume ../v: the name is no DNS label"},
      {R"({"volumes":[{"name":"v","downwardAPI":{"items":[{"path":"cpu","resourceFieldRef":{"resource":"limits.cpu"}}]}}]})",
       "volume v: cpu: resourceFieldRef"},
  };
  for (const auto& c : cases) {
    const std::vector<std::string> found = JobObstacles(JobWith(c.patch));
    ASSERT_EQ(found.size(), 1u) << c.patch;
    EXPECT_NE(found[0].find(c.says), std::string::npos) << found[0];
  }
  EXPECT_TRUE(JobObstacles(JobObject("job", 2)).empty());
}

TEST(Obstacles, WhatNeedNotExistIsNone) {
  const char* patches[] = {
      R"({"containers":[{"name":"a","command":["x"],"envFrom":[{"secretRef":{"name":"s","optional":true}}]}]})",
      R"({"containers":[{"name":"a","command":["x"],"env":[{"name":"V","valueFrom":{"secretKeyRef":{"name":"c","key":"k","optional":true}}}]}]})",
      R"({"volumes":[{"name":"v","downwardAPI":{"items":[{"path":"d/labels","fieldRef":{"fieldPath":"metadata.labels"}}]}}]})",
      // What is null is not there, and a volume without a source is an emptyDir.
      R"({"volumes":[{"name":"v"}]})",
      R"({"serviceAccountName":null,"containers":[{"name":"a","command":["x"],"env":[{"name":"V","valueFrom":{"configMapKeyRef":null,"fieldRef":{"fieldPath":"spec.serviceAccountName"}}}]}]})"};
  for (const char* patch : patches) EXPECT_TRUE(JobObstacles(JobWith(patch)).empty()) << patch;
}

TEST(IgnoredFields, AreAllThatIsNotFollowed) {
  const std::vector<std::string> lines = IgnoredFields(JobWith(
      R"({"nodeSelector":{"a":"b"},"hostNetwork":true,"setHostnameAsFQDN":true,
          "containers":[{"name":"a","image":"i","command":["x"],"ports":[],"lifecycle":{},"securityContext":{}}]})"));
  EXPECT_EQ(lines, (std::vector<std::string>{"spec.template.spec.containers[0].lifecycle: hooks are not run",
                                             "spec.template.spec.containers[0].securityContext: processes run as you",
                                             "spec.template.spec.hostNetwork: processes share this machine's",
                                             "spec.template.spec.nodeSelector: there is one node, this machine",
                                             "spec.template.spec.setHostnameAsFQDN: it has no meaning for processes",
                                             "image \"i\": commands come from PATH"}));
}

TEST(IgnoredFields, WhoPlacesWorkersTogether) {
  nlohmann::json job = JobWith("{}");
  const std::vector<std::string> plain = IgnoredFields(job);
  job["spec"]["scheduling"] = {{"gang", "none"}, {"queue", ""}};
  EXPECT_EQ(IgnoredFields(job), plain);
  job["spec"]["scheduling"] = {{"gang", "volcano"}, {"queue", "research"}, {"priorityClassName", "high"}};
  job["metadata"]["labels"] = {{"kueue.x-k8s.io/queue-name", "team"}};
  std::vector<std::string> lines = IgnoredFields(job);
  ASSERT_EQ(lines.size(), plain.size() + 4);
  lines.resize(4);
  EXPECT_EQ(lines, (std::vector<std::string>{"spec.scheduling.gang: there is one node, this machine",
                                             "spec.scheduling.queue: there is one node, this machine",
                                             "spec.scheduling.priorityClassName: there is one node, this machine",
                                             "metadata.labels.kueue.x-k8s.io/queue-name: there is no Kueue here"}));
}

}  // namespace
}  // namespace trainyard::local

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "operator/base/json_access.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

// Whatever a person writes into the opaque template: the pod is made, and the server refuses it.
TEST(WorkerPod, AnyTemplateMakesAPod) {
  const char* patches[] = {R"({"metadata":3})",
                           R"({"metadata":{"labels":[1],"annotations":"x"}})",
                           R"({"spec":{"volumes":3}})",
                           R"({"spec":{"containers":[{"name":"c","env":{},"volumeMounts":7}]}})",
                           R"({"spec":{"terminationGracePeriodSeconds":"long"}})",
                           R"({"spec":{"containers":[{"name":"c","terminationMessagePath":5,"resources":[]}]}})"};
  for (const char* patch : patches) {
    Json object = JobObject("job", 2);
    object["spec"]["template"].merge_patch(Json::parse(patch));
    const Json pod = WorkerPod(WholeJob(object), 1, 1, "10.0.0.1");
    EXPECT_EQ(pod["metadata"]["name"], "job-1-1") << patch;
    EXPECT_EQ(pod["metadata"]["labels"]["trainyard.dev/rank"], "1") << patch;
  }
}

std::map<std::string, std::string> Environment(const Json& pod) {
  std::map<std::string, std::string> variables;
  for (const Json& variable : pod["spec"]["containers"][0]["env"])
    variables[variable["name"]] = variable.value("value", "");
  return variables;
}

// torchrun's own names would mislead it where it starts several processes.
TEST(WorkerPod, SeveralProcessesGetTorchrunsFlagsAlone) {
  Scene scene(2);
  scene.job().uid = "u";
  const auto one = Environment(WorkerPod(scene.job(), 3, 1, ""));
  EXPECT_EQ(one.at("RANK"), "1");
  EXPECT_EQ(one.at("WORLD_SIZE"), "2");
  EXPECT_EQ(one.at("PET_NPROC_PER_NODE"), "1");
  scene.spec().procs_per_worker = 4;
  const auto four = Environment(WorkerPod(scene.job(), 3, 1, "10.96.0.7"));
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"})
    EXPECT_FALSE(four.contains(name)) << name;
  EXPECT_EQ(four.at("PET_NPROC_PER_NODE"), "4");
  EXPECT_EQ(four.at("PET_NODE_RANK"), "1");
  EXPECT_EQ(four.at("MASTER_ADDR"), "10.96.0.7");
  EXPECT_EQ(four.at("PET_MASTER_PORT"), std::to_string(MasterPort("u", 3)));
  EXPECT_NE(MasterPort("u", 3), MasterPort("u", 4));
}

// A user counts the variables of the file.
TEST(WorkerPod, ARefusalCountsTheTemplatesOwnVariables) {
  Json object = JobObject("job", 2);
  Json& containers = object["spec"]["template"]["spec"]["containers"];
  containers[0]["env"] = Json::parse(R"([{"name":"A","value":"1"},{"name":"B","value":"2"}])");
  containers.push_back({{"name", "other"}, {"env", containers[0]["env"]}});
  const TrainingJob job = WholeJob(object);
  const Json pod = WorkerPod(job, 1, 0, "");
  const size_t added = pod["spec"]["containers"][0]["env"].size() - 2;
  ASSERT_GT(added, 9u) << "of two digits, and so are those below";
  const auto said = [&](const std::string& message) { return OfTemplate(job, pod, message); };
  const std::string first = "spec.containers[0].env[", second = "spec.containers[1].env[";
  EXPECT_EQ(said(first + std::to_string(added) + "].name: bad, " + first + std::to_string(added + 1) + "].name: bad"),
            first + "0].name: bad, " + first + "1].name: bad");
  EXPECT_EQ(said(second + "1].name: bad"), second + "1].name: bad") << "the operator adds none there";
  EXPECT_EQ(said(first + "3].name: bad"), first + "3].name: bad") << "one of the operator's";
  EXPECT_EQ(said(first + "].name"), first + "].name");
  EXPECT_EQ(said(first), first);
  EXPECT_EQ(said(first + std::string(30, '9')), first + std::string(30, '9'));
}

TEST(WorkerPod, HasNoVariablesOfServicesUnlessTheTemplateAsks) {
  Scene scene(1);
  const auto links = [&] { return WorkerPod(scene.job(), 1, 0, "")["spec"].value("enableServiceLinks", Json()); };
  EXPECT_EQ(links(), false);
  scene.spec().pod_template["spec"]["enableServiceLinks"] = nullptr;
  EXPECT_EQ(links(), false);
  scene.spec().pod_template["spec"]["enableServiceLinks"] = true;
  EXPECT_EQ(links(), true);
}

TEST(WorkerPod, IsNotSpreadWithWhatItsServiceSelectsUnlessTheTemplateAsks) {
  Scene scene(1);
  const auto constraints = [&] {
    return WorkerPod(scene.job(), 1, 0, "")["spec"].value("topologySpreadConstraints", Json());
  };
  const Json nothing = constraints();
  ASSERT_EQ(nothing.size(), 1u);
  EXPECT_EQ(nothing[0]["whenUnsatisfiable"], "ScheduleAnyway");
  EXPECT_FALSE(nothing[0].contains("labelSelector")) << "none selects nothing, an empty one everything";
  Json& template_spec = scene.spec().pod_template["spec"];
  template_spec["topologySpreadConstraints"] = nullptr;
  EXPECT_EQ(constraints(), nothing);
  for (const Json& own : {Json::array(), Json::array({{{"maxSkew", 2}, {"topologyKey", "zone"}}})}) {
    template_spec["topologySpreadConstraints"] = own;
    EXPECT_EQ(constraints(), own) << own;
  }
}

TEST(WorkerPod, GetsSharedMemoryUnlessTheTemplateHasIt) {
  Scene scene(1);
  const auto mounts = [&] {
    std::set<std::string> paths;
    const Json pod = WorkerPod(scene.job(), 1, 0, "");
    for (const Json& mount : pod["spec"]["containers"][0]["volumeMounts"]) paths.insert(mount["mountPath"]);
    return std::pair(paths, json::List(pod["spec"], "volumes").size());
  };
  EXPECT_EQ(mounts(), std::pair(std::set<std::string>({"/dev/shm"}), size_t{1}));
  scene.spec().pod_template["spec"]["containers"][0]["volumeMounts"] =
      Json::array({{{"name", "mine"}, {"mountPath", "/dev/shm"}}});
  EXPECT_EQ(mounts(), std::pair(std::set<std::string>({"/dev/shm"}), size_t{0}));
}

TEST(WorkerPod, SharedMemoryHasTheSizeThatIsAsked) {
  Scene scene(1);
  const auto source = [&] { return WorkerPod(scene.job(), 1, 0, "")["spec"]["volumes"].back()["emptyDir"]; };
  const std::string before = SpecHash(scene.job());
  EXPECT_EQ(source(), Json({{"medium", "Memory"}}));
  scene.spec().shared_memory.size_limit = "8Gi";
  EXPECT_EQ(source(), Json({{"medium", "Memory"}, {"sizeLimit", "8Gi"}}));
  EXPECT_NE(SpecHash(scene.job()), before) << "an attempt never mixes two";
}

TEST(WorkerPod, TheGraceCoversTheCheckpoint) {
  const std::pair<int64_t, int64_t> cases[] = {{0, 70}, {30, 70}, {600, 600}};  // template's, pod's
  for (const auto& [own, grace] : cases) {
    Scene scene(1);
    if (own > 0) scene.spec().pod_template["spec"]["terminationGracePeriodSeconds"] = own;
    EXPECT_EQ(WorkerPod(scene.job(), 1, 0, "")["spec"]["terminationGracePeriodSeconds"], grace) << own;
  }
}

// On the node's network two workers, or two jobs, share one address.
TEST(WorkerPod, OnTheNodesNetworkEachWorkerHasAPortOfItsOwn) {
  Scene scene(2);
  EXPECT_EQ(PodFromJson(WorkerPod(scene.job(), 1, 1, "")).status_port, 9460);
  scene.spec().pod_template["spec"]["hostNetwork"] = true;
  const int first = PodFromJson(WorkerPod(scene.job(), 1, 0, "")).status_port;
  const int second = PodFromJson(WorkerPod(scene.job(), 1, 1, "")).status_port;
  EXPECT_NE(first, second);
  for (const int port : {first, second}) EXPECT_TRUE(port >= 10260 && port < 20000) << port;
  EXPECT_NE(PodFromJson(WorkerPod(scene.job(), 2, 0, "")).status_port, first) << "one that is taken is not tried again";
}

// The scheduler places no two pods of one port on a node.
TEST(WorkerPod, NoTwoWorkersOfAJobShareAStatusPortOnTheNodesNetwork) {
  Scene scene(1000);
  scene.spec().pod_template["spec"]["hostNetwork"] = true;
  std::set<int64_t> ports;
  for (int64_t worker = 0; worker < 1000; ++worker) {
    const int64_t port = PodFromJson(WorkerPod(scene.job(), 1, worker, "")).status_port;
    EXPECT_TRUE(port >= 10260 && port < 20000) << port;
    EXPECT_TRUE(ports.insert(port).second) << port;
  }
}

TEST(WorkerPod, TheStatusPortHasANameUnlessTheTemplateGivesItOne) {
  Scene scene(1);
  const auto ports = [&] { return WorkerPod(scene.job(), 1, 0, "")["spec"]["containers"][0]["ports"]; };
  const Json ours = {{"name", "trainyard"}, {"containerPort", 9460}};
  EXPECT_EQ(ports(), Json::array({ours}));
  Json& own = scene.spec().pod_template["spec"]["containers"][0]["ports"];
  own = Json::array({{{"name", "web"}, {"containerPort", 80}}});
  EXPECT_EQ(ports(), Json::array({own[0], ours}));
  own[0]["name"] = "trainyard";
  EXPECT_EQ(ports(), own);
  scene.spec().pod_template["spec"]["containers"][0].erase("ports");
  scene.spec().pod_template["spec"]["hostNetwork"] = true;
  const Json pod = WorkerPod(scene.job(), 1, 0, "");
  EXPECT_EQ(pod["spec"]["containers"][0]["ports"][0]["containerPort"], PodFromJson(pod).status_port);
  scene.spec().pod_template["metadata"]["labels"] = {{"kueue.x-k8s.io/queue-name", "team"}};
  EXPECT_TRUE(ports().is_null()) << "each worker would be a role of its own to Kueue";
}

}  // namespace
}  // namespace trainyard::reconcile

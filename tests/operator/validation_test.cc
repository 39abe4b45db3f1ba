// Ways to be wrong: each names the field, the value and what is allowed.
#include "operator/api/validation.h"

#include <gtest/gtest.h>

#include "operator/api/crd.h"
#include "operator/api/job_file.h"
#include "operator/api/json.h"
#include "operator/api/quantity.h"
#include "operator/api/rules.h"
#include "operator/base/json_access.h"
#include "tests/operator/builders.h"
#include "tests/operator/invalid_specs.h"

namespace trainyard::api {
namespace {

TEST(Validation, NamesFieldValueAndWhatIsAllowed) {
  for (const InvalidSpec& c : InvalidSpecs()) {
    Json job = reconcile::JobObject("job", 2);
    job.merge_patch(Json::parse(c.patch));
    const std::vector<std::string> problems = CheckJob(job);
    ASSERT_EQ(problems.size(), 1u) << c.patch << ": "
                                   << (problems.empty() ? "nothing was found" : problems[0] + " | " + problems.back());
    for (const char* word : c.words)
      EXPECT_NE(problems[0].find(word), std::string::npos) << c.patch << ": " << problems[0];
  }
}

// What kube-apiserver refuses in a pod, and `validate` before it.
TEST(Validation, PodsThatAClusterWouldRefuse) {
  const struct {
    const char *pod, *says;
  } cases[] = {
      {R"({"containers":[{"name":"a"},{"name":"a"}]})", R"(containers[1].name: "a")"},
      {R"({"containers":[{"name":"a"}],"initContainers":[{"name":"a"}]})", R"(initContainers[0].name: "a")"},
      {R"({"containers":[{"name":"A b"}]})", "containers[0].name"},
      {R"({"containers":[{"name":"a"}],"volumes":[{"name":"v"},{"name":"v"}]})", R"(volumes[1].name: "v")"},
      {R"({"containers":[{"name":"a","env":[{"name":"A=B"}]}]})", R"(env[0].name: "A=B")"},
      {R"({"containers":[{"name":"a","resources":{"limits":{"cpu":"lots"}}}]})", R"(limits[cpu]: "lots")"},
      {R"({"containers":[{"name":"a","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1500m"}}}]})",
       "less than or equal to cpu limit of 1500m"},
      {R"({"containers":[{"name":"a","volumeMounts":[{"name":"v","mountPath":"data"}]}],"volumes":[{"name":"v"}]})",
       R"(volumeMounts[0].mountPath: "data")"},
      {R"({"containers":[{"name":"a","volumeMounts":[{"name":"v","mountPath":"/d"},{"name":"v","mountPath":"/d"}]}],"volumes":[{"name":"v"}]})",
       "volumeMounts[1].mountPath"},
      {R"({"containers":[{"name":"a","image":""}]})", "containers[0].image: missing"},
      {R"({"containers":[{"name":"a"}],"volumes":[{"name":"v","emptyDir":{},"hostPath":{"path":"/a"}}]})",
       "volumes[0].hostPath: a second kind of volume"},
      {R"({"containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":1.5}}}]})",
       "limits[nvidia.com/gpu]: 1.5 is not allowed; allowed: an integer"},
      {R"({"containers":[{"name":"a","resources":{"requests":{"nvidia.com/gpu":1}}}]})",
       "resources.limits: missing; allowed: a limit of nvidia.com/gpu"},
  };
  for (const auto& c : cases) {
    Json job = reconcile::JobObject("job", 2);
    Json& pod = job["spec"]["template"]["spec"] = Json::parse(c.pod);
    for (const char* list : {"containers", "initContainers"}) {
      for (size_t i = 0; pod.contains(list) && i < pod[list].size(); ++i) pod[list][i].emplace("image", "x");
    }
    const std::vector<std::string> problems = CheckJob(job);
    ASSERT_EQ(problems.size(), 1u) << c.pod;
    EXPECT_NE(problems[0].find(c.says), std::string::npos) << problems[0];
  }
}

TEST(Validation, OnePlaceTakesOneVolume) {
  Json job = reconcile::JobObject("job", 2);
  Json& pod = job["spec"]["template"]["spec"];
  pod["volumes"] = Json::array({{{"name", "v"}, {"emptyDir", Json::object()}}});
  pod["containers"][0]["volumeMounts"] = Json::array({{{"name", "v"}, {"mountPath", "/trainyard/checkpoints"}}});
  EXPECT_TRUE(CheckJob(job).empty()) << "the template's own, where the job has none";
  job["spec"]["checkpoint"] = {{"path", "/trainyard/checkpoints"}, {"volume", {{"emptyDir", Json::object()}}}};
  const std::vector<std::string> problems = CheckJob(job);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(
      problems[0],
      "spec.checkpoint.path: \"/trainyard/checkpoints\" is not allowed; allowed: a place where the template mounts "
      "nothing; volume v is there");
}

// The API's parser refuses it; whoever builds an object otherwise gets an error, not an exception.
TEST(Validation, TextThatIsNoUtf8IsShownAndNeverThrown) {
  for (const char* field : {"/metadata/name", "/metadata/namespace", "/spec/workers", "/spec/checkpoint/path",
                            "/spec/sharedMemory/sizeLimit", "/spec/cleanPodPolicy", "/spec/template/spec/hostname"}) {
    Json job = reconcile::JobObject("job", 2);
    job[Json::json_pointer(field)] = "\xff\xc3";
    EXPECT_NO_THROW({
      const reconcile::JobRecord record = reconcile::JobFromApi(job);
      const std::vector<std::string> problems = CheckJob(job);
      EXPECT_EQ(problems.size(), 1u) << field;
      EXPECT_NO_THROW((void)Json(problems).dump()) << field;
    }) << field;
  }
}

TEST(ProcsPerWorker, CountsNoMoreThanThereMayBe) {
  JobSpec spec;
  spec.pod_template = Json::parse(
      R"({"spec":{"containers":[{"name":"trainer","resources":{"limits":{
           "nvidia.com/gpu":9223372036854775807,"amd.com/gpu":"9223372036854775807","nvidia.com/mig-1g":-7}}}]}})");
  EXPECT_EQ(ProcsPerWorker(spec), 1024);
}

TEST(Validation, ASpecOfAnotherTypeIsNotMissing) {
  std::vector<FieldError> errors;
  JobFromJson({{"spec", "x"}}, errors);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].value, "\"x\"");
}

TEST(Quantity, IsWhatKubernetesCounts) {
  for (const auto& [a, b] : {std::pair{"1", "1000m"}, {"1.5Gi", "1536Mi"}, {"1e3", "1k"}, {"0.1", "100m"}, {"+2", "2"}})
    EXPECT_EQ(Quantity(a), Quantity(b)) << a;
  EXPECT_EQ(Quantity(2), Quantity("2"));
  for (const char* bad : {"", "lots", "1 Gi", "Gi", "1.2.3", "--1", "1ee3", "1x"}) EXPECT_FALSE(Quantity(bad)) << bad;
}

TEST(Validation, AValueIsCutBetweenCharacters) {
  for (size_t ascii = 0; ascii < 4; ++ascii) {
    Json job = reconcile::JobObject("job", 2);
    std::string text(ascii, 'a');
    for (int i = 0; i < 100; ++i) text += "\xf0\x9f\x9a\x82";  // four bytes each
    job["spec"]["workers"] = text;
    const std::vector<std::string> problems = CheckJob(job);
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_NO_THROW(static_cast<void>(Json(problems[0]).dump())) << "half a character";
    EXPECT_NE(problems[0].find("..."), std::string::npos);
  }
}

TEST(Validation, AGoodJobIsGood) {
  Json job = reconcile::JobObject("job", 2);
  EXPECT_TRUE(CheckJob(job).empty());
  job["metadata"]["annotations"] = {{"Example.com/Owner", "any text, in any alphabet"}};
  EXPECT_TRUE(CheckJob(job).empty());
  job["spec"]["template"]["spec"]["initContainers"] =
      Json::array({{{"name", "log-shipper"}, {"image", "x"}, {"restartPolicy", "Always"}}});
  EXPECT_TRUE(CheckJob(job).empty()) << "a sidecar";
}

// What could not be read is no less wrong than what could.
TEST(Validation, AJobThatWasCutIsInvalid) {
  Json job = reconcile::JobObject("job", 2);
  std::vector<FieldError> errors;
  (void)JobFromJson(job, errors);
  ASSERT_TRUE(errors.empty());
  job[json::kCut] = true;
  EXPECT_EQ(JobFromJson(job, errors).name, "job");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].ToString(),
            "spec: (too deep) is not allowed; allowed: less than 100 lists and objects in each other");
}

TEST(Validation, OtherContainersMayMountTheOperatorsVolumes) {
  Json job = reconcile::JobObject("job", 2);
  job["spec"]["config"] = {{"a", 1}};
  job["spec"]["checkpoint"]["volume"] = {{"emptyDir", Json::object()}};
  Json mounts = Json::array();
  for (const char* name : {"trainyard-info", "trainyard-checkpoints", "trainyard-shm"})
    mounts.push_back({{"name", name}, {"mountPath", std::string("/") + name}});
  job["spec"]["template"]["spec"]["containers"].push_back(
      {{"name", "uploader"}, {"image", "x"}, {"volumeMounts", mounts}});
  EXPECT_TRUE(CheckJob(job).empty()) << CheckJob(job)[0];
  job["spec"].erase("config");
  EXPECT_EQ(CheckJob(job).size(), 1u);
}

TEST(Validation, AConfigHas64KiB) {
  Json job = reconcile::JobObject("job", 1);
  job["spec"]["config"] = {{"x", std::string((64 << 10) - 8, 'a')}};
  EXPECT_TRUE(CheckJob(job).empty());
  job["spec"]["config"]["x"] = std::string((64 << 10) - 7, 'a');
  ASSERT_EQ(CheckJob(job).size(), 1u);
  EXPECT_EQ(
      CheckJob(job)[0],
      "spec.config: 65537 bytes as JSON is not allowed; allowed: at most 65536 bytes; mount a larger one as a file "
      "and name it in the template's command");
}

TEST(Validation, ATemplateHas256KiB) {
  Json job = reconcile::JobObject("job", 1);
  Json& text = job["spec"]["template"]["metadata"]["annotations"]["a"] = "";
  const size_t rest = job["spec"]["template"].dump().size();
  text = std::string((256 << 10) - rest, 'a');
  EXPECT_TRUE(CheckJob(job).empty());
  text = std::string((256 << 10) - rest + 1, 'a');
  ASSERT_EQ(CheckJob(job).size(), 1u);
  EXPECT_EQ(CheckJob(job)[0], "spec.template: 262145 bytes as JSON is not allowed; allowed: at most 262144 bytes");
}

// As trees they are twenty times their text, and there is one for each pod that is made.
TEST(Validation, ATemplateHasTenThousandValues) {
  Json job = reconcile::JobObject("job", 1);
  Json& secrets = job["spec"]["template"]["spec"]["imagePullSecrets"] = Json::array();
  for (int i = 0; i < 9000; ++i) secrets.push_back(Json::object());
  EXPECT_TRUE(CheckJob(job).empty());
  for (int i = 0; i < 1000; ++i) secrets.push_back(Json::object());
  ASSERT_EQ(CheckJob(job).size(), 1u);
  EXPECT_NE(CheckJob(job)[0].find("values (texts, numbers, lists, objects) is not allowed; allowed: at most 10000"),
            std::string::npos)
      << CheckJob(job)[0];
}

TEST(ProcsPerWorker, AutoIsTheSumOfDevices) {
  const std::pair<const char*, int64_t> cases[] = {{R"({})", 1},
                                                   {R"({"nvidia.com/gpu":4})", 4},
                                                   {R"({"amd.com/gpu":"2"})", 2},
                                                   {R"({"nvidia.com/mig-1g.5gb":3,"nvidia.com/gpu":1})", 4},
                                                   {R"({"cpu":8})", 1}};
  for (const auto& [limits, procs] : cases) {
    JobSpec spec;
    spec.pod_template = {
        {"spec",
         {{"containers", Json::array({{{"name", "side"}},
                                      {{"name", "trainer"}, {"resources", {{"limits", Json::parse(limits)}}}}})}}}};
    EXPECT_EQ(ProcsPerWorker(spec), procs) << limits;
  }
}

TEST(Crd, IsSmallAndEveryFieldIsDescribed) {
  EXPECT_LT(CrdYaml().size(), 100u << 10);
  const std::function<void(const Json&, const std::string&)> visit = [&](const Json& schema, const std::string& path) {
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, field] : properties.items()) {
      const bool described = field.contains("description") && !field["description"].get<std::string>().empty();
      EXPECT_TRUE(described || path.empty()) << path + "." + name;
      visit(field, path + "." + name);
      if (field.contains("items")) visit(field["items"], path + "." + name + "[]");
    }
  };
  visit(JobSchema(), "");
}

// What `kubectl explain` shows of a field of the spec has to be enough to set it.
TEST(Crd, EveryFieldSaysItsDefaultItsUnitAndWhenItMayChange) {
  int fields = 0;
  const std::function<void(const Json&, const std::string&)> visit = [&](const Json& schema, const std::string& path) {
    const Json required = schema.value("required", Json::array()),
               properties = schema.value("properties", Json::object());
    for (const auto& [name, field] : properties.items()) {
      const std::string at = path + "." + name, text = field["description"];
      const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
      const bool whole = field.contains("properties");
      const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
      EXPECT_TRUE(needed || says("Default ") || says("Absent") || says("Exactly one of")) << at << ": " << text;
      EXPECT_TRUE(whole || says("May change") || says("never changes")) << at << ": " << text;
      if (name.find("Seconds") != std::string::npos) {
        EXPECT_TRUE(says("econds")) << at << ": " << text;
      }
      if (field.contains("default") && !whole) {
        const Json& standard = field["default"];
        const std::string value = standard.is_string() ? standard.get<std::string>() : standard.dump();
        EXPECT_TRUE(says(("Default " + value + ".").c_str())) << at << ": " << value << ": " << text;
      }
      ++fields;
      visit(field.contains("items") ? field["items"] : field, at);
    }
  };
  visit(JobSchema()["properties"]["spec"], "spec");
  EXPECT_GT(fields, 35);
}

TEST(Crd, TheYamlIsTheObject) {
  const Result<Json> read = YamlToJson(CrdYaml(), "crd");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(Json::diff(*read, CustomResourceDefinition()).dump(), "[]");
}

TEST(JobFile, SaysWhereTheYamlIsWrong) {
  EXPECT_NE(YamlToJson("a: [1", "f").status().message().find("f:"), std::string::npos);
  EXPECT_NE(YamlToJson("a: 1\na: 2\n", "f").status().message().find("f:2:1: key a appears twice"), std::string::npos);
  EXPECT_NE(YamlToJson("a: 1\n---\nb: 2\n", "f").status().message().find("2 documents"), std::string::npos);
  EXPECT_NE(YamlToJson("a: &a {b: *a}", "f").status().message().find("f:1:11: "), std::string::npos);
  const Result<Json> scalars =
      YamlToJson(R"({a: 1, b: 1.5e-3, c: "1", d: true, e: yes, f: null, g: 0x10, h: -3})", "f");
  ASSERT_TRUE(scalars.ok());
  EXPECT_EQ(*scalars, Json::parse(R"({"a":1,"b":0.0015,"c":"1","d":true,"e":true,"f":null,"g":16,"h":-3})"));
}

// What the in-memory API says of a change, as the server does by the same rules.
TEST(Rules, WhatARunningJobKeeps) {
  struct Case {
    const char *old_status, *old_spec, *change, *field;  // field: that is refused; empty: none
  };
  const Case cases[] = {
      {"null", "{}", R"({"workers":3})", ""},
      {R"({"phase":"Invalid"})", "{}", R"({"workers":3})", ""},
      {R"({"attempt":1})", "{}", R"({"workers":3})", "spec.workers"},
      {R"({"attempt":1,"phase":"Suspended"})", "{}", R"({"workers":3})", "spec.workers"},
      {R"({"attempt":1})", R"({"suspend":true})", R"({"workers":3})", ""},
      {R"({"attempt":1})", R"({"suspend":true})", R"({"workers":3,"suspend":false})", ""},
      {R"({"attempt":1})", "{}", R"({"workers":3,"suspend":true})", "spec.workers"},
      {R"({"attempt":1})", "{}", R"({"config":{"a":1}})", "spec.config"},
      {R"({"attempt":1})", "{}", R"({"procsPerWorker":2})", "spec.procsPerWorker"},
      {R"({"attempt":1})", "{}", R"({"template":{"metadata":{"labels":{"a":"b"}}}})", "spec.template"},
      {R"({"attempt":1})", "{}", R"({"checkpoint":{"path":"/x"}})", "spec.checkpoint"},
      {R"({"attempt":1})", "{}", R"({"restart":{"maxRestarts":1},"suspend":true,"cleanPodPolicy":"All"})", ""},
      {R"({"attempt":0})", "{}", R"({"scheduling":{"gang":"native"}})", ""},
      {R"({"attempt":1,"phase":"Suspending"})", R"({"suspend":true})", R"({"scheduling":{"gang":"native"}})",
       "spec.scheduling.gang"},
      {R"({"attempt":1,"phase":"Suspending"})", R"({"suspend":true})",
       R"({"scheduling":{"gang":"none","priorityClassName":"a"}})", ""},
      {R"({"attempt":1,"phase":"Suspended"})", R"({"suspend":true})", R"({"scheduling":{"gang":"native"}})", ""},
      {"null", "{}", R"({"managedBy":"someone/else"})", "spec.managedBy"},
      {"null", R"({"managedBy":"someone/else"})", R"({"managedBy":null})", "spec.managedBy"},
  };
  for (const Case& c : cases) {
    Json old = reconcile::JobObject("job", 2);
    old["spec"].merge_patch(Json::parse(c.old_spec));
    old["status"] = Json::parse(c.old_status);
    Json now = old;
    now["spec"].merge_patch(Json::parse(c.change));
    std::string refused;
    for (const Rule& rule : RootRules()) {
      if (!rule.allows(now, &old)) refused += rule.field;
    }
    EXPECT_EQ(refused, c.field) << c.old_status << " " << c.old_spec << " " << c.change;
  }
}

}  // namespace
}  // namespace trainyard::api

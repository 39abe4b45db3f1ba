// Ways to be wrong: each names the field, the value and what is allowed.
#include "operator/api/validation.h"

#include <gtest/gtest.h>

#include "operator/api/crd.h"
#include "operator/api/job_file.h"
#include "operator/api/json.h"
#include "operator/api/quantity.h"
#include "operator/api/rules.h"
#include "tests/operator/builders.h"

namespace trainyard::api {
namespace {

struct Case {
  const char* patch;  // RFC 7386, onto a good job
  std::vector<const char*> words;
};

TEST(Validation, NamesFieldValueAndWhatIsAllowed) {
  const Case cases[] = {
      {R"({"spec":{"workers":0}})", {"spec.workers", "0", "an integer from 1 to 10000"}},
      {R"({"spec":{"workers":"two"}})", {"spec.workers", "\"two\"", "an integer"}},
      {R"({"spec":{"workers":2.5}})", {"spec.workers", "2.5"}},
      {R"({"spec":{"workers":null}})", {"spec.workers", "missing"}},
      {R"({"spec":{"workers":18446744073709551615}})", {"spec.workers", "18446744073709551615"}},
      {R"({"spec":{"worker":2}})", {"spec.worker", "unknown", "did you mean workers?"}},
      {R"({"spec":{"procsPerWorker":"many"}})", {"spec.procsPerWorker", "\"many\"", "or auto"}},
      {R"({"spec":{"procsPerWorker":0}})", {"spec.procsPerWorker", "0"}},
      {R"({"spec":{"config":[1]}})", {"spec.config", "[1]", "an object"}},
      {R"({"spec":{"template":null}})", {"spec.template", "missing"}},
      {R"({"spec":{"template":{"spec":null}}})", {"spec.template.spec", "missing"}},
      {R"({"spec":{"template":{"spec":{"containers":[]}}}})", {"spec.template.spec.containers", "at least one"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}})", {"spec.template.spec.containers[0].name"}},
      {R"({"spec":{"template":{"spec":{"restartPolicy":"Always"}}}})",
       {"spec.template.spec.restartPolicy", "\"Always\"", "Never"}},
      {R"({"spec":{"template":{"spec":{"hostname":"me"}}}})", {"spec.template.spec.hostname", "\"me\""}},
      {R"({"spec":{"template":{"sepc":{}}}})", {"spec.template.sepc", "did you mean spec?"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"trainer","env":[{"name":"RANK","value":"1"}]}]}}}})",
       {"env[0].name", "RANK", "does not set itself"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"X"},{"name":"TRAINYARD_ATTEMPT"}]}]}}}})",
       {"env[1].name", "TRAINYARD_ATTEMPT"}},
      {R"({"spec":{"restart":{"maxRestarts":-1}}})", {"spec.restart.maxRestarts", "-1"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail"}]}}})", {"spec.restart.rules[0]", "none", "exactly one"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail","onExitCodes":[1],"onPodCondition":"X"}]}}})",
       {"spec.restart.rules[0]", "several"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Retry","onExitCodes":[1]}]}}})",
       {"spec.restart.rules[0].action", "\"Retry\"", "one of Restart, RestartUncharged, Fail"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail","onExitCodes":[256]}]}}})",
       {"spec.restart.rules[0].onExitCodes[0]", "256"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail","onExitCodes":[0]}]}}})",
       {"spec.restart.rules[0].onExitCodes[0]", "an integer from 1 to 255"}},
      {R"({"spec":{"restart":{"rules":[7]}}})", {"spec.restart.rules[0]", "7", "an object"}},
      {R"({"spec":{"restart":{"backoff":{"initialSeconds":10,"maxSeconds":5}}}})",
       {"spec.restart.backoff.maxSeconds", "5", "10"}},
      {R"({"spec":{"checkpoint":{"path":"relative"}}})", {"spec.checkpoint.path", "\"relative\"", "an absolute path"}},
      {R"({"spec":{"checkpoint":{"volume":{"emptyDir":{},"hostPath":{}}}}})",
       {"spec.checkpoint.volume", "one volume source"}},
      {R"({"spec":{"suspend":"yes"}})", {"spec.suspend", "\"yes\"", "true or false"}},
      {R"({"spec":{"cleanPodPolicy":"Some"}})", {"spec.cleanPodPolicy", "\"Some\"", "All, Running, None"}},
      {R"({"spec":{"scheduling":{"gang":"volcano"}}})", {"spec.scheduling.gang", "volcano", "not supported yet"}},
      {R"({"spec":{"deadlines":{"stallSeconds":0}}})", {"spec.deadlines.stallSeconds", "0", "an integer from 1"}},
      {R"({"spec":{"sharedMemory":{"sizeLimit":"much"}}})",
       {"spec.sharedMemory.sizeLimit", "\"much\"", "a quantity above 0"}},
      {R"({"spec":{"sharedMemory":{"sizeLimit":"0"}}})", {"spec.sharedMemory.sizeLimit", "\"0\""}},
      {R"({"spec":{"successPolicy":"Any"}})", {"spec.successPolicy", "\"Any\"", "AllWorkers, RankZero"}},
      {R"({"metadata":{"name":"Upper"}})", {"metadata.name", "\"Upper\""}},
      {R"({"spec":{"template":{"spec":{"initContainers":["foo"]}}}})",
       {"spec.template.spec.initContainers", "[\"foo\"]", "a list of containers"}},
      {R"({"spec":{"template":{"spec":{"initContainers":"x"}}}})",
       {"spec.template.spec.initContainers", "\"x\"", "a list of containers"}},
      {R"({"metadata":{"namespace":"my team"}})", {"metadata.namespace", "\"my team\"", "a-z"}},
      {R"({"metadata":{"namespace":"../x"}})", {"metadata.namespace", "\"../x\"", "a-z"}},
      {R"({"metadata":{"labels":{"a":5}}})", {"metadata.labels.a", "5", "a string"}},
      {R"({"metadata":{"labels":{"a b":"x"}}})", {"metadata.labels", "\"a b\"", "letters"}},
      {R"({"metadata":{"labels":{"a":"x y"}}})", {"metadata.labels.a", "\"x y\"", "letters"}},
      {R"({"metadata":{"lables":{"a":"x"}}})", {"metadata.lables", "unknown field", "did you mean labels?"}},
      {R"({"spec":{"template":{"metadata":{"labels":{"a":"x y"}}}}})", {"spec.template.metadata.labels.a", "\"x y\""}},
      {R"({"spec":{"checkpoint":{"volume":{"persistentVolumeClaim":{"claimName":"c","readonly":true}}}}})",
       {"spec.checkpoint.volume.persistentVolumeClaim.readonly", "unknown field", "readOnly"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"trainer","comand":["x"]}]}}}})",
       {"spec.template.spec.containers[0].comand", "unknown field", "did you mean command?"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"trainer","command":"x"}]}}}})",
       {"spec.template.spec.containers[0].command", "\"x\"", "a list"}},
      {R"({"spec":{"template":{"spec":{"volumes":[{"emptyDir":{}}]}}}})",
       {"spec.template.spec.volumes[0].name", "missing", "a string"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"a","imagePullPolicy":"Sometimes"}]}}}})",
       {"imagePullPolicy", "\"Sometimes\"", "one of Always, IfNotPresent, Never"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":[1]}}}]}}}})",
       {"spec.template.spec.containers[0].resources.limits.cpu", "[1]", "a quantity"}},
      {R"({"spec":null})", {"spec", "missing"}},
  };
  for (const Case& c : cases) {
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
      {R"({"containers":[{"name":"a","volumeMounts":[{"name":"v","mountPath":"data"}]}]})",
       R"(volumeMounts[0].mountPath: "data")"},
      {R"({"containers":[{"name":"a","volumeMounts":[{"name":"v","mountPath":"/d"},{"name":"w","mountPath":"/d"}]}]})",
       "volumeMounts[1].mountPath"},
  };
  for (const auto& c : cases) {
    Json job = reconcile::JobObject("job", 2);
    job["spec"]["template"]["spec"] = Json::parse(c.pod);
    const std::vector<std::string> problems = CheckJob(job);
    ASSERT_EQ(problems.size(), 1u) << c.pod;
    EXPECT_NE(problems[0].find(c.says), std::string::npos) << problems[0];
  }
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
}

TEST(Validation, AConfigHas64KiB) {
  Json job = reconcile::JobObject("job", 1);
  job["spec"]["config"] = {{"x", std::string((64 << 10) - 8, 'a')}};
  EXPECT_TRUE(CheckJob(job).empty());
  job["spec"]["config"]["x"] = std::string((64 << 10) - 7, 'a');
  EXPECT_EQ(CheckJob(job).size(), 1u);
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
  EXPECT_EQ(*scalars, Json::parse(R"({"a":1,"b":0.0015,"c":"1","d":true,"e":"yes","f":null,"g":"0x10","h":-3})"));
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

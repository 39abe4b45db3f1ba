// Specs that are wrong, each in one way: for the checks alone, and for an API with an operator behind it.
#ifndef TRAINYARD_TESTS_OPERATOR_INVALID_SPECS_H_
#define TRAINYARD_TESTS_OPERATOR_INVALID_SPECS_H_

#include <vector>

namespace trainyard::api {

struct InvalidSpec {
  const char* patch;               // RFC 7386, onto a good job
  std::vector<const char*> words;  // of the answer: the field, then the value, then what is allowed
};

inline const std::vector<InvalidSpec>& InvalidSpecs() {
  static const std::vector<InvalidSpec> specs = {
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
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b","restartPolicy":"OnFailure"}]}}}})",
       {"spec.template.spec.containers[1].restartPolicy", "\"OnFailure\"", "all workers together"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"a","restartPolicyRules":[]}]}}}})",
       {"spec.template.spec.containers[0].restartPolicyRules", "[]", "all workers together"}},
      {R"({"spec":{"template":{"spec":{"hostname":"me"}}}})", {"spec.template.spec.hostname", "\"me\""}},
      {R"({"spec":{"template":{"sepc":{}}}})", {"spec.template.sepc", "did you mean spec?"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"trainer","env":[{"name":"RANK","value":"1"}]}]}}}})",
       {"env[0].name", "RANK", "does not set itself"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"X"},{"name":"TRAINYARD_ATTEMPT"}]}]}}}})",
       {"env[1].name", "TRAINYARD_ATTEMPT"}},
      {R"({"spec":{"template":{"spec":{"containers":[{"name":"a","image":"x","volumeMounts":[{"name":"data","mountPath":"/d"}]}]}}}})",
       {"spec.template.spec.containers[0].volumeMounts[0].name", "\"data\"", "a volume of the pod, which has none"}},
      {R"({"spec":{"template":{"spec":{"volumes":[{"name":"a","emptyDir":{}}],"containers":[{"name":"a","image":"x","volumeMounts":[{"name":"trainyard-info","mountPath":"/d"}]}]}}}})",
       {"spec.template.spec.containers[0].volumeMounts[0].name", "\"trainyard-info\"", "one of the pod's volumes: a"}},
      {R"({"spec":{"restart":{"maxRestarts":-1}}})", {"spec.restart.maxRestarts", "-1"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail"}]}}})", {"spec.restart.rules[0]", "none", "exactly one"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail","onExitCodes":[1],"onPodCondition":"X"}]}}})",
       {"spec.restart.rules[0]", "several"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail","onExitCodes":[]}]}}})", {"spec.restart.rules[0]", "none"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail","onPodCondition":"","onReasons":[]}]}}})",
       {"spec.restart.rules[0]", "none"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Retry","onExitCodes":[1]}]}}})",
       {"spec.restart.rules[0].action", "\"Retry\"", "one of Restart, RestartUncharged, Fail"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail","onExitCodes":[256]}]}}})",
       {"spec.restart.rules[0].onExitCodes[0]", "256"}},
      {R"({"spec":{"restart":{"rules":[{"action":"Fail","onExitCodes":[0]}]}}})",
       {"spec.restart.rules[0].onExitCodes[0]", "an integer from 1 to 255"}},
      {R"({"spec":{"restart":{"rules":[7]}}})", {"spec.restart.rules[0]", "7", "an object"}},
      {R"({"spec":{"restart":{"backoff":{"initialSeconds":10,"maxSeconds":5}}}})",
       {"spec.restart.backoff.maxSeconds", "5", "10"}},
      {R"({"spec":{"restart":{"backoff":{"initialSeconds":600}}}})", {"spec.restart.backoff.maxSeconds", "300", "600"}},
      {R"({"spec":{"checkpoint":{"path":"relative"}}})", {"spec.checkpoint.path", "\"relative\"", "an absolute path"}},
      {R"({"spec":{"checkpoint":{"volume":{"emptyDir":{},"hostPath":{}}}}})",
       {"spec.checkpoint.volume", "one volume source"}},
      {R"({"spec":{"suspend":"yes"}})", {"spec.suspend", "\"yes\"", "true or false"}},
      {R"({"spec":{"cleanPodPolicy":"Some"}})", {"spec.cleanPodPolicy", "\"Some\"", "All, Running, None"}},
      {R"({"spec":{"scheduling":{"gang":"yarn"}}})", {"spec.scheduling.gang", "\"yarn\"", "native, volcano"}},
      {R"({"spec":{"scheduling":{"queue":"research"}}})", {"spec.scheduling.queue", "\"research\"", "volcano"}},
      {R"({"spec":{"scheduling":{"gang":"native","queue":"research"}}})", {"spec.scheduling.queue", "kueue.x-k8s.io"}},
      {R"({"spec":{"scheduling":{"priorityClassName":"a"},"template":{"spec":{"priorityClassName":"b"}}}})",
       {"spec.scheduling.priorityClassName", "\"a\"", "\"b\""}},
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
  return specs;
}

}  // namespace trainyard::api

#endif  // TRAINYARD_TESTS_OPERATOR_INVALID_SPECS_H_

"""What is refused, and with which field and message: unknown fields, types, ranges, the CRD's rules, pods, claims."""

import json
import os
import subprocess

import pytest
import yaml

from api_client import CLAIMS, JOBS, JSON_PATCH, PODS, claim, job, pod

CRD = yaml.safe_load(subprocess.run([os.environ["TRAINYARD_OPERATOR_BIN"], "crd"], check=True, capture_output=True, text=True).stdout)
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def rule(part, schema=SCHEMA):
    """The message and the place of the one rule whose message holds `part`."""
    (found,) = [each for each in schema["x-kubernetes-validations"] if part in each["message"]]
    return found["message"], found.get("fieldPath", "<nil>").lstrip(".")


def test_an_unknown_field(api, name):
    thing = job(name, workerz=1)
    api.post(JOBS, thing, fieldValidation="Strict").refused(400, "BadRequest", 'strict decoding error: unknown field "spec.workerz"')
    assert api.post(JOBS, thing, fieldValidation="Ignore", dryRun="All").warnings == []
    for validation in ("Warn", None):
        answer = api.post(JOBS, thing, fieldValidation=validation, dryRun="All")
        assert "workerz" not in answer.ok(201)["spec"] and answer.warnings == ['299 - "unknown field \\"spec.workerz\\""']


def test_an_unknown_field_in_a_patch(api, name):
    api.post(JOBS, job(name)).ok(201)
    answer = api.patch(f"{JOBS}/{name}", {"spec": {"wrk": 1}})
    assert answer.ok()["metadata"]["generation"] == 1 and answer.warnings == ['299 - "unknown field \\"spec.wrk\\""']
    refused = api.patch(f"{JOBS}/{name}", {"spec": {"wrk": 1}}, fieldValidation="Strict")
    assert refused.code in (400, 422) and 'strict decoding error: unknown field \\"spec.wrk\\"' in json.dumps(refused["message"])


def test_an_unknown_field_of_metadata(api, name):
    api.post(JOBS, job(name, {"labelz": {}}), fieldValidation="Strict").refused(400, "BadRequest", 'unknown field "metadata.labelz"')


def test_an_unknown_field_of_a_pod(api, name):
    thing = pod(name, bogus=1)
    thing["spec"]["containers"][0]["imagee"] = "x"
    refused = api.post(PODS, thing, fieldValidation="Strict").refused(400, "BadRequest", "strict decoding error")
    assert 'unknown field "spec.bogus"' in refused["message"] and 'unknown field "spec.containers[0].imagee"' in refused["message"]
    api.post(PODS, thing, dryRun="All").ok(201)


def test_a_field_that_stands_twice(api, name):
    text = json.dumps(job(name)).replace('"workers": 2', '"workers": 2, "workers": 3')
    api.send("POST", JOBS, text, fieldValidation="Strict").refused(400, "BadRequest", 'strict decoding error: duplicate field "spec.workers"')
    answer = api.send("POST", JOBS, text)
    assert answer.ok(201)["spec"]["workers"] == 3 and answer.warnings == ['299 - "duplicate field \\"spec.workers\\""']


@pytest.mark.parametrize("spec, field, text", [
    ({"workers": "two"}, "spec.workers", "spec.workers in body must be of type integer"),
    ({"workers": 1.5}, "spec.workers", "spec.workers in body must be of type integer"),
    ({"workers": 0}, "spec.workers", "should be greater than or equal to 1"),
    ({"workers": 10001}, "spec.workers", "should be less than or equal to 10000"),
    ({"suspend": "yes"}, "spec.suspend", "must be of type boolean"),
    ({"template": 5}, "spec.template", "must be of type object"),
    ({"template": None}, "spec.template", "Required value"),
    ({"workers": None}, "spec.workers", "Required value"),
    ({"cleanPodPolicy": "Some"}, "spec.cleanPodPolicy", 'supported values: "'),
    ({"restart": {"maxRestarts": -1}}, "spec.restart.maxRestarts", "should be greater than or equal to 0"),
    ({"restart": {"rules": 5}}, "spec.restart.rules", "must be of type array"),
    ({"restart": {"rules": [{"onExitCodes": [1]}]}}, "spec.restart.rules[0].action", "Required value"),
    ({"config": [1]}, "spec.config", "must be of type object"),
])
def test_a_field_that_does_not_fit(api, name, spec, field, text):
    thing = job(name, **spec)
    thing["spec"] = {key: value for key, value in thing["spec"].items() if value is not None}
    answer = api.post(JOBS, thing).refused(422, "Invalid", text)
    assert field in answer.fields and answer["details"]["kind"] == "TrainingJob" and answer["details"]["name"] == name


def test_several_things_are_told_at_once(api, name):
    answer = api.post(JOBS, job(name, workers=0, cleanPodPolicy="x")).refused(422, "Invalid")
    assert {"spec.workers", "spec.cleanPodPolicy"} <= set(answer.fields)


@pytest.mark.parametrize("bad", ["a-name-that-is-longer-than-forty-characters", "1job", "a.b"])
def test_the_rule_of_names(api, bad):
    message, field = rule("at most 40 characters")
    assert field in api.post(JOBS, job(bad)).refused(422, "Invalid", message).fields


@pytest.mark.parametrize("value, good", [("auto", True), (1, True), (1024, True), (0, False), (1025, False), ("some", False), ("2", False)])
def test_the_rule_of_processes(api, name, value, good):
    answer = api.post(JOBS, job(name, procsPerWorker=value), dryRun="All")
    message, _ = rule("or auto", SCHEMA["properties"]["spec"]["properties"]["procsPerWorker"])
    assert answer.code == 201 if good else "spec.procsPerWorker" in answer.refused(422, "Invalid", message).fields


@pytest.mark.parametrize("scheduling, good", [({"gang": "volcano", "queue": "a"}, True), ({"gang": "native"}, True), ({"queue": ""}, True), ({"queue": "a"}, False), ({"gang": "native", "queue": "a"}, False)])
def test_the_rule_of_queues(api, name, scheduling, good):
    answer = api.post(JOBS, job(name, scheduling=scheduling), dryRun="All")
    message, _ = rule("queue is Volcano's", SCHEMA["properties"]["spec"]["properties"]["scheduling"])
    assert answer.code == 201 if good else "spec.scheduling" in answer.refused(422, "Invalid", message).fields


@pytest.mark.parametrize("matches, good", [({"onExitCodes": [1]}, True), ({"onExitCodes": [1], "onReasons": [], "onPodCondition": ""}, True), ({}, False), ({"onExitCodes": []}, False),
                                           ({"onReasons": [], "onPodCondition": ""}, False), ({"onReasons": ["Hang"], "onPodCondition": "X"}, False)])
def test_the_rule_of_matches(api, name, matches, good):
    answer = api.post(JOBS, job(name, restart={"rules": [matches | {"action": "Fail"}]}), dryRun="All")
    message, _ = rule("exactly one of", SCHEMA["properties"]["spec"]["properties"]["restart"]["properties"]["rules"]["items"])
    assert answer.code == 201 if good else "spec.restart.rules[0]" in answer.refused(422, "Invalid", message).fields


@pytest.mark.parametrize("backoff, good", [({}, True), ({"initialSeconds": 300}, True), ({"initialSeconds": 600}, False), ({"maxSeconds": 4}, False), ({"initialSeconds": 0, "maxSeconds": 0}, True)])
def test_the_rule_of_waits(api, name, backoff, good):
    answer = api.post(JOBS, job(name, restart={"backoff": backoff}), dryRun="All")
    message, _ = rule("maxSeconds is", SCHEMA["properties"]["spec"]["properties"]["restart"]["properties"]["backoff"])
    assert answer.code == 201 if good else "spec.restart.backoff" in answer.refused(422, "Invalid", message).fields


def running(api, name, **spec):
    made = api.post(JOBS, job(name, **spec)).ok(201)
    api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Running", "attempt": 2, "workers": {"desired": 2}}}).ok()
    return made


@pytest.mark.parametrize("change", [{"workers": 3}, {"procsPerWorker": 2}, {"config": {"a": 1}}, {"template": {"metadata": {"labels": {"a": "1"}}}}, {"checkpoint": {"path": "/other"}},
                                    {"scheduling": {"gang": "native"}}])
def test_the_rule_of_a_job_that_runs(api, name, change):
    running(api, name)
    (changed,) = change
    message, field = rule(f"{changed} may change only")
    assert field in api.patch(f"{JOBS}/{name}", {"spec": change}).refused(422, "Invalid", message).fields
    assert api.get(f"{JOBS}/{name}").ok()["metadata"]["generation"] == 1


@pytest.mark.parametrize("change", [{"suspend": True}, {"restart": {"maxRestarts": 3}}, {"cleanPodPolicy": "All"}])
def test_what_may_change_while_a_job_runs(api, name, change):
    running(api, name)
    api.patch(f"{JOBS}/{name}", {"spec": change}).ok()


def test_the_rule_holds_through_scale(api, name):
    running(api, name)
    api.patch(f"{JOBS}/{name}/scale", {"spec": {"replicas": 3}}).refused(422, "Invalid", "may change only")


def test_a_suspended_job_may_change(api, name):
    running(api, name, suspend=True)
    api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Suspended"}}).ok()
    api.patch(f"{JOBS}/{name}", {"spec": {"workers": 3}}).ok()


@pytest.mark.parametrize("before, after", [({"gang": "volcano"}, {"gang": "native"}), (None, {"gang": "native"}), ({"gang": "native"}, None)])
def test_the_rule_of_gangs(api, name, before, after):
    """The groups of the gang go while the job is Suspending; only then it may have another."""
    running(api, name, suspend=True, **({"scheduling": before} if before else {}))
    api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Suspending"}}).ok()
    message, field = rule("gang may change only")
    assert field in api.patch(f"{JOBS}/{name}", {"spec": {"scheduling": after}}).refused(422, "Invalid", message).fields
    api.patch(f"{JOBS}/{name}", {"spec": {"scheduling": (before or {}) | {"gang": (before or {"gang": "none"})["gang"], "priorityClassName": "high"}}}).ok()
    api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Suspended"}}).ok()
    api.patch(f"{JOBS}/{name}", {"spec": {"scheduling": after}}).ok()


def test_the_rule_of_attempts(api, name):
    running(api, name)
    message, field = rule("attempt never decreases")
    assert field in api.patch(f"{JOBS}/{name}/status", {"status": {"attempt": 1}}).refused(422, "Invalid", message).fields
    api.patch(f"{JOBS}/{name}/status", {"status": {"attempt": 3}}).ok()


@pytest.mark.parametrize("metadata, field", [
    ({"labels": {"k": "bad value!"}}, "metadata.labels"),
    ({"labels": {"bad key": "x"}}, "metadata.labels"),
    ({"labels": {"k": "x" * 64}}, "metadata.labels"),
    ({"annotations": {"bad key": "x"}}, "metadata.annotations"),
])
def test_labels_and_annotations(api, name, metadata, field):
    answer = api.post(JOBS, job(name, metadata)).refused(422, "Invalid")
    assert any(each.startswith(field) for each in answer.fields)


@pytest.mark.parametrize("spec, field, text", [
    ({"containers": []}, "spec.containers", "Required value"),
    ({"containers": [{"name": "c", "image": "x", "env": [{"name": "A=B", "value": "1"}]}]}, "spec.containers[0].env[0].name", 'Invalid value: "A=B"'),
    ({"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]}, "spec.containers[1].name", 'Duplicate value: "c"'),
    ({"containers": [{"name": "Bad_Name", "image": "x"}]}, "spec.containers[0].name", 'Invalid value: "Bad_Name"'),
    ({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]}, "spec.volumes[1].name", 'Duplicate value: "a"'),
    ({"volumes": [{"name": "a", "emptyDir": {}}], "containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/a"}]}]},
     "spec.containers[0].volumeMounts[1].mountPath", "must be unique"),
    ({"volumes": [{"name": "a", "emptyDir": {}}], "containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "b", "mountPath": "/b"}]}]},
     "spec.containers[0].volumeMounts[0].name", 'Not found: "b"'),
    ({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}]}, "spec.containers[0].resources.requests",
     "must be less than or equal to cpu limit of 1500m"),
    ({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}}]}, "spec.containers[0].resources.requests",
     "must be equal to nvidia.com/gpu limit of 2"),
    ({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"memory": -1}}}]}, "spec.containers[0].resources.limits[memory]", "must be greater than or equal to 0"),
    ({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1500m"}}}]}, "spec.containers[0].resources.limits[nvidia.com/gpu]", "must be an integer"),
    ({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"nvidia.com/gpu": 1}}}]}, "spec.containers[0].resources.limits",
     "Limit must be set for non overcommitable resources"),
    ({"containers": [{"name": "c"}]}, "spec.containers[0].image", "Required value"),
    ({"volumes": [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/a"}}]}, "spec.volumes[0].hostPath", "may not specify more than 1 volume type"),
    ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}, "emptyDir": {}}]}, "spec.volumes[0].persistentVolumeClaim", "may not specify more than 1 volume type"),
])
def test_a_pod_that_does_not_fit(api, name, spec, field, text):
    assert field in api.post(PODS, pod(name, **spec)).refused(422, "Invalid", text).fields


def test_containers_of_a_pod_do_not_come_or_go(api, name):
    api.post(PODS, pod(name)).ok(201)
    empty = [{"op": "replace", "path": "/spec/containers", "value": []}]
    answer = api.patch(f"{PODS}/{name}", empty, type=JSON_PATCH).refused(422, "Invalid", "pod updates may not add or remove containers")
    assert "spec.containers" in answer.fields
    more = [{"op": "add", "path": "/spec/containers/-", "value": {"name": "d", "image": "x"}}]
    api.patch(f"{PODS}/{name}", more, type=JSON_PATCH).refused(422, "Invalid", "spec.containers: Forbidden: pod updates may not add or remove containers")


@pytest.mark.parametrize("change", [{"hostname": "h"}, {"restartPolicy": "Never"}, {"terminationGracePeriodSeconds": 1}, {"containers": [{"name": "c", "image": "x", "command": ["ls"]}]}])
def test_a_pod_does_not_change(api, name, change):
    before = api.post(PODS, pod(name)).ok(201)["spec"]
    answer = api.patch(f"{PODS}/{name}", {"spec": change}).refused(
        422, "Invalid", "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,")
    assert "spec" in answer.fields and api.get(f"{PODS}/{name}").ok()["spec"] == before


def test_what_may_change_of_a_pod(api, name):
    api.post(PODS, pod(name)).ok(201)
    for change in ({"activeDeadlineSeconds": 90}, {"activeDeadlineSeconds": 60}, {"restartPolicy": None}):
        api.patch(f"{PODS}/{name}", {"spec": change}).ok()
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "y"}]
    assert api.patch(f"{PODS}/{name}", image, type=JSON_PATCH).ok()["spec"]["containers"][0]["image"] == "y"


def test_a_toleration_keeps_all_but_its_time(api, name):
    mine = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    others = [each for each in api.post(PODS, pod(name, tolerations=[mine])).ok(201)["spec"]["tolerations"] if each["key"] != "a"]
    for seconds in (9, 1):
        changed = api.patch(f"{PODS}/{name}", {"spec": {"tolerations": [{**mine, "tolerationSeconds": seconds}, *others]}}).ok()
        assert changed["spec"]["tolerations"][0]["tolerationSeconds"] == seconds
    for wrong in ([*others], [{**mine, "key": "b"}, *others]):
        answer = api.patch(f"{PODS}/{name}", {"spec": {"tolerations": wrong}})
        assert "spec.tolerations" in answer.refused(422, "Invalid", "existing toleration can not be modified except its tolerationSeconds").fields


def test_the_gates_of_a_pod_only_go(api, name):
    gates = [{"name": "a.b/c"}, {"name": "a.b/d"}]
    api.post(PODS, pod(name, schedulingGates=gates)).ok(201)
    answer = api.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": [gates[0], {"name": "a.b/e"}]}})
    assert "spec.schedulingGates[1].name" in answer.refused(422, "Invalid", "only deletion is allowed, but found new scheduling gate 'a.b/e'").fields
    assert api.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": gates[1:]}}).ok()["spec"]["schedulingGates"] == gates[1:]
    assert "schedulingGates" not in api.patch(f"{PODS}/{name}", [{"op": "remove", "path": "/spec/schedulingGates"}], type=JSON_PATCH).ok()["spec"]


@pytest.mark.parametrize("status", [5, {"conditions": [5]}, {"conditions": [{"type": 5}]}, {"containerStatuses": {}}, {"containerStatuses": [{"state": 5}]}, {"podIP": 5}, {"phase": 5}])
def test_a_status_of_a_pod_that_cannot_be_read(api, name, status):
    api.post(PODS, pod(name)).ok(201)
    assert api.patch(f"{PODS}/{name}/status", {"status": status}).code in (400, 422)
    api.get(PODS, labelSelector="a=b").ok()


@pytest.mark.parametrize("container", [7, {"name": 7}, {"name": "c", "image": "x", "command": "ls"}, {"name": "c", "image": "x", "env": 3},
                                       {"name": "c", "image": "x", "resources": {"requests": {"cpu": "lots"}}}])
def test_a_pod_that_cannot_be_read(api, name, container):
    api.post(PODS, pod(name, containers=[container])).refused(400, "BadRequest", 'Pod in version "v1" cannot be handled as a Pod')


@pytest.mark.parametrize("resources", [{"requests": {"cpu": "1", "memory": "1.5Gi"}, "limits": {"cpu": "1000m", "memory": "1536Mi"}}, {"requests": {"cpu": "1e0"}, "limits": {"cpu": 1}},
                                       {"limits": {"nvidia.com/gpu": "2"}}])
def test_quantities(api, name, resources):
    api.post(PODS, pod(name, containers=[{"name": "c", "image": "x", "resources": resources}]), dryRun="All").ok(201)


def test_a_claim_says_how_much(api, name):
    thing = claim(name)
    thing["spec"] = {}
    answer = api.post(CLAIMS, thing).refused(422, "Invalid", "at least 1 access mode is required")
    assert {"spec.accessModes", "spec.resources[storage]"} <= set(answer.fields)


def test_a_claim_does_not_change(api, name):
    api.post(CLAIMS, claim(name)).ok(201)
    answer = api.patch(f"{CLAIMS}/{name}", {"spec": {"accessModes": ["ReadWriteMany"]}}).refused(422, "Invalid", "spec is immutable after creation")
    assert answer.fields == ["spec"]
    api.patch(f"{CLAIMS}/{name}", {"metadata": {"labels": {"a": "1"}}}).ok()


def test_defaults_are_filled_in(api, name):
    spec = api.post(JOBS, job(name, restart={"maxRestarts": 3})).ok(201)["spec"]
    assert spec["restart"] == {"maxRestarts": 3, "sameStepLimit": 3, "backoff": {"initialSeconds": 5, "maxSeconds": 300}, "avoidNodes": {"afterFailures": 2, "forSeconds": 3600}}
    assert spec["deadlines"] == {"startSeconds": 1800, "stallSeconds": 600, "terminateSeconds": 60}
    assert spec["checkpoint"] == {"path": "/checkpoints", "graceSeconds": 60} and spec["procsPerWorker"] == "auto"
    assert spec["suspend"] is False and spec["cleanPodPolicy"] == "Running" and spec["successPolicy"] == "AllWorkers"
    assert not {"config", "managedBy", "ttlSecondsAfterFinished", "sharedMemory"} & set(spec)


def test_a_default_comes_back(api, name):
    api.post(JOBS, job(name, deadlines={"stallSeconds": 5, "activeSeconds": 7})).ok(201)
    now = api.patch(f"{JOBS}/{name}", {"spec": {"deadlines": {"stallSeconds": None, "activeSeconds": None}}}).ok()
    assert now["spec"]["deadlines"] == {"startSeconds": 1800, "stallSeconds": 600, "terminateSeconds": 60}
    assert api.patch(f"{JOBS}/{name}", {"spec": {"restart": None}}).ok()["metadata"]["generation"] == now["metadata"]["generation"]


def test_a_default_is_no_change_of_a_job_that_runs(api, name):
    running(api, name)
    api.patch(f"{JOBS}/{name}", {"spec": {"checkpoint": {"path": "/checkpoints"}, "procsPerWorker": "auto"}}).ok()

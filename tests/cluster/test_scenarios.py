"""What the operator relies on and does, on a real API server and on the in-memory one."""

import json
import signal
import time

import pod_fields
import pytest
from servers import ROOT, wait_until


def job(name, workers=2, **spec):
    return {
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "workers": workers,
            "config": {"task": {"name": "algorithm_distillation"}},
            "restart": {"backoff": {"initialSeconds": 0, "maxSeconds": 0}},
            "template": {"spec": {"containers": [{"name": "trainer", "image": "trainyard-trainer", "command": ["trainyard", "launch"]}]}},
            **spec,
        },
    }


def status(api, name):
    return api.get("tj", name).get("status", {})


def condition(api, name, type):
    return next((c for c in status(api, name).get("conditions", []) if c["type"] == type), {})


def wait_for_pods(api, name, attempt, count=2):
    expected = {f"{name}-{attempt}-{rank}" for rank in range(count)}
    return wait_until(lambda: set(pods := api.pods(name)) == expected and pods, 90, f"pods of attempt {attempt}")


def run_pods(api, name, attempt, count=2):
    wait_for_pods(api, name, attempt, count)
    for rank in range(count):
        api.set_pod(f"{name}-{attempt}-{rank}", "Running", ready=True, ip=f"10.0.0.{rank + 1}")
    wait_until(lambda: status(api, name).get("phase") == "Running", what="phase Running")


def test_the_schema_and_the_rules(api):
    def refused(change, *words):
        wrong = job("wrong")
        for key, value in change.items():
            target = wrong
            *path, last = key.split(".")
            for part in path:
                target = target[part]
            target[last] = value
        message = api.kubectl("apply", "-f", "-", stdin=wrong, good=False)
        for word in words:
            assert word in message, message

    refused({"metadata.name": "a-name-of-more-than-forty-characters-in-all"}, "at most 40 characters")
    refused({"metadata.name": "1digit"}, "metadata.name")
    refused({"spec.workers": 0}, "spec.workers", "greater than or equal to 1")
    refused({"spec.workers": "two"}, "spec.workers", "integer")
    refused({"spec.cleanPodPolicy": "Some"}, "spec.cleanPodPolicy", "Unsupported value", "Running")
    refused({"spec.workerz": 1}, 'unknown field "spec.workerz"')
    refused({"spec.procsPerWorker": "many"}, "spec.procsPerWorker", "or auto")
    refused({"spec.procsPerWorker": 0}, "or auto")
    refused({"spec.restart.rules": [{"action": "Fail"}]}, "exactly one of")


def test_pods_have_the_contracts_environment(api):
    api.apply(job("env"))
    pods = wait_for_pods(api, "env", 1)
    uid = api.get("tj", "env")["metadata"]["uid"]
    master = api.get("svc", "env-master")["spec"]
    assert master["selector"] == {"trainyard.dev/job-uid": uid, "trainyard.dev/attempt": "1", "trainyard.dev/rank": "0"} and master["publishNotReadyAddresses"]
    for rank in (0, 1):
        pod = pods[f"env-1-{rank}"]
        env = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
        assert env["RANK"] == str(rank) and env["WORLD_SIZE"] == "2" and env["PET_NODE_RANK"] == str(rank)
        assert env["MASTER_ADDR"] == (master["clusterIP"] if rank else None) and env["TRAINYARD_JOB_UID"] == uid and env["TRAINYARD_ATTEMPT"] == "1"
        owner = pod["metadata"]["ownerReferences"][0]
        assert owner["uid"] == uid and owner["controller"] and owner["blockOwnerDeletion"]
        assert pod["metadata"]["labels"]["trainyard.dev/rank"] == str(rank)
        assert pod["spec"]["restartPolicy"] == "Never" and pod["spec"]["subdomain"] == "env" and pod["spec"]["terminationGracePeriodSeconds"] == 70
        assert json.loads(pod["metadata"]["annotations"]["trainyard.dev/config"]) == job("env")["spec"]["config"]
    service = api.get("svc", "env")
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    api.kubectl("delete", "tj", "env")
    wait_until(lambda: not api.pods("env"), what="garbage collection")


def test_status_follows_the_pods(api):
    api.apply(job("follow"))
    wait_for_pods(api, "follow", 1)
    assert status(api, "follow")["phase"] in ("Pending", "Starting")
    run_pods(api, "follow", 1)
    assert status(api, "follow")["master"]["address"] == api.get("svc", "follow-master")["spec"]["clusterIP"]
    assert status(api, "follow")["workers"]["ready"] == 2
    for rank in (0, 1):
        api.set_pod(f"follow-1-{rank}", "Succeeded", code=0)
    wait_until(lambda: status(api, "follow").get("phase") == "Succeeded", what="phase Succeeded")
    assert condition(api, "follow", "Complete")["status"] == "True"
    wait_until(lambda: not api.kubectl("get", "svc", "follow-master", "--ignore-not-found", "-o", "name").strip(), what="its address to be given back")
    api.kubectl("delete", "tj", "follow")


def test_restart_suspend_and_resume(api):
    api.apply(job("cycle"))
    run_pods(api, "cycle", 1)
    message = json.dumps({"v": 1, "attempt": 1, "rank": 1, "exit_code": 70, "signal": 0, "reason": "InternalError", "step": 40, "checkpoint_step": 30, "message": "it broke", "tail": ["last"]})
    api.set_pod("cycle-1-1", "Failed", code=70, message=message)
    api.set_pod("cycle-1-0", "Failed", code=69)
    run_pods(api, "cycle", 2)
    now = status(api, "cycle")
    master = api.get("svc", "cycle-master")["spec"]
    assert master["selector"]["trainyard.dev/attempt"] == "2" and [p["port"] for p in master["ports"]] == [now["master"]["port"]] and master["clusterIP"] == now["master"]["address"]
    assert now["restarts"]["total"] == 1 and now["restarts"]["charged"] == 0, "checkpoint 30 is newer than none: free"
    assert now["lastFailure"]["rank"] == 1 and now["lastFailure"]["exitCode"] == 70 and now["lastFailure"]["tail"] == ["last"]
    assert now["checkpoint"]["step"] == 30
    kept = api.kubectl("patch", "tj", "cycle", "--type", "merge", "-p", '{"spec":{"workers":3}}', good=False)
    assert "spec.workers" in kept and "while spec.suspend is true" in kept, kept
    assert "spec.managedBy" in api.kubectl("patch", "tj", "cycle", "--type", "merge", "-p", '{"spec":{"managedBy":"someone/else"}}', good=False)
    api.kubectl("patch", "tj", "cycle", "--type", "merge", "-p", '{"spec":{"suspend":true}}')
    wait_until(lambda: status(api, "cycle").get("phase") == "Suspended", what="phase Suspended")
    assert not api.pods("cycle")
    # In one update, as Kueue does it.
    api.kubectl("patch", "tj", "cycle", "--type", "merge", "-p", '{"spec":{"workers":3,"suspend":false}}')
    attempt = wait_until(lambda: api.pods("cycle") and status(api, "cycle")["attempt"], what="the next attempt")
    assert attempt == 3, "a suspension and its end are one attempt"
    run_pods(api, "cycle", attempt, 3)
    assert status(api, "cycle")["restarts"]["total"] == 1, "a suspension is no restart"
    api.kubectl("delete", "tj", "cycle")
    wait_until(lambda: not api.pods("cycle"), what="garbage collection")


@pytest.mark.parametrize("change, label, value", [("trainyard.dev/managed-", "managed", "true"), ("trainyard.dev/rank=9", "rank", "1"), ("trainyard.dev/rank=0", "rank", "1"),
                                                  ("trainyard.dev/attempt=7", "attempt", "1")])
def test_a_pod_whose_labels_someone_changes_is_taken_back(api, change, label, value):
    api.apply(job("label"))
    run_pods(api, "label", 1)
    api.kubectl("label", "--overwrite", "pod", "label-1-1", change)
    wait_until(lambda: api.get("pod", "label-1-1")["metadata"]["labels"].get(f"trainyard.dev/{label}") == value, what="the label")
    api.set_pod("label-1-1", "Failed", code=70)
    # The other one runs on, and the end has no time: the attempt ends after the wait for evidence.
    wait_for_pods(api, "label", 2)
    assert status(api, "label")["lastFailure"]["pod"] == "label-1-1" and status(api, "label")["restarts"] == {"total": 1, "charged": 1, "repeats": 1}
    api.kubectl("delete", "tj", "label")


def test_attempts_never_decrease_and_stale_writes_are_refused(api):
    api.apply(job("stale"))
    wait_for_pods(api, "stale", 1)
    old = api.get("tj", "stale")["metadata"]["resourceVersion"]
    api.kubectl("label", "tj", "stale", "touched=yes")
    stale = json.dumps({"metadata": {"resourceVersion": old}, "status": {"attempt": 7}})
    assert "Conflict" in api.kubectl("patch", "tj", "stale", "--subresource", "status", "--type", "merge", "-p", stale, good=False)
    assert "never decreases" in api.kubectl("patch", "tj", "stale", "--subresource", "status", "--type", "merge", "-p", '{"status":{"attempt":0}}', good=False)
    api.kubectl("delete", "tj", "stale")


def test_an_operator_that_starts_again_goes_on(api):
    api.apply(job("again"))
    run_pods(api, "again", 1)
    api.stop_operator(signal.SIGKILL)
    api.set_pod("again-1-0", "Failed", code=70)
    api.set_pod("again-1-1", "Failed", code=69)
    api.start_operator()
    run_pods(api, "again", 2)
    assert status(api, "again")["restarts"] == {"total": 1, "charged": 1, "repeats": 1}
    api.kubectl("delete", "tj", "again")


def test_a_taken_name_is_waited_for(api):
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-1-1"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    api.apply(other, job("taken"))
    wait_until(lambda: condition(api, "taken", "WorkersReady").get("reason") == "NameInUse", what="reason NameInUse")
    assert "taken-1-1" in condition(api, "taken", "WorkersReady")["message"]
    api.kubectl("delete", "pod", "taken-1-1", "--grace-period=0", "--force")
    wait_for_pods(api, "taken", 1)
    api.kubectl("delete", "tj", "taken")


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_deleted_jobs_pods_end_before_the_next_of_its_name_begins(api, attempt):
    """`kubectl delete` and `kubectl apply` at once: the old pods have their grace, and the same volume. Of a later attempt they have names of their own."""
    name = f"next{attempt}"
    container = {"name": "trainer", "image": "trainyard-trainer", "command": ["trainyard", "launch"]}
    bound = job(name, template={"spec": {"nodeName": "somewhere", "containers": [container]}})
    api.apply(bound)
    old = wait_for_pods(api, name, 1)
    if attempt == 2:
        api.kubectl("delete", "pod", *old, "--grace-period=0", "--force")
        old = wait_for_pods(api, name, 2)
    old = {each: pod["metadata"]["uid"] for each, pod in old.items()}
    api.kubectl("delete", "tj", name, "--wait=false")
    wait_until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in api.pods(name).values()), what="the old pods to terminate")
    api.apply(bound)
    message = wait_until(lambda: (c := condition(api, name, "WorkersReady")).get("reason") == "EarlierJob" and c["message"], what="reason EarlierJob")
    assert any(each in message for each in old), message
    first, second = old
    api.kubectl("delete", "pod", first, "--grace-period=0", "--force")
    time.sleep(2)  # in which the operator would create them
    assert {each: pod["metadata"]["uid"] for each, pod in api.pods(name).items()} == {second: old[second]}
    api.kubectl("delete", "pod", second, "--grace-period=0", "--force")
    new = wait_until(lambda: set(pods := api.pods(name)) == {f"{name}-1-0", f"{name}-1-1"} and not {pod["metadata"]["uid"] for pod in pods.values()} & set(old.values()) and pods, what="the new pods")
    uid = api.get("tj", name)["metadata"]["uid"]
    assert all(pod["metadata"]["ownerReferences"][0]["uid"] == uid for pod in new.values())
    assert status(api, name)["restarts"]["total"] == 0
    api.kubectl("delete", "tj", name, "--wait=false")
    api.kubectl("delete", "pod", *new, "--grace-period=0", "--force", "--ignore-not-found")


def test_a_typo_in_the_template_is_named(api):
    wrong = job("typo")
    wrong["spec"]["template"]["spec"]["containers"][0]["comand"] = ["x"]
    api.apply(wrong)
    wait_until(lambda: condition(api, "typo", "InvalidSpec").get("status") == "True", what="InvalidSpec")
    assert "comand" in condition(api, "typo", "InvalidSpec")["message"]
    assert not api.pods("typo")
    api.apply(job("typo"))
    wait_for_pods(api, "typo", 1)
    api.kubectl("delete", "tj", "typo")


def test_a_job_that_nests_too_deep_is_nobody_elses_trouble(api):
    """Heard of in a watch, and in the list of an operator that starts."""
    config = 1
    for _ in range(150):
        config = {"a": [config]}
    if api.kind == "memory":
        api.kubectl("create", "-f", "-", stdin=job("deep", config=config), good=False)  # it is refused at the door
        return
    api.apply(job("deep", config=config))
    wait_until(lambda: "too deep" in condition(api, "deep", "InvalidSpec").get("message", ""), what="InvalidSpec")
    api.apply(job("watched"))
    wait_for_pods(api, "watched", 1)
    api.stop_operator()
    api.start_operator()
    api.apply(job("listed"))
    wait_for_pods(api, "listed", 1)
    assert not api.pods("deep")
    api.kubectl("delete", "tj", "deep", "watched", "listed")


def test_events_say_what_happened(api):
    api.apply(job("events"))
    run_pods(api, "events", 1)
    wait_until(lambda: "Running" in [e["reason"] for e in api.get("events.events.k8s.io")["items"] if e["regarding"]["name"] == "events"], what="an event")
    lines = api.kubectl("describe", "tj", "events").partition("Events:")[2]
    assert "Running" in lines, "a person reads it there"
    api.kubectl("delete", "tj", "events")


def test_the_pod_fields_are_the_servers(api, request):
    """operator/api/pod_fields_table.cc is what this release of Kubernetes says; --write-pod-fields writes it."""
    if api.kind == "memory":
        pytest.skip("the in-memory API is checked by that table, and has none of its own")
    version = json.loads(api.kubectl("get", "--raw", "/version"))
    source = pod_fields.source(json.loads(api.kubectl("get", "--raw", "/openapi/v3/api/v1")), f"{version['major']}.{version['minor']}")
    path = ROOT / "operator/api/pod_fields_table.cc"
    if request.config.getoption("--write-pod-fields"):
        path.write_text(source)
    assert path.read_text() == source


def test_a_gang_waits_for_its_kind_and_for_the_right_to_it(api):
    if api.kind == "memory":
        pytest.skip("the in-memory API has every PodGroup, and knows no rights")
    message = api.kubectl("apply", "-f", "-", stdin=job("queue", scheduling={"queue": "a"}), good=False)
    assert "spec.scheduling" in message and "only with gang volcano" in message, message
    api.apply(job("gang", scheduling={"gang": "volcano"}))
    waits = lambda reason: wait_until(lambda: (c := condition(api, "gang", "WorkersReady")).get("reason") == reason and c["message"], what=reason)  # noqa: E731
    assert "manifests/gangs.yaml" in waits("Forbidden")
    api.kubectl("apply", "-f", ROOT / "manifests/gangs.yaml")
    api.kubectl("create", "clusterrolebinding", "test-gangs", "--clusterrole=trainyard-operator-gangs", "--user=trainyard-operator")
    assert "scheduling.volcano.sh/v1beta1 PodGroup" in waits("GangUnavailable") and not api.pods("gang")
    api.apply(job("native", scheduling={"gang": "native"}))  # the group of the API is there, and no such version of it
    lacks = wait_until(lambda: (c := condition(api, "native", "WorkersReady")).get("reason") == "GangUnavailable" and c["message"], what="GangUnavailable")
    assert "scheduling.k8s.io/v1alpha2 PodGroup" in lacks and "GenericWorkload" in lacks and not api.pods("native")
    api.kubectl("delete", "tj", "native")
    # The kind appears, as Volcano publishes it, and the job goes on by itself.
    fields = {"minMember": {"type": "integer", "format": "int32"}, "queue": {"type": "string"}, "priorityClassName": {"type": "string"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    api.apply({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "podgroups.scheduling.volcano.sh"},
               "spec": {"group": "scheduling.volcano.sh", "scope": "Namespaced", "names": {"plural": "podgroups", "kind": "PodGroup"},
                        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}})
    pods = wait_until(lambda: len(found := api.pods("gang")) == 2 and found, 150, "the pods")
    assert pods["gang-1-1"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "gang-1" and pods["gang-1-1"]["spec"]["schedulerName"] == "volcano"
    groups = lambda: {g["metadata"]["name"]: g["spec"] for g in api.get("podgroups.scheduling.volcano.sh")["items"]}  # noqa: E731
    assert groups() == {"gang-1": {"minMember": 2}}
    kept = api.kubectl("patch", "tj", "gang", "--type", "merge", "-p", '{"spec":{"scheduling":{"gang":"none"}}}', good=False)
    assert "scheduling may change only" in kept, kept
    api.kubectl("patch", "tj", "gang", "--type", "merge", "-p", '{"spec":{"suspend":true}}')
    wait_until(lambda: not groups() and status(api, "gang")["phase"] == "Suspended", what="the PodGroup to go")
    api.kubectl("patch", "tj", "gang", "--type", "merge", "-p", '{"spec":{"suspend":false,"scheduling":{"gang":"none"}}}')
    assert "group-name" not in str(wait_for_pods(api, "gang", 2)) and not groups()
    api.kubectl("delete", "tj", "gang")

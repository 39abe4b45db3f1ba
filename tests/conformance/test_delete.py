"""Deletion: preconditions, grace, finalizers, what is owned."""

import pytest

from api_client import JOBS, PODS, CLAIMS, claim, job, names, owned_by, pod, seconds
from servers import wait_until


def gone(api, path):
    return wait_until(lambda: api.get(path).code == 404, 60, f"{path} to be gone")


def test_a_job_goes_at_once(api, name):
    uid = api.post(JOBS, job(name)).ok(201)["metadata"]["uid"]
    answer = api.delete(f"{JOBS}/{name}").ok()
    assert answer["kind"] == "Status" and answer["status"] == "Success"
    assert answer["details"] == {"name": name, "group": "trainyard.dev", "kind": "trainingjobs", "uid": uid}
    api.get(f"{JOBS}/{name}").refused(404, "NotFound")
    api.delete(f"{JOBS}/{name}").refused(404, "NotFound")


def test_preconditions(api, name):
    made = api.post(JOBS, job(name)).ok(201)["metadata"]
    api.delete(f"{JOBS}/{name}", {"preconditions": {"uid": "x"}}).refused(409, "Conflict", f"does not match the UID in record ({made['uid']})")
    api.delete(f"{JOBS}/{name}", {"preconditions": {"resourceVersion": "1"}}).refused(409, "Conflict", f"does not match the ResourceVersion in record ({made['resourceVersion']})")
    api.delete(f"{JOBS}/{name}", {"preconditions": {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}}).ok()


@pytest.mark.parametrize("body, field", [({"propagationPolicy": "Nonsense"}, "propagationPolicy"), ({"dryRun": ["Some"]}, "dryRun")])
def test_options_that_are_refused(api, name, body, field):
    api.post(JOBS, job(name)).ok(201)
    assert api.delete(f"{JOBS}/{name}", body).refused(422, "Invalid", "DeleteOptions.meta.k8s.io").fields == [field]
    api.get(f"{JOBS}/{name}").ok()


def test_a_grace_that_is_no_number(api, name):
    api.post(PODS, pod(name)).ok(201)
    api.delete(f"{PODS}/{name}", gracePeriodSeconds="x").refused(400, "BadRequest")


def test_a_pod_of_no_node_goes_at_once(api, name):
    api.post(PODS, pod(name)).ok(201)
    assert api.delete(f"{PODS}/{name}").ok()["metadata"]["deletionGracePeriodSeconds"] == 0
    api.get(f"{PODS}/{name}").refused(404, "NotFound")


def test_a_pod_that_has_ended_goes_at_once(api, name):
    api.post(PODS, pod(name, nodeName="n")).ok(201)
    api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}}).ok()
    api.delete(f"{PODS}/{name}").ok()
    api.get(f"{PODS}/{name}").refused(404, "NotFound")


def test_a_pod_of_a_node_goes_in_two_steps(api, name):
    made = api.post(PODS, pod(name, nodeName="n", terminationGracePeriodSeconds=40)).ok(201)
    going = api.delete(f"{PODS}/{name}").ok()["metadata"]
    assert going["deletionGracePeriodSeconds"] == 40 and going["deletionTimestamp"] > made["metadata"]["creationTimestamp"]
    assert api.delete(f"{PODS}/{name}", gracePeriodSeconds=50).ok()["metadata"]["deletionGracePeriodSeconds"] == 40, "it can only become shorter"
    assert api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 5}).ok()["metadata"]["deletionGracePeriodSeconds"] == 5
    shortened = api.get(f"{PODS}/{name}").ok()["metadata"]["deletionTimestamp"]
    assert seconds(going["deletionTimestamp"]) - seconds(shortened) == 35, "it counts from the first"
    api.delete(f"{PODS}/{name}", gracePeriodSeconds=0).ok()
    api.get(f"{PODS}/{name}").refused(404, "NotFound")


def test_a_name_whose_pod_is_going_is_taken(api, name):
    api.post(PODS, pod(name, nodeName="n")).ok(201)
    api.delete(f"{PODS}/{name}").ok()
    api.post(PODS, pod(name)).refused(409, "AlreadyExists", "object is being deleted")


@pytest.mark.parametrize("path, thing", [(JOBS, job), (PODS, pod), (CLAIMS, claim)])
def test_a_finalizer_holds(api, name, path, thing):
    made = thing(name)
    made["metadata"]["finalizers"] = ["example.com/a", "example.com/b"]
    api.post(path, made).ok(201)
    assert api.delete(f"{path}/{name}").ok()["metadata"]["deletionTimestamp"]
    held = api.get(f"{path}/{name}").ok()["metadata"]
    assert held["deletionTimestamp"] and {"example.com/a", "example.com/b"} <= set(held["finalizers"])
    assert api.delete(f"{path}/{name}").ok()["metadata"]["deletionTimestamp"] == held["deletionTimestamp"], "once is enough"
    api.patch(f"{path}/{name}", {"metadata": {"finalizers": ["example.com/b"]}}).ok()
    api.get(f"{path}/{name}").ok()
    answer = api.patch(f"{path}/{name}", {"metadata": {"finalizers": ["example.com/b", "example.com/new"]}}).refused(422, "Invalid", "no new finalizers can be added if the object is being deleted")
    assert set(answer.fields) == {"metadata.finalizers"}
    api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}).ok()
    api.get(f"{path}/{name}").refused(404, "NotFound")


def test_a_finalizer_is_taken_away_by_a_replacement_too(api, name):
    api.post(JOBS, job(name, {"finalizers": ["example.com/a"]})).ok(201)
    api.delete(f"{JOBS}/{name}").ok()
    held = api.get(f"{JOBS}/{name}").ok()
    held["metadata"]["finalizers"] = []
    api.put(f"{JOBS}/{name}", held).ok()
    api.get(f"{JOBS}/{name}").refused(404, "NotFound")


def test_what_is_owned_goes_too(api, name):
    owner = api.post(JOBS, job(name)).ok(201)
    api.post(PODS, pod(f"{name}-owned", owned_by(owner))).ok(201)
    api.post(PODS, pod(f"{name}-free")).ok(201)
    api.delete(f"{JOBS}/{name}", {"propagationPolicy": "Background"}).ok()
    gone(api, f"{PODS}/{name}-owned")
    api.get(f"{PODS}/{name}-free").ok()


def test_what_owns_what_is_owned(api, name):
    owner = api.post(JOBS, job(name)).ok(201)
    middle = api.post(PODS, pod(f"{name}-a", owned_by(owner))).ok(201)
    api.post(PODS, pod(f"{name}-b", owned_by(middle))).ok(201)
    api.delete(f"{JOBS}/{name}").ok()
    gone(api, f"{PODS}/{name}-b")


def test_an_owner_of_another_uid_is_none(api, name):
    owner = api.post(JOBS, job(name)).ok(201)
    owner["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    api.post(PODS, pod(f"{name}-p", owned_by(owner))).ok(201)
    gone(api, f"{PODS}/{name}-p")


def collector_has_seen_the_pods_of(api, name, owner):
    """Jobs and pods come to the garbage collector in two streams; one that hears of the owner's end first knows of no pod. Pods come in order: one behind them that nobody owns is gone."""
    stranger = {**owner, "metadata": {**owner["metadata"], "uid": "11111111-2222-3333-4444-555555555555"}}
    api.post(PODS, pod(f"{name}-last", owned_by(stranger))).ok(201)
    gone(api, f"{PODS}/{name}-last")


def test_orphans_stay(api, name):
    owner = api.post(JOBS, job(name)).ok(201)
    api.post(PODS, pod(f"{name}-p", owned_by(owner))).ok(201)
    collector_has_seen_the_pods_of(api, name, owner)
    api.delete(f"{JOBS}/{name}", {"propagationPolicy": "Orphan"}).ok()
    gone(api, f"{JOBS}/{name}")
    assert not api.get(f"{PODS}/{name}-p").ok()["metadata"].get("ownerReferences")


def test_in_the_foreground_the_owner_waits(api, name):
    owner = api.post(JOBS, job(name)).ok(201)
    api.post(PODS, pod(f"{name}-p", {**owned_by(owner, block=True), "finalizers": ["example.com/a"]})).ok(201)
    collector_has_seen_the_pods_of(api, name, owner)
    held = api.delete(f"{JOBS}/{name}", {"propagationPolicy": "Foreground"}).ok()["metadata"]
    assert held["deletionTimestamp"] and held["finalizers"] == ["foregroundDeletion"]
    wait_until(lambda: api.get(f"{PODS}/{name}-p").ok()["metadata"].get("deletionTimestamp"), 60, "the pod to be deleted")
    api.get(f"{JOBS}/{name}").ok()
    api.patch(f"{PODS}/{name}-p", {"metadata": {"finalizers": None}}).ok()
    gone(api, f"{PODS}/{name}-p")
    gone(api, f"{JOBS}/{name}")


def test_a_collection(api, name):
    for i in range(3):
        api.post(JOBS, job(f"{name}-{i}", {"labels": {"case": name, "n": str(i)}})).ok(201)
    answer = api.delete(JOBS, labelSelector=f"case={name},n!=1").ok()
    assert answer["kind"] == "TrainingJobList" and names(answer["items"]) == [f"{name}-0", f"{name}-2"]
    assert names(api.get(JOBS, labelSelector=f"case={name}").ok()["items"]) == [f"{name}-1"]

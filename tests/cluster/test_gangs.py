"""Gangs of kube-scheduler, on Kubernetes 1.36: its own API server, controllers and scheduler, and nodes that are only said to be there."""

import pytest
from servers import BIN, ROOT, add_node, kubeconfig, real_api, wait_until
from test_scenarios import condition, job, status

GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
NODES, CPUS = 2, 2  # places for four workers of one CPU


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gangs")
    made = None
    try:
        # podgroup-protection: a group that someone deletes stays until the last of its pods has ended.
        controllers = "--controllers=garbage-collector-controller,namespace-controller,podgroup-protection-controller"
        made = real_api(folder, (GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"), (GATES, controllers))
        made.processes.start("kube-scheduler", BIN / "kube-scheduler", f"--kubeconfig={kubeconfig(folder, 'manager')}", "--leader-elect=false", "--bind-address=127.0.0.1", GATES)
        for index in range(NODES):
            add_node(made, f"n{index}", CPUS)
        made.kubectl("apply", "-f", ROOT / "manifests/gangs.yaml")
        made.kubectl("create", "clusterrolebinding", "test-gangs", "--clusterrole=trainyard-operator-gangs", "--user=trainyard-operator")
        made.start_operator()
        yield made
    finally:
        if made:
            made.processes.stop_all()


def gang(name, workers, kind="native"):
    """Workers of one CPU."""
    made = job(name, workers=workers, scheduling={"gang": kind})
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    return made


def placed(api, name):
    return sum(bool(pod["spec"].get("nodeName")) for pod in api.pods(name).values())


def groups(api):
    return {group["metadata"]["name"] for group in api.get("podgroups")["items"]}


def waits_for(api, name, *words):
    """The condition's message, once it has all the words; until then no pod of it is placed."""
    def said():
        assert placed(api, name) == 0
        waits = condition(api, name, "Scheduled")
        return waits.get("status") == "False" and all(word in waits["message"] for word in words) and waits["message"]
    return wait_until(said, 120, f"{name} to say that it waits for {words}")


def delete_pods(api, name):
    """As a kubelet would, once it is told to."""
    told = lambda pod: pod["metadata"].get("deletionTimestamp") or pod["status"]["phase"] in ("Failed", "Succeeded")  # noqa: E731
    wait_until(lambda: all(map(told, api.pods(name).values())), what=f"the deletion of {name}'s pods")
    api.kubectl("delete", "pods", "-l", f"trainyard.dev/job-name={name}", "--force", "--grace-period=0")


def remove(api, *names):
    for name in names:
        api.kubectl("delete", "tj", name)
        delete_pods(api, name)
    wait_until(lambda: not groups(api), what="the groups to go with their jobs")


def test_without_a_gang_two_jobs_share_the_places_and_wait_for_ever(api):
    """What the others show is the gang's doing."""
    api.apply(gang("a", 3, "none"), gang("b", 3, "none"))
    wait_until(lambda: placed(api, "a") + placed(api, "b") == NODES * CPUS, what="all places to be taken")
    wait_until(lambda: len(api.pods("a")) == len(api.pods("b")) == 3, what="all pods")
    assert placed(api, "a") in (1, 2, 3) and not groups(api)
    remove(api, "a", "b")


def test_of_two_gangs_one_goes_first(api):
    api.apply(gang("c", 3), gang("d", 3))
    wait_until(lambda: {placed(api, "c"), placed(api, "d")} == {0, 3}, what="one gang to be placed")
    first, second = ("c", "d") if placed(api, "c") else ("d", "c")
    group = api.get("podgroup", f"{first}-1")
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}} and group["metadata"]["ownerReferences"][0]["name"] == first
    pods = wait_until(lambda: len(found := api.pods(second)) == 3 and found, what="the other's pods")
    assert all(pod["spec"]["schedulingGroup"] == {"podGroupName": f"{second}-1"} for pod in pods.values())
    print("the other waits:", waits_for(api, second, "0 of 3 workers are scheduled", "Insufficient cpu"))
    for rank in range(3):
        api.set_pod(f"{first}-1-{rank}", "Succeeded", code=0)
    wait_until(lambda: status(api, first).get("phase") == "Succeeded", what="the first to succeed")
    wait_until(lambda: placed(api, second) == 3 and condition(api, second, "Scheduled").get("status") == "True", what="the other, once there is room")
    wait_until(lambda: groups(api) == {f"{second}-1"}, what="the first one's group to go")
    remove(api, "c", "d")


def test_a_gang_that_does_not_fit_places_nobody(api):
    api.apply(gang("wide", NODES * CPUS + 1))
    print("it waits:", waits_for(api, "wide", "Insufficient cpu"))
    # A group that someone deletes stays, going, for the pods that name it.
    api.kubectl("delete", "podgroup", "wide-1", "--wait=false")
    print("and with its group, a minute later:", waits_for(api, "wide", "Insufficient cpu", "PodGroup wide-1: Unschedulable"))
    assert condition(api, "wide", "WorkersReady")["reason"] == "Unschedulable" and api.get("podgroup", "wide-1")["metadata"]["deletionTimestamp"]
    add_node(api, f"n{NODES}", CPUS)
    wait_until(lambda: placed(api, "wide") == NODES * CPUS + 1, what="all, once there is room")
    wait_until(lambda: condition(api, "wide", "Scheduled").get("status") == "True", what="the condition")
    remove(api, "wide")


def test_the_next_attempt_has_a_group_of_its_own(api):
    api.apply(gang("e", 3))
    wait_until(lambda: placed(api, "e") == 3, what="the gang to be placed")
    api.set_pod("e-1-1", "Failed", code=70)
    delete_pods(api, "e")
    wait_until(lambda: set(api.pods("e")) == {f"e-2-{rank}" for rank in range(3)} and placed(api, "e") == 3, what="the next attempt's gang")
    assert all(pod["spec"]["schedulingGroup"] == {"podGroupName": "e-2"} for pod in api.pods("e").values())
    wait_until(lambda: groups(api) == {"e-2"}, what="the old group to go")
    assert status(api, "e")["attempt"] == 2 and status(api, "e")["restarts"]["total"] == 1
    api.kubectl("patch", "tj", "e", "--type", "merge", "-p", '{"spec":{"suspend":true}}')
    delete_pods(api, "e")
    wait_until(lambda: not groups(api), what="the group to go with the pods of a job that is suspended")
    remove(api, "e")

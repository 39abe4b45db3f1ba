"""A scheduler that is told to fill nodes fills them with workers; nodes are only said to be there, in two zones."""

import pytest
from servers import add_node, kubeconfig, real_api, start_scheduler, wait_until
from test_scenarios import job

WORKERS, CPUS, NODES = 4, 6, 4
FILL = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packing")
    made = None
    try:
        made = real_api(folder)
        profile = {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": FILL}}]}
        start_scheduler(kubeconfig(folder, "manager"), made.processes, profiles=[profile])
        for index in range(NODES):
            name = f"n{index}"
            add_node(made, name, CPUS, {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{index % 2}"})
        made.start_operator()
        yield made
    finally:
        if made:
            made.processes.stop_all()


def nodes_of(api, name, **pod):
    """Where the scheduler puts a job's workers of one CPU."""
    made = job(name, workers=WORKERS)
    made["spec"]["template"]["spec"] |= pod
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    api.apply(made)
    placed = lambda: [node for one in api.pods(name).values() if (node := one["spec"].get("nodeName"))]  # noqa: E731
    nodes = wait_until(lambda: len(found := placed()) == WORKERS and set(found), what=f"{name}'s workers to be placed")
    api.kubectl("delete", "tj", name)  # every test begins with empty nodes
    api.kubectl("delete", "pods", "-l", f"trainyard.dev/job-name={name}", "--force", "--grace-period=0")
    wait_until(lambda: not api.pods(name), what=f"{name}'s workers to go")
    return nodes


def test_the_service_that_names_workers_does_not_spread_them(api):
    assert len(nodes_of(api, "packed")) == 1


def test_a_template_leaves_it_to_the_scheduler(api):
    """Which spreads what a service selects: so the other test can fail."""
    assert len(nodes_of(api, "spread", topologySpreadConstraints=[])) > 1

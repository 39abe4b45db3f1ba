"""/metrics and /readyz of `trainyard-operator run`: what docs/metrics.md lists is there, and moves."""

import os
import shutil
import socket
import subprocess

import pytest

import harness
from local_api import ApiOnly
from metric_tables import documented, served
from operators import JOB, JOBS, PODS, Operator


def set_pod(api, name, **status):
    code, answer = api.send("PATCH", f"{PODS}/{name}/status", {"status": status}, "application/merge-patch+json")
    assert code == 200, answer


def pod_fails(api, name, code=70):
    set_pod(api, name, phase="Failed", podIP="127.0.0.1", containerStatuses=[{"name": "trainer", "state": {"terminated": {"exitCode": code, "reason": "Error"}}}])


@pytest.fixture
def api(tmp_path):
    with ApiOnly(tmp_path / "state", harness.free_port()) as running:
        yield running


@pytest.fixture
def operator(api, tmp_path):
    with Operator(api.state / "kubeconfig", tmp_path) as running:
        harness.wait_until(running.ready, 60, "an operator that is ready")
        yield running


def test_whoever_connects_and_says_nothing_keeps_no_probe_waiting(api, operator):
    silent = [socket.create_connection(("127.0.0.1", operator.port), timeout=10) for _ in range(16)]
    try:
        for connection in silent[::2]:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")  # and nothing more
        assert operator.get("/healthz") == (200, "ok")
        assert operator.ready() and "trainyard_leader" in operator.metrics()
    finally:
        for connection in silent:
            connection.close()


def test_every_metric_is_documented_and_served(api, operator):
    assert api.send("POST", JOBS, JOB)[0] == 201
    harness.wait_until(lambda: api.send("GET", f"{PODS}/job-1-0")[0] == 200, 60, "the job's pod")
    pod_fails(api, "job-1-0")
    harness.wait_until(lambda: any(name.startswith("trainyard_job_restarts_total") for name in operator.metrics()), 60, "a restart")
    # Nothing restarts a wrong command line.
    assert api.send("POST", JOBS, {**JOB, "metadata": {"name": "wrong", "namespace": "default"}})[0] == 201
    harness.wait_until(lambda: api.send("GET", f"{PODS}/wrong-1-0")[0] == 200, 60, "the other job's pod")
    pod_fails(api, "wrong-1-0", code=127)
    failures = 'trainyard_job_failures_total{reason="CommandNotFound"}'
    harness.wait_until(lambda: operator.metrics().get(failures) == 1, 60, "a failure")
    assert served(operator.get("/metrics")[1]) == documented("The operator's")


def test_promtool_accepts_what_is_served(operator):
    promtool = shutil.which(os.environ.get("TRAINYARD_PROMTOOL", "promtool"))
    if not promtool:
        pytest.skip("promtool is not there; `make deps` brings it from Debian's package prometheus")
    result = subprocess.run([promtool, "check", "metrics"], input=operator.get("/metrics")[1], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and not result.stdout + result.stderr, result.stdout + result.stderr


def test_what_waits_for_its_start_is_told(api, operator):
    """And by what: for a node, for its workers; not what a queue holds back."""
    def waits():
        metrics = operator.metrics()
        return [metrics[f'trainyard_job_start_wait_seconds{{stage="{stage}"}}'] > 0 for stage in ("scheduling", "starting")]

    def becomes(expected, what):
        harness.wait_until(lambda: waits() == expected, 30, what)

    assert waits() == [False, False], "there is no job"
    api.send("POST", JOBS, JOB)
    harness.wait_until(lambda: api.send("GET", f"{PODS}/job-1-0")[0] == 200, 60, "the job's pod")
    becomes([True, False], "one that has no node")
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    set_pod(api, "job-1-0", conditions=[gated])
    becomes([False, False], "one that a queue holds back")
    set_pod(api, "job-1-0", conditions=[{"type": "PodScheduled", "status": "True"}])
    becomes([False, True], "one that has a node, and does not run")
    set_pod(api, "job-1-0", phase="Running", podIP="127.0.0.1", conditions=[{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}])
    becomes([False, False], "one that runs")


def test_they_move(api, operator):
    before = operator.metrics()
    assert before["trainyard_leader"] == 1
    assert before['trainyard_cached_objects{resource="trainingjobs"}'] == 0
    api.send("POST", JOBS, JOB)
    held = harness.wait_until(lambda: (lambda m: m if m['trainyard_cached_objects{resource="pods"}'] == 1 else None)(operator.metrics()), 60, "the job's pod in the cache")
    for resource in ("trainingjobs", "pods"):
        assert held[f'trainyard_cached_bytes{{resource="{resource}"}}'] > 100, resource
    pod_fails(api, "job-1-0")
    restarted = 'trainyard_job_restarts_total{reason="ExitCode70",charged="true"}'
    after = harness.wait_until(lambda: (lambda m: m if m.get(restarted) == 1 else None)(operator.metrics()), 60, "a restart")
    assert sum(value for name, value in after.items() if name.startswith("trainyard_jobs{")) == 1
    for name in ('trainyard_reconcile_seconds_count{outcome="ok"}', 'trainyard_reconcile_seconds_sum{outcome="ok"}', "trainyard_queue_wait_seconds_count"):
        assert after[name] > before[name], name
    for verb, code in (("GET", "200"), ("POST", "201"), ("PATCH", "200"), ("DELETE", "200"), ("WATCH", "200")):
        name = f'trainyard_request_seconds_count{{verb="{verb}",code="{code}"}}'
        harness.wait_until(lambda name=name: operator.metrics().get(name), 60, name)
    name = 'trainyard_queue_wait_seconds_bucket{le="+Inf"}'
    assert after[name] == after["trainyard_queue_wait_seconds_count"]


def test_an_api_that_is_gone_is_in_readyz_and_in_the_metrics(tmp_path):
    port = harness.free_port()
    with ApiOnly(tmp_path / "state", port) as api:
        with Operator(api.state / "kubeconfig", tmp_path) as operator:
            harness.wait_until(operator.ready, 60, "an operator that is ready")
            assert operator.get("/readyz") == (200, "ok")
            calm = operator.metrics()
            assert calm['trainyard_watch_failing_seconds{resource="pods"}'] == 0
            api.process.kill()
            code, reason = harness.wait_until(lambda: (lambda a: a if a and a[0] == 503 else None)(operator.get("/readyz")), 120, "an operator that is not ready")
            assert "watch" in reason and "API server" in reason, reason
            assert operator.get("/healthz") == (200, "ok")
            # /readyz speaks as soon as one watch has failed for ten seconds; the other may have begun to fail a moment later.
            failing = 'trainyard_watch_failing_seconds{resource="pods"}'
            troubled = harness.wait_until(lambda: (lambda m: m if m.get(failing, 0) >= 10 else None)(operator.metrics()), 10, failing)
            assert troubled['trainyard_watch_idle_seconds{resource="pods"}'] >= 10
            assert troubled['trainyard_watch_errors_total{resource="pods"}'] > calm['trainyard_watch_errors_total{resource="pods"}']
            # Before a watch of a server that went it is asked how far it has come.
            assert troubled['trainyard_request_seconds_count{verb="GET",code="none"}'] > 0
            assert "the watch fails" in operator.said()


def test_not_ready_before_the_caches_are_whole(tmp_path):
    """A server that takes connections and says nothing."""
    with ApiOnly(tmp_path / "state") as api, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text((api.state / "kubeconfig").read_text().replace(api.server, f"https://127.0.0.1:{silent.getsockname()[1]}"))
        with Operator(kubeconfig, tmp_path) as operator:
            harness.wait_until(lambda: operator.get("/healthz") == (200, "ok"), 60, "an operator that is alive")
            assert operator.get("/readyz") == (503, "the caches have not had their first lists")
            assert operator.metrics()['trainyard_reconcile_seconds_count{outcome="ok"}'] == 0


@pytest.mark.parametrize("arguments, code, words", [
    (["--listen", "8080"], 64, "--listen: 8080 is not allowed; allowed: address:port"),
    (["--listen", "127.0.0.1:8080", "--api-only"], 2, "with --api-only there is none"),
])
def test_a_place_for_the_metrics_of_local_that_cannot_be(tmp_path, arguments, code, words):
    result = harness.run("local", "--serve", 0, "--state-dir", tmp_path / "state", *arguments, program=harness.OPERATOR, timeout=30)
    assert result.returncode == code and words in result.stderr, result.stderr


def test_a_port_in_use_is_named_by_local(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = harness.run("local", "--serve", 0, "--state-dir", tmp_path / "state", "--listen", address, program=harness.OPERATOR, timeout=30)
    assert result.returncode == 69 and f"--listen: {address}" in result.stderr, result.stderr

"""Start, memory and pod rate of `trainyard-operator run` against the in-memory API on this machine.

usage: operator_rates.py [--runs N] [--jobs J] [--workers W]

The API runs in a process of its own (`local --api-only`), without an agent: pods stay objects. The rate counts from the
first job's creation until the API holds every pod. The same pods are then created directly, over as many connections as
the operator uses, by a client without any logic: what the API alone takes.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import ssl
import statistics
import subprocess
import tempfile
import threading
import time

OPERATOR = os.environ.get("TRAINYARD_OPERATOR_BIN", "build/release/bin/trainyard-operator")
JOBS = "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
CONNECTIONS = 16


class Api:
    """One connection a thread, kept open."""

    def __init__(self, kubeconfig):
        text = dict(line.strip().split(": ", 1) for line in kubeconfig.read_text().splitlines() if ": " in line and "{" not in line)
        self.port, self.token = int(text["server"].rsplit(":", 1)[1]), text["token"]
        self.context = ssl._create_unverified_context()  # loopback, and the token says who we are
        self.local = threading.local()

    def send(self, method, path, body=None):
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=60)
        self.local.connection.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
        answer = self.local.connection.getresponse()
        data = answer.read()
        assert answer.status < 300, data
        return json.loads(data)

    def version(self):
        """The counter that every write advances, without reading any object."""
        return int(self.send("GET", PODS + "?labelSelector=none=none")["metadata"]["resourceVersion"])

    def count_pods(self):
        return len(self.send("GET", PODS)["items"])


def job(name, workers):
    container = {"name": "trainer", "image": "trainyard-trainer", "command": ["trainyard", "launch"]}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {"workers": workers, "template": {"spec": {"containers": [container]}}}}


def memory(pid):
    fields = dict(line.split(":") for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "RssFile")}


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(condition, what, seconds=120, tick=0.002):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(tick)


def ready(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False


def metric(port, name):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/metrics")
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[-1])
    raise KeyError(name)


def one_run(folder, options, port):
    api_process = subprocess.Popen([OPERATOR, "local", "--api-only", "--serve", "0", "--quiet", "--state-dir", folder / "state"], stderr=subprocess.DEVNULL)
    operator = None
    try:
        kubeconfig = folder / "state" / "kubeconfig"
        wait_for(kubeconfig.exists, "the API")
        api = Api(kubeconfig)
        wait_for(lambda: api.version() > 0, "the API")
        start = time.monotonic()
        operator = subprocess.Popen([OPERATOR, "run", "--kubeconfig", kubeconfig, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        wait_for(lambda: ready(port), "the operator")
        ready_ms = 1000 * (time.monotonic() - start)
        time.sleep(2)
        idle = memory(operator.pid)

        before = cpu_seconds(operator.pid)
        start = time.monotonic()
        for i in range(options.jobs):
            api.send("POST", JOBS, job(f"job{i}", options.workers))
        total = options.jobs * options.workers
        wait_for(lambda: metric(port, 'trainyard_cached_objects{resource="pods"}') >= total, "the pods", tick=0.02)
        seconds = time.monotonic() - start
        assert api.count_pods() == total
        cpu = cpu_seconds(operator.pid) - before
        loaded = memory(operator.pid)
        operator.terminate()
        operator.wait(20)
        operator = None

        # The same objects again, by nobody in particular.
        pods = [pod for pod in api.send("GET", PODS)["items"]]
        for pod in pods:
            pod["metadata"] = {k: pod["metadata"][k] for k in ("labels", "annotations", "ownerReferences") if k in pod["metadata"]} | {"name": "direct-" + pod["metadata"]["name"]}
            pod.pop("status")
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(lambda pod: api.send("POST", PODS, pod), pods))
        direct = time.monotonic() - start
        return {"ready_ms": ready_ms, "idle": idle, "rate": total / seconds, "direct_rate": total / direct, "cpu": 1000 * cpu / total, "loaded": loaded}
    finally:
        for process in (operator, api_process):
            if process:
                process.terminate()
                process.wait(20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--port", type=int, default=18090, help="of the operator's /readyz and /metrics")
    options = parser.parse_args()
    runs = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as name:
            runs.append(one_run(pathlib.Path(name), options, options.port))

    def line(what, values, unit):
        print(f"{what:48} median {statistics.median(values):7.1f} {unit} ({min(values):.1f}-{max(values):.1f})")

    print(f"{options.runs} runs, {options.jobs} jobs of {options.workers} workers")
    line("exec to ready", [r["ready_ms"] for r in runs], "ms")
    for name, what in (("VmRSS", "resident, idle"), ("RssAnon", "  of it anonymous"), ("RssFile", "  of it files")):
        line(what, [r["idle"][name] for r in runs], "MiB")
    line("pods created", [r["rate"] for r in runs], "pods/s")
    line("the same pods, created directly", [r["direct_rate"] for r in runs], "pods/s")
    line("the operator's processor time per 1,000 pods", [r["cpu"] for r in runs], "s")
    line("resident, with all pods", [r["loaded"]["VmRSS"] for r in runs], "MiB")


main()

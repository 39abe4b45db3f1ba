"""Jobs of many workers, memory with many pods, starts: `trainyard-operator run` on a real control plane with kwok's nodes.

usage: run.sh [--quick] [SCENARIO...]     scenarios: one (1 x 1,000), many (100 x 10), large (10 x 1,000; then memory and starts)

Each rate stands beside the same pods created directly in the same run, over 8 connections, by a client without any logic:
what the API server, the scheduler and kwok take by themselves. --quick: a tenth of it.
"""

import argparse
import http.client
import os
import pathlib
import subprocess
import tempfile
import time

import servers
from cluster import JOBS, PODS, Cluster, PodWatch, requests_of

OPERATOR = os.environ["TRAINYARD_OPERATOR_BIN"]
PORT = 18090
MANAGED = "trainyard.dev/managed%3Dtrue"
LONGEST = 1800


def job(name, workers):
    container = {"name": "trainer", "image": "trainyard-trainer", "command": ["trainyard", "launch"], "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {"workers": workers, "template": {"spec": {"containers": [container]}}}}


def metric(name):
    """The sum over all labels, and None while nobody answers."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    except OSError:
        return None
    return sum(float(line.split()[-1]) for line in lines if line.startswith((name + " ", name + "{")))


class Operator:
    def __init__(self, cluster):
        self.log = open(cluster.folder / "operator.log", "ab")
        self.began = time.monotonic()
        self.process = subprocess.Popen([OPERATOR, "run", "--kubeconfig", cluster.api.operator_kubeconfig, "--listen", f"127.0.0.1:{PORT}"], stdout=self.log, stderr=self.log)

    def wait_for(self, condition, what):
        """Seconds from the start of the process."""
        deadline = time.monotonic() + 120
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline, f"the operator: {what}"
            time.sleep(0.002)
        return time.monotonic() - self.began

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        fields = dict(line.split(":") for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def show(seconds):
    return "not reached" if seconds is None else f"{seconds:.1f} s"


def since(start, at):
    return None if at is None else at - start


def measure(cluster, operator, jobs, workers):
    """One line for the operator, one for nobody."""
    total = jobs * workers
    _, place = requests_of(cluster.audit, 0)
    cpu = operator.cpu()
    watch = PodWatch(cluster, MANAGED, total)
    start = time.monotonic()
    cluster.send_all([("POST", JOBS, job(f"job{i}", workers)) for i in range(jobs)])
    watch.wait(LONGEST)
    time.sleep(5)  # for the last status
    cpu, memory = operator.cpu() - cpu, operator.memory()
    counts, _ = requests_of(cluster.audit, place)
    print(f"{jobs} x {workers}: operator: exist {show(since(start, watch.exist_at))}, running {show(since(start, watch.run_at))}, CPU {cpu:.2f} s ({1000 * cpu / total:.2f} s per 1,000 pods), "
          f"RSS {memory['VmRSS']:.1f} MB, peak {memory['VmHWM']:.1f} MB", flush=True)
    print(f"    requests a job beside its {workers} pods: {(sum(counts.values()) - counts['create pods']) / jobs:.1f}; all: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()), flush=True)
    return cluster.send("GET", f"{PODS}?limit=1&labelSelector={MANAGED}")["items"][0]


def measure_direct(cluster, pod, jobs, workers):
    """The operator's own pods again, under other names, without an owner."""
    labels = pod["metadata"]["labels"] | {"trainyard.dev/managed": "false"}
    spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "hostname")}
    total = jobs * workers
    watch = PodWatch(cluster, "trainyard.dev/managed%3Dfalse", total)
    start = time.monotonic()
    cluster.send_all([("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": f"direct-{i}", "labels": labels, "annotations": pod["metadata"]["annotations"]}}) for i in range(total)])
    watch.wait(LONGEST)
    print(f"{jobs} x {workers}: direct:   exist {show(since(start, watch.exist_at))}, running {show(since(start, watch.run_at))}", flush=True)


def measure_rate(cluster, jobs, workers, keep=False):
    operator = Operator(cluster)
    operator.wait_for(lambda: metric("trainyard_cached_objects") is not None, "its metrics")
    pod = measure(cluster, operator, jobs, workers)
    operator.stop()
    if not keep:
        cluster.clear()
        measure_direct(cluster, pod, jobs, workers)
        cluster.clear()
    return pod


def measure_start(cluster, what):
    operator = Operator(cluster)
    ready = operator.wait_for(lambda: metric("trainyard_reconcile_seconds_count"), "its first reconcile")
    time.sleep(10)
    memory = operator.memory()
    print(f"start {what}: first reconcile after {1000 * ready:.0f} ms; RSS {memory['VmRSS']:.1f} MB, peak {memory['VmHWM']:.1f} MB, CPU {operator.cpu():.2f} s", flush=True)
    return operator


def measure_large(cluster, jobs, workers, foreign):
    pod = measure_rate(cluster, jobs, workers, keep=True)
    measure_start(cluster, f"with {jobs * workers} managed pods").stop()
    # They only have to be there: nobody schedules them.
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"} | {"schedulerName": "nobody"}
    cluster.send_all([("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": f"foreign-{i}", "labels": {"app": "foreign"}}}) for i in range(foreign)])
    measure_start(cluster, f"with {foreign} foreign pods beside them").stop()
    cluster.clear()
    measure_direct(cluster, pod, jobs, workers)
    cluster.clear()


def measure_idle(cluster):
    cluster.send("POST", JOBS, job("idle", 1))
    measure_start(cluster, "with one job").stop()
    cluster.clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("scenario", nargs="*", choices=[[], "one", "many", "large"])
    options = parser.parse_args()
    part = 10 if options.quick else 1
    chosen = options.scenario or ["one", "many", "large"]
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(pathlib.Path(name))
        try:
            measure_idle(cluster)
            if "one" in chosen:
                measure_rate(cluster, 1, 1000 // part)
            if "many" in chosen:
                measure_rate(cluster, 100 // part, 10)
            if "large" in chosen:
                measure_large(cluster, 10, 1000 // part, 20000 // part)
        except BaseException:
            for log in ("operator", "kwok", "kube-scheduler"):
                print(f"--- {log}\n" + (cluster.folder / f"{log}.log").read_text()[-3000:] if (cluster.folder / f"{log}.log").exists() else "")
            raise
        finally:
            cluster.close()


main()

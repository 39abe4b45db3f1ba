"""Jobs of many workers, memory with many pods, starts: `trainyard-operator run` on a real control plane with kwok's nodes.

usage: run.sh [--quick] [--rounds N] [SCENARIO...]

scenarios: one    a job of 1,000 workers
           many   100 jobs of 10
           large  10 jobs of 1,000, then the memory with those pods, after a restart, and beside 20,000 pods of others
           soak   jobs that come, are suspended, lose a pod and go, for --minutes; only when it is named

Each rate stands beside the same pods created directly in the same run (by turns; large: once, before), over 8 connections, by a client without
any logic: what the API server, the scheduler and kwok take by themselves. --quick: a tenth of it.
"""

import argparse
import http.client
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import servers
from cluster import JOBS, PODS, SERVICES, Cluster, PodWatch, cpu_of, requests_of

OPERATOR = os.environ["TRAINYARD_OPERATOR_BIN"]
PORT = 18090
MANAGED = "trainyard.dev/managed%3Dtrue"
RANK = "trainyard.dev/rank"
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
        return cpu_of(self.process.pid)

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


def show_cpu(cluster, before):
    """Where the processors went, by program: the machine is shared by all of them."""
    spent = {name: seconds - before.get(name, 0) for name, seconds in cluster.cpu().items()}
    return "    CPU: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in sorted(spent.items(), key=lambda item: -item[1]))


def measure(cluster, operator, jobs, workers):
    """The operator's line, and what it sent. Returns when all pods were there, and when they ran."""
    total = jobs * workers
    _, place = requests_of(cluster.audit, 0)
    cpu, others, before = operator.cpu(), cluster.cpu(), metric("trainyard_reconcile_seconds_count")
    watch = PodWatch(cluster, MANAGED, total)
    start = time.monotonic()
    cluster.send_all([("POST", JOBS, job(f"job{i}", workers)) for i in range(jobs)])
    watch.wait(LONGEST)
    used = show_cpu(cluster, others)
    time.sleep(5)  # for the last status
    cpu, memory = operator.cpu() - cpu, operator.memory()
    reconciles = metric("trainyard_reconcile_seconds_count") - before
    counts, _ = requests_of(cluster.audit, place)
    print(f"{jobs} x {workers}: operator: exist {show(since(start, watch.exist_at))}, running {show(since(start, watch.run_at))}, CPU {cpu:.2f} s ({1000 * cpu / total:.2f} s per 1,000 pods), "
          f"RSS {memory['VmRSS']:.1f} MB, peak {memory['VmHWM']:.1f} MB, {reconciles:.0f} reconciles\n{used}", flush=True)
    print(f"    requests a job beside its {workers} pods: {(sum(counts.values()) - counts['create pods']) / jobs:.1f}; all: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()), flush=True)
    return since(start, watch.exist_at), since(start, watch.run_at)


def a_pod(cluster):
    return cluster.send("GET", f"{PODS}?limit=1&labelSelector={MANAGED}")["items"][0]


def copies(services, i):
    """Requests for a job's services, under other names, which stand for job i of the pods created directly."""
    for service in services:
        spec = {key: value for key, value in service["spec"].items() if key not in ("clusterIP", "clusterIPs") or value in ("None", ["None"])}
        selector = {"direct": str(i)} | {key: value for key, value in spec["selector"].items() if key == RANK}
        yield "POST", SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"direct-{service['metadata']['name']}-{i}"}, "spec": spec | {"selector": selector}}


def measure_direct(cluster, pod, jobs, workers, services=()):
    """The operator's own pods again, under other names, without an owner; `services`: what each job has of them as well.
    Returns as measure does."""
    labels = pod["metadata"]["labels"] | {"trainyard.dev/managed": "false"}
    spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "hostname")}
    total = jobs * workers
    others = cluster.cpu()
    watch = PodWatch(cluster, "trainyard.dev/managed%3Dfalse", total)
    start = time.monotonic()
    requests = []
    for i in range(total):
        if i % workers == 0:
            requests += copies(services, i // workers)
        mine = labels | {"direct": str(i // workers), RANK: str(i % workers)}
        requests.append(("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": f"direct-{i}", "labels": mine, "annotations": pod["metadata"].get("annotations", {})}}))
    cluster.send_all(requests)
    watch.wait(LONGEST)
    print(f"{jobs} x {workers}: direct{', and services' if services else ''}:   exist {show(since(start, watch.exist_at))}, running {show(since(start, watch.run_at))}\n{show_cpu(cluster, others)}", flush=True)
    return since(start, watch.exist_at), since(start, watch.run_at)


def warm(cluster, workers):
    """The operator, a pod and the services of a first job, which is gone: what comes first, while the API server is cold, is a third slower."""
    operator = Operator(cluster)
    operator.wait_for(lambda: metric("trainyard_cached_objects") is not None, "its metrics")
    cluster.send("POST", JOBS, job("warm", min(200, workers)))
    servers.wait_until(lambda: cluster.send("GET", f"{JOBS}/warm").get("status", {}).get("phase") == "Running", 300, "the first job to run")
    pod = a_pod(cluster)
    services = [service for service in cluster.send("GET", SERVICES)["items"] if service["metadata"].get("ownerReferences")]
    cluster.clear()
    return operator, pod, services


def measure_rate(cluster, jobs, workers, rounds):
    """The operator and nobody, by turns."""
    operator, pod, services = warm(cluster, jobs * workers)
    mine, direct, whole = [], [], []
    for _ in range(rounds):
        mine.append(measure(cluster, operator, jobs, workers))
        cluster.clear()
        direct.append(measure_direct(cluster, pod, jobs, workers))
        cluster.clear()
        whole.append(measure_direct(cluster, pod, jobs, workers, services))
        cluster.clear()
    operator.stop()
    for what, ours, pods, all in zip(("exist", "running"), zip(*mine), zip(*direct), zip(*whole)):
        if None not in ours + pods + all:
            print(f"{jobs} x {workers}: {what}: operator / direct = {sum(ours) / sum(pods):.2f}, with the services {sum(ours) / sum(all):.2f}, over {rounds} rounds", flush=True)


def measure_start(cluster, what):
    operator = Operator(cluster)
    ready = operator.wait_for(lambda: metric("trainyard_reconcile_seconds_count"), "its first reconcile")
    time.sleep(10)
    memory = operator.memory()
    print(f"start {what}: first reconcile after {1000 * ready:.0f} ms; RSS {memory['VmRSS']:.1f} MB, peak {memory['VmHWM']:.1f} MB, CPU {operator.cpu():.2f} s", flush=True)
    return operator


def measure_large(cluster, jobs, workers, foreign):
    operator, pod, _ = warm(cluster, jobs * workers)
    measure_direct(cluster, pod, jobs, workers)
    cluster.clear()
    measure(cluster, operator, jobs, workers)
    operator.stop()
    measure_start(cluster, f"with {jobs * workers} managed pods").stop()
    # They only have to be there: nobody schedules them.
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"} | {"schedulerName": "nobody"}
    cluster.send_all([("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": f"foreign-{i}", "labels": {"app": "foreign"}}}) for i in range(foreign)])
    measure_start(cluster, f"with {foreign} foreign pods beside them").stop()
    cluster.clear()


def phases(cluster, jobs):
    return {cluster.send("GET", f"{JOBS}/{name}").get("status", {}).get("phase") for name in jobs}


def live(cluster, number):
    """Jobs from their beginning to their end: three that only run, one that is suspended and resumed, one that loses a pod."""
    jobs = [f"soak{number}-{i}" for i in range(5)]
    for name in jobs:
        cluster.send("POST", JOBS, job(name, 20))
    reach = lambda names, phase: servers.wait_until(lambda: phases(cluster, names) == {phase}, 300, f"{names} to be {phase}")
    reach(jobs, "Running")
    cluster.send("PATCH", f"{JOBS}/{jobs[0]}", {"spec": {"suspend": True}})
    cluster.send("DELETE", f"{PODS}/{jobs[1]}-1-7")
    reach(jobs[:1], "Suspended")
    cluster.send("PATCH", f"{JOBS}/{jobs[0]}", {"spec": {"suspend": False}})
    servers.wait_until(lambda: cluster.send("GET", f"{JOBS}/{jobs[1]}")["status"]["attempt"] == 2, 300, "another attempt")
    reach(jobs, "Running")
    for name in jobs:
        cluster.send("DELETE", f"{JOBS}/{name}", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
    servers.wait_until(lambda: cluster.count(MANAGED) == 0, 300, "the pods to go")


def measure_soak(cluster, minutes):
    """One operator for so long: whether it grows."""
    operator = Operator(cluster)
    operator.wait_for(lambda: metric("trainyard_cached_objects") is not None, "its metrics")
    began, told, number = time.monotonic(), -60.0, 0
    while time.monotonic() - began < 60 * minutes:
        live(cluster, number)
        number += 1
        if time.monotonic() - told >= 60:
            told = time.monotonic()
            of = pathlib.Path(f"/proc/{operator.process.pid}")
            memory = operator.memory()
            print(f"soak: {(told - began) / 60:.1f} min, {5 * number} jobs: RSS {memory['VmRSS']:.1f} MB, peak {memory['VmHWM']:.1f} MB, {len(list((of / 'fd').iterdir()))} descriptors, "
                  f"{len(list((of / 'task').iterdir()))} threads, CPU {operator.cpu():.1f} s", flush=True)
    operator.stop()


def measure_idle(cluster):
    cluster.send("POST", JOBS, job("idle", 1))
    measure_start(cluster, "with one job").stop()
    cluster.clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("scenario", nargs="*", choices=[[], "one", "many", "large", "soak"])
    parser.add_argument("--minutes", type=float, default=30)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # not without ending what it has started
    part = 10 if options.quick else 1
    chosen = options.scenario or ["one", "many", "large"]
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(pathlib.Path(name))
        try:
            measure_idle(cluster)
            if "one" in chosen:
                measure_rate(cluster, 1, 1000 // part, options.rounds)
            if "many" in chosen:
                measure_rate(cluster, 100 // part, 10, options.rounds)
            if "large" in chosen:
                measure_large(cluster, 10, 1000 // part, 20000 // part)
            if "soak" in chosen:
                measure_soak(cluster, options.minutes)
        except BaseException:
            for log in ("operator", "kwok", "kube-scheduler"):
                print(f"--- {log}\n" + (cluster.folder / f"{log}.log").read_text()[-3000:] if (cluster.folder / f"{log}.log").exists() else "")
            raise
        finally:
            cluster.close()


main()

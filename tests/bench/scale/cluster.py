"""A control plane, nodes that only kwok knows of, and connections to them."""

import collections
import http.client
import json
import math
import os
import pathlib
import queue
import ssl
import threading
import time

import servers

BIN = pathlib.Path(os.environ["CLUSTER_BIN"])
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
JOBS = "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs"
NODES = 25
IDLE_SECONDS = 30
CAPACITY = {"cpu": "4000", "memory": "64Ti", "pods": "2000"}
# Of everyone who creates pods, so that it costs all the same, once it is answered.
AUDIT = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, users: [trainyard-operator, admin]}
- {level: None}
"""


def cpu_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Without the controller that takes it away again, every node would keep the taint that it is not ready.
class Cluster:
    def __init__(self, folder):
        self.folder, self.audit = folder, folder / "audit.log"
        (folder / "audit.yaml").write_text(AUDIT)
        self.api = servers.real_api(folder, [f"--audit-policy-file={folder}/audit.yaml", f"--audit-log-path={self.audit}", "--audit-log-mode=blocking", "--disable-admission-plugins=TaintNodesByCondition", "--max-requests-inflight=800",
                                             "--max-mutating-requests-inflight=400"])
        self.context = ssl.create_default_context(cafile=folder / "ca.crt")
        self.local = threading.local()
        config = servers.kubeconfig(folder, "manager")
        self.start("kube-scheduler", f"--kubeconfig={config}", "--leader-elect=false", "--bind-address=127.0.0.1", "--kube-api-qps=1000", "--kube-api-burst=2000")
        # Long leases: what keeps nodes alive shall not be what is measured.
        self.start("kwok", "--kubeconfig", config, "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--node-lease-duration-seconds=600", "--cidr=10.128.0.1/9", "--node-ip=10.250.0.1",
                   "--server-address=127.0.0.1:10247")
        for i in range(NODES):
            self.send("POST", "/api/v1/nodes", {
                "apiVersion": "v1", "kind": "Node", "status": {"capacity": CAPACITY, "allocatable": CAPACITY},
                "metadata": {"name": f"fake-{i}", "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"kubernetes.io/hostname": f"fake-{i}"}}})
        servers.wait_until(lambda: all(any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", [])) for n in self.send("GET", "/api/v1/nodes")["items"]),
                           120, "the nodes")

    def start(self, name, *args):
        return self.api.processes.start(name, BIN / name, *args)

    def close(self):
        self.api.processes.stop_all()

    def cpu(self):
        """Seconds that each program has used so far; this one is the client."""
        used = {name: cpu_of(process.pid) for name, process in self.api.processes.running if process.poll() is None}
        return used | {"client": cpu_of(os.getpid())}

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", 6443, context=self.context, timeout=600)

    def send(self, method, path, body=None, may_be_late=False):
        """One connection a thread, kept open; the server closes what was idle for some time. `may_be_late`: 504, of what it does not get through, is an answer."""
        if time.monotonic() - getattr(self.local, "used", -math.inf) >= IDLE_SECONDS:
            self.local.connection = self.connect()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        self.local.connection.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": "Bearer admin", "Content-Type": kind})
        answer = self.local.connection.getresponse()
        data = answer.read()
        self.local.used = time.monotonic()
        assert answer.status < 300 or answer.status == 404 or (may_be_late and answer.status == 504), (method, path, data[:500])
        return json.loads(data)

    def send_all(self, requests, connections=8):
        waiting, failures = queue.SimpleQueue(), []
        for request in requests:
            waiting.put(request)

        def work():
            while not failures:
                try:
                    self.send(*waiting.get_nowait())
                except queue.Empty:
                    return
                except Exception as error:  # noqa: BLE001 - it is raised below, in the thread that waits
                    failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(connections)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as stopped:
            failures.append(stopped)  # the others stop as well, and not after the last of ten thousand
            raise
        if failures:
            raise failures[0]

    def count(self, selector):
        page = self.send("GET", f"{PODS}?limit=1&labelSelector={selector}")
        return len(page["items"]) + page["metadata"].get("remainingItemCount", 0)

    def delete_pods(self):
        """Whether none is left. Of tens of thousands the server does not get through within a request's minute."""
        try:
            self.send("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}, may_be_late=True)
        except (OSError, http.client.HTTPException):  # also in the middle of its answer
            self.local.used = -math.inf  # it closes the connection
        return not self.send("GET", f"{PODS}?limit=1")["items"]

    def clear(self):
        """No jobs and no pods: the operator's own way takes a grace period."""
        self.send("DELETE", f"{JOBS}?propagationPolicy=Background")
        servers.wait_until(lambda: not self.send("GET", JOBS)["items"], 300, "the jobs to go")
        servers.wait_until(self.delete_pods, 600, "the pods to go")
        for service in self.send("GET", SERVICES)["items"]:
            if service["metadata"]["name"] != "kubernetes":
                self.send("DELETE", f"{SERVICES}/{service['metadata']['name']}")


def after(line, key):
    at = line.find(key) + len(key)
    return line[at:line.find(b'"', at)]


class PodWatch(threading.Thread):
    """When the n-th pod of a selector was seen, and the n-th that runs. Reads no JSON: it shall cost little."""

    def __init__(self, cluster, selector, total):
        super().__init__(daemon=True)
        self.cluster, self.selector, self.total = cluster, selector, total
        self.names, self.running = set(), set()
        self.exist_at = self.run_at = self.failure = None
        self.done = threading.Event()
        self.version = cluster.send("GET", f"{PODS}?limit=1")["metadata"]["resourceVersion"]
        self.start()

    def lines(self):
        """Of streams one behind the other: the server closes those that it finds too slow."""
        while True:
            connection = self.cluster.connect()
            connection.request("GET", f"{PODS}?watch=1&labelSelector={self.selector}&resourceVersion={self.version}&timeoutSeconds=3600", headers={"Authorization": "Bearer admin"})
            stream, rest = connection.getresponse(), b""
            while piece := stream.read1(1 << 20):
                *whole, rest = (rest + piece).split(b"\n")
                yield from whole

    def run(self):
        for line in self.lines():
            if b'"type":"ERROR"' in line[:40]:
                self.failure = line
                break
            self.version = after(line, b'"resourceVersion":"').decode()
            name = after(line, b'"name":"')
            self.names.add(name)
            if b'"phase":"Running"' in line:
                self.running.add(name)
            if len(self.names) >= self.total and not self.exist_at:
                self.exist_at = time.monotonic()
            if len(self.running) >= self.total:
                self.run_at = time.monotonic()
                break
        self.done.set()

    def wait(self, seconds):
        """Seconds are a bound, not a measure. What was not reached stays None."""
        self.done.wait(seconds)
        assert not self.failure, self.failure


def requests_of(audit, since):
    """Requests by verb and resource since that place in the log, and the place where it ends now."""
    counts = collections.Counter()
    with open(audit, "rb") as log:
        log.seek(since)
        for line in log:
            event = json.loads(line)
            if event["user"]["username"] != "trainyard-operator":
                continue
            what = event.get("objectRef", {})
            name = what.get("resource", event["requestURI"]) + ("/" + what["subresource"] if "subresource" in what else "")
            counts[event["verb"] + " " + name + (" (dry run)" if "dryRun" in event["requestURI"] else "")] += 1
        return counts, log.tell()

"""A TrainingJob that `local` runs, and a Prometheus that scrapes its workers and the operator as the chart's monitors would."""

import json
import os
import pathlib
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

import harness
from local_api import ApiOnly
from operators import JOBS, PODS
from promql import RULES

NAME, NAMESPACE = "dark-room", "default"
BACKOFF = {"initialSeconds": 1, "maxSeconds": 1}


def prometheus_program():
    program = shutil.which(os.environ.get("TRAINYARD_PROMETHEUS", "prometheus"))
    if not program:
        pytest.skip("prometheus is not there; `make deps` takes it out of Debian's package")
    return program


def training_job(data):
    """Two workers of two ranks, that evaluate, save, and never end."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, batch={"global": 16}, train={"steps": 10**5, "eval_every": 500}, checkpoint={"every": 400}, metrics={"peak_tflops": 0.01})
    container = {"name": "trainer", "image": "trainyard-trainer", "command": ["trainyard", "launch"]}
    return {
        "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "workers": 2, "procsPerWorker": 2, "config": config, "checkpoint": {"volume": {"persistentVolumeClaim": {"claimName": NAME}}},
            "restart": {"backoff": BACKOFF}, "template": {"spec": {"containers": [container]}},
        },
    }


# Nothing mends a command that is not there.
WRONG = {
    "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "wrong", "namespace": NAMESPACE},
    "spec": {"workers": 1, "template": {"spec": {"containers": [{"name": "trainer", "image": "example.com/image", "command": ["sh", "-c", "exit 127"]}]}}},
}


class Observed:
    """For a with-statement; `folder` holds everything, `data` is the data set of the job."""

    def __init__(self, folder, data):
        self.folder, self.data = folder, data
        self.operator_port, self.port = harness.free_port(), harness.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.targets = folder / "state/prometheus.json"  # which `local` keeps
        self.processes = []

    def start(self, command, log, **environment):
        with open(self.folder / log, "wb") as output:
            process = subprocess.Popen([str(word) for word in command], stdout=output, stderr=output, env=harness.environment(**environment))
        self.processes.append(process)
        return process

    def __enter__(self):
        program = prometheus_program()
        try:
            job = self.folder / "job.json"
            job.write_text(json.dumps(training_job(self.data)))
            state = self.folder / "state"
            self.start([harness.OPERATOR, "local", "-f", job, "--state-dir", state, "--serve", 0, "--listen", f"127.0.0.1:{self.operator_port}"], "local.log")
            harness.wait_until((state / "kubeconfig").exists, 20, "the API of local")
            self.api = ApiOnly(state).connect()
            config = self.folder / "prometheus.yml"
            config.write_text(yaml.safe_dump(self.scrapes()))
            self.begun = time.time()
            self.start([program, f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self.port}"], "prometheus.log")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def scrapes(self):
        operator = {"targets": [f"127.0.0.1:{self.operator_port}"], "labels": {"namespace": NAMESPACE, "pod": "trainyard-operator-0"}}
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "operator", "static_configs": [operator]},
                {"job_name": "workers", "file_sd_configs": [{"files": [str(self.targets)], "refresh_interval": "1s"}]},
            ],
        }

    def worker_targets(self):
        """What the PodMonitor of the chart makes of the pods that run."""
        found = []
        for pod in self.api.send("GET", PODS)[1]["items"]:
            labels, status = pod["metadata"]["labels"], pod["status"]
            ports = [port["containerPort"] for container in pod["spec"]["containers"] for port in container.get("ports", []) if port.get("name") == "trainyard"]
            if status.get("phase") == "Running" and status.get("podIP") and labels.get("trainyard.dev/managed") == "true":
                own = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
                renamed = {new: labels[f"trainyard.dev/{old}"] for old, new in (("job-name", "trainyard_job"), ("attempt", "attempt"), ("rank", "worker"))}
                found += [{"targets": [f"{status['podIP']}:{port}"], "labels": {**own, **renamed}} for port in ports]
        return found

    def job(self, name=NAME):
        return self.api.send("GET", f"{JOBS}/{name}")[1]

    def ask(self, query):
        """[(labels, value)] of an instant query; nothing while Prometheus is not there yet."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=10) as response:
                return [(found["metric"], float(found["value"][1])) for found in json.load(response)["data"]["result"]]
        except (OSError, urllib.error.URLError):
            return []

    def kill_a_rank(self):
        """The last of the run's, as an out-of-memory killer would."""
        (launcher,) = launchers_of(f"{NAME}-1-1")
        harness.kill(max(harness.ranks_of(launcher).items())[1])


def launchers_of(pod):
    """Process ids of `trainyard launch` in a pod of `local`, which says its name as HOSTNAME."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().split(b"\0")[1:2] == [b"launch"] and f"HOSTNAME={pod}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found

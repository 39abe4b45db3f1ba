"""`trainyard-operator local`: the whole path on one machine, seen from outside."""

import base64
import concurrent.futures
import ctypes
import datetime
import gzip
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
import yaml
from safetensors.numpy import load_file

import harness
from local_api import ApiOnly
from operators import JOB, JOBS, PODS, Operator

KUBECTL = shutil.which("kubectl")
OPERATOR = os.environ.get("TRAINYARD_OPERATOR_BIN", "build/release/bin/trainyard-operator")
CONFIG = harness.merged(harness.SMALL, task={"eval_windows": 16}, train={"steps": 60, "eval_every": 25}, batch={"global": 8}, model={"dropout": 0.1}, checkpoint={"every": 7})


def job(data, workers=2, name="job", **spec):
    """A TrainingJob whose checkpoints, run directory and record lie in the claim `ckpt`."""
    config = harness.merged(CONFIG, data={"path": str(data)}, train={"record": "/checkpoints/record.jsonl"})
    return {
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "workers": workers,
            "config": config,
            "checkpoint": {"volume": {"persistentVolumeClaim": {"claimName": "ckpt"}}, "graceSeconds": 20},
            "restart": {"backoff": {"initialSeconds": 0, "maxSeconds": 0}, "sameStepLimit": 100, "maxRestarts": 100},
            "template": {"spec": {"containers": [{"name": "trainer", "image": "trainyard-trainer", "command": ["trainyard", "launch"]}]}},
            **spec,
        },
    }


def script_job(command, workers=2, name="job", **spec):
    return {
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"workers": workers, "template": {"spec": {"containers": [{"name": "trainer", "image": "any", "command": command}]}}, **spec},
    }


class Local:
    """One `local` process and its state directory."""

    def __init__(self, tmp_path, spec, *args, name="job"):
        self.state = tmp_path / "state"
        self.file = harness.write_config(tmp_path / f"{name}.json", spec)
        self.args = args
        self.wrapper = []  # a command that runs the operator
        self.process = None

    def start(self):
        self.process = subprocess.Popen([*self.wrapper, OPERATOR, "local", "-f", self.file, "--state-dir", self.state, *self.args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=harness.environment(), errors="replace")
        return self

    def finish(self, timeout=120):
        try:
            self.output = self.process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running after {timeout} s: {self.objects()}")
        return self.process.returncode

    def run(self, timeout=120):
        return self.start().finish(timeout)

    def objects(self):
        """The saved API: the snapshot and the lines since (operator/local/api/journal.h)."""
        try:
            saved = json.loads((self.state / "api.json").read_text())
            lines = [line for path in self.state.glob("api-*.journal") for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        except (OSError, ValueError):  # not there yet, or replaced this moment
            return {}
        for change in sorted(map(json.loads, lines), key=lambda change: change["version"]):
            if change["version"] <= saved["version"]:
                continue
            collection = saved["collections"].setdefault(change["collection"], {})
            collection.pop(change["key"], None)
            if change["object"] is not None:
                collection[change["key"]] = change["object"]
        return saved["collections"]

    def job(self):
        return next(iter(self.objects().get("trainingjobs.trainyard.dev", {}).values()), {})

    def status(self):
        return self.job().get("status", {})

    def request(self, method, path, body=None, content_type="application/json"):
        """One request, as kubectl makes it, once the API is there: after a start it has another port and key."""
        def send():
            try:
                config = dict(line.strip().split(": ", 1) for line in (self.state / "kubeconfig").read_text().splitlines() if ": " in line and "{" not in line)
                context = ssl.create_default_context(cadata=base64.b64decode(config["certificate-authority-data"]).decode())
                request = urllib.request.Request(config["server"] + path, method=method, data=json.dumps(body).encode() if body is not None else None,
                                                 headers={"Authorization": f"Bearer {config['token']}", "Content-Type": content_type})
                return urllib.request.urlopen(request, context=context, timeout=20).status
            except urllib.error.HTTPError as error:
                return error.code
            except OSError:
                return None

        return harness.wait_until(send, 20, f"an answer to {method} {path}")

    def log(self, pod, container="trainer"):
        return next((self.state / "pods").glob(f"*_{pod}_*/{container}.log")).read_text()

    def pids(self):
        """Process ids of pods that run now, by pod name."""
        found = {}
        for path in (self.state / "pods").glob("*/processes"):
            for line in path.read_text().splitlines():
                pid = int(line.split()[0])
                if harness.alive(pid):
                    found[path.parent.name.split("_")[1]] = pid
        return found


def seconds_of(time):
    return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


def assert_each_second_is_counted_once(job):
    goodput = job["status"]["goodput"]
    assert goodput["asOf"] == job["status"]["completionTime"]
    assert goodput["trainingSeconds"] + sum(goodput["lostSeconds"].values()) == seconds_of(goodput["asOf"]) - seconds_of(job["metadata"]["creationTimestamp"]), goodput


@pytest.fixture
def local(tmp_path):
    made = []

    def make(spec, *args, name="job"):
        folder = tmp_path / f"local{len(made)}"
        folder.mkdir()
        made.append(Local(folder, spec, *args, name=name))
        return made[-1]

    yield make
    for each in made:
        if each.process and each.process.poll() is None:
            each.process.kill()
            each.process.wait()


# Runs a command where no mount namespace can be made: the volumes are then what TRAINYARD_VOLUMES says.
WITHOUT_MOUNTS = ["unshare", "--user", "--map-root-user", "sh", "-c", 'echo 0 >/proc/sys/user/max_mnt_namespaces && exec "$@"', "sh"]


def can(*command):
    return subprocess.run(command, capture_output=True).returncode == 0


needs_mounts = pytest.mark.skipif(not can("unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"), reason="needs a user and mount namespace, which is not allowed here")
needs_limits = pytest.mark.skipif(not can(*WITHOUT_MOUNTS, "true"), reason="needs a user namespace with limits of its own, which is not allowed here")


@pytest.mark.parametrize("wrapper", [pytest.param([], id="volumes_by_default"), pytest.param(WITHOUT_MOUNTS, id="volumes_by_name", marks=needs_limits)])
def test_a_job_trains_and_nothing_is_left(local, data, wrapper):
    run = local(job(data))
    run.wrapper = wrapper
    assert run.run() == 0, run.output
    status = run.status()
    assert status["phase"] == "Succeeded" and status["attempt"] == 1 and status["restarts"]["total"] == 0
    assert status["progress"]["step"] == 60 and status["world"]["size"] == 2
    assert status["checkpoint"]["step"] == 60, "the last one, which was written after the last poll"
    assert "Succeeded" in run.output
    assert status["startup"].keys() == {"queued", "scheduled", "pulled", "rendezvous", "firstStep", "fromStep"}, "however short the run"
    assert status["goodput"]["furthestStep"] == 60 and "replay" in status["goodput"]["lostSeconds"]
    assert_each_second_is_counted_once(run.job())
    records = harness.records(run.state / "claims/default/ckpt/record.jsonl")
    assert len(records) == 60
    assert not run.pids()
    # The same on a launcher alone: the operator changes nothing about training.
    config = harness.merged(CONFIG, data={"path": str(data)}, run={"dir": str(run.state / "alone")})
    result = harness.run("launch", "--nproc", 2, "--config", harness.write_config(run.state / "alone.json", config), "--record", run.state / "alone.jsonl")
    assert result.returncode == 0, result.stderr
    assert harness.records(run.state / "alone.jsonl") == records


@pytest.mark.parametrize("code, phase", [(64, "Failed"), (3, "Failed")])
def test_the_exit_code_is_the_culprits(local, code, phase):
    run = local(script_job(["sh", "-c", f"echo last words; exit {code}"], restart={"maxRestarts": 0}))
    assert run.run(60) == code
    status = run.status()
    assert status["phase"] == phase
    assert status["lastFailure"]["exitCode"] == code and status["lastFailure"]["tail"] == ["last words"]


@pytest.mark.parametrize("code", [0, 65])
def test_a_job_that_its_ttl_deletes_at_once_ends_as_it_ended(local, code):
    run = local(script_job(["sh", "-c", f"exit {code}"], ttlSecondsAfterFinished=0))
    assert run.run() == code, run.output
    assert f"phase        {'Failed' if code else 'Succeeded'}" in run.output and "deleted      by spec.ttlSecondsAfterFinished" in run.output, run.output


def test_the_summary_says_where_the_culprit_wrote(local):
    run = local(script_job(["sh", "-c", "[ $RANK = 1 ] && exit 3; sleep 60"], restart={"maxRestarts": 0}))
    assert run.run(60) == 3
    log = str(next((run.state / "pods").glob("*_job-1-1_*/trainer.log")))
    assert f"job-1-1      {log}" in run.output.splitlines(), run.output
    # Of a worker whose pod is gone there is its folder; whether it is when this program ends is the kubelet's affair.
    run = local(script_job(["sh", "-c", "exit 3"], restart={"maxRestarts": 0}, cleanPodPolicy="All"))
    assert run.run(60) == 3
    folder = next((run.state / "pods").glob("*_job-1-0_*"))
    assert {f"job-1-0      {folder}", f"log          {folder}/trainer.log"} & set(run.output.splitlines()), run.output


def test_rank_0_is_heard_while_it_runs(local, tmp_path):
    go = tmp_path / "go"
    script = f'[ $RANK = 0 ] || exit 0; echo banner; echo; printf "1%%\\r2%%\\r3%%\\n"; while [ ! -e {go} ]; do sleep 0.05; done; echo table; printf "no end"'
    run = local(script_job(["sh", "-c", script])).start()
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(line.rstrip("\n") for line in run.process.stdout))
    reader.start()
    harness.wait_until(lambda: "  3%" in lines, what="the output of a job that runs")
    go.touch()
    assert run.process.wait(60) == 0
    reader.join()
    log = str(next((run.state / "pods").glob("*_job-1-0_*/trainer.log")))
    where = next(i for i, line in enumerate(lines) if line.startswith("output of job-1-0"))
    assert log in lines[where] and any(line.split() == ["log", log] for line in lines)
    assert [line for line in lines[where + 1:] if line.startswith("  ")][:5] == ["  banner", "  ", "  3%", "  table", "  no end"], lines


def test_a_restart_goes_on_and_is_charged(local):
    script = 'if [ $TRAINYARD_ATTEMPT = 1 ] && [ $RANK = 1 ]; then exit 70; fi; [ $TRAINYARD_ATTEMPT = 1 ] && sleep 1; exit 0'
    run = local(script_job(["sh", "-c", script], restart={"backoff": {"initialSeconds": 0}}))
    assert run.run(60) == 0, run.output
    status = run.status()
    assert status["attempt"] == 2 and status["restarts"]["total"] == 1 and status["restarts"]["charged"] == 1
    assert status["lastFailure"]["rank"] == 1 and status["lastFailure"]["exitCode"] == 70


def test_where_the_time_went(local, data):
    spec = job(data)
    spec["spec"]["config"]["train"]["steps"] = 600
    run = local(spec).start()
    harness.wait_until(lambda: "firstStep" in run.status().get("startup", {}), what="the first step")
    first = run.status()["startup"]
    assert first["fromStep"] == 0 and 0 < first["rendezvous"] < 60 and 0 < first["firstStep"] < 60, first
    run.process.send_signal(signal.SIGINT)
    assert run.finish(60) == 75
    assert run.run() == 0, run.output
    status = run.status()
    assert status["attempt"] == 2 and status["startup"]["fromStep"] > 0, status
    assert status["goodput"]["furthestStep"] == 600
    assert_each_second_is_counted_once(run.job())


def test_the_environment_is_the_contracts(local):
    run = local(script_job(["sh", "-c", "env | sort"], workers=2, config={"task": {"name": "x"}}))
    assert run.run(60) == 0, run.output
    env = dict(line.split("=", 1) for line in run.log("job-1-1").splitlines() if "=" in line)
    uid = run.job()["metadata"]["uid"]
    assert {k: env[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")} == {
        "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "1"}
    assert env["PET_NNODES"] == "2" and env["PET_NPROC_PER_NODE"] == "1" and env["PET_NODE_RANK"] == "1"
    assert env["TRAINYARD_JOB_UID"] == uid and env["TRAINYARD_ATTEMPT"] == "1" and env["TRAINYARD_NAMESPACE"] == "default"
    first = dict(line.split("=", 1) for line in run.log("job-1-0").splitlines() if "=" in line)
    assert env["MASTER_ADDR"] == env["PET_MASTER_ADDR"] == first["MASTER_ADDR"] == first["TRAINYARD_POD_IP"] != env["TRAINYARD_POD_IP"] and 20000 <= int(env["MASTER_PORT"]) < 30000
    assert env["TRAINYARD_CONFIG"] == "/etc/trainyard/config.json" and json.loads(next(run.state.glob("pods/*_job-1-1_*/volumes/trainyard-info/config.json")).read_text()) == {"task": {"name": "x"}}


VOLUMES_SCRIPT = """
import os, pathlib
rank, here = os.environ["RANK"], pathlib.Path("/trainyard-test")
print(pathlib.Path("sub/made").read_text().strip(), pathlib.Path.cwd(), "TRAINYARD_VOLUMES" in os.environ)
(here / f"checkpoints/rank{rank}").write_text("kept")
for name in ("data/sub/made", "outside"):
    try:
        (here / name).write_text("x")
    except OSError as error:
        print(name, error.strerror)
"""


@needs_mounts
def test_any_program_finds_its_volumes_at_their_mount_paths(local, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(VOLUMES_SCRIPT)
    spec = script_job([sys.executable, str(script)], checkpoint={"volume": {"persistentVolumeClaim": {"claimName": "ckpt"}}, "path": "/trainyard-test/checkpoints"})
    pod = spec["spec"]["template"]["spec"]
    mount = {"name": "data", "mountPath": "/trainyard-test/data/sub"}
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    pod["initContainers"] = [{"name": "make", "image": "any", "command": ["sh", "-c", "echo from $HOSTNAME > /trainyard-test/data/sub/made"], "volumeMounts": [mount]}]
    pod["containers"][0] |= {"workingDir": "/trainyard-test/data", "volumeMounts": [{**mount, "readOnly": True}]}
    run = local(spec)
    assert run.run(60) == 0, run.output
    for rank in (0, 1):
        lines = run.log(f"job-1-{rank}").splitlines()
        assert lines == [f"from job-1-{rank} /trainyard-test/data False", "data/sub/made Read-only file system", "outside Read-only file system"]
        assert (run.state / f"claims/default/ckpt/rank{rank}").read_text() == "kept"
    assert f"/trainyard-test/checkpoints {run.state}/claims/default/ckpt" in run.output, "where to look for it"
    assert not pathlib.Path("/trainyard-test").exists() and not list((run.state / "pods").glob("*/mounts/*"))


@needs_mounts
def test_an_empty_dir_goes_with_its_pod(local, tmp_path):
    """As on a cluster: else each attempt leaves its data on the disk. What it links to is somebody else's."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "kept").write_text("kept")
    script = f"ln -s {precious} /trainyard-test/data/link; echo made > /trainyard-test/data/made; [ $TRAINYARD_ATTEMPT = 2 ]"
    spec = script_job(["sh", "-c", script], restart={"maxRestarts": 1})
    spec["spec"]["workers"] = 1
    pod = spec["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/trainyard-test/data"}]
    run = local(spec)
    assert run.run(60) == 0, run.output
    of = {attempt: next((run.state / "pods").glob(f"default_job-{attempt}-0_*")) for attempt in (1, 2)}
    assert (of[2] / "volumes/data/made").read_text() == "made\n", "of the pod that is still there"
    assert not (of[1] / "volumes").exists() and (of[1] / "trainer.log").exists()
    assert (precious / "kept").read_text() == "kept"


@needs_limits
def test_it_is_said_when_there_are_no_mounts(local):
    run = local(script_job(["true"]))
    run.wrapper = WITHOUT_MOUNTS
    assert run.run(60) == 0
    assert "volumes are not at their mount paths on this machine; TRAINYARD_VOLUMES says where they are" in run.output and "No space left on device" in run.output


PYTORCH = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
loss = model(torch.ones(2, 4)).sum(); loss.backward()
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} sum {x.item()}\\n".encode())  # one write: lines of two processes do not mix
dist.destroy_process_group()
"""


def test_an_unmodified_pytorch_script(local, tmp_path):
    (tmp_path / "script.py").write_text(PYTORCH)
    run = local(script_job([sys.executable, str(tmp_path / "script.py")]))
    assert run.run(90) == 0, run.output
    assert "rank 1 of 2 sum 3.0" in run.log("job-1-1")


def test_bare_torchrun_with_two_processes_per_pod(local, tmp_path):
    (tmp_path / "script.py").write_text(PYTORCH)
    run = local(script_job([str(pathlib.Path(sys.executable).parent / "torchrun"), str(tmp_path / "script.py")], procsPerWorker=2))
    assert run.run(120) == 0, run.output + run.log("job-1-0")
    assert "of 4 sum 10.0" in run.log("job-1-0") and "of 4 sum 10.0" in run.log("job-1-1")


def test_bad_input(local, tmp_path, data):
    def operator(*args):
        return subprocess.run([OPERATOR, *map(str, args)], capture_output=True, text=True, timeout=30, env=harness.environment())

    bad = job(data)
    bad["spec"]["workerz"] = 1
    path = harness.write_config(tmp_path / "bad.json", bad)
    for command in ("validate", "local"):
        result = operator(command, "-f", path)
        assert result.returncode == 64
        assert "spec.workerz: unknown field; did you mean workers?" in result.stderr
    assert operator("local", "-f", tmp_path / "missing.yaml").returncode == 64
    assert operator("locl").returncode == 2 and "did you mean local?" in operator("locl").stderr
    assert operator("local").returncode == 2
    assert "did you mean -f maze.yaml?" in operator("local", "maze.yaml").stderr
    slip = harness.write_config(tmp_path / "slip.json", {**job(data), "kind": "Trainingjob"})
    assert "did you mean TrainingJob?" in operator("validate", "-f", slip).stderr

    nameless = job(data)
    nameless["metadata"] = {"generateName": "job-"}
    path = harness.write_config(tmp_path / "nameless.json", nameless)
    assert operator("validate", "-f", path).returncode == 0
    result = operator("local", "-f", path)
    assert result.returncode == 64 and "metadata.generateName: `local` finds a job again by its name" in result.stderr
    nameless["metadata"]["name"] = 5
    assert operator("validate", "-f", harness.write_config(path, nameless)).returncode == 64
    nameless["metadata"] = {"generateName": 36 * "a"}
    result = operator("validate", "-f", harness.write_config(path, nameless))
    assert result.returncode == 64 and "at most 40 characters" in result.stderr

    # A queue of nobody's; and nothing runs.
    queued = job(data)
    queued["spec"]["scheduling"] = {"queue": "research"}
    result = operator("local", "-f", harness.write_config(tmp_path / "queued.json", queued))
    assert result.returncode == 64 and "spec.scheduling.queue" in result.stderr and "only with gang volcano" in result.stderr

    # A command that does not exist is permanent.
    run = local(script_job(["no-such-command"]))
    assert run.run(60) == 127
    assert run.status()["lastFailure"]["reason"] == "StartError" and "no-such-command" in run.status()["lastFailure"]["message"]

    # A port in use, and a state directory in use.
    busy = local(script_job(["sleep", "30"]), "--serve", "0").start()
    harness.wait_until(lambda: busy.status().get("phase") == "Running", what="the job to run")
    port = (busy.state / "kubeconfig").read_text().split("127.0.0.1:")[1].split()[0]
    result = operator("local", "-f", busy.file, "--serve", port)
    assert result.returncode == 69 and f"port {port}" in result.stderr
    result = operator("local", "-f", busy.file, "--state-dir", busy.state)
    assert result.returncode == 64 and "in use" in result.stderr
    busy.process.send_signal(signal.SIGINT)
    assert busy.finish(30) == 75


def test_an_invalid_edit_ends_no_job_that_runs(local, tmp_path):
    """It holds back what is new, and nothing else."""
    go = tmp_path / "go"
    run = local(script_job(["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"], name="job"), "--serve", "0").start()
    harness.wait_until(lambda: run.status().get("phase") == "Running", what="the job to run")
    edit = {"spec": {"sharedMemory": {"sizeLimit": "much"}}}
    assert run.request("PATCH", "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs/job", edit, "application/merge-patch+json") == 200
    harness.wait_until(lambda: any(c["type"] == "InvalidSpec" and c["status"] == "True" for c in run.status().get("conditions", [])), what="the edit to be judged")
    time.sleep(1)  # ten looks at the job
    assert run.process.poll() is None and len(run.pids()) == 2
    go.touch()
    assert run.finish(60) == 0, run.output
    assert run.status()["phase"] == "Succeeded" and "InvalidField" in run.output


@needs_mounts
def test_a_full_state_directory(local, tmp_path):
    def start(kib, fill, run):
        disk = run.state.parent / "disk"
        disk.mkdir()
        script = f'mount -t tmpfs -o size={kib}k none "$0" && head -c {fill}k /dev/zero >"$0/fill"; exec "$@"'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, disk, OPERATOR, "local", "-f", run.file, "--state-dir", disk / "state"]
        run.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=harness.environment())
        return pathlib.Path(f"/proc/{run.process.pid}/root{disk}")

    # From the beginning: nothing starts.
    full = local(script_job(["true"]))
    start(64, 60, full)
    assert full.finish(30) == 64
    assert "--state-dir" in full.output and "No space left on device" in full.output

    # In the middle: the job goes on, the operator says what is not saved, and saves it when there is room again.
    go, more = tmp_path / "go", tmp_path / "more"
    run = local(script_job(["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; [ $TRAINYARD_ATTEMPT != 1 ] || exit 70; while [ ! -e {more} ]; do sleep 0.05; done"],
                           restart={"backoff": {"initialSeconds": 0, "maxSeconds": 0}, "sameStepLimit": 1000, "maxRestarts": 1000},
                           config={"task": {"name": "any"}}))  # which becomes a file
    disk = start(400, 10, run)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(run.process.stdout))
    reader.start()
    harness.wait_until(lambda: any("Running" in line for line in lines), what="the job to run")
    (disk / "filler").write_bytes(b"x" * 100)
    with open(disk / "filler", "ab", buffering=0) as filler:
        with pytest.raises(OSError):
            while True:
                filler.write(b"x" * 4096)
    go.touch()
    harness.wait_until(lambda: any("is not saved" in line and "No space left on device" in line for line in lines), what="the complaint")
    harness.wait_until(lambda: any("Restarting" in line for line in lines), what="the restart: the complaint may be about something before it")
    (disk / "filler").unlink()
    harness.wait_until(lambda: any("saved again" in line for line in lines), what="the relief")

    # Of the second attempt or, since workers that start while the disk is full fail as well, a later one.
    run.state = disk / "state"
    harness.wait_until(lambda: run.status().get("attempt", 0) >= 2, what="the restart to be saved")
    more.touch()
    assert run.process.wait(60) == 0
    reader.join()
    assert sum("is not saved" in line for line in lines) == 1, lines


def test_a_state_directory_that_is_removed_stays_its_owners(tmp_path):
    """Two of them would write the same checkpoints."""
    state = tmp_path / "state"

    def start():
        return subprocess.Popen([OPERATOR, "local", "--serve", "0", "--state-dir", state], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=harness.environment())

    first = start()
    try:
        harness.wait_until((state / "kubeconfig").exists, 30, "the first one's kubeconfig")
        kubeconfig = (state / "kubeconfig").read_text()
        state.rename(tmp_path / "away")
        harness.wait_until((state / "kubeconfig").exists, 30, "the folder to be made anew")
        assert (state / "kubeconfig").read_text() == kubeconfig
        second = start()
        assert "is in use by another trainyard-operator; choose another" in second.communicate(timeout=60)[0] and second.returncode == 64
        # Who was faster has it: the first one ends.
        others = tmp_path / "others"
        others.mkdir()
        holder = subprocess.Popen(["flock", others / "lock", "sh", "-c", "echo held; exec sleep 60"], stdout=subprocess.PIPE)
        try:
            holder.stdout.readline()
            at, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: the first one finds either, and never none
            assert ctypes.CDLL(None).renameat2(at, bytes(others), at, bytes(state), exchange) == 0
            output = first.communicate(timeout=60)[0]
        finally:
            holder.kill()
            holder.wait()
        assert first.returncode == 75 and "was removed, and is made anew" in output and "is in use by another trainyard-operator" in output, output
    finally:
        first.kill()
        first.wait()


def test_ctrl_c_saves_and_the_next_start_goes_on(local, data):
    run = local(job(data)).start()
    harness.wait_until(lambda: (run.state / "claims/default/ckpt/step-00000007").exists(), what="a checkpoint")
    run.process.send_signal(signal.SIGINT)
    assert run.finish(60) == 75
    assert not run.pids()
    # It says what it would go on from, and where.
    assert f"--state-dir {run.state}" in run.output, run.output
    assert "stopped on request after step" in run.output, "what rank 0 said last"
    assert f"/checkpoints {run.state / 'claims/default/ckpt'}" in run.output and run.output.splitlines()[-1].endswith(str(run.state)), run.output
    time.sleep(1)  # a pod's age is known to the second
    assert run.run() == 0, run.output
    assert "output of job-2-0" in run.output and "output of job-1-0" not in run.output, "it was shown before"
    assert len(harness.records(run.state / "claims/default/ckpt/record.jsonl")) == 60
    assert run.status()["restarts"]["charged"] == 0
    # The stop is told as what it was, and not as the failure of a job that has succeeded.
    # Of the two that it stopped, which ended first is open.
    assert any(f"last restart attempt 1, rank {rank}, DisruptionTarget" in run.output for rank in range(2)), run.output
    assert "last failure" not in run.output, run.output
    assert "trainyard-operator local was stopped" in run.output


def edited(run, path, value):
    """The next start's file has another value at `path`."""
    spec = json.loads(pathlib.Path(run.file).read_text())
    *folders, last = path
    place = spec["spec"]
    for folder in folders:
        place = place[folder]
    place[last] = value
    pathlib.Path(run.file).write_text(json.dumps(spec))


COMMAND = ["template", "spec", "containers", 0, "command"]


def test_a_failed_job_is_made_anew(local):
    """As often as it is started, as the file has it then; its claims stay."""
    spec = script_job(["sh", "-c", "date +%N >>/claim/seen; exit 64"], workers=1)
    container = spec["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "kept", "mountPath": "/claim"}]
    spec["spec"]["template"]["spec"]["volumes"] = [{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}]
    run = local(spec)
    assert run.run(60) == 64
    uid = run.job()["metadata"]["uid"]
    assert run.run(60) == 64 and "this job ended in an earlier run (Failed): it is made anew" in run.output, run.output
    assert run.job()["metadata"]["uid"] != uid and run.status()["attempt"] == 1
    edited(run, COMMAND, ["sh", "-c", "date +%N >>/claim/seen"])
    assert run.run(60) == 0 and "with another spec.template: it is made anew" in run.output, run.output
    seen = (run.state / "claims/default/kept/seen").read_text().split()
    assert len(seen) == 3
    # What has succeeded is not run twice, unless the file says otherwise; a file that the API refuses ends nothing.
    assert run.run(60) == 0 and "succeeded in an earlier run: nothing is run" in run.output, run.output
    edited(run, ["managedBy"], "Not A Domain")
    succeeded = run.job()["metadata"]["uid"]
    assert run.run(60) == 64 and "managedBy" in run.output, run.output
    assert run.job()["metadata"]["uid"] == succeeded
    assert (run.state / "claims/default/kept/seen").read_text().split() == seen


def test_a_job_that_goes_on_takes_the_file_of_now(local, tmp_path):
    """Also where the API asks for a suspension first."""
    go = tmp_path / "go"
    run = local(script_job(["sh", "-c", "echo first; sleep 600"], workers=1)).start()
    harness.wait_until(lambda: run.status().get("phase") == "Running", what="the job to run")
    uid = run.job()["metadata"]["uid"]
    run.process.send_signal(signal.SIGINT)
    assert run.finish(60) == 75
    edited(run, COMMAND, ["sh", "-c", f"echo second; touch {go}"])
    assert run.run(60) == 0, run.output
    assert "goes on with another spec.template: it is suspended, changed and resumed" in run.output, run.output
    assert go.exists() and run.job()["metadata"]["uid"] == uid


def test_what_cannot_change_is_refused_and_the_job_stays(local):
    run = local(script_job(["sh", "-c", "sleep 600"], workers=1)).start()
    harness.wait_until(lambda: run.status().get("phase") == "Running", what="the job to run")
    run.process.send_signal(signal.SIGINT)
    assert run.finish(60) == 75
    edited(run, ["managedBy"], "trainyard.dev/operator")
    assert run.run(60) == 64, run.output
    assert "another spec.managedBy; another --state-dir would start it anew" in run.output, run.output
    assert not run.job()["spec"].get("suspend") and "managedBy" not in run.job()["spec"]


def test_the_summary_names_the_log_that_there_is(local):
    spec = script_job(["true"], workers=1, restart={"maxRestarts": 0})
    spec["spec"]["template"]["spec"]["initContainers"] = [{"name": "data", "image": "any", "command": ["sh", "-c", "echo no data; exit 3"]}]
    run = local(spec)
    assert run.run(60) == 3
    [log] = [line.split()[1] for line in run.output.splitlines() if line.startswith("log ")]
    assert log.endswith("/data.log") and pathlib.Path(log).read_text() == "no data\n"


def test_a_mistyped_command_is_the_cause_that_is_told(local):
    run = local(script_job(["trainyard", "lanch"], workers=1))
    assert run.run(60) == 2
    assert "unknown command lanch; did you mean launch?" in run.status()["lastFailure"]["message"]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("end", ["exit", "killed", "killed before it wrote down what it had started"])
def test_what_a_container_leaves_behind_goes_with_it(local, tmp_path, end):
    """A shell's children, also those in process groups and sessions of their own: at its end, and at the next start after a SIGKILL of everything."""
    pids = tmp_path / "pids"
    daemon = f"setsid sh -c 'echo $$$$ >> {pids}; exec sleep 600' & "
    script = f'set -m; sleep 600 & echo $! >> {pids}; timeout 600 sleep 600 & echo $! >> {pids}; {daemon} while [ $(wc -l < {pids}) -lt 3 ]; do sleep 0.01; done; ' + ("exit 0" if end == "exit" else "while true; do sleep 0.1; done")
    run = local(script_job(["bash", "-c", script], workers=1, restart={"backoff": {"initialSeconds": 0, "maxSeconds": 0}})).start()
    harness.wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 3, what="the children")
    first = list(map(int, pids.read_text().split()))
    if end == "exit":
        assert run.finish(60) == 0, run.output
    else:
        assert all(map(alive, first))
        run.process.kill()
        run.process.wait()
        if end != "killed":
            for file in (run.state / "pods").glob("*/processes"):  # on a busy machine it was killed in time by itself
                file.unlink()
        run.start()
        harness.wait_until(lambda: len(pids.read_text().split()) == 6, what="the next attempt")
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGINT)
        assert run.finish(60) == 75
    started = list(map(int, pids.read_text().split()))
    left = {pid: pathlib.Path(f"/proc/{pid}/stat").read_text() for pid in started if alive(pid)}
    assert not left, (started, run.output)


def test_what_another_boot_called_the_same_is_left_alone(local):
    """A pid and its ticks since boot come again after a reboot, and the state directory is still there."""
    run = local(script_job(["sleep", "600"], workers=1, restart={"backoff": {"initialSeconds": 0, "maxSeconds": 0}})).start()
    harness.wait_until(run.pids, what="the pod's process")
    run.process.kill()
    run.process.wait()
    strangers = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(3)]
    try:
        starts = [pathlib.Path(f"/proc/{each.pid}/stat").read_text().rsplit(")", 1)[1].split()[19] for each in strangers]
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        lines = [f"{each.pid} {start}{what}" for each, start, what in zip(strangers, starts, [f" {boot}", " 0-another-boot", ""])]
        next((run.state / "pods").glob("*/processes")).write_text("\n".join(reversed(lines)) + "\n")
        run.start()
        assert strangers[0].wait(30) == -signal.SIGKILL, "as if it were the pod's"
        harness.wait_until(lambda: "job-2-0" in run.pids(), what="the next attempt")
        assert [each.poll() for each in strangers[1:]] == [None, None]
    finally:
        for each in strangers:
            each.kill()
            each.wait()
    run.process.send_signal(signal.SIGINT)
    run.process.send_signal(signal.SIGINT)
    assert run.finish(60) == 75


# Where in a job's life it is interrupted: each waits until it is there, and says whether it came to that before the end.
MOMENTS = {
    "pending": lambda run, before: run.status().get("phase") in ("Pending", "Starting") or run.pids(),
    "first": lambda run, before: run.pids(),  # the first process of any pod
    "running": lambda run, before: run.status().get("phase") == "Running" and run.pids(),
    "training": lambda run, before: run.status().get("phase") == "Running" and len(run.pids()) == 2 and run.lines() > before,
    "restarting": lambda run, before: run.fail_a_rank() and run.status().get("phase") == "Restarting",
    "suspending": lambda run, before: run.suspend_workers() and run.status().get("phase") in ("Suspending", "Suspended"),
    "suspended": lambda run, before: run.suspend(True) and run.status().get("phase") == "Suspended",
}

# Every kind in every moment that it can happen in.
INTERRUPTIONS = (
    [("rank", m) for m in ("first", "running", "training")]
    + [("launcher", m) for m in ("first", "running", "training")]
    + [("sigterm", m) for m in ("first", "running", "training")]
    + [("delete", m) for m in ("first", "running", "training")]
    + [("suspend", m) for m in ("pending", "running", "training", "restarting")]
    + [("operator", m) for m in ("pending", "running", "training", "restarting", "suspending", "suspended")]
    + [("stop", m) for m in ("running", "training", "restarting", "suspending", "suspended")]
)


class Interrupted(Local):
    """A job that is interrupted again and again."""

    def __init__(self, tmp_path, spec, rng):
        super().__init__(tmp_path, spec)
        self.random, self.failed, self.kills, self.culprits = rng, False, 0, []

    def lines(self):
        path = self.state / "claims/default/ckpt/record.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def suspend(self, value):
        if self.job().get("spec", {}).get("suspend", False) != value:
            self.request("PATCH", "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs/job", {"spec": {"suspend": value}}, "application/merge-patch+json")
        return True

    def suspend_workers(self):
        """Only once there are some, who then have something to save."""
        suspended = self.job().get("spec", {}).get("suspend", False)
        return (suspended or bool(self.pids())) and self.suspend(True)

    def kill_one(self, kind):
        """The pod that was hit."""
        pods = harness.wait_until(lambda: self.pids() or self.ended(), 60, "pods to run")
        if self.ended():
            return None
        pod = self.random.choice(sorted(pods))
        if kind == "delete":
            command = [KUBECTL, "--kubeconfig", self.state / "kubeconfig", "delete", "pod", pod, "--wait=false"]
            if KUBECTL:
                subprocess.run(list(map(str, command)), capture_output=True, timeout=30)
            else:
                self.request("DELETE", f"/api/v1/namespaces/default/pods/{pod}")
            return pod
        ranks = list(harness.ranks_of(pods[pod]).values())
        target = ranks[0] if kind == "rank" and ranks else pods[pod]
        harness.kill(target, signal.SIGTERM if kind == "sigterm" else signal.SIGKILL)
        return pod

    def fail_a_rank(self):
        if not self.failed and self.pids():
            self.failed = bool(self.kill_one("rank"))
            self.kills += 1
        return self.failed

    def ended(self):
        return self.process.poll() is not None

    def interrupt(self, kind, moment):
        """Whether it came to it before the job's end."""
        before = self.lines()
        self.failed = False
        harness.wait_until(lambda: self.ended() or MOMENTS[moment](self, before), 90, f"{moment}: {self.status()}")
        time.sleep(self.random.uniform(0, 0.3))
        if self.ended():
            return False
        if kind == "operator":
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.start()
        elif kind == "stop":
            self.process.send_signal(signal.SIGINT)
            self.process.communicate(timeout=60)
            self.start()
        elif kind == "suspend":
            self.suspend(True)
            time.sleep(self.random.uniform(0, 1.5))
        else:
            attempt = self.status().get("attempt")
            pod = self.kill_one(kind)
            # The next interruption is not to meet an attempt that is ending already: this one would be its cause.
            if pod:
                harness.wait_until(lambda: self.ended() or self.status().get("attempt", 0) > attempt, 60, f"the next attempt after {kind} of {pod}: {self.status()}")
                failure = self.status().get("lastFailure", {})
                # In the first half second the launcher still loads its libraries, and SIGTERM ends it like any program.
                self.kills += kind not in ("sigterm", "delete") or (kind == "sigterm" and failure.get("exitCode") == 128 + signal.SIGTERM)
                if kind not in ("sigterm", "delete") and failure.get("attempt") == attempt and pod.startswith(f"job-{attempt}-"):
                    assert failure["pod"] == pod, (kind, moment, failure)
                    self.culprits.append(failure["reason"])
        if self.job().get("spec", {}).get("suspend"):
            self.suspend(False)
        return True


def test_interruptions_change_nothing(tmp_path, data):
    """Every kind of interruption in every phase (`make test`: each kind in one): the record and the weights stay the same, bit for bit."""
    seed = int(os.environ.get("TRAINYARD_TEST_SEED", "20"))
    print("TRAINYARD_TEST_SEED", seed)
    rng = random.Random(seed)
    (tmp_path / "whole").mkdir()
    whole = Local(tmp_path / "whole", job(data))
    assert whole.run() == 0, whole.output
    expected = harness.records(whole.state / "claims/default/ckpt/record.jsonl")
    weights = load_file(whole.state / "claims/default/ckpt/run/export/model.safetensors")
    waiting = list(INTERRUPTIONS)
    rng.shuffle(waiting)
    if not harness.THOROUGH:
        waiting = list({kind: (kind, moment) for kind, moment in waiting}.values())
    planned = len(waiting)
    trial, done, culprits = 0, 0, []
    while waiting:
        trial += 1
        assert trial <= 2 * planned, f"jobs end before they can be interrupted: {waiting}"
        folder = tmp_path / f"trial{trial}"
        folder.mkdir()
        run = Interrupted(folder, job(data), rng)
        run.start()
        try:
            mine = []
            for kind, moment in waiting[:5]:
                if not run.interrupt(kind, moment):
                    break
                mine.append((kind, moment))
            run.suspend(False) if not run.ended() else None
            assert run.finish(180) == 0, run.output
        finally:
            if not run.ended():
                run.process.kill()
                run.process.wait()
        status, record = run.status(), run.state / "claims/default/ckpt/record.jsonl"
        assert status["phase"] == "Succeeded", status
        assert harness.records(record) == expected, (trial, mine)
        attempts = [line["attempt"] for line in harness.records(record, drop=())]
        assert attempts == sorted(attempts), "an older attempt committed after a newer one"
        weights_now = load_file(run.state / "claims/default/ckpt/run/export/model.safetensors")
        assert all(weights_now[name].tobytes() == weights[name].tobytes() for name in weights)
        # Only what a worker does is charged, and only without a newer checkpoint; the rest is free.
        assert status["restarts"]["charged"] <= run.kills, (mine, status["restarts"])
        print("trial", trial, mine, "restarts", status["restarts"], "attempt", status["attempt"])
        waiting, done, culprits = waiting[len(mine):], done + len(mine), culprits + run.culprits
    assert done == planned and len(culprits) >= (3 if harness.THOROUGH else 1), culprits


@pytest.mark.skipif(not KUBECTL, reason="kubectl is not on PATH; `make test-cluster` builds one")
def test_kubectl_asks_for_rights_and_applies_lists(tmp_path):
    """What it sends as protobuf, and what it checks by itself on a server that does not say otherwise."""
    with ApiOnly(tmp_path / "state") as api:

        def kubectl(*args, good=True, stdin=None):
            result = subprocess.run([KUBECTL, "--kubeconfig", api.state / "kubeconfig", *args], capture_output=True, text=True, timeout=60, input=stdin)
            assert (result.returncode == 0) == good, result.stdout + result.stderr
            return result.stdout + result.stderr

        assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
        assert kubectl("auth", "can-i", "get", "/healthz") == "yes\n"
        assert "secrets are not served" in kubectl("auth", "can-i", "get", "secrets", good=False)
        assert "trainingjobs" in kubectl("auth", "can-i", "--list")
        jobs = {"apiVersion": "v1", "kind": "List", "items": [script_job(["true"], name=name) for name in ("one", "two")]}
        for flags in ([], ["--server-side"]):
            kubectl("apply", *flags, "-f", "-", stdin=json.dumps(jobs))
            assert kubectl("get", "tj", "-o", "name").split() == ["trainingjob.trainyard.dev/one", "trainingjob.trainyard.dev/two"]
            kubectl("delete", "-f", "-", stdin=json.dumps(jobs))
        jobs["items"][1]["spec"]["workerz"] = 1
        assert 'unknown field "spec.workerz"' in kubectl("apply", "-f", "-", stdin=json.dumps(jobs), good=False), "the server checks"
        pod = "/api/v1/namespaces/default/pods"
        assert api.send("POST", pod, "k8s\0", "application/vnd.kubernetes.protobuf")[0] == 415
        review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        for damaged in ("", "k8s", "k8s\0", "k8s\0\x0a\x7f", "k8s\0" + "\x7f" * 1000):
            assert api.send("POST", review, damaged, "application/vnd.kubernetes.protobuf")[0] == 400, damaged


def objects(schema, path):
    """(path, fields) of every object in a schema."""
    for name, field in schema.get("properties", {}).items():
        inner = field.get("items", field)
        if "properties" in inner:
            yield f"{path}.{name}", inner["properties"]
            yield from objects(inner, f"{path}.{name}")


@pytest.mark.skipif(not KUBECTL, reason="kubectl is not on PATH; `make test-cluster` builds one")
def test_kubectl_explains_every_path(tmp_path):
    """Each field of the CRD, with all of its description, however kubectl breaks the lines."""
    crd = subprocess.run([OPERATOR, "crd"], check=True, capture_output=True, text=True, timeout=60).stdout
    schema = yaml.safe_load(crd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    with ApiOnly(tmp_path / "state") as api:
        paths = 0
        for path, fields in objects(schema, "tj"):
            said = subprocess.run([KUBECTL, "--kubeconfig", api.state / "kubeconfig", "explain", path], check=True, capture_output=True, text=True, timeout=60).stdout
            words = " ".join(said.split())
            for name, field in fields.items():
                assert f" {name} <" in words and " ".join(field["description"].split()) in words, f"{path}.{name}: {said}"
                paths += 1
        assert paths > 100


@pytest.mark.skipif(not KUBECTL, reason="kubectl is not on PATH; `make test-cluster` builds one")
def test_kubectl_waits_for_the_end(tmp_path):
    """People wait for condition=complete, in that spelling: the operator's own write ends the wait. Nobody runs pods here but the test."""
    with ApiOnly(tmp_path / "state") as api, Operator(api.state / "kubeconfig", tmp_path) as operator:
        assert api.send("POST", JOBS, JOB)[0] == 201
        harness.wait_until(lambda: api.send("GET", f"{PODS}/job-1-0")[0] == 200, 60, "the worker")
        wait = subprocess.Popen([KUBECTL, "--kubeconfig", api.state / "kubeconfig", "wait", "--for=condition=complete", "tj/job", "--timeout=120s"], stdout=subprocess.PIPE, text=True)
        ended = {"phase": "Succeeded", "containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 0}}}]}
        assert api.send("PATCH", f"{PODS}/job-1-0/status", {"status": ended}, "application/merge-patch+json")[0] == 200
        said = wait.communicate(timeout=150)[0]
        assert wait.returncode == 0 and "condition met" in said, said + operator.said()


@pytest.mark.skipif(not KUBECTL, reason="kubectl is not on PATH; `make test-cluster` builds one")
def test_kubectl(local):
    script = 'trap "exit 75" TERM; echo hello from $RANK; while true; do sleep 0.1; done'
    run = local(script_job(["sh", "-c", script], name="job"), "--serve", "0").start()
    harness.wait_until(lambda: run.status().get("phase") == "Running", what="the job to run")

    def kubectl(*args, good=True, kubeconfig=run.state / "kubeconfig", stdin=None):
        result = subprocess.run([KUBECTL, "--kubeconfig", str(kubeconfig), *args], capture_output=True, text=True, timeout=60, input=stdin)
        assert (result.returncode == 0) == good, result.stdout + result.stderr
        return result.stdout + result.stderr

    def phase(wanted):
        harness.wait_until(lambda: kubectl("get", "tj", "job", "-o", "jsonpath={.status.phase}") == wanted, what=wanted)

    assert "Running" in kubectl("get", "tj,pods", "-o", "wide")
    assert "job-1-1" in kubectl("get", "pods", "-l", "trainyard.dev/rank=1")
    assert "AllWorkersReady" in kubectl("describe", "tj", "job")
    assert "maxRestarts" in kubectl("explain", "tj.spec.restart")
    assert kubectl("logs", "job-1-0") == "hello from 0\n"
    harness.wait_until(lambda: kubectl("logs", "job-1-0", "--since=1s") == "", what="the line to be older than a second")
    assert kubectl("logs", "job-1-0", "--since=1h") == "hello from 0\n"
    assert "previous terminated container" in kubectl("logs", "job-1-0", "--previous", good=False)
    assert "timestamps is not supported" in kubectl("logs", "job-1-0", "--timestamps", good=False)
    assert "trainingjob/job" in kubectl("get", "events") and "LAST SEEN" in kubectl("get", "events")
    follow = subprocess.Popen([KUBECTL, "--kubeconfig", str(run.state / "kubeconfig"), "logs", "-f", "job-1-1"], stdout=subprocess.PIPE, text=True)
    watch = subprocess.Popen([KUBECTL, "--kubeconfig", str(run.state / "kubeconfig"), "get", "tj", "-w"], stdout=subprocess.PIPE, text=True)
    assert follow.stdout.readline() == "hello from 1\n" and watch.stdout.readline().startswith("NAME")
    kubectl("patch", "tj", "job", "--type", "merge", "-p", '{"spec":{"suspend":true}}')
    phase("Suspended")
    follow.communicate(timeout=20)  # the log ends with the pod
    kubectl("patch", "tj", "job", "--type", "merge", "-p", '{"spec":{"suspend":false}}')
    phase("Running")
    other = script_job(["sleep", "60"], name="other", workers=1)
    typo = json.loads(json.dumps(other))
    typo["spec"]["workerz"] = 1
    for flags in ([], ["--server-side"]):
        assert 'unknown field "spec.workerz"' in kubectl("apply", *flags, "-f", "-", stdin=json.dumps(typo), good=False)
        kubectl("apply", *flags, "-f", "-", stdin=json.dumps(other))
        kubectl("apply", *flags, "-f", "-", stdin=json.dumps(other))
        kubectl("delete", "tj", "other")
    # The whole of a file with a claim, and what a cluster's node would do.
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}}
    both = json.dumps(claim) + "\n" + json.dumps(other)
    for flags in ([], [], ["--server-side", "--force-conflicts"]):
        kubectl("apply", *flags, "-f", "-", stdin=both)
    harness.wait_until(lambda: "Bound" in kubectl("get", "pvc", "data"), what="the claim to be bound")
    kubectl("delete", "-f", "-", stdin=both)
    assert "workingDir" in kubectl("explain", "pods.spec.containers")
    pod = kubectl("get", "pods", "-o", "name").split()[0]
    for words, says in ((["exec", pod, "--", "ls"], "run the command in a terminal"), (["attach", pod], "follows its output"), (["port-forward", pod, "9999:80"], "connect to its address, 127."),
                        (["debug", pod, "--image=x"], "a debugger can be attached")):
        assert says in kubectl(*words, good=False), words
    assert "may change only" in kubectl("scale", "tj", "job", "--replicas=3", good=False)
    assert "may change only" in kubectl("patch", "tj", "job", "--type", "merge", "-p", '{"spec":{"workers":3}}', good=False)
    assert "NotFound" in kubectl("get", "tj", "none", good=False)
    # Neither without the token nor without the authority.
    text = (run.state / "kubeconfig").read_text()
    (run.state / "no-token").write_text("\n".join("    token: wrong" if "token:" in line else line for line in text.splitlines()))
    assert "logged in" in kubectl("get", "tj", good=False, kubeconfig=run.state / "no-token")
    (run.state / "no-ca").write_text("\n".join(line for line in text.splitlines() if "certificate-authority" not in line))
    assert "certificate" in kubectl("get", "tj", good=False, kubeconfig=run.state / "no-ca")
    kubectl("delete", "tj", "job")
    watch.kill()
    seen = watch.communicate()[0]
    assert "Suspended" in seen and "NAME" not in seen, seen
    assert run.finish(60) == 75
    assert not run.pids()


class Raw:
    """One TLS connection to the API, for what no client would send."""

    def __init__(self, api):
        port = int(api.server.rsplit(":", 1)[1])
        self.socket = ssl._create_unverified_context().wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=20))

    def send(self, piece, times=1):
        """How many of the pieces went out before the server was through with it."""
        for sent in range(times):
            try:
                self.socket.sendall(piece)
            except OSError:
                return sent
        return times

    def answer(self):
        """All that comes until the server closes."""
        text = b""
        try:
            while more := self.socket.recv(1 << 16):
                text += more
        except OSError:
            pass
        return text.decode()


def resident_mib(pid):
    """The most there ever was."""
    return next(int(line.split()[1]) // 1024 for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))


PODS_HEAD = "POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: x\r\n"


def test_nobody_without_a_token_fills_the_memory(tmp_path):
    with ApiOnly(tmp_path) as api:
        assert api.send("GET", "/version")[0] == 200
        before = resident_mib(api.pid)
        chunk = b"%x\r\n" % (1 << 20) + b"x" * (1 << 20) + b"\r\n"
        cases = [  # head, what follows it, again and again
            ("Transfer-Encoding: chunked\r\n\r\n", chunk),
            (f"Content-Length: {200 << 20}\r\n\r\n", b"x" * (1 << 20)),
            ("Transfer-Encoding: gzip, chunked\r\n\r\n", chunk),
            ("Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n", chunk),
            ("\r\n", b"x" * (1 << 20)),
        ]
        for head, piece in cases:
            raw = Raw(api)
            raw.socket.sendall((PODS_HEAD + head).encode())
            answer = raw.answer()  # before anything of the body
            assert answer.startswith("HTTP/1.1 401 ") and '"reason":"Unauthorized"' in answer and "Connection: close" in answer, (head, answer)
            raw = Raw(api)
            raw.socket.sendall((PODS_HEAD + head).encode())
            assert raw.send(piece, 200) < 40, head
            assert resident_mib(api.pid) < before + 16, head

        def send_allowed_length(_):
            raw = Raw(api)
            raw.socket.sendall((PODS_HEAD + f"Content-Length: {7 << 20}\r\n\r\n").encode())
            raw.send(b"x" * (7 << 20))
            return raw.answer()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # one alone would not show
            assert all(answer.startswith("HTTP/1.1 401 ") for answer in pool.map(send_allowed_length, range(8)))
        assert resident_mib(api.pid) < before + 16
        raw = Raw(api)
        raw.socket.sendall((PODS_HEAD + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n").encode())
        answer = raw.answer()
        assert answer.startswith("HTTP/1.1 401 ") and answer.count("Content-Length") == 1 and answer.endswith("}"), answer
        for start, piece in [(b"GET /", b"a" * (1 << 16)), (b"GET / HTTP/1.1\r\nx: ", b"a" * (1 << 16)), (b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10000)]:
            raw = Raw(api)
            raw.socket.sendall(start)
            assert raw.send(piece, 1000) < 1000, start
            assert resident_mib(api.pid) < before + 16, start
        assert api.send("GET", "/version")[0] == 200


def test_a_body_is_read_up_to_the_limit(tmp_path):
    with ApiOnly(tmp_path) as api:
        assert api.send("GET", "/version")[0] == 200
        authorized = PODS_HEAD + f"Authorization: Bearer {api.token}\r\n"

        def ask(head, piece=b"", times=1, end=b""):
            raw = Raw(api)
            raw.socket.sendall((authorized + head).encode())
            raw.send(piece, times)
            raw.send(end)
            return raw.answer()

        pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}).encode()
        before, close = resident_mib(api.pid), "Content-Type: application/json\r\nConnection: close\r\n"
        chunked = b"".join(b"1\r\n%c\r\n" % byte for byte in pod)
        assert ask(close + "Transfer-Encoding: chunked\r\n\r\n", chunked, 1, b"0\r\n\r\n").startswith("HTTP/1.1 201 ")
        packed = gzip.compress(pod)
        assert ask(f"{close}Content-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n", packed).startswith("HTTP/1.1 409 ")
        assert ask(close + "\r\n").startswith("HTTP/1.1 400 "), "there is no body to wait for"
        mebibyte = b"x" * (1 << 20)
        chunk = b"%x\r\n" % len(mebibyte) + mebibyte + b"\r\n"
        for head, piece, times in [
            ("Transfer-Encoding: chunked\r\n\r\n", chunk, 200),
            (f"Content-Length: {200 << 20}\r\n\r\n", mebibyte, 200),
            (f"Content-Length: {99 ** 99}\r\n\r\n", mebibyte, 200),
        ]:
            answer = ask(head, piece, times)  # which whoever goes on sending may miss
            assert not answer or answer.startswith("HTTP/1.1 413 "), (head, answer)
        bomb = gzip.compress(b" " * (200 << 20))
        answer = ask(f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n", bomb)
        assert answer.startswith("HTTP/1.1 413 ") and "limit is 8388608 bytes" in answer, answer
        assert ask("Transfer-Encoding: chunked\r\n\r\n", chunk, 9).startswith("HTTP/1.1 413 ")
        assert ask(f"Content-Length: {9 << 20}\r\n\r\n").startswith("HTTP/1.1 413 ")
        assert ask("Transfer-Encoding: compress\r\n\r\n").startswith("HTTP/1.1 501 ")
        assert ask("Content-Length: 1x\r\n\r\n").startswith("HTTP/1.1 400 ")
        assert ask("Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1\r\n\r\n").startswith("HTTP/1.1 415 ")
        assert resident_mib(api.pid) < before + 64
        assert api.send("GET", "/version")[0] == 200

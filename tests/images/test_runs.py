"""The images run: as nobody, without capabilities or network, with a root that cannot be written."""

import json
import os
import pathlib
import re
import time

import archives
import pytest
from conftest import run

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TINY_JOB = ["synth", "algorithm_distillation", "--source", "ad_epsilon", "--size", "tiny", "--out"]
CONFIG = """
task: {name: algorithm_distillation, eval_episodes: 1}
model: {context: 20, layers: 1, dropout: 0}
data: {path: data}
batch: {global: 8}
train: {steps: 4}
checkpoint: {every: 2, dir: checkpoints}
run: {dir: run}
"""


def short_job():
    text = (REPOSITORY / "manifests/examples/dark-room.yaml").read_text()
    for old, new in (("steps: 2400", "steps: 40"), ("every: 400", "every: 20"), ("eval_episodes: 40", "eval_episodes: 1"), ("warmup: 50", "warmup: 5"),
                     ("ad_epsilon, --out", "ad_epsilon, --size, tiny, --out")):
        assert old in text
        text = text.replace(old, new)
    return text


def owners(folder):
    return {path.lstat().st_uid for path in folder.rglob("*")}


def test_the_operator_says_its_version_on_a_root_that_cannot_be_written(podman):
    result = podman("operator", ["--read-only", "--read-only-tmpfs=false"], ["--version"])
    labels = archives.archive("operator").config["config"]["Labels"]
    assert result.returncode == 0 and f"trainyard-operator {labels['org.opencontainers.image.version']}" in result.stdout, result
    assert labels["org.opencontainers.image.revision"] in result.stdout


def test_the_operator_names_a_kubeconfig_that_cannot_be_used(podman, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "wrong").write_text("apiVersion: v1\nkind: Config\nclusters: 7\n")
    read_only = ["--read-only", "--read-only-tmpfs=false", f"--volume={tmp_path}:/settings:ro"]
    for name in ("wrong", "absent"):
        result = podman("operator", read_only, ["run", "--kubeconfig", f"/settings/{name}"])
        assert result.returncode not in (0, 139) and f"/settings/{name}" in result.stderr, result


def test_the_operators_has_no_shell_and_nothing_that_local_does(podman):
    for program in ("sh", "/bin/sh", "/usr/bin/env"):
        result = podman("operator", [f"--entrypoint={program}"], [])
        assert result.returncode == 127, result
    result = podman("operator", [], ["local", "-f", "job.yaml"])
    assert result.returncode == 2 and "no such command" in result.stderr, result


KUBECONFIG = """{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
 clusters: [{name: a, cluster: {server: "https://api-server:9"}}], users: [{name: a, user: {}}]}"""


@pytest.mark.parametrize("address, trouble", [("--add-host=api-server:127.0.0.1", "api-server:9: connect"), ("--add-host=other:127.0.0.1", "api-server:9: look up")])
def test_the_operator_finds_names_of_the_hosts_file_and_ends_on_sigterm(podman, tmp_path, address, trouble):
    tmp_path.chmod(0o755)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    options = ["--read-only", address, f"--volume={tmp_path}:/settings:ro"]
    with podman.running("operator", options, ["run", "--kubeconfig", "/settings/kubeconfig"]) as container:
        first = next(line for line in container.stdout if "the watch fails" in line)
        code, rest = container.stop("TERM")
    assert trouble in first
    assert code == 0 and '"msg":"stopped"' in rest, (code, rest)


def test_the_trainer_lists_its_tasks_and_has_a_shell(podman):
    result = podman("trainer", ["--read-only"], ["trainyard", "tasks"])
    assert result.returncode == 0 and "algorithm_distillation" in result.stdout, result
    result = podman("trainer", [], ["sh", "-c", "id -u && ls /usr/local/bin && sed --version >/dev/null 2>&1; echo $((1+1))"])
    assert result.stdout.split() == ["65532", "trainyard", "2"], result


def test_the_trainer_trains(podman, caller):
    folder, uid, mounted = caller
    options = [*mounted, "--workdir=/work"]
    result = podman("trainer", options, ["trainyard", *TINY_JOB, "data"])
    assert result.returncode == 0, result
    (folder / "config.yaml").write_text(CONFIG)
    result = podman("trainer", [*options, "--env=OMP_NUM_THREADS=1", "--read-only"], ["trainyard", "launch", "--nproc", "2", "--config", "config.yaml"])
    assert result.returncode == 0, result
    assert list((folder / "checkpoints").iterdir()) and (folder / "run" / "log.jsonl").exists()
    (folder / "config.yaml").unlink()
    assert owners(folder) == {uid}


def test_the_trainer_keeps_a_run_that_has_no_place_where_it_can(podman):
    """A job without a checkpoint volume: nothing is mounted, and run.dir is relative."""
    config = CONFIG.replace("checkpoint: {every: 2, dir: checkpoints}\nrun: {dir: run}\n", "")
    assert "dir:" not in config
    result = podman("trainer", ["--env=OMP_NUM_THREADS=1", f"--env=JOB={config}"], ["sh", "-c", f'trainyard {" ".join(TINY_JOB)} data && echo "$JOB" >job.yaml && trainyard launch --nproc 2 --config job.yaml && ls runs/algorithm_distillation'])
    assert result.returncode == 0 and "checkpoints" in result.stdout, result


def test_the_trainer_maps_every_library_that_it_has(podman, caller):
    """The other half of `ldd found all of them`: none is there for nothing."""
    folder, _, options = caller
    needed = podman("trainer", [], ["sh", "-c", "LD_TRACE_LOADED_OBJECTS=1 trainyard; LD_TRACE_LOADED_OBJECTS=1 busybox"]).stdout
    loaded = {os.path.basename(path) for path in re.findall(r"(/\S+) \(0x", needed)}
    names = {os.path.basename(name) for name, (_, entry) in archives.archive("trainer").entries.items() if ".so" in name and "/doc/" not in name and not entry.isdir()}
    real = {os.path.basename(name) for name in archives.archive("trainer").programs_and_libraries() if ".so" in name}
    links = {os.path.basename(name): os.path.basename(entry.linkname) for name, (_, entry) in archives.archive("trainer").entries.items() if entry.issym()}
    assert loaded <= names and {links.get(name, name) for name in loaded} == real


@pytest.fixture
def gpu_image():
    if not archives.built(archives.GPU):
        pytest.skip("no archive of the trainer for GPUs: make images-gpu")
    return archives.GPU


def test_that_for_gpus_opens_its_plugin_and_every_library(podman, gpu_image):
    """Without a driver: whatever is named is found, as far as that can be seen without a GPU."""
    result = podman(gpu_image, [], ["trainyard", "--version"])
    assert result.returncode == 0 and re.search(r"plug-in /usr/local/lib/trainyard/libtrainyard_cuda.so opens, and sees no device", result.stdout), result
    script = 'for library in /usr/local/lib/trainyard/*.so*; do LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=$library trainyard | grep "not found" && echo "for $library"; done; echo done'
    assert podman(gpu_image, [], ["sh", "-c", script]).stdout == "done\n"


def test_that_for_gpus_trains_on_processors_where_there_are_none(podman, caller, gpu_image):
    folder, _, mounted = caller
    options = [*mounted, "--workdir=/work", "--env=OMP_NUM_THREADS=1"]
    assert podman(gpu_image, options, ["trainyard", *TINY_JOB, "data"]).returncode == 0
    (folder / "config.yaml").write_text(CONFIG)
    result = podman(gpu_image, options, ["trainyard", "launch", "--nproc", "2", "--config", "config.yaml"])
    assert result.returncode == 0 and list((folder / "checkpoints").iterdir()), result


# Docker's default profile refuses to a process without capabilities what podman's allows: mounts of its own.
DOCKERS = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["unshare", "mount", "umount2", "pivot_root", "setns"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}


@pytest.mark.parametrize("tool", ["podman", "docker"])
def test_local_runs_the_job_and_the_results_are_the_callers(podman, caller, tmp_path_factory, tool):
    folder, uid, options = caller
    (folder / "dark-room.yaml").write_text(short_job())
    profile = tmp_path_factory.mktemp("profile") / "seccomp.json"
    profile.write_text(json.dumps(DOCKERS))
    strict = [f"--security-opt=seccomp={profile}"] if tool == "docker" else []
    result = podman("local", [*options, *strict], ["dark-room.yaml"], timeout=300)
    assert result.returncode == 0, result
    assert ("mount namespace" in result.stderr) == (tool == "docker"), result.stderr
    state = folder / "dark-room-state"
    assert list(state.glob("claims/default/dark-room/**/*.safetensors")), list(state.rglob("*"))
    (folder / "dark-room.yaml").unlink()
    assert owners(folder) == {uid}


def test_local_says_what_is_missing(podman, caller):
    folder, _, options = caller
    result = podman("local", [], [])
    assert result.returncode == 2 and "-v \"$PWD:/work\"" in result.stdout, result
    result = podman("local", [], ["job.yaml"])
    assert result.returncode == 64 and "nothing is mounted at /work" in result.stderr, result
    result = podman("local", options, ["job.yaml"])
    assert result.returncode == 64 and "job.yaml: cannot be read" in result.stderr, result
    (folder / "job.yaml").write_text(short_job())
    result = podman("local", [f"--volume={folder}:/work"], ["job.yaml"])
    assert result.returncode == 64 and "/work cannot be written by user 65532:65532" in result.stderr and "--userns keep-id" in result.stderr, result
    assert [path.name for path in folder.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_a_signal_ends_local_with_a_checkpoint_and_the_next_start_goes_on(podman, caller, signal):
    folder, _, options = caller
    (folder / "job.yaml").write_text(short_job().replace("steps: 40", "steps: 100000"))
    checkpoints = folder / "job-state" / "claims" / "default" / "dark-room"
    with podman.running("local", options, ["job.yaml"]) as container:
        deadline = time.monotonic() + 120
        while not list(checkpoints.rglob("*.safetensors")) and time.monotonic() < deadline:
            assert container.poll() is None, container.stdout.read()
            time.sleep(0.2)
        code, output = container.stop(signal)
    assert code == 75 and "stopping" in output, (code, output)
    assert "goes on from its newest checkpoint" in output
    with podman.running("local", options, ["job.yaml"]) as container:
        second = next(line for line in container.stdout if "Trainyard: attempt 2" in line)
        assert "resuming from /checkpoints/step-" in second

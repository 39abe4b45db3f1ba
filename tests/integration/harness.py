"""Runs the real programs for the tests: data sets, configurations, processes, records."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import time
import typing

import pytest

BIN = os.environ.get("TRAINYARD_BIN", "build/release/bin/trainyard")
BIN_PATH = os.path.abspath(BIN)  # for a program that starts it elsewhere
TEST_TASKS = os.environ.get("TRAINYARD_TEST_TASKS_BIN", "build/release/bin/trainyard-with-test-tasks")
OPERATOR = os.environ.get("TRAINYARD_OPERATOR_BIN", "build/release/bin/trainyard-operator")


# `make test` shows each property on fewer cases than `make test-thorough`.
THOROUGH = os.environ.get("TRAINYARD_THOROUGH") == "1"
thorough = pytest.mark.skipif(not THOROUGH, reason="one more case of its kind: make test-thorough runs it")


def environment(**extra):
    """One thread per rank: the tests' ranks share few processors."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINYARD_", "PET_", "SLURM_")) and k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    env.update(OMP_NUM_THREADS="1", TRAINYARD_PROGRESS="none", CUDA_VISIBLE_DEVICES="")  # test_device.py alone wants GPUs
    env.update({k: str(v) for k, v in extra.items()})
    return env


def run(*args, program=BIN, timeout=120, **extra):
    """The finished process of `trainyard ARGS`, output as text."""
    return subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=timeout, env=environment(**extra), errors="replace")


def start(*args, program=BIN, **extra):
    return subprocess.Popen([program, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(**extra), errors="replace")


def synth(path, *args):
    result = run("synth", "algorithm_distillation", "--source", "ad_epsilon", "--size", "tiny", "--out", path, *args)
    assert result.returncode == 0, result.stderr
    return path


SMALL = {
    "task": {"name": "algorithm_distillation", "loss": "every_position", "eval_episodes": 0, "eval_windows": 32},
    "model": {"context": 24, "dim": 16, "layers": 2, "heads": 2, "dropout": 0},
    "batch": {"global": 8},
    "train": {"steps": 10, "log_every": 1},
    "optim": {"lr": 1e-3},
}


def write_tokens(path, tokens, vocab):
    """A token shard (docs/formats.md)."""
    path.write_bytes(b"TYTOKENS" + struct.pack(f"<IIQ{len(tokens)}H", 1, vocab, len(tokens), *tokens))
    return path


def small_algorithm_distillation(path):
    """A small job with its data."""
    return merged(SMALL, data={"path": str(synth(path))})


def small_language_model(path):
    """The same: 952 windows of tokens to train on, 64 held out."""
    rng = random.Random(5)
    for name, windows in (("train", 952), ("test", 64)):
        write_tokens(path / f"{name}.tokens", [min(rng.randrange(16), rng.randrange(16)) for _ in range(16 * windows + 1)], 16)
    return merged(SMALL_LANGUAGE_MODEL, data={"path": str(path), "test_shard": "test.tokens"})


SMALL_LANGUAGE_MODEL = {
    "task": {"name": "language_model"},
    "model": {"vocab": 16, "context": 16, "dim": 16, "layers": 2, "heads": 2, "dropout": 0},
    "batch": {"global": 8},
    "train": {"steps": 10, "log_every": 1},
    "optim": {"lr": 1e-3},
}

def small_cascade(path):
    """The same: seventeen patients to train on, so that a batch may have sixteen, and one held out."""
    result = run("synth", "hybrid_vit_cascade", "--size", "tiny", "--patients", 18, "--out", path)
    assert result.returncode == 0, result.stderr
    return merged(SMALL_CASCADE, data={"path": str(path), "test_fraction": 0})


SMALL_CASCADE = {
    "task": {"name": "hybrid_vit_cascade", "from_best": False, "sampling_steps": 2},
    "model": {"preset": "tiny", "stages": 2, "dropout": 0},
    "batch": {"global": 8},
    "train": {"steps": 10, "log_every": 1},
    "optim": {"lr": 1e-3},
}

SMALL_PATCHWORK = {
    "task": {"name": "patchwork", "first": 4},
    "model": {"dropout": 0},
    "data": {"path": os.devnull},  # its samples are computed
    "batch": {"global": 8},
    "train": {"steps": 10, "log_every": 1},
    "optim": {"lr": 1e-3},
}


def small_mace_survival(path):
    """The same: 64 volumes of 24 x 24 x 12 voxels to train on, 16 held out."""
    result = run("synth", "mace_survival", "--size", "tiny", "--out", path)
    assert result.returncode == 0, result.stderr
    return merged(SMALL_MACE_SURVIVAL, data={"path": str(path)})


SMALL_MACE_SURVIVAL = {
    "task": {"name": "mace_survival", "pretrain_epochs": 1, "event_fraction": 0.5},
    "model": {"width": 2, "dropout": 0},
    "data": {"volume": [8, 8, 4]},
    "batch": {"global": 16},
    "train": {"steps": 10, "log_every": 1},
    "optim": {"lr": 3e-4},  # with 1e-3 its 16 samples are learnt by heart, and a rounding grows tenfold every five steps: measured
}


@dataclasses.dataclass(frozen=True)
class SmallJob:
    make: typing.Callable[[pathlib.Path], dict]  # the configuration, and in the directory its data
    program: str = BIN
    # For interruptions: few samples, so that epochs end in the middle of batches; a stage ends between two checkpoints.
    interrupted: dict = dataclasses.field(default_factory=dict)
    # With which a run of fewer steps is the beginning of a longer one: no stage is a share of train.steps, or of epochs that a small batch makes long.
    shortened: dict = dataclasses.field(default_factory=dict)
    # Large enough that products, kernels and optimizer are really shared between threads; of odd sizes, so that no cut lies where a vector ends.
    threads: dict = dataclasses.field(default_factory=dict)
    # Where runs are compared within a tolerance: a rounding that turns a sign at a kink, of ReLU or the largest of a window, is a step of the gradient.
    compared: dict = dataclasses.field(default_factory=dict)
    # Why a rank's share cannot be cut into micro-batches; empty: it can.
    whole_share: str = ""

    def batch(self, samples, micro):
        return {"global": samples} if self.whole_share else {"global": samples, "micro": micro}


ODD_TRANSFORMER = dict(model={"context": 61, "dim": 72, "layers": 2}, batch={"global": 9})

# What holds for a task holds for every task: suites that are parametrised over tasks take a small job of each.
SMALL_JOBS = {
    "algorithm_distillation": SmallJob(
        small_algorithm_distillation,
        interrupted=dict(task={"eval_windows": 64, "eval_episodes": 2, "max_transitions": 30}),
        threads=ODD_TRANSFORMER,
    ),
    "hybrid_vit_cascade": SmallJob(
        small_cascade,
        interrupted=dict(batch={"global": 2}, task={"stage1": {"steps": 47}}),
        shortened=dict(task={"stage1": {"steps": 4}}),
        threads=dict(batch={"global": 3}, model={"stage1": {"dim": 96, "heads": 3, "depth": 2}, "stage2": {"dim": 64}}),
    ),
    "language_model": SmallJob(small_language_model, interrupted=dict(task={"eval_windows": 64}), threads=ODD_TRANSFORMER),
    "mace_survival": SmallJob(
        small_mace_survival,
        interrupted=dict(task={"pretrain_epochs": 26}, data={"cache": {"rate": 0.7, "replace": 0.2}}),  # windows of 44, of which 9 are replaced
        shortened=dict(task={"pretrain_epochs": 0}),
        threads=dict(task={"pretrain_epochs": 0}, model={"width": 5}, data={"volume": [19, 17, 9]}, batch={"global": 11}),
        compared=dict(optim={"lr": 1e-5}),  # of five seeds at 3e-4 four met such a kink in 50 steps, none at this: measured
        whole_share="batch norm and risk sets are those of the global batch, and batch.micro below the share is refused",
    ),
    "patchwork": SmallJob(
        lambda path: SMALL_PATCHWORK,
        program=TEST_TASKS,
        interrupted=dict(task={"first": 47}),
        threads=dict(task={"first": 2}, batch={"global": 97}),
        whole_share="batch norm and risk sets are those of a micro-batch over all ranks: other micro-batches are another loss, "
        "and other masks, and batch.micro below the share is refused",
    ),
}

# `make test` takes one of them: patchwork, which has what the others lack, or language_model, whose batches can be cut anyhow, where the cut is the matter.
def every_task(quick):
    return [pytest.param(task, marks=() if task == quick else thorough) for task in SMALL_JOBS]


def kind(job):
    """The table's row of a configuration."""
    return SMALL_JOBS[job["task"]["name"]]


def merged(base, **sections):
    config = json.loads(json.dumps(base))
    for section, fields in sections.items():
        config.setdefault(section, {}).update(fields)
    return config


def write_config(path, config):
    path = pathlib.Path(path)
    path.write_text(json.dumps(config))
    return path


def records(path, drop=("attempt",)):
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in drop} for line in lines]


def ranks_of(launcher_pid):
    """Process ids of the ranks that a launcher started, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent != launcher_pid:
                continue
            # A fork has a title. What was executed, as under LD_PRELOAD, has an environment of its own.
            title = re.match(r"trainyard: rank (\d+) of ", (entry / "cmdline").read_text())
            rank = title or re.search(r"(?:^|\0)RANK=(\d+)\0", (entry / "environ").read_text())
            found[int(rank[1])] = int(entry.name)
        except (OSError, TypeError, ValueError, IndexError):
            continue
    return found


def wait_until(condition, timeout=60, what="condition"):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"waited {timeout} s for {what}")


def free_port():
    """Below those that the kernel gives to whoever asks for any: no other test's store comes to listen on it before ours does."""
    lowest_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(range(10000, lowest_given), 100):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no free port from 10000 to {lowest_given}")


def is_running(pid, program):
    """Whether the process has got to the program: between fork and exec it still is the test itself."""
    try:
        return os.path.samefile(f"/proc/{pid}/exe", program)
    except OSError:
        return False


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def state(pid):
    """R, S, T (stopped), Z, ...; empty: there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def alive(pid):
    return state(pid) not in ("", "Z")

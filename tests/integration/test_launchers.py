"""Other ways to start ranks: two launchers as two nodes, torchrun, SLURM's and bare environments."""

import os
import signal
import subprocess
import sys

import pytest

import harness

STEPS = 6


@pytest.fixture
def job(tmp_path, data):
    """Writes a configuration whose run directory has this name; returns (config path, record path)."""

    def write(name):
        directory = tmp_path / name
        config = harness.merged(harness.SMALL, data={"path": str(data)}, train={"steps": STEPS}, run={"dir": str(directory)})
        return harness.write_config(tmp_path / f"{name}.json", config), directory / "record.jsonl"

    return write


@pytest.fixture
def reference(job):
    """The record of two ranks under one launcher."""
    config, record = job("reference")
    result = harness.run("launch", "--nproc", 2, "--config", config, "--record", record)
    assert result.returncode == 0, result.stderr
    return harness.records(record)


def finish(processes):
    """Output of each process, once all have ended well."""
    outputs = [p.communicate(timeout=90)[0] for p in processes]
    for process, output in zip(processes, outputs):
        assert process.returncode == 0, output
    return outputs


def test_two_launchers_are_two_nodes(job, reference):
    config, record = job("nodes")
    port = harness.free_port()
    # The second node's pod has an address of its own, as on a cluster; all of 127/8 is loopback.
    nodes = [
        harness.start("launch", "--config", config, "--record", record, TRAINYARD_POD_IP=f"127.0.0.{node + 1}", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                      PET_NNODES=2, PET_NODE_RANK=node, PET_NPROC_PER_NODE=1)
        for node in (1, 0)
    ]
    finish(nodes)
    assert harness.records(record) == reference


def test_two_nodes_of_two_ranks(job):
    config, record = job("four")
    result = harness.run("launch", "--nproc", 4, "--config", config, "--record", record)
    assert result.returncode == 0, result.stderr
    expected = harness.records(record)
    config, record = job("two-by-two")
    port = harness.free_port()
    finish([harness.start("launch", "--config", config, "--record", record, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, PET_NNODES=2, PET_NODE_RANK=node,
                          PET_NPROC_PER_NODE=2) for node in (0, 1)])
    assert harness.records(record) == expected


def test_a_refusal_of_node_0_is_heard_on_the_others(job, tmp_path):
    """Only node 0 looks at run.dir. The others' ranks wait for it no longer than it takes to hear why, whoever comes first."""
    config, record = job("refused")
    (tmp_path / "file").write_text("")
    port = harness.free_port()
    nodes = [
        harness.start("launch", "--config", config, "--record", record, "--set", f"run.dir={tmp_path}/file/run", TRAINYARD_POD_IP=f"127.0.0.{node + 1}",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port, PET_NNODES=3, PET_NODE_RANK=node, PET_NPROC_PER_NODE=1)
        for node in (1, 0, 2)
    ]
    outputs = [process.communicate(timeout=90)[0] for process in nodes]  # parallel.rendezvous_seconds is 300
    assert [process.returncode for process in nodes] == [69, 64, 69], outputs
    assert "run.dir: cannot write" in outputs[1]
    for output in (outputs[0], outputs[2]):
        assert "rank 0 has ended: run.dir: cannot write" in output


def launcher(config, port, node, *words, nodes=2, **environment):
    return harness.start("launch", "--nnodes", nodes, "--node-rank", node, "--master", f"127.0.0.1:{port}", "--config", config, *words, **environment)


def test_a_second_one_of_a_rank_disturbs_nobody(job):
    config, record = job("twice")
    port, long = harness.free_port(), ("--set", "train.steps=400", "--record", record)
    nodes = [launcher(config, port, node, *long) for node in (0, 1)]
    harness.wait_until(record.exists, what="the first step")
    late = launcher(config, port, 1, *long)
    output = late.communicate(timeout=60)[0]
    assert late.returncode == 64 and "rank 1 is there already" in output, output
    finish(nodes)
    assert len(harness.records(record)) == 400


@pytest.mark.parametrize("of_more", ["--nnodes", "--nproc"])
def test_another_world_is_told_at_once(job, of_more):
    config, _ = job("worlds")
    port, soon = harness.free_port(), ("--set", "parallel.rendezvous_seconds=15", "--set", "batch.global=12")
    first = launcher(config, port, 0, *soon)
    other = launcher(config, port, 1, *soon, nodes=3) if of_more == "--nnodes" else launcher(config, port, 1, *soon, "--nproc", 3)
    output = other.communicate(timeout=60)[0]
    assert other.returncode == 64 and "rank 0's world is another one: ranks 2, and this rank's" in output, output
    assert first.poll() is None, "which waits until the deadline"
    output = first.communicate(timeout=60)[0]
    assert first.returncode == 69 and "rank 1 of 2 is not there; one of another world was: rank 0's world" in output, output


def test_a_rank_of_another_attempt_disturbs_nobody(job, reference):
    """As one of a node that was lost and is back; for the operator it is a failure that the next attempt mends."""
    config, record = job("attempts")
    port, ours = harness.free_port(), {"TRAINYARD_JOB_UID": "of-the-test", "TRAINYARD_ATTEMPT": 2}
    first = launcher(config, port, 0, "--record", record, **ours)
    other = launcher(config, port, 1, **{**ours, "TRAINYARD_ATTEMPT": 1})
    output = other.communicate(timeout=60)[0]
    assert other.returncode == 69 and 'attempt "2", and this rank\'s "1"' in output, output
    finish([first, launcher(config, port, 1, "--record", record, **ours)])
    assert harness.records(record) == reference


@pytest.mark.parametrize("frozen", [0, pytest.param(1, marks=harness.thorough)])
def test_a_launcher_whose_only_rank_is_frozen_ends_as_well(job, frozen):
    """The others name it within the deadline and end; nobody is left who could tell it so."""
    config, record = job("frozen")
    port = harness.free_port()
    words = ("--set", "train.steps=1000000", "--set", "parallel.collective_seconds=4", "--record", record)
    nodes = [launcher(config, port, node, *words) for node in (0, 1)]
    harness.wait_until(record.exists, what="the first step")
    os.kill(harness.ranks_of(nodes[frozen].pid)[frozen], signal.SIGSTOP)
    outputs = [node.communicate(timeout=90)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [69, 69], outputs
    assert f"rank {frozen} gives no sign of life" in outputs[1 - frozen], outputs
    assert "after another node's launcher" in outputs[frozen], outputs


def test_torchrun_starts_ranks(job, reference):
    config, record = job("torchrun")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={harness.free_port()}", "--no-python", harness.BIN, "train",
               "--config", config, "--record", record]
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, env=harness.environment())
    assert result.returncode == 0, result.stderr
    assert harness.records(record) == reference


@pytest.mark.parametrize("kind", ["bare", "slurm"])
def test_ranks_from_the_environment(job, reference, kind):
    """RANK and WORLD_SIZE, as a plain PyTorch script reads them, and what srun sets."""
    config, record = job(kind)
    port = harness.free_port()
    environments = {
        "bare": lambda r: dict(RANK=r, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
        "slurm": lambda r: dict(SLURM_PROCID=r, SLURM_NTASKS=2, SLURM_LOCALID=r, SLURM_NTASKS_PER_NODE=2, SLURM_NODEID=0, SLURM_JOB_ID=7,
                                SLURM_STEP_NODELIST="localhost", SLURM_JOB_NODELIST="localhost", MASTER_PORT=port),
    }
    finish([harness.start("train", "--config", config, "--record", record, **environments[kind](r)) for r in range(2)])
    assert harness.records(record) == reference

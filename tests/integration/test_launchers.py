"""Other ways to start ranks: two launchers as two nodes, torchrun, SLURM's and bare environments."""

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

"""Two nodes that are two network namespaces with a cable between them: 2 x 2 ranks train as four on one node do, to the bit."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys

import pytest

import harness

STEPS = 5


def sh(*words):
    subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def nodes():
    """[(namespace, address)] of two nodes; each reaches the other one, and nothing else."""
    if not shutil.which("ip"):
        pytest.skip("needs ip(8) to make network namespaces")
    names = [f"ty{os.getpid()}n{i}" for i in range(2)]
    links = [f"ty{os.getpid()}v{i}"[-15:] for i in range(2)]
    made = []
    try:
        try:
            for name in names:
                sh("ip", "netns", "add", name)
                made.append(name)
            sh("ip", "link", "add", links[0], "type", "veth", "peer", "name", links[1])
            for i in range(2):
                sh("ip", "link", "set", links[i], "netns", names[i])
                for command in (["addr", "add", f"10.77.0.{i + 1}/24", "dev", links[i]], ["link", "set", links[i], "up"], ["link", "set", "lo", "up"]):
                    sh("ip", "-n", names[i], *command)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"needs the right to make network namespaces and a cable between them: {error.stderr.strip()}")
        yield [(name, f"10.77.0.{i + 1}") for i, name in enumerate(names)]
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("nodes")
    base = harness.merged(harness.small_language_model(path), train={"steps": STEPS})

    def write(name, **sections):
        config = harness.merged(base, run={"dir": str(path / name)}, **sections)
        return harness.write_config(path / f"{name}.json", config), path / name / "record.jsonl"

    return write


@pytest.fixture(scope="module")
def reference(job):
    """Four ranks on one node."""
    config, record = job("reference")
    result = harness.run("launch", "--nproc", 4, "--config", config, "--record", record)
    assert result.returncode == 0, result.stderr
    return harness.records(record)


def start_in(namespace, *words, **extra):
    return subprocess.Popen(["ip", "netns", "exec", namespace, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=harness.environment(**extra),
                            errors="replace")


def finish(processes, codes=(0, 0)):
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.callback(process.kill)
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    for process, output, code in zip(processes, outputs, codes):
        assert process.returncode == code, output
    return outputs


def test_the_flags_of_the_guides(nodes, job, reference):
    """Nothing else is set: the first node serves on the address that --master names."""
    config, record = job("flags")
    finish([start_in(name, harness.BIN, "launch", "--nnodes", 2, "--node-rank", i, "--master", nodes[0][1], "--nproc", 2, "--config", config, "--record", record)
            for i, (name, _) in enumerate(nodes)])
    assert harness.records(record) == reference


def test_a_first_node_whose_own_name_means_a_loopback_address(nodes, job, reference, tmp_path):
    """As Debian's installer writes it: the others know the name by an address that leads there."""
    config, record = job("named")
    processes = []
    for i, (name, _) in enumerate(nodes):
        hosts = tmp_path / f"hosts-{i}"
        hosts.write_text(f"127.0.0.1 localhost\n{nodes[0][1] if i else '127.0.1.1'} first-node\n")
        # In the mount namespace that ip-netns(8) makes for the command.
        processes.append(start_in(name, "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh", harness.BIN, "launch", "--nnodes", 2, "--node-rank", i,
                                  "--master", "first-node", "--nproc", 2, "--config", config, "--record", record))
    finish(processes)
    assert harness.records(record) == reference


def test_the_environment_of_the_operator(nodes, job, reference):
    config, record = job("environment")
    finish([start_in(name, harness.BIN, "launch", "--config", config, "--record", record, PET_NNODES=2, PET_NODE_RANK=i, PET_NPROC_PER_NODE=2, MASTER_ADDR=nodes[0][1],
                     MASTER_PORT=23456, TRAINYARD_POD_IP=address) for i, (name, address) in enumerate(nodes)])
    assert harness.records(record) == reference


def test_slurms_environment(nodes, job, reference):
    config, record = job("slurm")
    finish([start_in(name, harness.BIN, "launch", "--nproc", 2, "--config", config, "--record", record, SLURM_NNODES=2, SLURM_NODEID=i, SLURM_JOB_ID=77,
                     SLURM_JOB_NODELIST=nodes[0][1], TRAINYARD_POD_IP=address) for i, (name, address) in enumerate(nodes)])
    assert harness.records(record) == reference


@harness.thorough
def test_torchrun(nodes, job, reference):
    config, record = job("torchrun")
    finish([start_in(name, sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={i}", "--nproc-per-node=2", f"--master-addr={nodes[0][1]}",
                     "--master-port=23457", "--no-python", harness.BIN, "train", "--config", config, "--record", record) for i, (name, _) in enumerate(nodes)])
    assert harness.records(record) == reference


def test_a_cable_that_is_cut(nodes, job):
    """Each node says that the other one is gone, within the deadline and five seconds."""
    config, _ = job("cut", train={"steps": 10**6}, parallel={"collective_seconds": 2})
    processes = [start_in(name, harness.BIN, "launch", "--nnodes", 2, "--node-rank", i, "--master", nodes[0][1], "--nproc", 1, "--config", config) for i, (name, _) in enumerate(nodes)]
    log = harness.pathlib.Path(config).with_suffix("") / "log.jsonl"
    try:
        harness.wait_until(lambda: log.exists() and log.stat().st_size > 0, 90, "steps")
        link = subprocess.run(["ip", "-n", nodes[1][0], "-o", "link", "show", "type", "veth"], capture_output=True, text=True, check=True).stdout.split(":")[1].split("@")[0].strip()
        sh("ip", "-n", nodes[1][0], "link", "set", link, "down")
        outputs = finish(processes, (69, 69))
        assert "rank 1" in outputs[0], outputs[0]
        assert "rank 0" in outputs[1] or "the store" in outputs[1], outputs[1]
    finally:
        for process in processes:
            process.kill()
        subprocess.run(["ip", "-n", nodes[1][0], "link", "set", link, "up"], capture_output=True)


def test_a_port_that_nobody_set_is_chosen_anew(job):
    """PyTorch's usual port is taken, and so is another one that was free a moment ago; nobody has named either."""
    config, record = job("port")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
        except OSError:
            pass  # somebody else has it, which is as good
        result = harness.run("launch", "--nproc", 2, "--config", config, "--record", record)
        assert result.returncode == 0, result.stderr
        # A port that somebody did set is a mistake that has to be named.
        result = harness.run("launch", "--nproc", 2, "--config", config, MASTER_PORT=29500)
        assert result.returncode == 69 and "MASTER_PORT" in result.stderr and "29500" in result.stderr, result.stderr

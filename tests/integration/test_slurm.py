"""scripts/slurm/train.sbatch on two nodes that are this machine.

There is no SLURM here: `srun`, `scancel` and `scontrol` are stand-ins on PATH that do of the real ones what the script relies on. srun starts
the command once for each node, with the node's variables, and ends with the highest code; on SIGTERM it kills them, as the real one does. scancel
sends a signal to what srun started. scontrol lists hosts, says the job's state and notes what is put back into the queue. Nodes are called by their
addresses, 127.0.0.2 and 127.0.0.3: what is served on 127.0.0.1 is found on neither.
"""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import harness

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "slurm" / "train.sbatch"
STEPS = 40

SRUN = f"""#!{sys.executable}
import os, signal, subprocess, sys
arguments = sys.argv[1:]
while arguments[0].startswith("--"):
    arguments.pop(0)
hosts = os.environ["SLURM_JOB_NODELIST"].split(",")
nodes = []
signal.signal(signal.SIGTERM, lambda *_: [node.kill() for node in nodes])
for number, host in enumerate(hosts):
    nodes.append(subprocess.Popen(arguments, env=dict(os.environ, SLURM_NODEID=str(number), SLURM_PROCID=str(number), SLURM_LOCALID="0", SLURMD_NODENAME=host)))
with open(os.environ["STEP"], "w") as file:
    file.write(" ".join(str(node.pid) for node in nodes))
sys.exit(max(code if code >= 0 else 128 - code for code in (node.wait() for node in nodes)))
"""
SCANCEL = """#!/usr/bin/env bash
[ "$*" = "--signal=TERM $SLURM_JOB_ID" ] && kill -TERM $(cat "$STEP")
sleep "${SCANCEL_SECONDS:-0}"
"""
SCONTROL = """#!/usr/bin/env bash
case "$1 $2" in
  "show hostnames") tr , '\\n' <<<"$3" ;;
  "show job") echo "   JobState=${STATE:-RUNNING} Reason=None Dependency=(null)" ;;
  "requeue $SLURM_JOB_ID") echo "$2" >>"$REQUEUED" ;;
  *) exit 1 ;;
esac
"""
# In place of the trainer, where only its code counts: ends with CODE, or waits for a SIGTERM and ends with that.
TRAINER = f"""#!{sys.executable}
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
if os.environ.get("WAIT"):
    open(os.environ["WAIT"] + os.environ["SLURM_NODEID"], "w").close()
    signal.sigwait([signal.SIGTERM])
sys.exit(int(os.environ["CODE"]))
"""


@pytest.fixture
def slurm(tmp_path):
    """Starts the script as a job of two nodes; the same number and folder again, as after a requeue."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scancel", SCANCEL), ("scontrol", SCONTROL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tools / "trainyard").symlink_to(pathlib.Path(harness.BIN).resolve())
    port = harness.free_port()  # the real one is of the job's number: two of these tests may run at once

    def start(*arguments, **extra):
        environment = harness.environment(
            PATH=f"{tools}:{os.environ['PATH']}", SLURM_JOB_ID=port, SLURM_NNODES=2, SLURM_NTASKS=2, SLURM_JOB_NODELIST="127.0.0.2,127.0.0.3", SLURM_SUBMIT_DIR=tmp_path,
            STEP=tmp_path / "step", REQUEUED=tmp_path / "requeued", MASTER_PORT=port, **extra)
        return subprocess.Popen([SCRIPT, *map(str, arguments)], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    start.port = port
    return start


def configuration(tmp_path, data, name, **sections):
    config = harness.merged(harness.SMALL, data={"path": str(data)}, train={"steps": STEPS}, run={"dir": str(tmp_path / name)}, checkpoint={"every": 10})
    return harness.write_config(tmp_path / f"{name}.json", harness.merged(config, **sections))


def requeued(tmp_path):
    return (tmp_path / "requeued").read_text().split() if (tmp_path / "requeued").exists() else []


def end(job):
    output = job.communicate(timeout=120)[0]
    return job.returncode, output


def test_two_nodes_train_stop_and_go_on(tmp_path, data, slurm):
    reference = tmp_path / "reference" / "record.jsonl"
    result = harness.run("launch", "--nproc", 2, "--config", configuration(tmp_path, data, "reference"), "--record", reference)
    assert result.returncode == 0, result.stderr

    record = tmp_path / "job" / "record.jsonl"
    config = configuration(tmp_path, data, "job")
    job = slurm("--config", config, "--record", record, TRAINYARD_TEST_FAULT="slow_forward:0:15")  # seven seconds, in the middle
    harness.wait_until(lambda: record.exists() and len(record.read_text().splitlines()) > 3, 90, "some steps")
    job.send_signal(signal.SIGTERM)  # what --signal=B:TERM sends, to this shell alone
    code, output = end(job)
    assert code == 75 and "the job comes again" in output, output
    assert requeued(tmp_path) == [str(slurm.port)]
    assert len(harness.records(record)) < STEPS

    code, output = end(slurm("--config", config, "--record", record, SLURM_RESTART_COUNT=1))
    assert code == 0, output
    assert requeued(tmp_path) == [str(slurm.port)], "and not again"
    assert harness.records(record) == harness.records(reference), "to the bit"


def test_a_mistake_is_not_tried_again(tmp_path, data, slurm):
    """Node 0 alone finds it, with 64; node 1 ends with 69, which is the higher."""
    (tmp_path / "file").write_text("")
    code, output = end(slurm("--config", configuration(tmp_path, data, "job", run={"dir": str(tmp_path / "file" / "run")})))
    assert code == 64 and "run.dir: cannot write" in output and "the same the next time" in output, output
    assert requeued(tmp_path) == []


def test_a_failure_comes_again(tmp_path, data, slurm):
    code, output = end(slurm("--config", configuration(tmp_path, data, "job"), TRAINYARD_TEST_FAULT="forward:1:2"))
    assert code == 70 and "it failed with 70 (1 of 3)" in output, output
    assert len(requeued(tmp_path)) == 1


@pytest.fixture
def play(tmp_path, slurm):
    """One start of the job after the other with a trainer that ends with a code; after a SIGTERM to the script if `stop`. Says whether it came again."""
    (tmp_path / "tools" / "trainyard").unlink()
    (tmp_path / "tools" / "trainyard").write_text(TRAINER)
    (tmp_path / "tools" / "trainyard").chmod(0o755)
    count = iter(range(1000))

    def start(code, stop=False, **extra):
        number, before = next(count), len(requeued(tmp_path))
        waits = tmp_path / f"waits-{number}-"
        job = slurm("--config", "x", CODE=code, SLURM_RESTART_COUNT=number, **({"WAIT": waits} if stop else {}), **extra)
        if stop:
            harness.wait_until(lambda: all((tmp_path / f"{waits.name}{node}").exists() for node in (0, 1)), 30, "both nodes")
            job.send_signal(signal.SIGTERM)
        ended, output = end(job)
        assert ended == code, output
        return len(requeued(tmp_path)) - before == 1

    return start


def test_a_step_that_ends_before_scancel_does_has_its_own_code(play):
    """The shell is in its trap then, and waits for nothing."""
    assert play(75, stop=True, SCANCEL_SECONDS=1)
    assert not play(65, stop=True, SCANCEL_SECONDS=1)


def test_failures_are_counted_since_the_last_stop_that_saved(play):
    """Stops at the end of the time are no failures, and are not counted as such."""
    assert [play(75, stop=True) for _ in range(5)] == [True] * 5
    assert [play(code) for code in (69, 70, 137)] == [True] * 3
    assert play(75, stop=True)
    assert [play(70) for _ in range(4)] == [True, True, True, False]
    assert not play(70, TRAINYARD_MAX_RESTARTS=0)


def test_a_stop_comes_again_whatever_a_node_made_of_it(play):
    assert play(69, stop=True), "a peer was gone before it had saved"
    assert not play(64, stop=True)
    assert not play(0, stop=True), "it had just finished"
    assert not play(75), "somebody stopped the step, and not the end of the time"


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING"])
def test_a_cancelled_job_is_not_put_back(play, state):
    assert not play(75, stop=True, STATE=state)


def test_outside_of_a_job_it_says_so(tmp_path):
    result = subprocess.run([SCRIPT, "--config", "x"], cwd=tmp_path, env=harness.environment(), capture_output=True, text=True, timeout=60)
    assert result.returncode != 0 and "not in a SLURM job" in result.stderr

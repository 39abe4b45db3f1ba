"""Who asks for a stop is heard at once; who asks twice is obeyed at once."""

import fcntl
import json
import os
import pathlib
import pty
import signal
import struct
import subprocess
import termios
import time
import urllib.error
import urllib.request

import pytest

import harness

SLOW_COPY = os.environ.get("TRAINYARD_SLOW_COPY", "build/release/lib/libslow_copy.so")

PATIENCE = 120  # for a busy machine


@pytest.fixture
def job(tmp_path, data):
    """Its first step lasts for minutes."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, model={"dim": 256, "layers": 8},
                            batch={"global": 2048, "micro": 8}, train={"steps": 2})
    return harness.write_config(tmp_path / "job.json", config)


class Output:
    """What a process has written so far."""

    def __init__(self, fd):
        os.set_blocking(fd, False)
        self.fd, self.text = fd, ""

    def has(self, words):
        try:
            self.text += os.read(self.fd, 65536).decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return words in self.text

    def wait(self, words):
        harness.wait_until(lambda: self.has(words), PATIENCE, f"{words!r} in {self.text!r}")


def wait_for_training(port):
    def training():
        try:
            return json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=PATIENCE).read())["phase"] == "training"
        except urllib.error.URLError:
            return False

    harness.wait_until(training, PATIENCE, "training in /status")


def in_a_terminal(*arguments, before=lambda: None, **extra):
    """The process, and the terminal's other side. It calls `before` first."""
    ours, theirs = pty.openpty()

    def own():
        before()
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen([harness.BIN, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=own,
                                       env=harness.environment(TRAINYARD_PROGRESS="bar", **extra))
    os.close(theirs)
    return process, ours


def test_two_keystrokes_in_a_terminal(tmp_path, job):
    """The terminal signals the launcher, which alone tells the ranks; the second keystroke counts however soon it comes."""
    port = harness.free_port()
    process, terminal = in_a_terminal("launch", "--nproc", 2, "--config", job, TRAINYARD_STATUS_PORT=port)
    output = Output(terminal)
    try:
        wait_for_training(port)
        os.write(terminal, b"\x03")
        output.wait("launch: SIGINT: stopping after this step, then saving; Ctrl-C again ends at once, without saving")
        assert process.poll() is None
        os.write(terminal, b"\x03")
        output.wait("(exit code 130, Signal2)")
        assert process.wait(timeout=PATIENCE) == 130
    finally:
        harness.kill(process.pid)
        os.close(terminal)
    last = output.text.strip().splitlines()[-1]
    assert "ended at once on a second signal (SIGINT), as asked; nothing more was saved" in last, last
    assert "killed by signal" not in output.text
    assert not list((tmp_path / "run" / "checkpoints").glob("step-*"))


@pytest.mark.parametrize("alone", [True, False])
def test_two_signals_within_two_seconds(tmp_path, job, alone):
    port = harness.free_port()
    arguments = ["train"] if alone else ["launch", "--nproc", 2]
    process = harness.start(*arguments, "--config", job, TRAINYARD_STATUS_PORT=port, TRAINYARD_TERMINATION_LOG=tmp_path / "termination")
    output = Output(process.stdout.fileno())
    try:
        wait_for_training(port)
        process.send_signal(signal.SIGTERM)
        output.wait("stopping after this step, then saving; a second signal ends at once, without saving")
        time.sleep(0.7)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 143
        output.wait("ended at once on a second signal")
    finally:
        harness.kill(process.pid)
    if not alone:
        assert json.loads((tmp_path / "termination").read_text())["reason"] == "Signal15"


@pytest.fixture
def long_job(tmp_path, data):
    """Many short steps."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 1000000})
    return harness.write_config(tmp_path / "job.json", config)


def listens_to_a_hangup():
    """In the new process: whoever runs the tests may have said nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("command", [["launch", "--nproc", 2], ["train"]])
def test_a_lost_connection_stops_the_run_with_a_checkpoint(tmp_path, long_job, command):
    port = harness.free_port()
    process, terminal = in_a_terminal(*command, "--config", long_job, before=listens_to_a_hangup, TRAINYARD_STATUS_PORT=port)
    try:
        wait_for_training(port)
        os.close(terminal)
        assert process.wait(timeout=PATIENCE) == 75
    finally:
        harness.kill(process.pid)
    assert list((tmp_path / "run" / "checkpoints").glob("step-*/manifest.json"))


def test_a_hangup_behind_ctrl_c_does_not_ask_again(tmp_path, job):
    """The step lasts on, and so does what it will save."""
    port = harness.free_port()
    process = subprocess.Popen([harness.BIN, "launch", "--nproc", "2", "--config", str(job)], preexec_fn=listens_to_a_hangup, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=harness.environment(TRAINYARD_STATUS_PORT=port))
    output = Output(process.stdout.fileno())
    try:
        wait_for_training(port)
        process.send_signal(signal.SIGINT)
        output.wait("launch: SIGINT: stopping after this step")
        time.sleep(0.7)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.7)
        assert process.poll() is None, output.text
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 143
    finally:
        harness.kill(process.pid)


def test_under_nohup_a_hangup_is_nothing(tmp_path, long_job):
    port = harness.free_port()
    environment = harness.environment(TRAINYARD_STATUS_PORT=port)
    process = subprocess.Popen(["nohup", harness.BIN, "launch", "--nproc", "2", "--config", str(long_job)], env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_training(port)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in [process.pid, *map(int, children)]:
            os.kill(pid, signal.SIGHUP)
        time.sleep(1)
        wait_for_training(port)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 75
    finally:
        harness.kill(process.pid)


def test_a_dry_run_simply_ends(job):
    """It has nothing to save, and its batch would last for minutes."""
    process = harness.start("train", "--dry-run", "--config", job)

    def is_prepared():
        fields = dict(line.split(":", 1) for line in open(f"/proc/{process.pid}/status"))
        return int(fields["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1

    try:
        harness.wait_until(is_prepared, PATIENCE, "a handler")
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=30)[0]
    finally:
        harness.kill(process.pid)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "a dry run writes nothing" in output and "then saving" not in output


def test_an_evaluation_that_reads_its_data_obeys(tmp_path):
    """The data is 64 GiB of zeros that take no room, and the checkpoint, which is not there, is looked for behind it."""
    shard = harness.write_tokens(tmp_path / "train.tokens", [], 16)
    tokens = 32 << 30
    with open(shard, "r+b") as file:
        file.seek(16)
        file.write(struct.pack("<Q", tokens))
        file.truncate(24 + 2 * tokens)
    config = harness.merged(harness.SMALL_LANGUAGE_MODEL, data={"path": str(shard)}, run={"dir": str(tmp_path / "run")})
    process = harness.start("eval", "--config", harness.write_config(tmp_path / "job.json", config), "--checkpoint", tmp_path / "none", TRAINYARD_PROGRESS="lines")
    output = Output(process.stdout.fileno())
    try:
        output.wait("reading tokens")
        process.send_signal(signal.SIGTERM)
        output.wait("stopped on request while the data was read")
        assert process.wait(timeout=PATIENCE) == 75
    finally:
        harness.kill(process.pid)
        shard.unlink()


def test_a_stop_that_reaches_everyone_at_once_is_one(tmp_path, data):
    """`pkill` signals the launcher and its ranks, and the launcher forwards: nobody was asked twice."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 10**6})
    process = harness.start("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "job.json", config))
    record = tmp_path / "run" / "log.jsonl"
    harness.wait_until(lambda: record.exists() and record.stat().st_size > 0, PATIENCE, "steps")
    for pid in [*harness.ranks_of(process.pid).values(), process.pid]:
        harness.kill(pid, signal.SIGTERM)
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 75, output
    assert "its checkpoint is durable" in output


def test_a_save_that_waits_for_the_one_before_is_no_stall(tmp_path, data):
    """With a slow volume a checkpoint comes due while the last one is being written. The steps stand still then, and nothing is wrong."""
    port = harness.free_port()
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, checkpoint={"every": 1}, train={"steps": 10**6})
    launcher = harness.start("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "job.json", config), TRAINYARD_STATUS_PORT=port,
                             LD_PRELOAD=SLOW_COPY, SLOW_SYNC_MS=1500)
    try:
        wait_for_training(port)
        phases = []

        def waits():
            phases.append(json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=PATIENCE).read())["phase"])
            return phases.count("saving") > 2

        harness.wait_until(waits, PATIENCE, f"the phase saving in {phases}")
    finally:
        harness.kill(launcher.pid)


def test_ctrl_z_stops_the_ranks_too(long_job):
    port = harness.free_port()
    launcher = harness.start("launch", "--nproc", "2", "--config", long_job, TRAINYARD_STATUS_PORT=port)
    try:
        wait_for_training(port)
        pids = [launcher.pid, *harness.ranks_of(launcher.pid).values()]
        launcher.send_signal(signal.SIGTSTP)
        harness.wait_until(lambda: all(harness.state(pid) == "T" for pid in pids), PATIENCE, "all to be stopped")
        launcher.send_signal(signal.SIGCONT)  # fg
        harness.wait_until(lambda: all(harness.state(pid) in "RSD" for pid in pids), PATIENCE, "all to go on")
        wait_for_training(port)
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(timeout=PATIENCE) == 75
    finally:
        harness.kill(launcher.pid)


def test_ranks_that_somebody_has_stopped_hear_of_it(tmp_path, data):
    """SIGTERM alone waits in a stopped process for ever, and nobody is left who would miss the ranks of the only node."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 10**6})
    process = harness.start("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "job.json", config))
    log = tmp_path / "run" / "log.jsonl"
    harness.wait_until(lambda: log.exists() and log.stat().st_size > 0, PATIENCE, "steps")
    for pid in harness.ranks_of(process.pid).values():
        harness.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 75 and "its checkpoint is durable" in output, output

"""SIGKILL while checkpoints are written, of anyone, also on a disk that is nearly full: the newest good one always loads, and is not older than the
last that was complete. What a loss of power leaves is tests/unit/power_loss_test.cc's matter, who owns what test_takeover.py's.

TRAINYARD_TEST_SEED chooses another sequence.
"""

import json
import os
import pathlib
import random
import subprocess
import time

import pytest

import harness

SEED = int(os.environ.get("TRAINYARD_TEST_SEED", "5"))
TRIALS = 200 if harness.THOROUGH else 8


def number_of(step):
    return int(step.strip()[5:])


def complete(checkpoints):
    """The newest step that was committed; 0: none."""
    try:
        return number_of((checkpoints / "latest").read_text())
    except (OSError, ValueError):
        return 0


class Run:
    """One job that is killed again and again; `checkpoints` is how this test sees its folder, `inside` runs a program where it lies."""

    def __init__(self, tmp_path, directory, inside=(), **sections):
        config = harness.merged(harness.small_language_model(tmp_path), train={"steps": 10**6}, model={"dim": 64, "layers": 3, "heads": 4},
                                checkpoint={"every": 1, "keep_last": 2, "dir": str(directory)}, run={"dir": str(tmp_path / "run")}, metrics={"tensorboard": False})
        self.config = harness.write_config(tmp_path / "job.json", harness.merged(config, **sections))
        self.checkpoints, self.inside = pathlib.Path(directory), list(inside)

    def start(self, ranks, **env):
        words = ["launch", "--nproc", ranks, "--config", self.config]
        if not self.inside:
            return harness.start(*words, **env)
        return harness.start(*self.inside[1:], harness.BIN_PATH, *words, program=self.inside[0], **env)

    def verify(self):
        words = ["checkpoint", "verify", self.checkpoints]
        return harness.run(*words) if not self.inside else harness.run(*self.inside[1:], harness.BIN_PATH, *words, program=self.inside[0])


def newest_good(verified):
    """The newest step that `checkpoint verify` finds good."""
    names = [pathlib.Path(line.removesuffix(": good")).name for line in verified.stdout.splitlines() if line.endswith(": good")]
    good = [number_of(name) for name in names if name.startswith("step-") and "." not in name]
    return max(good, default=0)


def play(run, seen, ranks, trials, whom):
    """Kills at random moments. `seen`: the folder of the checkpoints as this test sees it."""
    rng = random.Random(f"{SEED}-{ranks}-{whom}")
    print(f"seed {SEED}")
    least, ends = 0, []
    for trial in range(trials):
        process = run.start(ranks)
        before = complete(seen())
        try:
            # It gets on: at least one save is complete in this attempt. Then at any moment of the saves that follow each other.
            harness.wait_until(lambda: complete(seen()) > before or process.poll() is not None, 60, "a checkpoint")
            time.sleep(rng.uniform(0, 0.25))
            pids = harness.ranks_of(process.pid)
            victim = process.pid if whom == "launcher" else pids.get(rng.randrange(ranks)) if whom == "a rank" else None
            least = max(least, complete(seen()))
            if victim is None:
                for pid in pids.values():
                    harness.kill(pid)
            else:
                harness.kill(victim)
            output = process.communicate(timeout=60)[0]
            for pid in pids.values():
                harness.wait_until(lambda: not harness.alive(pid), 30, "the rank's end")
        finally:
            process.kill()
        assert f"resuming from" in output or trial == 0, output
        ends.append(process.returncode)
        verified = run.verify()
        newest = newest_good(verified)
        assert newest >= least > 0, f"trial {trial}: step {least} was complete, and the newest good one is {newest}\n{verified.stdout}\n{output}"
    return ends


@pytest.mark.parametrize("ranks, whom, share", [(1, "a rank", 0.4), (2, "a rank", 0.3), (2, "launcher", 0.3)])
def test_the_newest_good_checkpoint_is_the_last_complete_one_or_newer(tmp_path, ranks, whom, share):
    directory = tmp_path / "checkpoints"
    run = Run(tmp_path, directory)
    play(run, lambda: directory, ranks, max(2, int(TRIALS * share)), whom)


def test_on_a_disk_that_is_nearly_full(tmp_path):
    """A file system of a few checkpoints: saves fail now and then, and are killed besides."""
    if os.geteuid() != 0:
        pytest.skip("needs the right to mount a small file system")
    mount = tmp_path / "disk"
    mount.mkdir()
    holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", f"mount -t tmpfs -o size=6m tmpfs {mount} && echo ready && exec sleep 1000"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if holder.stdout.readline().strip() != "ready":
            pytest.skip("no mount namespace here: " + holder.stderr.read().strip())
        inside = ["nsenter", "--target", str(holder.pid), "--mount", f"--wd={os.getcwd()}"]
        seen = pathlib.Path(f"/proc/{holder.pid}/root") / str(mount).lstrip("/")
        run = Run(tmp_path, mount, inside)
        # The process that nsenter becomes is the launcher.
        rng = random.Random(SEED)
        least, full = 0, 0
        for trial in range(max(3, TRIALS // 5)):
            # What else lies there leaves room for one to three checkpoints, or for none.
            room = rng.choice([0, 1, 2, 3]) if trial else 3
            (seen / "ballast").unlink(missing_ok=True)
            process = run.start(1)
            before = complete(seen)
            try:
                harness.wait_until(lambda: complete(seen) > before or process.poll() is not None, 60, "a checkpoint or the end")
                free = os.statvfs(seen).f_bavail * os.statvfs(seen).f_frsize
                try:
                    (seen / "ballast").write_bytes(b"x" * max(0, free - room * (1 << 19)))
                except OSError:
                    pass  # a save was faster
                time.sleep(rng.uniform(0, 0.4))
                least = max(least, complete(seen))
                pids = harness.ranks_of(process.pid)
                for pid in pids.values():
                    harness.kill(pid)
                output = process.communicate(timeout=60)[0]
            finally:
                process.kill()
            full += process.returncode == 74
            assert process.returncode in (74, 137), output
            verified = run.verify()
            newest = newest_good(verified)
            assert newest >= least > 0, f"trial {trial}: step {least} was complete, and the newest good one is {newest}\n{verified.stdout}\n{output}"
        print(f"{full} ended by the disk")
    finally:
        holder.kill()
        holder.wait()

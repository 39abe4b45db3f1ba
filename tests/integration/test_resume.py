"""Resume is exact: whatever interrupts a run, what it does is what the uninterrupted run does."""

import fcntl
import os
import random
import signal
import socket
import time

import pytest
from safetensors.numpy import load_file

import harness

pytestmark = pytest.mark.parametrize("small_job", harness.every_task(quick="patchwork"), indirect=True)
SEED = int(os.environ.get("TRAINYARD_TEST_SEED", "20"))
INTERRUPTIONS = 20 if harness.THOROUGH else 8
PHASES = ["loading", "rendezvous", "step", "evaluation", "saving"]
ACTIONS = ["kill rank", "kill launcher", "term rank", "term launcher", "interrupt launcher", "corrupt newest", "half-written newest"]


def configuration(tmp_path, small_job, name, stage="ddp", precision="fp32"):
    # 952 samples (97 of patchwork) and 24 of them a step: an epoch ends in the middle of a batch, several times.
    kind = harness.kind(small_job)
    directory = tmp_path / name
    config = harness.merged(
        small_job,
        model={"dropout": 0.1},
        data={"prefetch": 3, "workers": 2},
        batch=kind.batch(24, 6),
        train={"steps": 90, "eval_every": 7},
        schedule={"name": "cosine", "warmup": 5},
        checkpoint={"every": 5, "keep_last": 3},
        run={"dir": str(directory)},
        parallel={"stage": stage, "bucket_mib": 0.004, "reduce": "last"},
        # With fp16 gradients overflow at first, and again whenever the scale has grown.
        precision={"compute": precision, "loss_scale": 2.0**24, "loss_scale_interval": 7},
    )
    return harness.write_config(tmp_path / f"{name}.json", harness.merged(config, **kind.interrupted)), directory


def arguments(config, directory):
    return ["launch", "--nproc", 2, "--config", config, "--record", directory / "record.jsonl"]


def newest(directory):
    steps = sorted(p for p in (directory / "checkpoints").glob("step-*") if p.suffix == "" and "." not in p.name)
    return steps[-1] if steps else None


def phase_reached(phase, directory, record, process):
    if phase == "rendezvous":
        return len(harness.ranks_of(process.pid)) == 2
    if phase == "loading":
        return (directory / "attempt").exists() and bool(harness.ranks_of(process.pid))
    if phase == "saving":
        return any((directory / "checkpoints").glob("step-*.tmp-*")) or (newest(directory) is not None)
    return record.exists() and record.stat().st_size > 0


def interrupt(rng, process, directory, action):
    """Does it; returns whether a checkpoint was made bad."""
    ranks = harness.ranks_of(process.pid)
    target = ranks.get(rng.randrange(2))
    if action == "kill rank" and target:
        harness.kill(target)
    elif action == "term rank" and target:
        harness.kill(target, signal.SIGTERM)
    elif action == "term launcher":
        harness.kill(process.pid, signal.SIGTERM)
    elif action == "interrupt launcher":
        harness.kill(process.pid, signal.SIGINT)
    else:
        harness.kill(process.pid)
    output = process.communicate(timeout=120)[0]
    harness.wait_until(lambda: not any(harness.alive(pid) for pid in ranks.values()), 90, "the ranks to end")
    return output


def damage(rng, directory, action):
    """Breaks the newest checkpoint, if another one is there to go back to. Returns its name."""
    steps = sorted(p for p in (directory / "checkpoints").glob("step-*") if "." not in p.name)
    if len(steps) < 2:
        return None
    shard = rng.choice(sorted(steps[-1].glob("*.safetensors")))
    if action == "corrupt newest":
        content = bytearray(shard.read_bytes())
        content[rng.randrange(len(content))] ^= 0x40
        shard.write_bytes(content)
    else:
        os.truncate(shard, shard.stat().st_size // 2)
    return steps[-1].name


@pytest.mark.parametrize("stage, precision", [("ddp", "fp32"), ("zero3", "fp16"), pytest.param("zero1", "fp32", marks=harness.thorough)])
def test_interruptions_change_no_bit(tmp_path, small_job, stage, precision):
    """The uninterrupted run is of stage ddp: what is shared out changes nothing either."""
    print(f"seed {SEED} (set TRAINYARD_TEST_SEED to repeat another)")
    rng = random.Random(SEED)
    config, reference_dir = configuration(tmp_path, small_job, "reference", precision=precision)
    result = harness.run(*arguments(config, reference_dir), program=harness.kind(small_job).program, timeout=300)
    assert result.returncode == 0, result.stderr
    reference = harness.records(reference_dir / "record.jsonl")
    reference_weights = load_file(reference_dir / "export" / "model.safetensors")

    done, runs, damaged, codes = 0, 0, None, []
    config, directory = configuration(tmp_path, small_job, "run0", stage, precision)
    while done < INTERRUPTIONS:
        phase, action = PHASES[done % len(PHASES)], ACTIONS[done % len(ACTIONS)]
        process = harness.start(*arguments(config, directory), program=harness.kind(small_job).program)
        record = directory / "record.jsonl"
        size = record.stat().st_size if record.exists() else 0
        if phase in ("step", "evaluation"):
            harness.wait_until(lambda: process.poll() is not None or (record.exists() and record.stat().st_size > size + 400), 120, "a step")
        else:
            harness.wait_until(lambda: process.poll() is not None or phase_reached(phase, directory, record, process), 120, phase)
        time.sleep(rng.uniform(0, 0.3))
        if process.poll() is not None and process.returncode == 0:  # It was faster: compare, and start another run.
            process.communicate()
            check(directory, reference, reference_weights)
            runs += 1
            config, directory = configuration(tmp_path, small_job, f"run{runs}", stage, precision)
            continue
        output = interrupt(rng, process, directory, action)
        codes.append((phase, action, process.returncode))
        if damaged:
            assert damaged in output or process.returncode in (-9, 143, 130), output
        damaged = damage(rng, directory, action) if "newest" in action else None
        done += 1
    result = harness.run(*arguments(config, directory), program=harness.kind(small_job).program, timeout=300)
    assert result.returncode == 0, (codes, result.stderr)
    if damaged:
        assert f"skipped {damaged}" in result.stderr
    check(directory, reference, reference_weights)
    print(codes)


def check(directory, reference, reference_weights):
    assert harness.records(directory / "record.jsonl") == reference
    weights = load_file(directory / "export" / "model.safetensors")
    assert all(weights[k].tobytes() == reference_weights[k].tobytes() for k in reference_weights)


@pytest.mark.parametrize("action", ["term rank", "term launcher", "interrupt launcher"])
def test_a_stop_is_durable(tmp_path, small_job, action):
    """Exit 75, and the next start goes on behind the last recorded step: nothing trained is lost."""
    config, directory = configuration(tmp_path, small_job, "run")
    process = harness.start(*arguments(config, directory), program=harness.kind(small_job).program)
    record = directory / "record.jsonl"
    harness.wait_until(lambda: record.exists() and record.stat().st_size > 2000, 120, "some steps")
    output = interrupt(random.Random(1), process, directory, action)
    assert process.returncode == 75, output
    last = harness.records(record)[-1]["step"]
    assert newest(directory).name == f"step-{last:08d}"
    if action == "interrupt launcher":  # the record's end was lost with the machine's power
        record.write_text("".join(record.read_text().splitlines(keepends=True)[:-2]))
        again = harness.run(*arguments(config, directory), program=harness.kind(small_job).program, timeout=240)
        assert again.returncode == 0 and f"no lines of the steps {last - 1} to {last}:" in again.stderr, again.stderr


def test_an_old_attempt_is_never_resumed_from(tmp_path, small_job):
    """A stopped old attempt wakes up after a newer one has started and goes on writing."""
    config, directory = configuration(tmp_path, small_job, "run")
    old = harness.start(*arguments(config, directory), program=harness.kind(small_job).program)
    record = directory / "record.jsonl"
    harness.wait_until(lambda: record.exists() and newest(directory), 120, "a checkpoint")
    ranks = harness.ranks_of(old.pid)
    # Not in the middle of a commit: there it would keep the newer one waiting (fence.lock), as it should.
    while True:
        for pid in [*ranks.values(), old.pid]:
            harness.kill(pid, signal.SIGSTOP)
        with open(directory / "checkpoints" / "fence.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
        for pid in [*ranks.values(), old.pid]:
            harness.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
    new = harness.start(*arguments(config, directory), program=harness.kind(small_job).program)
    harness.wait_until(lambda: (directory / "checkpoints" / "fence").read_text().count("attempt") == 2, 120, "the newer attempt")
    for pid in [*ranks.values(), old.pid]:
        harness.kill(pid, signal.SIGCONT)
    output = old.communicate(timeout=120)[0]
    assert old.returncode == 69, output
    assert "attempt 2 owns the checkpoints now, not attempt 1 any more: this one was superseded and ends, the newer one goes on" in output
    new_output = new.communicate(timeout=120)[0]
    assert new.returncode == 0, new_output
    # The newer one has said whom it ends; a start after that meets nobody.
    assert f"warning: attempt 1 (process {old.pid} on {socket.gethostname()}) of this run is still alive; attempt 2 takes the run over" in new_output
    third = harness.start(*arguments(config, directory), program=harness.kind(small_job).program)
    third_output = third.communicate(timeout=120)[0]
    assert third.returncode == 0 and "still alive" not in third_output, third_output

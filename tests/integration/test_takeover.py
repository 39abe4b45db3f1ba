"""Who owns the checkpoints, and what an attempt goes on from, with the real program."""

import fcntl
import json
import os
import pathlib
import random
import shutil
import signal

import pytest

import harness

SEED = int(os.environ.get("TRAINYARD_TEST_SEED", "20"))


@pytest.fixture
def job(tmp_path, data):
    """Runs `trainyard train` alone; .start only starts it."""

    class Job:
        directory = tmp_path / "run"
        checkpoints = directory / "checkpoints"

        def arguments(self, **sections):
            config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(self.directory)}, checkpoint={"every": 2, "keep_last": 2})
            path = harness.write_config(tmp_path / "job.json", harness.merged(config, **sections))
            return ["train", "--config", path, "--record", self.directory / "record.jsonl"]

        def __call__(self, **sections):
            return harness.run(*self.arguments(**sections))

        def steps(self):
            return sorted(int(p.name[5:]) for p in self.checkpoints.glob("step-*") if "." not in p.name)

        def first_step(self):
            return harness.records(self.directory / "record.jsonl")[0]["step"]

    return Job()


def expect(result, code, *words):
    assert result.returncode == code, result.stderr
    for word in words:
        assert word in result.stderr
    return result


@pytest.mark.parametrize("loss", ["fence removed", "steps copied"])
def test_a_step_that_no_fence_lists_is_never_a_fresh_start(job, tmp_path, loss):
    expect(job(), 0)
    sections = {"train": {"steps": 12}}
    if loss == "fence removed":
        (job.checkpoints / "fence").unlink()
        directory = job.checkpoints
    else:
        directory = tmp_path / "copy"
        directory.mkdir()
        for step in job.checkpoints.glob("step-*"):
            shutil.copytree(step, directory / step.name)
        sections["checkpoint"] = {"dir": str(directory)}
    names = sorted(p.name for p in directory.glob("step-*"))
    for _ in range(2):
        expect(job(**sections), 74, "no fence lists the writer of step-00000010", "checkpoint.resume")
        assert sorted(p.name for p in directory.glob("step-*")) == names
    result = harness.run("checkpoint", "verify", directory)
    assert result.returncode == 74 and "no fence lists" in result.stdout
    # The remedy.
    sections["checkpoint"] = dict(sections.get("checkpoint", {}), resume=str(directory / "step-00000010"))
    expect(job(**sections), 0, "resuming from " + str(directory / "step-00000010"))
    expect(job(**dict(sections, train={"steps": 14})), 0, "resuming from " + str(directory / "step-00000012"), "counts for a job's first attempt")


def test_a_damaged_fence_is_74_with_the_remedy(job):
    expect(job(), 0)
    fence = job.checkpoints / "fence"
    content = bytearray(fence.read_bytes())
    content[len(content) // 2] ^= 4
    fence.write_bytes(content)
    expect(job(train={"steps": 12}), 74, "damaged", "checkpoint.resume")
    assert harness.run("checkpoint", "verify", job.checkpoints).returncode == 74
    assert job.steps() == [8, 10]
    fence.unlink()
    expect(job(train={"steps": 12}, checkpoint={"resume": str(job.checkpoints / "step-00000008")}), 0, "resuming from")
    assert job.steps() == [8, 10, 12], "what nobody owns stays where it is"
    expect(job(train={"steps": 14}), 0, "step-00000012")


def test_a_file_larger_than_the_memory_is_damaged(job):
    """Sparse: it takes no room on the disk, and would be read to the end."""
    expect(job(), 0)
    os.truncate(job.checkpoints / "step-00000010" / "manifest.json", 2**40)
    expect(job(train={"steps": 12}), 0, "skipped step-00000010", "expected at most 256.0 MiB", "resuming from", "step-00000008")
    for file in (job.directory / "config.json", job.checkpoints / "fence"):
        content = file.read_bytes()
        os.truncate(file, 2**40)
        expect(job(train={"steps": 14}), 74, f"{file}: 1.0 TiB; expected at most 16.0 MiB")
        file.write_bytes(content)
    expect(job(train={"steps": 14}), 0, "step-00000012")


def test_resume_holds_for_the_first_attempt(job, tmp_path, data):
    """A directory and `never` do not act again when a job restarts; until it has started, they do."""
    expect(job(), 0)
    source = job.checkpoints / "step-00000008"
    job.directory = tmp_path / "second"
    job.checkpoints = job.directory / "checkpoints"
    sections = {"train": {"steps": 10}, "checkpoint": {"resume": str(source)}}
    expect(job(**sections), 0, f"resuming from {source}")
    assert job.first_step() == 9
    sections["train"]["steps"] = 14
    expect(job(**sections), 0, f"resuming from {job.checkpoints}/step-00000010", "counts for a job's first attempt")
    assert source.is_dir()
    sections["checkpoint"]["resume"] = "never"
    sections["train"]["steps"] = 16
    expect(job(**sections), 0, f"resuming from {job.checkpoints}/step-00000014")


def test_what_a_run_came_from_may_be_gone_when_it_restarts(job, tmp_path):
    expect(job(), 0)
    source = job.checkpoints
    job.directory = tmp_path / "second"
    job.checkpoints = job.directory / "checkpoints"
    sections = {"train": {"steps": 12}, "checkpoint": {"resume": str(source)}}
    expect(job(**sections), 0, f"resuming from {source}/step-00000010")
    shutil.rmtree(tmp_path / "run")
    sections["train"]["steps"] = 14
    expect(job(**sections), 0, f"resuming from {job.checkpoints}/step-00000012", "counts for a job's first attempt")
    assert [line["step"] for line in harness.records(job.directory / "record.jsonl")] == [11, 12, 13, 14]


def test_never_does_not_start_from_scratch_twice(job):
    """A job that was to begin afresh, and is started again by whoever keeps it running."""
    never = {"checkpoint": {"resume": "never"}}
    expect(job(**never), 0, "starting from scratch")
    for steps in (12, 14):
        result = expect(job(train={"steps": steps}, **never), 0, f"resuming from {job.checkpoints}/step-{steps - 2:08d}", "checkpoint.resume: never counts for a job's first attempt")
        assert "starting from scratch" not in result.stderr
    assert [line["step"] for line in harness.records(job.directory / "record.jsonl")] == list(range(1, 15))


def test_an_attempt_that_saved_nothing_hands_on_where_it_started(job, tmp_path):
    expect(job(), 0)
    source = job.checkpoints / "step-00000008"
    job.directory = tmp_path / "second"
    job.checkpoints = job.directory / "checkpoints"
    sections = {"train": {"steps": 5000}, "checkpoint": {"resume": str(source), "every": 100000}}
    process = harness.start(*job.arguments(**sections))
    record = job.directory / "record.jsonl"
    harness.wait_until(lambda: record.exists() and record.stat().st_size > 0, 60, "a step")
    harness.kill(process.pid)
    process.communicate()
    away = source.rename(tmp_path / "away")
    for _ in range(2):
        expect(job(train={"steps": 10}, checkpoint={"resume": str(source)}), 74, f"{source}", "no checkpoint is good")
    away.rename(source)
    expect(job(train={"steps": 10}, checkpoint={"resume": str(source)}), 0, f"resuming from {source}, saved by another run")
    assert job.first_step() == 9
    again = expect(job(train={"steps": 12}), 0, f"resuming from {job.checkpoints}/step-00000010")
    assert "another run" not in again.stderr, again.stderr


def test_a_job_of_another_identity_does_not_take_the_checkpoints(job, tmp_path):
    expect(job(), 0)
    fence = (job.checkpoints / "fence").read_text()
    checkpoints = job.checkpoints
    job.directory = tmp_path / "second"
    expect(job(model={"dim": 32}, checkpoint={"dir": str(checkpoints)}), 64, "model.dim")
    assert (checkpoints / "fence").read_text() == fence, "a live owner would have been ended by this"


def test_a_checkpoint_directory_that_vanished_is_no_fresh_start(job):
    """A volume that is not mounted looks like an empty directory."""
    expect(job(), 0)
    away = job.directory / "away"
    job.checkpoints.rename(away)
    log = (job.directory / "log.jsonl").read_text()
    sections = {"train": {"steps": 12}}
    expect(job(**sections), 74, f"checkpoint.dir: {job.checkpoints} is empty", "is its volume there?", "checkpoint.resume: never")
    assert (job.directory / "log.jsonl").read_text() == log
    job.checkpoints.rmdir()
    away.rename(job.checkpoints)
    expect(job(**sections), 0, f"resuming from {job.checkpoints}/step-00000010")
    job.checkpoints.rename(away)
    expect(job(**sections, checkpoint={"resume": "never"}), 0, "starting from scratch")
    # From now on `never` is what the run was started with: its volume may vanish as well.
    shutil.rmtree(job.checkpoints)
    gone = expect(job(**sections, checkpoint={"resume": "never"}), 74, f"checkpoint.dir: {job.checkpoints} is empty", "name another checkpoint.dir")
    assert "set checkpoint.resume" not in gone.stderr, "it is set"
    expect(job(**sections, checkpoint={"dir": str(job.directory / "others")}), 0, "starting from scratch")


def test_steps_that_were_removed_are_no_fresh_start(job):
    """The fence is there, and it says that the run began from scratch; `latest` says that it has come further."""
    expect(job(), 0)
    for step in job.checkpoints.glob("step-*"):
        shutil.rmtree(step)
    files = [job.directory / "log.jsonl", job.directory / "record.jsonl", job.directory / "export" / "model.safetensors", job.checkpoints / "fence"]
    before = {p: p.read_bytes() for p in files}
    sections = {"train": {"steps": 12}}
    expect(job(**sections), 74, f"checkpoint.dir: {job.checkpoints} holds no step", "as `latest` says", "name another checkpoint.dir, or set checkpoint.resume: never")
    assert {p: p.read_bytes() for p in files} == before
    expect(job(**sections, checkpoint={"resume": "never"}), 0, "starting from scratch")
    assert job.steps()[-1] == 12


def test_a_first_start_that_fails_binds_nobody_to_its_mistake(job, tmp_path):
    """Weights of another shape are found when they are loaded: then the directory has an attempt, and no identity yet."""
    expect(job(), 0)
    weights = job.directory / "export" / "model.safetensors"
    job.directory = tmp_path / "second"
    job.checkpoints = job.directory / "checkpoints"
    expect(job(model={"dim": 32}, init={"from": str(weights)}), 64, "of another shape")
    expect(job(model={"dim": 32}, init={"from": str(tmp_path / "nope")}), 64, "init.from: ", "no such file")
    expect(job(), 0, "attempt 2, starting from scratch")
    expect(job(model={"dim": 32}), 64, "model.dim")


def test_without_an_interval_a_killed_run_loses_minutes(job):
    """checkpoint.minutes instead of checkpoint.every; what was trained does not show when it was saved."""
    expect(job(), 0)
    record = (job.directory / "record.jsonl").read_text()
    job.directory = job.directory.parent / "second"
    job.checkpoints = job.directory / "checkpoints"
    expect(job(checkpoint={"every": 0, "minutes": 1e-7, "keep_last": 100}), 0, "every 1e-07 minutes and at the end")
    assert len(job.steps()) > 1 and job.steps()[-1] == 10
    assert (job.directory / "record.jsonl").read_text() == record
    job.directory = job.directory.parent / "third"
    job.checkpoints = job.directory / "checkpoints"
    expect(job(checkpoint={"every": 0, "minutes": 0}), 0, "a run that is killed starts again from the beginning")
    assert job.steps() == [10]


def test_a_restart_without_a_checkpoint_says_so(job):
    process = harness.start(*job.arguments(train={"steps": 100000}, checkpoint={"every": 0, "minutes": 0}))
    record = job.directory / "record.jsonl"
    harness.wait_until(lambda: record.exists() and record.stat().st_size > 0, 60, "a step")
    harness.kill(process.pid)
    process.communicate()
    expect(job(), 0, "attempt 2, starting from scratch: no attempt before it has saved a checkpoint")


def test_a_missing_directory_is_named(job):
    expect(job(checkpoint={"resume": "/nope"}), 64, "checkpoint.resume: /nope: no such directory")


def test_what_ls_shows(job):
    expect(job(), 0)
    os.rename(job.checkpoints / "step-00000008", job.checkpoints / "step-00000008.bad-x-1")
    result = harness.run("checkpoint", "ls", job.directory)
    assert result.returncode == 0, result.stderr
    assert "readable, sizes fit" in result.stdout and "moved aside: step-00000008.bad-x-1" in result.stdout
    shard = next((job.checkpoints / "step-00000010").glob("rank-*"))
    whole = shard.read_bytes()
    os.truncate(shard, 1000)
    result = harness.run("checkpoint", "ls", job.checkpoints)
    assert f"bad: {shard.name} has 1000 bytes instead of {len(whole)}" in result.stdout and "readable" not in result.stdout.split("step-00000010")[1].split("\n")[0]
    shard.write_bytes(whole)
    step = job.checkpoints / "step-00000010"
    expect(harness.run("checkpoint", "ls", step), 64, f"{step} is one checkpoint; expected the directory that holds it")


def test_whatever_eval_is_pointed_at(job, tmp_path):
    """A run's directory, its checkpoints, or one of them; the last also without a fence."""
    expect(job(), 0)
    config = tmp_path / "job.json"
    for path in (job.directory, job.checkpoints, job.checkpoints / "step-00000010"):
        result = harness.run("eval", "--config", config, "--checkpoint", path)
        assert result.returncode == 0 and '"step": 10' in result.stdout, result.stderr
    (job.checkpoints / "fence").unlink()
    expect(harness.run("eval", "--config", config, "--checkpoint", job.checkpoints), 74, "no fence lists", "Name the folder of the step")
    assert harness.run("eval", "--config", config, "--checkpoint", job.checkpoints / "step-00000010").returncode == 0


def test_whatever_export_is_pointed_at(job, tmp_path):
    """The same file, and that which the run has exported."""
    expect(job(), 0)
    exported, outs = (job.directory / "export" / "model.safetensors").read_bytes(), iter(tmp_path / f"out-{number}.safetensors" for number in range(9))

    def export(path):
        out = next(outs)
        result = harness.run("checkpoint", "export", path, "--out", out)
        assert out.exists() == (result.returncode == 0), "nothing half done stays"
        assert result.returncode or out.read_bytes() == exported, path
        return result

    for path in (job.directory, job.checkpoints, job.checkpoints / "step-00000010"):
        expect(export(path), 0)
    (job.checkpoints / "fence").unlink()
    for path in (job.directory, job.checkpoints):
        expect(export(path), 74, "no fence lists the writer of step-00000010", "Name the folder of the step")
    expect(export(job.checkpoints / "step-00000010"), 0)
    expect(export(tmp_path / "nope"), 64, f"checkpoint export: {tmp_path}/nope: no such directory")
    expect(export(job.directory / "export"), 64, "holds no checkpoint")


def test_the_banner_says_what_changes_bits(job):
    expect(job(), 0)
    result = expect(harness.run(*job.arguments(train={"steps": 12}), OMP_NUM_THREADS=2), 0)
    assert "not bit-exact" not in result.stderr, "the number of threads changes none"
    result = expect(job(train={"steps": 14}, batch={"micro": 4}, precision={"compute": "bf16"}, run={"deterministic": False}), 0)
    for word in ("not bit-exact", "micro 8 -> 4", "precision fp32 -> bf16", "run.deterministic true -> false"):
        assert word in result.stderr, result.stderr
    bits = json.loads((job.checkpoints / "step-00000014" / "manifest.json").read_text())["bits"]
    assert {"CPU", "LibTorch", "kernels", "threads", "world"} <= set(bits) and bits["CPU"] != "unknown"


@pytest.mark.parametrize("keep_last", [1, 2])
def test_a_live_old_attempt_takes_nothing_away(job, keep_last):
    """Seeded moments: a new attempt takes over while the old one trains and commits as fast as it can."""
    print(f"seed {SEED}")
    rng = random.Random(SEED + keep_last)
    sections = {"train": {"steps": 100000}, "checkpoint": {"every": 1, "keep_last": keep_last}}
    old, old_step = harness.start(*job.arguments(**sections)), 0
    for attempt in range(2, 9):
        # One reading: a step may be renamed while the directory is read, and is then in neither place.
        harness.wait_until(lambda: old.poll() is not None or max(job.steps(), default=0) > old_step + rng.randrange(4), 120, "a step")
        assert old.poll() is None, old.communicate()[0]
        new = harness.start(*job.arguments(**sections))
        output = old.communicate(timeout=120)[0]
        assert old.returncode == 69, output
        assert f"attempt {attempt} owns the checkpoints now, not attempt {attempt - 1} any more" in output
        harness.wait_until(lambda: json.loads((job.checkpoints / "fence").read_text())["owners"][-1]["resumed_step"] is not None, 60, "the choice")
        owners = json.loads((job.checkpoints / "fence").read_text())["owners"]
        assert len(owners) == attempt
        assert owners[-1]["resumed_step"] > old_step, "it never starts from scratch, and loses no commit that it could see"
        old, old_step = new, owners[-1]["resumed_step"]
    harness.kill(old.pid)
    old.communicate()


def test_a_flipped_bit_is_never_trained_on(job):
    """A sample with the real program; tests/unit/damage_test.cc flips 500 and compares every value."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    expect(job(train={"steps": 8}), 0)
    expect(job(), 0)  # steps 8 and 10 are there
    reference = harness.records(job.directory / "record.jsonl")
    whole = job.directory.with_name("whole")
    shutil.copytree(job.directory, whole)
    names = [p.relative_to(whole) for p in sorted((whole / "checkpoints" / "step-00000010").iterdir())]
    names += [pathlib.Path("checkpoints/fence"), pathlib.Path("checkpoints/latest")]
    for flip in range(8):
        shutil.rmtree(job.directory)
        shutil.copytree(whole, job.directory)
        name = names[flip % len(names)]
        content = bytearray((job.directory / name).read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (job.directory / name).write_bytes(content)
        result = job()
        if name.name == "fence":
            expect(result, 74, "damaged", "checkpoint.resume")
        else:
            expect(result, 0, "resuming from")
            assert ("skipped step-00000010" in result.stderr) == (name.name != "latest"), result.stderr
            assert harness.records(job.directory / "record.jsonl") == reference


def stop_outside_of_the_fence(pid, checkpoints):
    """One that is frozen with the lock keeps every other out."""

    def stopped():
        harness.kill(pid, signal.SIGSTOP)
        harness.wait_until(lambda: harness.state(pid) == "T", 60, "the process to stop")
        with open(checkpoints / "fence.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                harness.kill(pid, signal.SIGCONT)
                return False

    harness.wait_until(stopped, 60, "a moment without the lock")


def test_an_old_attempt_that_wakes_up_leaves_the_best_weights_and_the_export_alone(job):
    """They change under the fence. No checkpoint is due, so nothing else ends the old attempt."""
    # Every evaluation of a run that learns is a new best.
    sections = {"train": {"steps": 60, "eval_every": 1}, "checkpoint": {"every": 1000000, "keep_best": "test/loss_action"}}
    old = harness.start(*job.arguments(**harness.merged(sections, train={"steps": 100000})))
    best = job.directory / "best" / "best.json"
    harness.wait_until(best.exists, 120, "a best evaluation")
    stop_outside_of_the_fence(old.pid, job.checkpoints)
    expect(job(**sections), 0)
    (job.directory / "best" / "model.safetensors.tmp-17-00c0ffee").write_bytes(b"of a writer that is at work")
    files = [p for folder in ("best", "export") for p in sorted((job.directory / folder).iterdir())]
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}
    harness.kill(old.pid, signal.SIGCONT)
    output = old.communicate(timeout=120)[0]
    assert old.returncode == 69 and "this one was superseded and ends" in output, output
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in files} == before


def test_an_old_attempt_that_wakes_up_leaves_the_log_the_record_and_the_evaluation_alone(job):
    """It comes to its end, and to its evaluation, without a checkpoint at which it would be told."""
    sections = {"train": {"steps": 3000, "log_every": 1}, "checkpoint": {"every": 0, "minutes": 0}}
    old = harness.start(*job.arguments(**sections))
    log = job.directory / "log.jsonl"
    harness.wait_until(lambda: log.exists() and log.read_text().count("\n") > 100, 120, "some steps")
    stop_outside_of_the_fence(old.pid, job.checkpoints)
    sections["train"]["steps"] = 3010
    expect(job(**sections), 0)
    files = [log, job.directory / "record.jsonl", job.directory / "evaluation.json"]
    before = {p: p.read_bytes() for p in files}
    harness.kill(old.pid, signal.SIGCONT)
    output = old.communicate(timeout=120)[0]
    assert old.returncode == 69 and "this one was superseded and ends" in output, output
    assert {p: p.read_bytes() for p in files} == before
    assert [line["step"] for line in harness.records(files[1])] == list(range(1, 3011))


def test_another_run_with_the_same_checkpoints_says_whom_it_ends(job, tmp_path):
    """A sweep that names one checkpoint.dir for all of its runs: each ends the one before, and must not do so in silence."""
    old = harness.start(*job.arguments(train={"steps": 10**6}))
    try:
        harness.wait_until(job.steps, 60, "the first run's checkpoint")
        result = job(train={"steps": 10**6 + 1}, run={"dir": str(tmp_path / "other")}, checkpoint={"dir": str(job.checkpoints), "resume": "never"},
                     faults={"nonfinite": "stop"}, optim={"lr": 1e30})
        assert f"warning: attempt 1 (process {old.pid}" in result.stderr and "of another run, with this checkpoint.dir, is still alive" in result.stderr, result.stderr
        assert old.wait(60) == 69
    finally:
        old.kill()
        old.communicate()


def test_a_folder_that_is_renamed_under_a_run_is_the_storages_failure(job):
    old = harness.start(*job.arguments(train={"steps": 10**6}))
    try:
        harness.wait_until(job.steps, 60, "a checkpoint")
        job.checkpoints.rename(job.directory / "elsewhere")
        output = old.communicate(timeout=60)[0]
    finally:
        old.kill()
    assert old.returncode == 74 and str(job.checkpoints) in output, output
    (job.directory / "elsewhere").rename(job.checkpoints)
    expect(job(train={"steps": max(job.steps())}), 0)

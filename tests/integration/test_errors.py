"""Bad input and faults: one clear message, the contract's exit code, nothing half-written, nobody hanging."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest

import harness


@pytest.fixture
def job(tmp_path, data):
    """A configuration that would train; returns a function that runs it with changes."""

    def launch(*extra, nproc=2, env=None, data_path=None, timeout=120, **sections):
        config = harness.merged(harness.SMALL, data={"path": str(data_path or data)}, run={"dir": str(tmp_path / "run")}, **sections)
        path = harness.write_config(tmp_path / "job.json", config)
        return harness.run("launch", "--nproc", nproc, "--config", path, *extra, timeout=timeout, **(env or {}))

    launch.directory, launch.data = tmp_path / "run", data
    return launch


def expect(result, code, *words):
    assert result.returncode == code, result.stderr
    for word in words:
        assert word in result.stderr, result.stderr
    assert "Traceback" not in result.stderr and "terminate called" not in result.stderr


def nothing_half_written(directory):
    left = [p for p in pathlib.Path(directory).rglob("*") if ".tmp" in p.name]
    assert not left, left


def test_unknown_key_names_the_nearest(job):
    expect(job(optim={"learning_rate": 1, "weight_decai": 1}), 64, "unknown key optim.")
    expect(job("--set", "optim.weight_decai=1"), 64, "unknown key optim.weight_decai", "did you mean optim.weight_decay?")
    assert not job.directory.exists()


@pytest.mark.parametrize(
    "assignment, words",
    [
        ("optim.lr=fast", ["optim.lr", '"fast"', "a number >= 0"]),
        ("batch.global=2.5", ["batch.global", "2.5", "an integer from 1 to 16777216"]),
        ("optim.betas=[0.9]", ["optim.betas", "two numbers"]),
        ("run.deterministic=maybe", ["run.deterministic", "true or false"]),
        ("schedule.name=cosin", ["schedule.name", "did you mean cosine?"]),
        ("parallel.stage=zero4", ["parallel.stage", "zero4", "zero3"]),
        ("optim.groups=[{match: nothing.*, lr: 2}]", ["optim.groups", "nothing.*", "matches no parameter"]),
        ("train.epochs=1", ["train.steps, train.epochs", "both are set"]),
        ("model.heads=3", ["model.dim: 16 is not a multiple of model.heads 3"]),
        ("train.lr=1", ["unknown key train.lr", "did you mean optim.lr?"]),
        ("run.seed=18446744073709551615", ["run.seed", "an integer >= 0, at most 9223372036854775807"]),
    ],
)
def test_wrong_type_or_value(job, assignment, words):
    expect(job("--set", assignment), 64, *words)


def test_a_section_that_is_no_section(job, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("model: 3\ntask: {name: algorithm_distillation}\n")
    expect(harness.run("launch", "--config", path), 64, "model: 3 is not allowed", "a section with keys")
    path.write_text("task: {name: x}\ntask: {name: y}\n")
    expect(harness.run("launch", "--config", path), 64, "task appears twice")


@pytest.mark.parametrize("command", [["train"], ["train", "--dry-run"], ["launch", "--nproc", 2], ["plan"]])
def test_a_checkpoint_directory_whose_name_is_no_text(tmp_path, data, command):
    """A file system takes any bytes; JSON, which a run says where it lies in, does not."""
    config = harness.write_config(tmp_path / "job.json", harness.merged(harness.SMALL, data={"path": str(data)}))
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/ck\xff")
    os.mkdir(folder)
    result = harness.run(*command, "--config", config, TRAINYARD_CHECKPOINT_DIR=folder)
    expect(result, 64, f"TRAINYARD_CHECKPOINT_DIR: {tmp_path}/ck\ufffd is not UTF-8 text")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert not os.listdir(folder)


@pytest.mark.parametrize(
    "text, words",
    [
        ("a: &a {b: *a}", ["bad.yaml:1:11", "inside of what it names"]),
        ("a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)), ["aliases expanded"]),
        ("[" * 1000000, ["brackets are not closed"]),
        ("task: {name: algorithm_distillation}\n---\ntrain: {steps: 1}\n", ["bad.yaml: holds 2 documents"]),
        ("task: {name: \x00}\n", ["bad.yaml:1:14", "control character 0"]),
        (",", ["bad.yaml:1:1", "no value can begin here"]),
    ],
)
def test_yaml_that_kills(tmp_path, text, words):
    """Both programs: a message within moments, whatever the text."""
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    expect(harness.run("launch", "--config", path), 64, *words)
    result = subprocess.run([harness.OPERATOR, "validate", "-f", str(path)], capture_output=True, text=True, timeout=120)
    assert result.returncode not in (0, -11, 139), result
    if "documents" not in words[0]:  # of which a job file may hold several
        assert all(word in result.stderr for word in words), result.stderr


@pytest.mark.parametrize(
    "sets, words",
    [
        (["run.dir=/dev/null"], ["run.dir: cannot write in /dev/null", "not a directory"]),
        (["checkpoint.dir=/dev/null/x"], ["checkpoint.dir: cannot write in /dev/null/x"]),
        (["init.from=/nope"], ["init.from: /nope: no such file"]),
        (["init.from=/dev/zero"], ["init.from: /dev/zero: not a file"]),
        (["checkpoint.resume=/nope"], ["checkpoint.resume: /nope: no such directory", "auto, never"]),
        (["checkpoint.keep_best=test/los_action"], ["checkpoint.keep_best: no metric test/los_action", "did you mean test/loss_action?"]),
        (["train.early_stop.metric=test/loss_action"], ["train.early_stop.metric", "never looked at", "train.eval_every"]),
        (["train.record=/nope/x"], ["train.record: /nope: no such directory"]),
        (["train.record=/dev"], ["train.record: /dev is a directory"]),
        (["train.record=/etc/passwd"], ["train.record: /etc/passwd is not a record"]),
        (["task=5"], ["task: 5 is not allowed; expected a section with keys"]),
        (["data.workers=100000"], ["data.workers: 100000", "from 1 to 1024"]),
        (["batch.global=9223372036854775807"], ["batch.global", "from 1 to 16777216"]),
        (["batch.global=16777216"], ["batch.global: 16777216 is more than the", "samples of the data set"]),
    ],
)
def test_dry_run_and_launch_refuse_the_same(tmp_path, data, sets, words):
    """What can be known before anything is started is said then, with the field's name, and nothing is made."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")})
    path = harness.write_config(tmp_path / "job.json", config)
    arguments = [word for text in sets for word in ("--set", text)]
    before = sorted(tmp_path.rglob("*"))
    expect(harness.run("train", "--dry-run", "--config", path, *arguments), 64, *words)
    expect(harness.run("launch", "--nproc", 2, "--config", path, *arguments), 64, *words)
    assert sorted(p for p in tmp_path.rglob("*") if p.name != "logs") == before or "samples" in words[-1]
    assert not pathlib.Path("/nope").exists()


def test_a_model_beyond_the_machine(tmp_path, data):
    """One line before anything is allocated, not the allocator's after."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, model={"dim": 65536, "layers": 1024})
    path = harness.write_config(tmp_path / "job.json", config)
    for command in (["train", "--dry-run"], ["train"]):
        result = harness.run(*command, "--config", path)
        expect(result, 71, "parameters need", "TiB", "smaller model")
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert not (tmp_path / "run").exists()


def test_an_allocation_that_fails_is_told_without_frames(tmp_path, data):
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, model={"dim": 8192, "layers": 1})
    path = harness.write_config(tmp_path / "job.json", config)
    limited = ["bash", "-c", 'ulimit -v 3000000; exec "$0" "$@"', harness.BIN, "train", "--dry-run", "--config", str(path)]
    result = subprocess.run(limited, capture_output=True, text=True, timeout=120, env=harness.environment())
    expect(result, 71)
    assert "frame #" not in result.stderr and len(result.stderr.splitlines()) <= 2, result.stderr
    assert re.search(r"^trainyard: out of memory: \d+\.\d [MG]iB more could not be had \(ulimit -v: 2\.9 GiB\)$", result.stderr, re.M), result.stderr


def test_a_step_beyond_the_memory_names_the_field(tmp_path):
    """The activations of 128 samples at once do not fit; the model does."""
    harness.write_tokens(tmp_path / "train.tokens", [i % 16 for i in range(256 * 150)], 16)
    config = harness.merged(harness.SMALL_LANGUAGE_MODEL, data={"path": str(tmp_path)}, run={"dir": str(tmp_path / "run")}, batch={"global": 128, "micro": 128},
                            model={"context": 256, "dim": 512, "heads": 8, "layers": 4}, train={"steps": 1})
    path = harness.write_config(tmp_path / "job.json", config)
    limited = ["bash", "-c", 'ulimit -v 2500000; exec "$0" "$@"', harness.BIN, "launch", "--nproc", "1", "--config", str(path)]
    result = subprocess.run(limited, capture_output=True, text=True, timeout=300, env=harness.environment())
    expect(result, 71, "out of memory: ", " (ulimit -v: 2.4 GiB) in step 1; batch.micro is 128; batch.micro: 64 takes less")


def test_a_plan_beyond_the_machine_fails_in_a_script(tmp_path):
    config = harness.merged(harness.SMALL, data={"path": "/nowhere"})
    small = harness.run("plan", "--config", harness.write_config(tmp_path / "small.json", config))
    expect(small, 0)
    assert "not counted" in small.stdout and "which grow with batch.micro" in small.stdout and "are left for what is not counted" in small.stdout, small.stdout
    large = harness.write_config(tmp_path / "large.json", harness.merged(config, model={"dim": 65536, "layers": 1024}))
    text, machine = harness.run("plan", "--config", large), harness.run("plan", "--config", large, "--json")
    assert text.returncode == machine.returncode == 71 and "does not fit" in text.stdout, text.stdout
    assert json.loads(machine.stdout)["fits"] is False and "batch.micro" in json.loads(machine.stdout)["not_counted"]
    assert "71" in harness.run("plan", "--help").stdout


def test_a_corpus_of_which_nothing_is_held_out(tmp_path):
    config = harness.merged(harness.SMALL_LANGUAGE_MODEL, data={"path": str(tmp_path), "test_fraction": 0})
    expect(harness.run("plan", "--config", harness.write_config(tmp_path / "job.json", config)), 64, "data.test_fraction: 0 holds nothing out")
    config = harness.merged(config, data={"test_shard": "b.tokens"})
    assert harness.run("plan", "--config", harness.write_config(tmp_path / "job.json", config)).returncode == 0


def test_dry_run_says_what_is_most_likely_not_meant(tmp_path, data):
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")})
    path = harness.write_config(tmp_path / "job.json", config)
    result = harness.run("train", "--dry-run", "--config", path, "--set", "schedule.warmup=1000")
    assert result.returncode == 0 and "schedule.warmup: 1000 of the run's 10 steps are warm-up" in result.stdout
    assert not (tmp_path / "run").exists()


def test_a_run_says_what_is_most_likely_not_meant(tmp_path, data):
    """Each doubt once on the terminal, and in each rank's log; a run of which there is none warns of nothing."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")})
    path = harness.write_config(tmp_path / "job.json", config)
    doubts = ("schedule.warmup: 1000 of the run's 10 steps are warm-up", "checkpoint.every: 20 is more than the run's 10 steps", "checkpoint.keep_best: train.eval_every is 0 of the run's 10 steps")
    result = harness.run("launch", "--nproc", 2, "--config", path, "--set", "schedule.warmup=1000", "--set", "checkpoint.every=20", "--set", "checkpoint.keep_best=test/loss_action")
    expect(result, 0)
    logs = [(tmp_path / "run" / "logs" / f"attempt-1-rank-{rank}.log").read_text() for rank in range(2)]
    for doubt in doubts:
        assert [text.count(f"warning: {doubt}") for text in (result.stderr, *logs)] == [1, 1, 1], result.stderr
    plain = harness.run("launch", "--nproc", 2, "--config", path, "--set", f"run.dir={tmp_path}/plain")
    expect(plain, 0)
    assert "warning" not in plain.stderr, plain.stderr


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_configuration_from_a_pipe(tmp_path, by):
    """The launcher would read it, and leave its ranks nothing; nobody even waits for a writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = harness.run("launch", "--config", pipe) if by == "flag" else harness.run("launch", TRAINYARD_CONFIG=pipe)
    expect(result, 64, f"--config: {pipe} is a pipe", "write it to a file and name that")


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_data_that_never_ends(job, tmp_path, kind):
    folder = harness.synth(tmp_path / "npy", "--format", "npy")
    file = folder / "env-000" / "states.npy"
    file.unlink()
    os.mkfifo(file) if kind == "fifo" else file.symlink_to("/dev/zero")
    expect(job(data_path=folder), 65, "env-000", "not a file")


def test_a_micro_batch_is_at_most_a_share(job):
    """With more ranks the shares of a job get smaller: that is no mistake."""
    expect(job(batch={"global": 9, "micro": 6}), 0, "9 over 2 ranks: 4 to 5 samples each, in micro-batches of at most 5")
    shutil.rmtree(job.directory)
    expect(job(batch={"global": 8, "micro": 3}), 0, "8 over 2 ranks: 4 samples each, in micro-batches of at most 3")


def test_missing_and_truncated_data(job, tmp_path, data):
    expect(job(data_path=tmp_path / "nowhere"), 64, "data.path: ", "nowhere: no such file")
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    file = next(copy.glob("*.hdf5"))
    os.truncate(file, file.stat().st_size // 2)
    expect(job(data_path=copy), 65, file.name, "truncated")
    empty = tmp_path / "empty"
    empty.mkdir()
    expect(job(data_path=empty), 65, "holds neither")


def test_truncated_npy_names_file_and_offset(job, tmp_path):
    folder = harness.synth(tmp_path / "npy", "--format", "npy")
    file = folder / "env-040" / "states.npy"
    os.truncate(file, 200)
    expect(job(data_path=folder), 65, str(file), "offset 200", "truncated: ")


def test_histories_of_another_environment(job, tmp_path):
    """They are refused, and whoever writes them is told what they are trained with."""
    out = tmp_path / "permuted"
    command = ["synth", "algorithm_distillation", "--source", "ad_epsilon", "--size", "tiny", "--env", "darkroom_permuted", "--out", out]
    told = harness.run(*command)
    assert told.stdout == f"{out} is written; train on it with task.name: algorithm_distillation, task.env: darkroom_permuted, data.path: {out}\n", told.stderr
    file = next(out.glob("*.hdf5"))
    expect(job(data_path=out), 65, f"{file}: 81/actions: task.env darkroom has the tasks 0 to 80 alone; are they histories of another environment?")
    expect(job(data_path=out, task={"env": "darkroom_permuted"}), 0)


def test_unwritable_checkpoint_directory(job, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    expect(job(checkpoint={"dir": str(blocker / "ck")}), 64, "checkpoint.dir: cannot write in", str(blocker))


def test_full_disk(job, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.strip()}")
    try:
        result = job(checkpoint={"dir": str(disk / "ck"), "every": 3, "keep_last": 50})
        expect(result, 74, "rank", "free")
        nothing_half_written(disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_that_may_not_grow(job, tmp_path):
    """The limit's signal would kill the rank, and nobody would learn which file it was."""
    config = harness.merged(harness.SMALL, data={"path": str(job.data)}, run={"dir": str(job.directory)}, train={"steps": 30}, checkpoint={"every": 5})
    path = harness.write_config(tmp_path / "job.json", config)
    limited = ["-c", 'ulimit -f 10; exec "$@"', "bash", harness.BIN, "launch", "--nproc", 2, "--config", path]
    expect(harness.run(*limited, program="bash"), 74, "StorageFailed", str(job.directory / "checkpoints" / "step-"), "safetensors: File too large")


@pytest.mark.parametrize("threads", ["2x", "0", "1,", "999999999"])
def test_threads_that_nobody_can_have(job, threads):
    """OpenMP's library says one line and takes every CPU."""
    expect(job(env={"OMP_NUM_THREADS": threads}), 64, f"OMP_NUM_THREADS: {threads} is not allowed; expected an integer from 1 to 4096")


def test_threads_of_each_level_of_nesting(job):
    expect(job("--set", "train.steps=2", env={"OMP_NUM_THREADS": "2,1"}), 0)


def test_a_termination_log_that_is_a_pipe(job, tmp_path):
    """Nobody reads it; the error is said nevertheless, and its code told."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = f"cannot write the termination message to {pipe}: it is not a regular file"
    expect(job("--set", "train.steps=2", env={"TRAINYARD_TERMINATION_LOG": pipe}), 0, words)
    expect(harness.run("train", "--config", tmp_path / "none.yaml", timeout=120, TRAINYARD_TERMINATION_LOG=pipe), 64, "cannot read", words)


def test_a_home_directory_is_the_shells(tmp_path, data, job):
    """Written into a file, or behind `=`, ~ is a folder of that name, which nobody removes without fear."""
    for sets in ("run.dir=~/run", "checkpoint.dir=~/checkpoints", "data.path=~/data", "train.record=~/record", "init.from=~/weights", "checkpoint.resume=~/run"):
        result = harness.run("launch", "--config", harness.write_config(tmp_path / "job.json", harness.merged(harness.SMALL, data={"path": str(data)})), "--set", sets)
        field, value = sets.split("=")
        expect(result, 64, f"{field}: {value}: ~ is the shell's")
    expect(harness.run("synth", "language_model", "--out", "~/data"), 64, "~/data: ~ is the shell's")


def test_what_stands_where_a_file_of_the_run_goes(job):
    """Found before the run, not at its first commit."""
    (job.directory / "checkpoints" / "latest").mkdir(parents=True)
    expect(job(), 64, f"checkpoint.dir: {job.directory / 'checkpoints' / 'latest'} is a directory; remove it")
    (job.directory / "checkpoints" / "latest").rmdir()
    expect(job("--record", job.directory / "log.jsonl"), 64, "train.record:", "is the run's log")
    expect(job(), 0)
    step = job.directory / "checkpoints" / "step-00000012"
    step.symlink_to(step)
    expect(job(train={"steps": 12}), 0, "skipped step-00000012", "resuming from")
    assert step.is_dir() and not step.is_symlink()


@pytest.mark.parametrize("file, keep_best", [("evaluation.json", ""), ("best/best.json", "test/loss_action")])
def test_a_result_that_cannot_be_written_costs_no_training(job, file, keep_best):
    """checkpoint.dir is healthy: the ranks end behind a checkpoint, and the next attempt evaluates again."""
    blocker = job.directory / file / "not a file"
    blocker.mkdir(parents=True)
    sections = {"checkpoint": {"every": 0, "minutes": 0, "keep_best": keep_best}}
    expect(job(**sections), 74, f"cannot replace {job.directory / file}")
    assert (job.directory / "checkpoints" / "step-00000010").is_dir()
    assert job(**sections).returncode == 74
    shutil.rmtree(job.directory / file)
    expect(job(**sections), 0, "resuming from", "step-00000010")
    assert json.loads((job.directory / file).read_text())["step"] == 10
    evaluations = [line for line in harness.records(job.directory / "log.jsonl") if "test/loss_action" in line]
    assert [line["step"] for line in evaluations] == [10]


@pytest.mark.parametrize("nproc", [pytest.param(1, marks=harness.thorough), 2])
def test_an_evaluation_that_fails_costs_no_training(job, nproc):
    """No checkpoint was due before it. It fails on every attempt, and nothing is trained twice; once it does not, the run goes on as if it never had."""
    sections = {"train": {"eval_every": 4}, "checkpoint": {"every": 0, "minutes": 0}}
    fault = {"TRAINYARD_TEST_FAULT": f"evaluation:{nproc - 1}:0"}
    record = job.directory.parent / "record.jsonl"
    for attempt in range(2):
        expect(job("--record", record, nproc=nproc, env=fault, **sections), 70, "injected fault in evaluation")
        manifest = json.loads((job.directory / "checkpoints" / "step-00000004" / "manifest.json").read_text())
        assert manifest["evaluation_pending"]
        assert [line["step"] for line in harness.records(record)] == [1, 2, 3, 4], attempt
    expect(job("--record", record, nproc=nproc, **sections), 0, "resuming from", "step-00000004")
    broken = harness.records(record)
    shutil.rmtree(job.directory)
    record.unlink()
    expect(job("--record", record, nproc=nproc, **sections), 0)
    assert harness.records(record) == broken


def test_a_checkpoint_that_cannot_be_looked_at_is_not_passed_over(job):
    """An older one in its place would throw it away, though a server may be away for a moment. Any rank may be the one that cannot."""
    expect(job(checkpoint={"every": 3}), 0)
    newest = job.directory / "checkpoints" / "step-00000010"
    shards = sorted(newest.glob("*.safetensors"))
    assert len(shards) == 2
    for file in (newest / "manifest.json", *(shards if harness.THOROUGH else shards[1:])):
        file.rename(job.directory / "aside")
        file.symlink_to(file)  # to itself
        expect(job(train={"steps": 12}), 74, "step-00000010 could not be looked at", "move it away to go on from an older one")
        file.unlink()
        (job.directory / "aside").rename(file)
    expect(job(train={"steps": 12}), 0, "resuming from", "step-00000010")


def test_a_run_that_is_cut_short_is_evaluated_where_it_ends(job):
    process = job(train={"steps": 40}, checkpoint={"every": 3}, env={"TRAINYARD_TEST_FAULT": "forward:0:8"})
    assert process.returncode == 70, process.stderr
    assert not (job.directory / "evaluation.json").exists()
    result = job(train={"steps": 3})
    expect(result, 0, "resuming from", "nothing is left to train")
    step = max(int(path.name[5:]) for path in (job.directory / "checkpoints").glob("step-*"))
    assert step > 3
    assert json.loads((job.directory / "evaluation.json").read_text())["step"] == step


def test_a_scaled_rate_is_that_of_the_ranks_it_began_with(job):
    """batch.global is the same for any number of ranks, and so is what belongs to it."""
    record = job.directory.parent / "record.jsonl"
    sections = {"optim": {"lr": 1e-3, "lr_scaling": "linear"}, "checkpoint": {"every": 3}}
    expect(job("--record", record, nproc=2, env={"TRAINYARD_TEST_FAULT": "forward:1:6"}, **sections), 70)
    expect(job("--record", record, nproc=1, **sections), 0, "resuming from")
    lines = harness.records(record)
    assert len(lines) == 10 and {line["lr"] for line in lines} == {2e-3}, [line["lr"] for line in lines]


def test_every_checkpoint_corrupt_is_never_a_fresh_start(job):
    expect(job(checkpoint={"every": 3}), 0)
    for shard in (job.directory / "checkpoints").glob("step-*/*.safetensors"):
        os.truncate(shard, 100)
    result = job(train={"steps": 12})
    expect(result, 74, "no checkpoint is good", "step-00000010", "the manifest says", "to start afresh name another checkpoint.dir")
    # `never` held for this job's first attempt: a restart is no fresh start.
    expect(job(train={"steps": 12}, checkpoint={"resume": "never"}), 74, "no checkpoint is good")
    (job.directory / "checkpoints").rename(job.directory / "aside")
    expect(job(train={"steps": 12}), 74, "is empty, but the run in")
    expect(job(train={"steps": 12}, checkpoint={"resume": "never"}), 0, "starting from scratch")


def test_run_directory_of_another_identity(job):
    expect(job(), 0)
    before = (job.directory / "config.json").read_text()
    expect(job(model={"dim": 32}), 64, "another identity", "model.dim: 16 there, 32 here")
    assert (job.directory / "config.json").read_text() == before
    expect(job(optim={"lr": 5e-4}, train={"steps": 12}), 0, "optim.lr: was 0.001, now 0.0005")
    other = harness.synth(job.directory.parent / "other", "--seed", 2)
    expect(job(data_path=other, train={"steps": 12}), 64, "another identity; what lies at data.path: fingerprint ")


@pytest.mark.parametrize("name", ["uid", "attempt", "config.json", "checkpoints/fence"])
def test_a_file_of_the_run_that_is_a_pipe(job, name):
    expect(job(), 0)
    (job.directory / name).unlink()
    os.mkfifo(job.directory / name)
    expect(job(train={"steps": 12}, timeout=120), 74, f"cannot read {job.directory / name}: not a regular file")


def test_a_run_directory_that_somebody_has_edited(job):
    expect(job(nproc=1), 0)
    (job.directory / "attempt").write_text(f"{2**63}\n")
    expect(job(nproc=1), 64, "run.dir: no attempt can follow 9223372036854775807", str(job.directory / "attempt"))
    (job.directory / "config.json").write_text('{"config": {}, "data_fingerprint": 5}')
    expect(job(nproc=1), 64, "run.dir: ", "config.json is not a run's configuration")


def test_port_in_use(job):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        expect(job(env={"MASTER_PORT": port}), 69, "MASTER_PORT", str(port), "in use")
        expect(job(env={"TRAINYARD_STATUS_PORT": port}), 69, "status port", str(port), "in use")
        # The same without a launcher: rank 0 hosts the store, and serves the status.
        rank = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        expect(harness.run("train", "--config", job.directory.parent / "job.json", **rank), 69, "MASTER_PORT", str(port), "in use")
        expect(harness.run("train", "--config", job.directory.parent / "job.json", TRAINYARD_STATUS_PORT=port), 69, "status port", str(port), "in use")


def test_more_ranks_than_make_sense(job):
    expect(job(nproc=9000), 64, "--nproc", "9000 ranks are too many for this node; at most")


def test_a_port_that_nobody_set_is_chosen_anew(job, tmp_path):
    """Two jobs at once on one machine, neither of which names a port."""
    config = harness.merged(harness.SMALL, data={"path": str(job.data)}, train={"steps": 30})
    paths = [harness.write_config(tmp_path / f"{i}.json", harness.merged(config, run={"dir": str(tmp_path / f"run{i}")})) for i in range(2)]
    launchers = [harness.start("launch", "--nproc", 2, "--config", path) for path in paths]
    for launcher in launchers:
        output = launcher.communicate(timeout=120)[0]
        assert launcher.returncode == 0, output


def test_a_rank_that_never_comes(job):
    env = {"PET_NNODES": 2, "PET_NODE_RANK": 0, "PET_NPROC_PER_NODE": 1, "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": harness.free_port()}
    result = job(nproc=1, env=env, parallel={"rendezvous_seconds": 3})
    expect(result, 69, "waited 3.0s for all ranks to join", "rank 1 of 2 is not there")


@pytest.mark.parametrize("phase", ["rendezvous", "loading", "training", "evaluating"])
def test_a_rank_that_dies(tmp_path, data, phase):
    config = harness.merged(
        harness.SMALL,
        task={"eval_windows": 4096},
        data={"path": str(data)},
        run={"dir": str(tmp_path / "run")},
        train={"steps": 100000, "eval_every": 1 if phase == "evaluating" else 0},
        parallel={"rendezvous_seconds": 600},  # Nobody may wait for that: the tests' own deadlines are shorter.
    )
    path = harness.write_config(tmp_path / "job.json", config)
    process = harness.start("launch", "--nproc", 2, "--config", path, TRAINYARD_TERMINATION_LOG=tmp_path / "termination")
    victim = harness.wait_until(lambda: harness.ranks_of(process.pid).get(1), 90, "rank 1")
    run = tmp_path / "run"
    if phase == "loading":
        harness.wait_until(lambda: (run / "attempt").exists(), 90, "the run directory")
    elif phase != "rendezvous":
        harness.wait_until(lambda: (run / "log.jsonl").exists() and (run / "log.jsonl").stat().st_size > 0, 90, "steps")
    harness.kill(victim)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 137, output
    assert "rank 1 of 2: killed by signal 9" in output
    assert '"rank":1' in (tmp_path / "termination").read_text()


def test_a_rank_that_freezes(tmp_path, data):
    """The message names the silent rank and the field, and not the library's file."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 10**6}, parallel={"collective_seconds": 5})
    path = harness.write_config(tmp_path / "job.json", config)
    process = harness.start("launch", "--nproc", 2, "--config", path, TRAINYARD_TERMINATION_LOG=tmp_path / "termination")
    log = tmp_path / "run" / "log.jsonl"
    harness.wait_until(lambda: log.exists() and log.stat().st_size > 0, 90, "steps")
    victim = harness.ranks_of(process.pid)[1]
    harness.kill(victim, signal.SIGSTOP)
    try:
        output = process.communicate(timeout=120)[0]
    finally:
        harness.kill(victim, signal.SIGCONT)
    assert process.returncode == 69, output
    message = json.loads((tmp_path / "termination").read_text())["message"]
    assert re.fullmatch(r"a collective failed: all_reduce \(.+\): not answered within 5.0s \(parallel.collective_seconds\); "
                        "rank 1 gives no sign of life: frozen, or its node is lost", message), message


def test_a_rank_that_stands_still(tmp_path, data):
    """Its process lives, so that only what it has entered tells of it: it is named, and ends with 73; the other one says the same, with 69."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 30}, parallel={"collective_seconds": 1})
    result = harness.run("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "job.json", config), timeout=120,
                         TRAINYARD_TEST_FAULT="slow_forward:1:5", TRAINYARD_TERMINATION_LOG=tmp_path / "termination")
    assert result.returncode == 73, result.stdout + result.stderr
    end = json.loads((tmp_path / "termination").read_text())
    assert (end["rank"], end["exit_code"], end["reason"]) == (1, 73, "Hang")
    verdict = rf"rank 1 \({re.escape(socket.gethostname())}\) never entered all_reduce #\d+ \(\w+, .+\); last seen in forward, for \d\.\ds"
    assert re.fullmatch(verdict, end["message"]), end["message"]
    other = (tmp_path / "run" / "logs" / "attempt-1-rank-0.log").read_text()
    assert re.search(r"a collective failed: all_reduce \(.+\): not answered within 1.0s \(parallel.collective_seconds\); " + verdict, other), other


def test_a_launcher_that_freezes(tmp_path, data):
    """It hosts the store, whose connections it keeps: no rank waits for its answer longer than for a collective's."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 10**6}, parallel={"collective_seconds": 5}, checkpoint={"every": 3})
    process = harness.start("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "job.json", config), TRAINYARD_TERMINATION_LOG=tmp_path / "termination")
    harness.wait_until(lambda: (tmp_path / "run" / "checkpoints" / "latest").exists(), 90, "a checkpoint")
    ranks = harness.ranks_of(process.pid)
    assert {pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in ranks.values()} == {"trainyard"}, "what ps and top show"
    harness.kill(process.pid, signal.SIGSTOP)
    try:
        for pid in ranks.values():
            harness.wait_until(lambda: pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z", 60, "the end of a rank")
    finally:
        harness.kill(process.pid, signal.SIGCONT)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 69, output
    assert "the rendezvous store did not answer for 5.0s" in json.loads((tmp_path / "termination").read_text())["message"]


@pytest.mark.parametrize("place, call, code", [("loader", 20, 65), ("forward", 5, 70), ("backward", 5, 70), ("evaluation", 5, 70)])
def test_a_rank_that_throws(tmp_path, data, place, call, code):
    """The rank that throws explains the attempt; the other leaves by itself, with 69. A rank reads four samples a step."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 30, "eval_every": 4}, checkpoint={"every": 3})
    path = harness.write_config(tmp_path / "job.json", config)
    result = harness.run("launch", "--nproc", 2, "--config", path, timeout=120, TRAINYARD_TEST_FAULT=f"{place}:1:{call}", TRAINYARD_TERMINATION_LOG=tmp_path / "termination")
    expect(result, code, f"rank 1 of 2: injected fault in {place}")
    other = (tmp_path / "run" / "logs" / "attempt-1-rank-0.log").read_text()
    assert "failed" in other or "a collective failed" in other
    nothing_half_written(tmp_path / "run")
    # The state that was saved before is good.
    again = harness.run("launch", "--nproc", 2, "--config", path, timeout=120)
    expect(again, 0, "resuming from")


@pytest.mark.parametrize("fault", ["forwards:1:5", "forward:1", "forward:one:5", "forward:99999999999999999999:5", "forward:0:99999999999999999999"])
def test_a_fault_that_does_not_exist(tmp_path, data, fault):
    """A test that asks for one would show nothing."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")})
    result = harness.run("train", "--config", harness.write_config(tmp_path / "job.json", config), TRAINYARD_TEST_FAULT=fault)
    expect(result, 64, f"TRAINYARD_TEST_FAULT: {fault} is not allowed; expected place:rank:call, the place one of loader, disk, ")


def test_a_rank_that_cannot_serve_its_status_says_so_to_all(tmp_path, data):
    """Without a launcher. The others would wait for it until parallel.rendezvous_seconds, which are 300."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")})
    path = harness.write_config(tmp_path / "job.json", config)
    world = dict(WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=harness.free_port())
    first = harness.start("train", "--config", path, RANK=0, **world)

    def store_is_there():
        with socket.socket() as there:
            return there.connect_ex(("127.0.0.1", world["MASTER_PORT"])) == 0

    try:
        harness.wait_until(store_is_there, 90, "the store")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            second = harness.run("train", "--config", path, RANK=1, **world, TRAINYARD_STATUS_PORT=taken.getsockname()[1], TRAINYARD_TERMINATION_LOG=tmp_path / "termination")
        output = first.communicate(timeout=120)[0]
    finally:
        harness.kill(first.pid)
    expect(second, 69, "trainyard: rank 1: the status port (TRAINYARD_STATUS_PORT)")
    assert json.loads((tmp_path / "termination").read_text())["rank"] == 1
    assert first.returncode == 69 and "rank 1 has ended: the status port" in output, output


def test_a_rank_outside_of_its_world_is_named(tmp_path):
    result = harness.run("train", "--config", tmp_path / "none", RANK=3, WORLD_SIZE=2, TRAINYARD_TERMINATION_LOG=tmp_path / "termination")
    expect(result, 64, "RANK: 3 is not allowed")
    message = json.loads((tmp_path / "termination").read_text())
    assert message["rank"] == 3 and message["step"] is None


@pytest.mark.parametrize("command, rank", [(["launch", "--nproc", 2], 0), (["launch", "--nproc", 2], 1), (["launch", "--nproc", 2, "--quiet"], 0), (["train"], 0)])
def test_an_error_stands_once_on_the_terminal(tmp_path, data, command, rank):
    """The launcher says it, and the rank's log keeps it; without a launcher the rank does."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")})
    path = harness.write_config(tmp_path / "job.json", config)
    result = harness.run(*command, "--config", path, TRAINYARD_TEST_FAULT=f"forward:{rank}:3")
    assert result.returncode == 70, result.stderr
    assert result.stderr.count("injected fault in forward") == 1, result.stderr
    if command[0] == "launch":
        assert f"launch: rank {rank} of 2: injected fault in forward" in result.stderr
        assert f"trainyard: rank {rank}: injected fault in forward" in (tmp_path / "run" / "logs" / f"attempt-1-rank-{rank}.log").read_text()
    else:
        assert "trainyard: rank 0: injected fault in forward" in result.stderr


def test_a_bad_sample_may_keep_its_place(tmp_path, data):
    """faults.bad_sample: skip. The sample counts nothing, its place stays, and the log names it."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, faults={"bad_sample": "skip"})
    path = harness.write_config(tmp_path / "job.json", config)
    result = harness.run("launch", "--nproc", 2, "--config", path, "--record", tmp_path / "skipped", timeout=120, TRAINYARD_TEST_FAULT="loader:0:9")
    expect(result, 0, "counts nothing: injected fault in loader (faults.bad_sample: skip)")
    whole = harness.merged(config, run={"dir": str(tmp_path / "whole")})
    expect(harness.run("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "whole.json", whole), "--record", tmp_path / "all", timeout=120), 0)
    skipped, complete = harness.records(tmp_path / "skipped"), harness.records(tmp_path / "all")
    assert [line["samples"] for line in skipped] == [line["samples"] for line in complete]
    assert skipped[:2] == complete[:2] and skipped[2]["loss"] != complete[2]["loss"]


def test_a_data_set_that_is_gone_is_not_skipped_for_ever(tmp_path, data):
    """Every sample of a step is bad: that is no step."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, faults={"bad_sample": "skip"})
    path = harness.write_config(tmp_path / "job.json", config)
    result = harness.run("launch", "--nproc", 1, "--config", path, "--record", tmp_path / "record", timeout=120, TRAINYARD_TEST_FAULT="disk:0:24")
    expect(result, 65, "no sample of this step could be read")
    assert len(harness.records(tmp_path / "record")) == 3


@pytest.mark.parametrize("policy, code", [("stop", 72), ("skip", 0)])
def test_nonfinite_loss(tmp_path, data, policy, code):
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, faults={"nonfinite": policy})
    path = harness.write_config(tmp_path / "job.json", config)
    result = harness.run("launch", "--nproc", 2, "--config", path, "--record", tmp_path / "record", TRAINYARD_TEST_FAULT="nonfinite:1:5")
    expect(result, code, "step 6 is not finite", "nonfinite-step-6.json")
    lines = harness.records(tmp_path / "record")
    assert lines[5]["loss"] == "nan" and "-nan" not in result.stderr
    assert json.loads((tmp_path / "run" / "nonfinite-step-6.json").read_text())["loss"] == "nan"
    assert len(lines) == (6 if policy == "stop" else 10)
    if policy == "skip":
        assert lines[6]["lr"] == lines[5]["lr"]


@pytest.mark.parametrize("policy, code", [("stop", 72), ("skip", 0)])
def test_the_policy_for_a_nonfinite_loss_does_not_wait_for_room_on_the_disk(tmp_path, data, policy, code):
    (tmp_path / "run/nonfinite-step-6.json/in-the-way").mkdir(parents=True)  # for root, too
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, faults={"nonfinite": policy})
    path = harness.write_config(tmp_path / "job.json", config)
    result = harness.run("launch", "--nproc", 2, "--config", path, "--record", tmp_path / "record", TRAINYARD_TEST_FAULT="nonfinite:1:5")
    expect(result, code, "step 6 is not finite", "its samples are not saved: ", "nonfinite-step-6.json")
    assert len(harness.records(tmp_path / "record")) == (6 if policy == "stop" else 10)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["lunch"], ["did you mean launch?"]),
        (["launch", "--confg", "x"], ["did you mean --config?", "`trainyard launch --help` has"]),
        (["launch", "--quite"], ["did you mean --quiet?", "`trainyard launch --help` has"]),
        (["launch", "--foo"], ["--foo", "`trainyard launch --help` has"]),
        (["eval"], ["--checkpoint is required", "`trainyard eval --help` has"]),
        (["launch", "--nproc", "many", "--config", "/dev/null", "--set", "task.name=algorithm_distillation", "--set", "train.steps=1", "--set", "data.path=/x"], ["--nproc: many"]),
        (["synth", "algorithm_distilation", "--out", "/tmp/x"], ["did you mean algorithm_distillation?", "`trainyard synth --help` has"]),
        (["run", "--config", "x"], ["unknown command run", "expected one of launch, train"]),
        (["launch", "--set", "train.steps=1", "batch.global=2"], ["each setting has a --set of its own: --set train.steps=1 --set batch.global=2"]),
        (["synth", "flowers", "--out", "/tmp/x"], ["unknown command flowers", "expected one of algorithm_distillation"]),
        (["synth", "mimic_cxr", "--out", "/tmp/x"], ["the task mimic_cxr has no synthetic data", "expected one of algorithm_distillation"]),
        (["synth", "algorithm_distillation", "--out", "/tmp/x", "--source", "ppoo"], ["did you mean ppo?"]),
        (["launch"], ["--config: missing"]),
    ],
)
def test_usage(arguments, words):
    expect(harness.run(*arguments), 2, *words)


def test_synth_keeps_what_is_there(tmp_path):
    """The same command twice writes once; another one, or a folder of something else, is refused."""
    out = tmp_path / "data"
    command = ["synth", "language_model", "--size", "tiny", "--out", out]
    first = harness.run(*command)
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"{out} is written; train on it with task.name: language_model, data.path: {out}\n"

    def contents():
        return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in out.iterdir()}

    before = contents()
    again = harness.run(*command)
    assert again.returncode == 0 and "holds this data already" in again.stdout, again.stderr
    expect(harness.run(*command, "--seed", 7), 64, f"--out: {out} is not empty and holds data of other options")
    assert contents() == before
    # One that was interrupted is whole after the next.
    options = json.loads((out / "synth.json").read_text())
    (out / "synth.json").write_text(json.dumps({**options, "complete": False}))
    victim = next(out.glob("*.tokens"))
    victim.write_bytes(b"")
    expect(harness.run(*command), 0)
    assert {name: data for name, (data, _) in contents().items()} == {name: data for name, (data, _) in before.items()}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    expect(harness.run(*command[:-1], tmp_path / "mine"), 64, "is not empty and holds something else; name another folder, or remove it")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_synth_says_that_it_was_stopped(tmp_path):
    process = harness.start("synth", "algorithm_distillation", "--source", "ppo", "--size", "small", "--out", tmp_path / "data")
    harness.wait_until(lambda: (tmp_path / "data" / "synth.json").exists(), 60, "the first file")
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 130 and "is not whole. The same command writes it again" in output, output


@pytest.mark.parametrize("command", ["launch", "train", "eval", "synth", "checkpoint", "tasks", "plan", "selftest"])
def test_help_shows_an_example(command):
    result = harness.run(command, "--help")
    assert result.returncode == 0 and "EXAMPLES\n" in result.stdout

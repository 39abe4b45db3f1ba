"""What a configuration can ask for beyond the plain run, seen from outside: files, logs, exit codes."""

import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import termios

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import harness


@pytest.fixture
def job(tmp_path, data):
    """Runs `trainyard launch` on two ranks; returns (result, run directory)."""

    def launch(name, env=None, **sections):
        directory = tmp_path / name
        config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(directory)}, **sections)
        path = harness.write_config(tmp_path / f"{name}.json", config)
        return harness.run("launch", "--nproc", 2, "--config", path, "--record", directory / "record.jsonl", **(env or {})), directory

    launch.data = {"path": str(data)}
    return launch


def good(result):
    assert result.returncode == 0, result.stderr
    return result


def log(directory, key):
    lines = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line[key] for line in lines if key in line}


def test_early_stop_ends_with_0_and_a_final_checkpoint(job):
    # A rate of nearly zero: nothing improves by 0.1 after the first evaluation.
    result, directory = job("early", train={"steps": 40, "eval_every": 2, "early_stop": {"metric": "test/loss_action", "patience": 3, "min_delta": 0.1}},
                            optim={"lr": 1e-9})
    good(result)
    assert max(log(directory, "test/loss_action")) == 8  # the first is the best; three more do not improve
    assert len(harness.records(directory / "record.jsonl")) == 8
    assert (directory / "checkpoints" / "step-00000008").is_dir()
    assert "early stop" in result.stderr.lower()
    # Started again, it is still over.
    result, directory = job("early", train={"steps": 40, "eval_every": 2, "early_stop": {"metric": "test/loss_action", "patience": 3, "min_delta": 0.1}},
                            optim={"lr": 1e-9})
    good(result)
    assert len(harness.records(directory / "record.jsonl")) == 8
    # With more patience it goes on, and counts on; what it waits for no more ends it no more.
    result, directory = job("early", train={"steps": 40, "eval_every": 2, "early_stop": {"metric": "test/loss_action", "patience": 5, "min_delta": 0.1}},
                            optim={"lr": 1e-9})
    good(result)
    assert len(harness.records(directory / "record.jsonl")) == 12
    result, directory = job("early", train={"steps": 40, "eval_every": 2}, optim={"lr": 1e-9})
    good(result)
    assert len(harness.records(directory / "record.jsonl")) == 40


def test_early_stop_of_an_unknown_metric_names_the_known(job):
    result, _ = job("unknown", train={"steps": 4, "eval_every": 2, "early_stop": {"metric": "test/los"}})
    assert result.returncode == 64
    assert "test/loss_action" in result.stderr


def test_plateau_lowers_the_rate(job):
    result, directory = job("plateau", train={"steps": 12, "eval_every": 2}, optim={"lr": 1e-9},
                            schedule={"name": "plateau", "metric": "test/acc_action", "factor": 0.5, "patience": 1})
    good(result)
    rates = [line["lr"] for line in harness.records(directory / "record.jsonl")]
    # Evaluations after 2, 4, 6, ...: the first is the best, one is tolerated, the third in a row halves.
    assert rates[:6] == pytest.approx([1e-9] * 6)
    assert rates[6:10] == pytest.approx([5e-10] * 4)
    assert rates[10:] == pytest.approx([2.5e-10] * 2)


def test_which_checkpoints_stay(job):
    result, directory = job("keep", train={"steps": 11, "eval_every": 3}, checkpoint={"every": 1, "keep_last": 2, "keep_every": 4, "keep_best": "test/loss_action"})
    good(result)
    assert sorted(p.name for p in (directory / "checkpoints").glob("step-*")) == [f"step-{s:08}" for s in (4, 8, 10, 11)]
    losses = log(directory, "test/loss_action")
    best = json.loads((directory / "best" / "best.json").read_text())
    assert (directory / "best" / "model.safetensors").is_file()
    assert best["metric"] == "test/loss_action" and best["step"] == min(losses, key=losses.get)
    assert best["value"] == pytest.approx(min(losses.values()), rel=1e-6)  # the log rounds


def test_init_from_starts_with_those_weights(job, tmp_path):
    _, first = job("first", train={"steps": 3})
    weights = first / "export" / "model.safetensors"
    # Without a rate nothing moves: what comes out is what went in.
    result, second = job("second", train={"steps": 1}, optim={"lr": 0}, init={"from": str(weights)})
    good(result)
    before, after = load_file(weights), load_file(second / "export" / "model.safetensors")
    assert set(before) == set(after)
    assert all(np.array_equal(before[name], after[name]) for name in before)

    # Another architecture: the tensor, both shapes, and nothing trained.
    result, third = job("third", model={"dim": 32}, init={"from": str(weights)})
    assert result.returncode == 64, result.stderr
    assert "16" in result.stderr and "32" in result.stderr
    assert not list(third.glob("checkpoints/step-*"))

    # A tensor that is missing is named.
    name = sorted(before)[0]
    save_file({k: v for k, v in before.items() if k != name}, tmp_path / "partial.safetensors")
    result, _ = job("fourth", init={"from": str(tmp_path / "partial.safetensors")})
    assert result.returncode == 64 and name in result.stderr


def test_weights_say_in_which_model_they_were_trained(job, data, tmp_path):
    """With other heads every shape fits, and every value means something else."""
    _, first = job("first", model={"dim": 16, "heads": 2})
    weights = first / "export" / "model.safetensors"
    with safe_open(weights, "np") as file:
        said = file.metadata()
    assert said["format"] == "pt" and json.loads(said["trainyard"])["model"]["heads"] == 2
    result, second = job("second", model={"dim": 16, "heads": 4}, init={"from": str(weights)})
    note = f"note: init.from: {weights}: trained in another model; model.heads: 2 there, 4 here"
    assert good(result).stderr.count(note) == 1, result.stderr
    assert "trained in another model" not in good(job("same", model={"dim": 16, "heads": 2}, init={"from": str(weights)})[0]).stderr

    other = harness.write_config(tmp_path / "other.json", harness.merged(harness.SMALL, model={"dim": 16, "heads": 4}, data={"path": str(data)}, run={"dir": str(tmp_path / "eval")}))
    result = harness.run("eval", "--config", other, "--checkpoint", weights)
    assert result.returncode == 64 and "model.heads: 2 there, 4 here" in result.stderr, result.stderr

    # What another program has written says nothing of it, or something that is none of ours.
    values = load_file(weights)
    for said in ({"format": "pt"}, {"trainyard": "nonsense"}, {"trainyard": "[]"}, {"trainyard": '{"task": "language_model", "model": {"heads": 1}}'}, {"trainyard": '{"task": {"name": "algorithm_distillation"}, "model": 1}'},
                 {"trainyard": json.dumps({"task": {"name": "algorithm_distillation"}, "model": {"heads": 1}, "x": "x" * 65536})}):
        save_file(values, tmp_path / "stranger.safetensors", metadata=said)
        result = harness.run("eval", "--config", other, "--checkpoint", tmp_path / "stranger.safetensors")
        assert result.returncode == 0 and "another model" not in result.stderr, (said, result.stderr)


def test_a_tied_weight_of_init_from_is_what_it_is_tied_to(tmp_path):
    """A head of its own would be lost without a word."""
    tokens = harness.run("synth", "language_model", "--size", "tiny", "--out", tmp_path / "tokens")
    good(tokens)
    config = {"task": {"name": "language_model"}, "model": {"preset": "tiny"}, "data": {"path": str(tmp_path / "tokens")},
              "batch": {"global": 2}, "train": {"steps": 1}, "run": {"dir": str(tmp_path / "source")}}
    good(harness.run("train", "--config", harness.write_config(tmp_path / "source.json", config)))
    weights = load_file(tmp_path / "source" / "export" / "model.safetensors")
    for name, head in (("other", weights["lm_head.weight"] + 1), ("nan", np.full_like(weights["lm_head.weight"], np.nan)), ("flat", weights["lm_head.weight"].reshape(-1))):
        save_file({**weights, "lm_head.weight": head}, tmp_path / f"{name}.safetensors")
        result = harness.run("train", "--dry-run", "--config", harness.write_config(tmp_path / "next.json", harness.merged(config, init={"from": str(tmp_path / f"{name}.safetensors")}, run={"dir": str(tmp_path / "next")})))
        assert result.returncode == 64 and "lm_head.weight" in result.stderr, (name, result.stderr)


@pytest.mark.parametrize("content", [b"", b"nonsense that is no header", b"\x10" + bytes(7) + b"[" * 16, b"\xff" * 8, "cut", "integers", "nan"])
def test_a_malformed_init_from_is_the_configurations_mistake(job, tmp_path, content):
    """No other attempt could read it: 64 with the field, on a rank as well as in a dry run."""
    file = tmp_path / "start.safetensors"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        weights = load_file(good(job("source")[0]) and tmp_path / "source" / "export" / "model.safetensors")
        if content == "nan":
            weights[min(weights)].flat[1] = np.nan
        save_file({k: v.astype("int64") if content == "integers" else v for k, v in weights.items()}, file)
        if content == "cut":
            file.write_bytes(file.read_bytes()[:-4])
    result, directory = job("run", init={"from": str(file)})
    assert result.returncode == 64 and f"init.from: {file}: " in result.stderr, result.stderr
    assert not list(directory.glob("checkpoints/step-*"))


def test_plan_counts_without_allocating(tmp_path):
    """Gigabytes of a model that nobody builds: the process stays as small as the libraries that it loads."""
    import resource

    config = harness.write_config(tmp_path / "large.json", harness.merged(harness.SMALL, data={"path": "/nowhere"}, model={"dim": 2048, "layers": 24, "heads": 16, "context": 1024}))
    result = harness.run("plan", "--config", config, "--ranks", 2, "--json")
    plan = json.loads(result.stdout)
    assert result.returncode == (0 if plan["fits"] else 71), result.stderr  # as large as this machine is
    assert plan["parameters"] > 1.2e9 and plan["bytes_per_rank"]["AdamW moments, fp32"] > 9e9
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1 << 20  # KiB: a gigabyte, of 24 planned


def test_a_finished_run_says_so(job):
    good(job("run")[0])
    result, directory = job("run")
    good(result)
    assert "complete     nothing is left to train" in result.stderr
    assert len(harness.records(directory / "record.jsonl")) == 10


@pytest.mark.parametrize("change", [{"train": {"log_every": 3}}, {"optim": {"lr": 5e-3}}], ids=["free", "schedule"])
def test_a_finished_run_of_another_job_says_so_too(job, tmp_path, change):
    """A job of another uid, with fields that may change: it finds the end, trains nothing, and leaves what is there."""
    _, directory = job("run")
    record, weights = (directory / "record.jsonl").read_bytes(), (directory / "export" / "model.safetensors").read_bytes()
    config = harness.merged(json.loads((tmp_path / "run.json").read_text()), **change)
    result = harness.run("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "again.json", config), "--record", directory / "record.jsonl",
                         TRAINYARD_JOB_UID="another-job")
    good(result)
    assert "complete     nothing is left to train: 10 of 10 steps are done; more train.steps or train.epochs go on" in result.stderr
    assert ("optim.lr: was 0.001, now 0.005" in result.stderr) == ("optim" in change)
    assert (directory / "uid").read_text() == "another-job\n"
    assert (directory / "record.jsonl").read_bytes() == record and (directory / "export" / "model.safetensors").read_bytes() == weights
    longer = harness.run("launch", "--nproc", 2, "--config", tmp_path / "again.json", "--set", "train.steps=12", "--record", directory / "record.jsonl",
                         TRAINYARD_JOB_UID="another-job", TRAINYARD_ATTEMPT=2)
    assert "complete " not in good(longer).stderr and len(harness.records(directory / "record.jsonl")) == 12


def test_eval_finds_the_checkpoints_of_a_run(job, tmp_path):
    _, directory = job("run")
    tables = [harness.run("eval", "--config", tmp_path / "run.json", "--checkpoint", path) for path in (directory, directory / "checkpoints")]
    assert good(tables[0]).stdout == good(tables[1]).stdout


@pytest.mark.parametrize("columns", [40, 70, 200])
def test_the_bar_fits_its_terminal(job, tmp_path, columns):
    """On a terminal of its own, through the launcher's pipe: no drawn line is as wide as the terminal."""
    config = harness.write_config(tmp_path / "bar.json", harness.merged(harness.SMALL, data=job.data, run={"dir": str(tmp_path / "bar")}))
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {k: v for k, v in harness.environment().items() if k not in ("TRAINYARD_PROGRESS", "COLUMNS")}
    process = subprocess.Popen([harness.BIN, "launch", "--config", str(config)], stderr=terminal, stdout=subprocess.DEVNULL, env=env, start_new_session=True,
                               preexec_fn=lambda: fcntl.ioctl(2, termios.TIOCSCTTY, 0))
    os.close(terminal)
    output = b""
    try:
        while chunk := os.read(controller, 65536):
            output += chunk
    except OSError:  # The other side is closed.
        pass
    os.close(controller)
    assert process.wait(timeout=90) == 0, output
    drawn = [part for part in output.decode().split("\r\033[K") if part.startswith("step ")]
    lines = [re.split(r"[\r\n]", part)[0] for part in drawn]
    assert lines and all(len(line) < columns for line in lines), lines
    assert "10/10" in lines[-1]
    assert ("[####" in lines[-1]) == (columns >= 70)


def test_an_evaluation_is_a_line_of_the_log(job):
    result, _ = job("run", train={"eval_every": 3}, env={"TRAINYARD_PROGRESS": "lines"})
    lines = [line for line in good(result).stderr.splitlines() if line.startswith("evaluation")]
    assert [int(re.match(r"evaluation after step (\d+) \([^)]+\):  test/", line)[1]) for line in lines] == [3, 6, 9, 10], lines


@pytest.mark.parametrize("place, words", [("slow_forward:1:0", "step 1 of 10, first step running for "), ("slow_evaluation:0:0", "evaluation running for ")])
def test_what_takes_long_is_said_to_run(job, place, words):
    """On whichever rank."""
    result, _ = job("run", env={"TRAINYARD_PROGRESS": "lines", "TRAINYARD_TEST_FAULT": place})
    assert words in good(result).stderr


DECIDES = dict(
    # The rate is so high that the loss is noise: soon six evaluations in a row are no better than the one before them. The rate
    # falls at every second of them, and the run ends with the sixth.
    train={"steps": 120, "eval_every": 2, "early_stop": {"metric": "test/loss_action", "patience": 6, "min_delta": 0}},
    optim={"lr": 0.5, "clip": 0},
    schedule={"name": "plateau", "metric": "test/loss_action", "factor": 0.5, "patience": 1},
    checkpoint={"every": 1, "keep_last": 2, "keep_best": "test/loss_action"},
)


def test_what_evaluations_decided_survives_interruptions(job, tmp_path, data):
    """Plateau, best and early stop are the uninterrupted run's, wherever it was stopped."""
    result, whole = job("whole", **DECIDES)
    good(result)
    reference = harness.records(whole / "record.jsonl")
    best = json.loads((whole / "best" / "best.json").read_text())
    rates = sorted({line["lr"] for line in reference})
    assert len(rates) >= 3 and best["step"] + 10 <= len(reference) < 120, "the run must show all three, or this proves nothing"

    directory = tmp_path / "interrupted"
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(directory)}, **DECIDES)
    path = harness.write_config(tmp_path / "interrupted.json", config)
    record = directory / "record.jsonl"
    stops = 0
    for at in (best["step"] + 1, (best["step"] + len(reference)) // 2, len(reference) - 3):
        process = harness.start("launch", "--nproc", 2, "--config", path, "--record", record)
        harness.wait_until(lambda: process.poll() is not None or record.exists() and len(record.read_text().splitlines()) >= at, 120, "a step")
        harness.kill(process.pid, signal.SIGTERM)
        output = process.communicate(timeout=120)[0]
        assert process.returncode in (0, 75), output
        stops += process.returncode == 75
    assert stops > 0, "it was never interrupted"
    result = good(harness.run("launch", "--nproc", 2, "--config", path, "--record", record))
    assert harness.records(record) == reference
    assert json.loads((directory / "best" / "best.json").read_text()) == best


def test_the_optimizer_waits_for_the_checkpoints_copy(tmp_path, data):
    """The copy is made to last seconds, a step lasts milliseconds: the first step's checkpoint is still the first step's."""
    slow = os.environ.get("TRAINYARD_SLOW_COPY", "build/release/lib/libslow_copy.so")
    assert pathlib.Path(slow).is_file(), slow
    for name, steps in (("one", 1), ("two", 2)):
        config = harness.merged(harness.SMALL, data={"path": str(data)}, model={"dim": 128, "layers": 2}, train={"steps": steps}, optim={"lr": 1e-2},
                                checkpoint={"every": 1}, run={"dir": str(tmp_path / name)})
        good(harness.run("train", "--config", harness.write_config(tmp_path / f"{name}.json", config), LD_PRELOAD=slow if name == "two" else ""))
    step = "checkpoints/step-00000001"
    result = harness.run("checkpoint", "diff", tmp_path / "one" / step, tmp_path / "two" / step)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_failure_that_every_rank_has_heard_of_ends_no_checkpoint_that_is_being_written(tmp_path, data, nproc):
    """The copy lasts seconds; the next step, of which the last rank's loss is no number, milliseconds."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, model={"dim": 128, "layers": 2}, train={"steps": 3},
                            checkpoint={"every": 1}, faults={"nonfinite": "stop"}, run={"dir": str(tmp_path / "run")})
    launch = ["launch", "--nproc", str(nproc)] if nproc > 1 else ["train"]
    result = harness.run(*launch, "--config", harness.write_config(tmp_path / "run.json", config), LD_PRELOAD=os.environ["TRAINYARD_SLOW_COPY"],
                         TRAINYARD_TEST_FAULT=f"nonfinite:{nproc - 1}:2")
    assert result.returncode == 72, result.stderr
    assert (tmp_path / "run" / "checkpoints" / "step-00000001" / "manifest.json").is_file(), result.stderr


def test_an_evaluation_may_use_another_batch_seed_and_data(job, tmp_path, data):
    """What it needs of the training's configuration is the model and the task."""
    result, directory = job("run")
    good(result)
    other = harness.synth(tmp_path / "other", "--seed", 9)

    def evaluate(*sets):
        arguments = [word for text in sets for word in ("--set", text)]
        return harness.run("eval", "--config", tmp_path / "run.json", "--checkpoint", directory, *arguments)

    plain = good(evaluate())
    assert "note:" not in plain.stderr
    assert good(evaluate("batch.global=4", "run.seed=9", "train.steps=99", "optim.lr=1")).stdout == plain.stdout
    elsewhere = good(evaluate(f"data.path={other}"))
    assert "the data is not what --checkpoint: " in elsewhere.stderr
    for change in ("model.dim=32", "task.loss=last_position"):
        result = evaluate(change)
        assert result.returncode == 64, result.stderr
        assert "holds another model; " + change.split("=")[0] in result.stderr and "run.dir" not in result.stderr.split(";", 1)[1], result.stderr


def test_initial_weights_are_told_by_their_content(job, tmp_path):
    _, first = job("first", train={"steps": 2})
    weights = first / "export" / "model.safetensors"
    copy, other = tmp_path / "copy.safetensors", tmp_path / "other.safetensors"
    copy.write_bytes(weights.read_bytes())
    good(job("second", init={"from": str(weights)})[0])
    good(job("second", init={"from": str(copy)}, train={"steps": 11})[0])  # the same weights from another place
    save_file({name: array + 1 for name, array in load_file(weights).items()}, other)
    result, _ = job("second", init={"from": str(other)}, train={"steps": 12})
    assert result.returncode == 64 and "what init.from names: checksum" in result.stderr and "data.path" not in result.stderr, result.stderr
    copy.unlink()  # a run that goes on needs them no more
    good(job("second", init={"from": str(copy)}, train={"steps": 12})[0])
    result, _ = job("second", init={"from": str(other)}, train={"steps": 13})
    assert result.returncode == 64 and "init.from" in result.stderr, "an attempt without the file has forgotten it"
    copy.write_bytes(weights.read_bytes())
    good(job("second", init={"from": str(copy)}, train={"steps": 13})[0])


@pytest.mark.parametrize(
    "task, section, field, same, other",
    [
        pytest.param("algorithm_distillation", "model", "ffn", 64, 96, marks=harness.thorough),
        ("algorithm_distillation", "batch", "global", 64, 128),
        ("language_model", "model", "dropout", 0, 0.25),
    ],
)
def test_an_automatic_value_written_out_is_the_same_run(small_jobs, tmp_path, task, section, field, same, other):
    config = harness.merged(small_jobs[task], run={"dir": str(tmp_path / "run")}, **{section: {field: "auto"}})
    path = harness.write_config(tmp_path / "job.json", config)

    def go_on(value, steps):
        return harness.run("launch", "--nproc", 2, "--config", path, "--set", f"{section}.{field}={value}", "--set", f"train.steps={steps}")

    def refuse(value):
        result = go_on(value, 6)
        assert result.returncode == 64, result.stderr
        words = re.search(rf"{section}\.{field}: (.*)", result.stderr.replace(str(tmp_path), ""))[1]
        assert str(other) in words and str(same) in words, result.stderr

    good(go_on("auto", 2))
    refuse(other)
    for steps, value in ((3, same), (4, "auto")):
        result = good(go_on(value, steps))
        assert "resuming from" in result.stderr and f"{section}.{field}" not in result.stderr, result.stderr
        if value == same:
            refuse(other)


def test_weights_of_another_model_are_refused_in_a_line(job, tmp_path):
    _, first = job("first", train={"steps": 2})
    weights = load_file(first / "export" / "model.safetensors")
    save_file({("old." if i % 2 else "") + name: array[..., None] for i, (name, array) in enumerate(sorted(weights.items()))}, tmp_path / "other.safetensors")
    result, _ = job("second", init={"from": str(tmp_path / "other.safetensors")})
    assert result.returncode == 64, result.stderr
    renamed = len(weights) // 2
    kept = len(weights) - renamed
    for what, count in (("missing: ", renamed), ("unexpected: ", renamed), ("of another shape: ", kept)):
        assert count > 6
        listed = result.stderr.split("; " + what)[1].split(";")[0].split("\n")[0]
        assert re.search(rf" and {count - 5} more\b", listed), listed
        assert sum(name in listed for name in weights) <= 5 + 1, listed  # one name may begin another
    assert len(result.stderr.split("launch: rank 0")[1]) < 2000


def test_an_automatic_batch_is_at_most_the_data_set(tmp_path):
    """24 windows, fewer than the 32 of a rank: an epoch is one step, and every sample comes once in it."""
    harness.write_tokens(tmp_path / "train.tokens", [i % 16 for i in range(16 * 24 + 1)], 16)
    data = {"path": str(tmp_path / "train.tokens")}
    config = harness.merged(harness.SMALL_LANGUAGE_MODEL, data=data, run={"dir": str(tmp_path / "run")}, batch={"global": "auto"})
    config["train"] = {"epochs": 3}
    path = harness.write_config(tmp_path / "job.json", config)
    result = good(harness.run("train", "--config", path, "--record", tmp_path / "record.jsonl"))
    samples = json.loads((tmp_path / "record.jsonl").read_text().splitlines()[0])["samples"]
    assert f"{len(samples)} samples, 1 steps per epoch" in result.stderr and "3 (3.00 epochs)" in result.stderr, result.stderr
    for line in harness.records(tmp_path / "record.jsonl"):
        assert sorted(line["samples"]) == sorted(samples) == sorted(set(samples))


def test_epochs_are_samples_that_were_trained(job):
    """batch 300 of 952 windows: 3.173 steps an epoch."""
    result, _ = job("run", train={"steps": 4}, batch={"global": 300})
    good(result)
    samples = int(re.search(r"(\d+) samples, ([0-9.]+) steps per epoch", result.stderr)[1])
    assert f"4 ({4 * 300 / samples:.2f} epochs)" in result.stderr

"""The moving average of the weights (optim.ema_decay): what it is, when it moves, and that it is what is evaluated, kept, handed over and exported.

That it has the same bits in every stage and world size is shown in test_zero.py.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import harness
from test_stages import PATCHWORK

DECAY = 0.8


@pytest.fixture
def job(tmp_path, small_jobs):
    """Runs a small job of language_model on two ranks, with a checkpoint after every step."""

    def launch(name, fault=None, base=None, **sections):
        config = harness.merged(base or small_jobs["language_model"], optim={"ema_decay": DECAY}, checkpoint={"every": 1, "keep_last": 100}, run={"dir": str(tmp_path / name)})
        path = harness.write_config(tmp_path / f"{name}.json", harness.merged(config, **sections))
        result = harness.run("launch", "--nproc", 2, "--config", path, program=harness.kind(config).program, **({"TRAINYARD_TEST_FAULT": fault} if fault else {}))
        assert result.returncode == 0 or fault, result.stderr
        return result

    return launch


def weights(directory, step, kind):
    """Of a checkpoint: the tensors whose keys begin so, by name."""
    folder = directory / "checkpoints" / f"step-{step:08d}"
    files = {file.name: load_file(file) for file in folder.glob("*.safetensors")}
    tensors = json.loads((folder / "manifest.json").read_text())["tensors"]
    return {
        key.removeprefix(kind): np.concatenate([files[s["file"]][s["key"]] for s in tensor["slices"]]).reshape(tensor["shape"])
        for key, tensor in tensors.items()
        if key.startswith(kind)
    }


def same(some, others):
    return set(some) <= set(others) and all(some[name].tobytes() == others[name].tobytes() for name in some)


def evaluation(tmp_path, name, path, **sections):
    config = json.loads((tmp_path / f"{name}.json").read_text())
    config = harness.write_config(tmp_path / "evaluated.json", harness.merged(config, **sections))
    result = harness.run("eval", "--config", config, "--checkpoint", path)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout[result.stdout.index("\n{") :])["metrics"]


class Weights(torch.nn.Module):
    """Parameters without a forward: what AveragedModel looks at."""

    def __init__(self, values):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.from_numpy(values[name].copy()) for name in sorted(values)])


def test_the_average_is_that_of_pytorch(tmp_path, job):
    """AveragedModel, which copies what it sees first: here the weights that the run starts with, from a run whose rate is 0."""
    job("start", optim={"lr": 0}, train={"steps": 1})
    job("run", optim={"lr": 1e-2}, train={"steps": 10})
    start = weights(tmp_path / "start", 1, "model.")
    average = AveragedModel(Weights(start), multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    average.update_parameters(Weights(start))
    for step in range(1, 11):
        average.update_parameters(Weights(weights(tmp_path / "run", step, "model.")))
        ours = weights(tmp_path / "run", step, "ema.")
        for name, theirs in zip(sorted(start), average.module.all):
            # A rounding of each of both a step, one of which may be contracted into a multiply-add.
            assert np.abs(ours[name] - theirs.detach().numpy()).max() <= 2 * step * 6e-8 * max(1, np.abs(ours[name]).max()), (step, name)
    assert not same(weights(tmp_path / "run", 10, "model."), weights(tmp_path / "run", 10, "ema."))


def test_training_does_not_see_the_average(tmp_path, job):
    job("with", train={"eval_every": 2})
    job("without", train={"eval_every": 2}, optim={"ema_decay": None})
    for kind in ("model.", "adamw."):
        assert same(weights(tmp_path / "with", 10, kind), weights(tmp_path / "without", 10, kind))
    assert not weights(tmp_path / "without", 10, "ema.")


def test_the_average_is_evaluated_kept_and_exported(tmp_path, job):
    job("run", optim={"lr": 1e-2}, train={"eval_every": 3}, checkpoint={"keep_best": "test/loss"})
    run = tmp_path / "run"
    step = run / "checkpoints" / "step-00000010"
    averages = weights(run, 10, "ema.")
    exported = load_file(run / "export" / "model.safetensors")
    assert same(averages, exported) and len(averages) > 10
    best = json.loads((run / "best" / "best.json").read_text())
    assert same(weights(run, best["step"], "ema."), load_file(run / "best" / "model.safetensors"))
    out = tmp_path / "out.safetensors"
    assert harness.run("checkpoint", "export", step, "--out", out).returncode == 0
    assert out.read_bytes() == (run / "export" / "model.safetensors").read_bytes()
    final = json.loads((run / "evaluation.json").read_text())["metrics"]
    for path, sections in ((step, {}), (step, {"optim": {"ema_decay": None}}), (out, {})):
        assert evaluation(tmp_path, "run", path, **sections) == final, (path, sections)
    job("plain", optim={"lr": 1e-2, "ema_decay": None}, train={"eval_every": 3})
    assert json.loads((tmp_path / "plain" / "evaluation.json").read_text())["metrics"] != final


def test_a_step_that_is_skipped_moves_no_average(tmp_path, job):
    job("run", fault="nonfinite:1:5", faults={"nonfinite": "skip"}, optim={"lr": 1e-2})
    run = tmp_path / "run"
    assert same(weights(run, 5, "ema."), weights(run, 6, "ema."))
    assert not same(weights(run, 4, "ema."), weights(run, 5, "ema.")) and not same(weights(run, 6, "ema."), weights(run, 7, "ema."))


def test_a_stop_within_an_evaluation_saves_what_is_trained(tmp_path, job):
    """The evaluation has the averages in the weights' place at that moment; what goes on is as if nothing had happened."""
    sections = {"optim": {"lr": 1e-2}, "train": {"eval_every": 4}, "checkpoint": {"every": 0}}
    job("whole", **sections)
    config = harness.write_config(tmp_path / "stopped.json", harness.merged(json.loads((tmp_path / "whole.json").read_text()), run={"dir": str(tmp_path / "stopped")}))
    stopped = harness.start("launch", "--nproc", 2, "--config", config, TRAINYARD_TEST_FAULT="slow_evaluation:0:0", TRAINYARD_PROGRESS="lines")
    output = ""
    while "evaluation running for" not in output:
        line = stopped.stdout.readline()
        assert line, output
        output += line
    stopped.terminate()
    output += stopped.communicate(timeout=60)[0]
    assert stopped.returncode == 75, output
    assert json.loads((tmp_path / "stopped/checkpoints/step-00000004/manifest.json").read_text())["evaluation_pending"] is True
    assert harness.run("launch", "--nproc", 2, "--config", config).returncode == 0
    for kind in ("model.", "adamw.", "ema."):
        assert same(weights(tmp_path / "stopped", 10, kind), weights(tmp_path / "whole", 10, kind))
    assert (tmp_path / "stopped/log.jsonl").read_text().count('"test/loss"') == 3


def test_it_may_be_switched_on_and_off_when_a_run_goes_on(tmp_path, job):
    job("run", train={"steps": 4}, optim={"lr": 1e-2, "ema_decay": None})
    result = job("run", train={"steps": 6}, optim={"lr": 1e-2})
    assert "optim.ema_decay: the checkpoint holds no averages; they begin with its weights" in result.stderr
    run = tmp_path / "run"
    expected = {name: w.astype(np.float64) for name, w in weights(run, 4, "model.").items()}
    for step in (5, 6):
        for name, w in weights(run, step, "model.").items():
            expected[name] = DECAY * expected[name] + (1 - DECAY) * w
    for name, average in weights(run, 6, "ema.").items():
        assert np.abs(average - expected[name]).max() <= 4 * 6e-8 * max(1, np.abs(average).max()), name
    result = job("run", train={"steps": 8}, optim={"lr": 1e-2, "ema_decay": None})
    assert "optim.ema_decay" in result.stderr, "a field of the schedule: taken from the file, with a warning"
    assert not weights(run, 8, "ema.")
    assert same(weights(run, 8, "model."), load_file(run / "export" / "model.safetensors"))


@pytest.mark.parametrize("from_best", [False, True])
def test_a_stage_begins_with_what_the_one_before_was_evaluated_with(tmp_path, job, from_best):
    sections = {"task": {"from_best": True}, "optim": {"lr": 0.3}} if from_best else {}
    job("run", base=PATCHWORK, **sections)
    run = tmp_path / "run"
    last = PATCHWORK["task"]["first"]
    step = json.loads((run / "best" / "body" / "best.json").read_text())["step"] if from_best else last
    if from_best:
        assert step < last, "the best is the last: this proves nothing"
    handed, after = weights(run, step, "ema."), weights(run, last + 1, "model.")
    for name in ("hidden.weight", "rare.weight", "codes.weight"):  # which rest in the second stage
        assert handed[name].tobytes() == after[name].tobytes(), name
        assert handed[name].tobytes() != weights(run, last, "model.")[name].tobytes(), name
    assert "hidden.weight" not in weights(run, last + 1, "ema.") and "norm.weight" in weights(run, last + 1, "ema.")
    job("broken", base=PATCHWORK, fault=f"forward:1:{last + 1}", **sections)
    result = harness.run("launch", "--nproc", 2, "--config", tmp_path / "broken.json", program=harness.TEST_TASKS)
    assert result.returncode == 0, result.stderr
    for kind in ("model.", "adamw.", "ema."):
        assert same(weights(tmp_path / "broken", 20, kind), weights(run, 20, kind))


@pytest.mark.parametrize("decay", [-0.1, 1.1, "high"])
def test_a_decay_that_is_none_is_refused(tmp_path, small_jobs, decay):
    path = harness.write_config(tmp_path / "job.json", harness.merged(small_jobs["language_model"], optim={"ema_decay": decay}))
    result = harness.run("train", "--config", path)
    assert result.returncode == 64 and "optim.ema_decay" in result.stderr and "0 to 1" in result.stderr, result.stderr

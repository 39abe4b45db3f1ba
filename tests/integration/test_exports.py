"""What `checkpoint export` takes the place of, and weights that are no numbers: they are neither saved nor exported."""

import os
import subprocess

import pytest

import harness


@pytest.fixture(scope="module")
def run(tmp_path_factory, data):
    """A run of two ranks and its directory, with checkpoints of steps 5 and 10."""
    folder = tmp_path_factory.mktemp("exports")
    config = harness.merged(harness.SMALL, data={"path": str(data)}, checkpoint={"every": 5}, run={"dir": str(folder / "run")})
    result = harness.run("launch", "--nproc", 2, "--config", harness.write_config(folder / "job.json", config))
    assert result.returncode == 0, result.stderr
    return folder / "run"


def export(run, out):
    return harness.run("checkpoint", "export", run, "--out", out)


def test_an_export_takes_the_place_of_an_export(run, tmp_path):
    out = tmp_path / "model.safetensors"
    for _ in range(2):
        result = export(run, out)
        assert result.returncode == 0, result.stderr
    assert out.read_bytes() == (run / "export/model.safetensors").read_bytes()


def fifo(path, _):
    os.mkfifo(path)


def link(path, folder):
    (folder / "other").write_text("somebody's")
    path.symlink_to(folder / "other")


def text(path, _):
    path.write_text("{}")


@pytest.mark.parametrize("make, words", [(fifo, "no regular file"), (link, "no regular file"), (text, "no export")])
def test_an_export_takes_the_place_of_nothing_else(run, tmp_path, make, words):
    out = tmp_path / "out"
    make(out, tmp_path)
    before = out.lstat()
    result = export(run, out)
    assert result.returncode == 64 and str(out) in result.stderr and words in result.stderr, result.stderr
    assert (out.lstat().st_ino, out.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_an_export_damages_no_checkpoint(run):
    step = run / "checkpoints/step-00000010"
    for name in ("rank-00000-of-00002.safetensors", "another.safetensors"):
        result = export(run, step / name)
        assert result.returncode == 64 and "lies in a checkpoint" in result.stderr, result.stderr
    assert harness.run("checkpoint", "verify", run).returncode == 0


@pytest.mark.parametrize("ranks, stage", [(1, "ddp"), (2, "zero3")])
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_weights_that_are_no_numbers_are_not_saved(tmp_path, data, ranks, stage, policy):
    """A rate that nobody means makes them infinite in one step, of a loss that was finite; what was saved before stays."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, parallel={"stage": stage}, faults={"nonfinite": policy})
    path = harness.write_config(tmp_path / "job.json", config)

    def launch(*sets):
        return harness.run("launch", "--nproc", ranks, "--config", path, *(word for value in sets for word in ("--set", value)))

    assert launch("train.steps=10").returncode == 0
    exported = (tmp_path / "run/export/model.safetensors").read_bytes()
    result = launch("train.steps=11", "optim.lr=1e308", "checkpoint.keep_last=1")
    assert result.returncode == 72, result.stderr
    assert "step-00000011 is not saved" in result.stderr and "is not finite after its last update" in result.stderr, result.stderr
    assert max((tmp_path / "run/checkpoints").glob("step-????????")).name == "step-00000010"
    assert (tmp_path / "run/export/model.safetensors").read_bytes() == exported
    again = launch("train.steps=12")
    assert again.returncode == 0 and "step-00000010" in again.stderr, again.stderr


def test_an_evaluation_that_nobody_can_read_has_failed(run):
    with open("/dev/full", "w") as full:
        result = subprocess.run([harness.BIN, "eval", "--config", run.parent / "job.json", "--checkpoint", run], stdout=full, stderr=subprocess.PIPE, text=True, env=harness.environment())
    assert result.returncode == 74 and "the output cannot be written" in result.stderr, result.stderr

"""The whole trainer on a device whose memory the host cannot touch (tests/device): whatever does, ends it by a signal.

On a machine with a GPU the same on that, with all ranks of a world sharing it:
    SHARED_GPU_OF=build/release/lib/trainyard/libtrainyard_cuda.so TRAINYARD_FAR_PLUGIN=build/release/lib/libshared_gpu_plugin.so
"""

import json
import os
import pathlib
import re
import shutil

import pytest
from safetensors.numpy import load_file

import harness

PLUGIN = os.environ.get("TRAINYARD_FAR_PLUGIN", "build/release/lib/libfar_plugin.so")


@pytest.fixture(autouse=True)
def gpus_are_seen(monkeypatch):
    everywhere = harness.environment
    monkeypatch.setattr(harness, "environment", lambda **extra: everywhere(**{"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"), **extra}))


@pytest.fixture(scope="module")
def on_device(tmp_path_factory):
    """A task's program beside the plug-in, in the place where it looks for CUDA's."""
    root = tmp_path_factory.mktemp("prefix")
    (root / "bin").mkdir()
    (root / "lib" / "trainyard").mkdir(parents=True)
    shutil.copy(PLUGIN, root / "lib" / "trainyard" / "libtrainyard_cuda.so")

    def of(program):
        copy = root / "bin" / pathlib.Path(program).name
        if not copy.exists():
            shutil.copy(program, copy)
        return copy

    return of


# A GPU has no deterministic pooling and interpolation of volumes, which the other tasks say.
DETERMINISTIC = ("algorithm_distillation", "language_model")


def launch(tmp_path, job, name, program, world=1, device="cpu", **sections):
    sections = {"precision": {"compute": "fp32"}, **sections}  # auto is bf16 on a GPU
    config = harness.merged(job, run={"dir": str(tmp_path / name), "deterministic": device == "cpu" or job["task"]["name"] in DETERMINISTIC}, parallel={"device": device}, **sections)
    path = harness.write_config(tmp_path / f"{name}.json", config)
    record = tmp_path / f"{name}.jsonl"
    result = harness.run("launch", "--nproc", world, "--config", path, "--record", record, program=program, timeout=300)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return harness.records(record), result.stdout + result.stderr


WAYS = [
    pytest.param(1, {"stage": "ddp"}, id="alone"),
    pytest.param(2, {"stage": "zero2", "offload": "optimizer"}, id="offloaded"),
    pytest.param(2, {"stage": "zero3", "reduce": "every"}, id="zero3"),
]


# A step's loss: the device's operations round otherwise than the host's kernels, and Adam's first steps are as long for a
# small gradient as for a large one, so that roundings grow.
@pytest.mark.parametrize("world, parallel", WAYS)
@pytest.mark.parametrize("task", harness.every_task(quick="language_model"))
def test_a_device_trains_as_the_host_does(tmp_path, small_jobs, on_device, task, world, parallel):
    program = harness.kind(small_jobs[task]).program
    job = harness.merged(small_jobs[task], train={"steps": 6}, optim={"lr": 1e-4, "ema_decay": 0.9}, parallel=parallel)
    expected, _ = launch(tmp_path, job, "host", program, world)
    lines, said = launch(tmp_path, job, "far", on_device(program), world, device="cuda")
    assert [line["samples"] for line in lines] == [line["samples"] for line in expected]
    for mine, host in zip(lines, expected):
        assert mine["loss"] == pytest.approx(host["loss"], rel=1e-4), mine["step"]
        assert mine["grad_norm"] == pytest.approx(host["grad_norm"], rel=1e-3), mine["step"]
    ours, theirs = (load_file(tmp_path / name / "export" / "model.safetensors") for name in ("far", "host"))
    assert ours.keys() == theirs.keys()
    # Six steps of at most lr each, in either direction where a gradient is a rounding.
    assert all(abs(ours[k] - theirs[k]).max() < 12 * 1e-4 + 1e-4 * abs(theirs[k]).max() for k in theirs)


def test_a_checkpoint_goes_from_one_to_the_other(tmp_path, small_jobs, on_device):
    job = harness.merged(small_jobs["language_model"], train={"steps": 6}, optim={"lr": 1e-4}, checkpoint={"every": 3})
    expected, _ = launch(tmp_path, job, "whole", harness.BIN)
    for name, first, then in (("to", "cpu", "cuda"), ("back", "cuda", "cpu")):
        programs = {"cpu": harness.BIN, "cuda": on_device(harness.BIN)}
        launch(tmp_path, harness.merged(job, train={"steps": 3}), name, programs[first], device=first)
        lines, said = launch(tmp_path, job, name, programs[then], device=then)
        assert f"parallel.device {first} -> {then}" in said
        assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected], rel=1e-4)


def test_the_same_bits_in_every_stage(tmp_path, small_jobs, on_device):
    program = on_device(harness.BIN)
    job = harness.merged(small_jobs["language_model"], train={"steps": 4}, model={"dropout": 0.1})
    runs = []
    # The host's AdamW rounds otherwise than a GPU's.
    offloaded = [] if "SHARED_GPU_OF" in os.environ else [("zero1", {"offload": "optimizer"})]
    for precision in ("bf16", "fp16"):
        for stage, more in (("ddp", {}), ("zero2", {}), ("zero3", {"reduce": "last"}), *offloaded):
            name = f"{stage}-{precision}"
            merged = harness.merged(job, parallel={"stage": stage, **more})
            lines, _ = launch(tmp_path, merged, name, program, 2, device="cuda", precision={"compute": precision})
            runs.append((lines, load_file(tmp_path / name / "export" / "model.safetensors")))
        for other, weights in runs[1:]:
            assert other == runs[0][0], precision
            assert all(weights[k].tobytes() == runs[0][1][k].tobytes() for k in weights), precision
        runs.clear()


def test_it_is_evaluated_and_refused_like_another(tmp_path, small_jobs, on_device):
    job = harness.merged(small_jobs["language_model"], train={"steps": 2})
    program = on_device(harness.BIN)
    launch(tmp_path, job, "far", program, device="cuda")
    seen = [harness.run("eval", "--config", tmp_path / "far.json", "--set", f"parallel.device={device}", "--checkpoint", tmp_path / "far" / "checkpoints", program=program) for device in ("cuda", "cpu")]
    assert all(result.returncode == 0 for result in seen), seen
    losses = [json.loads(result.stdout[result.stdout.index("{") :])["metrics"]["test/loss"] for result in seen]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4), seen
    path = harness.write_config(tmp_path / "refused.json", harness.merged(job, parallel={"device": "cuda"}, precision={"reduce": "bf16"}, run={"dir": str(tmp_path / "no")}))
    result = harness.run("train", "--config", path, program=program)
    assert result.returncode == 64 and "precision.reduce: bf16" in result.stderr
    result = harness.run("launch", "--nproc", 9, "--config", tmp_path / "far.json", "--set", "batch.global=9", "--set", f"run.dir={tmp_path / 'nine'}", program=program)
    assert result.returncode == 64 and "parallel.device: cuda: there are eight " in result.stderr, result.stderr
    if "sees no device" not in harness.run("--version").stdout and "is not there" not in harness.run("--version").stdout and "does not open" not in harness.run("--version").stdout:
        return  # a machine with a GPU
    path = harness.write_config(tmp_path / "none.json", harness.merged(job, parallel={"device": "cuda"}, run={"dir": str(tmp_path / "no")}))
    result = harness.run("train", "--config", path)
    assert result.returncode == 64 and "parallel.device: cuda: " in result.stderr, "this machine has none of CUDA's"

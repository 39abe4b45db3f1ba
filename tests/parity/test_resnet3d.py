"""mace_survival's network and volumes against MONAI: its ResNet with our weights, its transforms on our files."""

import csv
import gzip
import json
import pathlib
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

import harness  # noqa: E402

VOLUME = [16, 15, 8]


def volume(path):
    """What MONAI's LoadImage, ScaleIntensityRange and Resize make of a file (read here: little-endian int16, x fastest)."""
    from monai.transforms import Resize, ScaleIntensityRange

    content = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(content, "<i2", 3, 42)
    assert np.frombuffer(content, "<i2", 1, 70)[0] == 4
    voxels = np.frombuffer(content, "<i2", int(np.prod(shape)), 352).reshape(shape, order="F").astype(np.float32)
    scaled = ScaleIntensityRange(-1000, 1000, 0, 1, clip=True)(torch.from_numpy(voxels.copy())[None])
    return Resize(VOLUME, mode="area")(scaled).as_tensor()


@pytest.mark.parametrize("layers, width", [(18, 64), pytest.param(10, 16, marks=harness.thorough), pytest.param(34, 8, marks=harness.thorough), pytest.param(50, 8, marks=harness.thorough)])
def test_forward_is_monais(tmp_path, layers, width):
    """After two steps, so that the running statistics are not those of the start. 1e-5 of the largest risk: float32, sums in another order."""
    from monai.networks.nets import resnet

    data = tmp_path / "data"
    assert harness.run("synth", "mace_survival", "--size", "tiny", "--out", data).returncode == 0
    config = {
        "task": {"name": "mace_survival"},
        "model": {"resnet": f"resnet{layers}", "width": width},
        "data": {"path": str(data), "volume": VOLUME},
        "batch": {"global": 8},
        "train": {"steps": 2},
        "run": {"dir": str(tmp_path / "run")},
    }
    result = harness.run("launch", "--nproc", 1, "--config", harness.write_config(tmp_path / "config.json", config), timeout=240, OMP_NUM_THREADS=2)
    assert result.returncode == 0, result.stderr
    model = getattr(resnet, f"resnet{layers}")(spatial_dims=3, n_input_channels=1, num_classes=1, widen_factor=width / 64)
    weights = load_file(tmp_path / "run/export/model.safetensors")
    model.load_state_dict({name: value.to(torch.int64) if name.endswith("num_batches_tracked") else value for name, value in weights.items()}, strict=True)
    assert all(value.eq(2).all() for name, value in weights.items() if name.endswith("num_batches_tracked"))
    model.eval()
    rows = [row for row in csv.DictReader((data / "dataset.csv").open()) if row["Fold_1"] == "val"]
    with torch.no_grad():
        theirs = model(torch.stack([volume(data / row["NIFTI Path"]) for row in rows]))[:, 0].tolist()
    curves = json.loads((tmp_path / "run/evaluation.json").read_text())["curves"]
    assert curves["Val/Risk"]["y"] == pytest.approx(theirs, abs=1e-5 * max(map(abs, theirs)))
    lines = map(json.loads, (tmp_path / "run/log.jsonl").read_text().splitlines())
    (histogram,) = (line for line in lines if line.get("histogram") == "Val/Risk")
    assert sum(histogram["counts"]) == histogram["count"] == len(theirs)
    assert [histogram["min"], histogram["max"]] == pytest.approx([min(theirs), max(theirs)], abs=1e-5 * max(map(abs, theirs)))


def test_initialisation_is_monais(tmp_path):
    """The deviation of every tensor within five standard errors of MONAI's rule; norms and heads' biases exactly."""
    from monai.networks.nets import resnet

    data = tmp_path / "data"
    assert harness.run("synth", "mace_survival", "--size", "tiny", "--subjects", "20", "--out", data).returncode == 0
    config = {
        "task": {"name": "mace_survival"},
        "model": {"resnet": "resnet10", "width": 16},
        "data": {"path": str(data), "volume": [8, 8, 4]},
        "batch": {"global": 4},
        "train": {"steps": 1},
        "optim": {"lr": 0},
        "run": {"dir": str(tmp_path / "run")},
    }
    result = harness.run("launch", "--nproc", 1, "--config", harness.write_config(tmp_path / "config.json", config))
    assert result.returncode == 0, result.stderr
    ours = load_file(tmp_path / "run/export/model.safetensors")
    torch.manual_seed(3)
    theirs = resnet.resnet10(spatial_dims=3, n_input_channels=1, num_classes=1, widen_factor=0.25).state_dict()
    assert list(sorted(ours)) == list(sorted(theirs))
    for name, value in theirs.items():
        if "running" in name or "num_batches" in name:
            continue
        mine = ours[name]
        assert mine.shape == value.shape
        if value.numel() < 64 or value.std() == 0:
            assert mine.std(correction=0) == 0 and torch.equal(mine, value) or value.std(correction=0) > 0, name
            continue
        # Of two samples of n draws each; a deviation scatters by at most s / sqrt(n) for normal and uniform ones.
        assert mine.std() == pytest.approx(value.std().item(), rel=5 * (2 / value.numel()) ** 0.5), name
        assert abs(mine.mean() - value.mean()) < 5 * value.std() * (2 / value.numel()) ** 0.5, name
    # A state_dict of MONAI's, as it is with its counts of whole numbers, is what a run may start from.
    save_file(theirs, tmp_path / "theirs.safetensors")
    config |= {"init": {"from": str(tmp_path / "theirs.safetensors")}, "run": {"dir": str(tmp_path / "from")}}
    result = harness.run("launch", "--nproc", 1, "--config", harness.write_config(tmp_path / "from.json", config))
    assert result.returncode == 0, result.stderr
    taken = load_file(tmp_path / "from/export/model.safetensors")
    assert all(torch.equal(taken[name], value) for name, value in theirs.items() if "running" not in name and "num_batches" not in name)

"""The cascade against a plain PyTorch implementation (cascade_reference.py): our initial weights, patients and noise, their losses and gradients."""

import gzip
import json
import pathlib
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

import cascade_reference as reference  # noqa: E402
import harness  # noqa: E402

SIZES, GRID, DIM, WIDTH, SEED = (12, 24), 6, 32, 32, 42
PHYSICS = {"stage1": 0.3, "stage2": 0.4}


def read_nifti(path):
    """int16 as `trainyard synth` writes it: values (X, Y, Z) and voxel sizes."""
    content = gzip.decompress(path.read_bytes())
    dims = np.frombuffer(content, "<i2", 8, 40)
    assert dims[0] == 3 and np.frombuffer(content, "<i2", 1, 70)[0] == 4
    offset = int(np.frombuffer(content, "<f4", 1, 108)[0])
    values = np.frombuffer(content, "<i2", int(np.prod(dims[1:4])), offset).reshape(dims[1:4], order="F")
    return values, np.frombuffer(content, "<f4", 8, 76)[1:4]


def patient(folder):
    values, spacing = read_nifti(folder / f"{folder.name}.nii.gz")
    ct = (torch.tensor(np.ascontiguousarray(values), dtype=torch.float32).clamp(-1000, 3000) + 1000) / 2000 - 1
    images = [torch.tensor(np.array(Image.open(folder / f"{folder.name}_{view}_drr.png")), dtype=torch.float32) / 255 * 2 - 1 for view in ("pa", "lat")]
    return ct, torch.stack(images).unsqueeze(1), torch.tensor([values.shape[0] * spacing[0], values.shape[2] * spacing[2]])


def resized(ct, size):
    return torch.nn.functional.interpolate(ct.view(1, 1, *ct.shape[-3:]), (size,) * 3, mode="trilinear", align_corners=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("thorax")
    result = harness.run("synth", "hybrid_vit_cascade", "--size", "tiny", "--patients", 6, "--out", path)
    assert result.returncode == 0, result.stderr
    return path


def configuration(tmp_path, data, name, **sections):
    config = harness.merged(
        harness.SMALL_CASCADE,
        data={"path": str(data)},
        model={"stage1": {"depth": 2}, "stage2": {"depth": 1}},
        batch={"global": 3, "micro": 2},
        train={"steps": 6},
        optim={"lr": 1e-3, "clip": 0, "betas": [0.9, 0.99]},
        checkpoint={"every": 1, "keep_last": 100},
        run={"dir": str(tmp_path / name), "seed": SEED},
    )
    return harness.merged(config, **sections)


def launch(tmp_path, name, config):
    path = harness.write_config(tmp_path / f"{name}.json", config)
    result = harness.run("launch", "--nproc", 1, "--config", path, "--record", tmp_path / name / "record.jsonl", timeout=300)
    assert result.returncode == 0, result.stderr
    return harness.records(tmp_path / name / "record.jsonl")


def saved(directory, step, prefix):
    folder = directory / "checkpoints" / f"step-{step:08d}"
    tensors = json.loads((folder / "manifest.json").read_text())["tensors"]
    files = {path.name: load_file(path) for path in folder.glob("*.safetensors")}
    return {
        key.removeprefix(prefix): torch.tensor(np.concatenate([files[s["file"]][s["key"]] for s in tensor["slices"]]).reshape(tensor["shape"]))
        for key, tensor in tensors.items()
        if key.startswith(prefix)
    }


def test_losses_and_gradients_of_both_stages(tmp_path, data):
    """Each step from our weights before it: the loss within 1e-5 (fp32 sums in another order); the gradient of a stage's first step, which is its first moment over
    1 - beta1, within 1e-5 of its largest value."""
    config = configuration(tmp_path, data, "run")
    # AdaLN starts at zero, where half of a block has no effect and no gradient: other weights, from a few wild steps.
    launch(tmp_path, "wild", harness.merged(config, optim={"lr": 3e-2}, run={"dir": str(tmp_path / "wild")}))
    start = tmp_path / "wild" / "export" / "model.safetensors"
    config = harness.merged(config, init={"from": str(start)})
    lines = launch(tmp_path, "run", config)
    model = reference.Cascade([(12, WIDTH, 2, 2), (24, WIDTH, 1, 2)], GRID, DIM)
    folders = sorted(folder for folder in data.iterdir() if folder.is_dir())
    train = [i for i in range(6) if i not in split_away(6, 1)]
    for step, line in enumerate(lines):
        stage = "stage1" if step < 3 else "stage2"
        weights = {k: torch.tensor(v) for k, v in load_file(start).items()} if step == 0 else saved(tmp_path / "run", step, "model.")
        model.load_state_dict(weights, strict=True)
        model.zero_grad()
        diffusion, physics = losses(model, stage, folders, train, line["samples"], 3 * step)
        loss = (diffusion + PHYSICS[stage] * physics).mean()
        assert line["loss"] == pytest.approx(loss.item(), rel=1e-5), f"step {step + 1}"
        if step not in (0, 3):
            continue
        loss.backward()
        moments = saved(tmp_path / "run", step + 1, "adamw.exp_avg.")
        named = dict(model.named_parameters())
        assert set(moments) == {name for name in named if trained(name, stage)}
        for name, moment in moments.items():
            expected = named[name].grad
            assert expected is not None and expected.abs().max() > 0, name
            # Of a bias in front of a norm of single channels everything cancels: what is left are roundings of what its
            # layer's gradients are made of, on one machine more of them than on another.
            layer = name.rpartition(".")[0] + "."
            largest = max(of.grad.abs().max().item() for other, of in named.items() if other.startswith(layer) and of.grad is not None)
            close = 1e-5 * (largest if name.endswith(".bias") else expected.abs().max().item()) + 1e-8
            assert (moment / (1 - 0.9) - expected).abs().max().item() < 3 * close, name


def trained(name, stage):
    return name.startswith((f"stages.{stage}.", f"prev_stage_projectors.{stage}.")) or (stage == "stage1" and name.startswith(("xray_encoder.", "time_embed.")))


def split_away(patients, held):
    """Who is not in the training part: the first ones of the keyed permutation (trainer/data/sample_stream.h)."""
    key, half = reference.hash_key(42, reference.name_key("split")), 1
    while (1 << (2 * half)) < patients:
        half += 1

    def philox(counter):
        k0, k1, c = key & 0xFFFFFFFF, key >> 32, counter
        for _ in range(10):
            p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
            k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        return c[0]

    def permuted(x):
        while True:
            left, right = x >> half, x & ((1 << half) - 1)
            for i in range(4):
                left, right = right, left ^ (philox([right, i, 0, 0]) & ((1 << half) - 1))
            x = left << half | right
            if x < patients:
                return x

    return [permuted(i) for i in range(held)]


def losses(model, stage, folders, train, ids, position):
    parts = []
    size = SIZES[0] if stage == "stage1" else SIZES[1]
    for i, sample in enumerate(ids):
        epoch = (position + i) // len(train)
        key = reference.hash_key(SEED, reference.name_key("sample"), reference.hash_key(epoch, sample))
        ct, xrays, extent = patient(folders[train[sample]])
        volume, previous = resized(ct, size), None
        if stage == "stage2":
            previous = resized(resized(ct, SIZES[0]), size) + 0.05 * reference.normal((1, size, size, size), key, "previous")
        t = (reference.first_u64(key, "timestep") * 1000) >> 64
        parts.append((volume, previous, xrays.unsqueeze(0), extent.unsqueeze(0), reference.normal((1, size, size, size), key, "noise").unsqueeze(0), torch.tensor([t])))
    volume, previous, xrays, extent, noise, t = (torch.cat(x) if x[0] is not None else None for x in zip(*parts))
    return model.losses(stage, volume, previous, xrays, extent, noise, t)

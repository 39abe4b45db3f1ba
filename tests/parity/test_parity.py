"""Trainyard against PyTorch: our initial weights, our samples, PyTorch's model, optimizer and clip."""

import json
import math
import pathlib
import sys

import h5py
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

import harness  # noqa: E402
import reference  # noqa: E402

STEPS = 20
MODES = [("standard", "every_position"), ("standard", "last_position"), ("compressed", "last_position"), ("compressed", "every_position")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return harness.synth(tmp_path_factory.mktemp("data"))


def configuration(tmp_path, data, name, mode, loss, accumulation, **sections):
    context = 164 if mode == "compressed" else 20
    # Every prefix is a sequence of its own in PyTorch: few samples where a sample has 81 of them.
    share = accumulation * (1 if mode == "compressed" and loss == "every_position" else 2)
    config = harness.merged(
        harness.SMALL,
        task={"mode": mode, "loss": loss},
        model={"context": context},
        data={"path": str(data)},
        batch={"global": 2 * share, "micro": share // accumulation},
        train={"steps": STEPS},
        optim={"lr": 1e-2, "clip": 0.5, "betas": [0.9, 0.99], "weight_decay": 0.1},
        schedule={"name": "cosine", "warmup": 3},
        checkpoint={"every": 1, "keep_last": 100},
        run={"dir": str(tmp_path / name)},
    )
    config = harness.merged(config, **sections)
    return config, harness.write_config(tmp_path / f"{name}.json", config)


def launch(path, tmp_path, name):
    result = harness.run("launch", "--nproc", 2, "--config", path, "--record", tmp_path / name / "record.jsonl", timeout=300)
    assert result.returncode == 0, result.stderr
    return harness.records(tmp_path / name / "record.jsonl")


def samples_of(config, data):
    truth = json.loads((data / "truth.json").read_text())
    file = h5py.File(next(data.glob("*.hdf5")))
    cache = {}

    def group(task):
        if task not in cache:
            cache[task] = {k: v[()] for k, v in file[str(task)].items()}
        return cache[task]

    return reference.Samples(group, truth["train"], truth["streams"], truth["transitions"], config["model"]["context"], config["task"]["mode"], config["task"]["loss"])


def build(config, weights):
    torch.manual_seed(0)
    model = reference.Distiller(config["model"]["context"], 16, 2, 2, compressed=config["task"]["mode"] == "compressed")
    missing = model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in weights.items()}, strict=True)
    assert not missing.missing_keys and not missing.unexpected_keys
    return model.train()


@pytest.fixture(scope="module")
def initial_weights(tmp_path_factory, data):
    """What a run with learning rate 0 exports: by the mode, which decides the model's shape."""
    found = {}

    def of(mode):
        if mode not in found:
            folder = tmp_path_factory.mktemp(f"init-{mode}")
            _, path = configuration(folder, data, "init", mode, "last_position", 1, optim={"lr": 0}, train={"steps": 1})
            launch(path, folder, "init")
            found[mode] = load_file(folder / "init" / "export" / "model.safetensors")
        return found[mode]

    return of


# PyTorch takes a quarter and half a minute for the two that are left to `make test-thorough`.
@pytest.mark.parametrize(
    "mode, loss, accumulation", [pytest.param(*way, steps, marks=harness.thorough if way == ("compressed", "every_position") else ()) for way in MODES for steps in (1, 3)]
)
def test_twenty_steps(tmp_path, data, initial_weights, mode, loss, accumulation):
    """Losses within 1e-5 for 20 steps: fp32 sums in another order, and errors that training amplifies."""
    config, path = configuration(tmp_path, data, "run", mode, loss, accumulation)
    model = build(config, initial_weights(mode))
    lines = launch(path, tmp_path, "run")
    samples, optim = samples_of(config, data), config["optim"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1, betas=optim["betas"], weight_decay=optim["weight_decay"], eps=1e-8)
    for step, line in enumerate(lines):
        lr = reference.cosine(step, optim["lr"], 3, STEPS)
        assert line["lr"] == pytest.approx(lr, rel=1e-7)  # the record's nine digits
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        value = reference.loss_of(model, [samples(i) for i in line["samples"]])
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), optim["clip"])
        assert line["loss"] == pytest.approx(value.item(), rel=1e-5), f"step {step + 1}"
        assert line["grad_norm"] == pytest.approx(norm.item(), rel=1e-4), f"step {step + 1}"
        optimizer.step()


@pytest.mark.parametrize("mode, loss", MODES)
@pytest.mark.parametrize("accumulation", [1, 3])
def test_gradients_at_step_one(tmp_path, data, initial_weights, mode, loss, accumulation):
    """Each tensor's gradient, read back from the first moment: exp_avg = (1 - beta1) g after one step."""
    config, path = configuration(tmp_path, data, "run", mode, loss, accumulation, optim={"clip": 0}, train={"steps": 1})
    model = build(config, initial_weights(mode))
    lines = launch(path, tmp_path, "run")
    reference.loss_of(model, [samples_of(config, data)(i) for i in lines[0]["samples"]]).backward()
    step = tmp_path / "run" / "checkpoints" / "step-00000001"
    manifest = json.loads((step / "manifest.json").read_text())
    files = {name: load_file(step / name) for name in manifest["files"]}
    for name, parameter in model.named_parameters():
        tensor = manifest["tensors"][f"adamw.exp_avg.{name}"]
        moment = np.concatenate([files[s["file"]][s["key"]] for s in tensor["slices"]]).reshape(tensor["shape"])
        ours, theirs = moment / (1 - 0.9), parameter.grad.numpy()
        scale = np.abs(theirs).max()
        # Keys' biases have no effect on a softmax: their gradient is rounding alone.
        floor = 1e-7 if scale < 1e-6 else 0
        assert np.abs(ours - theirs).max() <= 1e-5 * scale + floor, (name, np.abs(ours - theirs).max(), scale)


def test_bf16_stays_close_to_fp32(tmp_path, data, initial_weights):
    """The same recipe in bf16 (8 bits of mantissa) against PyTorch in fp32: within 1e-2 for 20 steps."""
    config, path = configuration(tmp_path, data, "run", "standard", "every_position", 1, precision={"compute": "bf16"}, optim={"lr": 1e-3})
    model = build(config, initial_weights("standard"))
    lines = launch(path, tmp_path, "run")
    samples, optim = samples_of(config, data), config["optim"]
    # bf16 parameters that are a copy of an fp32 master, which the optimizer updates.
    master = [p.detach().clone().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(master, lr=1, betas=optim["betas"], weight_decay=optim["weight_decay"], eps=1e-8)
    model = model.to(torch.bfloat16)
    for step, line in enumerate(lines):
        for parameter, source in zip(model.parameters(), master):
            parameter.data.copy_(source.data)
            parameter.grad = None
        optimizer.param_groups[0]["lr"] = reference.cosine(step, optim["lr"], 3, STEPS)
        examples = [e for i in line["samples"] for e in samples(i)]
        logits, _ = model([([r.to(torch.bfloat16) for r in rows], state) for rows, state, _, _ in examples])
        value = torch.nn.functional.cross_entropy(logits.float(), torch.tensor([e[2] for e in examples]))
        value.backward()
        for parameter, target in zip(model.parameters(), master):
            target.grad = parameter.grad.float() if parameter.grad is not None else None
        torch.nn.utils.clip_grad_norm_(master, optim["clip"])
        assert line["loss"] == pytest.approx(value.item(), rel=1e-2), f"step {step + 1}"
        optimizer.step()


@pytest.mark.parametrize("mode", ["standard", "compressed"])
def test_initialisation_follows_the_reference(tmp_path, data, mode):
    """Mean, deviation and range of each tensor, against many draws of PyTorch's own initialisation."""
    config = harness.merged(harness.SMALL, task={"mode": mode}, model={"context": 200, "dim": 64, "layers": 2, "heads": 4}, data={"path": str(data)}, batch={"global": 2},
                            optim={"lr": 0}, train={"steps": 1}, run={"dir": str(tmp_path / "init")})
    launch(harness.write_config(tmp_path / "init.json", config), tmp_path, "init")
    ours = load_file(tmp_path / "init" / "export" / "model.safetensors")
    torch.manual_seed(1)
    theirs = [{k: v.numpy() for k, v in reference.Distiller(200, 64, 2, 4, compressed=mode == "compressed").state_dict().items()} for _ in range(20)]
    assert set(ours) == set(theirs[0])
    for name, mine in ours.items():
        pool = np.stack([t[name] for t in theirs])
        if pool.std() == 0:
            assert (mine == pool[0]).all(), name
            continue
        deviation = pool.std()
        # Five standard errors of a mean and of a deviation (of a normal; a uniform's is smaller).
        assert abs(mine.mean() - pool.mean()) < 5 * deviation / math.sqrt(mine.size), name
        assert abs(mine.std() - deviation) < 5 * deviation / math.sqrt(2 * mine.size), name
        assert np.abs(mine).max() <= np.abs(pool).max() * 1.2, name

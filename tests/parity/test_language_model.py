"""The language model against transformers' GPT2LMHeadModel: our initial weights and windows, their model, PyTorch's optimizer."""

import json
import math
import os
import pathlib
import random
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched: the configuration is built here
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))

import harness  # noqa: E402
import reference  # noqa: E402

STEPS, CONTEXT, VOCAB, DATA_VOCAB = 20, 20, 61, 50


def corpus(path, windows, seed):
    rng = random.Random(seed)
    tokens = [min(rng.randrange(DATA_VOCAB), rng.randrange(DATA_VOCAB)) for _ in range(CONTEXT * windows + 1)]
    harness.write_tokens(path, tokens, DATA_VOCAB)
    return torch.tensor(tokens)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder, and the tokens of both parts."""
    path = tmp_path_factory.mktemp("tokens")
    return path, corpus(path / "a.tokens", 100, 1), corpus(path / "b.tokens", 12, 2)


def configuration(tmp_path, data, name, accumulation=1, **sections):
    config = harness.merged(
        harness.SMALL_LANGUAGE_MODEL,
        model={"vocab": VOCAB, "context": CONTEXT},
        data={"path": str(data[0]), "test_shard": "b.tokens"},
        batch={"global": 4 * accumulation, "micro": 2},
        train={"steps": STEPS},
        optim={"lr": 1e-2, "clip": 0.5, "betas": [0.9, 0.99], "weight_decay": 0.1},
        schedule={"name": "cosine", "warmup": 3},
        checkpoint={"every": 1, "keep_last": 100},
        run={"dir": str(tmp_path / name)},
    )
    return harness.merged(config, **sections)


def launch(tmp_path, name, config):
    path = harness.write_config(tmp_path / f"{name}.json", config)
    result = harness.run("launch", "--nproc", 2, "--config", path, "--record", tmp_path / name / "record.jsonl", timeout=300)
    assert result.returncode == 0, result.stderr
    return harness.records(tmp_path / name / "record.jsonl")


def build(weights):
    config = GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager")
    model = GPT2LMHeadModel(config)
    model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in weights.items()}, strict=True)
    assert model.lm_head.weight is model.transformer.wte.weight
    return model.train()


def initial(tmp_path, config):
    """What a run with learning rate 0 exports."""
    launch(tmp_path, "init", harness.merged(config, optim={"lr": 0}, train={"steps": 1}, run={"dir": str(tmp_path / "init")}))
    return load_file(tmp_path / "init" / "export" / "model.safetensors")


def loss_of(model, tokens, windows):
    """Mean over all targets of the batch, in float32."""
    batch = torch.stack([tokens[CONTEXT * i : CONTEXT * i + CONTEXT + 1] for i in windows])
    return torch.nn.functional.cross_entropy(model(batch[:, :-1]).logits.float().flatten(0, 1), batch[:, 1:].flatten())


def gradients(step):
    """Of each tensor at step one, read back from the first moment: exp_avg = (1 - beta1) g."""
    manifest = json.loads((step / "manifest.json").read_text())
    files = {name: load_file(step / name) for name in manifest["files"]}
    prefix = "adamw.exp_avg."
    return {
        key.removeprefix(prefix): np.concatenate([files[s["file"]][s["key"]] for s in tensor["slices"]]).reshape(tensor["shape"]) / (1 - 0.9)
        for key, tensor in manifest["tensors"].items()
        if key.startswith(prefix)
    }


def train_reference(model, config, tokens, lines, tolerance):
    """PyTorch's training of `model` beside our record. A bf16 model is a copy of a float32 master, which the optimizer updates."""
    optim = config["optim"]
    half = config.get("precision", {}).get("compute") == "bf16"
    master = [p.detach().clone().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(master, lr=1, betas=optim["betas"], weight_decay=optim["weight_decay"], eps=1e-8)
    model = model.to(torch.bfloat16) if half else model
    for step, line in enumerate(lines):
        optimizer.param_groups[0]["lr"] = reference.cosine(step, optim["lr"], 3, STEPS)
        for parameter, source in zip(model.parameters(), master, strict=True):
            parameter.data.copy_(source.data)
            parameter.grad = None
        value = loss_of(model, tokens, line["samples"])
        value.backward()
        for parameter, target in zip(model.parameters(), master, strict=True):
            target.grad = parameter.grad.float()
        norm = torch.nn.utils.clip_grad_norm_(master, optim["clip"])
        assert line["loss"] == pytest.approx(value.item(), rel=tolerance), f"step {step + 1}"
        assert line["grad_norm"] == pytest.approx(norm.item(), rel=10 * tolerance), f"step {step + 1}"
        optimizer.step()


@pytest.mark.parametrize("accumulation", [1, 3])
def test_twenty_steps(tmp_path, data, accumulation):
    """Losses within 1e-5 for 20 steps: fp32 sums in another order, and errors that training amplifies."""
    config = configuration(tmp_path, data, "run", accumulation)
    model = build(initial(tmp_path, config))
    train_reference(model, config, data[1], launch(tmp_path, "run", config), 1e-5)


def test_fp16_scales_as_grad_scaler_does(tmp_path, data):
    """Scale and skipped steps are torch.amp.GradScaler's, from a scale at which gradients overflow and one that grows into
    overflowing again; losses within 2e-3 for 30 steps: 11 bits of mantissa, rounded at other places."""
    steps, interval = 30, 4
    config = configuration(
        tmp_path, data, "run", 2, precision={"compute": "fp16", "loss_scale": 2.0**24, "loss_scale_interval": interval}, optim={"lr": 1e-3}, train={"steps": steps, "log_every": 1}
    )
    config["schedule"] = {"name": "constant"}
    model = build(initial(tmp_path, config))
    lines, optim = launch(tmp_path, "run", config), config["optim"]
    scales = [
        json.loads((tmp_path / "run" / "checkpoints" / f"step-{step:08}" / "manifest.json").read_text())["train"]["loss_scale"]
        for step in range(1, steps + 1)
    ]
    master = [p.detach().clone().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(master, lr=optim["lr"], betas=optim["betas"], weight_decay=optim["weight_decay"], eps=1e-8)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=interval)
    model = model.to(torch.float16)
    skipped = 0
    for step, line in enumerate(lines):
        for parameter, source in zip(model.parameters(), master, strict=True):
            parameter.data.copy_(source.data)
        optimizer.zero_grad()
        value, micro = 0, config["batch"]["micro"]
        for first in range(0, len(line["samples"]), micro):  # as large a gradient in float16, summed in float32
            part = loss_of(model, data[1], line["samples"][first : first + micro]) * micro / len(line["samples"])
            scaler.scale(part).backward()
            value += part.item()
            for parameter, target in zip(model.parameters(), master, strict=True):
                target.grad = parameter.grad.float() if target.grad is None else target.grad + parameter.grad.float()
                parameter.grad = None
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(master, optim["clip"])
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        assert line["loss"] == pytest.approx(value, rel=2e-3), f"step {step + 1}"
        assert float.fromhex(scales[step]["factor"]) == scaler.get_scale(), f"step {step + 1}"
        assert scales[step]["clean"] == scaler._get_growth_tracker(), f"step {step + 1}"  # what state_dict saves
        if scaler.get_scale() < before:
            skipped += 1
            assert not math.isfinite(float(line["grad_norm"])), f"step {step + 1}"
        else:
            assert line["grad_norm"] == pytest.approx(norm.item(), rel=2e-2), f"step {step + 1}"
    assert 3 <= skipped <= steps - 3 * interval, "what the test is for: overflows at the start, and after the scale has grown"


def test_bf16_stays_close_to_bf16(tmp_path, data):
    """8 bits of mantissa, rounded at other places (our norms keep float32 weights): within 1e-2 for 20 steps."""
    config = configuration(tmp_path, data, "run", precision={"compute": "bf16"}, optim={"lr": 1e-3})
    model = build(initial(tmp_path, config))
    train_reference(model, config, data[1], launch(tmp_path, "run", config), 1e-2)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_gradients_at_step_one(tmp_path, data, accumulation):
    """Each tensor's gradient within 1e-5 of its largest element. That of the tied embedding is, through the head, a sum of softmax
    minus target: other logits would show here."""
    config = configuration(tmp_path, data, "run", accumulation, optim={"clip": 0}, train={"steps": 1})
    model = build(initial(tmp_path, config))
    lines = launch(tmp_path, "run", config)
    loss_of(model, data[1], lines[0]["samples"]).backward()
    ours = gradients(tmp_path / "run" / "checkpoints" / "step-00000001")
    assert set(ours) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        theirs = parameter.grad.numpy()
        assert np.abs(ours[name] - theirs).max() <= 1e-5 * np.abs(theirs).max(), name


def test_bf16_gradients_at_step_one(tmp_path, data):
    """Against float32: each tensor's error has at most 1e-2 of the gradient's length, a few roundings of 2^-9 on the way."""
    config = configuration(tmp_path, data, "run", 3, optim={"clip": 0}, train={"steps": 1}, precision={"compute": "bf16"})
    weights = initial(tmp_path, config)
    model = build(weights)
    lines = launch(tmp_path, "run", config)
    loss_of(model, data[1], lines[0]["samples"]).backward()
    ours = gradients(tmp_path / "run" / "checkpoints" / "step-00000001")
    for name, parameter in model.named_parameters():
        theirs = parameter.grad.numpy()
        assert np.linalg.norm(ours[name] - theirs) <= 1e-2 * np.linalg.norm(theirs), name


def test_a_trained_export_is_gpt2(tmp_path, data):
    """strict=True, and the loss on held-out text that our own evaluation gives, so the same logits."""
    config = configuration(tmp_path, data, "run", optim={"lr": 1e-2})
    launch(tmp_path, "run", config)
    model = build(load_file(tmp_path / "run" / "export" / "model.safetensors")).eval()
    ours = json.loads((tmp_path / "run" / "evaluation.json").read_text())["metrics"]
    with torch.no_grad():
        theirs = loss_of(model, data[2], range(12)).item()
    assert ours["test/loss"] == pytest.approx(theirs, rel=1e-5)
    assert ours["test/perplexity"] == pytest.approx(np.exp(theirs), rel=1e-4)
    assert "test/above_entropy_rate" not in ours


def test_an_export_is_loaded_by_its_folder(tmp_path, data):
    """With the configuration beside it: from_pretrained gives the logits of a model that was configured by hand, and says that nothing is missing."""
    config = configuration(tmp_path, data, "run", model={"dropout": 0.1}, checkpoint={"keep_best": "test/loss"}, train={"eval_every": 5})
    launch(tmp_path, "run", config)
    tokens = data[2][:CONTEXT].unsqueeze(0).long()
    for folder in ("export", "best"):
        path = tmp_path / "run" / folder
        loaded, report = GPT2LMHeadModel.from_pretrained(path, output_loading_info=True, local_files_only=True)
        assert not any(report.values()), report
        dropouts = {getattr(loaded.config, f"{place}_pdrop") for place in ("embd", "attn", "resid")}
        assert dropouts == {0.1}
        expected = build(load_file(path / "model.safetensors")).eval()
        with torch.no_grad():
            # Both are transformers'; their attention may be computed in another order.
            torch.testing.assert_close(loaded.eval()(tokens).logits, expected(tokens).logits, rtol=1e-5, atol=1e-5)


def test_initialisation_is_transformers(tmp_path, data):
    """Mean and deviation of each tensor, against transformers' own initialisation of a wide model."""
    wide = {"dim": 64, "heads": 4, "layers": 6}
    config = configuration(tmp_path, data, "run", model=wide)
    ours = initial(tmp_path, config)
    torch.manual_seed(1)
    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=64, n_layer=6, n_head=4)).state_dict()
    assert set(ours) == set(theirs)
    for name, mine in ours.items():
        pool = theirs[name].numpy()
        assert mine.shape == pool.shape, name
        if pool.std() == 0:
            assert (mine == pool).all(), name
            continue
        # Six standard errors of the difference of two means, and of two deviations, of normal draws.
        assert abs(mine.mean() - pool.mean()) < 6 * pool.std() * np.sqrt(2 / mine.size), name
        assert abs(mine.std() - pool.std()) < 6 * pool.std() * np.sqrt(1 / mine.size), name

"""Each stage against PyTorch's own way to do the same: DistributedDataParallel, ZeroRedundancyOptimizer, fully_shard (FSDP2)."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from test_language_model import CONTEXT, VOCAB, configuration, data, initial, launch  # noqa: F401

RANKS = 2


def train_peer(folder, peer):
    script = pathlib.Path(__file__).parent / "distributed_peer.py"
    ranks = [
        subprocess.Popen(
            [sys.executable, script, peer, folder, str(rank), str(RANKS)],
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0] * RANKS, "\n".join(outputs)
    return json.loads((folder / "peer.json").read_text())


@pytest.mark.parametrize("stage, reduce", [("ddp", "last"), ("zero1", "last"), ("zero3", "every")])
def test_twenty_steps(tmp_path, data, stage, reduce):  # noqa: F811
    """Losses within 1e-5 for 20 steps, norms within 1e-4: fp32 sums in another order, and errors that training amplifies."""
    config = configuration(tmp_path, data, "run", parallel={"stage": stage, "reduce": reduce, "bucket_mib": 0.01})
    weights = initial(tmp_path, config)
    lines = launch(tmp_path, "run", config)
    torch.save({name: torch.from_numpy(value.copy()) for name, value in weights.items()}, tmp_path / "weights.pt")
    torch.save(data[1], tmp_path / "tokens.pt")
    model = {"vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": 16, "n_layer": 2, "n_head": 2, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "attn_implementation": "eager"}
    task = {"model": model, "context": CONTEXT, "optim": config["optim"], "warmup": config["schedule"]["warmup"], "samples": [line["samples"] for line in lines]}
    (tmp_path / "task.json").write_text(json.dumps(task))
    theirs = train_peer(tmp_path, stage)
    assert len(theirs) == len(lines) == 20
    for step, (line, peer) in enumerate(zip(lines, theirs, strict=True)):
        assert line["loss"] == pytest.approx(peer["loss"], rel=1e-5), f"step {step + 1}"
        assert line["grad_norm"] == pytest.approx(peer["grad_norm"], rel=1e-4), f"step {step + 1}"

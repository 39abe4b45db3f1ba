"""One rank of PyTorch's own distributed training of a GPT-2: DistributedDataParallel, with ZeroRedundancyOptimizer, or fully_shard (FSDP2).

usage: distributed_peer.py ddp|zero1|zero3 FOLDER RANK RANKS

FOLDER/task.json says what is trained, and the ranks meet in FOLDER/store: a port could be another program's by now. Rank 0 writes FOLDER/peer.json: the loss over the whole batch and the gradient's norm of each step.
"""

import json
import os
import pathlib
import sys

import reference
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel


def wrapped(peer, model, options):
    """The model as the peer trains it, its optimizer, and what gives the norm as a number."""
    if peer == "zero3":
        for block in model.transformer.h:
            fully_shard(block)
        fully_shard(model)
        return model, torch.optim.AdamW(model.parameters(), **options), lambda norm: norm.full_tensor().item()
    model = DistributedDataParallel(model)
    if peer == "zero1":
        return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, **options), torch.Tensor.item
    return model, torch.optim.AdamW(model.parameters(), **options), torch.Tensor.item


def main():
    peer, folder, rank, ranks = sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:])
    task = json.loads((folder / "task.json").read_text())
    dist.init_process_group("gloo", init_method=f"file://{folder.resolve()}/store", rank=rank, world_size=ranks)
    dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    model = GPT2LMHeadModel(GPT2Config(**task["model"])).train()
    model.load_state_dict(torch.load(folder / "weights.pt"), strict=True)
    optim = task["optim"]
    model, optimizer, number = wrapped(peer, model, {"lr": 1, "betas": optim["betas"], "weight_decay": optim["weight_decay"], "eps": 1e-8})
    tokens, context = torch.load(folder / "tokens.pt"), task["context"]
    results = []
    for step, samples in enumerate(task["samples"]):
        share = len(samples) // dist.get_world_size()
        mine = samples[dist.get_rank() * share : (dist.get_rank() + 1) * share]
        batch = torch.stack([tokens[context * i : context * i + context + 1] for i in mine])
        for group in optimizer.param_groups:
            group["lr"] = reference.cosine(step, optim["lr"], task["warmup"], len(task["samples"]))
        optimizer.zero_grad()
        # The ranks' means have the same number of targets, and the peers average gradients over ranks.
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), optim["clip"])
        optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        results.append({"loss": whole.item() / dist.get_world_size(), "grad_norm": number(norm)})
    if dist.get_rank() == 0:
        (folder / "peer.json").write_text(json.dumps(results))
    dist.barrier()
    # Everything is written. What PyTorch's threads do at the interpreter's end is not asked here: once in some hundred starts they abort it (2.11, "terminate called without an active exception").
    os._exit(0)


main()

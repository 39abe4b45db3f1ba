"""One rank of PyTorch's own way to share a training out, for stages.py: the models of peer_models.py that are written by hand.

usage: stage_peers.py ROW STAGE FOLDER RANK RANKS

    ddp    DistributedDataParallel (gradient_as_bucket_view, static_graph)
    zero1  the same, with ZeroRedundancyOptimizer (parameters_as_bucket_view)
    zero3  fully_shard (FSDP2) of each layer and of the whole

bf16 is autocast, for fully_shard its mixed precision with gradients in float32. Fused AdamW. Batches lie in memory. Reads a
number of steps per line from stdin; rank 0 answers with the seconds of a step. The ranks meet in FOLDER/store.
"""

import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from peer_models import Trainer
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

OPTIM = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.01, "fused": True}


def share_out(trainer, row, stage):
    """The model and the optimizer of `trainer` become those of the stage."""
    model = trainer.model
    if stage == "zero3":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if row["precision"] == "bf16" else MixedPrecisionPolicy()
        for layer in model.encoder if row["task"] == "algorithm_distillation" else model.blocks:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        trainer.autocast = False
    else:
        trainer.model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    if stage == "zero1":
        trainer.optimizer = ZeroRedundancyOptimizer(trainer.model.parameters(), optimizer_class=torch.optim.AdamW, parameters_as_bucket_view=True, **OPTIM)
    else:
        trainer.optimizer = torch.optim.AdamW(trainer.model.parameters(), **OPTIM)
    trainer.masters = list(trainer.model.parameters())


def main():
    row, stage, folder, rank, ranks = json.loads(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]), *map(int, sys.argv[4:])
    torch.set_num_threads(row["threads"])
    dist.init_process_group("gloo", init_method=f"file://{folder.resolve()}/store", rank=rank, world_size=ranks)
    dist.device_mesh.init_device_mesh("cpu", (ranks,))
    torch.manual_seed(0)
    trainer = Trainer(row, "hand")
    share_out(trainer, row, stage)
    torch.manual_seed(rank)
    for line in sys.stdin:
        steps = int(line)
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            trainer.step()
        if rank == 0:
            print((time.perf_counter() - begin) / steps, flush=True)


main()

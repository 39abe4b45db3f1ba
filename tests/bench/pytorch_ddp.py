"""The peer: the same model, batches and optimizer in PyTorch with DistributedDataParallel over Gloo.

Run by step_time.py, one process per rank. Fused AdamW, gradient_as_bucket_view, static_graph,
is_causal attention, batches in memory, one thread.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

CONTEXT, DIM, LAYERS, HEADS, ACTIONS = 200, 64, 4, 4, 5


class Model(nn.Module):
    """A window of 199 transitions and the query; the loss at the last position, as the guide trains."""

    def __init__(self):
        super().__init__()
        self.embed_context = nn.Linear(10, DIM)
        self.embed_query_state = nn.Embedding(81, DIM)
        self.token_type_embedding = nn.Parameter(torch.randn(DIM))
        self.pos_embedding = nn.Parameter(torch.randn(1, CONTEXT, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, 0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.pred_action = nn.Linear(DIM, ACTIONS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, features, state):
        x = self.embed_context(features) + self.token_type_embedding
        x = torch.cat([x, self.embed_query_state(state)[:, None]], 1) + self.pos_embedding
        y = self.encoder(x, mask=self.mask.to(x.dtype), is_causal=True)
        return self.pred_action(y[:, -1])


def main():
    precision, batch, steps, warm_up = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model(), gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01, fused=True)
    torch.manual_seed(rank)
    batches = [(torch.rand(batch, CONTEXT - 1, 10) * 8, torch.randint(0, 81, (batch,)), torch.randint(0, ACTIONS, (batch,))) for _ in range(8)]
    start = None
    for step in range(warm_up + steps):
        if step == warm_up:
            dist.barrier()
            start = time.perf_counter()
        features, state, target = batches[step % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            logits = model(features, state)
        loss = nn.functional.cross_entropy(logits.float(), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    if rank == 0:
        print(f"STEP_MS {(time.perf_counter() - start) / steps * 1e3:.3f}", flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


main()

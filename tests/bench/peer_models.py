"""The peers of pytorch_peers.py, one process each: the trainer's models as PyTorch's users write them.

    stock     the modules as they come: nn.TransformerEncoder, transformers' GPT2LMHeadModel
    hand      written for speed: fused attention, one product for queries, keys and values, the last layer cut to the
              queries, fused AdamW, gradients set to none
    compiled  torch.compile of hand

bf16 is autocast; hand16, and compiled16 of it, has bfloat16 parameters instead, with float32 masters for the optimizer as the
trainer has. Reads a number of steps per line from stdin, answers each with a line of JSON: seconds of wall and
processor time. Batches are made beforehand and lie in memory.
"""

import contextlib
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

ACTIONS, STATES, FEATURES = 5, 81, 10


class Stock(nn.Module):
    """Context rows, then queries, through one nn.TransformerEncoder with a mask."""

    def __init__(self, row):
        super().__init__()
        c, self.every = row["context"], row["loss"] == "every_position"
        self.embed_context, self.embed_state = nn.Linear(FEATURES, row["dim"]), nn.Embedding(STATES, row["dim"])
        self.kind, self.position = nn.Parameter(torch.randn(row["dim"]) * 0.02), nn.Parameter(torch.randn(c, row["dim"]) * 0.02)
        layer = nn.TransformerEncoderLayer(row["dim"], row["heads"], 4 * row["dim"], row["dropout"], activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, row["layers"], enable_nested_tensor=False)
        self.head = nn.Linear(row["dim"], ACTIONS)
        # What a row does not see. A query sees the context before it and itself, never another query.
        hidden = torch.ones(c - 1, c - 1).triu(1).bool()
        if self.every:
            before, others = torch.ones(c, c - 1).triu(0).bool(), ~torch.eye(c).bool()
            hidden = torch.cat([torch.cat([hidden, torch.ones(c - 1, c).bool()], 1), torch.cat([before, others], 1)])
        else:
            hidden = torch.ones(c, c).triu(1).bool()
        self.register_buffer("hidden", hidden, persistent=False)

    def embed(self, features, states):
        x = self.embed_context(features) + self.kind + self.position[:-1]
        q = self.embed_state(states) + (self.position if self.every else self.position[-1])
        return torch.cat([x, q], 1)

    def forward(self, features, states):
        y = self.encoder(self.embed(features, states), mask=self.hidden, is_causal=not self.every)
        return self.head(y[:, -states.shape[1] :])


class HandLayer(nn.Module):
    def __init__(self, row):
        super().__init__()
        d = row["dim"]
        self.heads, self.p, self.every = row["heads"], row["dropout"], row["loss"] == "every_position"
        self.qkv, self.out, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, q, k, v, **how):
        y = F.scaled_dot_product_attention(self.split(q), self.split(k), self.split(v), dropout_p=self.p, **how)
        return y.transpose(1, 2).flatten(2)

    def forward(self, x, queries, seen, last):
        context = x.shape[1] - queries
        if last:  # of the context only keys and values are used
            d, w, b = x.shape[2], self.qkv.weight, self.qkv.bias
            k, v = F.linear(x, w[d:], b[d:]).chunk(2, -1)
            x = x[:, context:]
            a = self.attend(F.linear(x, w[:d], b[:d]), k, v, attn_mask=seen if self.every else None)
        else:
            q, k, v = self.qkv(x).chunk(3, -1)
            if self.every:
                c = self.attend(q[:, :context], k[:, :context], v[:, :context], is_causal=True)
                a = torch.cat([c, self.attend(q[:, context:], k, v, attn_mask=seen)], 1)
            else:
                a = self.attend(q, k, v, is_causal=True)
        x = self.norm1(x + F.dropout(self.out(a), self.p))
        h = F.dropout(F.gelu(self.up(x)), self.p)
        return self.norm2(x + F.dropout(self.down(h), self.p))


class Hand(Stock):
    def __init__(self, row):
        super().__init__(row)
        self.encoder = nn.ModuleList(HandLayer(row) for _ in range(row["layers"]))
        c = row["context"]
        self.register_buffer("seen", ~self.hidden[c - 1 :] if self.every else None, persistent=False)

    def forward(self, features, states):
        x = self.embed(features, states)
        for i, layer in enumerate(self.encoder):
            x = layer(x, states.shape[1], self.seen, i + 1 == len(self.encoder))
        return self.head(x)


class Gpt2Block(nn.Module):
    def __init__(self, row):
        super().__init__()
        d = row["dim"]
        self.heads, self.p = row["heads"], row["dropout"]
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.out(a), self.p)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")), self.p)


class HandGpt2(nn.Module):
    def __init__(self, row):
        super().__init__()
        self.p = row["dropout"]
        self.tokens, self.positions = nn.Embedding(row["vocab"], row["dim"]), nn.Embedding(row["context"], row["dim"])
        self.blocks = nn.ModuleList(Gpt2Block(row) for _ in range(row["layers"]))
        self.norm = nn.LayerNorm(row["dim"])
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens):
        x = F.dropout(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]], self.p)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class StockGpt2(nn.Module):
    def __init__(self, row):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        p = row["dropout"]
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=row["vocab"], n_positions=row["context"], n_embd=row["dim"], n_layer=row["layers"], n_head=row["heads"],
                                                embd_pdrop=p, attn_pdrop=p, resid_pdrop=p, bos_token_id=0, eos_token_id=0))

    def forward(self, tokens):
        return self.model(tokens, use_cache=False).logits


def batch_of(row, dtype):
    b, c = row["batch"], row["context"]
    if row["task"] == "language_model":
        return (torch.randint(0, row["vocab"], (b, c)),), torch.randint(0, row["vocab"], (b * c,))
    queries = c if row["loss"] == "every_position" else 1
    return ((torch.rand(b, c - 1, FEATURES) * 8).to(dtype), torch.randint(0, STATES, (b, queries))), torch.randint(0, ACTIONS, (b * queries,))


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets)


def parts_of(row, peer, dtype):
    """The model, what makes a batch, and what makes a loss of the model's result and the batch's targets."""
    if row["task"] in ("mace_survival", "hybrid_vit_cascade"):
        from imaging_peer_models import KINDS  # MONAI takes seconds

        kind = KINDS[row["task"]]
        return kind(row, peer != "stock"), kind.batch, kind.loss
    kinds = {"algorithm_distillation": (Stock, Hand), "language_model": (StockGpt2, HandGpt2)}[row["task"]]
    return kinds[peer != "stock"](row), lambda row: batch_of(row, dtype), cross_entropy


class Trainer:
    """A step as the trainer makes it: loss, gradients, clip, AdamW."""

    def __init__(self, row, peer):
        self.low, self.autocast = peer.endswith("16"), row["precision"] == "bf16" and not peer.endswith("16")
        self.model, batch, self.criterion = parts_of(row, peer, torch.bfloat16 if self.low else torch.float32)
        self.device = row.get("device", "cpu")
        self.model.to(self.device)
        self.masters = list(self.model.parameters())
        if self.low:
            self.masters = [p.detach().clone().requires_grad_() for p in self.masters]
            self.model.bfloat16()
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01, fused=True)
        torch.manual_seed(1)
        self.batches = []
        for _ in range(8):
            inputs, targets = batch(row)
            self.batches.append((tuple(x.to(self.device) for x in inputs), targets if targets is None else targets.to(self.device)))
        self.forward = torch.compile(self.loss) if peer.startswith("compiled") else self.loss
        self.step_number = 0

    def loss(self, inputs, targets):
        with torch.autocast(self.device, dtype=torch.bfloat16) if self.autocast else contextlib.nullcontext():
            result = self.model(*inputs)
        return self.criterion(result, targets)

    def step(self):
        inputs, targets = self.batches[self.step_number % len(self.batches)]
        self.step_number += 1
        self.model.zero_grad(set_to_none=True)
        self.forward(inputs, targets).backward()
        if self.low:
            for master, p in zip(self.masters, self.model.parameters()):
                master.grad = p.grad.float()
        nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        if self.low:
            torch._foreach_copy_([p.detach() for p in self.model.parameters()], [m.detach() for m in self.masters])


def main():
    row, peer = json.loads(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(row["threads"])
    torch.manual_seed(0)
    trainer = Trainer(row, peer)
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            trainer.step()
        if trainer.device != "cpu":
            torch.cuda.synchronize()
        answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        if trainer.device != "cpu":
            answer["gpu_bytes"] = torch.cuda.max_memory_reserved()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

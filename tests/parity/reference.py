"""The reference model in PyTorch: torch.nn.TransformerEncoder, written from the published description.

Names are the state_dict's that Trainyard exports, so load_state_dict(strict=True) accepts them.
Every (context prefix, query) pair is its own sequence here, one after the other and padded on the
right: the plainest reading of what a query sees, and nothing like how Trainyard computes it.
"""

import math

import torch
from torch import nn

ACTIONS, STATES, FEATURES = 5, 81, 10
REGION = 80


class Distiller(nn.Module):
    def __init__(self, context, dim, layers, heads, dropout=0.0, compressed=False):
        super().__init__()
        self.compressed = compressed
        self.pos_embedding = nn.Parameter(torch.zeros(1, context, dim))
        self.token_type_embedding = nn.Embedding(3, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout, activation="gelu", batch_first=True)
        self.transformer_encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.embed_context = nn.Linear(FEATURES, dim)
        self.embed_query_state = nn.Embedding(STATES, dim)
        self.pred_action = nn.Linear(dim, ACTIONS)
        nn.init.trunc_normal_(self.pos_embedding, std=0.02)
        if compressed:
            self.compress_start_token = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, 1, dim), std=0.02))
            self.compress_end_token = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, 1, dim), std=0.02))
            self.pred_token_type = nn.Linear(dim, 3)

    def embed(self, rows, state):
        """One sequence: rows are feature vectors, "start" or "end"; then the query."""
        kind = self.token_type_embedding.weight
        parts = []
        for row in rows:
            if isinstance(row, str):
                token = self.compress_start_token if row == "start" else self.compress_end_token
                parts.append(token.view(-1) + kind[1 if row == "start" else 2])
            else:
                parts.append(None)
        features = [row for row in rows if not isinstance(row, str)]
        embedded = iter((self.embed_context(torch.stack(features)) + kind[0]).unbind()) if features else iter(())
        parts = [next(embedded) if part is None else part for part in parts]
        query = self.embed_query_state.weight[state]
        parts.append(query + kind[0] if self.compressed else query)
        return torch.stack(parts)

    def forward(self, sequences):
        """sequences: list of (rows, state). Returns action logits and, compressed, type logits."""
        embedded = [self.embed(rows, state) for rows, state in sequences]
        lengths = torch.tensor([len(e) for e in embedded])
        x = nn.utils.rnn.pad_sequence(embedded, batch_first=True)
        x = x + self.pos_embedding[:, : x.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.transformer_encoder(x, mask=mask, is_causal=True)
        last = y[torch.arange(len(y)), lengths - 1]
        return self.pred_action(last), self.pred_token_type(last) if self.compressed else None


def features(step):
    """[state, one-hot action, reward, next state] as floats."""
    state, action, reward, next_state = step
    one_hot = [0.0] * ACTIONS
    one_hot[action] = 1.0
    return torch.tensor([*map(float, state), *one_hot, float(reward), *map(float, next_state)])


class Samples:
    """What a sample id stands for, from the history file alone (docs/formats.md)."""

    def __init__(self, group_of, train_tasks, streams, length, context, mode, loss):
        self.group_of, self.tasks, self.streams, self.length = group_of, train_tasks, streams, length
        self.context, self.compressed, self.every = context, mode == "compressed", loss == "every_position"
        if self.compressed:
            self.per_history = length // REGION * (1 if self.every else REGION + 1)
        else:
            self.per_history = length - context + 1

    def history(self, index):
        g, s = self.group_of(self.tasks[index // self.streams]), index % self.streams
        return [(tuple(g["states"][t, s]), int(g["actions"][t, s]), int(g["rewards"][t, s]), tuple(g["next_states"][t, s])) for t in range(self.length)]

    def __call__(self, sample):
        """List of (rows, state, action or None, type or None)."""
        steps, offset = self.history(sample // self.per_history), sample % self.per_history
        cell = lambda t: 9 * int(steps[t][0][0]) + int(steps[t][0][1])
        if not self.compressed:
            n = self.context - 1
            rows = [features(steps[offset + i]) for i in range(n)]
            return [(rows[:i], cell(offset + i), steps[offset + i][1], None) for i in range(0 if self.every else n, n + 1)]
        region, ks = (offset, range(REGION + 1)) if self.every else (offset // (REGION + 1), [offset % (REGION + 1)])
        begin = region * REGION
        before = []
        if region > 0:
            before = ["start", *(features(s) for s in steps[begin - REGION : begin]), "end"]
        current = [features(s) for s in steps[begin : begin + REGION]]
        out = []
        for k in ks:
            rows = [*before, "start", *current[:k]]
            if k < REGION:
                out.append((rows, cell(begin + k), steps[begin + k][1], 0))
            else:
                last = begin + REGION
                state = cell(last) if last < self.length else 40
                out.append((rows, state, None, 2))
        return out


def loss_of(model, batch, type_weight=1.0):
    """Mean over all valid targets of the global batch, per head."""
    examples = [e for sample in batch for e in sample]
    actions, types = model([(rows, state) for rows, state, _, _ in examples])
    chosen = [i for i, e in enumerate(examples) if e[2] is not None]
    loss = nn.functional.cross_entropy(actions[chosen], torch.tensor([examples[i][2] for i in chosen])) if chosen else actions.sum() * 0
    if types is not None:
        loss = loss + type_weight * nn.functional.cross_entropy(types, torch.tensor([e[3] for e in examples]))
    return loss


def cosine(step, peak, warmup, total):
    if step < warmup:
        return peak * step / warmup
    return peak / 2 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))

"""The cascade in PyTorch, from the description in docs/hybrid-vit-cascade.md, with the names that Trainyard exports.

Where ours is made to be cheap this is made to be plain: depth lifting makes the whole (B, F, S, h, h) volume of features and a
1 x 1 x 1 convolution of it; attention makes its whole matrix.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

MASK = 2**64 - 1


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def hash_key(a, b, c=0):
    """trainer/base/random.h: a key from several numbers."""
    return mix(mix(mix((a + 0x9E3779B97F4A7C15) & MASK) ^ ((b + 0xD1B54A32D192ED03) & MASK)) ^ ((c + 0x8CB92BA72F3D8DD7) & MASK))


def name_key(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & MASK
    return h


def first_u64(seed, purpose, index=0):
    """What KeyedRandom draws first: Philox4x32-10 (Salmon et al., 2011)."""
    key = hash_key(seed, name_key(purpose), index)
    c, k0, k1 = [0, 0, 0, 0], key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c[0] << 32 | c[1]


def normal(shape, key, purpose):
    return torch.empty(shape).normal_(generator=torch.Generator().manual_seed(hash_key(key, name_key(purpose))))


def alpha_bars(steps):
    """The cosine schedule, in double precision."""
    curve = torch.cos(((torch.arange(steps + 1, dtype=torch.float64) / steps) + 0.008) / 1.008 * math.pi / 2) ** 2
    return torch.cumprod(1 - (1 - curve[1:] / curve[:-1]).clamp(1e-4, 0.9999), 0)


def places(sizes, dim):
    """(product of sizes, dim): of each axis, sines and cosines of pi x times 1 to the axis' size, x the place's middle of (0, 1)."""
    pairs = dim // (2 * len(sizes))
    codes = []
    for size in sizes:
        x = (torch.arange(size, dtype=torch.float64) + 0.5) / size * math.pi
        angles = x[:, None] * size ** (torch.arange(pairs, dtype=torch.float64) / max(1, pairs - 1))
        codes.append(torch.stack([angles.sin(), angles.cos()], 2).flatten(1))
    grid = torch.cartesian_prod(*(torch.arange(size) for size in sizes))
    joined = torch.cat([code[grid[:, axis]] for axis, code in enumerate(codes)], 1)
    return F.pad(joined, (0, dim - joined.shape[1])).float()


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        return self.proj(attend(*self.qkv(x).chunk(3, -1), self.heads))


class CrossAttention(nn.Module):
    def __init__(self, dim, context, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(context, 2 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, context):
        return self.proj(attend(self.q(x), *self.kv(context).chunk(2, -1), self.heads))


def attend(q, k, v, heads):
    q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in (q, k, v))
    weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


class AdaLN(nn.Module):
    def __init__(self, condition, dim):
        super().__init__()
        self.linear = nn.Linear(condition, 6 * dim)


class Block(nn.Module):
    def __init__(self, dim, heads, context, condition):
        super().__init__()
        self.adaln = AdaLN(condition, dim)
        self.self_attn = SelfAttention(dim, heads)
        self.cross_attn = CrossAttention(dim, context, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Identity(), nn.Linear(4 * dim, dim))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))

    def forward(self, x, context, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaln.linear(condition).unsqueeze(1).chunk(6, -1)
        x = x + gate1 * self.self_attn(self.norm1(x) * (1 + scale1) + shift1)
        x = x + self.cross_attn(self.norm2(x), context)
        return x + gate2 * self.mlp(self.norm3(x) * (1 + scale2) + shift2)


class DepthNetwork(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.depth_net = nn.Sequential(
            nn.Conv2d(dim, dim // 2, 3, padding=1),
            nn.GroupNorm(8, dim // 2),
            nn.SiLU(),
            nn.Conv2d(dim // 2, dim // 4, 3, padding=1),
            nn.GroupNorm(8, dim // 4),
            nn.SiLU(),
            nn.Conv2d(dim // 4, size, 1),
        )
        self.prior_modulation = nn.Sequential(nn.Conv2d(dim, size, 1), nn.Sigmoid())

    def forward(self, features):
        """(B, F, h, h) -> (B, F, S, h, h)"""
        weights = self.depth_net(features).softmax(1) * self.prior_modulation(features)
        weights = weights / (weights.sum(1, keepdim=True) + 1e-8)
        return features.unsqueeze(2) * weights.unsqueeze(1)


class Lifter(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.depth_networks = nn.ModuleDict({f"depth_{size}": DepthNetwork(dim, size)})


class Backbone(nn.Module):
    def __init__(self, stage, channels, grid, context, condition, patch, views):
        super().__init__()
        size, dim, depth, heads = stage
        layers, widths, side = [], [dim // 4, dim // 2], size
        while side > grid:
            out = widths.pop(0) if widths else dim
            layers += [nn.Conv3d(channels, out, 3, stride=2, padding=1), nn.GroupNorm(8, out), nn.SiLU()]
            channels, side = out, side // 2
        if channels != dim:
            layers.append(nn.Conv3d(channels, dim, 3, padding=1))
        self.size, self.grid, self.patch = size, grid, patch
        self.places = places((grid,) * 3, dim) if views else 0
        self.voxel_embed = nn.Sequential(*layers)
        self.pos_embed = nn.Parameter(torch.zeros(1, grid**3, dim))
        self.blocks = nn.ModuleList(Block(dim, heads, context, condition) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.output_proj = nn.Linear(dim, (size // grid) ** 3 if patch else 1)

    def forward(self, x, context, condition):
        x = self.voxel_embed(x).flatten(2).transpose(1, 2) + self.pos_embed + self.places
        for block in self.blocks:
            x = block(x, context, condition)
        x = self.output_proj(self.norm(x))
        g, s = self.grid, self.size
        if not self.patch:
            return F.interpolate(x.view(-1, 1, g, g, g), (s, s, s), mode="trilinear", align_corners=True)
        out = torch.empty(x.shape[0], 1, s, s, s)
        p = s // g
        for token in range(g**3):
            i, j, k = token // (g * g), token // g % g, token % g
            out[:, 0, i * p : i * p + p, j * p : j * p + p, k * p : k * p + p] = x[:, token].view(-1, p, p, p)
        return out


class Stage(nn.Module):
    def __init__(self, stage, channels, grid, dim, condition, patch, views):
        super().__init__()
        self.depth_lifter = Lifter(dim, stage[0])
        self.depth_to_volume = nn.Conv3d(dim, 1, 1)
        self.vit_backbone = Backbone(stage, channels, grid, dim, condition, patch, views)


class Xrays(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, dim // 8, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(dim // 8, dim // 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(dim // 4, dim, 3, padding=1),
            nn.ReLU(),
        )
        self.time_mlp = nn.Sequential(nn.Linear(dim // 2, dim), nn.SiLU(), nn.Linear(dim, 2 * dim))
        self.to_cond = nn.Linear(dim, 2 * dim)


class Cascade(nn.Module):
    """stages: (size, dim, depth, heads) of each."""

    def __init__(self, stages, grid, dim, patch=True, views=True, even=True, mean=-0.85, deviation=0.25, detail=0.07, timesteps=1000):
        super().__init__()
        self.views, self.even, self.mean, self.deviation, self.detail = views, even, mean, deviation, detail
        self.timesteps, self.a = timesteps, alpha_bars(timesteps)
        self.time_embed = nn.Sequential(nn.Linear(1, dim // 2), nn.SiLU(), nn.Linear(dim // 2, dim // 2))
        self.xray_encoder = Xrays(dim)
        self.stages, self.prev_stage_projectors = nn.ModuleDict(), nn.ModuleDict()
        for i, stage in enumerate(stages):
            condition = 2 * dim + (dim // 2 if i else 0)
            self.stages[f"stage{i + 1}"] = Stage(stage, 2 if i else 1, grid, dim, condition, patch, views)
            if i:
                self.prev_stage_projectors[f"stage{i + 1}"] = nn.Linear(1, dim // 2)

    def velocity(self, name, x, t, xrays, previous):
        of_views = self.xray_encoder.encoder(xrays.flatten(0, 1)).unflatten(0, xrays.shape[:2])
        features = of_views.mean(1)
        embedded = self.time_embed(t.float().unsqueeze(1) / self.timesteps)
        condition = self.xray_encoder.time_mlp(embedded) + self.xray_encoder.to_cond(features.mean((2, 3)))
        stage = self.stages[name]
        size = x.shape[-1]
        lifted = stage.depth_to_volume(stage.depth_lifter.depth_networks[f"depth_{size}"](features))
        prior = F.interpolate(lifted, (size, size, size), mode="trilinear", align_corners=True)
        seen = x + 0.1 * prior
        if previous is not None:
            seen = torch.cat([seen, previous], 1)
            condition = torch.cat([condition, self.prev_stage_projectors[name](previous.mean((2, 3, 4)))], 1)
        context = features.flatten(2).transpose(1, 2)
        if self.views:
            context = of_views.permute(0, 1, 3, 4, 2).flatten(1, 3) + places(of_views.shape[1:2] + of_views.shape[3:], features.shape[1])
        said = stage.vit_backbone(seen, context, condition)
        # The mean and deviation of a normal distribution around the previous volume, given x, as a velocity.
        a, around = self.a[t].view(-1, 1, 1, 1, 1), torch.tensor(self.mean) if previous is None else previous
        total = a * self.spread(previous) ** 2 + 1 - a
        gain = a.sqrt() * self.spread(previous) ** 2 / total
        clean = around.double() + gain * (x.double() - a.sqrt() * around.double())
        return ((a.sqrt() * x.double() - clean) / (1 - a).sqrt()).float() + (self.spread(previous) / total.sqrt()).float() * said

    def spread(self, previous):
        return self.deviation if previous is None else self.detail

    def losses(self, name, volume, previous, xrays, extent, noise, t, window=6.0, mu=0.02):
        """Of each sample: mean square error of v, and the physics loss times alpha_bar. HU from -1000 to 3000."""
        a = self.a[t].view(-1, 1, 1, 1, 1).float()
        x = a.sqrt() * volume + (1 - a).sqrt() * noise
        v = self.velocity(name, x, t, xrays, previous)
        diffusion = (v - (a.sqrt() * noise - (1 - a).sqrt() * volume)).square().mean((1, 2, 3, 4))
        if self.even:
            diffusion = diffusion * (a.view(-1) + (1 - a.view(-1)) / self.spread(previous) ** 2)
        clean = (a.sqrt() * x - (1 - a).sqrt() * v).clamp(-1, 1)[:, 0]
        errors = []
        for view, image in enumerate((clean.mean(1), clean.mean(3).transpose(1, 2))):  # (B, H, W), (B, H, D)
            integral = mu * (1 + (image * 2000 + 1000) / 1000) * extent[:, view, None, None]
            drawn = (integral / window).clamp(0, 1) * 2 - 1
            drawn = F.interpolate(drawn.unsqueeze(1), xrays.shape[-2:], mode="bilinear", align_corners=False)
            errors.append((drawn - xrays[:, view]).square().mean((1, 2, 3)))
        return diffusion, (errors[0] + errors[1]) / 2 * a.view(-1)

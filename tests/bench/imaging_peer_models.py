"""The peers of pytorch_peers.py for the imaging workloads: MONAI's ResNet with a Cox loss, and the cascade's first stage.

    stock  MONAI's network as it comes; the cascade as a reader of docs/hybrid-vit-cascade.md writes it (tests/parity/cascade_reference.py)
    hand   of MONAI's network with channels-last memory; of the cascade with scaled_dot_product_attention, patches that are
           one permutation, and depth lifting that mixes channels before it makes a volume of them
"""

import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "parity"))

import cascade_reference  # noqa: E402

STAGE, GRID, VIEWS, XRAY = (16, 64, 4, 4), 8, 2, 64  # of the preset small


def cox(risk, events):
    """Breslow's, per event. Subjects lie in descending order of time, without ties: a risk set is what comes before."""
    risk = risk.flatten().float()
    return ((torch.logcumsumexp(risk, 0) - risk) * events).sum() / events.sum()


class Survival(nn.Module):
    """resnet10, 16 channels wide, of volumes of 64 x 64 x 32: the preset small."""

    def __init__(self, row, by_hand):
        super().__init__()
        from monai.networks.nets import resnet

        self.network = resnet.resnet10(spatial_dims=3, n_input_channels=1, num_classes=1, widen_factor=0.25, conv1_t_stride=2)
        self.format = torch.channels_last_3d if by_hand else torch.contiguous_format
        self.network.to(memory_format=self.format)

    def forward(self, volumes):
        return self.network(volumes.contiguous(memory_format=self.format))

    @staticmethod
    def batch(row):
        events = torch.zeros(row["batch"])
        events[::2] = 1
        return (torch.rand(row["batch"], 1, 64, 64, 32),), events

    loss = staticmethod(cox)


def attend(q, k, v, heads):
    q, k, v = (y.unflatten(-1, (heads, -1)).transpose(1, 2) for y in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def block(b, x, context, condition):
    shift1, scale1, gate1, shift2, scale2, gate2 = b.adaln.linear(condition).unsqueeze(1).chunk(6, -1)
    of_self, of_cross = b.self_attn, b.cross_attn
    y = of_self.qkv(b.norm1(x) * (1 + scale1) + shift1)
    x = x + gate1 * of_self.proj(attend(*y.chunk(3, -1), of_self.heads))
    x = x + of_cross.proj(attend(of_cross.q(b.norm2(x)), *of_cross.kv(context).chunk(2, -1), of_cross.heads))
    return x + gate2 * b.mlp(b.norm3(x) * (1 + scale2) + shift2)


class HandCascade(cascade_reference.Cascade):
    """The first stage, of the same modules."""

    def __init__(self):
        super().__init__([STAGE], GRID, 64)
        side = XRAY // 8
        self.register_buffer("view_places", cascade_reference.places((VIEWS, side, side), 64), persistent=False)

    def velocity(self, name, x, t, xrays, previous):
        stage, size, g = self.stages[name], x.shape[-1], GRID
        of_views = self.xray_encoder.encoder(xrays.flatten(0, 1)).unflatten(0, xrays.shape[:2])
        features = of_views.mean(1)
        condition = self.xray_encoder.time_mlp(self.time_embed(t.float().unsqueeze(1) / self.timesteps)) + self.xray_encoder.to_cond(features.mean((2, 3)))
        network = stage.depth_lifter.depth_networks[f"depth_{size}"]
        weights = network.depth_net(features).softmax(1) * network.prior_modulation(features)
        weights = weights / (weights.sum(1, keepdim=True) + 1e-8)
        # A sum over channels of what is a product of a channel and a depth: channels are mixed first.
        mixed = F.conv2d(features, stage.depth_to_volume.weight[..., 0])
        lifted = (mixed * weights).unsqueeze(1) + stage.depth_to_volume.bias
        context = of_views.permute(0, 1, 3, 4, 2).flatten(1, 3) + self.view_places
        backbone = stage.vit_backbone
        y = backbone.voxel_embed(x + 0.1 * F.interpolate(lifted, (size, size, size), mode="trilinear", align_corners=True)).flatten(2).transpose(1, 2)
        y = y + backbone.pos_embed + backbone.places
        for one in backbone.blocks:
            y = block(one, y, context, condition)
        p = size // g
        said = backbone.output_proj(backbone.norm(y)).view(-1, g, g, g, p, p, p).permute(0, 1, 4, 2, 5, 3, 6).reshape(-1, 1, size, size, size)
        a = self.a[t].float().view(-1, 1, 1, 1, 1)
        total = a * self.deviation**2 + 1 - a
        clean = self.mean + a.sqrt() * self.deviation**2 / total * (x - a.sqrt() * self.mean)
        return (a.sqrt() * x - clean) / (1 - a).sqrt() + self.deviation / total.sqrt() * said


class Cascade(nn.Module):
    """The losses of the first stage of the preset small."""

    def __init__(self, row, by_hand):
        super().__init__()
        self.model = HandCascade() if by_hand else cascade_reference.Cascade([STAGE], GRID, 64)

    def forward(self, volume, xrays, extent, noise, t):
        diffusion, physics = self.model.losses("stage1", volume, None, xrays, extent, noise, t)
        return diffusion + 0.3 * physics

    @staticmethod
    def batch(row):
        b, s = row["batch"], STAGE[0]
        extent = torch.rand(b, VIEWS) * 10 + 20
        return (torch.rand(b, 1, s, s, s) * 2 - 1, torch.rand(b, VIEWS, 1, XRAY, XRAY), extent, torch.randn(b, 1, s, s, s), torch.randint(0, 1000, (b,))), None

    @staticmethod
    def loss(losses, _):
        return losses.float().mean()


KINDS = {"mace_survival": Survival, "hybrid_vit_cascade": Cascade}

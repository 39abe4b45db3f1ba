"""Transforms and windows of the data pipeline: PyTorch, NumPy and MONAI say the same."""

import os
import random

import monai.data
import monai.transforms as mt
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from image_oracle import Probe

THOROUGH = os.environ.get("TRAINYARD_THOROUGH") == "1"
# Sums of float32 in another order than PyTorch's, relative to the largest value: a window has some hundred values.
CLOSE = 2e-6


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    with Probe(tmp_path_factory.mktemp("transforms")) as probe:
        yield probe


def chain(probe, values, *steps, key=0):
    return probe.values_of("transform", values=values, chain=steps, key=key)[1]


def close(ours, theirs):
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= CLOSE * max(1, np.abs(theirs).max())


SHAPES = [((19, 24, 10), (7, 8, 5)), ((19, 24, 10), (19, 30, 10)), ((64, 48, 33), (32, 32, 8)), ((3, 5, 4), (1, 1, 1)), ((1, 2, 3), (4, 7, 9)), ((31, 17), (8, 40)), ((16, 12), (16, 6))]


@pytest.mark.parametrize("shape, size", SHAPES)
def test_resizing_is_pytorchs(probe, shape, size):
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32) * 1000
    batch = torch.from_numpy(values)[None, None]
    pool = F.adaptive_avg_pool3d if len(shape) == 3 else F.adaptive_avg_pool2d
    mode = "trilinear" if len(shape) == 3 else "bilinear"
    close(chain(probe, values, ["area", size]), pool(batch, size)[0, 0])
    for corners in (False, True):
        close(chain(probe, values, ["linear", size, corners]), F.interpolate(batch, size=size, mode=mode, align_corners=corners)[0, 0])


def test_the_channels_of_an_image_stay(probe):
    values = np.random.default_rng(2).normal(size=(20, 30, 3)).astype(np.float32)
    theirs = F.interpolate(torch.from_numpy(values).permute(2, 0, 1)[None], size=(8, 45), mode="bilinear", align_corners=False)
    close(chain(probe, values, ["linear", (8, 45), False]), theirs[0].permute(1, 2, 0))


def test_monais_chain(probe):
    """The deterministic part of MACE's preparation (workload 2)."""
    values = np.random.default_rng(3).normal(size=(40, 36, 20)).astype(np.float32) * 900
    theirs = mt.Compose([mt.ScaleIntensityRange(-1000, 1000, 0, 1, clip=True), mt.Resize((16, 16, 8), mode="area")])(torch.from_numpy(values)[None])
    close(chain(probe, values, ["window", -1000, 1000, 0, 1, True], ["area", (16, 16, 8)]), theirs[0])
    loose = mt.ScaleIntensityRange(-200, 200, -1, 3, clip=False)(torch.from_numpy(values))
    close(chain(probe, values, ["window", -200, 200, -1, 3, False]), loose)


@pytest.mark.parametrize("shape", [(4, 5, 6), (5, 5, 1), (3, 7), (6, 2, 3, 2)])
def test_flips_and_quarters_are_numpys_to_the_bit(probe, shape):
    values = np.random.default_rng(4).normal(size=shape).astype(np.float32)
    for axis in range(len(shape)):
        assert np.array_equal(chain(probe, values, ["flip", axis]), np.flip(values, axis))
        if len(shape) < 4:  # MONAI rotates and flips no more
            assert np.array_equal(chain(probe, values, ["flip", axis]), mt.Flip(spatial_axis=axis)(torch.from_numpy(values)[None])[0])
    for a, b in [(0, 1), (1, 0), (len(shape) - 1, 0)]:
        for k in range(5):
            assert np.array_equal(chain(probe, values, ["rotate90", k, a, b]), np.rot90(values, k, (a, b))), (k, a, b)
            if len(shape) < 4:
                assert np.array_equal(chain(probe, values, ["rotate90", k, a, b]), mt.Rotate90(k, (a, b))(torch.from_numpy(values)[None])[0])


def test_random_transforms_draw_from_the_key_alone(probe):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 1
    steps = [["random_flip", 0.5, 0], ["random_flip", 0.5, 2], ["random_scale", 0.5, 0.9, 1.1]]
    rng, seen = random.Random(5), {}
    keys = [rng.getrandbits(64) for _ in range(400)]
    for key in keys:
        ours = chain(probe, values, *steps, key=key)
        first, last = ours[0].mean() > ours[1].mean(), ours[0, 0, 0] > ours[0, 0, -1]
        expected = values[::-1] if first else values
        expected = expected[..., ::-1] if last else expected
        factor = np.float32(ours[0, 0, 0] / expected[0, 0, 0])
        assert np.allclose(ours, expected * factor, rtol=1e-6) and 0.9 <= factor < 1.1
        seen[key] = bool(first), bool(last), factor != 1
        assert np.array_equal(chain(probe, values, *steps, key=key), ours)
    # Three independent coins of one half: 400 of them give eight outcomes, 50 +- 6.6 each.
    counts = {outcome: sum(value == outcome for value in seen.values()) for outcome in set(seen.values())}
    assert len(counts) == 8 and all(20 < count < 85 for count in counts.values()), counts
    quarters = [chain(probe, values, ["random_rotate90", 1, 0, 1], key=key) for key in keys[:300]]
    kinds = [sum(np.array_equal(q, np.rot90(values, k, (0, 1))) for q in quarters) for k in range(4)]
    assert kinds[0] == 0 and sum(kinds) == 300 and all(60 < count < 140 for count in kinds[1:]), kinds
    # What is put before or behind a random transform changes no draw of it.
    for key in keys[:20]:
        plain = chain(probe, values, ["random_flip", 0.5, 2], key=key)
        assert np.array_equal(chain(probe, values, ["window", 0, 1, 0, 1, False], ["random_flip", 0.5, 2], ["clamp", -99, 99], key=key), plain)


class Monai:
    """SmartCacheDataset itself, without its thread: what each epoch's window holds, as places in its list."""

    def __init__(self, length, rate, replace):
        self.set = monai.data.SmartCacheDataset(list(range(length)), replace_rate=replace, cache_rate=rate, shuffle=False, num_init_workers=1, num_replace_workers=1, progress=False)

    def windows(self, epochs):
        for _ in range(epochs):
            yield [self.set[i] for i in range(len(self.set))]
            self.set._try_manage_replacement(self.set._round + 1)
            self.set._try_update_cache() or pytest.fail("MONAI's replacement was not there")


def test_windows_are_monais(probe):
    """200 of (length, rate, replacement): N, R and every window, up to the permutation that lists the samples."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    compared = 0
    for _ in range(2000 if THOROUGH else 200):
        length, rate, replace, epochs = rng.randrange(1, 60), round(rng.uniform(0.05, 1), 3), round(rng.uniform(0.01, 1), 3), rng.randrange(2, 12)
        answer = probe.ask("windows", length=length, rate=rate, replace=replace, seed=rng.getrandbits(64), epochs=epochs)
        items, replaced = answer["items"], answer["replace"]
        assert items == min(int(length * rate), length)
        if items == 0:
            continue
        assert replaced == min(int(np.ceil(items * replace)), length - items)
        # The specification, said once more: a window slides over the list by R an epoch and goes on at its start.
        flat = {}
        for epoch, window in enumerate(answer["windows"]):
            assert len(set(window)) == items
            for i, item in enumerate(window):
                assert flat.setdefault((epoch * replaced + i) % length, item) == item
            assert sorted(answer["orders"][epoch]) == sorted(window), "an epoch is the window, permuted"
        assert len(set(flat.values())) == len(flat) and set(flat.values()) <= set(range(length))
        if items < length and replaced > 0:
            theirs = Monai(length, rate, replace)
            assert (theirs.set.cache_num, theirs.set._replace_num) == (items, replaced)
            for window, places in zip(answer["windows"], theirs.windows(epochs)):
                assert window == [flat[place] for place in places]
            compared += 1
    assert compared > 50

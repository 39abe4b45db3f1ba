"""The optimizer on the processors: its bytes a second against a STREAM-like triad and PyTorch's fused AdamW, and a step with parallel.offload against one without.

usage: offload.py [--millions N] [--threads N] [--pairs N]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("TRAINYARD_BUILD", "build/release"))
STEPS, WARM_UP = 12, 3


def rate(millions, threads):
    result = subprocess.run([BUILD / "bin/adamw_rate", str(millions), str(threads)], check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return json.loads(result.stdout)


PYTORCH = """
import sys, time, torch
n, threads = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)
p = torch.zeros(n, requires_grad=True)
p.grad = torch.full((n,), 0.01)
optimizer = torch.optim.AdamW([p], lr=1e-3, fused=True)
best = 0
for _ in range(7):
    begin = time.perf_counter()
    optimizer.step()
    best = max(best, n * 28 / (time.perf_counter() - begin) / 1e9)
print(best)
"""


def pytorch(parameters, threads):
    result = subprocess.run([sys.executable, "-c", PYTORCH, str(parameters), str(threads)], check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return float(result.stdout)


def tokens(path):
    """A shard of 4,096 windows (docs/formats.md)."""
    import random
    import struct

    rng = random.Random(1)
    values = [rng.randrange(512) for _ in range(4096 * 64 + 1)]
    path.write_bytes(b"TYTOKENS" + struct.pack(f"<IIQ{len(values)}H", 1, 512, len(values), *values))


def step(directory, offload, threads):
    """Milliseconds of a step at accumulation 4, one rank, 25 M parameters: of the median step behind the warm-up."""
    run = directory / "run"
    subprocess.run(["rm", "-rf", str(run)], check=True)
    config = {
        "task": {"name": "language_model", "eval_windows": 1},
        "model": {"vocab": 512, "context": 64, "dim": 512, "layers": 8, "heads": 8},
        "data": {"path": str(directory), "test_shard": "test.tokens"},
        "batch": {"global": 16, "micro": 4},
        "train": {"steps": STEPS, "log_every": 1},
        "parallel": {"offload": offload},
        "run": {"dir": str(run)},
    }
    path = directory / "job.json"
    path.write_text(json.dumps(config))
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "TRAINYARD_PROGRESS": "none", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([BUILD / "bin/trainyard", "launch", "--nproc", "1", "--config", str(path)], check=True, capture_output=True, env=env)
    times = [json.loads(line)["time"] for line in (run / "log.jsonl").read_text().splitlines() if "train/loss" in line]
    return statistics.median(b - a for a, b in zip(times[WARM_UP:], times[WARM_UP + 1 :])) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=64, help="parameters of the optimizer alone")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    ours = rate(options.millions, options.threads)
    theirs = pytorch(ours["parameters"], options.threads)
    print(
        f"{options.millions} M parameters, {options.threads} threads: triad {ours['triad']:.1f} GB/s, AdamW {ours['adamw']:.1f} ({ours['adamw'] / ours['triad']:.2f} of it), "
        f"with averages {ours['adamw_ema']:.1f} ({ours['adamw_ema'] / ours['triad']:.2f}), torch.optim.AdamW(fused=True) {theirs:.1f} ({theirs / ours['triad']:.2f})",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        for shard in ("train.tokens", "test.tokens"):
            tokens(directory / shard)
        pairs = [(step(directory, "none", options.threads), step(directory, "optimizer", options.threads)) for _ in range(options.pairs)]
        for plain, offloaded in pairs:
            print(f"step at accumulation 4: {plain:.0f} ms, offloaded {offloaded:.0f} ms, ratio {offloaded / plain:.3f}", flush=True)
        print(f"ratio {statistics.median(b / a for a, b in pairs):.3f}")


main()

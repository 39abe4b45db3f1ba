"""Step time against PyTorch's DDP over Gloo, two ranks of one thread each, interleaved pairs.

usage: step_time.py [--pairs N] [--steps N]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
BIN = os.environ.get("TRAINYARD_BIN", "build/release/bin/trainyard")
BATCH = 16  # per rank
WARM_UP = 5


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_PROGRESS": "none", "CUDA_VISIBLE_DEVICES": ""}


def trainyard(directory, data, precision, steps):
    """Milliseconds per step between the log's lines, evaluation and start left out."""
    run = directory / "run"
    subprocess.run(["rm", "-rf", str(run)], check=True)
    config = {
        "task": {"name": "algorithm_distillation", "eval_windows": 1, "eval_episodes": 0},
        "model": {"context": 200},
        "data": {"path": str(data)},
        "batch": {"global": 2 * BATCH, "micro": BATCH},
        "train": {"steps": WARM_UP + steps, "log_every": 1},
        "optim": {"lr": 1e-3, "betas": [0.9, 0.99]},
        "precision": {"compute": precision},
        "run": {"dir": str(run)},
    }
    path = directory / "job.json"
    path.write_text(json.dumps(config))
    subprocess.run([BIN, "launch", "--nproc", "2", "--config", str(path)], check=True, capture_output=True, env=environment())
    times = [json.loads(line)["time"] for line in (run / "log.jsonl").read_text().splitlines() if "train/loss" in line]
    return (times[-1] - times[WARM_UP - 1]) / (len(times) - WARM_UP) * 1e3


def pytorch(precision, steps):
    command = [sys.executable, str(HERE / "pytorch_ddp.py"), precision, str(BATCH), str(steps), str(WARM_UP)]
    port = str(20000 + os.getpid() % 10000)
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**environment(), "RANK": str(r), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for r in range(2)]
    output = ranks[0].communicate(timeout=600)[0]
    ranks[1].communicate(timeout=60)
    return float(output.split("STEP_MS")[1].split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        data = directory / "data"
        subprocess.run([BIN, "synth", "algorithm_distillation", "--source", "ad_epsilon", "--out", str(data)], check=True, capture_output=True)
        for precision in ("fp32", "bf16"):
            pairs = []
            for i in range(options.pairs):
                pairs.append((trainyard(directory, data, precision, options.steps), pytorch(precision, options.steps)))
                print(f"{precision} pair {i + 1}: trainyard {pairs[-1][0]:.1f} ms, pytorch {pairs[-1][1]:.1f} ms, ratio {pairs[-1][0] / pairs[-1][1]:.3f}", flush=True)
            ours, theirs, ratios = [p[0] for p in pairs], [p[1] for p in pairs], [a / b for a, b in pairs]
            print(f"{precision}: trainyard {statistics.median(ours):.1f} ms ({min(ours):.1f}-{max(ours):.1f}), pytorch {statistics.median(theirs):.1f} ms "
                  f"({min(theirs):.1f}-{max(theirs):.1f}), ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})", flush=True)


main()

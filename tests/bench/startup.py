"""Time from exec of `trainyard launch` to the end of the first step on two ranks.

usage: startup.py [--runs N]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

BIN = os.environ.get("TRAINYARD_BIN", "build/release/bin/trainyard")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_PROGRESS": "none", "CUDA_VISIBLE_DEVICES": ""}
    times = []
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        subprocess.run([BIN, "synth", "algorithm_distillation", "--source", "ad_epsilon", "--size", "tiny", "--out", str(directory / "data")], check=True, capture_output=True)
        config = {"task": {"name": "algorithm_distillation", "eval_windows": 1, "eval_episodes": 0}, "model": {"context": 24}, "data": {"path": str(directory / "data")},
                  "batch": {"global": 8}, "train": {"steps": 1, "log_every": 1}, "optim": {"lr": 1e-3}}
        path = directory / "job.json"
        path.write_text(json.dumps(config))
        for i in range(options.runs + 1):
            run = directory / f"run{i}"
            start = time.time()
            subprocess.run([BIN, "launch", "--nproc", "2", "--config", str(path), "--set", f"run.dir={run}"], check=True, capture_output=True, env=env)
            first = next(json.loads(line) for line in (run / "log.jsonl").read_text().splitlines() if "train/loss" in line)
            times.append(first["time"] - start)
    times = times[1:]  # The first one reads the libraries from the disk.
    print(f"exec to first step, 2 ranks: median {statistics.median(times):.2f} s ({min(times):.2f}-{max(times):.2f}), {len(times)} runs")


main()

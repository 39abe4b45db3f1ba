"""What a sink that blocks for ever costs: step time, processor time, and the end of the run.

Each pair is the same run twice, in alternating order: once as usual, once with a pipe that nobody reads in place of log.jsonl.

usage: stalled_sink.py [--pairs N] [--steps N]
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

BIN = os.environ.get("TRAINYARD_BIN", "build/release/bin/trainyard")
WARM_UP = 10


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_PROGRESS": "none"}


def measured(directory, data, steps, stalled):
    """Median of the milliseconds between steps, processor milliseconds per step, seconds from the last step to the end."""
    run = directory / "run"
    subprocess.run(["rm", "-rf", str(run)], check=True)
    run.mkdir()
    if stalled:
        os.mkfifo(run / "log.jsonl")
    config = {
        "task": {"name": "algorithm_distillation", "loss": "every_position", "eval_windows": 1, "eval_episodes": 0},
        "model": {"context": 60},
        "data": {"path": str(data)},
        "batch": {"global": 8},
        "train": {"steps": steps, "log_every": 1},
        "optim": {"lr": 1e-3},
        "run": {"dir": str(run)},
    }
    path = directory / "job.json"
    path.write_text(json.dumps(config))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([BIN, "train", "--config", str(path)], check=True, capture_output=True, env=environment())
    end, after = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    times = [e.wall_time for e in events.Scalars("train/loss")]
    assert len(times) == steps, "TensorBoard has lost events"
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    intervals = [b - a for a, b in zip(times[WARM_UP:], times[WARM_UP + 1:])]
    return statistics.median(intervals) * 1e3, processor / steps * 1e3, end - times[-1]


def summary(name, plain, stalled, unit):
    ratios = [b / a for a, b in zip(plain, stalled)]
    print(f"{name}: {statistics.median(plain):.2f} {unit} ({min(plain):.2f}-{max(plain):.2f}) plain, {statistics.median(stalled):.2f} {unit} "
          f"({min(stalled):.2f}-{max(stalled):.2f}) stalled, ratio of pairs {statistics.median(ratios):.4f} ({min(ratios):.4f}-{max(ratios):.4f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        data = directory / "data"
        subprocess.run([BIN, "synth", "algorithm_distillation", "--source", "ad_epsilon", "--size", "tiny", "--out", str(data)], check=True, capture_output=True)
        pairs = []
        for i in range(options.pairs):
            order = (False, True) if i % 2 == 0 else (True, False)
            results = {stalled: measured(directory, data, options.steps, stalled) for stalled in order}
            pairs.append((results[False], results[True]))
            print(f"pair {i + 1}: step {results[False][0]:.2f} and {results[True][0]:.2f} ms, end {results[False][2]:.2f} and {results[True][2]:.2f} s", flush=True)
        for column, (what, unit) in enumerate((("step", "ms"), ("processor time of a step", "ms"), ("last step to the end", "s"))):
            summary(what, [p[column] for p, _ in pairs], [s[column] for _, s in pairs], unit)


main()

"""What a sink that blocks for ever costs: processor time of a step, its wall time, and the end of the run.

Each pair is the same run twice, once as usual and once with a pipe that nobody reads in place of log.jsonl. The two run at once, on one
processor, so that whatever else the machine does slows both alike; the one that starts first alternates. Only the ends are measured one after the other.

usage: stalled_sink.py [--pairs N] [--steps N] [--processor N]
"""

import argparse
import bisect
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

BIN = os.environ.get("TRAINYARD_BIN", "build/release/bin/trainyard")
WARM_UP = 10
POLL_SECONDS = 0.02


class Run:
    def __init__(self, directory, data, steps, stalled, processors):
        self.steps, self.run, self.polls = steps, directory / ("stalled" if stalled else "plain"), []
        subprocess.run(["rm", "-rf", str(self.run)], check=True)
        self.run.mkdir()
        if stalled:
            os.mkfifo(self.run / "log.jsonl")
        config = {
            "task": {"name": "algorithm_distillation", "loss": "every_position", "eval_windows": 1, "eval_episodes": 0},
            "model": {"context": 60},
            "data": {"path": str(data)},
            "batch": {"global": 8},
            "train": {"steps": steps, "log_every": 1},
            "optim": {"lr": 1e-3},
            "run": {"dir": str(self.run)},
        }
        path = self.run.with_suffix(".json")
        path.write_text(json.dumps(config))
        self.process = subprocess.Popen(
            [BIN, "train", "--config", str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_PROGRESS": "none", "CUDA_VISIBLE_DEVICES": ""},
            preexec_fn=lambda: os.sched_setaffinity(0, processors),
        )

    def poll(self):
        """Notes the processor time so far, of the thread that steps (the first one) and of all; False when the run has ended."""
        if self.process.poll() is not None:
            self.end = time.time()
            assert self.process.returncode == 0, self.run
            return False
        try:
            tasks = {t.name: int((t / "schedstat").read_text().split()[0]) for t in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()}
            self.polls.append((time.time(), tasks[str(self.process.pid)], sum(tasks.values())))
        except (OSError, KeyError, IndexError):
            pass  # a thread has just ended
        return True

    def at(self, when, column):
        i = min(max(bisect.bisect(self.polls, (when,)), 1), len(self.polls) - 1)
        (t0, *before), (t1, *after) = self.polls[i - 1], self.polls[i]
        return before[column] + (after[column] - before[column]) * (when - t0) / (t1 - t0)

    def result(self):
        """Milliseconds a step: of the step thread, of the process, on the wall; seconds from the last step to the end."""
        events = EventAccumulator(str(self.run / "tensorboard"), size_guidance={"scalars": 0})
        events.Reload()
        times = [e.wall_time for e in events.Scalars("train/loss")]
        assert len(times) == self.steps, "TensorBoard has lost events"
        first, last, steps = times[WARM_UP], times[-1], self.steps - 1 - WARM_UP
        processor = [(self.at(last, column) - self.at(first, column)) / 1e6 / steps for column in (0, 1)]
        return [*processor, (last - first) * 1e3 / steps, self.end - last]


def pair(directory, data, steps, stalled_first, processors):
    order = (True, False) if stalled_first else (False, True)
    runs = {stalled: Run(directory, data, steps, stalled, processors) for stalled in order}
    going = list(runs.values())
    while going:
        going = [run for run in going if run.poll()]
        time.sleep(POLL_SECONDS)
    return runs[False].result(), runs[True].result()


def summary(name, plain, stalled, unit):
    ratios = [b / a for a, b in zip(plain, stalled)]
    print(f"{name}: {statistics.median(plain):.3f} {unit} ({min(plain):.3f}-{max(plain):.3f}) plain, {statistics.median(stalled):.3f} {unit} "
          f"({min(stalled):.3f}-{max(stalled):.3f}) stalled, ratio of pairs {statistics.median(ratios):.4f} ({min(ratios):.4f}-{max(ratios):.4f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--processor", type=int, default=0)
    options = parser.parse_args()
    processors = {options.processor}
    os.sched_setaffinity(0, (os.sched_getaffinity(0) - processors) or processors)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        data = directory / "data"
        subprocess.run([BIN, "synth", "algorithm_distillation", "--source", "ad_epsilon", "--size", "tiny", "--out", str(data)], check=True, capture_output=True)
        pairs = [pair(directory, data, options.steps, i % 2 == 1, processors) for i in range(options.pairs)]
        columns = (("processor time of a step, its thread", "ms"), ("processor time of a step, all threads", "ms"), ("step", "ms"), ("last step to the end", "s"))
        for column, (what, unit) in enumerate(columns):
            summary(what, [p[column] for p, _ in pairs], [s[column] for _, s in pairs], unit)


main()

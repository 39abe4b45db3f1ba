"""Seconds of a step in each stage against PyTorch's own way to share a training out, two ranks of one thread over Gloo.

usage: stages.py [--turns N] [--steps N] [--only WORD]...

The rows are the transformers of pytorch_peers.py without dropout, with its batch for each rank; stage_peers.py says what the
peers are. In each turn the trainer is started anew, and the peer goes on; which of the two comes first alternates. Times are of
the wall: the machine should be quiet. Of the trainer they hold what reading, collating and logging cost.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from pytorch_peers import BIN, IMAGING, SHAPES, WARM_UP, Ours, name_of, spread

HERE = pathlib.Path(__file__).parent
RANKS = 2
STAGES = ("ddp", "zero1", "zero3")
GOAL = 0.9


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_PROGRESS": "none", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}


class Peers:
    """The ranks of a peer, which stay."""

    def __init__(self, row, stage, folder):
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        command = [sys.executable, str(HERE / "stage_peers.py"), json.dumps(row), stage, str(folder)]
        self.ranks = [subprocess.Popen([*command, str(rank), str(RANKS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment())
                      for rank in range(RANKS)]
        self.run(WARM_UP)

    def run(self, steps):
        try:
            for rank in self.ranks:
                rank.stdin.write(f"{steps}\n")
                rank.stdin.flush()
            line = self.ranks[0].stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.errors.seek(0)
            raise RuntimeError("a peer ended: " + self.errors.read()[-1500:])
        return float(line)

    def end(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()


class Trainyard(Ours):
    def __init__(self, row, stage, directory):
        super().__init__(row, directory, None)
        self.stage = stage

    def run(self, steps):
        """Between the log's lines of two steps."""
        run = self.directory / "run"
        subprocess.run(["rm", "-rf", str(run)], check=True)
        config = self.config(WARM_UP + steps + 1)
        config["batch"]["global"] *= RANKS
        config["parallel"] = {"stage": self.stage}
        path = self.directory / "job.json"
        path.write_text(json.dumps(config))
        subprocess.run([BIN, "launch", "--nproc", str(RANKS), "--config", str(path)], check=True, capture_output=True, env=environment())
        times = [json.loads(line)["time"] for line in (run / "log.jsonl").read_text().splitlines() if "train/loss" in line]
        return (times[WARM_UP + steps - 1] - times[WARM_UP - 1]) / steps


def measure(row, stage, options, directory):
    with tempfile.TemporaryDirectory() as store:
        peers, ours = Peers(row, stage, store), Trainyard(row, stage, directory)
        try:
            pairs = []
            for turn in range(options.turns):
                both = [ours, peers] if turn % 2 == 0 else [peers, ours]
                took = {runner: runner.run(options.steps) for runner in both}
                pairs.append((took[ours], took[peers]))
        finally:
            peers.end()
    mine, theirs = zip(*pairs)
    ratios = [a / b for a, b in pairs]
    print(f"{stage:6} {name_of(row)}: trainyard {spread(mine, 1e3)} ms, PyTorch {spread(theirs, 1e3)} ms, ratio {spread(ratios, 1, 2)}"
          f"{'' if statistics.median(ratios) <= GOAL else f', over the goal of {GOAL}'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="rows whose line has the word; may be repeated, then all of them")
    options = parser.parse_args()
    rows = [{**shape, "precision": precision, "threads": 1} for shape in SHAPES if shape["dropout"] == 0 and shape["task"] not in IMAGING for precision in ("fp32", "bf16")]
    with tempfile.TemporaryDirectory() as name:
        for row in rows:
            for stage in STAGES:
                if all(word in f"{stage} {name_of(row)}" for word in options.only):
                    measure(row, stage, options, pathlib.Path(name))


main()

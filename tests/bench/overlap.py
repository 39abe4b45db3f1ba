"""How much of a step waits for the network: two ranks in two network namespaces, with a cable of so many bits a second between them.

usage: overlap.py [--steps N] [--turns N] [--load SHARE]... [--stages ddp,zero1,zero2-every,zero3]      (root, for the namespaces)

Of each stage (a name may have its parallel.reduce behind a dash) first the free step is measured, on a cable without a limit, and
the bytes that a rank sends in one. Then the cable is made so slow that sending them takes SHARE of the free step. Exposed is what
the step lasts longer than the free one; without any overlap it would be the whole time on the wire, and it cannot be less than
what of that does not fit beside the arithmetic. With `many buckets` parallel.bucket_mib is small, so that sums leave while backward
computes; with `one bucket` everything leaves at its end. zero3 sends what it sends by units in both. A language_model of 6 layers, 256 wide.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

BIN = os.path.abspath(os.environ.get("TRAINYARD_BIN", "build/release/bin/trainyard"))
WARM_UP = 3
BUCKETS = {"many buckets": 1, "one bucket": 1000}
MODEL = {"dim": 256, "layers": 6, "heads": 4, "context": 64, "dropout": 0}
# Bytes that may leave at once. A kernel's timer is too coarse for less than half of it, and what TCP hands over at once, 64 KiB
# and its headers, would be cut into packets of 1,500 bytes, whose cost is what would be measured.
BURST = 128 << 10


def sh(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


class Cable:
    """Two namespaces, and what is between them."""

    def __enter__(self):
        self.names = [f"tyo{os.getpid()}n{i}" for i in range(2)]
        links = [f"tyo{os.getpid()}v{i}"[-15:] for i in range(2)]
        with contextlib.ExitStack() as stack:
            for name in self.names:
                sh("ip", "netns", "add", name)
                stack.callback(sh, "ip", "netns", "del", name)
            sh("ip", "link", "add", links[0], "type", "veth", "peer", "name", links[1])
            for i, name in enumerate(self.names):
                sh("ip", "link", "set", links[i], "netns", name)
                sh("ip", "-n", name, "link", "set", links[i], "name", "cable")
                for command in ("addr add 10.78.0.%d/24 dev cable" % (i + 1), "link set cable up", "link set lo up"):
                    sh("ip", "-n", name, *command.split())
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def limit(self, bits):
        for name in self.names:
            subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "del", "dev", "cable", "root"], capture_output=True)
            if bits:
                sh("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", f"{int(bits)}bit", "burst", BURST, "latency", "10s")

    def sent(self):
        """Bytes that the first namespace has sent."""
        return json.loads(sh("ip", "-n", self.names[0], "-s", "-j", "link", "show", "cable"))[0]["stats64"]["tx"]["bytes"]


class Job:
    def __init__(self, cable, directory, stage, bucket_mib):
        self.cable, self.directory = cable, directory
        name, _, reduce = stage.partition("-")
        self.parallel = {"stage": name, "reduce": reduce or "auto", "bucket_mib": bucket_mib, "collective_seconds": 120}

    def run(self, steps):
        """Seconds of the median step, and bytes sent in the whole run."""
        run = self.directory / "run"
        subprocess.run(["rm", "-rf", str(run)], check=True)
        path = self.directory / "job.json"
        path.write_text(json.dumps({
            "task": {"name": "language_model", "eval_windows": 1}, "model": MODEL, "data": {"path": str(self.directory / "data")}, "batch": {"global": 16, "micro": 8},
            "train": {"steps": WARM_UP + steps, "log_every": 1}, "parallel": self.parallel, "run": {"dir": str(run)},
        }))  # fmt: skip
        before = self.cable.sent()
        ranks = [subprocess.Popen(["ip", "netns", "exec", name, BIN, "launch", "--nnodes", "2", "--node-rank", str(i), "--master", "10.78.0.1", "--nproc", "1", "--config", str(path)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_PROGRESS": "none", "CUDA_VISIBLE_DEVICES": ""})
                 for i, name in enumerate(self.cable.names)]
        errors = [rank.communicate()[1] for rank in ranks]
        if any(rank.returncode != 0 for rank in ranks):
            raise SystemExit("a rank failed:\n" + "\n".join(errors))
        times = [json.loads(line)["time"] for line in (run / "log.jsonl").read_text().splitlines() if "train/loss" in line]
        return statistics.median(b - a for a, b in zip(times[WARM_UP:], times[WARM_UP + 1 :])), self.cable.sent() - before

    def sent_in_a_step(self, steps):
        """What more steps send more: neither the start nor the end is in it."""
        return (self.run(2 * steps)[1] - self.run(steps)[1]) / steps


def measure(cable, directory, stage, buckets, options):
    job = Job(cable, directory, stage, BUCKETS[buckets])
    cable.limit(None)
    sent = job.sent_in_a_step(4)
    for load in options.load or [0.5, 1.0]:
        rows = []
        for _ in range(options.turns):
            cable.limit(None)
            free = job.run(options.steps)[0]
            wire = load * free
            cable.limit(8 * sent / wire)
            rows.append((free, wire, job.run(options.steps)[0]))
        exposed = [step - free for free, _, step in rows]
        of_step = [(step - free) / step for free, _, step in rows]
        of_wire = [(step - free) / wire for free, wire, step in rows]
        free, wire, step = (1e3 * statistics.median(column) for column in zip(*rows))
        print(f"| `{stage}`, {buckets} | {sent / 2**20:.1f} MiB | {free:.0f} ms | {wire:.0f} ms | {step:.0f} ms | {1e3 * statistics.median(exposed):.0f} ms | "
              f"{100 * statistics.median(of_step):.0f} % ({100 * min(of_step):.0f}-{100 * max(of_step):.0f}) | {100 * statistics.median(of_wire):.0f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--load", type=float, action="append")
    parser.add_argument("--stages", default="ddp,zero1,zero2-every,zero3")
    options = parser.parse_args()
    print("| stage | sent a step | free step | on the wire | step | exposed | of the step | of the wire's |\n|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name, Cable() as cable:
        directory = pathlib.Path(name)
        subprocess.run([BIN, "synth", "language_model", "--size", "tiny", "--out", str(directory / "data")], check=True, capture_output=True)
        for stage in options.stages.split(","):
            for buckets in BUCKETS:
                measure(cable, directory, stage, buckets, options)


main()

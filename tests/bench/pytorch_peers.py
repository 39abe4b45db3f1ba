"""Seconds of a training step against PyTorch's, work for work, in one process of one or more threads.

Every row runs the trainer and its peers (peer_models.py says what they are) in turns, on the same processors. The
trainer is started anew in each turn; the peers stay, and compile before the first. A peer's batches lie in memory. The
trainer's histories and tokens do so too, and what collating and logging cost is in its figure. Times are of the
processor with one thread, for then others' work on the machine counts little, and of the wall with more. The ratio is
the median over the turns of the trainer's time to that of the turn's fastest peer.

examples:
  pytorch_peers.py                       all rows (half an hour)
  pytorch_peers.py --short               one row for each task, two turns (some minutes)
  pytorch_peers.py --only bf16 --only last_position --turns 9
  pytorch_peers.py --only threads=1 --without compiled
  pytorch_peers.py --device cuda         on a GPU: GPT-2 124M and small models, in bf16, whole processors (some minutes)
"""

import argparse
import array
import itertools
import json
import os
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
BIN = os.environ.get("TRAINYARD_BIN", "build/release/bin/trainyard")
WARM_UP = 5

DISTILLATION = {"task": "algorithm_distillation", "dim": 64, "heads": 4, "layers": 4}
SHAPES = [
    {**DISTILLATION, "loss": "last_position", "context": 200, "batch": 16, "dropout": 0.0},
    {**DISTILLATION, "loss": "last_position", "context": 200, "batch": 16, "dropout": 0.1},
    {**DISTILLATION, "loss": "every_position", "context": 60, "batch": 8, "dropout": 0.0},
    {**DISTILLATION, "loss": "every_position", "context": 60, "batch": 8, "dropout": 0.1},
    {"task": "language_model", "dim": 64, "heads": 2, "layers": 2, "vocab": 257, "context": 64, "batch": 32, "dropout": 0.0},
    {"task": "mace_survival", "batch": 24, "context": "64x64x32", "dropout": 0.0},
    {"task": "hybrid_vit_cascade", "batch": 8, "context": "16x16x16", "dropout": 0.0},
]
GPT2 = {"task": "language_model", "dim": 768, "heads": 12, "layers": 12, "vocab": 50257, "context": 1024, "dropout": 0.0}
# What a GPU is for, and what keeps it waiting for its host.
GPU_SHAPES = [{**GPT2, "batch": 32}, {**GPT2, "batch": 8}, {**DISTILLATION, "loss": "every_position", "context": 200, "batch": 64, "dropout": 0.0}]
IMAGING = ("mace_survival", "hybrid_vit_cascade")
SYNTH = {"algorithm_distillation": ["--source", "ad_epsilon"], "language_model": ["--size", "tiny"], "mace_survival": ["--size", "small", "--subjects", "150"],
         "hybrid_vit_cascade": ["--size", "small", "--patients", "40"]}  # fmt: skip


def name_of(row):
    return " ".join([row["task"], *([row["loss"]] if "loss" in row else []), f"{row['batch']}x{row['context']}", f"dropout={row['dropout']}", row["precision"], f"threads={row['threads']}"])


def all_rows(cpus, device):
    if device != "cpu":
        return [{**shape, "precision": "bf16", "threads": len(cpus), "device": device} for shape in GPU_SHAPES]
    threads = sorted({1, len(cpus)})
    return [{**shape, "precision": precision, "threads": n} for shape, precision, n in itertools.product(SHAPES, ("fp32", "bf16"), threads)]


def peers_of(row, without):
    names = ["stock", "hand", "compiled"]
    if row["precision"] == "bf16" and row["task"] not in IMAGING:
        names += ["hand16"] if "device" not in row else ["hand16", "compiled16"]
    return [name for name in names if name not in without]


def start(command, row, cpus, **pipes):
    chosen = sorted(cpus)[: row["threads"]]
    environment = {**os.environ, "TRAINYARD_PROGRESS": "none"}
    if "device" not in row:
        environment |= {"OMP_NUM_THREADS": str(row["threads"]), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return subprocess.Popen(command, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, chosen), **pipes)


class Peer:
    def __init__(self, row, name, cpus):
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # no pipe, which would have to be read while it runs
        self.process = start([sys.executable, str(HERE / "peer_models.py"), json.dumps(row), name], row, cpus, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.run(WARM_UP)

    def run(self, steps):
        """Seconds of wall and processor time of a step."""
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.errors.seek(0)
            raise RuntimeError("a peer ended: " + self.errors.read()[-1500:])
        answer = json.loads(line)
        self.gpu_bytes = answer.get("gpu_bytes")  # the most that its allocator has held
        return {kind: answer[kind] / steps for kind in ("wall", "cpu")}

    def end(self):
        self.process.kill()
        self.process.wait()


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_random_tokens(folder, vocab, count):
    """A shard (docs/formats.md) of what the peers have: every token as often as another."""
    folder.mkdir(exist_ok=True)
    generator = random.Random(1)
    tokens = array.array("H", (generator.randrange(vocab) for _ in range(count)))
    (folder / "random.tokens").write_bytes(b"TYTOKENS" + struct.pack("<IIQ", 1, vocab, count) + tokens.tobytes())


class Ours:
    def __init__(self, row, directory, cpus):
        self.row, self.directory, self.cpus = row, directory, cpus
        self.data = directory / f"{row['task']}-{row.get('vocab', 0)}"
        if row.get("vocab", 0) > 257:
            write_random_tokens(self.data, row["vocab"], 4_000_000)
        elif not self.data.exists():
            subprocess.run([BIN, "synth", row["task"], *SYNTH[row["task"]], "--out", str(self.data)], check=True, capture_output=True)

    def task(self):
        """The sections of the configuration that are the task's own."""
        row = self.row
        if row["task"] == "mace_survival":
            return {"model": {"preset": "small"}, "data": {"cache": {"dir": str(self.directory / "cache")}}}
        if row["task"] == "hybrid_vit_cascade":
            return {"task": {"eval_patients": 1, "eval_samples": 1, "sampling_steps": 1}, "model": {"preset": "small", "stages": 1}}
        model = ("context", "dim", "layers", "heads", "dropout", *(("vocab",) if row["task"] == "language_model" else ()))
        task = {"loss": row["loss"], "eval_episodes": 0} if row["task"] == "algorithm_distillation" else {}
        return {"task": {"eval_windows": 1, **task}, "model": {key: row[key] for key in model}}

    def config(self, steps):
        row, of_task = self.row, self.task()
        return {**of_task, "task": {"name": row["task"], **of_task.get("task", {})}, "data": {"path": str(self.data), "workers": 1, **of_task.get("data", {})}, "parallel": {"device": row.get("device", "cpu")},
                "batch": {"global": row["batch"], "micro": row["batch"]}, "train": {"steps": steps, "log_every": 1},
                "optim": {"lr": 1e-3, "betas": [0.9, 0.99], "clip": 1.0}, "precision": {"compute": row["precision"]}, "run": {"dir": str(self.directory / "run"), "deterministic": "device" not in row}}

    def run(self, steps):
        """The same, between the log's lines of two steps."""
        subprocess.run(["rm", "-rf", str(self.directory / "run")], check=True)
        path, log = self.directory / "job.json", self.directory / "run/log.jsonl"
        path.write_text(json.dumps(self.config(WARM_UP + steps + 1)))
        process = start([BIN, "train", "--config", str(path)], self.row, self.cpus, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        marks = {}
        while len(marks) < 2 and process.poll() is None:
            times = [line["time"] for line in map(json.loads, log.read_text().rpartition("\n")[0].splitlines()) if "train/loss" in line] if log.exists() else []
            due = WARM_UP + steps if marks else WARM_UP
            if len(times) >= due:
                marks[len(times)] = (times[-1], processor_seconds(process.pid))
            # Who looks often takes processor time, which the trainer wants where it has all processors; then the log's own times are asked for, and late looks do no harm.
            time.sleep(0.001 if self.row["threads"] < len(self.cpus) else 0.05)
        error = process.communicate(timeout=120)[1]
        if process.returncode != 0 or len(marks) < 2:
            raise RuntimeError(f"the trainer ended with {process.returncode}: {error[-1500:]}")
        (first, begin), (last, end) = sorted(marks.items())
        return {"wall": (end[0] - begin[0]) / (last - first), "cpu": (end[1] - begin[1]) / (last - first)}

    def end(self):
        pass


def spread(values, scale=1, digits=1):
    return f"{statistics.median(values) * scale:.{digits}f} ({min(values) * scale:.{digits}f}-{max(values) * scale:.{digits}f})"


def measure(row, options, directory, cpus):
    kind = "cpu" if row["threads"] == 1 and "device" not in row else "wall"
    runners, failed = {"trainyard": Ours(row, directory, cpus)}, {}
    try:
        for name in peers_of(row, options.without):
            try:
                runners[name] = Peer(row, name, cpus)
            except RuntimeError as error:
                failed[name] = str(error).strip().splitlines()[-1][:160]
        times = {name: [] for name in runners}
        for turn in range(options.turns):
            order = list(runners)
            shift = turn % len(order)
            for name in order[shift:] + order[:shift]:
                times[name].append(runners[name].run(options.steps)[kind])
    finally:
        for runner in runners.values():
            runner.end()
    peers = [values for name, values in times.items() if name != "trainyard"]
    ratios = [ours / min(values[i] for values in peers) for i, ours in enumerate(times["trainyard"]) if peers]
    print(f"{name_of(row)} ({kind}, ms)", flush=True)
    for name, values in times.items():
        memory = getattr(runners[name], "gpu_bytes", None)
        print(f"    {name:10} {spread(values, 1e3)}" + (f", {memory / 2**30:.1f} GiB" if memory else ""), flush=True)
    for name, why in failed.items():
        print(f"    {name:10} not measured: {why}", flush=True)
    print(f"    ratio to the fastest {spread(ratios, 1, 2) if ratios else 'unknown: no peer was measured'}", flush=True)
    return {"row": row, "kind": kind, "times": times, "failed": failed, "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="how often each of a row is measured (5)")
    parser.add_argument("--steps", type=int, default=15, help="training steps of one measurement (15)")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="rows whose name has the word; may be repeated, then all of them")
    parser.add_argument("--without", action="append", default=[], metavar="PEER", help="leaves a peer out; may be repeated. compiled takes most of the time, and needs a C++ compiler")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="what computes, of all of them (cpu)")
    parser.add_argument("--short", action="store_true", help="without dropout, fp32, one thread, two turns")
    parser.add_argument("--json", metavar="FILE", help="all times, for other tools")
    options = parser.parse_args()
    if options.short:
        options.turns, options.only = 2, [*options.only, "dropout=0.0", "fp32", "threads=1"]
    cpus = os.sched_getaffinity(0)
    rows = [row for row in all_rows(cpus, options.device) if all(word in name_of(row).split() or word in name_of(row) for word in options.only)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as name:
        results = [measure(row, options, pathlib.Path(name), cpus) for row in rows]
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    main()

"""What a rank holds in each stage, beside what `trainyard plan` says: GPT-2 with 91 million parameters on 2 and 4 ranks.

usage: memory.py [--ranks 2,4] [--stages ddp,zero1,zero2-every,zero3] [--precision fp32,bf16]

A stage may name its parallel.reduce behind a dash.

Anonymous memory of every rank, sampled: `at rest` is the median while it trains and nothing is saved, `most` the largest while
checkpoints are written as well; the evaluation at the end, whose activations no plan has, is left out. What a rank of the same program holds with a model of no size is taken off both:
libraries, threads, batches. Needs 16 GiB for 4 ranks.
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
LARGE = {"dim": 768, "layers": 12, "heads": 12, "context": 32, "vocab": 8192}
NOTHING = {"dim": 16, "layers": 12, "heads": 2, "context": 32, "vocab": 8192}
AT_REST, SAVING = 6, 9  # steps of the first run; of the second, which goes on from it and saves after each


def parallel_of(stage):
    name, _, reduce = stage.partition("-")
    return {"stage": name, "reduce": reduce or "auto"}


def anonymous(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def ranks_of(launcher):
    children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(pid) for pid in children]


def watch(command, env, training, output):
    """Samples of the rank that holds most at each moment, while `training()` says so."""
    with output.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=env)
    samples = []
    while process.poll() is None:
        time.sleep(0.02)
        try:
            held = [anonymous(pid) for pid in ranks_of(process.pid)]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if held and training():
            samples.append(max(held))
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {output.read_text()}")
    return samples


def measure(folder, data, model, stage, ranks, precision):
    """(at rest, most) in bytes."""
    run = folder / f"{stage}-{ranks}-{precision}-{model['dim']}"
    config = {
        "task": {"name": "language_model"}, "model": model, "data": {"path": str(data)}, "batch": {"global": ranks, "micro": 1}, "optim": {"lr": 1e-5},
        "parallel": parallel_of(stage), "precision": {"compute": precision}, "run": {"dir": str(run)}, "checkpoint": {"every": 1, "keep_last": 1},
    }  # fmt: skip
    path = folder / "job.json"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_PROGRESS": "none", "CUDA_VISIBLE_DEVICES": ""}

    def steps():
        log = run / "log.jsonl"
        return sum("train/loss" in line for line in log.read_text().splitlines()) if log.exists() else 0

    def launch(last, every):
        config["train"], config["checkpoint"]["every"] = {"steps": last, "log_every": 1}, every
        path.write_text(json.dumps(config))
        return [BIN, "launch", "--nproc", str(ranks), "--config", str(path)]

    # The first step makes the moments, and the last one's checkpoint and export are no rest.
    rest = watch(launch(AT_REST, AT_REST), env, lambda: 2 <= steps() < AT_REST - 1, folder / "output")
    most = watch(launch(SAVING, 1), env, lambda: AT_REST < steps() < SAVING, folder / "output")
    subprocess.run(["rm", "-rf", str(run)], check=True)
    return statistics.median(rest), max(most)


def predicted(folder, model, stage, ranks, precision, data):
    path = folder / "plan.json"
    path.write_text(json.dumps({"task": {"name": "language_model"}, "model": model, "data": {"path": str(data)}, "batch": {"global": ranks, "micro": 1}, "train": {"steps": 1},
                                "parallel": parallel_of(stage), "precision": {"compute": precision}, "run": {"dir": str(folder / "none")}}))  # fmt: skip
    plan = json.loads(subprocess.run([BIN, "plan", "--config", str(path), "--ranks", str(ranks), "--json"], check=True, capture_output=True).stdout)
    parts = plan["bytes_per_rank"]
    return sum(parts.values()) - parts["checkpoint in flight"], sum(parts.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--stages", default="ddp,zero1,zero2-every,zero3")
    parser.add_argument("--precision", default="fp32,bf16")
    options = parser.parse_args()
    print("| stage | ranks | precision | at rest: predicted, measured | | most: predicted, measured | |\n|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = folder / "data"
        subprocess.run([BIN, "synth", "language_model", "--size", "tiny", "--out", str(data)], check=True, capture_output=True)
        for precision in options.precision.split(","):
            for ranks in map(int, options.ranks.split(",")):
                for stage in options.stages.split(","):
                    base = measure(folder, data, NOTHING, stage, ranks, precision)
                    nothing = predicted(folder, NOTHING, stage, ranks, precision, data)
                    held = measure(folder, data, LARGE, stage, ranks, precision)
                    said = predicted(folder, LARGE, stage, ranks, precision, data)
                    cells = []
                    for i in range(2):
                        expected, found = said[i] - nothing[i], held[i] - base[i]
                        cells.append(f"{expected / 2**20:.0f}, {found / 2**20:.0f} MiB | {found / expected:.2f}")
                    print(f"| {stage} | {ranks} | {precision} | {' | '.join(cells)} |", flush=True)


main()

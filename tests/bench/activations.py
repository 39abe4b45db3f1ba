"""What activation checkpointing takes off the most that a rank holds, and that it changes no loss: presets small of the imaging tasks.

usage: activations.py [--turns N] [--only WORD]...

One rank of one thread. VmHWM of the rank, read until its last step but one is logged, since behind the last comes an evaluation:
libraries, data that is read ahead, and gaps between tensors are in it. What the tensors of a forward and a backward alone take,
measured and predicted, activation_memory_test prints.
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
STEPS = 6
STAGE, DEEP = {"stages": 1}, {"resnet": "resnet18", "first_stride": 1}
ROWS = [
    ("hybrid_vit_cascade", 8, STAGE), ("hybrid_vit_cascade", 24, STAGE), ("mace_survival", 24, {}), ("mace_survival", 96, {}), ("mace_survival", 24, DEEP),
]  # fmt: skip


def most_of(launcher):
    """Of the launcher's one rank, in bytes; 0 before there is one, and when it has ended."""
    try:
        for child in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            for line in pathlib.Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def measure(folder, data, task, batch, model, checkpointing):
    """(the most that the rank held, the losses)."""
    run = folder / "run"
    subprocess.run(["rm", "-rf", str(run)], check=True)
    config = {
        "task": {"name": task}, "model": {"preset": "small", **model}, "data": {"path": str(data), "workers": 1}, "batch": {"global": batch, "micro": batch},
        "train": {"steps": STEPS, "log_every": 1, "activation_checkpointing": checkpointing}, "run": {"dir": str(run)},
    }  # fmt: skip
    path, log = folder / "job.json", run / "log.jsonl"
    path.write_text(json.dumps(config))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_PROGRESS": "none", "CUDA_VISIBLE_DEVICES": ""}
    with (folder / "output").open("w") as said:
        process = subprocess.Popen([BIN, "launch", "--nproc", "1", "--config", str(path)], stdout=said, stderr=said, env=env)
    most = 0
    while process.poll() is None:
        time.sleep(0.02)
        lines = log.read_text().splitlines() if log.exists() else []
        if len([line for line in lines if "train/loss" in line]) < STEPS - 1:
            most = max(most, most_of(process.pid))
    if process.returncode != 0:
        raise SystemExit((folder / "output").read_text())
    if most == 0:
        raise SystemExit("nothing was measured: the steps were too short")
    losses = [json.loads(line)["train/loss"] for line in log.read_text().splitlines() if "train/loss" in line]
    return most, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for task, batch, model in ROWS:
            row = " ".join([task, f"{batch} volumes", *(f"{key}={value}" for key, value in model.items())])
            if not all(word in row for word in options.only):
                continue
            data = folder / task
            if not data.exists():
                subprocess.run([BIN, "synth", task, "--size", "small", "--out", str(data)], check=True, capture_output=True)
            most, losses = {False: [], True: []}, []
            for _ in range(options.turns):
                for checkpointing in most:
                    held, of_steps = measure(folder, data, task, batch, model, checkpointing)
                    most[checkpointing].append(held / 2**20)
                    losses.append(of_steps)
            off, on = (f"{statistics.median(held):.0f} ({min(held):.0f}-{max(held):.0f})" for held in most.values())
            same = "the same" if all(of_steps == losses[0] for of_steps in losses) else f"different: {losses}"
            print(f"{row}: {off} MiB, with checkpointing {on}, losses {same}", flush=True)


main()

"""Do two commits train the same, to the bit? Bits depend on the CPU, so nothing is committed to compare with: the other
commit is built here.

usage: compare_commits.py COMMIT [--quick]
   or: compare_commits.py --binary PATH [--quick]

Builds COMMIT in a worktree of its own (the compiler's cache makes that quick), runs Algorithm Distillation in both modes and
with both losses, in fp32 and bf16, with and without dropout and accumulation, at world sizes 1, 2 and 4, and compares each
line of the records and every byte of the exported weights. Exit code 1 when something differs.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import harness  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402


def build(commit, directory):
    """The trainer of another commit."""
    tree = directory / "tree"
    subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], cwd=ROOT, check=True, capture_output=True)
    try:
        subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, capture_output=True)
        subprocess.run(["cmake", "--build", "--preset", "release", "--target", "trainyard"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
        binary = directory / "trainyard"
        binary.write_bytes((tree / "build/release/bin/trainyard").read_bytes())
        binary.chmod(0o755)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True, capture_output=True)
    return binary


def cases(quick):
    for mode, loss in itertools.product(("standard", "compressed"), ("last_position", "every_position")):
        for precision, dropout, accumulation in (("fp32", 0.1, 1), ("fp32", 0, 3), ("bf16", 0.1, 1)):
            for world in (1, 2, 4):
                if quick and (world == 4 or precision == "bf16"):
                    continue
                yield mode, loss, precision, dropout, accumulation, world


def train(binary, directory, data, case):
    """Records without the attempt's number, and weights."""
    mode, loss, precision, dropout, accumulation, world = case
    config = harness.merged(
        harness.SMALL,
        task={"mode": mode, "loss": loss},
        model={"context": 164 if mode == "compressed" else 24, "dropout": dropout},
        data={"path": str(data)},
        batch={"global": 12, "micro": 12 // world // accumulation},
        train={"steps": 12, "eval_every": 5},
        schedule={"name": "cosine", "warmup": 3},
        precision={"compute": precision},
        checkpoint={"every": 4},
        run={"dir": str(directory)},
    )
    path = harness.write_config(directory.with_suffix(".json"), config)
    record = directory.with_suffix(".jsonl")
    result = subprocess.run([str(binary), "launch", "--nproc", str(world), "--config", str(path), "--record", str(record)],
                            capture_output=True, text=True, timeout=600, env=harness.environment(), check=False)
    if result.returncode != 0:
        sys.exit(f"{binary} ended with {result.returncode}:\n{result.stderr}")
    return harness.records(record), load_file(directory / "export" / "model.safetensors")


def difference(first, second):
    """What differs first, or nothing."""
    for a, b in zip(first[0], second[0]):
        if a != b:
            return f"step {a['step']}: {json.dumps({k: (a[k], b[k]) for k in a if a[k] != b.get(k)})}"
    if len(first[0]) != len(second[0]) or set(first[1]) != set(second[1]):
        return "other steps or other tensors"
    unequal = [k for k in first[1] if first[1][k].tobytes() != second[1][k].tobytes()]
    return f"weights {unequal[:3]}" if unequal else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--binary", help="an already built trainer to compare with")
    parser.add_argument("--quick", action="store_true", help="worlds 1 and 2, fp32")
    options = parser.parse_args()
    if (options.commit is None) == (options.binary is None):
        parser.error("name a commit, or --binary PATH")
    ours = pathlib.Path(os.environ.get("TRAINYARD_BIN", ROOT / "build/release/bin/trainyard")).resolve()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        other = pathlib.Path(options.binary).resolve() if options.binary else build(options.commit, directory)
        data = harness.synth(directory / "data")
        different = 0
        for i, case in enumerate(cases(options.quick)):
            found = difference(train(other, directory / f"other-{i}", data, case), train(ours, directory / f"ours-{i}", data, case))
            print(f"{'differs' if found else 'equal':8} mode {case[0]}, {case[1]}, {case[2]}, dropout {case[3]}, accumulation {case[4]}, world {case[5]}" + (f": {found}" if found else ""), flush=True)
            different += bool(found)
    print(f"{different} cases differ" if different else "every record and every weight is equal, to the bit")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

"""Samples per second of reading, decoding and transforming volumes, beside MONAI on the same files and threads; and how long a step waits while a window is replaced.

    LD_LIBRARY_PATH=$(cmake/deps.sh --stubs) $(cmake/deps.sh --python) tests/bench/imaging.py build/release/bin/imaging_pipeline

The volumes are those of workload 2: int16 in .nii.gz, smooth tissue with noise in it, made here. MONAI's chain is its own LoadImage, ScaleIntensityRange and Resize (area) under
ThreadDataLoader's and DataLoader's kind of workers: threads of a pool, as its transforms release the interpreter's lock in zlib and PyTorch, and processes.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import subprocess
import sys
import tempfile
import time

import nibabel
import numpy as np

SIZE = (64, 64, 32)


def make(folder, count, shape):
    rng = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"))
    files = []
    for i in range(count):
        body = 40 - 1040 * ((grid * rng.uniform(1, 1.4, (3, 1, 1, 1))) ** 2).sum(0).clip(0, 1)
        volume = (body + rng.normal(size=shape) * 15).astype(np.int16)
        files.append(str(folder / f"{i:03}.nii.gz"))
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), files[-1])
    return files


def monai_chain():
    import torch
    from monai.transforms import Compose, EnsureChannelFirst, LoadImage, Resize, ScaleIntensityRange

    torch.set_num_threads(1)
    return Compose([LoadImage(image_only=True), EnsureChannelFirst(), ScaleIntensityRange(-1000, 1000, 0, 1, clip=True), Resize(SIZE, mode="area")])


def _begin():
    global chain
    chain = monai_chain()


def _one(file):
    return float(chain(file).sum())


def monai_rate(files, workers, seconds, processes):
    pool = concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin) if processes else concurrent.futures.ThreadPoolExecutor(workers)
    if not processes:
        _begin()
    with pool:
        list(pool.map(_one, files[: 2 * workers]))  # imports and first calls
        start, done = time.monotonic(), 0
        while time.monotonic() - start < seconds:
            done += len(list(pool.map(_one, files)))
        return done / (time.monotonic() - start)


def ours(program, **request):
    return json.loads(subprocess.run([program], input=json.dumps(request), capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--shape", type=int, nargs=3, default=(192, 192, 48))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        files = make(folder, args.files, tuple(args.shape))
        print(f"{len(files)} files of {args.shape} int16, {sum(pathlib.Path(f).stat().st_size for f in files) / len(files) / 1e6:.1f} MB each, to {SIZE}; {args.threads} threads")
        print("decompression  ", json.dumps(ours(args.program, what="decompress", files=files, size=SIZE, threads=1)))
        for _ in range(args.rounds):
            mine = ours(args.program, what="rate", files=files, size=SIZE, threads=args.threads, seconds=args.seconds)
            print("trainyard      ", json.dumps({key: round(value, 2) for key, value in mine.items()}))
            for processes in (False, True):
                print(f"MONAI {'processes' if processes else 'threads  '}", round(monai_rate(files, args.threads, args.seconds, processes), 2), "samples/s")
        wait = ours(args.program, what="wait", files=files, size=SIZE, threads=args.threads, folder=str(folder / "cache"), rate=0.5, replace=0.5, batch=2, epochs=30, step_ms=100)
        print("wait           ", json.dumps(wait))
        return 0 if wait["wait_ms_p99"] < 1 else f"p99 of the wait is {wait['wait_ms_p99']:.3f} ms; expected below 1"


if __name__ == "__main__":
    sys.exit(main())

"""The programs in docs/your-own-program.md, run as a user runs them: by `local`, with PyTorch's own start of ranks."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPERATOR = os.environ.get("TRAINYARD_OPERATOR_BIN", "build/release/bin/trainyard-operator")
JOBS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/your-own-program.md").read_text(), re.DOTALL)
# Two ranks sum 1 + 2, four sum 1 to 4.
EXPECTED = {"plain": ["rank 0 of 2: sum 3"], "torchrun": ["rank 0 of 4: sum 10", "rank 1 of 4: sum 10"]}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_of_the_page(tmp_path, name):
    job = tmp_path / "job.yaml"
    job.write_text(next(text for text in JOBS if f"name: {name}}}" in text))
    # The image's python3 is this one here, which has PyTorch.
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", TMPDIR=str(tmp_path))
    run = subprocess.run([OPERATOR, "local", "-f", job, "--state-dir", tmp_path / "state"], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    for line in EXPECTED[name]:
        assert line in run.stderr, run.stderr

"""What the pages tell a reader to type is typed: every block marked `run: local` (pages.py), page by page, in an empty folder.

Rules that make it short; docs/testing.md has them as well:
- manifests/ in that folder is a copy in which the examples train SHORT_STEPS steps, and so do the page's own files.
- `make demo` is the target's last line, tests/demo.sh, on that copy; nothing is built. `make test` is what runs this, and is not run again.
- python3 is the tests' own, which has PyTorch.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import harness
import pages
import shell

SHORT_STEPS = 40
IN_EVERY_RUN = ("README", "quickstart")  # what a new reader types; `make test-thorough` types the others, too
BIN = pathlib.Path(harness.OPERATOR).resolve().parent
WITH_COMMANDS = [page for page in pages.all_pages() if any(block.kind == "local" for block in pages.blocks_of(page))]
JOBS = [block for page in pages.all_pages() for block in pages.blocks_of(page) if re.search(r"^kind: TrainingJob$", block.code, re.M)]


def shortened(text):
    """An example that trains for seconds."""
    if "eval_episodes:" not in text:
        text = text.replace("name: algorithm_distillation", "name: algorithm_distillation, eval_episodes: 40")
    text = re.sub(r"\bsteps: \d+", f"steps: {SHORT_STEPS}", text)
    text = re.sub(r"\bevery: \d+", f"every: {SHORT_STEPS // 2}", text)
    text = re.sub(r"\bwarmup: \d+", "warmup: 5", text)
    return re.sub(r"\beval_episodes: \d+", "eval_episodes: 4, eval_plays: 2", text)


def write_program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path):
    """What a reader has before the first command: the programs, the manifests, and for the README the built tree."""
    shutil.copytree(pages.ROOT / "manifests", tmp_path / "manifests")
    for example in (tmp_path / "manifests/examples").rglob("*.yaml"):
        example.write_text(shortened(example.read_text()))
    (tmp_path / "build/release").mkdir(parents=True)
    (tmp_path / "build/release/bin").symlink_to(BIN)
    (tmp_path / "tests").mkdir()
    shutil.copy(pages.ROOT / "tests/demo.sh", tmp_path / "tests")
    write_program(tmp_path / ".programs/python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    write_program(tmp_path / ".programs/make", '#!/bin/sh\ncase "$*" in\n  demo) exec tests/demo.sh ;;\n  test) ;;\n  *) echo "make $* is not typed here" >&2; exit 2 ;;\nesac\n')
    return tmp_path


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_the_commands_of(page, folder):
    if not harness.THOROUGH and page.stem not in IN_EVERY_RUN:
        pytest.skip("make test-thorough types it")
    path = f"{folder / '.programs'}:{BIN}:{os.environ['PATH']}"
    environment = harness.environment(PATH=path, HOME=folder, TMPDIR=folder / "tmp", LD_LIBRARY_PATH=os.environ.get("LD_LIBRARY_PATH", ""))
    (folder / "tmp").mkdir()
    missing = shell.run_page(pages.blocks_of(page), "local", folder, environment, shortened)
    if missing:
        pytest.skip(f"what needs {', '.join(missing)} was left out: not on PATH; `make test-cluster` builds kubectl and types it")


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_of_a_page_is_valid(job, tmp_path):
    (tmp_path / "job.yaml").write_text(job.code)
    result = subprocess.run([harness.OPERATOR, "validate", "-f", tmp_path / "job.yaml"], capture_output=True, text=True, timeout=60, env=harness.environment())
    assert result.returncode == 0, f"{job.name}: {result.stdout}{result.stderr}"


def test_make_demo_is_what_is_typed_for_it():
    recipe = (pages.ROOT / "Makefile").read_text().split("\ndemo:")[1].split("\n\n")[0].splitlines()[1:]
    assert [line.strip("\t@") for line in recipe][-1] == "tests/demo.sh" and all("cmake --build" in line for line in recipe[:-1])

"""docs/adding-a-task.md, followed literally: its code was taken from the page and built into a trainer of its own."""

import json
import os
import pathlib
import random
import re
import subprocess

import pytest

import harness

BIN = os.environ.get("TRAINYARD_PAGE_BIN", "build/release/bin/trainyard-of-the-page")
PAGE = pathlib.Path(__file__).parent.parent.parent / "docs" / "adding-a-task.md"


def trainyard(*args):
    return subprocess.run([BIN, *map(str, args)], capture_output=True, text=True, timeout=120, env=harness.environment(), check=False)


def test_the_page_makes_a_task_that_trains(tmp_path):
    seed = 7
    print(f"seed {seed}")
    rng = random.Random(seed)
    noise = 0.05
    points = [(x, 2 * x - 0.5 * x * x + rng.gauss(0, noise)) for x in (rng.uniform(-1, 1) for _ in range(500))]
    (tmp_path / "points.txt").write_text("".join(f"{x} {y}\n" for x, y in points))
    yaml = re.search(r"--config line.yaml\n\n```yaml\n(.*?)```", PAGE.read_text(), re.S).group(1)
    config = tmp_path / "line.yaml"
    config.write_text(yaml.replace("points.txt", str(tmp_path / "points.txt")))
    losses = []
    for world in (1, 2):
        result = trainyard("launch", "--nproc", world, "--config", config, "--set", f"run.dir={tmp_path / str(world)}", "--record", tmp_path / f"{world}.jsonl")
        assert result.returncode == 0, result.stderr
        # The noise's variance, and three standard errors of it over 50 points: 0.0025 (1 + 3 sqrt(2 / 50)) is 0.004; what the fit itself adds is less.
        assert json.loads((tmp_path / str(world) / "evaluation.json").read_text())["metrics"]["test/mse"] < 0.005
        losses.append([line["loss"] for line in harness.records(tmp_path / f"{world}.jsonl")])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)  # 400 steps amplify sums in another order


def test_the_page_makes_a_task_that_explains_itself(tmp_path):
    assert "line " in trainyard("tasks").stdout
    assert "`model.hidden`" in trainyard("config-reference").stdout
    result = trainyard("launch", "--config", "/dev/null", "--set", "task.name=line", "--set", "train.steps=1", "--set", f"data.path={tmp_path}", "--set", "model.hiden=3")
    assert result.returncode == 64 and "did you mean model.hidden?" in result.stderr
    (tmp_path / "few").write_text("1 2\nx y\n")
    result = trainyard("launch", "--config", "/dev/null", "--set", "task.name=line", "--set", "train.steps=1", "--set", f"data.path={tmp_path / 'few'}", "--set", f"run.dir={tmp_path / 'run'}")
    assert result.returncode == 65 and "expected at least ten lines of two numbers" in result.stderr


def test_the_page_is_short():
    code = "".join(re.findall(r"^```cpp\n// trainer[^\n]*\n(.*?)^```$", PAGE.read_text(), re.M | re.S))
    assert len([line for line in code.splitlines() if line.strip()]) < 150  # blank lines do not count

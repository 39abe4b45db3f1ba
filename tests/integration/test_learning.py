"""Tasks learn what there is to learn in data whose truth is known, and no more: the recorded runs of docs/benchmarks.md, with their controls.

Minutes to half an hour each on two cores: `TRAINYARD_THOROUGH=1` runs them.
"""

import csv
import json
import pathlib
import random

import harness
import pytest
import yaml

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "manifests/examples"
pytestmark = pytest.mark.skipif(not harness.THOROUGH, reason="trains for up to half an hour; TRAINYARD_THOROUGH=1 runs it")


def train(tmp_path, name, data, run, **sections):
    """The metrics of the last evaluation of an example's configuration."""
    config = yaml.safe_load((EXAMPLES / f"{name}.config.yaml").read_text())
    config = harness.merged(config, data={"path": str(data)}, run={"dir": str(tmp_path / run)})
    path = harness.write_config(tmp_path / f"{run}.json", harness.merged(config, **sections))
    result = harness.run("launch", "--nproc", 2, "--config", path, timeout=7200)
    assert result.returncode == 0, result.stderr
    return json.loads((tmp_path / run / "evaluation.json").read_text())["metrics"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    path = tmp_path_factory.mktemp("cohort") / "data"
    result = harness.run("synth", "mace_survival", "--size", "small", "--out", path, timeout=1800)
    assert result.returncode == 0, result.stderr
    return path


def permuted(cohort, path, seed):
    """The cohort, with the outcomes of its training fold dealt out anew: (time, event) stay pairs, and the other fold as it is."""
    path.mkdir()
    for name in ("images", "truth.csv"):
        (path / name).symlink_to(cohort / name)
    with (cohort / "dataset.csv").open() as file:
        reader = csv.DictReader(file)
        columns, rows = reader.fieldnames, list(reader)
    train = [row for row in rows if row["Fold_1"] == "train"]
    outcomes = [(row["time"], row["event"]) for row in train]
    random.Random(seed).shuffle(outcomes)
    for row, (time, event) in zip(train, outcomes, strict=True):
        row["time"], row["event"] = time, event
    with (path / "dataset.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path

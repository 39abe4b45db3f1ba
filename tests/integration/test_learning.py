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
PERMUTATIONS = 4
WITHOUT_PRETRAINING = {"task": {"pretrain_epochs": 0}, "train": {"epochs": 3, "eval_every": 0}}
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


def test_mace_survival_comes_close_to_the_true_risk(tmp_path, cohort):
    metrics = train(tmp_path, "mace-survival-small", cohort, "run")
    assert metrics["Val/Cindex"] >= metrics["Val/Cindex_oracle"] - 0.05


def test_mace_survival_learns_nothing_from_permuted_outcomes(tmp_path, cohort):
    """What is learnt then is a direction of the volumes' differences taken at random, which may lie along the risk or against it: of many the mean is one half."""
    of = []
    for seed in range(PERMUTATIONS):
        data = permuted(cohort, tmp_path / f"data{seed}", seed)
        of.append(train(tmp_path, "mace-survival-small", data, f"run{seed}", **WITHOUT_PRETRAINING)["Val/Cindex"])
    assert sum(of) / len(of) == pytest.approx(0.5, abs=0.03), of


def test_hybrid_vit_cascade_draws_what_the_xrays_show(tmp_path_factory, tmp_path):
    data = tmp_path_factory.mktemp("thorax") / "data"
    result = harness.run("synth", "hybrid_vit_cascade", "--size", "small", "--out", data, timeout=1800)
    assert result.returncode == 0, result.stderr
    metrics = train(tmp_path, "hybrid-vit-cascade-small", data, "run")
    first = at_the_end_of_stage_one(tmp_path / "run")
    assert first["val/psnr"] >= first["val/psnr_of_mean"] + 1
    assert metrics["val_all/psnr"] > metrics["val_all/psnr_of_previous"] and metrics["val_all/psnr"] > metrics["val_all/psnr_of_mean"] + 1
    assert metrics["val_all/psnr_shuffled"] <= metrics["val_all/psnr_of_mean"]
    assert metrics["test/psnr_shuffled"] <= metrics["test/psnr_of_mean"]


def at_the_end_of_stage_one(run):
    """The metrics of its last evaluation."""
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [record for record in records if "val/psnr" in record and "val/psnr_of_previous" not in record][-1]

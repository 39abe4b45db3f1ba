"""Tasks learn what there is to learn in data whose truth is known, and no more: the recorded runs of docs/benchmarks.md, with their controls.

Minutes to half an hour each on two cores: `TRAINYARD_THOROUGH=1` runs them.
"""

import csv
import json
import pathlib
import random
import statistics

import harness
import pytest
import yaml

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "manifests/examples"
PERMUTATIONS = 12
WITHOUT_PRETRAINING = {"task": {"pretrain_epochs": 0}, "train": {"epochs": 3, "eval_every": 0}}
pytestmark = pytest.mark.skipif(not harness.THOROUGH, reason="trains for up to half an hour; TRAINYARD_THOROUGH=1 runs it")


def train(directory, name, data, **sections):
    """The metrics of the last evaluation of an example's configuration, which runs in `directory`."""
    config = yaml.safe_load((EXAMPLES / f"{name}.config.yaml").read_text())
    config = harness.merged(config, data={"path": str(data)}, run={"dir": str(directory)})
    path = harness.write_config(directory.with_suffix(".json"), harness.merged(config, **sections))
    result = harness.run("launch", "--nproc", 2, "--config", path, timeout=7200)
    assert result.returncode == 0, result.stderr
    return json.loads((directory / "evaluation.json").read_text())["metrics"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    path = tmp_path_factory.mktemp("cohort") / "data"
    result = harness.run("synth", "mace_survival", "--size", "small", "--out", path, timeout=1800)
    assert result.returncode == 0, result.stderr
    return path


def permuted(cohort, path, seed):
    """The cohort, with the outcomes of each fold dealt out anew among its subjects: (time, event) stay pairs."""
    path.mkdir()
    for name in ("images", "truth.csv"):
        (path / name).symlink_to(cohort / name)
    with (cohort / "dataset.csv").open() as file:
        reader = csv.DictReader(file)
        columns, rows = reader.fieldnames, list(reader)
    shuffle = random.Random(seed).shuffle
    for fold in ("train", "val"):
        subjects = [row for row in rows if row["Fold_1"] == fold]
        outcomes = [(row["time"], row["event"]) for row in subjects]
        shuffle(outcomes)
        for row, (time, event) in zip(subjects, outcomes, strict=True):
            row["time"], row["event"] = time, event
    with (path / "dataset.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_mace_survival_comes_close_to_the_true_risk(tmp_path, cohort):
    metrics = train(tmp_path / "run", "mace-survival-small", cohort)
    assert metrics["Val/Cindex"] >= metrics["Val/Cindex_oracle"] - 0.05


def test_mace_survival_learns_nothing_from_permuted_outcomes(tmp_path, cohort):
    """Over permutations, each with first weights of its own. Of one the C-index is anywhere around one half, as of 38 events dealt out to 390 subjects (a
    deviation of 0.05); of the mean of twelve 0.03 are two standard errors. With the true outcomes as many epochs come to 0.70."""
    of = []
    for seed in range(PERMUTATIONS):
        data = permuted(cohort, tmp_path / f"data{seed}", seed)
        of.append(train(tmp_path / f"run{seed}", "mace-survival-small", data, **WITHOUT_PRETRAINING, run={"seed": seed})["Val/Cindex"])
    print("C-indices", [round(each, 3) for each in of], "standard error of the mean", round(statistics.stdev(of) / len(of) ** 0.5, 3))
    assert sum(of) / len(of) == pytest.approx(0.5, abs=0.03), of


def test_hybrid_vit_cascade_draws_what_the_xrays_show(tmp_path_factory, tmp_path):
    data = tmp_path_factory.mktemp("thorax") / "data"
    result = harness.run("synth", "hybrid_vit_cascade", "--size", "small", "--out", data, timeout=1800)
    assert result.returncode == 0, result.stderr
    metrics = train(tmp_path / "run", "hybrid-vit-cascade-small", data)
    first = at_the_end_of_stage_one(tmp_path / "run")
    assert first["val/psnr"] >= first["val/psnr_of_mean"] + 1
    assert metrics["val_all/psnr"] > metrics["val_all/psnr_of_previous"] and metrics["val_all/psnr"] > metrics["val_all/psnr_of_mean"] + 1
    assert metrics["val_all/psnr_shuffled"] <= metrics["val_all/psnr_of_mean"]
    assert metrics["test/psnr_shuffled"] <= metrics["test/psnr_of_mean"]


def at_the_end_of_stage_one(run):
    """The metrics of its last evaluation."""
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [record for record in records if "val/psnr" in record and "val/psnr_of_previous" not in record][-1]

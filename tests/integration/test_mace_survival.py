"""mace_survival: what is said of bad tables and volumes, its stages, its data, its cache, and the example as `local` runs it."""

import csv
import gzip
import json
import os
import pathlib
import shutil
import subprocess

import harness
import nibabel
import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "manifests/examples/mace-survival.yaml"


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    path = tmp_path_factory.mktemp("cohort") / "data"
    result = harness.run("synth", "mace_survival", "--size", "tiny", "--out", path)
    assert result.returncode == 0, result.stderr
    return path


def rows_of(data):
    with (data / "dataset.csv").open() as file:
        reader = csv.DictReader(file)
        return reader.fieldnames, list(reader)


def write(data, columns, rows):
    with (data / "dataset.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def launch(tmp_path, folder, name="run", nproc=1, fault=None, **sections):
    job = harness.merged(harness.SMALL_MACE_SURVIVAL, data={"path": str(folder)}, run={"dir": str(tmp_path / name)})
    config = harness.write_config(tmp_path / f"{name}.json", harness.merged(job, **sections))
    extra = {"TRAINYARD_TEST_FAULT": fault} if fault else {}
    return harness.run("launch", "--nproc", nproc, "--config", config, "--record", tmp_path / f"{name}.jsonl", timeout=240, **extra)


def first_of(rows, fold):
    return next(i for i, row in enumerate(rows) if row["Fold_1"] == fold)


def voxels(change):
    """Changes the decompressed bytes of a volume."""

    def apply(path):
        path.write_bytes(gzip.compress(change(bytearray(gzip.decompress(path.read_bytes())))))

    return apply


def set_dim(content, values):
    for i, value in enumerate(values):
        content[40 + 2 * i : 42 + 2 * i] = value.to_bytes(2, "little")
    return content


def truncate(path):
    path.write_bytes(path.read_bytes()[:-200])


def cell(column, value):
    def apply(columns, rows, i):
        rows[i][column] = value
        return columns

    return apply


BAD_TABLES = {
    "missing column": (lambda columns, rows, i: [c for c in columns if c != "event"], ["event"]),
    "missing image column": (lambda columns, rows, i: [c for c in columns if c != "NIFTI Path"], ["NIFTI Path"]),
    "unknown fold": (cell("Fold_1", "valid"), ["LINE", "Fold_1", "valid", "train", "val"]),
    "NaN time": (cell("time", "nan"), ["LINE", "time", "nan"]),
    "time of zero": (cell("time", "0"), ["LINE", "time", "0 days"]),
    "time without an end": (cell("time", "1e39"), ["LINE", "time", "1e+39 days", "at most 1e+06"]),
    "a feature that no float holds": (cell("Age", "1e39"), ["LINE", "Age", "1e+39 is too large"]),
    "event of two": (cell("event", "2"), ["LINE", "event", "2"]),
    "a feature that is no number": (cell("Age", "old"), ["LINE", "Age", "old"]),
    "no file": (cell("NIFTI Path", "images/none.nii.gz"), ["LINE", "NIFTI Path", "images/none.nii.gz: no such file"]),
    "a folder": (cell("NIFTI Path", "images"), ["LINE", "NIFTI Path", "images: not a regular file"]),
    "no file's name": (cell("NIFTI Path", ""), ["LINE", "NIFTI Path", "empty"]),
    "a feature too few": (lambda columns, rows, i: [c for c in columns if c != "Age"], ["71 columns are features", "model.features is 72"]),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_a_bad_table_is_named_with_its_line(tmp_path, cohort, kind):
    spoil, words = BAD_TABLES[kind]
    data = tmp_path / "data"
    data.mkdir()
    (data / "images").symlink_to(cohort / "images")
    columns, rows = rows_of(cohort)
    i = first_of(rows, "train")
    write(data, spoil(columns, rows, i), rows)
    result = launch(tmp_path, data)
    assert result.returncode == 65, result.stderr
    for word in ["dataset.csv", *words]:
        assert word.replace("LINE", f"line {i + 2}") in result.stderr, result.stderr


def test_a_feature_that_has_no_square_is_refused(tmp_path, cohort):
    """Scaled, it would be 1e25: Val/FeatureLoss was infinite from the first evaluation to the last. One that all but one share to the last digit is none."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "images").symlink_to(cohort / "images")
    columns, rows = rows_of(cohort)
    i = first_of(rows, "val")
    for row in rows:
        row["Age"] = "0"
    rows[first_of(rows, "train")]["Age"] = "1e-45"
    write(data, columns, rows)
    assert (result := launch(tmp_path, data, "tiny")).returncode == 0, result.stderr
    rows[i]["isFemale"] = "1e25"
    write(data, columns, rows)
    result = launch(tmp_path, data)
    assert result.returncode == 65 and f"line {i + 2}" in result.stderr and "isFemale" in result.stderr and "1e+25 deviations" in result.stderr, result.stderr


BAD_VOLUMES = {
    "truncated": (truncate, "train"),
    "truncated, evaluated": (truncate, "val"),
    "empty": (lambda path: path.write_bytes(b""), "train"),
    "no voxels": (voxels(lambda content: set_dim(content, [3, 0, 24, 12])), "train"),
    "of another shape": (voxels(lambda content: set_dim(content, [2, 24, 24 * 12, 1])), "train"),
}


@pytest.mark.parametrize("kind", BAD_VOLUMES)
def test_a_bad_volume_is_named_with_its_line(tmp_path, cohort, kind):
    """The whole fold is one batch, so that training comes to it."""
    spoil, fold = BAD_VOLUMES[kind]
    data = tmp_path / "data"
    shutil.copytree(cohort, data)
    _, rows = rows_of(data)
    i = first_of(rows, fold)
    spoil(data / rows[i]["NIFTI Path"])
    result = launch(tmp_path, data, task={"pretrain_epochs": 0, "event_fraction": None}, batch={"global": 64}, train={"steps": 1})
    assert result.returncode == 65, result.stderr
    for word in ("dataset.csv", f"line {i + 2}", rows[i]["NIFTI Path"]):
        assert word in result.stderr, result.stderr


def test_a_fold_in_which_nothing_can_be_measured_is_refused(tmp_path, cohort):
    data = tmp_path / "data"
    data.mkdir()
    (data / "images").symlink_to(cohort / "images")
    columns, rows = rows_of(cohort)
    for row in rows:
        if row["Fold_1"] == "val":
            row["event"] = "0"
    write(data, columns, rows)
    result = launch(tmp_path, data)
    assert result.returncode == 65 and "fold val" in result.stderr, result.stderr


@pytest.mark.parametrize("link", ["symbolic", "hard", "another path"])
def test_a_file_of_both_folds_is_refused_whatever_leads_to_it(tmp_path, cohort, link):
    data = tmp_path / "data"
    shutil.copytree(cohort, data)
    columns, rows = rows_of(data)
    train, val = first_of(rows, "train"), first_of(rows, "val")
    image = data / rows[train]["NIFTI Path"]
    other = data / "images" / "other.nii.gz"
    if link == "symbolic":
        other.symlink_to(image)
    elif link == "hard":
        other.hardlink_to(image)
    else:
        (tmp_path / "mirror").symlink_to(data)
        other = tmp_path / "mirror" / rows[train]["NIFTI Path"]
    rows[val]["NIFTI Path"] = str(other)
    write(data, columns, rows)
    result = launch(tmp_path, data)
    assert result.returncode == 65 and f"in line {train + 2} of the fold train" in result.stderr, result.stderr


def test_a_window_that_is_none_in_float32_is_refused(tmp_path, cohort):
    for window in ([-1e39, 1e39], [-1000.00001, -1000], [5, 5]):
        result = launch(tmp_path, cohort, data={"window": window})
        assert result.returncode == 64 and "data.window" in result.stderr, (window, result.stderr)


def test_too_few_subjects_to_measure_anything_are_refused(tmp_path):
    result = harness.run("synth", "mace_survival", "--size", "small", "--subjects", 10, "--out", tmp_path / "few")
    assert result.returncode == 64 and "--subjects: of the" in result.stderr and "expected more" in result.stderr, result.stderr
    assert not (tmp_path / "few" / "dataset.csv").exists()


def test_the_volumes_say_how_the_patient_lies(cohort):
    """From the patient's right, front and top, about the middle: what a viewer and MONAI's Orientation go by."""
    image = nibabel.load(min((cohort / "images").glob("*.nii.gz")))
    assert nibabel.aff2axcodes(image.affine) == ("L", "P", "I")
    middle = (np.array(image.shape) - 1) / 2
    assert np.allclose(nibabel.affines.apply_affine(image.affine, middle), 0, atol=1e-3)  # float32 of some 100 mm
    assert np.allclose(np.array(image.shape) * image.header.get_zooms(), [200, 200, 120], atol=1e-3)


def test_synthetic_data_has_the_same_bytes_for_any_threads(tmp_path):
    contents = []
    for threads in (1, 3):
        out = tmp_path / str(threads)
        result = harness.run("synth", "mace_survival", "--size", "tiny", "--subjects", 20, "--out", out, "--threads", threads)
        assert result.returncode == 0, result.stderr
        contents.append({str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()})
    assert contents[0] == contents[1] and len(contents[0]) == 20 + 4


def test_a_frozen_network_stays_as_it_is(tmp_path, cohort):
    """64 subjects in batches of 16: an epoch is four steps, so that stages begin after steps 4 and 8."""
    stages = {"task": {"pretrain_epochs": 1, "freeze_epochs": 1}, "train": {"steps": 9}, "checkpoint": {"every": 1, "keep_last": 9}}
    result = launch(tmp_path, cohort, **stages)
    assert result.returncode == 0, result.stderr
    weights = {}
    for step in (4, 8, 9):
        out = tmp_path / f"{step}.safetensors"
        exported = harness.run("checkpoint", "export", tmp_path / f"run/checkpoints/step-{step:08d}", "--out", out)
        assert exported.returncode == 0, exported.stderr
        weights[step] = load_file(out)
    changed = {name for name in weights[4] if weights[4][name].tobytes() != weights[8][name].tobytes()}
    # Cox's partial likelihood does not see what is added to every risk: the gradient of fc.bias is a sum's rounding, on some processors zero.
    assert changed - {"fc.bias"} == {"fc.weight"}, "running statistics stay as well"
    assert weights[8]["conv1.weight"].tobytes() != weights[9]["conv1.weight"].tobytes()
    assert weights[8]["features.weight"].tobytes() == weights[9]["features.weight"].tobytes()
    assert (weights[9]["scaling.deviation"] > 0).all()


def test_a_volume_that_training_skips_ends_no_evaluation(tmp_path, cohort):
    """The last evaluation reads the training fold as well. One of the val fold is no such: a metric over the others would be another one."""
    for fold, code in (("train", 0), ("val", 65)):
        data = tmp_path / fold
        shutil.copytree(cohort, data)
        _, rows = rows_of(data)
        truncate(data / rows[first_of(rows, fold)]["NIFTI Path"])
        result = launch(tmp_path, data, f"run-{fold}", nproc=2, task={"pretrain_epochs": 0}, train={"steps": 5}, faults={"bad_sample": "skip"})
        assert result.returncode == code, result.stderr
        output = result.stderr + "".join(log.read_text() for log in (tmp_path / f"run-{fold}/logs").glob("*.log"))
        assert ("left out of the baseline hazard" in output) == (fold == "train"), output
    evaluation = json.loads((tmp_path / "run-train/evaluation.json").read_text())
    assert all(value is not None for value in evaluation["metrics"].values()), evaluation["metrics"]


def test_a_feature_that_all_share_says_nothing(tmp_path, cohort):
    """130 for everyone is 0 when it is scaled; as it stands, its square would be the loss of pre-training."""
    losses = []
    for value in (None, "130"):
        data = tmp_path / str(value)
        data.mkdir()
        (data / "images").symlink_to(cohort / "images")
        columns, rows = rows_of(cohort)
        for row in rows if value else []:
            row["Age"] = value
        write(data, columns, rows)
        result = launch(tmp_path, data, f"run-{value}", train={"steps": 5, "eval_every": 1})
        assert result.returncode == 0, result.stderr
        losses.append(next(line["Val/FeatureLoss"] for line in map(json.loads, (tmp_path / f"run-{value}/log.jsonl").read_text().splitlines()) if "Val/FeatureLoss" in line))
    assert losses[1] < losses[0] * 1.1, losses


@pytest.mark.parametrize("separator, name", [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_are_named(tmp_path, separator, name):
    (tmp_path / "dataset.csv").write_text(separator.join(("NIFTI Path", "time", "event", "Fold_1")) + "\n" + separator.join(("a.nii", "1", "0", "train")) + "\n")
    result = launch(tmp_path, tmp_path)
    assert result.returncode == 65 and f"separated by {name}; expected commas" in result.stderr, result.stderr


def test_pre_training_alone_and_what_comes_of_it(tmp_path, cohort):
    """The guide's two scripts: the second one's run starts from the first one's export, whose second head it has not, however the ranks share the work."""
    alone = launch(tmp_path, cohort, "alone", task={"pretrain_epochs": 1}, train={"epochs": 1, "steps": None})
    assert alone.returncode == 0, alone.stderr
    export = tmp_path / "alone/export/model.safetensors"
    assert "of pre-training alone: nothing has trained the risk" in (tmp_path / "alone/evaluation.json").read_text()
    learnt = load_file(export)
    assert "features.weight" in learnt and not learnt["fc.bias"].any(), "a head that nothing has trained"
    second = {"task": {"pretrain_epochs": 0}, "init": {"from": str(export)}, "train": {"steps": 2}}
    records = {}
    for stage in ("ddp", "zero3"):
        result = launch(tmp_path, cohort, stage, nproc=2, parallel={"stage": stage}, **second)
        assert result.returncode == 0, result.stderr
        records[stage] = harness.records(tmp_path / f"{stage}.jsonl")
    assert records["ddp"] == records["zero3"]
    assert "features.weight" not in load_file(tmp_path / "ddp/export/model.safetensors")
    # And the other way round: weights without that head, as MONAI's are, are a start of pre-training.
    plain = str(tmp_path / "ddp/export/model.safetensors")
    for stage in ("ddp", "zero3"):
        result = launch(tmp_path, cohort, f"again-{stage}", nproc=2, parallel={"stage": stage}, task={"pretrain_epochs": 1}, init={"from": plain}, train={"epochs": 1, "steps": None})
        assert result.returncode == 0, result.stderr
        records[stage] = harness.records(tmp_path / f"again-{stage}.jsonl")
    assert records["ddp"] == records["zero3"]
    assert (load_file(tmp_path / "again-ddp/export/model.safetensors")["scaling.deviation"] > 0).all()
    assert "without features.weight, features.bias: they begin as run.seed has drawn them" in result.stderr, result.stderr
    # An evaluation measures no head that nobody has trained.
    job = harness.merged(harness.SMALL_MACE_SURVIVAL, data={"path": str(cohort)}, run={"dir": str(tmp_path / "eval")})
    refused = harness.run("eval", "--config", harness.write_config(tmp_path / "eval.json", job), "--checkpoint", plain)
    assert refused.returncode == 64 and "missing: scaling.mean, scaling.deviation, features.weight, features.bias" in refused.stderr, refused.stderr


def test_weights_without_their_statistics_are_not_evaluated(tmp_path, cohort):
    """As PyTorch's named_parameters() gives them: with a mean of 0 and a variance of 1 it would be another network. A run gathers its own."""
    trained = launch(tmp_path, cohort, "run", task={"pretrain_epochs": 0}, train={"steps": 2})
    assert trained.returncode == 0, trained.stderr
    whole = load_file(tmp_path / "run/export/model.safetensors")
    bare, statistics = tmp_path / "bare.safetensors", sorted(name for name in whole if name.endswith(("running_mean", "running_var")))
    save_file({name: value for name, value in whole.items() if name not in statistics and not name.endswith("num_batches_tracked")}, bare)
    job = harness.merged(harness.SMALL_MACE_SURVIVAL, data={"path": str(cohort)}, task={"pretrain_epochs": 0}, run={"dir": str(tmp_path / "eval")})
    config = harness.write_config(tmp_path / "eval.json", job)
    refused = harness.run("eval", "--config", config, "--checkpoint", bare)
    assert statistics and refused.returncode == 64 and "missing: " in refused.stderr and statistics[0] in refused.stderr, refused.stderr
    save_file({name: value for name, value in whole.items() if not name.endswith("num_batches_tracked")}, bare)
    assert harness.run("eval", "--config", config, "--checkpoint", bare).returncode == 0, "which nothing depends on"
    save_file({name: value for name, value in whole.items() if name not in statistics}, bare)
    started = launch(tmp_path, cohort, "started", task={"pretrain_epochs": 0}, init={"from": str(bare)}, train={"steps": 2})
    assert started.returncode == 0 and f"without {statistics[0]}" in started.stderr and "that has seen nothing" in started.stderr, started.stderr


def test_a_risk_is_known_up_to_a_constant(tmp_path, cohort):
    """exp(800) is no number, and the hazard that belongs to it is 0: what survival follows from is neither."""
    assert launch(tmp_path, cohort, "run", task={"pretrain_epochs": 0}, train={"steps": 2}).returncode == 0
    weights = load_file(tmp_path / "run/export/model.safetensors")
    job = harness.merged(harness.SMALL_MACE_SURVIVAL, data={"path": str(cohort)}, task={"pretrain_epochs": 0}, run={"dir": str(tmp_path / "eval")})
    config, shifted, metrics = harness.write_config(tmp_path / "eval.json", job), tmp_path / "shifted.safetensors", []
    for shift in (0, 800, -800):
        save_file({**weights, "fc.bias": weights["fc.bias"] + np.float32(shift)}, shifted)
        result = harness.run("eval", "--config", config, "--checkpoint", shifted)
        assert result.returncode == 0, result.stderr
        metrics.append(json.loads(result.stdout[result.stdout.index("\n{") :])["metrics"])
    for other in metrics[1:]:
        # Near 800 a float32 has steps of 6e-5; a squared error of S changes by at most 2 S |ln S| <= 0.74 of what the risk does.
        for score in ("Val/IBS", "Val/Brier@1y"):
            assert other[score] == pytest.approx(metrics[0][score], abs=5e-5), score


def test_a_batch_of_one_compares_nobody(tmp_path, cohort):
    result = launch(tmp_path, cohort, batch={"global": 1})
    assert result.returncode == 64 and "batch.global: 1 is not allowed; expected 2 or more" in result.stderr, result.stderr
    result = launch(tmp_path, cohort, batch={"global": 1}, task={"pretrain_epochs": 1}, train={"epochs": 1, "steps": None})
    assert result.returncode == 0, result.stderr


def test_a_shorter_run_has_no_stage_less_unsaid(tmp_path, cohort):
    """Its checkpoints are good: they are of a stage that the run would not have."""
    assert launch(tmp_path, cohort, train={"epochs": 2, "steps": None}, checkpoint={"every": 1}).returncode == 0
    shorter = launch(tmp_path, cohort, train={"epochs": 1, "steps": None}, checkpoint={"every": 1})
    assert shorter.returncode == 64 and "is of the run's stage 2, and with these the run has 1" in shorter.stderr, shorter.stderr


def test_pre_training_is_not_judged_by_the_risk(tmp_path, cohort):
    """Its C-index is a coin's: no best weights of it, and no early stop."""
    stages = {"task": {"pretrain_epochs": 1}, "train": {"steps": 6, "eval_every": 1, "early_stop": {"metric": "Val/Cindex", "patience": 1}}, "checkpoint": {"keep_best": "Val/Cindex"}}
    result = launch(tmp_path, cohort, **stages)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert max(line.get("step", 0) for line in lines) > 4, "steps 1 to 4 are pre-training's"
    assert [path.name for path in (tmp_path / "run/best").iterdir()] == ["finetune"]
    alone = {"task": {"pretrain_epochs": 1}, "train": {"epochs": 1, "steps": None, "eval_every": 1}}
    for watched in ({"checkpoint": {"keep_best": "Val/Cindex"}}, {"schedule": {"name": "plateau", "metric": "Val/Loss"}}):
        refused = launch(tmp_path, cohort, "refused", **alone, **watched)
        assert refused.returncode == 64 and "says nothing about what this run trains; allowed: Val/FeatureLoss" in refused.stderr, refused.stderr
    best = launch(tmp_path, cohort, "best", **alone, checkpoint={"keep_best": "Val/FeatureLoss"})
    assert best.returncode == 0 and (tmp_path / "best/best/model.safetensors").exists(), best.stderr


def outcome(tmp_path, name):
    """What no cache may change: each step's samples, inputs and loss, and the weights."""
    return harness.records(tmp_path / f"{name}.jsonl"), (tmp_path / name / "export/model.safetensors").read_bytes()


def hit_rates(tmp_path, name):
    lines = [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
    return [line["train/cache_hit_rate"] for line in lines if "train/cache_hit_rate" in line]


def test_a_cache_changes_no_bit_and_is_hit(tmp_path, cohort):
    """160 readings of 64 subjects, most of them flipped or turned, each in its own way at each reading."""
    cache = {"dir": str(tmp_path / "scratch")}
    for name, data in (("plain", {}), ("cached", {"cache": cache})):
        result = launch(tmp_path, cohort, name, data=data)
        assert result.returncode == 0, result.stderr
    assert outcome(tmp_path, "cached") == outcome(tmp_path, "plain")
    rates = hit_rates(tmp_path, "cached")
    assert len(rates) == 10 and rates[-1] > 0.4 and rates[-1] > rates[0]
    assert not hit_rates(tmp_path, "plain")
    kept = list((tmp_path / "scratch").glob("trainyard-cache-*/*.item"))
    assert len(kept) <= 64 and {file.stat().st_size for file in kept} == {4096 + 4 * 8 * 8 * 4}


def test_an_interrupted_window_goes_on(tmp_path, cohort):
    """32 of 64 subjects an epoch, of which 8 are replaced, in batches of 12: the interruption lies in the middle of the second window. Nothing that was kept is there any more."""
    job = {"task": {"pretrain_epochs": 0, "event_fraction": None}, "batch": {"global": 12}, "train": {"steps": 16}, "checkpoint": {"every": 1}}
    window = {"rate": 0.5, "replace": 0.25}

    def start(name, cache, **options):
        return launch(tmp_path, cohort, name, 2, data={"cache": window | cache}, **options, **job)

    whole = start("whole", {})
    assert whole.returncode == 0, whole.stderr
    assert start("broken", {"dir": str(tmp_path / "scratch")}, fault="forward:1:5").returncode == 70
    shutil.rmtree(tmp_path / "scratch")
    other = start("broken", {"rate": 0.75})
    assert other.returncode == 64 and "data.cache.rate: 0.5 there, 0.75 here" in other.stderr, other.stderr
    again = start("broken", {"dir": str(tmp_path / "elsewhere")})
    assert again.returncode == 0 and "resuming from" in again.stderr, again.stderr
    assert outcome(tmp_path, "broken") == outcome(tmp_path, "whole")

    stream = [sample for line in harness.records(tmp_path / "whole.jsonl") for sample in line["samples"]]
    windows = [set(stream[i : i + 32]) for i in range(0, 192, 32)]
    assert all(len(window) == 32 for window in windows)
    assert all(len(one & next) == 24 for one, next in zip(windows, windows[1:]))
    manifest = json.loads((tmp_path / "whole/checkpoints/step-00000016/manifest.json").read_text())
    assert manifest["cache"] == {"N": 32, "R": 8}


def test_windows_with_a_share_of_events(tmp_path, cohort):
    """Half of each batch has an event, and an epoch draws on its window alone; where a window has nobody with one, that is said."""
    _, rows = rows_of(cohort)
    events = [int(row["event"]) for row in rows if row["Fold_1"] == "train"]
    result = launch(tmp_path, cohort, task={"pretrain_epochs": 0}, data={"cache": {"rate": 0.5, "replace": 0.5}})
    assert result.returncode == 0, result.stderr
    batches = [line["samples"] for line in harness.records(tmp_path / "run.jsonl")]
    assert all(sum(events[sample] for sample in batch) == 8 for batch in batches)
    assert all(len(set(batches[i] + batches[i + 1])) > 16 for i in range(0, 10, 2))
    none = launch(tmp_path, cohort, "none", data={"cache": {"rate": 0.05}}, batch={"global": 2})
    assert none.returncode == 64 and "task.event_fraction" in none.stderr and "data.cache.rate" in none.stderr, none.stderr


def test_the_example_runs_on_this_machine(tmp_path):
    """With its two workers, to the end: every metric that the page promises."""
    path = f"{pathlib.Path(harness.BIN).resolve().parent}:{os.environ['PATH']}"
    environment = dict(harness.environment(), PATH=path, TMPDIR=str(tmp_path))
    result = subprocess.run([harness.OPERATOR, "local", "-f", EXAMPLE, "--state-dir", tmp_path / "state"], env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr
    (evaluation,) = (tmp_path / "state").rglob("evaluation.json")
    metrics = json.loads(evaluation.read_text())["metrics"]
    assert {"Val/Cindex", "Val/Loss", "Val/FeatureLoss", "Val/IBS", "Val/Brier@1y", "Val/tAUC@1y", "Train/Cindex", "Val/Cindex_oracle"} <= set(metrics)
    assert 0 <= metrics["Val/Cindex"] <= 1 and metrics["Val/Cindex_oracle"] > 0.6


def test_the_two_files_of_the_example_are_one():
    config = yaml.safe_load(EXAMPLE.with_suffix("").with_suffix(".config.yaml").read_text())
    job = list(yaml.safe_load_all(EXAMPLE.read_text()))[1]["spec"]["config"]
    assert harness.merged(config, data={"path": ""}) == harness.merged(job, data={"path": ""})


def test_a_batch_that_the_run_does_not_have_refuses_nothing(tmp_path, cohort):
    """batch.global: auto is 32 a rank, of 64 subjects: an epoch of pre-training is one step of two ranks, and two of one, which leave no other. What two
    ranks have begun one may end all the same."""
    automatic = {"batch": {"global": "auto"}, "train": {"steps": 2}}
    alone = launch(tmp_path, cohort, "alone", 1, **automatic)
    assert alone.returncode == 64 and "train.steps: 2 leaves the stage finetune no step" in alone.stderr, alone.stderr
    assert not (tmp_path / "alone").exists(), "what cannot begin writes nothing"
    broken = launch(tmp_path, cohort, "run", 2, fault="forward:1:1", checkpoint={"every": 1}, **automatic)
    assert broken.returncode == 70 and (tmp_path / "run" / "checkpoints" / "step-00000001").is_dir(), broken.stderr
    again = launch(tmp_path, cohort, "run", 1, checkpoint={"every": 1}, **automatic)
    assert again.returncode == 0 and "resuming from" in again.stderr, again.stderr
    own = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert own["step"] == 2
    for step, stage in ((1, "pretrain"), (2, "finetune")):
        result = harness.run("eval", "--config", tmp_path / "run.json", "--checkpoint", tmp_path / "run" / "checkpoints" / f"step-{step:08d}")
        assert result.returncode == 0 and f"is of the stage {stage} ({step} of 2); what that trains is judged by" in result.stderr, result.stderr
        assert json.loads(result.stdout[result.stdout.index("{"):])["stage"] == stage
    assert json.loads(result.stdout[result.stdout.index("{"):])["metrics"] == own["metrics"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="LibTorch computes with one thread where there is one CPU")
def test_only_the_step_has_a_team_of_threads(tmp_path, cohort):
    """One more OpenMP thread is one more: with a second team, as the loader's thread would have for its batches, libgomp lets no thread stay awake
    between the step's loops."""
    there = {}
    for threads in (1, 2):
        folder = tmp_path / str(threads)
        data = {"path": str(cohort), "volume": [24, 24, 12], "workers": 1}
        job = harness.merged(harness.SMALL_MACE_SURVIVAL, data=data, train={"steps": 10**6, "eval_every": 0}, checkpoint={"every": 0}, run={"dir": str(folder)})
        process = harness.start("train", "--config", harness.write_config(tmp_path / f"{threads}.json", job), OMP_NUM_THREADS=threads)
        log = folder / "log.jsonl"
        harness.wait_until(lambda: log.exists() and log.read_text().count("train/loss") >= 5, what="steps")
        there[threads] = len(os.listdir(f"/proc/{process.pid}/task"))
        process.kill()
        process.communicate()
    assert there[2] - there[1] == 1, there

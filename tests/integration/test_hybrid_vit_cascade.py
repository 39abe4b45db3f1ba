"""The cascade as its users run it: data, stages and their hand-over, starting from a stage's best, bad input."""

import gzip
import json
import re
import shutil
import struct

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

import harness
from test_errors import expect
from test_stages import saved

STAGES = {
    "task": {"name": "hybrid_vit_cascade", "sampling_steps": 3},
    "model": {"preset": "tiny", "stages": 2, "dropout": 0.1},
    "batch": {"global": 4},
    "train": {"steps": 12, "eval_every": 2, "log_every": 1},
    "optim": {"lr": 3e-3},
    "checkpoint": {"every": 1, "keep_last": 100, "keep_best": "val/loss"},
}


@pytest.fixture(scope="module")
def thorax(tmp_path_factory):
    path = tmp_path_factory.mktemp("thorax")
    result = harness.run("synth", "hybrid_vit_cascade", "--size", "tiny", "--patients", 12, "--out", path)
    assert result.returncode == 0, result.stderr
    assert json.loads((path / "truth.json").read_text())["patients"][11]["id"] == "patient-0011"
    return path


def launch(tmp_path, patients, name, world=1, fault=None, **sections):
    config = harness.merged(harness.merged(STAGES, **sections), run={"dir": str(tmp_path / name)})
    config = harness.merged(config, data={"path": str(patients)})
    path = harness.write_config(tmp_path / f"{name}.json", config)
    extra = {"TRAINYARD_TEST_FAULT": fault} if fault else {}
    return harness.run("launch", "--nproc", world, "--config", path, "--record", tmp_path / f"{name}.jsonl", timeout=240, **extra)


def contents(path):
    return {file.relative_to(path): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_threads(tmp_path):
    for name, threads, seed in (("one", 1, 7), ("three", 3, 7), ("other", 1, 8)):
        result = harness.run("synth", "hybrid_vit_cascade", "--size", "tiny", "--patients", 3, "--seed", seed, "--threads", threads, "--out", tmp_path / name)
        assert result.returncode == 0, result.stderr
    one, three, other = (contents(tmp_path / name) for name in ("one", "three", "other"))
    assert one == three
    assert all(one[file] != other[file] for file in one)


def test_xrays_are_projections_of_their_volume(thorax):
    """Read by numpy and Pillow: sums along the axes that the layout names, within half a grey level and what rounding HU to integers adds up to; nothing else fits."""
    folder = thorax / "patient-0003"
    content = gzip.decompress((folder / "patient-0003.nii.gz").read_bytes())
    shape, spacing = np.frombuffer(content, "<i2", 8, 40)[1:4], np.frombuffer(content, "<f4", 8, 76)[1:4]
    offset = int(np.frombuffer(content, "<f4", 1, 108)[0])
    hu = np.frombuffer(content, "<i2", int(np.prod(shape)), offset).reshape(shape, order="F").astype(float)  # (D, H, W)
    mu = 0.02 * (1 + hu.clip(-1000, 3000) / 1000)
    images = {view: np.array(Image.open(folder / f"patient-0003_{view}_drr.png")).astype(float) for view in ("pa", "lat")}
    expected = {"pa": mu.sum(0) * spacing[0], "lat": (mu.sum(2) * spacing[2]).T}
    size = images["pa"].shape[0]
    for view, image in images.items():
        drawn = scaled((expected[view] / 6).clip(0, 1) * 255, size)
        assert np.abs(drawn - image).max() < 0.51, view
        for wrong in (drawn[::-1], drawn[:, ::-1], drawn.T):
            assert np.abs(wrong - image).max() > 20, view


def scaled(image, size):
    """Bilinear between the middles of pixels."""
    at = ((np.arange(size) + 0.5) * image.shape[0] / size - 0.5).clip(0)
    low = np.minimum(at.astype(int), image.shape[0] - 1)
    high, share = np.minimum(low + 1, image.shape[0] - 1), at - low
    rows = image[low] * (1 - share)[:, None] + image[high] * share[:, None]
    return rows[:, low] * (1 - share) + rows[:, high] * share


def test_each_stage_starts_from_the_best_of_the_one_before_which_then_rests(tmp_path, thorax):
    result = launch(tmp_path, thorax, "run", 2)
    assert result.returncode == 0, result.stderr
    assert "stage 2 of 2, stage2: steps 7 to 12" in result.stderr
    run, best = tmp_path / "run", json.loads((tmp_path / "run" / "best" / "stage1" / "best.json").read_text())
    kept = load_file(run / "best" / "stage1" / "model.safetensors")
    exported = load_file(run / "export" / "model.safetensors")
    own = [name for name in kept if name.startswith(("stages.stage2.", "prev_stage_projectors."))]
    shared = sorted(set(kept) - set(own))
    assert any(name.startswith("xray_encoder.") for name in shared) and any(name.startswith("time_embed.") for name in shared)
    for name in shared:
        assert (saved(tmp_path, "run", best["step"], f"model.{name}") == kept[name]).all(), name
        assert (exported[name] == kept[name]).all(), name
    assert any((exported[name] != kept[name]).any() for name in own)
    lines = (run / "log.jsonl").read_text()
    for metric in ("val/loss", "val/psnr", "val/ssim", "val/psnr_of_mean", "val/psnr_of_scaled_mean", "val/psnr_of_previous", "val_all/psnr", "val_all/psnr_shuffled", "train/physics"):
        assert f'"{metric}"' in lines, metric
    assert "previous stage up-sampled" in result.stderr + result.stdout
    # An interruption in the second stage changes no bit.
    assert launch(tmp_path, thorax, "broken", 2, fault="forward:1:8").returncode == 70
    again = launch(tmp_path, thorax, "broken", 2)
    assert again.returncode == 0 and "resuming from" in again.stderr, again.stderr
    assert harness.records(tmp_path / "broken.jsonl") == harness.records(tmp_path / "run.jsonl")
    assert contents(tmp_path / "broken" / "export") == contents(run / "export")


def test_an_evaluation_is_of_the_stage_that_the_weights_are_of(tmp_path, thorax):
    """A checkpoint says which; the stage behind it is as its initial values are."""
    assert launch(tmp_path, thorax, "run", task={"from_best": False}).returncode == 0
    run = tmp_path / "run"
    of_stages = {line["step"]: line for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if "val/loss" in line}

    def evaluate(path):
        result = harness.run("eval", "--config", tmp_path / "run.json", "--checkpoint", path)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout[result.stdout.index("{"):]), result.stderr

    for step, stage in ((6, "stage1"), (12, "stage2")):
        path = run / "checkpoints" / f"step-{step:08d}"
        numbers, said = evaluate(path)
        assert numbers["stage"] == stage and f"note: {path} is of the stage {stage} ({stage[-1]} of 2)" in said, said
        assert numbers["metrics"]["val/loss"] == pytest.approx(of_stages[step]["val/loss"], rel=1e-6), stage
    export = run / "export" / "model.safetensors"
    numbers, said = evaluate(export)
    assert numbers["stage"] == "stage2" and f"note: {export} does not say of which stage it is, and is evaluated as of the last, stage2 (2 of 2)" in said, said


def test_a_run_may_start_with_the_second_stage_from_the_best_of_the_first(tmp_path, thorax):
    assert launch(tmp_path, thorax, "first", model={"stages": 2}, task={"stage1": {"steps": 6}}).returncode == 0
    source = tmp_path / "first" / "best" / "stage1" / "model.safetensors"
    only = {"task": {"first_stage": 2}, "train": {"steps": 6}, "init": {"from": str(source)}}
    still = launch(tmp_path, thorax, "still", optim={"lr": 0}, **only)
    assert still.returncode == 0, still.stderr
    before, unchanged = load_file(source), load_file(tmp_path / "still" / "export" / "model.safetensors")
    assert set(unchanged) == set(before) and all((unchanged[name] == before[name]).all() for name in before)
    assert launch(tmp_path, thorax, "second", **only).returncode == 0
    trained = load_file(tmp_path / "second" / "export" / "model.safetensors")
    changed = {name for name in before if (trained[name] != before[name]).any()}
    assert changed and all(name.startswith(("stages.stage2.", "prev_stage_projectors.stage2.")) for name in changed)
    # The first stage is trained by nobody here: as another model it would be sampled all the same.
    expect(launch(tmp_path, thorax, "another", model={"deviation": 0.4}, **only), 64, "holds another model; model.deviation: ")
    del only["init"]
    expect(launch(tmp_path, thorax, "nothing", **only), 64, "init.from: missing; task.first_stage 2 begins with the weights")


def test_stages_are_checked(tmp_path, thorax):
    for sections, words in (
        ({"model": {"token_grid": 10, "stage1": {"size": 10}, "stage2": {"size": 20}}}, "model.stage1.size: 10 is not allowed; expected an integer from 11 to 512"),
        ({"model": {"stage2": {"size": 20}}}, "model.stage2.size: 20 is not model.token_grid 6 times a power of two"),
        ({"model": {"stage1": {"dim": 48}}}, "model.stage1.dim: 48 is not a multiple of 32"),
        ({"model": {"stage2": {"size": 12}}}, "model.stage2.size: 12 is not above the 12"),
        ({"task": {"stage1": {"steps": 6}, "stage2": {"steps": 7}}}, "train.steps: 12 is not what the stages add up to: 6 (stage1) + 7 (stage2)"),
        ({"task": {"stage1": {"steps": 12}}}, "leaves the stage stage2 no step"),
        ({"checkpoint": {"keep_best": ""}}, "checkpoint.keep_best: missing; the stage stage2"),
        ({"train": {"steps": None, "epochs": 3}}, "train.steps: missing; the stages share it"),
        ({"model": {"stages": 2}, "task": {"stage3": {"steps": 4}}}, "task.stage3.steps: 4, and model.stages is 2"),
        ({"model": {"stages": 2}, "task": {"stage3": {"physics": 5}}}, "task.stage3.physics: 5, and model.stages is 2"),
        ({"model": {"stages": 1, "stage2": {"depth": 2}}}, "model.stage2.depth: 2, and model.stages is 1"),
        ({"model": {"stages": 1}, "task": {"stage1": {"steps": 6}}}, "task.stage1.steps: 6, and train.steps is 12, all of which are the only stage's"),
        ({"data": {"val_fraction": 0.6, "test_fraction": 0.5}}, "leave no patient to train on"),
    ):
        expect(launch(tmp_path, thorax, "run", **sections), 64, words)


def damaged(thorax, tmp_path, change):
    path = tmp_path / "data"
    shutil.copytree(thorax, path)
    change(path / "patient-0005")
    return path


def rewrite(path, change):
    content = bytearray(gzip.decompress(path.read_bytes()))
    change(content)
    path.write_bytes(gzip.compress(bytes(content)))


def one_value(content):
    content[352:] = struct.pack("<h", -1000) * ((len(content) - 352) // 2)


def flat(content):
    struct.pack_into("<8h", content, 40, 2, 48, 48 * 48, 1, 1, 1, 1, 1)


def voxel_size(size):
    return lambda p: rewrite(p / "patient-0005.nii.gz", lambda content: struct.pack_into("<f", content, 280, size))


def unknown_size(content):
    struct.pack_into("<2h", content, 252, 0, 0)
    struct.pack_into("<f", content, 84, 0)


BAD = {
    "a voxel of nan mm": (voxel_size(float("nan")), "patient-0005.nii.gz: a voxel of nan mm (its sform, or without one pixdim at byte 76); expected more than 0 and at most 1000"),
    "voxels of a size that nobody knows": (lambda p: rewrite(p / "patient-0005.nii.gz", unknown_size), "patient-0005.nii.gz: a voxel of 0 mm"),
    "a voxel of inf mm": (voxel_size(float("inf")), "patient-0005.nii.gz: a voxel of inf mm"),
    "missing view": (lambda p: (p / "patient-0005_lat_drr.png").unlink(), "patient-0005: no X-ray from the side; expected one of patient-0005_lat_drr.png"),
    "missing volume": (lambda p: (p / "patient-0005.nii.gz").unlink(), "patient-0005: no volume; expected one of patient-0005.nii.gz"),
    "two volumes": (lambda p: (p / "patient-0005.nii").write_bytes(b""), "patient-0005: more than one volume"),
    "wrong shape": (lambda p: rewrite(p / "patient-0005.nii.gz", flat), "patient-0005.nii.gz: a volume of shape (48, 2304"),
    "empty volume": (lambda p: rewrite(p / "patient-0005.nii.gz", one_value), "patient-0005.nii.gz: an empty volume: every voxel is -1000"),
    "truncated gz": (lambda p: (p / "patient-0005.nii.gz").write_bytes((p / "patient-0005.nii.gz").read_bytes()[:5000]), "patient-0005.nii.gz"),
    "not a PNG": (lambda p: (p / "patient-0005_pa_drr.png").write_bytes(b"a picture"), "patient-0005_pa_drr.png"),
    "a patient behind a link to nowhere": (lambda p: (shutil.rmtree(p), p.symlink_to(p.parent / "unmounted")), "patient-0005: a link to what is not there"),
    "an empty X-ray": (lambda p: Image.new("L", (64, 64)).save(p / "patient-0005_pa_drr.png"), "patient-0005_pa_drr.png: an empty image: every pixel is 0"),
    "in colours": (lambda p: Image.new("RGB", (64, 64)).save(p / "patient-0005_pa_drr.png"), "patient-0005_pa_drr.png: an image in colours; expected a grey one"),
}


def test_a_volume_s_lost_and_found_is_no_patient(tmp_path, thorax):
    """The root of an ext4 volume has one, which is root's: it is no reason that the data cannot be used, and an empty one was."""
    path = damaged(thorax, tmp_path, lambda patient: (patient.parent / "lost+found").mkdir(mode=0))
    result = launch(tmp_path, path, "run", train={"steps": 12})
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_names_its_file(tmp_path, thorax, fault):
    change, words = BAD[fault]
    expect(launch(tmp_path, damaged(thorax, tmp_path, change), "run"), 65, words)


def test_a_patient_that_training_skips_ends_no_evaluation(tmp_path, thorax):
    """The mean volume is that of those who can be read."""
    data = tmp_path / "data"
    shutil.copytree(thorax, data)
    one = {"model": {"stages": 1}, "train": {"steps": 6, "eval_every": 3}}
    for name in ("whole", "bad"):
        result = launch(tmp_path, data, name, world=2, **one, faults={"bad_sample": "skip"})
        assert result.returncode == 0, result.stderr
        output = result.stderr + "".join(log.read_text() for log in (tmp_path / name / "logs").glob("*.log"))
        assert ("left out of the mean volume" in output) == (name == "bad"), output
        metrics = json.loads((tmp_path / name / "evaluation.json").read_text())["metrics"]
        assert metrics["val/physics_of_truth"] < metrics["val/physics"], metrics
        truncated = data / trained_on(tmp_path / name)
        for volume in truncated.glob("*.nii.gz"):
            volume.write_bytes(volume.read_bytes()[:-200])


def trained_on(run):
    return someone_of(run, "train")


def someone_of(run, part):
    """A patient, from the text that the last evaluation writes."""
    texts = [line["value"] for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if line.get("text") == "split"]
    return re.search(rf"\*\*{part}\*\*: ([\w-]+)", texts[-1])[1]


def test_a_patient_of_the_test_part_keeps_no_run_from_its_end(tmp_path, thorax):
    """Whom nobody has read before the last evaluation; the last of the validation part is sampled from the first's X-rays as well."""
    data = tmp_path / "data"
    shutil.copytree(thorax, data)
    few = {"model": {"stages": 1}, "task": {"eval_patients": 1}, "train": {"steps": 2, "eval_every": 1}, "data": {"val_fraction": 0.25, "test_fraction": 0.25}}
    whole = launch(tmp_path, data, "whole", **few)
    assert whole.returncode == 0, whole.stderr
    assert re.search(r"validation +3 patients", whole.stdout + whole.stderr), "val_all is of all of them, whatever task.eval_patients"
    for volume in (data / someone_of(tmp_path / "whole", "test")).glob("*.nii.gz"):
        volume.write_bytes(volume.read_bytes()[:-200])
    expect(launch(tmp_path, data, "refused", **few), 65, volume.name)
    left = launch(tmp_path, data, "left", world=2, **few, faults={"bad_sample": "skip"})
    output = left.stdout + left.stderr + "".join(log.read_text() for log in (tmp_path / "left" / "logs").glob("*.log"))
    assert left.returncode == 0 and "left out of the test part" in output and re.search(r"test +2 patients", output), output
    assert (tmp_path / "left" / "export" / "model.safetensors").is_file()
    metrics = [json.loads((tmp_path / name / "evaluation.json").read_text())["metrics"] for name in ("whole", "left")]
    assert metrics[0].keys() == metrics[1].keys() and all(np.isfinite(value) for value in metrics[1].values()), metrics


def test_axes_in_another_order_show(tmp_path, thorax):
    """What dcm2niix writes, from left to right first: the true volume's projections are not the X-rays then."""
    import nibabel

    data = tmp_path / "data"
    shutil.copytree(thorax, data)
    for file in data.glob("*/*.nii.gz"):
        image = nibabel.load(file)
        nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj).transpose(2, 0, 1), np.eye(4)), file)
    seen = []
    for name, patients in (("right", thorax), ("wrong", data)):
        result = launch(tmp_path, patients, name, model={"stages": 1}, train={"steps": 2})
        assert result.returncode == 0, result.stderr
        seen.append(json.loads((tmp_path / name / "evaluation.json").read_text())["metrics"]["val/physics_of_truth"])
    assert seen[1] > 5 * seen[0], seen

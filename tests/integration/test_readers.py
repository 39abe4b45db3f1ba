"""Public Python readers accept what we write."""

import json
import pathlib
import re
import resource
import time
import urllib.error
import urllib.request

import h5py
import numpy as np
import pytest
from safetensors import safe_open
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import harness


@pytest.fixture(scope="module")
def run(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("run")
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(directory)}, train={"eval_every": 5}, checkpoint={"every": 5, "keep_best": "test/loss_action"})
    result = harness.run("launch", "--nproc", 2, "--config", harness.write_config(directory / "job.json", config), "--record", directory / "record.jsonl")
    assert result.returncode == 0, result.stderr
    return directory


def test_synthetic_histories_are_the_same_bytes_at_any_time_and_on_any_threads(tmp_path):
    contents = []
    for threads in (1, 3):
        out = tmp_path / str(threads)
        result = harness.run("synth", "algorithm_distillation", "--size", "tiny", "--out", out, "--threads", threads)
        assert result.returncode == 0, result.stderr
        contents.append({file.name: file.read_bytes() for file in out.iterdir()})
        time.sleep(1.1)  # HDF5 dates by the second
    assert contents[0] == contents[1] and len(contents[0]) == 3


def test_safetensors_reads_every_tensor_of_every_shard(run):
    for step in ("step-00000005", "step-00000010"):
        manifest = json.loads((run / "checkpoints" / step / "manifest.json").read_text())
        assert len(manifest["files"]) == 2
        pieces = {}
        for name, file in manifest["files"].items():
            path = run / "checkpoints" / step / name
            assert path.stat().st_size == file["bytes"]
            with safe_open(path, "np") as f:
                pieces.update({(name, key): f.get_tensor(key) for key in f.keys()})
        for key, tensor in manifest["tensors"].items():
            parts = [pieces.pop((s["file"], s["key"])) for s in tensor["slices"]]
            assert np.isfinite(np.concatenate(parts).reshape(tensor["shape"])).all(), key
        assert not pieces, "entries that no tensor names"


def test_the_export_is_the_checkpoint(run, tmp_path):
    out = tmp_path / "model.safetensors"
    assert harness.run("checkpoint", "export", run / "checkpoints", "--out", out).returncode == 0
    with safe_open(out, "np") as mine, safe_open(run / "export" / "model.safetensors", "np") as exported:
        assert set(mine.keys()) == set(exported.keys())
        for key in mine.keys():
            assert mine.get_tensor(key).tobytes() == exported.get_tensor(key).tobytes()
    assert (run / "best" / "model.safetensors").exists()
    assert "good" in harness.run("checkpoint", "verify", run / "checkpoints").stdout
    assert "readable" in harness.run("checkpoint", "ls", run / "checkpoints").stdout
    diff = harness.run("checkpoint", "diff", run / "checkpoints" / "step-00000005", run / "checkpoints" / "step-00000010")
    assert diff.returncode == 1, diff.stderr
    tensors = json.loads((run / "checkpoints" / "step-00000005" / "manifest.json").read_text())["tensors"]
    *lines, more, equal, summary = diff.stdout.splitlines()
    changed = int(summary.split()[0])
    assert summary == f"{changed} of {len(tensors)} tensors differ" and equal == f"{len(tensors) - changed} tensors equal"
    assert len(lines) == 20 and more == f"and {changed - 20} more (--all shows them)"
    everything = harness.run("checkpoint", "diff", "--all", run / "checkpoints" / "step-00000005", run / "checkpoints" / "step-00000010")
    *all_lines, _, last = everything.stdout.splitlines()
    assert everything.returncode == 1 and last == summary and len(all_lines) == changed and all_lines[:20] == lines
    sizes = [float(re.search(r"largest difference ([^,]+),", line)[1]) for line in all_lines]
    assert sizes == sorted(sizes, reverse=True)
    same = harness.run("checkpoint", "diff", run / "checkpoints" / "step-00000005", run / "checkpoints" / "step-00000005")
    assert same.returncode == 0 and same.stdout == f"{len(tensors)} tensors equal\n0 of {len(tensors)} tensors differ\n"


def test_tensorboard_reads_every_scalar(run):
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    expected = {}
    for line in log:
        for tag, value in line.items():
            if "/" in tag:
                expected.setdefault(tag, []).append((line["step"], np.float32(value)))
    assert {"train/loss", "train/lr", "train/acc_action", "train/loss_action", "test/loss_action", "test/acc_action"} <= set(expected)
    assert set(events.Tags()["scalars"]) == set(expected)
    for tag, points in expected.items():
        assert [(e.step, np.float32(e.value)) for e in events.Scalars(tag)] == points, tag


def test_h5py_reads_the_histories(data):
    truth = json.loads((data / "truth.json").read_text())
    with h5py.File(next(data.glob("*.hdf5"))) as f:
        assert sorted(f, key=int) == [str(i) for i in range(81)]
        for i in range(81):
            group = {k: v[()] for k, v in f[str(i)].items()}
            length, streams = truth["transitions"], truth["streams"]
            assert group["states"].shape == group["next_states"].shape == (length, streams, 2)
            assert group["dones"].dtype == bool and group["actions"].dtype == np.int32
            goal = np.array(truth["tasks"][i]["goal"])
            # The reward is 1 exactly where the state after the step is the goal.
            assert (group["rewards"] == (group["next_states"] == goal).all(-1)).all()
            # A step moves at most one cell, and an episode goes on where the step before ended.
            assert (np.abs(group["next_states"] - group["states"]).sum(-1) <= 1).all()
            going_on = ~group["dones"][:-1]
            assert (group["states"][1:][going_on] == group["next_states"][:-1][going_on]).all()
            assert (group["states"][1:][~going_on] == 4).all()
            assert (group["dones"].nonzero()[0] % 20 == 19).all()


@pytest.mark.parametrize("source", ["shared_q", "ad_epsilon", "ppo"])
def test_npy_and_hdf5_hold_the_same(tmp_path, source):
    if source == "ppo":
        pytest.skip("PPO over all tasks takes minutes; tests/unit/sources_test.cc runs one task")
    for name in ("hdf5", "npy"):
        result = harness.run("synth", "algorithm_distillation", "--source", source, "--size", "tiny", "--format", name, "--out", tmp_path / name)
        assert result.returncode == 0
    with h5py.File(next((tmp_path / "hdf5").glob("*.hdf5"))) as f:
        for task in ("0", "80"):
            for key in f[task]:
                assert (np.load(tmp_path / "npy" / f"env-{int(task):03d}" / f"{key}.npy") == f[task][key][()]).all()
    fingerprints = {json.loads((tmp_path / n / "truth.json").read_text())["fingerprint"] for n in ("hdf5", "npy")}
    assert len(fingerprints) == 1


def test_status_and_metrics_while_training(tmp_path, data):
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 100000})
    process = harness.start("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "job.json", config), TRAINYARD_JOB_UID="11111111-2222", TRAINYARD_ATTEMPT=3)
    try:
        lines = []
        address = harness.wait_until(lambda: lines.append(process.stdout.readline()) or re.search(r"http://[\d.:]+", lines[-1]), 90, "the banner").group(0)

        def get(path):
            return urllib.request.urlopen(address + path, timeout=60).read().decode()

        def steps_done():
            try:
                status = json.loads(get("/status"))
            except urllib.error.HTTPError as error:
                assert error.code == 503, "a rank that has not reported"
                return None
            return status if (status["step"] or 0) > 3 else None

        status = harness.wait_until(steps_done, 90, "steps in /status")
        assert (status["job_uid"], status["attempt"], status["world"], status["total_steps"]) == ("11111111-2222", 3, 2, 100000)
        assert status["phase"] == "training" and status["samples_per_second"] > 0 and status["eta_seconds"] > 0
        for rank in (0, 1):
            harness.wait_until(lambda: re.search(rf'trainyard_step{{rank="{rank}"}} [1-9]', get("/metrics")), 90, f"steps of rank {rank} in /metrics")
        metrics = get("/metrics")
        assert 'trainyard_phase_seconds_total{phase="backward",rank="0"}' in metrics
        assert get("/healthz") == "ok\n" and get("/readyz") == "ok\n"
        memory = {int(rank): float(value) for rank, value in re.findall(r'trainyard_host_memory_bytes{rank="(\d)"} (\S+)', metrics)}
        for rank, pid in harness.ranks_of(process.pid).items():
            resident = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
            assert memory[rank] == pytest.approx(resident, rel=0.1), "the rank's own, not the launcher's"
    finally:
        process.terminate()
        process.communicate(timeout=90)
    assert process.returncode == 75


def test_status_of_a_run_that_goes_on_and_saves_nothing(tmp_path, data):
    """What it went on from is durable, whoever asks and whenever."""
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 4})
    assert harness.run("train", "--config", harness.write_config(tmp_path / "job.json", config)).returncode == 0
    step = tmp_path / "run" / "checkpoints" / "step-00000004"
    config = harness.merged(config, train={"steps": 100000}, checkpoint={"every": 0})
    port = harness.free_port()
    process = harness.start("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "job.json", config), TRAINYARD_STATUS_PORT=port)
    try:

        def get(path):
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60).read().decode()
            except urllib.error.HTTPError as error:
                return None if error.code == 503 else error
            except urllib.error.URLError:
                return None  # not listening yet

        known = []

        def training():
            status = json.loads(get("/status") or "null")
            known.extend([status] if status else [])
            return status and status["phase"] == "training" and status["step"] > 4

        harness.wait_until(training, 90, "a step")
        for status in known:
            assert status["attempt"] in (None, 2) and status["job_uid"] != "" and status["last_progress_time"] > 0, status
            assert (status["step"] is None) == (status["total_steps"] is None) and status["step"] != 0, status
        size = sum(file.stat().st_size for file in step.iterdir())
        committed = int((step / "manifest.json").stat().st_mtime)
        assert known[-1]["checkpoint"] == {"step": 4, "time": committed, "bytes": size, "path": str(step.parent), "durable": True}
        # Rank 1 has read none of it from the directory itself.
        harness.wait_until(lambda: 'trainyard_checkpoint_last_step{rank="1"} 4' in get("/metrics"), 90, "rank 1's checkpoint")
    finally:
        process.kill()
        process.communicate(timeout=90)

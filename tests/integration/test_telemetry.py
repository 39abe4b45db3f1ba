"""Telemetry says what is true, once, and whatever happens to it training goes on."""

import io
import json
import os
import pathlib
import re
import subprocess
import urllib.request

import numpy as np
import PIL.Image
import pytest
from tensorboard.backend.event_processing import data_provider, plugin_event_accumulator, plugin_event_multiplexer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

import harness

METRICS_TEST = os.environ.get("TRAINYARD_METRICS_TEST", str(pathlib.Path(harness.BIN).parent / "metrics_test"))
CLOSING_SECONDS = 3  # SinkOptions::closing
PATIENCE = 60  # for a busy machine; what is waited for takes milliseconds, or for ever


def configuration(directory, data, **sections):
    directory.mkdir(exist_ok=True)
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(directory)}, train={"record": str(directory / "record.jsonl")}, **{"batch": {"global": 4}})
    return harness.write_config(directory / "job.json", harness.merged(config, **sections))


def log_of(directory):
    return [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]


def accumulated(directory):
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "images": 0, "histograms": 0, "tensors": 0})
    events.Reload()
    return events


def count(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_log_that_nobody_reads_changes_nothing(tmp_path, data):
    plain = configuration(tmp_path / "plain", data, train={"steps": 30})
    assert harness.run("train", "--config", plain, timeout=PATIENCE).returncode == 0
    stuck = configuration(tmp_path / "stuck", data, train={"steps": 30})
    os.mkfifo(tmp_path / "stuck" / "log.jsonl")
    result = harness.run("train", "--config", stuck, timeout=CLOSING_SECONDS + PATIENCE)
    assert result.returncode == 0, result.stderr
    assert re.search(r"warning: telemetry: jsonl lost \d+ events, and did not end in time", result.stderr), result.stderr
    assert harness.records(tmp_path / "stuck" / "record.jsonl") == harness.records(tmp_path / "plain" / "record.jsonl")
    for tag in ("train/loss", "test/loss_action"):
        both = [[(e.step, e.value) for e in accumulated(tmp_path / name / "tensorboard").Scalars(tag)] for name in ("stuck", "plain")]
        assert both[0] == both[1] and both[0], "another sink is not held up"


def test_a_stuck_sink_is_counted_and_delays_no_stop(tmp_path, data):
    config = configuration(tmp_path / "run", data, train={"steps": 10**6})
    os.mkfifo(tmp_path / "run" / "log.jsonl")
    process = harness.start("launch", "--nproc", 2, "--config", config)
    try:
        lines = []
        address = harness.wait_until(lambda: lines.append(process.stdout.readline()) or re.search(r"http://[\d.:]+", lines[-1]), PATIENCE, "the banner").group(0)

        def dropped(sink):
            text = urllib.request.urlopen(address + "/metrics", timeout=PATIENCE).read().decode()
            found = re.search(rf'trainyard_telemetry_dropped_total{{sink="{sink}",rank="0"}} (\d+)', text)
            return int(found.group(1)) if found else 0

        harness.wait_until(lambda: dropped("jsonl") > 100, 4 * PATIENCE, "drops in /metrics")
        assert dropped("tensorboard") == 0
        process.terminate()
        output = process.communicate(timeout=CLOSING_SECONDS + PATIENCE)[0]
    finally:
        harness.kill(process.pid)
    # The launcher would have killed rank 0, had it taken longer to close than the launcher waits.
    assert process.returncode == 75, output
    assert "telemetry is lost: jsonl: is slower than training: its queue is full" in output
    last = harness.records(tmp_path / "run" / "record.jsonl")[-1]["step"]
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text().strip() == f"step-{last:08d}"
    assert accumulated(tmp_path / "run" / "tensorboard").Scalars("train/loss")[-1].step == last


def test_a_reader_that_goes_away_ends_nothing(tmp_path, data):
    config = configuration(tmp_path / "run", data, train={"steps": 400})
    log = tmp_path / "run" / "log.jsonl"
    os.mkfifo(log)
    process = harness.start("train", "--config", config)
    with open(log, "rb") as reader:
        assert json.loads(reader.readline())["step"] == 1
    output = process.communicate(timeout=CLOSING_SECONDS + PATIENCE)[0]
    assert process.returncode == 0, output
    assert count(tmp_path / "run" / "record.jsonl") == 400


@pytest.mark.parametrize("broken", ["log.jsonl", "tensorboard"])
def test_a_sink_that_cannot_be_opened_is_named(tmp_path, data, broken):
    config = configuration(tmp_path / "run", data)
    if broken == "log.jsonl":
        (tmp_path / "run" / broken).mkdir()
    else:
        (tmp_path / "run" / broken).write_text("")
    result = harness.run("train", "--config", config)
    assert result.returncode == 0, result.stderr
    assert re.search(rf"warning: telemetry is lost: .*cannot write .*{broken}", result.stderr), result.stderr


def test_each_step_and_evaluation_is_logged_once(tmp_path, data):
    """A stop leaves an evaluation to the next attempt, which is killed after it: the third repeats it."""
    run = tmp_path / "run"
    config = configuration(run, data, train={"steps": 10**6, "eval_every": 1}, task={"eval_windows": 1})
    first = harness.start("train", "--config", config)
    harness.wait_until(lambda: count(run / "record.jsonl") >= 5, PATIENCE, "steps")
    first.terminate()
    assert first.wait(timeout=PATIENCE) == 75
    stopped = count(run / "record.jsonl")
    manifest = json.loads((run / "checkpoints" / f"step-{stopped:08d}" / "manifest.json").read_text())
    assert manifest["evaluation_pending"]
    second = harness.start("train", "--config", config)
    harness.wait_until(lambda: count(run / "record.jsonl") >= stopped + 5, PATIENCE, "more steps")
    harness.kill(second.pid)
    second.wait()
    end = stopped + 10
    result = harness.run("train", "--config", config, "--set", f"train.steps={end}")
    assert result.returncode == 0, result.stderr
    steps, evaluations = [], []
    for line in log_of(run):
        (steps if "train/loss" in line else evaluations).append(line["step"])
    assert steps == list(range(1, end + 1))
    assert evaluations == steps
    points = [e.step for e in accumulated(run / "tensorboard").Scalars("train/loss")]
    assert points == steps, "the point at the step that was resumed from stays"


def test_curves_tables_and_hyperparameters_of_a_run(tmp_path, data):
    run = tmp_path / "run"
    config = configuration(run, data, task={"eval_episodes": 3}, optim={"lr": 0.002}, schedule={"name": "cosine", "warmup": 2})
    result = harness.run("launch", "--nproc", 2, "--config", config)
    assert result.returncode == 0, result.stderr
    evaluation = json.loads((run / "evaluation.json").read_text())
    expected = evaluation["curves"]["test/return_by_episode"]
    (curve,) = [line for line in log_of(run) if "curve" in line]
    assert (curve["curve"], curve["step"], curve["x"]) == ("test/return_by_episode", 10, [1, 2, 3])
    assert expected == {"x": [1, 2, 3], "y": pytest.approx(curve["y"])}
    assert np.mean(curve["y"]) == pytest.approx(evaluation["metrics"]["test/return_mean"])
    points = accumulated(run / "tensorboard" / "curves" / "test_return_by_episode-step-00000010").Scalars("test/return_by_episode")
    assert [(e.step, e.value) for e in points] == list(zip(curve["x"], map(np.float32, curve["y"])))
    (table,) = [line for line in log_of(run) if "text" in line]
    assert evaluation["table"] in table["value"]
    assert accumulated(run / "tensorboard").Tensors("test/table")[0].tensor_proto.string_val[0].decode() == table["value"]

    experiment, (group,) = hparams_of(run)
    assert {"optim.lr", "schedule.name", "batch.global", "world", "model.dim", "run.seed"} <= {i.name for i in experiment.hparam_infos}
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()}
    assert (values["optim.lr"], values["schedule.name"], values["batch.global"], values["world"], values["train.steps"]) == (0.002, "cosine", 4, 2, 10)
    assert group.sessions[0].status == api_pb2.STATUS_SUCCESS
    metrics = {m.name.tag: m.value for m in group.metric_values}
    assert metrics["test/loss_action"] == np.float32(evaluation["metrics"]["test/loss_action"])


def hparams_of(directory):
    """What TensorBoard's HPARAMS tab shows."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(directory))
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, str(directory))
    context = backend_context.Context(base_plugin.TBContext(data_provider=provider, logdir=str(directory)))
    experiment = get_experiment.Handler(RequestContext(), context, "", api_pb2.GetExperimentRequest(include_metrics=True)).run()
    every = api_pb2.ListSessionGroupsRequest(slice_size=10, allowed_statuses=list(api_pb2.Status.values()), include_metrics=True)
    every.col_params.extend(api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos)
    return experiment, list_session_groups.Handler(RequestContext(), context, "", every).run().session_groups


def test_tensorboard_reads_every_kind_of_event(tmp_path):
    """What tests/unit/tensorboard_test.cc wrote: attempt 1 to step 4, attempt 2 from step 2 on."""
    subprocess.run([METRICS_TEST, "--gtest_filter=TensorBoard.WritesEveryKindOfEvent"], check=True, capture_output=True, env={**os.environ, "TRAINYARD_TEST_OUT": str(tmp_path)})
    events = accumulated(tmp_path)
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 11), (2, 12), (3, 23), (4, 24)]
    for channels, mode in ((1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")):
        images = events.Images(f"image/{channels}")
        assert [(e.step, e.height, e.width) for e in images] == [(2, 2, 3), (4, 2, 3)]
        for e in images:
            picture = PIL.Image.open(io.BytesIO(e.encoded_image_string))
            assert picture.mode == mode
            expected = (40 * np.arange(6 * channels) + e.step).astype(np.uint8).reshape(2, 3, channels)
            assert (np.asarray(picture).reshape(2, 3, channels) == expected).all()
    first, second = (e.histogram_value for e in events.Histograms("histogram"))
    assert (first.min, first.max, first.num, first.sum, first.sum_squares) == (0, 12, 5, 17, 153)
    assert (list(first.bucket_limit), list(first.bucket)) == ([6, 12], [4, 1])
    assert (list(second.bucket_limit), list(second.bucket)) == ([12, 24], [4, 1])
    tensors = plugin_event_accumulator.EventAccumulator(str(tmp_path))  # The other one forgets that tensors are cut, too.
    tensors.Reload()
    assert [e.tensor_proto.string_val[0] for e in tensors.Tensors("text")] == [b"attempt **1**", b"attempt **2**"]
    whole, part = (accumulated(tmp_path / "curves" / f"curve_{name}-step-00000004").Scalars(f"curve/{name}") for name in ("whole", "part"))
    assert [(e.step, e.value) for e in whole] == [(1, 24), (2, 25), (3, 26)], "the second attempt's alone"
    assert [(e.step, e.value) for e in part] == [(0, 0), (1, np.float32(0.9)), (2, 1)]
    experiment, (group,) = hparams_of(tmp_path)
    assert {i.name for i in experiment.hparam_infos} == {"optim.lr", "model.flag", "task.name"}
    assert group.hparams["optim.lr"].number_value == 0.25 and group.hparams["model.flag"].bool_value and group.hparams["task.name"].string_value == "toy"
    assert group.sessions[0].status == api_pb2.STATUS_SUCCESS

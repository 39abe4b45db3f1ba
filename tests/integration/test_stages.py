"""Stages, frozen parts and statistics of a batch norm, on the tests' own task.

That it runs with any number of ranks and through any interruption is shown where it is for every task: test_worlds.py, test_resume.py.
"""

import json
import os
import resource
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

import harness

FIRST, STEPS = 8, 20
PATCHWORK = harness.merged(
    harness.SMALL_PATCHWORK,
    task={"first": FIRST},
    model={"dropout": 0.1},
    batch={"global": 12},
    train={"steps": STEPS, "eval_every": 3},
    optim={"lr": 1e-2},
    schedule={"name": "cosine", "warmup": 2},
    checkpoint={"every": 1, "keep_last": 100, "keep_best": "test/loss_class"},
)


def train(tmp_path, name, world, fault=None, **sections):
    directory = tmp_path / name
    config = harness.write_config(tmp_path / f"{name}.json", harness.merged(harness.merged(PATCHWORK, **sections), run={"dir": str(directory)}))
    extra = {"TRAINYARD_TEST_FAULT": fault} if fault else {}
    return harness.run("launch", "--nproc", world, "--config", config, "--record", f"{directory}.jsonl", program=harness.TEST_TASKS, timeout=240, **extra)


def outcome(tmp_path, name):
    return harness.records(tmp_path / f"{name}.jsonl"), load_file(tmp_path / name / "export" / "model.safetensors")


def saved(tmp_path, name, step, key):
    """A tensor of a checkpoint."""
    directory = tmp_path / name / "checkpoints" / f"step-{step:08d}"
    tensor = json.loads((directory / "manifest.json").read_text())["tensors"][key]
    return np.concatenate([load_file(directory / s["file"])[s["key"]] for s in tensor["slices"]]).reshape(tensor["shape"])


# In each stage, and before and after the boundary: the fault comes in the step after so many.
@pytest.mark.parametrize("steps", [3, pytest.param(FIRST - 1, marks=harness.thorough), FIRST, FIRST + 1, pytest.param(15, marks=harness.thorough)])
def test_an_interruption_changes_no_bit(tmp_path, steps):
    assert train(tmp_path, "whole", 2).returncode == 0
    broken = train(tmp_path, "broken", 2, fault=f"forward:1:{steps}")
    assert broken.returncode == 70, broken.stderr
    again = train(tmp_path, "broken", 2)
    assert again.returncode == 0, again.stderr
    assert f"step-{steps:08d}" in again.stderr
    (lines, weights), (expected, expected_weights) = outcome(tmp_path, "broken"), outcome(tmp_path, "whole")
    assert lines == expected
    assert {k: v.tobytes() for k, v in weights.items()} == {k: v.tobytes() for k, v in expected_weights.items()}


def test_a_stage_changes_what_it_trains_alone(tmp_path):
    result = train(tmp_path, "run", 2)
    assert result.returncode == 0, result.stderr
    assert f"stage 2 of 2, heads: steps {FIRST + 1} to {STEPS}" in result.stderr
    first, boundary, last = 1, FIRST, STEPS
    for name in ("hidden.weight", "rare.weight", "codes.weight"):  # trained in the first stage alone
        assert (saved(tmp_path, "run", boundary, f"model.{name}") == saved(tmp_path, "run", last, f"model.{name}")).all(), name
        assert (saved(tmp_path, "run", first, f"model.{name}") != saved(tmp_path, "run", boundary, f"model.{name}")).any(), name
    for name in ("norm.weight", "risk.weight"):  # in the second alone
        assert (saved(tmp_path, "run", first, f"model.{name}") == saved(tmp_path, "run", boundary, f"model.{name}")).all(), name
        assert (saved(tmp_path, "run", boundary, f"model.{name}") != saved(tmp_path, "run", last, f"model.{name}")).any(), name
    # The moments are those of the stage: each starts its own.
    manifest = json.loads((tmp_path / "run" / "checkpoints" / f"step-{last:08d}" / "manifest.json").read_text())
    assert "adamw.exp_avg.norm.weight" in manifest["tensors"] and "adamw.exp_avg.hidden.weight" not in manifest["tensors"]
    assert not any(key.endswith("frozen.weight") for key in manifest["tensors"])
    exported = load_file(tmp_path / "run" / "export" / "model.safetensors")
    assert (exported["classifier.weight"] == exported["codes.weight"]).all()
    assert {"frozen.weight", "norm.running_var"} <= set(exported)
    assert (tmp_path / "run" / "best" / "body" / "best.json").exists() and (tmp_path / "run" / "best" / "heads" / "best.json").exists()


# The training of the first stage overshoots: its best evaluation is not its last.
FROM_BEST = {"task": {"from_best": True}, "optim": {"lr": 0.3}}


def test_the_next_stage_starts_from_the_best_weights_and_not_the_last(tmp_path):
    assert train(tmp_path, "run", 2, **FROM_BEST).returncode == 0
    best = json.loads((tmp_path / "run" / "best" / "body" / "best.json").read_text())
    assert best["step"] < FIRST, "the best is the last: this proves nothing"
    kept = load_file(tmp_path / "run" / "best" / "body" / "model.safetensors")
    for name in ("hidden.weight", "rare.weight", "codes.weight"):  # the second stage leaves them as they are
        assert (saved(tmp_path, "run", best["step"], f"model.{name}") == kept[name]).all(), name
        assert (saved(tmp_path, "run", FIRST + 1, f"model.{name}") == kept[name]).all(), name
        assert (saved(tmp_path, "run", FIRST, f"model.{name}") != kept[name]).any(), name


# Before and behind the best one, and at the boundary.
@pytest.mark.parametrize("steps", [pytest.param(2, marks=harness.thorough), FIRST - 1, pytest.param(FIRST, marks=harness.thorough), FIRST + 1])
def test_what_was_best_is_found_again_whatever_became_of_the_run_directory(tmp_path, steps):
    assert train(tmp_path, "whole", 2, **FROM_BEST).returncode == 0
    assert train(tmp_path, "broken", 2, fault=f"forward:1:{steps}", **FROM_BEST).returncode == 70
    best = tmp_path / "broken" / "best" / "body"
    if best.exists():  # the weights of some other step, as an attempt that came further leaves them
        (best / "model.safetensors").write_bytes(b"other")
        (best / "best.json").unlink()
    again = train(tmp_path, "broken", 2, **FROM_BEST)
    assert again.returncode == 0, again.stderr
    (lines, weights), (expected, expected_weights) = outcome(tmp_path, "broken"), outcome(tmp_path, "whole")
    assert lines == expected
    assert {k: v.tobytes() for k, v in weights.items()} == {k: v.tobytes() for k, v in expected_weights.items()}


def test_a_checkpoint_from_before_the_best_was_kept_is_gone_on_from(tmp_path):
    last = harness.merged(FROM_BEST, task={"from_best": False})
    assert train(tmp_path, "run", 2, fault=f"forward:1:{FIRST - 1}", **last).returncode == 70
    again = train(tmp_path, "run", 2, **FROM_BEST)
    assert again.returncode == 0, again.stderr
    assert "does not hold the weights of its best evaluation" in again.stderr
    best = json.loads((tmp_path / "run" / "best" / "body" / "best.json").read_text())
    assert best["step"] == FIRST, "the one evaluation that was left"


@pytest.mark.parametrize("steps", [3, FIRST])
def test_a_run_that_looks_for_the_best_by_another_metric_forgets_the_old_one(tmp_path, steps):
    """At the stage's end, too, where no evaluation would come before the weights are handed over: the last one is made again."""
    by_class = harness.merged(FROM_BEST, checkpoint={"keep_best": "test/loss_class"})
    by_cox = harness.merged(FROM_BEST, checkpoint={"keep_best": "test/loss_cox"})
    assert train(tmp_path, "run", 2, fault=f"forward:1:{steps}", **by_class).returncode == 70
    again = train(tmp_path, "run", 2, **by_cox)
    assert again.returncode == 0, again.stderr
    lines = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    values = {line["step"]: line["test/loss_cox"] for line in lines if "test/loss_cox" in line and min(steps + 1, FIRST) <= line["step"] <= FIRST}
    step = min(values, key=values.get)
    best = json.loads((tmp_path / "run" / "best" / "body" / "best.json").read_text())
    assert best == {"step": step, "metric": "test/loss_cox", "value": pytest.approx(values[step], rel=1e-6)}


def test_what_a_killed_attempt_has_not_finished_goes(tmp_path):
    leftover = tmp_path / "run" / "export" / "model.safetensors.tmp-17-00c0ffee"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half of it")
    log, of_one_at_work = (tmp_path / "run" / f"log.jsonl.tmp-{number}-00c0ffee" for number in (17, 18))
    for file in (log, of_one_at_work):
        file.write_text("half of it")
    an_hour_ago = time.time() - 3700
    os.utime(log, (an_hour_ago, an_hour_ago))
    assert train(tmp_path, "run", 1).returncode == 0
    assert [file.name for file in leftover.parent.iterdir()] == ["model.safetensors"]
    assert not log.exists() and of_one_at_work.exists()


def command(*args):
    return harness.run(*args, program=harness.TEST_TASKS)


def test_the_plan_counts_every_stage_and_the_hand_over(tmp_path):
    config = harness.write_config(tmp_path / "run.json", PATCHWORK)
    result = command("plan", "--config", config, "--json")
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    body, hand_over, heads = plan["moments"]
    assert (body["name"], body["steps"], heads["name"], heads["steps"]) == ("body", FIRST, "heads", STEPS - FIRST)
    assert hand_over["hand_over_to"] == "heads" and "what the stage before leaves" in hand_over["bytes_per_rank"]
    # hidden and rare 11 x 11 and 11, codes 13 x 11; norm 11 twice, risk 11 and 1, and the bias of hidden.
    assert body["trained_parameters"] == 2 * (121 + 11) + 143 and heads["trained_parameters"] == 22 + 12 + 11
    assert plan["bytes"] == max(sum(m["bytes_per_rank"].values()) for m in plan["moments"])
    best = json.loads(command("plan", "--config", config, "--json", "--set", "task.from_best=true").stdout)["moments"]
    kept = 4 * (2 * (121 + 11) + 143 + 22 + 12 + 23)  # every weight that some stage trains, and the norm's buffers, float32
    assert best[0]["bytes_per_rank"]["best weights, fp32"] == best[0]["bytes_per_rank"]["best weights in flight"] == kept
    assert best[1]["bytes_per_rank"]["best weights in flight"] == kept and "best weights, fp32" not in best[2]["bytes_per_rank"]
    text = command("plan", "--config", config).stdout
    assert f"stage body: {FIRST} steps, {body['trained_parameters']} parameters trained" in text
    assert "hand-over to stage heads" in text and ", in the stage body" in text


def test_a_checkpoint_is_exported_as_the_run_exports_it(tmp_path):
    """Buffers, frozen parameters of the seed or of a file, and the further name of a tied one: the same bytes."""
    assert train(tmp_path, "source", 1, run={"seed": 5}).returncode == 0
    source = tmp_path / "source" / "export" / "model.safetensors"
    assert train(tmp_path, "run", 2, init={"from": str(source)}).returncode == 0
    out = tmp_path / "out.safetensors"
    for name in ("source", "run"):
        result = command("checkpoint", "export", tmp_path / name, "--out", out)
        assert result.returncode == 0, result.stderr
        assert out.read_bytes() == (tmp_path / name / "export" / "model.safetensors").read_bytes(), name
    moved = source.rename(tmp_path / "moved.safetensors")
    gone = command("checkpoint", "export", tmp_path / "run", "--out", out)
    assert gone.returncode == 64 and f"init.from: {source}: no such file" in gone.stderr and "--init-from" in gone.stderr
    found = command("checkpoint", "export", tmp_path / "run", "--out", out, "--init-from", moved)
    assert found.returncode == 0 and out.read_bytes() == (tmp_path / "run" / "export" / "model.safetensors").read_bytes(), found.stderr
    other = command("checkpoint", "export", tmp_path / "run", "--out", out, "--init-from", tmp_path / "run" / "export" / "model.safetensors")
    assert other.returncode == 64 and "its checksum is" in other.stderr, other.stderr
    seeds = command("checkpoint", "export", tmp_path / "source", "--out", out, "--init-from", moved)
    assert seeds.returncode == 64 and "the run had no init.from" in seeds.stderr, seeds.stderr
    nowhere = command("checkpoint", "export", tmp_path / "source", "--out", tmp_path / "none" / "x")
    assert nowhere.returncode == 64 and "--out: " in nowhere.stderr, nowhere.stderr


def test_stages_have_to_make_up_the_run(tmp_path):
    result = train(tmp_path, "run", 1, batch={"micro": 5})
    assert result.returncode == 64
    assert "batch.micro: 5 is not allowed for the task patchwork" in result.stderr
    result = train(tmp_path, "empty", 1, task={"first": STEPS})
    assert result.returncode == 64
    assert f"train.steps: {STEPS} leaves the stage heads no step" in result.stderr


def test_stages_that_begin_elsewhere_do_not_take_a_checkpoint_of_another(tmp_path):
    """Its weights and moments are a stage's; another stage's batches would be a crash, or nothing would be trained at all."""
    assert train(tmp_path, "run", 1, fault="forward:0:5").returncode == 70
    moved = train(tmp_path, "run", 1, task={"first": 3})
    assert moved.returncode == 64, moved.stderr
    assert "train.steps: the checkpoint of step 5 is of the stage" in moved.stderr and "steps 1 to 3" in moved.stderr, moved.stderr
    assert train(tmp_path, "run", 1, task={"first": 5}).returncode == 0


def test_a_stage_that_would_begin_later_does_not_run_past_its_schedule(tmp_path):
    """Stages that share train.steps begin later when there are more: a rate below zero would climb, and a cosine rises again."""
    assert train(tmp_path, "run", 1, fault="forward:0:13").returncode == 70
    later = train(tmp_path, "run", 1, task={"first": 12})
    assert later.returncode == 64, later.stderr
    assert "train.steps: the checkpoint of step 13 has made 5 steps of the stage" in later.stderr and "begins with step 13 here" in later.stderr, later.stderr
    assert train(tmp_path, "run", 1, train={"steps": STEPS + 6}).returncode == 0


def test_a_start_that_its_steps_keep_from_going_on_ends_nobody(tmp_path):
    """It is refused for good, and the attempt that trains goes on: the fence is not taken before all of it is known."""
    def arguments(first):
        job = harness.merged(PATCHWORK, task={"first": first}, train={"steps": 10**6}, checkpoint={"keep_last": 2}, run={"dir": str(tmp_path / "run")})
        return ["train", "--config", harness.write_config(tmp_path / f"{first}.json", job)]

    def newest():
        return max((int(p.name[5:]) for p in (tmp_path / "run" / "checkpoints").glob("step-????????")), default=0)

    live = harness.start(*arguments(10**5), program=harness.TEST_TASKS)
    try:
        harness.wait_until(lambda: newest() > 3, 60, "a step that lies in no stage of the other job")
        refused = harness.run(*arguments(3), program=harness.TEST_TASKS)
        assert refused.returncode == 64 and "is of the stage" in refused.stderr, refused.stderr
        reached = newest()
        harness.wait_until(lambda: live.poll() is not None or newest() > reached + 3, 60, "the live attempt to save")
        assert live.poll() is None, live.communicate()[0]
        live.terminate()
        output = live.communicate(timeout=60)[0]
        assert live.returncode == 75, output
    finally:
        live.kill()


def test_an_evaluation_of_what_was_saved_is_the_runs_own(tmp_path):
    """Of a checkpoint and of the exported weights: statistics of the batch norm and frozen parts included."""
    assert train(tmp_path, "source", 1, run={"seed": 5}).returncode == 0
    start = {"init": {"from": str(tmp_path / "source" / "export" / "model.safetensors")}}
    assert train(tmp_path, "run", 1, **start).returncode == 0
    own = json.loads((tmp_path / "run" / "evaluation.json").read_text())["metrics"]
    for saved_as in ("checkpoints", "export/model.safetensors"):
        result = harness.run("eval", "--config", tmp_path / "run.json", "--checkpoint", tmp_path / "run" / saved_as, program=harness.TEST_TASKS)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout[result.stdout.index("{"):])["metrics"] == own, saved_as


def peak(config, *args):
    """The most memory that `trainyard train` had resident, in bytes."""
    process = harness.start("train", "--config", config, *args, program=harness.TEST_TASKS)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, output
    # A process begins with its parent's number.
    assert usage.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage.ru_maxrss * 1024


def test_a_frozen_bfloat16_parameter_costs_two_bytes(tmp_path):
    """At the highest point of a whole run, its export included. Of 100 M parameters nothing else may be there at once but the float32 values of
    one of the 100 layers (4 MB), while they are rounded or written. The allocator keeps some of them (12 to 20 MB were seen): 40 MB are a fifth of
    what a second copy would cost in the smallest type that there is."""
    peaks = []
    for layers in (0, 100):
        job = harness.merged(harness.SMALL_PATCHWORK, model={"frozen_layers": layers}, run={"dir": str(tmp_path / str(layers))})
        peaks.append(peak(harness.write_config(tmp_path / f"{layers}.json", job)))
    cost = peaks[1] - peaks[0]
    print(f"{peaks[0] / 1e6:.0f} MB and {peaks[1] / 1e6:.0f} MB: {cost / 100e6:.2f} bytes a parameter")
    assert 200e6 <= cost <= 240e6


def test_frozen_parameters_come_from_their_source_at_every_start(tmp_path):
    """On every rank, also where a checkpoint is resumed that does not hold them."""
    assert train(tmp_path, "source", 1, run={"seed": 5}).returncode == 0
    source = tmp_path / "source" / "export" / "model.safetensors"
    start = {"init": {"from": str(source)}, "model": {"dropout": 0}}
    assert train(tmp_path, "whole", 1, **start).returncode == 0
    assert train(tmp_path, "broken", 2, fault="forward:1:11", **start).returncode == 70
    again = train(tmp_path, "broken", 2, **start)
    assert again.returncode == 0, again.stderr
    (lines, weights), (expected, _) = outcome(tmp_path, "broken"), outcome(tmp_path, "whole")
    assert (weights["frozen.weight"] == load_file(source)["frozen.weight"]).all()
    # One rank with the seed's own frozen part would be far from it.
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected], rel=1e-5)
    source.unlink()
    gone = train(tmp_path, "broken", 2, **start)
    assert gone.returncode == 64 and "no such file; the parameters that are not trained are in no checkpoint" in gone.stderr, gone.stderr


def test_a_task_of_fewer_stages_does_not_take_the_checkpoints(tmp_path):
    """A stage that the other task does not have is no damage: the job is refused for what it is, before it takes the fence."""
    assert train(tmp_path, "whole", 1, checkpoint={"keep_last": 2}).returncode == 0
    checkpoints = tmp_path / "whole" / "checkpoints"
    before = (checkpoints / "fence").read_text()
    (tmp_path / "lm").mkdir()
    other = harness.small_language_model(tmp_path / "lm")
    other = harness.merged(other, run={"dir": str(tmp_path / "other")}, checkpoint={"dir": str(checkpoints)})
    result = harness.run("train", "--config", harness.write_config(tmp_path / "other.json", other), program=harness.TEST_TASKS)
    assert result.returncode == 64 and "holds a run of another identity" in result.stderr, result.stderr
    assert (checkpoints / "fence").read_text() == before

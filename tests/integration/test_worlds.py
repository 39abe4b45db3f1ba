"""World sizes, accumulation and buckets: the same samples, the same losses, the same bits."""

import json
import signal
import urllib.error
import urllib.request

import pytest
from safetensors.numpy import load_file

import harness

COMPRESSED = dict(task={"mode": "compressed", "loss": "last_position"}, model={"context": 164})


def train(tmp_path, job, name, world, threads=1, **sections):
    directory = tmp_path / name
    config = harness.merged(job, run={"dir": str(directory)}, **sections)
    path = harness.write_config(tmp_path / f"{name}.json", config)
    record = directory / "record.jsonl"
    result = harness.run(
        "launch", "--nproc", world, "--config", path, "--record", record, program=harness.kind(job).program, timeout=240, OMP_NUM_THREADS=str(threads)
    )
    assert result.returncode == 0, result.stderr
    return harness.records(record), load_file(directory / "export" / "model.safetensors")


JOBS = [pytest.param(*task.values, {}, id=task.values[0], marks=task.marks) for task in harness.every_task(quick="language_model")] + [
    pytest.param("algorithm_distillation", COMPRESSED, id="compressed")
]


def check_that_only_sums_differ(lines, reference):
    """Equal ids at every step; losses within 1e-5: sums in another order, nothing else. The gradient's norm within 1e-4: its terms cancel each
    other, which leaves fewer places (5e-5 at most: measured)."""
    for mine, expected in zip(lines, reference, strict=True):
        assert mine["samples"] == expected["samples"]
        assert mine["input_xxh3"] == expected["input_xxh3"]
        assert mine["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert mine["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)


def refuses_other_micro_batches(tmp_path, job):
    """Instead of what holds for micro-batches of any size (SmallJob.whole_share says why)."""
    config = harness.merged(job, batch={"global": 12, "micro": 4}, run={"dir": str(tmp_path / "refused")})
    result = harness.run("launch", "--nproc", 1, "--config", harness.write_config(tmp_path / "refused.json", config), program=harness.kind(job).program)
    assert result.returncode == 64
    assert "batch.micro: 4 is not allowed" in result.stderr and "share of 12 is one micro-batch" in result.stderr


@pytest.mark.parametrize("task, sections", JOBS)
@pytest.mark.parametrize("accumulation", [pytest.param(1, marks=harness.thorough), 3])
def test_losses_agree_between_world_sizes(tmp_path, small_jobs, task, sections, accumulation):
    """In compressed mode some samples ask for the token </c> instead of an action, so valid targets are
    unequal over ranks and micro-batches: a mean of means would show at once.
    """
    if accumulation > 1 and harness.SMALL_JOBS[task].whole_share:
        return refuses_other_micro_batches(tmp_path, small_jobs[task])
    job = harness.merged(small_jobs[task], **harness.SMALL_JOBS[task].compared)
    reference = None
    for world in (1, 2, 4):
        lines, _ = train(tmp_path, job, f"w{world}", world, batch={"global": 12, "micro": 12 // world // accumulation}, train={"steps": 50}, **sections)
        assert len(lines) == 50
        if reference is None:
            reference = lines
        check_that_only_sums_differ(lines, reference)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("task", harness.every_task(quick="language_model"))
def test_threads_do_not_change_a_bit(tmp_path, small_jobs, task, precision):
    """With the threads that read and collate the samples: they may change the order of nothing either."""
    job = harness.merged(small_jobs[task], train={"steps": 4}, model={"dropout": 0.1}, precision={"compute": precision})
    job = harness.merged(job, **harness.kind(job).threads)
    results = [train(tmp_path, job, f"t{threads}", 1, threads, data={"workers": workers}) for threads, workers in ((1, 1), (2, 4), (3, 2))]
    for lines, weights in results[1:]:
        assert lines == results[0][0]
        assert all(weights[k].tobytes() == results[0][1][k].tobytes() for k in weights)


@pytest.mark.parametrize("world", [pytest.param(2, marks=harness.thorough), 3])
def test_bucket_size_does_not_change_a_bit(tmp_path, small_job, world):
    results = [train(tmp_path, small_job, f"b{i}", world, batch={"global": 12}, parallel={"bucket_mib": mib}) for i, mib in enumerate((25, 0.01, 0.002))]
    for lines, weights in results[1:]:
        assert lines == results[0][0]
        assert all((weights[k].tobytes() == results[0][1][k].tobytes()) for k in weights)


def test_a_checkpoint_of_any_world_resumes_at_any_other(tmp_path, small_job):
    small_job = harness.merged(small_job, **harness.kind(small_job).shortened)
    whole, _ = train(tmp_path, small_job, "whole", 1, batch={"global": 12}, train={"steps": 12})
    for first, second in ((1, 2), (2, 4), (4, 1)):
        name = f"from{first}to{second}"
        # The schedule is constant, so a shorter run is the beginning of a longer one.
        train(tmp_path, small_job, name, first, batch={"global": 12}, train={"steps": 6})
        lines, _ = train(tmp_path, small_job, name, second, batch={"global": 12}, train={"steps": 12})
        assert [line["samples"] for line in lines] == [line["samples"] for line in whole]
        assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in whole], rel=1e-5)


def test_any_world_size_runs_any_global_batch(tmp_path, small_job):
    """16 samples over 1 to 5 ranks, so shares of 16, 8, 5 or 6, 4, and 3 or 4: the same ids, sums in another order."""
    reference = None
    for world in (1, 2, 3, 4, 5):
        lines, _ = train(tmp_path, small_job, f"any{world}", world, batch={"global": 16}, train={"steps": 12})
        reference = reference or lines
        check_that_only_sums_differ(lines, reference)


def test_a_rank_may_have_no_sample(tmp_path, small_job):
    small_job = harness.merged(small_job, **harness.kind(small_job).shortened)
    lines, _ = train(tmp_path, small_job, "two", 2, batch={"global": 2}, train={"steps": 5})
    more, _ = train(tmp_path, small_job, "four", 4, batch={"global": 2}, train={"steps": 5})
    assert [line["samples"] for line in more] == [line["samples"] for line in lines]
    assert [line["loss"] for line in more] == pytest.approx([line["loss"] for line in lines], rel=1e-5)


def test_a_sample_has_its_dropout_at_every_world_size(tmp_path, small_job):
    """With one sample a micro-batch the masks depend on its place in the global batch alone."""
    if harness.kind(small_job).whole_share:
        return refuses_other_micro_batches(tmp_path, small_job)
    runs = [train(tmp_path, small_job, f"drop{world}", world, model={"dropout": 0.1}, batch={"global": 8, "micro": 1}, train={"steps": 8})[0] for world in (1, 2, 3)]
    for lines in runs[1:]:
        assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in runs[0]], rel=1e-5)


def nodes(tmp_path, config, record):
    """Two launchers of a rank each, whose checkpoint directories are their own, of-0 and of-1; and where their statuses are."""
    master, ports = harness.free_port(), [harness.free_port(), harness.free_port()]
    return ports, [
        harness.start("launch", "--config", config, "--record", record, "--set", f"checkpoint.dir={tmp_path}/of-{node}", TRAINYARD_STATUS_PORT=ports[node],
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=master, PET_NNODES=2, PET_NODE_RANK=node, PET_NPROC_PER_NODE=1)
        for node in (0, 1)
    ]


def saved(port):
    """The checkpoint of a rank's status, once there is one that this attempt has made."""
    try:
        checkpoint = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=60).read())["checkpoint"]
    except (urllib.error.HTTPError, OSError):
        return None
    return checkpoint if checkpoint["durable"] else None


def test_ranks_without_a_common_directory_save_once_and_go_on(tmp_path, small_jobs):
    """With ddp: rank 0 writes the whole, into its own directory, and whatever it goes on from reaches the others."""
    job = harness.merged(small_jobs["language_model"], model={"dropout": 0.1}, batch={"global": 12}, run={"dir": str(tmp_path / "run")}, checkpoint={"every": 5, "keep_last": 10**6})
    record = tmp_path / "run" / "record.jsonl"
    ports, launchers = nodes(tmp_path, harness.write_config(tmp_path / "endless.json", harness.merged(job, train={"steps": 10**6})), record)
    told = [harness.wait_until(lambda: saved(port), 90, f"a checkpoint of the rank at {port}") for port in ports]
    for launcher in launchers:
        launcher.send_signal(signal.SIGTERM)
    outputs = [launcher.communicate(timeout=90)[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [75, 75], outputs
    for checkpoint in told:
        step = tmp_path / "of-0" / f"step-{checkpoint['step']:08d}"
        assert sorted(file.name for file in step.iterdir()) == ["manifest.json", "rank-00000-of-00002.safetensors"]
        assert checkpoint["bytes"] == sum(file.stat().st_size for file in step.iterdir()), "once, however many ranks there are"
    assert not list((tmp_path / "of-1").glob("step-*"))
    done = harness.records(record)[-1]["step"]
    _, launchers = nodes(tmp_path, harness.write_config(tmp_path / "end.json", harness.merged(job, train={"steps": done + 7})), record)
    outputs = [launcher.communicate(timeout=90)[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], outputs
    assert f"resuming from {tmp_path}/of-0/step-{done:08d}" in outputs[0] and "not bit-exact" not in outputs[0], outputs
    lines, weights = train(tmp_path, job, "common", 2, train={"steps": done + 7})
    assert harness.records(record) == lines
    exported = load_file(tmp_path / "run" / "export" / "model.safetensors")
    assert all(weights[key].tobytes() == exported[key].tobytes() for key in weights)

"""`trainyard plan`: what a run will see, decide and take; that the run then says the same; and what a cgroup leaves."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import harness

CGROUPS = pathlib.Path("/sys/fs/cgroup")


@pytest.fixture
def job(tmp_path):
    def write(**sections):
        config = harness.small_language_model(tmp_path)
        del config["batch"]
        return harness.write_config(tmp_path / "job.json", harness.merged(config, run={"dir": str(tmp_path / "run")}, **sections))

    return write


def plan(config, *args, code=0, **env):
    result = harness.run("plan", "--config", config, *args, "--json", **env)
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


def decisions(document):
    return {d["name"]: d for d in document["decisions"]}


def block(text, title):
    """The lines below a title of a banner or a plan."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(rf"  {title}\b", line))
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith("    ")), len(lines))
    return lines[start:end]


@pytest.mark.parametrize("ranks, sets", [(1, []), (2, ["parallel.stage=zero1"]), (2, ["batch.global=24", "precision.compute=bf16", "data.prefetch=3"])])
def test_the_run_says_what_the_plan_said(job, ranks, sets):
    config = job()
    sets = [word for each in sets for word in ("--set", each)]
    said = harness.run("plan", "--config", config, "--ranks", ranks, *sets)
    assert said.returncode == 0, said.stderr
    run = harness.run("launch", "--nproc", ranks, "--config", config, *sets, "--set", "train.steps=2")
    assert run.returncode == 0, run.stderr
    for title in ("decided", "memory"):
        assert block(run.stderr, title) == block(said.stdout, title), title
        assert len(block(said.stdout, title)) > 4
    # The disk's free space moves; what is there does not.
    for title in ("GPUs", "CPUs", "memory"):
        assert [line for line in block(said.stdout, "hardware") if title in line][0] in run.stderr


def test_every_decision_has_its_value_and_where_it_comes_from(job):
    config = job(parallel={"stage": "zero2"})
    made = decisions(plan(config, "--ranks", 2, "--set", "batch.micro=2"))
    assert {"device", "stage", "reduce", "offload", "precision", "micro_batch", "accumulation", "global_batch", "loader_threads", "prefetch", "omp_num_threads",
            "optimizer_threads"} == set(made)
    assert (made["stage"]["value"], made["stage"]["source"]) == ("zero2", "file")
    assert (made["micro_batch"]["value"], made["micro_batch"]["source"]) == (2, "command line")
    assert (made["omp_num_threads"]["value"], made["omp_num_threads"]["source"]) == (1, "environment")
    assert made["micro_batch"]["value"] * made["accumulation"]["value"] * 2 == made["global_batch"]["value"]
    for decision in made.values():
        assert decision["source"] != "auto" or decision["why"], decision
    document = (pathlib.Path(harness.__file__).parents[2] / "docs" / "plan.md").read_text()
    for name in made:
        assert f"`{name}`" in document, f"docs/plan.md lists every decision: {name}"


def test_without_gpus_the_guides_batch(job):
    made = decisions(plan(job(), "--ranks", 2))
    assert [made[name]["value"] for name in ("micro_batch", "accumulation", "global_batch")] == [4, 8, 64]
    assert (made["stage"]["value"], made["precision"]["value"]) == ("ddp", "fp32")


FAR_PLUGIN = os.environ.get("TRAINYARD_FAR_PLUGIN", "build/release/lib/libfar_plugin.so")
DRIVER = os.environ.get("TRAINYARD_FAKE_DRIVER", "build/release/lib/fake_driver")
PLUGIN = pathlib.Path(harness.BIN).resolve().parent.parent / "lib" / "trainyard" / "libtrainyard_cuda.so"


def with_gpus(cards, **extra):
    """The environment of a machine whose driver says that it has these."""
    return {"LD_LIBRARY_PATH": os.pathsep.join([os.path.abspath(DRIVER), os.environ.get("LD_LIBRARY_PATH", "")]), "FAKE_GPUS": cards, **extra}


@pytest.fixture
def with_plugin(tmp_path):
    """The program beside a plug-in that opens and sees devices."""
    prefix = tmp_path / "prefix"
    for folder in ("bin", "lib/trainyard"):
        (prefix / folder).mkdir(parents=True)
    shutil.copy(FAR_PLUGIN, prefix / "lib/trainyard/libtrainyard_cuda.so")
    return shutil.copy(harness.BIN, prefix / "bin/trainyard")


def test_gpus_that_the_driver_names_are_used(job, with_plugin):
    config, env = job(), with_gpus("NVIDIA L4:22:89,NVIDIA T4:15:75")
    said = json.loads(harness.run("plan", "--config", config, "--json", program=with_plugin, **env).stdout)
    assert [(gpu["name"], gpu["total_bytes"], gpu["free_bytes"], gpu["compute_capability"]) for gpu in said["hardware"]["gpus"]] == [
        ("NVIDIA L4", 22 << 30, 11 << 30, "8.9"), ("NVIDIA T4", 15 << 30, 15 << 29, "7.5")]  # fmt: skip
    made = decisions(said)
    assert said["ranks"] == 2, "one for each"
    assert [made[name]["value"] for name in ("device", "stage", "precision", "micro_batch")] == ["cuda", "zero2", "fp16", 12]
    assert said["limit"] == {"bytes": 15 << 29, "source": "free memory of the NVIDIA T4", "of_one_rank": True}
    # What nobody says is unknown, and judged by what there is.
    said = json.loads(harness.run("plan", "--config", config, "--json", program=with_plugin, **env, FAKE_NVML_FAILS=1).stdout)
    assert [gpu["free_bytes"] for gpu in said["hardware"]["gpus"]] == [None, None]
    assert said["limit"] == {"bytes": 15 << 30, "source": "memory, of which the driver does not say what is free, of the NVIDIA T4", "of_one_rank": True}
    assert "(unknown how much is free)" in harness.run("plan", "--config", config, program=with_plugin, **env, FAKE_NVML_FAILS=1).stdout


def test_gpus_that_are_not_used_say_why(job, with_plugin, tmp_path):
    config, env = job(), with_gpus("NVIDIA L4:22:89")

    def gpus(program, *sets, **more):
        result = harness.run("plan", "--config", config, *sets, program=program, **{**env, **more})
        assert result.returncode == 0, result.stderr
        assert "device             c" in result.stdout
        return next(line.split(maxsplit=1)[1] for line in result.stdout.splitlines() if line.startswith("    GPUs")), "cpu (" in result.stdout

    assert gpus(with_plugin, "--set", "parallel.device=cpu") == ("none: not asked for: parallel.device is cpu", True)
    assert gpus(with_plugin, FAKE_GPUS="NVIDIA L4:22:89,Tesla P100:16:60") == ("none: 2 seen, the first NVIDIA L4, and not used: Tesla P100 has compute capability 6.0, below 7.5", True)
    plugin = tmp_path / "prefix/lib/trainyard/libtrainyard_cuda.so"
    plugin.write_bytes(b"")
    line, on_cpu = gpus(with_plugin)
    assert line.startswith(f"none: 1 seen, the first NVIDIA L4, and not used: {plugin} does not open: ") and on_cpu
    plugin.unlink()
    assert gpus(with_plugin) == (f"none: 1 seen, the first NVIDIA L4, and not used: {plugin} is not there", True)
    # No GPU is not the same as one that nobody can ask: that would train for weeks on processors.
    result = harness.run("plan", "--config", config, program=with_plugin, **env, FAKE_DRIVER_FAILS=999)
    assert result.returncode == 64 and "parallel.device: auto: NVIDIA's driver is there and does not answer (cuInit: error 999)" in result.stderr, result.stderr
    assert gpus(with_plugin, "--set", "parallel.device=cpu", FAKE_DRIVER_FAILS=999)[1]
    assert gpus(with_plugin, FAKE_DRIVER_FAILS=100) == ("none", True)
    assert gpus(with_plugin, FAKE_GPUS="") == ("none", True)


@pytest.mark.skipif(not PLUGIN.exists(), reason="libtrainyard_cuda.so was not built")
def test_gpus_without_cuda_s_libraries_leave_a_run_to_the_processors_and_say_so(job):
    """As a workstation has them after `make build` alone: the plug-in is there, what it needs is not, or sees no device."""
    env = with_gpus("NVIDIA L4:22:89,NVIDIA L4:22:89")
    for args in (("train",), ("launch", "--nproc", "auto")):
        result = harness.run(*args, "--config", job(), "--set", "train.steps=2", **env)
        assert result.returncode == 0, result.stderr
        assert re.search(r"warning: .*GPUs: 2 seen, the first NVIDIA L4, and not used: .*; this run computes on the host's processors", result.stderr), result.stderr
    result = harness.run("train", "--config", job(), "--set", "parallel.device=cuda", **env)
    assert result.returncode == 64 and "parallel.device: cuda: 2 seen" in result.stderr and "with cpu ranks compute on the host's processors" in result.stderr, result.stderr
    result = harness.run("plan", "--config", job(), "--set", "parallel.device=cuda", **{**env, "FAKE_GPUS": "Tesla P100:16:60"})
    assert result.returncode == 64 and "Tesla P100 has compute capability 6.0, below 7.5" in result.stderr, result.stderr


def test_the_schema_is_that_of_the_page(job):
    document = plan(job(), "--ranks", 2)
    page = (pathlib.Path(harness.__file__).parents[2] / "docs" / "plan.md").read_text()
    assert document["format"] == 1
    for key in document:
        assert f"| `{key}` |" in page, key
    for key in document["hardware"]:
        assert f"`{key}`" in page, key


def test_what_does_not_fit_names_what_would(job):
    config = job(model={"dim": 1024, "layers": 12, "heads": 8})
    with cgroup(memory=2 << 30) as enter:
        result = enter("plan", "--config", config, "--ranks", 4, "--json")
        text = enter("plan", "--config", config, "--ranks", 4)
        run = enter("launch", "--nproc", 4, "--config", config)
    document = json.loads(result.stdout)
    assert result.returncode == text.returncode == 71, result.stderr
    assert len(document["remedies"]) == 3
    for remedy in document["remedies"]:
        larger = "a memory limit of" in remedy["change"]
        assert remedy["fits"] == (larger or remedy["needs_bytes"] <= document["limit"]["bytes"]), remedy
        assert remedy["needs_bytes"] + remedy["saves_bytes"] == document["bytes"] or remedy["saves_bytes"] == 0, remedy
        assert remedy["change"] in text.stdout and remedy["change"] in run.stderr, remedy
    assert run.returncode == 71 and "the cheapest remedies: " in run.stderr and not (pathlib.Path(json.loads(config.read_text())["run"]["dir"]) / "checkpoints").exists()
    # What it proposes is what the plan then says.
    for remedy in document["remedies"]:
        if remedy["change"].startswith("parallel.stage: ") and "times" not in remedy["change"]:
            sets = [word for each in remedy["change"].split(", ") for word in ("--set", each.replace(": ", "="))]
            assert harness_plan_bytes(config, 4, sets) == remedy["needs_bytes"]
        if remedy["change"].startswith("--nproc "):
            assert harness_plan_bytes(config, remedy["change"].split()[1], []) == remedy["needs_bytes"]


def harness_plan_bytes(config, ranks, sets):
    result = harness.run("plan", "--config", config, "--ranks", ranks, *sets, "--json")
    return json.loads(result.stdout)["bytes"]


@contextlib.contextmanager
def cgroup(quota=None, cpus=None, memory=None):
    """Runs the program in a cgroup of its own with these limits; skips where none can be made."""
    v1 = (CGROUPS / "cpu").is_dir()
    name, made = f"trainyard-plan-{os.getpid()}", []

    def folder(controller):
        path = (CGROUPS / controller if v1 else CGROUPS) / name
        if path not in made:
            path.mkdir()
            made.append(path)
        return path

    try:
        try:
            if quota and v1:
                (folder("cpu") / "cpu.cfs_period_us").write_text("100000")
                (folder("cpu") / "cpu.cfs_quota_us").write_text(str(int(quota * 100000)))
            elif quota:
                (folder("cpu") / "cpu.max").write_text(f"{int(quota * 100000)} 100000")
            if cpus is not None:
                group = folder("cpuset")
                if v1:
                    (group / "cpuset.mems").write_text((CGROUPS / "cpuset" / "cpuset.mems").read_text())
                (group / "cpuset.cpus").write_text(cpus)
            if memory:
                (folder("memory") / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(memory))
                swap = folder("memory") / ("memory.memsw.limit_in_bytes" if v1 else "memory.swap.max")
                if swap.exists():  # with swap a process grows slow instead
                    swap.write_text(str(memory) if v1 else "0")
        except OSError as error:
            pytest.skip(f"needs the right to make a cgroup with these limits (unit/cpus_test.cc and memory_test.cc have the rest): {error}")

        def enter(*args):
            env = {k: v for k, v in harness.environment().items() if k != "OMP_NUM_THREADS"}
            join = " && ".join(f"echo $$ > {path}/cgroup.procs" for path in made)
            return subprocess.run(["sh", "-c", join + ' && exec "$0" "$@"', harness.BIN, *map(str, args)], capture_output=True, text=True, timeout=120, env=env)

        yield enter
    finally:
        for path in made:
            path.rmdir()


def test_limits_of_a_cgroup_and_not_of_the_machine(job):
    """What a container has: a quota, a cpuset, a memory limit. Each is seen, and decides."""
    config = job()
    with cgroup(quota=1.5, cpus="0", memory=3 << 30) as enter:
        result = enter("plan", "--config", config, "--ranks", 1, "--json")
        assert result.returncode == 0, result.stderr
        document = json.loads(result.stdout)
        cpus = document["hardware"]["cpus"]
        assert (cpus["count"], cpus["cpuset"], cpus["quota"]) == (1, 1, 1.5) and cpus["machine"] == os.sysconf("SC_NPROCESSORS_ONLN"), cpus
        assert document["hardware"]["memory"]["bytes"] == 3 << 30 and document["limit"]["bytes"] == 3 << 30
        assert "memory" in document["hardware"]["memory"]["source"]
        assert decisions(document)["omp_num_threads"]["value"] == 1
        run = enter("launch", "--nproc", 1, "--config", config, "--set", "train.steps=1")
        assert run.returncode == 0, run.stderr
        text = enter("plan", "--config", config, "--ranks", 1)
        assert block(run.stderr, "decided") == block(text.stdout, "decided")
    with cgroup(quota=1.5) as enter:
        made = decisions(json.loads(enter("plan", "--config", config, "--ranks", 1, "--json").stdout))
        assert made["omp_num_threads"]["value"] == min(2, os.sysconf("SC_NPROCESSORS_ONLN"))


def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_said_to_be(job, tmp_path):
    """The plan counts no activations, and the kernel tells nobody why it kills."""
    config = job(model={"dim": 256, "layers": 4}, batch={"global": 512, "micro": 512})
    with cgroup(memory=400 << 20) as enter:
        enough = enter("launch", "--nproc", 1, "--config", config, "--set", "batch.micro=4", "--set", "train.steps=1")
        assert enough.returncode == 0, enough.stderr
        result = enter("launch", "--nproc", 1, "--config", config, "--set", f"run.dir={tmp_path / 'once'}")
    assert result.returncode == 137, result.stderr
    assert "rank 0 of 1: killed by the kernel, for want of memory (signal 9); smaller batch.micro, data.prefetch or data.workers take less" in result.stderr
    assert "(exit code 137, OOMKilled)" in result.stderr

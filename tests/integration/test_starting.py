"""Starts that wait, are stopped, or fail before the first step: promptly, with one line that says why."""

import csv
import gzip
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness

SLOW_COPY = os.environ.get("TRAINYARD_SLOW_COPY", "build/release/lib/libslow_copy.so")
KILLED = "did not end by themselves"  # The launcher's words: somebody waited for something that could not come.


@pytest.fixture
def job(tmp_path, data):
    def write(**sections):
        config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, **sections)
        return harness.write_config(tmp_path / "job.json", config)

    return write


def node(config, number, port, nproc=1, **extra):
    """The launcher of one of two nodes; node 0's store is at 127.0.0.1."""
    env = dict(PET_NNODES=2, PET_NODE_RANK=number, PET_NPROC_PER_NODE=nproc, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    return harness.start("launch", "--config", config, **{**env, **extra})


def finish(process, code):
    output = process.communicate(timeout=60)[0]
    assert process.returncode == code, output
    assert "frame #" not in output, "a C++ stack is no message"
    return output


def outlived(launcher):
    """How long the launcher of a node is there when its ranks are not any more. REQUIRES: they are there."""
    ranks = harness.ranks_of(launcher.pid).values()
    harness.wait_until(lambda: not any(harness.alive(pid) for pid in ranks), 60, "the ranks to end")
    ended = time.monotonic()
    launcher.wait(timeout=120)
    return time.monotonic() - ended


# Who stops a pod gives it 30 seconds in all, which the ranks need. The launcher looks for node 0's store for a second, and its ranks' logs have three to be
# written; the rest is a busy machine's. What this is to notice is one that waits for as long as ranks do: parallel.rendezvous_seconds, 300.
SECONDS_TO_SIGN_OFF = 15


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_that_waits_for_rank_0_obeys_a_stop(job, tmp_path, number):
    launcher = node(job(), 1, harness.free_port(), nproc=2)
    harness.wait_until(lambda: len(harness.ranks_of(launcher.pid)) == 2, what="both ranks")
    time.sleep(2)
    launcher.send_signal(number)
    assert outlived(launcher) < SECONDS_TO_SIGN_OFF
    output = finish(launcher, 75)
    assert KILLED not in output
    assert "rank 2 of 4: stopped on request" in output or "rank 3 of 4: stopped on request" in output


def test_a_stop_is_one_where_the_store_went_first(job):
    """A job is stopped on all its nodes at once, and node 0 may be gone before another one's ranks see their stop."""
    config, port = job(), harness.free_port()
    first, second = (node(config, number, port, PET_NNODES=3) for number in (0, 1))
    harness.wait_until(lambda: len(harness.ranks_of(second.pid)) == 1, what="the rank")
    time.sleep(2)  # It asks the store whether all are there, over and over; where it stands in that is not to matter.
    (rank,) = harness.ranks_of(second.pid).values()
    os.kill(rank, signal.SIGSTOP)
    second.send_signal(signal.SIGTERM)
    first.kill()
    first.communicate(timeout=60)
    os.kill(rank, signal.SIGCONT)
    output = finish(second, 75)
    assert "rank 1 of 3: stopped on request" in output, output


def test_a_node_ends_with_its_ranks(job):
    """The ranks give up; their launcher has nothing left to wait for."""
    config = job(parallel={"rendezvous_seconds": 7})
    port = harness.free_port()
    launcher = node(config, 1, port)
    harness.wait_until(lambda: harness.ranks_of(launcher.pid), what="the rank")
    assert outlived(launcher) < SECONDS_TO_SIGN_OFF
    output = finish(launcher, 69)
    assert f"waiting for rank 0's store at 127.0.0.1:{port} (MASTER_ADDR, MASTER_PORT): Connection refused" in output
    assert "rank 1 of 2: waited 7.0s for rank 0's store" in output
    assert len(output.splitlines()) < 10, output


OTHERS = {
    "optim.lr": ({"optim": {"lr": 0.1}}, 64, "optim.lr: 0.1, not 0.001"),
    "free": ({"checkpoint": {"every": 4}}, 64, "checkpoint.every: 4, not 0"),
    "samples": ({"data": {"path": "LESS"}}, 65, "952 for rank 0: every rank needs the same data"),
    "tokens": ({"data": {"path": "OTHER"}}, 65, "rank 1 has other data than rank 0, of as many samples"),
}  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
def test_a_rank_with_another_configuration_ends_the_start(tmp_path, other):
    """Each rank reads its own file, and in ddp nothing would fail: every replica would become another model."""
    changes, code, message = json.loads(json.dumps(OTHERS[other]).replace("LESS", str(tmp_path / "less")).replace("OTHER", str(tmp_path / "other")))
    for name, windows, pair in (("all", 952, [1, 2]), ("less", 900, [1, 2]), ("other", 952, [2, 1])):
        (tmp_path / name).mkdir()
        for shard, count in (("train", windows), ("test", 64)):
            harness.write_tokens(tmp_path / name / f"{shard}.tokens", pair * (8 * count) + [1], 16)
    base = harness.merged(harness.SMALL_LANGUAGE_MODEL, data={"path": str(tmp_path / "all"), "test_shard": "test.tokens"}, run={"dir": str(tmp_path / "run")})
    harness.write_config(tmp_path / "0.json", base)
    harness.write_config(tmp_path / "1.json", harness.merged(base, **changes))
    port = harness.free_port()
    launchers = [node(tmp_path / f"{number}.json", number, port) for number in (0, 1)]
    assert "rank 1 has another configuration" in (output := finish(launchers[1], code)) or code == 65, output
    assert message in output
    output = finish(launchers[0], 69)
    assert "rank 1" in output and message in output, "rank 0 says why as well"
    assert not (tmp_path / "run/log.jsonl").exists()


def test_a_rank_of_another_job_that_finds_the_port_ends_nobody(tmp_path):
    """Two jobs with one MASTER_PORT: the ranks of the second come to the store of the first, whose world is complete without them."""
    harness.write_tokens(tmp_path / "train.tokens", [1, 2] * 4000 + [1], 16)
    base = harness.merged(harness.SMALL_LANGUAGE_MODEL, data={"path": str(tmp_path / "train.tokens")}, train={"steps": 400}, checkpoint={"every": 1, "keep_last": 2}, run={"dir": str(tmp_path / "run")})
    port = harness.free_port()
    healthy = harness.start("launch", "--nproc", 2, "--config", harness.write_config(tmp_path / "a.json", base), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    steps = lambda: max((int(p.name[5:]) for p in (tmp_path / "run/checkpoints").glob("step-????????")), default=0)  # noqa: E731
    try:
        harness.wait_until(lambda: steps() > 2 or healthy.poll() is not None, 60, "the first steps")
        other = harness.write_config(tmp_path / "b.json", harness.merged(base, run={"dir": str(tmp_path / "other")}, optim={"lr": 2e-3}))
        foreign = harness.run("train", "--config", other, RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        assert foreign.returncode == 64 and "another configuration than rank 0" in foreign.stderr, foreign.stderr
        assert healthy.poll() is None, "the job was over before the other one came"
        finish(healthy, 0)
    finally:
        healthy.kill()


def later(folder):
    """Another outcome of one subject."""
    table = folder / "dataset.csv"
    rows = list(csv.DictReader(table.open()))
    row = next(row for row in rows if row["Fold_1"] == "train")
    row["time"] = str(float(row["time"]) + 1)
    with table.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def longer(folder):
    """Another version of one file."""
    image = min(folder.glob("*/*_pa_drr.png"))
    image.write_bytes(image.read_bytes() + b"\0")


def store(folder, bit=0):
    """Without compression, a volume is as long whatever its voxels are."""
    image = min(folder.glob("*/*.nii.gz"))
    voxels = bytearray(gzip.decompress(image.read_bytes()))
    voxels[-1] ^= bit
    image.write_bytes(gzip.compress(bytes(voxels), 0, mtime=0))


def another(folder):
    """Other voxels in a file of the same size."""
    store(folder, 1)


@pytest.mark.parametrize("task, change", [("mace_survival", later), ("hybrid_vit_cascade", longer), ("mace_survival", another), ("hybrid_vit_cascade", another)])
def test_a_rank_with_another_version_of_the_data_ends_the_start(tmp_path, task, change):
    """As many samples; only their content differs. A copy elsewhere, with another table's bytes, is no other version."""
    (tmp_path / "there").mkdir()
    base = harness.merged(harness.SMALL_JOBS[task].make(tmp_path / "there"), run={"dir": str(tmp_path / "run")})
    data = pathlib.Path(base["data"]["path"])
    store(data)
    shutil.copytree(data, tmp_path / "here")
    if (table := tmp_path / "here/dataset.csv").exists():
        table.write_bytes(table.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    for number, path in ((0, data), (1, tmp_path / "here")):
        harness.write_config(tmp_path / f"{number}.json", harness.merged(base, data={"path": str(path)}))
    for code in (0, 65):
        port = harness.free_port()
        launchers = [node(tmp_path / f"{number}.json", number, port) for number in (0, 1)]
        output = finish(launchers[1], code)
        assert ("rank 1 has other data than rank 0" in output) == (code == 65), output
        finish(launchers[0], 0 if code == 0 else 69)
        shutil.rmtree(tmp_path / "run")
        change(tmp_path / "here")


def test_what_a_node_may_have_for_itself(tmp_path, data):
    """Where things lie, and how a rank reads them."""
    (tmp_path / "here").symlink_to(data)
    base = harness.merged(harness.SMALL, run={"dir": str(tmp_path / "run")})
    for number, own in enumerate(({"path": str(data)}, {"path": str(tmp_path / "here"), "workers": 2, "prefetch": 1})):
        harness.write_config(tmp_path / f"{number}.json", harness.merged(base, data=own))
    port = harness.free_port()
    for launcher in [node(tmp_path / f"{number}.json", number, port) for number in (0, 1)]:
        finish(launcher, 0)


def test_a_host_that_is_no_store(job):
    """Something else listens on MASTER_PORT: it accepts, and hangs up or never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def hang_up():
            try:
                while True:
                    server.accept()[0].close()
            except OSError:
                pass

        thread = threading.Thread(target=hang_up)
        thread.start()
        output = finish(node(job(parallel={"rendezvous_seconds": 5}), 1, server.getsockname()[1]), 69)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "MASTER_ADDR" in output and len(output.splitlines()) < 10, output


@pytest.mark.parametrize(
    "env, code, words",
    [
        ({"MASTER_ADDR": ""}, 64, "MASTER_ADDR: missing"),
        ({"MASTER_ADDR": "no-such-host.invalid"}, 69, "MASTER_ADDR, MASTER_PORT): cannot resolve the name"),
        ({"MASTER_PORT": "99999"}, 64, "MASTER_PORT: 99999 is not allowed; expected an integer from 1 to 65535"),
        ({"WORLD_SIZE": "99999999999"}, 64, "WORLD_SIZE: 99999999999 is not allowed"),
        ({"RANK": "4294967297"}, 64, "RANK: 4294967297 is not allowed"),
    ],
)
def test_wrong_environment_is_one_line(job, env, code, words):
    world = dict(RANK=1, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=harness.free_port())
    result = harness.run("train", "--config", job(parallel={"rendezvous_seconds": 2}), **{**world, **env})
    assert result.returncode == code, result.stderr
    assert words in result.stderr and len(result.stderr.splitlines()) <= 2, result.stderr


def test_a_stop_before_main(job):
    """While LibTorch initialises itself, most of the time between exec and main, a stop already waits for its handler."""
    process = harness.start("launch", "--nproc", 2, "--config", job(), LD_DEBUG="files")
    for line in process.stdout:
        if "calling init: " in line and "libtorch_cpu" in line:
            break
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 75, output[-2000:]
    assert "stopped on request before the ranks were started" in output


def test_a_stop_in_the_first_moments(job):
    """At any moment before and after the ranks have met: 75, and nobody waits until he has to be killed."""
    seed = int(os.environ.get("TRAINYARD_TEST_SEED", "7"))
    print(f"seed {seed} (set TRAINYARD_TEST_SEED to repeat another)")
    rng = random.Random(seed)
    config = job(train={"steps": 100000})
    for _ in range(10):
        process = harness.start("launch", "--nproc", 2, "--config", config)
        harness.wait_until(lambda: harness.ranks_of(process.pid), what="a rank")
        delay = rng.uniform(0, 2.5)
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        output = finish(process, 75)
        assert KILLED not in output, (delay, output)


def test_the_others_learn_that_a_rank_has_failed(job):
    """Only rank 0 sees that run.dir holds another run; rank 1, on another node, does not wait for it until its deadline."""
    config = job()
    assert harness.run("launch", "--config", config).returncode == 0
    port = harness.free_port()
    config = job(model={"dim": 32}, parallel={"rendezvous_seconds": 600})
    nodes = [node(config, number, port) for number in (1, 0)]
    assert "another identity" in finish(nodes[1], 64)
    output = finish(nodes[0], 69)
    assert "rank 0 has ended: run.dir: " in output, output


def test_a_bad_run_directory_ends_before_there_are_ranks(job, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    config = job()
    result = harness.run("launch", "--nproc", 2, "--config", config, "--set", f"run.dir={blocker}/run")
    assert result.returncode == 64, result.stderr
    assert len(result.stderr.splitlines()) == 1 and "run.dir: " in result.stderr, result.stderr


def cpu_quota(cpus):
    """A cgroup with this quota. Raises OSError where this machine does not allow one."""
    v1, v2 = pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup")
    group = (v1 if v1.is_dir() else v2) / f"trainyard-test-{os.getpid()}"
    group.mkdir()
    if v1.is_dir():
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(int(cpus * 100000)))
    else:
        (group / "cpu.max").write_text(f"{int(cpus * 100000)} 100000")
    return group


def test_threads_follow_the_cgroups_quota(job):
    """A pod's limit of 1.5 CPUs: 2 threads for one rank, 1 for each of two, and why."""
    config, group = job(), None
    try:
        group = cpu_quota(1.5)
    except OSError as error:
        pytest.skip(f"needs the right to make a cgroup with a quota (tests/unit/cpus_test.cc has the rest): {error}")
    try:
        for nproc, threads in ((1, 2), (2, 1)):
            env = {k: v for k, v in harness.environment().items() if k != "OMP_NUM_THREADS"}
            command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", harness.BIN, "launch", "--nproc", nproc, "--config", config,
                       "--set", f"run.dir=run-{nproc}"]
            result = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env, cwd=config.parent, timeout=120)
            assert result.returncode == 0, result.stderr
            assert f"OMP threads        {threads} (auto: 1.5 CPUs of the cgroup's quota, {nproc} rank" in result.stderr, result.stderr
            saved = json.loads(next(config.parent.glob(f"run-{nproc}/checkpoints/step-*/manifest.json")).read_text())
            assert saved["bits"]["threads"] == threads
    finally:
        group.rmdir()


@pytest.mark.parametrize("preloaded", [False, True])
def test_ps_says_which_rank_a_process_is(job, tmp_path, preloaded):
    """A rank is a fork of the launcher, whose title may be longer than the command line and then lies where the environment was. It is executed where
    something was loaded into the launcher that may trace programs, and no forks."""
    config = job(train={"steps": 10**6})
    extra = {"LD_PRELOAD": SLOW_COPY} if preloaded else {}
    launcher = subprocess.Popen(["t", "launch", "--nproc=2"], executable=harness.BIN_PATH, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=harness.environment(TRAINYARD_CONFIG=config, **extra))
    try:
        harness.wait_until(lambda: len(harness.ranks_of(launcher.pid)) == 2, what="both ranks")
        log = tmp_path / "run" / "log.jsonl"
        harness.wait_until(lambda: log.exists() and log.stat().st_size > 0, what="steps")
        pids = [launcher.pid, *harness.ranks_of(launcher.pid).values()]
        shown = subprocess.run(["ps", "-o", "args=", "-p", ",".join(map(str, pids))], check=True, capture_output=True, text=True).stdout.splitlines()
        ranks = ["/proc/self/exe train"] * 2 if preloaded else ["trainyard: rank 0 of 2", "trainyard: rank 1 of 2"]
        assert sorted(line.strip() for line in shown) == sorted(["t launch --nproc=2", *ranks])
        launcher.send_signal(signal.SIGTERM)
        finish(launcher, 75)
    finally:
        harness.kill(launcher.pid)


def test_what_whoever_started_it_left_changes_nothing(job, tmp_path):
    """Ignored signals and closed streams survive exec."""
    config = job(train={"steps": 6})

    def ignore():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    result = subprocess.run([harness.BIN, "launch", "--nproc=2", "--config", config], env=harness.environment(), preexec_fn=ignore, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    # Looked at once it trains: while libraries are loaded, the first free descriptor is the library's.
    config = job(train={"steps": 10**6})
    log = tmp_path / "closed" / "log.jsonl"
    trainer = subprocess.Popen(["sh", "-c", 'exec "$@" 2>&- >&- <&-', "sh", harness.BIN_PATH, "train", "--config", config, "--set", f"run.dir={log.parent}"],
                               env=harness.environment())
    try:
        harness.wait_until(lambda: log.exists() and log.stat().st_size > 0, what="steps")
        assert [os.readlink(f"/proc/{trainer.pid}/fd/{stream}") for stream in range(3)] == ["/dev/null"] * 3
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(timeout=120) == 75
    finally:
        harness.kill(trainer.pid)


def test_a_driver_that_is_stuck_delays_no_stop(job, tmp_path):
    """--nproc auto looks at the GPUs in a process of its own."""
    driver = tmp_path / "driver"
    driver.mkdir()
    source = tmp_path / "stuck.c"
    source.write_text("#include <unistd.h>\nint cuInit(unsigned flags) { for (;;) pause(); }\n"
                      + "".join(f"int {name}() {{ return 0; }}\n" for name in ("cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDeviceGetUuid_v2", "cuDeviceGetUuid")))
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", driver / "libcuda.so.1", source], check=True)
    launcher = harness.start("launch", "--nproc", "auto", "--config", job(), LD_LIBRARY_PATH=f"{driver}:{os.environ.get('LD_LIBRARY_PATH', '')}", CUDA_VISIBLE_DEVICES="0")
    try:
        children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
        harness.wait_until(lambda: children.read_text().strip(), what="the process that looks")
        launcher.send_signal(signal.SIGTERM)
        assert "stopped on request while the GPUs were looked at" in finish(launcher, 75)
    finally:
        harness.kill(launcher.pid)

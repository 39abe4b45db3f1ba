"""A rank that dies, stops, throws or goes its own way ends every other one, with a message that names it, and nobody hangs.

Seeded trials over real processes: stage, world, what happens, to whom and when. TRAINYARD_TEST_SEED chooses another sequence.
"""

import json
import os
import random
import re
import signal
import time

import pytest

import harness

SEED = int(os.environ.get("TRAINYARD_TEST_SEED", "11"))
TRIALS = 200 if harness.THOROUGH else 12
DEADLINE = 2  # parallel.collective_seconds
# Every other rank has ended then. `make test` runs several suites on its processors, which delays beats and answers; thorough, it is alone.
PATIENCE = DEADLINE + (5 if harness.THOROUGH else 13)
KINDS = ["dies", "stops", "stops in a save", "throws in backward", "throws in forward", "diverges"]


def trial(number):
    rng = random.Random(f"{SEED}-{number}")
    world = rng.choice([2, 3])
    # Each kind in both stages among the first twelve.
    kind, stage = KINDS[number % len(KINDS)], ("ddp", "zero3")[number // len(KINDS) % 2]
    return dict(kind=kind, stage=stage, world=world, victim=rng.randrange(world), delay=rng.uniform(0, 0.4), call=rng.randrange(3, 40))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return {task: harness.SMALL_JOBS[task].make(tmp_path_factory.mktemp(task)) for task in ("language_model", "patchwork")}


def ended(pid):
    return harness.state(pid) in ("", "Z")


@pytest.mark.parametrize("number", range(TRIALS))
def test_every_other_rank_ends_and_the_culprit_is_named(tmp_path, data, number):
    t = trial(number)
    print(f"seed {SEED}, trial {number}: {t}")
    # Going its own way shows where forward has collectives: zero3 puts units together, patchwork gathers.
    task = "patchwork" if t["kind"] == "diverges" else "language_model"
    job = harness.merged(data[task], train={"steps": 10**6, "log_every": 1}, parallel={"stage": t["stage"], "collective_seconds": DEADLINE},
                         checkpoint={"every": 5}, run={"dir": str(tmp_path / "run")})
    if task == "patchwork":
        job["train"].update({"steps": 6000})
    places = {"throws in backward": "backward", "throws in forward": "forward", "diverges": "diverge"}
    env = {"TRAINYARD_TEST_FAULT": f"{places[t['kind']]}:{t['victim']}:{t['call']}"} if t["kind"] in places else {}
    slow = {}
    if t["kind"] == "stops in a save":  # which begins with the first step, and which the second one's waits for
        slow = {"LD_PRELOAD": os.environ.get("TRAINYARD_SLOW_COPY", "build/release/lib/libslow_copy.so"), "SLOW_SYNC_MS": 400}
        job["checkpoint"]["every"] = 1
    process = harness.start("launch", "--nproc", t["world"], "--config", harness.write_config(tmp_path / "job.json", job), program=harness.kind(job).program,
                            TRAINYARD_TERMINATION_LOG=tmp_path / "termination", **env, **slow)
    ranks = {}
    try:
        log = tmp_path / "run" / "log.jsonl"
        if env:
            output = process.communicate(timeout=60)[0]
        else:
            harness.wait_until(lambda: log.exists() and log.stat().st_size > 0, 60, "steps")
            time.sleep(0.2 if slow else t["delay"])
            ranks = harness.ranks_of(process.pid)
            victim = ranks[t["victim"]]
            harness.kill(victim, signal.SIGSTOP if t["kind"].startswith("stops") else signal.SIGKILL)
            since = time.monotonic()
            others = [pid for rank, pid in ranks.items() if rank != t["victim"]]
            harness.wait_until(lambda: all(ended(pid) for pid in others), 60, "the other ranks' end")
            took = time.monotonic() - since
            assert took < PATIENCE, f"the others took {took:.1f} s"
            output = process.communicate(timeout=30)[0]
    finally:
        for pid in ranks.values():
            harness.kill(pid, signal.SIGCONT)
        process.kill()
    message = json.loads((tmp_path / "termination").read_text())
    print(message["exit_code"], message["message"])
    named = rf"\brank {t['victim']}\b"
    if t["kind"] == "dies":
        assert process.returncode == 137 and message["rank"] == t["victim"], output
    elif t["kind"].startswith("stops"):
        assert process.returncode in (69, 73) and re.search(named, message["message"]), output
    elif t["kind"] == "diverges":
        assert process.returncode != 0 and re.search(named, output), output
    else:
        assert process.returncode == 70 and message["rank"] == t["victim"] and "injected fault" in message["message"], output
    assert "Traceback" not in output and "frame #" not in output, output

"""`trainyard selftest`: what it says where all is good, and where it is not."""

import json
import os
import re
import time

import pytest

import harness


def test_a_good_machine(tmp_path):
    begin = time.monotonic()
    result = harness.run("selftest", "--dir", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert [line[:5] for line in lines[:-2]] == ["good "] * (len(lines) - 2) and "1048576 numbers" in result.stdout, result.stdout
    assert lines[-2].startswith("not checked: ") and lines[-1].startswith("verdict: this machine does what training relies on"), result.stdout
    for world in (2, max(3, min(8, os.cpu_count()))):
        assert f"zero3 on {world} ranks train to the same bits" in result.stdout, result.stdout
    assert not list(tmp_path.iterdir()), "nothing stays"
    assert time.monotonic() - begin < 60, "20 s on a machine that is not as busy as one that runs tests"


def test_as_json(tmp_path):
    result = harness.run("selftest", "--dir", tmp_path, "--ranks", 2, "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    document = json.loads(result.stdout)
    checks = {}
    for check in document["checks"]:
        checks.setdefault(check["check"], []).append(check)
    assert document["format"] == 1 and document["good"] is True and document["verdict"] and all(c["good"] for c in document["checks"])
    assert set(checks) == {"storage", "communication", "bandwidth", "equality"}
    for collective in ("all_reduce", "reduce_scatter", "all_gather", "broadcast"):
        assert checks["bandwidth"][0][f"{collective}_bytes_per_second"] > 1e6
    assert any(c.get("write_bytes_per_second", 0) > 0 and c["read_bytes_per_second"] > 0 for c in checks["storage"])
    assert checks["equality"][0]["comparisons"] >= 12 and checks["equality"][0]["ranks"] == 2


@pytest.mark.parametrize("stage", ["zero1", "zero3"])
def test_a_bit_that_differs_is_named(tmp_path, stage):
    """The control: one rank turns over the last bit of one value that this stage has trained."""
    result = harness.run("selftest", "--dir", tmp_path, "--ranks", 2, TRAINYARD_TEST_FAULT=f"selftest:1:{stage}")
    assert result.returncode == 70, result.stdout + result.stderr
    bad = [line for line in result.stdout.splitlines() if line.startswith("BAD")]
    assert len(bad) == 1 and re.search(rf"equality on 2 ranks: {stage}, .*: model\.\S+ differs first, at element \d+ of \d+: \S+ instead of \S+ \(ddp", bad[0]), result.stdout
    assert "verdict: do not train here before this is mended: equality" in result.stdout


def test_progress_while_it_runs(tmp_path):
    result = harness.run("selftest", "--dir", tmp_path, "--ranks", 2, TRAINYARD_PROGRESS="bar")
    assert result.returncode == 0, result.stderr
    assert "selftest" in result.stderr and "stages on 2 ranks" in result.stderr, result.stderr


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    result = harness.run("selftest", "--dir", tmp_path / "file" / "below")
    assert result.returncode == 64 and "no such directory" in result.stderr, result.stderr
    result = harness.run("selftest", "--dir", "/proc/sys")  # where nobody can make a file, root neither
    assert result.returncode == 64 and "--dir: cannot write" in result.stderr, result.stderr


def test_a_place_that_is_not_there(tmp_path):
    result = harness.run("selftest", "--dir", tmp_path / "unmounted", "--ranks", 2)
    assert result.returncode == 64 and "no such directory" in result.stderr, result.stderr
    assert not (tmp_path / "unmounted").exists()


def test_a_disk_without_room():
    if not os.path.isdir("/proc/self/fd") or os.geteuid() != 0:
        pytest.skip("needs the right to mount a small file system")
    script = 'set -e; mount -t tmpfs -o size=512k tmpfs /mnt; exec "$0" selftest --dir /mnt'
    result = harness.run("--mount", "sh", "-c", script, os.path.abspath(harness.BIN), program="unshare")
    if "unshare" in result.stderr or "mount:" in result.stderr:
        pytest.skip("no mount namespace here: " + result.stderr.strip())
    assert result.returncode == 74 and "BAD   storage in /mnt" in result.stdout and "No space left" in result.stdout, result.stdout + result.stderr
    assert "good  communication" in result.stdout, "the other check is made all the same"


@pytest.mark.parametrize("address", ["192.0.2.1", "nowhere"])
def test_an_address_that_is_not_ours(tmp_path, address):
    result = harness.run("selftest", "--dir", tmp_path, TRAINYARD_POD_IP=address)
    assert result.returncode == 69, result.stdout + result.stderr
    assert f"BAD   communication: 2 processes on {address}: " in result.stdout, result.stdout
    assert result.stdout.count("BAD") == 1 and "mended: communication" in result.stdout, result.stdout

"""`trainyard selftest`: what it says where all is good, and where it is not."""

import os

import pytest

import harness


def test_a_good_machine(tmp_path):
    result = harness.run("selftest", "--dir", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [line[:5] for line in result.stdout.splitlines()] == ["good ", "good ", "     ", "good ", "not c"], result.stdout
    assert "1048576 numbers" in result.stdout and not list(tmp_path.iterdir()), "nothing stays"


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    result = harness.run("selftest", "--dir", tmp_path / "file" / "below")
    assert result.returncode == 64 and "--dir: cannot write" in result.stderr, result.stderr


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
    assert f"BAD   communication: two processes on {address}: " in result.stdout, result.stdout + result.stderr
    assert [line[:5] for line in result.stdout.splitlines()] == ["good ", "good ", "     ", "BAD  ", "not c"], result.stdout


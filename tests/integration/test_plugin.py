"""libtrainyard_cuda.so on a machine without a GPU: that it is there, opens or says why not, and needs what it should."""

import os
import pathlib
import re
import subprocess

import pytest

import harness

PLUGIN = pathlib.Path(harness.BIN).parent.parent / "lib" / "trainyard" / "libtrainyard_cuda.so"
STUBS = subprocess.run([pathlib.Path(__file__).resolve().parents[2] / "cmake" / "deps.sh", "--stubs"], capture_output=True, text=True, check=True).stdout.strip()
pytestmark = pytest.mark.skipif(not PLUGIN.exists(), reason="libtrainyard_cuda.so was not built: cmake/deps.sh has brought no compiler")


def said(library_path):
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path}
    result = subprocess.run([harness.BIN, "--version"], capture_output=True, text=True, timeout=60, env=environment)
    assert result.returncode == 0 and not result.stderr, result.stderr
    return result.stdout.splitlines()[-1]


def test_without_cuda_s_libraries_the_first_missing_one_is_named():
    assert re.fullmatch(rf"plug-in {PLUGIN} does not open: lib\w+\.so[.\d]*: cannot open shared object file: No such file or directory", said("")), said("")


def test_with_them_it_opens_and_sees_no_device():
    """Over stand-ins, which have every symbol that LibTorch's libraries need; the runtime and the driver's absence are real."""
    assert re.fullmatch(rf"plug-in {PLUGIN} opens, and sees no device: .+", said(STUBS)), said(STUBS)


def test_what_it_throws_is_caught_by_its_type():
    test = pathlib.Path(harness.BIN).with_name("device_test")
    if not test.exists():
        pytest.skip("device_test was not built")
    result = subprocess.run([test, "--gtest_filter=Plugin.WhatItThrowsIsOfOurTypes"], capture_output=True, text=True, timeout=60, env={**os.environ, "LD_LIBRARY_PATH": STUBS})
    assert result.returncode == 0 and "[       OK ]" in result.stdout, result.stdout


def dynamic(tag):
    text = subprocess.run(["readelf", "-d", PLUGIN], capture_output=True, text=True, check=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", text)


def test_it_brings_libtorch_s_operators_and_no_libraries_of_its_own():
    needed = set(dynamic("NEEDED"))
    assert {"libtorch_cuda.so", "libc10_cuda.so", "libtorch_cpu.so", "libcudart.so.13", "libnccl.so.2"} <= needed
    assert "libtorch.so" not in needed and not any("cublas" in name or "cudnn" in name for name in needed)


def test_it_exports_its_table_and_nothing_else():
    symbols = subprocess.run(["nm", "-D", "--defined-only", PLUGIN], capture_output=True, text=True, check=True).stdout
    ours = [line.split()[-1] for line in symbols.splitlines() if "trainyard" in line and " T " in line]
    assert ours == ["trainyard_plugin_1"], ours


def test_its_kernels_are_for_what_is_said():
    """sm_80 and sm_90 as machine code, and PTX of the newest for what comes after."""
    data = PLUGIN.read_bytes()
    start = data.find(b"\x50\xed\x55\xba")  # the magic number of a fat binary
    assert start >= 0, "there is no device code"
    found = set(re.findall(rb"compute_(\d+)|sm_(\d+)", data))
    assert any(b"90" in pair for pair in found), found

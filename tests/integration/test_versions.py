"""One version, that of CMakeLists.txt, wherever a program, a file or a request says which build it is."""

import json
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

import harness
from local_api import ApiOnly
from operators import Operator

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGE = pathlib.Path(harness.OPERATOR).parent / "image" / "trainyard-operator"
VERSION = re.search(r"^project\(trainyard VERSION (\d+\.\d+\.\d+) ", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
# What a shared library is called in the list of the dynamic loader. Gloo, oneDNN and MKL are in LibTorch's; glibc is in every program.
SHARED = {"LibTorch": "libtorch", "HDF5": "libhdf5", "libaec": "libaec", "libdeflate": "libdeflate", "libspng": "libspng", "xxHash": "libxxhash", "zlib": "libz", "yaml-cpp": "libyaml-cpp", "prometheus-cpp": "libprometheus-cpp",
          "OpenSSL": "libssl", "cpp-httplib": "libcpp-httplib"}
PROGRAMS = {harness.BIN: "trainyard", harness.OPERATOR: "trainyard-operator", IMAGE: "trainyard-operator"}


def lines(program):
    result = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def commit():
    return lines(harness.BIN)[1].removeprefix("commit ")


@pytest.mark.parametrize("program", PROGRAMS, ids=["trainer", "operator", "image"])
def test_the_first_line_is_for_scripts(program):
    said = lines(program)
    assert said[0] == f"{PROGRAMS[program]} {VERSION}"
    assert re.fullmatch(r"commit ([0-9a-f]{12}(-dirty)?|unknown)", said[1]) and said[1] == f"commit {commit()}"
    assert re.fullmatch(r"build (Release|Debug|RelWithDebInfo), \w+ [\d.]+", said[2])


@pytest.mark.parametrize("program", PROGRAMS, ids=["trainer", "operator", "image"])
def test_libraries_are_those_that_were_found(program):
    said = {}
    shown = lines(program)[3:]
    if program == harness.BIN:
        assert shown.pop().startswith("plug-in "), "what it is tests/integration/test_plugin.py"
    for line in shown:
        name, compiled, loaded = re.fullmatch(r"library (\S+) +(.+), (loaded .+|part of the program)", line).groups()
        said[name] = compiled, loaded.removeprefix("loaded ")
    expected = {"glibc", "yaml-cpp", "nlohmann/json", "CLI11", "prometheus-cpp"}
    expected |= {"LibTorch", "Gloo", "oneDNN", "MKL", "HDF5", "libaec", "libdeflate", "libspng", "xxHash", "zlib"} if program == harness.BIN else {"OpenSSL"}
    expected |= {"cpp-httplib"} if program == harness.OPERATOR else set()
    assert set(said) == expected
    for name, (compiled, loaded) in said.items():
        assert re.search(r"\d", compiled) or compiled.startswith("none"), (name, compiled)
        if name in ("LibTorch", "OpenSSL"):  # here they were compiled against what is installed
            assert compiled == loaded and re.fullmatch(r"[\d.]+", loaded), (name, compiled, loaded)
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for name, file in SHARED.items():
        if name in said:
            assert (said[name][1] != "part of the program") == bool(re.search(rf"^\s*{re.escape(file)}[-.\w]*\.so", needed, re.M)), (name, said[name], needed)
    if program == harness.BIN:
        assert said["LibTorch"][0] == re.search(r"^torch_version=(.*)$", (ROOT / "cmake" / "deps.sh").read_text(), re.M)[1]
        assert re.search(r"\d", said["oneDNN"][1] + said["MKL"][1])


def test_a_run_says_it_in_status_metrics_and_checkpoints(tmp_path, data):
    config = harness.merged(harness.SMALL, data={"path": str(data)}, run={"dir": str(tmp_path / "run")}, train={"steps": 100000}, checkpoint={"every": 5})
    port = harness.free_port()
    process = harness.start("launch", "--config", harness.write_config(tmp_path / "job.json", config), TRAINYARD_STATUS_PORT=port)
    try:
        def get(path):
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60).read().decode()
            except (urllib.error.HTTPError, OSError):
                return ""
        assert json.loads(harness.wait_until(lambda: get("/status"), 90, "/status"))["version"] == VERSION
        assert f'trainyard_trainer_build_info{{commit="{commit()}",version="{VERSION}",rank="0"}} 1' in get("/metrics").splitlines()
        manifest = harness.wait_until(lambda: next((tmp_path / "run" / "checkpoints").glob("step-????????/manifest.json"), None), 90, "a checkpoint")
        bits = json.loads(manifest.read_text())["bits"]
        assert bits["trainyard"] == VERSION
        assert bits["LibTorch"] == next(re.search("loaded (.*)", line)[1] for line in lines(harness.BIN) if line.startswith("library LibTorch "))
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_operator_says_it_in_metrics_and_in_its_requests(tmp_path):
    state = tmp_path / "state"
    with ApiOnly(state) as api, Operator(state / "kubeconfig", tmp_path) as operator:
        harness.wait_until(operator.ready, 60, "an operator that is ready")
        assert operator.metrics()[f'trainyard_build_info{{version="{VERSION}",commit="{commit()}"}}'] == 1
        code, document = api.send("GET", "/openapi/v3/apis/trainyard.dev/v1alpha1")
        assert code == 200 and document["info"]["version"] == VERSION
    # The header itself: tests/operator/rest_client_test.cc, SaysWhoItIs.


def test_the_chart_is_of_this_version():
    chart = ROOT / "charts" / "trainyard" / "Chart.yaml"
    if not chart.exists():
        pytest.skip("there is no charts/trainyard/Chart.yaml")
    said = dict(re.findall(r"^(version|appVersion): \"?([^\s\"]+)", chart.read_text(), re.M))
    assert said == {"version": VERSION, "appVersion": VERSION}


def test_the_changelog_has_this_version():
    assert re.search(rf"^## \[{re.escape(VERSION)}\]", (ROOT / "CHANGELOG.md").read_text(), re.M)


def asked(source, header, given=""):
    subprocess.run(["cmake", f"-DSOURCE={source}", f"-DHEADER={header}", f"-DGIVEN={given}", "-P", ROOT / "cmake" / "commit.cmake"], check=True, timeout=60)
    return re.fullmatch(r'#define TRAINYARD_COMMIT "(.*)"\n', header.read_text())[1]


@pytest.mark.skipif(not shutil.which("git") or not shutil.which("cmake"), reason="needs git and cmake")
def test_which_commit_is_named(tmp_path):
    source, header = tmp_path / "source", tmp_path / "commit.h"
    source.mkdir()
    (source / "file").write_text("one\n")
    assert asked(source, header) == "unknown", "outside of a checkout"
    git = ["git", "-C", source, "-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout[:12]
    assert asked(source, header) == head
    before = header.stat().st_mtime_ns
    assert asked(source, header) == head and header.stat().st_mtime_ns == before, "nothing is built anew"
    (source / "untracked").write_text("")
    assert asked(source, header) == head
    (source / "file").write_text("two\n")
    assert asked(source, header) == head + "-dirty"
    inner = source / "unpacked"
    inner.mkdir()
    assert asked(inner, header) == "unknown", "the checkout around it is another project's"
    assert asked(inner, header, "0123456789ab") == "0123456789ab"


@pytest.mark.parametrize("listed", sorted((ROOT / "cmake" / "wheels").glob("*.in")), ids=lambda file: file.stem)
def test_each_wheel_that_is_listed_is_locked_by_hashes(listed):
    """As tools/lock_wheels.sh leaves them; pip is then told --require-hashes."""
    wanted = {re.sub("[-_.]+", "-", line.lower()) for line in listed.read_text().splitlines() if line and not line.startswith("#")}
    locked = re.findall(r"^(\S+) \\((?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)+)$", listed.with_suffix(".txt").read_text(), re.M)
    assert {re.sub("[-_.]+", "-", name) for name, _ in locked} == wanted

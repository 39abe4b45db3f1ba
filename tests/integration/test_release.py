"""tools/release.sh: what it refuses, what it packs of a build that is there; and what `cmake --install` installs.

The checks run in a small checkout of their own. The packing takes the programs of the build under test, with --version of a program
that is of that checkout's commit: a wrapper, since building them there would take minutes.
"""

import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest

import harness

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(harness.BIN).resolve().parents[1]
HELM = subprocess.run([ROOT / "cmake/deps.sh", "--helm"], capture_output=True, text=True, check=True).stdout.strip()
PLUGIN = BUILD / "lib/trainyard/libtrainyard_cuda.so"  # where NVIDIA's compiler is
VERSION = re.search(r"^project\(trainyard VERSION (\S+) ", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
GIT = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "core.hooksPath=/dev/null"]


class Checkout:
    def __init__(self, folder):
        self.folder = folder
        for name in ("CMakeLists.txt", "CHANGELOG.md", "LICENSE", "README.md", "tools/release.sh", "tools/sbom.py", "cmake/deps.sh", "docs/releasing.md", "manifests/crd.yaml"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        chart = folder / "charts" / "trainyard"
        chart.mkdir(parents=True)
        (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: trainyard\nversion: {VERSION}\nappVersion: {VERSION}\n")
        (folder / ".gitignore").write_text("/build/\n")
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments):
        return subprocess.run([*GIT, *arguments], cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "x", "--allow-empty")

    def edit(self, name, before, after):
        text = (self.folder / name).read_text()
        assert before in text
        (self.folder / name).write_text(text.replace(before, after, 1))

    def release(self, *arguments, **extra):
        return subprocess.run([self.folder / "tools" / "release.sh", *arguments], capture_output=True, text=True, timeout=300, env={**os.environ, **{k: str(v) for k, v in extra.items()}})


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "checkout").mkdir()
    return Checkout(tmp_path / "checkout")


def refused(checkout, *words):
    result = checkout.release("--check")
    assert result.returncode == 1, result.stdout
    for word in words:
        assert word in result.stderr, result.stderr


def test_a_good_tree_passes(checkout):
    result = checkout.release("--check")
    assert result.returncode == 0 and f"release: {VERSION} of " in result.stdout, result.stderr


def test_a_tree_with_changes_is_refused(checkout):
    (checkout.folder / "left over").write_text("")
    refused(checkout, "the tree is not clean", "left over")
    (checkout.folder / "left over").unlink()
    (checkout.folder / "README.md").write_text("other")
    refused(checkout, "the tree is not clean", "README.md")


def test_another_version_in_the_changelog_is_refused(checkout):
    checkout.edit("CHANGELOG.md", f"## [{VERSION}]", "## [9.9.9]")
    checkout.commit()
    refused(checkout, "CHANGELOG.md: the newest version is 9.9.9", VERSION)
    checkout.edit("CHANGELOG.md", "## [9.9.9] - ", f"## [{VERSION}] - soon ")
    checkout.commit()
    refused(checkout, "YYYY-MM-DD")


@pytest.mark.parametrize("field", ["version", "appVersion"])
def test_another_version_in_the_chart_is_refused(checkout, field):
    checkout.edit("charts/trainyard/Chart.yaml", f"\n{field}: {VERSION}", f'\n{field}: "9.9.9"')
    checkout.commit()
    refused(checkout, f"{field} is 9.9.9")


def test_a_version_that_was_released_is_refused(checkout):
    checkout.git("tag", f"v{VERSION}")
    assert checkout.release("--check").returncode == 0, "the tag of this commit"
    checkout.commit()
    refused(checkout, f"the tag v{VERSION} is of another commit")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """`cmake --install` of the build under test."""
    prefix = tmp_path_factory.mktemp("prefix")
    result = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return prefix


def test_what_is_installed_runs_from_there(installed, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(installed, moved, symlinks=True)
    for prefix in (installed, moved):
        for program in ("trainyard", "trainyard-operator"):
            result = subprocess.run([prefix / "bin" / program, "--version"], capture_output=True, text=True, timeout=60)
            assert result.stdout.startswith(f"{program} {VERSION}\n"), result.stderr
    found = subprocess.run(["ldd", moved / "bin" / "trainyard"], capture_output=True, text=True, check=True).stdout
    for library in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13"):
        path = re.search(rf"{re.escape(library)} => (\S+)", found)[1]
        assert path.startswith(str(moved)), path
    elf = subprocess.run(["readelf", "-d", moved / "bin" / "trainyard"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"RUNPATH.*\[(.*)\]", elf)[1] == "$ORIGIN/../lib/trainyard/torch/lib", "no folder of the machine that built it"


def test_completions_and_manual_pages_are_installed(installed):
    for program in ("trainyard", "trainyard-operator"):
        for name, arguments in (("share/bash-completion/completions/{}", ["completion", "bash"]), ("share/zsh/site-functions/_{}", ["completion", "zsh"]),
                                ("share/fish/vendor_completions.d/{}.fish", ["completion", "fish"]), ("share/man/man1/{}.1", ["manual", "--format", "man"])):
            printed = subprocess.run([installed / "bin" / program, *arguments], capture_output=True, timeout=60, check=True).stdout
            assert (installed / name.format(program)).read_bytes() == printed
    licenses = {path.name for path in (installed / "share/doc/trainyard/licenses").iterdir()}
    assert {"libhdf5-dev", "libaec-dev", "libyaml-cpp-dev", "nlohmann-json3-dev", "libcli11-dev"} <= licenses and "zlib1g-dev" not in licenses, "of what became a part of them"
    assert all((installed / "share/doc/trainyard/licenses" / name / "copyright").stat().st_size > 500 for name in licenses)
    assert (installed / "share/doc/trainyard/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.fixture
def build(checkout, tmp_path):
    """The build under test, as the checkout's own: its programs name the checkout's commit."""
    folder = tmp_path / "build"
    (folder / "bin").mkdir(parents=True)
    commit = checkout.git("rev-parse", "--short=12", "HEAD")
    for program in ("trainyard", "trainyard-operator"):
        wrapper = folder / "bin" / program
        wrapper.write_text(f"#!/bin/sh\n{BUILD}/bin/{program} \"$@\" | sed 's/^commit .*/commit {commit}/'\n")
        wrapper.chmod(0o755)
    # `cmake --install` reads this, which names everything else with its whole path.
    script = (BUILD / "cmake_install.cmake").read_text()
    if PLUGIN.exists():
        built = re.search("commit ([0-9a-f]{12})", subprocess.run([BUILD / "bin/trainyard", "--version"], capture_output=True, text=True, check=True).stdout)[1]
        (folder / PLUGIN.name).write_bytes(PLUGIN.read_bytes().replace(built.encode(), commit.encode()))
        script = script.replace(f'FILES "{PLUGIN}"', f'FILES "{folder / PLUGIN.name}"')
    (folder / "cmake_install.cmake").write_text(script)
    return folder


def test_the_same_commit_gives_the_same_bytes(checkout, build, tmp_path):
    digests = []
    for dist in (tmp_path / "a", tmp_path / "b"):
        result = checkout.release(BUILD=build, DIST=dist, RELEASE_IMAGES="no", HELM=HELM or "")
        assert result.returncode == 0, result.stdout + result.stderr
        assert (dist / f"trainyard-{VERSION}.tgz").exists() == bool(HELM) == ("left out: the chart" not in result.stdout)
        sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
        assert set(sums) == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
        assert all(hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
        digests.append(sums)
    assert digests[0] == digests[1]
    name = f"trainyard-{VERSION}-linux-{os.uname().machine}"
    assert {f"{name}.tar.gz", f"trainyard-{VERSION}.spdx.json", f"trainyard-{VERSION}-crd.yaml"} <= set(digests[0])
    with tarfile.open(tmp_path / "a" / f"{name}.tar.gz") as tar:
        members = {member.name.removeprefix(name + "/"): member for member in tar}
        assert {"bin/trainyard", "bin/trainyard-operator", "share/man/man1/trainyard.1", "share/doc/trainyard/LICENSE", "share/zsh/site-functions/_trainyard"} <= set(members)
        plugin = {"lib/trainyard/libtrainyard_cuda.so"} if PLUGIN.exists() else set()
        assert {path for path, member in members.items() if path.startswith("lib/") and member.isfile()} == plugin, "LibTorch is not ours to pack"
        assert ("left out: the plug-in" in result.stdout) == (not plugin)
        assert {member.uid for member in members.values()} == {0} and len({member.mtime for member in members.values()}) == 1
    if HELM:
        with tarfile.open(tmp_path / "a" / f"trainyard-{VERSION}.tgz") as tar:
            assert f"version: {VERSION}\n" in tar.extractfile("trainyard/Chart.yaml").read().decode()
            assert {(member.uid, member.mtime) for member in tar} == {(0, int(checkout.git("log", "-1", "--format=%ct")))}
    bill = json.loads((tmp_path / "a" / f"trainyard-{VERSION}.spdx.json").read_text())
    names = {package["name"]: package["versionInfo"] for package in bill["packages"]}
    assert names["trainyard"] == names["trainyard-operator"] == VERSION and {"LibTorch", "OpenSSL", "yaml-cpp"} <= set(names)
    assert ("libtrainyard_cuda.so" in names) == PLUGIN.exists()
    ids = {package["SPDXID"] for package in bill["packages"]} | {"SPDXRef-DOCUMENT"}
    static = {r["relatedSpdxElement"] for r in bill["relationships"] if r["relationshipType"] == "STATIC_LINK"}
    assert {"SPDXRef-HDF5", "SPDXRef-libaec", "SPDXRef-yaml-cpp"} <= static and "SPDXRef-zlib" not in static
    assert all({r["spdxElementId"], r["relatedSpdxElement"]} <= ids for r in bill["relationships"])


def test_programs_of_another_commit_are_refused(checkout, build, tmp_path):
    checkout.commit()
    result = checkout.release(BUILD=build, DIST=tmp_path / "dist", RELEASE_IMAGES="no")
    assert result.returncode == 1 and "is of another commit" in result.stderr, result.stderr


@pytest.mark.skipif(not PLUGIN.exists(), reason="no plug-in was built: NVIDIA's compiler is not there")
def test_a_plugin_of_another_commit_is_refused(checkout, build, tmp_path):
    shutil.copy(PLUGIN, build)
    result = checkout.release(BUILD=build, DIST=tmp_path / "dist", RELEASE_IMAGES="no")
    assert result.returncode == 1 and "libtrainyard_cuda.so is of another commit" in result.stderr, result.stderr


def test_a_release_that_fails_leaves_the_one_before_and_other_files(checkout, build, tmp_path):
    dist = tmp_path / "dist"
    assert checkout.release(BUILD=build, DIST=dist, RELEASE_IMAGES="no").returncode == 0
    (dist / "trainyard-notes.txt").write_text("mine\n")
    before = {path.name: path.read_bytes() for path in dist.iterdir()}
    for trouble in ({"SOURCE_DATE_EPOCH": "abc"}, {"RELEASE_IMAGES": "perhaps"}, {"BUILD": tmp_path / "nowhere"}):
        assert checkout.release(**({"BUILD": build, "DIST": dist, "RELEASE_IMAGES": "no"} | trouble)).returncode != 0
        assert {path.name: path.read_bytes() for path in dist.iterdir()} == before, trouble
    assert checkout.release(BUILD=build, DIST=dist, RELEASE_IMAGES="no").returncode == 0
    assert {path.name: path.read_bytes() for path in dist.iterdir()} == before
    assert "notes" not in (dist / "SHA256SUMS").read_text()


def test_what_is_released_is_what_is_committed(checkout, build, tmp_path, monkeypatch):
    """And not what a setting of the user's git hides."""
    (checkout.folder / "charts/trainyard/.env").write_text("PASSWORD=x\n")
    (tmp_path / "ignore").write_text(".env\n")
    for count, (key, value) in enumerate({"core.excludesFile": str(tmp_path / "ignore"), "status.showUntrackedFiles": "no"}.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{count}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{count}", value)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    result = checkout.release(BUILD=build, DIST=tmp_path / "dist", RELEASE_IMAGES="no")
    assert result.returncode == 0, result.stderr
    if HELM:
        with tarfile.open(tmp_path / "dist" / f"trainyard-{VERSION}.tgz") as tar:
            assert not [name for name in tar.getnames() if name.endswith(".env")]
    (checkout.folder / "new.txt").write_text("untracked\n")
    refused(checkout, "not clean", "new.txt")


BUILD_SH = """#!/bin/sh
case "$1" in --tool) exec sh -c "$WORKS" ;; esac
mkdir -p build/images
for name in "$@"; do echo $name >build/images/trainyard-$name.tar; echo bill >build/images/trainyard-$name.spdx.json; done
exec sh -c "$BUILDS"
"""


@pytest.fixture
def release_images(checkout, build, tmp_path):
    """tools/release.sh with a stand-in for docker/build.sh."""
    def run(**settings):
        dist = tmp_path / "dist"
        return checkout.release(BUILD=build, DIST=dist, **settings), dist

    (checkout.folder / "docker").mkdir()
    (checkout.folder / "docker/build.sh").write_text(BUILD_SH)
    (checkout.folder / "docker/build.sh").chmod(0o755)
    checkout.commit()
    commit = checkout.git("rev-parse", "--short=12", "HEAD")
    for program in ("trainyard", "trainyard-operator"):
        wrapper = build / "bin" / program
        text = wrapper.read_text()
        before = re.search("commit ([0-9a-f]{12})", text)[1]
        wrapper.write_text(text.replace(before, commit))
    if (plugin := build / PLUGIN.name).exists():
        plugin.write_bytes(plugin.read_bytes().replace(before.encode(), commit.encode()))
    return run


@pytest.mark.parametrize("settings, names", [({}, ["operator", "trainer", "local"]), ({"RELEASE_IMAGES": "all"}, ["operator", "trainer", "local", "trainer-cuda"])], ids=["auto", "all"])
def test_the_images_are_packed_with_their_bills(release_images, checkout, settings, names):
    """And no other, whatever an earlier build has left."""
    (checkout.folder / "build/images").mkdir(parents=True)
    (checkout.folder / "build/images/trainyard-trainer-cuda.tar").write_text("of another commit\n")
    result, dist = release_images(WORKS="true", BUILDS="true", **settings)
    assert result.returncode == 0, result.stderr
    assert ("left out: the image for GPUs" in result.stdout) == ("trainer-cuda" not in names)
    assert sorted(path.name for path in dist.glob("trainyard-*-*.tar.gz") if "linux" not in path.name) == sorted(f"trainyard-{name}-{VERSION}.tar.gz" for name in names)
    sums = (dist / "SHA256SUMS").read_text()
    for name in names:
        assert gzip.decompress((dist / f"trainyard-{name}-{VERSION}.tar.gz").read_bytes()).decode() == f"{name}\n"
        assert f"  trainyard-{name}-{VERSION}.tar.gz\n" in sums and f"  trainyard-{name}-{VERSION}.spdx.json\n" in sums


@pytest.mark.parametrize("settings", [{"WORKS": "true"}, {"WORKS": "true", "RELEASE_IMAGES": "yes"}, {"WORKS": "false", "RELEASE_IMAGES": "yes"}], ids=["auto", "yes", "yes, no tool"])
def test_images_that_cannot_be_built_are_an_error(release_images, settings):
    result, dist = release_images(BUILDS="exit 125", **settings)
    assert result.returncode == 1 and "the images could not be built" in result.stderr, result.stdout
    assert not (dist / "SHA256SUMS").exists()


def test_where_nothing_builds_images_they_are_left_out(release_images):
    result, dist = release_images(WORKS="false", BUILDS="exit 1")
    assert result.returncode == 0 and "left out: the images" in result.stdout, result.stderr
    assert not list(dist.glob("*operator*"))

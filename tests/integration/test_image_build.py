"""docker/build.sh with a stand-in for podman, the archives that it writes, and the entrypoint of trainyard-local. What is in real images: tests/images."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIT = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "core.hooksPath=/dev/null"]
# Says what it was called with; makes what docker/build.sh then reads. STAND_IN holds what `podman save` gives.
PODMAN = """#!/bin/bash
echo "$*" >>"$STAND_IN/calls"
[[ "$*" =~ dest=([^ ]+) ]] && mkdir -p "${BASH_REMATCH[1]}" && echo '{}' >"${BASH_REMATCH[1]}/sbom.spdx.json"
if [ "$1" = save ]; then while [ "$1" != --output ]; do shift; done; cp "$STAND_IN/image.tar" "$2"; fi
exit 0
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def add(archive, name, content):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def saved_image(path, size=1 << 20):
    layer = b"x" * size
    with tarfile.open(path, "w") as archive:
        add(archive, "a/layer.tar", layer)
        add(archive, "config.json", json.dumps({"rootfs": {"diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode())
        add(archive, "manifest.json", json.dumps([{"Config": "config.json", "RepoTags": ["x"], "Layers": ["a/layer.tar"]}]).encode())


class Checkout:
    def __init__(self, folder):
        self.folder, self.stand_in, self.scratch = folder / "checkout", folder / "stand-in", folder / "scratch"
        for name in ("docker/build.sh", "docker/archive.py", "CMakeLists.txt"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.folder / name)
        (self.folder / ".gitignore").write_text("/build/\n")
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
            subprocess.run([*GIT, *command], cwd=self.folder, check=True)
        program(self.stand_in / "podman", PODMAN)
        saved_image(self.stand_in / "image.tar")
        self.scratch.mkdir()
        self.archive = self.folder / "build/images/trainyard-operator.tar"

    def build(self, *arguments, **extra):
        environment = os.environ | {"PATH": f"{self.stand_in}:{os.environ['PATH']}", "STAND_IN": str(self.stand_in), "TMPDIR": str(self.scratch), "IMAGE_TOOL": "", "IMAGE_OPTIONS": ""} | extra
        return subprocess.run([self.folder / "docker/build.sh", *arguments], capture_output=True, text=True, timeout=60, env=environment)

    def revision(self):
        calls = (self.stand_in / "calls").read_text()
        return calls.rpartition("REVISION=")[2].split()[0]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_an_image_is_built_and_packed(checkout):
    result = checkout.build("operator")
    assert result.returncode == 0, result.stderr
    assert [path.name for path in sorted(checkout.archive.parent.iterdir())] == ["trainyard-operator.spdx.json", "trainyard-operator.tar"]
    with tarfile.open(checkout.archive) as archive:
        assert json.load(archive.extractfile("manifest.json"))[0]["RepoTags"][1] == "trainyard-operator:latest"
    assert list(checkout.scratch.iterdir()) == []


def test_a_file_that_git_does_not_know_makes_it_another_commit(checkout):
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=checkout.folder, check=True, capture_output=True, text=True).stdout.strip()
    assert checkout.build("operator").returncode == 0 and checkout.revision() == head
    (checkout.folder / "docker/more.py").write_text("")
    assert checkout.build("operator").returncode == 0 and checkout.revision() == head + "-modified"


def test_what_was_interrupted_leaves_no_archive_and_nothing_behind(checkout):
    whole = (checkout.stand_in / "image.tar").read_bytes()
    (checkout.stand_in / "image.tar").write_bytes(whole[: 1 << 19])
    result = checkout.build("operator")
    assert result.returncode != 0 and not checkout.archive.exists()
    assert list(checkout.scratch.iterdir()) == []


def test_a_disk_that_is_full_leaves_the_archive_before(checkout):
    assert checkout.build("operator").returncode == 0
    before = checkout.archive.read_bytes()
    saved_image(checkout.stand_in / "image.tar", size=4 << 20)
    limited = 'ulimit -f 2048; exec "$0" "$@"'  # KiB of a file
    result = subprocess.run(["bash", "-c", limited, ROOT / "docker/archive.py", checkout.stand_in / "image.tar", checkout.archive, "name:1"], capture_output=True, text=True, timeout=60)
    assert result.returncode != 0 and checkout.archive.read_bytes() == before


def test_a_damaged_layer_is_no_archive(checkout):
    """Its digest would be that of the good image."""
    with tarfile.open(checkout.stand_in / "image.tar") as archive:
        at = archive.getmember("a/layer.tar").offset_data
    content = bytearray((checkout.stand_in / "image.tar").read_bytes())
    content[at + 1000] ^= 1
    (checkout.stand_in / "image.tar").write_bytes(content)
    result = checkout.build("operator")
    assert result.returncode != 0 and "a/layer.tar has the digest" in result.stderr, result
    assert [path.name for path in checkout.archive.parent.iterdir() if ".tar" in path.name] == []


def test_a_link_where_the_archive_is_made_is_not_followed(checkout, tmp_path):
    (tmp_path / "victim").write_text("mine\n")
    (tmp_path / "out.tar.new").symlink_to(tmp_path / "victim")
    subprocess.run([ROOT / "docker/archive.py", checkout.stand_in / "image.tar", tmp_path / "out.tar", "name:1"], check=True, capture_output=True)
    assert (tmp_path / "victim").read_text() == "mine\n" and not (tmp_path / "out.tar").is_symlink()


def test_an_unknown_image_is_refused_before_any_is_built(checkout):
    result = checkout.build("operator", "nosuch")
    assert result.returncode == 2 and "nosuch: not one of operator" in result.stderr and not (checkout.stand_in / "calls").read_text().count("build"), result


def test_which_tool_builds(checkout):
    assert checkout.build("--tool").stdout == "podman\n"
    for name in ("podman", "buildah", "docker"):
        program(checkout.stand_in / name, "#!/bin/sh\nexit 1\n")
    result = checkout.build("--tool")
    assert result.returncode == 1 and "needs podman, buildah or docker" in result.stderr, result


@pytest.mark.parametrize("file, state", [("job.yaml", "job-state"), ("./job", "./job-state"), ("runs.v2/job", "runs.v2/job-state"), ("runs.v2/a.b.yaml", "runs.v2/a.b-state")])
def test_where_the_state_of_a_job_file_is(tmp_path, file, state):
    (tmp_path / "runs.v2").mkdir()
    (tmp_path / file).write_text("")
    program(tmp_path / ".programs/awk", "#!/bin/sh\necho mounted\n")
    program(tmp_path / ".programs/trainyard-operator", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    environment = os.environ | {"PATH": f"{tmp_path}/.programs:{os.environ['PATH']}"}
    result = subprocess.run([ROOT / "docker/trainyard-local", file], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment)
    assert result.returncode == 0 and (tmp_path / state).is_dir(), result.stderr
    assert result.stdout.split() == ["local", "-f", file, f"--state-dir={state}"]


@pytest.mark.parametrize("there, words", [
    ("file", "another kind of file"), ("link", "a link to nothing"), ("--quiet", "expected the job file first"), ("folder of that name", "cannot be read as a file")])
def test_the_entrypoint_names_what_is_in_the_way(tmp_path, there, words):
    (tmp_path / "x.yaml").write_text("")
    if there == "file":
        (tmp_path / "x-state").touch()
    elif there == "link":
        (tmp_path / "x-state").symlink_to("nowhere/at/all")
    elif there == "folder of that name":
        (tmp_path / "x.yaml").unlink()
        (tmp_path / "x.yaml").mkdir()
    program(tmp_path / ".programs/awk", "#!/bin/sh\necho mounted\n")
    environment = os.environ | {"PATH": f"{tmp_path}/.programs:{os.environ['PATH']}"}
    words_typed = ["--quiet", "x.yaml"] if there == "--quiet" else ["x.yaml"]
    result = subprocess.run([ROOT / "docker/trainyard-local", *words_typed], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment)
    assert result.returncode == (2 if there == "--quiet" else 64) and words in result.stderr, result
    assert "--userns" not in result.stderr and ("x-state" in result.stderr) == (there in ("file", "link"))

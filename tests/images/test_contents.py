"""What the images are made of: sizes, owners, rights, labels."""

import datetime
import re

import archives
import pytest

MEGABYTE = 1e6
BOUNDS = {"operator": 30 * MEGABYTE, "trainer": 600 * MEGABYTE, "local": 600 * MEGABYTE, "trainer-cuda": 3300 * MEGABYTE}


def test_size(image):
    assert image.size < BOUNDS[image.name.removeprefix("trainyard-")], f"{image.name} has {image.size / MEGABYTE:.1f} MB"


def test_its_user_is_nobody_in_particular_and_can_change_nothing(image):
    assert image.config["config"]["User"] == "65532:65532"
    assert image.read("etc/passwd").decode().splitlines()[1].split(":")[:4] == ["trainyard", "x", "65532", "65532"]
    assert image.read("etc/group").decode().splitlines()[1] == "trainyard:x:65532:"
    for name, (_, entry) in image.entries.items():
        assert (entry.uid, entry.gid) == (0, 0), name
        assert entry.mode & 0o6000 == 0, f"{name} is setuid or setgid"
        assert entry.type in (b"0", b"1", b"2", b"5"), f"{name} is neither a file, a link nor a folder"
        if not entry.issym():
            assert name == "tmp" or entry.mode & 0o022 == 0, f"{name} has mode {entry.mode & 0o7777:o}"


def test_only_what_runs_a_shell_has_a_folder_for_short_lived_files():
    assert [name for name in archives.NAMES if "tmp" in archives.archive(name).entries] == ["trainer", "local"]
    for name in ("trainer", "local"):
        assert archives.archive(name).entries["tmp"][1].mode & 0o7777 == 0o1777


def test_the_operators_holds_the_operator_and_its_libraries_and_no_other_program():
    image = archives.archive("operator")
    others = [name for name in image.files() if not re.fullmatch(r"usr/lib/[^/]+/[^/]+\.so(\.[0-9.]+)?|usr/share/(doc|common-licenses)/.*", name)]
    assert sorted(others) == ["etc/group", "etc/passwd", "usr/local/bin/trainyard-operator"]
    executable = [name for name, entry in image.files().items() if entry.mode & 0o111]
    assert sorted(executable) == sorted(image.programs_and_libraries())


def test_the_trainers_holds_of_the_wheels_what_a_processor_needs():
    for name in ("trainer", "local"):
        wheels = {path.rsplit("/", 1)[1] for path in archives.archive(name).files() if path.startswith("usr/local/lib/trainyard/")}
        assert wheels == {"libc10.so", "libtorch_cpu.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"}


CUDNN = {f"libcudnn{part}.so.9" for part in ("", "_graph", "_ops", "_cnn", "_heuristic", "_engines_precompiled", "_engines_runtime_compiled")}
# What nobody names, and cuDNN opens when it compiles an engine.
NVRTC = {"libnvrtc.so.13", "libnvrtc-builtins.so.13.0"}


def test_that_for_gpus_holds_what_libtorch_cuda_names_and_what_convolutions_open():
    if not archives.built(archives.GPU):
        pytest.skip("no archive of the trainer for GPUs: make images-gpu")
    image = archives.archive(archives.GPU)
    wheels = {path.rsplit("/", 1)[1] for path in image.files() if path.startswith("usr/local/lib/trainyard/")}
    named = {"libc10.so", "libtorch_cpu.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13", "libtorch_cuda.so", "libc10_cuda.so", "libtorch_nvshmem.so",
             "libcublas.so.13", "libcublasLt.so.13", "libcufft.so.12", "libcufile.so.0", "libcurand.so.10", "libcusparse.so.12", "libcusparseLt.so.0", "libnccl.so.2",
             "libnvJitLink.so.13", "libnvshmem_host.so.3"}
    assert wheels == named | CUDNN | NVRTC | {"libtrainyard_cuda.so"}
    environment = dict(entry.split("=", 1) for entry in image.config["config"]["Env"])
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert "NVIDIA_VISIBLE_DEVICES" not in environment, "a pod that asked for no GPU would see all of the node's"


def test_labels_name_version_commit_and_licences(image):
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image.config["config"]["Labels"].items()}
    assert labels["title"] == image.name
    assert image.manifest["RepoTags"][0].endswith(f"{image.name}:{labels['version']}")
    assert re.fullmatch("[0-9a-f]{40}(-modified)?", labels["revision"])
    created = datetime.datetime.fromisoformat(image.config["created"]).timestamp()
    assert image.read("usr/share/doc/trainyard/commit").decode() == f"{labels['version']} {labels['revision']} {created:.0f}\n"
    assert "source" not in labels
    given = {package["licenseDeclared"] for package in image.sbom()["packages"]} - {"NOASSERTION"}
    assert labels["licenses"] == " AND ".join(sorted(given)), "docker/Dockerfile has the label"


def test_nothing_in_it_depends_on_when_it_was_built(image):
    times = {entry.mtime for _, entry in image.entries.values()}
    assert len(times) == 1, "one time, the commit's"
    assert {step["created"] for step in image.config["history"]} == {image.config["created"]}
    assert datetime.datetime.fromisoformat(image.config["created"]).timestamp() == times.pop()
    assert not {"container", "container_config", "parent"} & set(image.config) and "Hostname" not in image.config["config"], "nor on where"
    names = [name for layer in image.layers for name in layer.getnames()]
    assert len(names) == len(set(names)), "no file is in two layers"


def test_every_licence_is_there(image):
    packages = {path.split("/")[3] for path in image.files() if path.startswith("usr/share/doc/")}
    assert {"trainyard", "libc6", "libstdc++6", "libssl3", "libyaml-cpp-dev"} <= packages | ({"libssl3"} if "trainer" in image.name.split("-") else set())
    if image.name.endswith("cuda"):
        assert {"nvidia-cudnn-cu13", "nvidia-nccl-cu13", "nvidia-cublas"} <= packages
    if not image.name.endswith("operator"):
        assert {"torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti", "libgloo-dev", "busybox"} <= packages

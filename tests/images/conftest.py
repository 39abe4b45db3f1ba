import os
import subprocess

import archives
import pytest


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=options.pop("timeout", 120), **options)


@pytest.fixture(scope="session")
def podman():
    """run(NAME, [podman's options], [arguments]): a container of the archive `build/images/trainyard-NAME.tar`, without any
    capability, network or right to gain some."""
    loaded = {}

    def image(name):
        if name not in loaded:
            result = run("podman", "load", "--quiet", "--input", archives.FOLDER / f"trainyard-{name}.tar")
            assert result.returncode == 0, result.stderr
            loaded[name] = f"trainyard-{name}:" + archives.archive(name).manifest["RepoTags"][0].rpartition(":")[2]
        return loaded[name]

    def podman_run(name, options=(), arguments=(), **others):
        strict = ["--rm", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none"]
        return run("podman", "run", *strict, *options, image(name), *arguments, **others)

    podman_run.image = image
    return podman_run


@pytest.fixture
def caller(tmp_path):
    """A folder of someone's, and the options that make a container of theirs: what docs/images.md tells them."""
    if os.getuid() != 0:
        return tmp_path, os.getuid(), ["--userns=keep-id", f"--volume={tmp_path}:/work"]
    os.chown(tmp_path, 1234, 1234)
    for folder in (tmp_path, *tmp_path.parents[:2]):  # pytest's are for their maker alone
        folder.chmod(0o755)
    return tmp_path, 1234, ["--user=1234:1234", f"--volume={tmp_path}:/work"]

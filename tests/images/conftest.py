import contextlib
import itertools
import os
import subprocess

import archives
import pytest


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=options.pop("timeout", 120), **options)


STRICT = ["--rm", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none"]


class Podman:
    """Containers of the archives, without any capability, network or right to gain some."""

    def __init__(self):
        self.names = {}

    def image(self, name):
        if name not in self.names:
            result = run("podman", "load", "--quiet", "--input", archives.FOLDER / f"trainyard-{name}.tar")
            assert result.returncode == 0, result.stderr
            self.names[name] = f"trainyard-{name}:" + archives.archive(name).manifest["RepoTags"][0].rpartition(":")[2]
        return self.names[name]

    def __call__(self, name, options=(), arguments=(), **others):
        return run("podman", "run", *STRICT, *options, self.image(name), *arguments, **others)

    @contextlib.contextmanager
    def running(self, name, options=(), arguments=()):
        """A process whose `stop(SIGNAL)` returns its exit code and output."""
        label = f"trainyard-test-{os.getpid()}-{next(self.numbers)}"
        command = ["podman", "run", *STRICT, f"--name={label}", *options, self.image(name), *arguments]
        container = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def stop(signal):
            assert run("podman", "kill", f"--signal={signal}", label).returncode == 0
            output = container.communicate(timeout=60)[0]
            return container.returncode, output

        container.stop = stop
        try:
            yield container
        finally:
            run("podman", "rm", "--force", "--time=0", label)
            container.wait(10)

    numbers = itertools.count()


@pytest.fixture(params=[*archives.NAMES, archives.GPU])
def image(request):
    """Each of the archives in turn."""
    if request.param == archives.GPU and not archives.built(archives.GPU):
        pytest.skip("no archive of the trainer for GPUs: make images-gpu")
    return archives.archive(request.param)


@pytest.fixture(scope="session")
def podman():
    return Podman()


@pytest.fixture
def caller(tmp_path):
    """A folder of someone's, and the options that make a container of theirs: what docs/images.md tells them."""
    if os.getuid() != 0:
        return tmp_path, os.getuid(), ["--userns=keep-id", f"--user={os.getuid()}:{os.getgid()}", f"--volume={tmp_path}:/work"]
    os.chown(tmp_path, 1234, 1234)
    for folder in (tmp_path, *tmp_path.parents[:2]):  # pytest's are for their maker alone
        folder.chmod(0o755)
    return tmp_path, 1234, ["--user=1234:1234", f"--volume={tmp_path}:/work"]

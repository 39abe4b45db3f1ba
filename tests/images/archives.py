"""The archives that `make images` wrote, read without any tool for containers."""

import functools
import json
import pathlib
import tarfile

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "build" / "images"
NAMES = ("operator", "trainer", "local")
GPU = "trainer-cuda"  # which `make images` leaves out


class Archive:
    def __init__(self, name):
        self.name = f"trainyard-{name}"
        self.path = FOLDER / f"{self.name}.tar"
        self.archive = tarfile.open(self.path)
        [self.manifest] = json.load(self.archive.extractfile("manifest.json"))
        self.config = json.load(self.archive.extractfile(self.manifest["Config"]))
        self.size = sum(self.archive.getmember(layer).size for layer in self.manifest["Layers"])
        self.layers = [tarfile.open(fileobj=self.archive.extractfile(layer)) for layer in self.manifest["Layers"]]
        # A later layer's entry takes the place of an earlier one's.
        self.entries = {entry.name.strip("/"): (layer, entry) for layer in self.layers for entry in layer}

    def files(self):
        """{path: entry} of the regular files."""
        return {name: entry for name, (_, entry) in self.entries.items() if entry.isreg()}

    def read(self, name):
        layer, entry = self.entries[name]
        return layer.extractfile(entry).read()

    def programs_and_libraries(self):
        return [name for name in self.files() if self.entries[name][0].extractfile(self.entries[name][1]).read(4) == b"\x7fELF"]

    def sbom(self):
        return json.loads((FOLDER / f"{self.name}.spdx.json").read_text())


def built(name):
    return (FOLDER / f"trainyard-{name}.tar").exists()


@functools.cache
def archive(name):
    return Archive(name)

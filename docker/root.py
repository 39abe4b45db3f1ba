#!/usr/bin/env python3
"""Makes the root folder of an image: programs, each shared library that they name, users, licences.

usage: docker/root.py OUT [--shell] [--entrypoint FILE] [--plugin FILE] [--opened FILE]... PROGRAM...

OUT/files is the folder, OUT/files.json says where each file came from; docker/sbom.py reads it. Runs in the build stage of
docker/Dockerfile; the environment: VERSION, REVISION, SOURCE_DATE_EPOCH. --shell adds busybox under its names, and /tmp; --entrypoint a script in /usr/local/bin, and /work;
--plugin and --opened add libraries that no program names and one opens: a plug-in of ours, and those of wheels.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess

import origins

USER = 65532  # of nobody: what images without a shell commonly run as
WHEELS = "usr/local/lib/trainyard"
BUSYBOX = pathlib.Path("/bin/busybox")
TEXTS = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\ntrainyard:x:{USER}:{USER}:trainyard:/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\ntrainyard:x:{USER}:\n",
}


class Root:
    def __init__(self, out):
        self.path, self.record, self.sources = out / "files", out / "files.json", {}
        for folder in ("usr/bin", "usr/lib", "usr/lib64"):
            (self.path / folder).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (self.path / name).symlink_to(f"usr/{name}")

    def add(self, name, source, mode=0o644):
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(mode)
        self.sources[name] = str(source)
        return target

    def add_text(self, name, text):
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)
        self.sources[name] = str(pathlib.Path(__file__).resolve())

    def add_program(self, source):
        program = self.add(f"usr/local/bin/{source.name}", source.resolve(), 0o755)
        origins.run("strip", program)
        if origins.run("patchelf", "--print-rpath", program).strip():
            origins.run("patchelf", "--set-rpath", "$ORIGIN/" + os.path.relpath(WHEELS, "usr/local/bin"), program)

    def add_plugin(self, source):
        """Where the programs look for it: beside the wheels' libraries, which it names."""
        plugin = self.add(f"{WHEELS}/{source.name}", source.resolve(), 0o755)
        origins.run("strip", "--strip-unneeded", plugin)
        origins.run("patchelf", "--set-rpath", "$ORIGIN", plugin)

    def add_library(self, path):
        """A wheel's goes to a folder of ours, and LibTorch's lose their symbols; Debian's stays where it is, by each of its names."""
        if site := origins.site_packages(path):
            library = self.add(f"{WHEELS}/{path.name}", path.resolve(), 0o755)
            if pathlib.Path(os.path.normpath(path)).is_relative_to(site / "torch"):  # ldd says NVIDIA's as torch/lib/../../nvidia
                origins.run("strip", "--strip-unneeded", library)
            return
        real = pathlib.Path(os.path.realpath(path))
        name = pathlib.Path(os.path.realpath(path.parent)) / path.name
        if str(real)[1:] not in self.sources:
            self.add(str(real)[1:], real, 0o755)
        if name != real:
            link = self.path / str(name)[1:]
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(real, name.parent))

    def add_shell(self):
        self.add("usr/bin/busybox", BUSYBOX, 0o755)
        for name in origins.run(BUSYBOX, "--list").split():
            if name != "busybox":
                (self.path / "usr/bin" / name).symlink_to("busybox")

    def add_open_folder(self, name):
        (self.path / name).mkdir()
        (self.path / name).chmod(0o1777)

    def write_record(self, programs):
        self.record.write_text(json.dumps({"files": self.sources, "programs": [str(program) for program in programs]}))


def libraries(programs):
    """What the dynamic loader would load for them."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    missing = re.findall(r"^\s*(.+) => not found", listed, re.MULTILINE)
    if missing:
        raise SystemExit(f"ldd does not find {', '.join(missing)}")
    return sorted({pathlib.Path(path) for path in re.findall(r"^\s*(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", listed, re.MULTILINE)})


def add_licenses(root, programs):
    present = set(origins.owners(root.sources.values()).values())
    for origin in sorted(present | set(origins.linked_statically(programs, present))):
        for text in origins.license_texts(origin):
            root.add(f"usr/share/doc/{origin.name}/{text.relative_to(origin.about)}", text)
    for text in pathlib.Path("/usr/share/common-licenses").iterdir():  # which Debian's texts refer to
        if not text.is_symlink():
            root.add(f"usr/share/common-licenses/{text.name}", text)
        else:
            (root.path / "usr/share/common-licenses").mkdir(parents=True, exist_ok=True)
            (root.path / "usr/share/common-licenses" / text.name).symlink_to(os.readlink(text))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shell", action="store_true")
    parser.add_argument("--entrypoint", type=pathlib.Path)
    parser.add_argument("--plugin", type=pathlib.Path)
    parser.add_argument("--opened", type=pathlib.Path, action="append", default=[])
    parser.add_argument("programs", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    os.umask(0o022)
    root = Root(options.out)
    for program in options.programs:
        root.add_program(program)
    plugins = [options.plugin] if options.plugin else []
    for plugin in plugins:
        root.add_plugin(plugin)
    named = libraries([*options.programs, *plugins, *options.opened, *([BUSYBOX] if options.shell else [])])
    for library in sorted({*named, *options.opened}):
        root.add_library(library)
    for name, text in TEXTS.items():
        root.add_text(name, text)
    # Also makes the root of each commit another one: podman and buildah do not see that labels and times are.
    root.add_text("usr/share/doc/trainyard/commit", "{VERSION} {REVISION} {SOURCE_DATE_EPOCH}\n".format(**os.environ))
    if options.shell:
        root.add_shell()
        root.add_open_folder("tmp")
    if options.entrypoint:
        root.add(f"usr/local/bin/{options.entrypoint.name}", options.entrypoint.resolve(), 0o755)
        (root.path / "work").mkdir()
    add_licenses(root, [*options.programs, *plugins])
    root.write_record([*options.programs, *plugins])


main()

"""An image of what was built here, without a registry: the programs, a shell, Python, and each shared library that they name."""

import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile

NAME = "localhost/trainyard-test:1"  # a tag, so that nobody tries to pull it
TOOLS = ["/bin/sh", "/bin/cat", "/bin/sleep", "/bin/ls", "/usr/bin/env", "/usr/bin/python3"]
PYTHON_LIBRARY = pathlib.Path("/usr/lib/python3." + re.search(r"3\.(\d+)", subprocess.run(["/usr/bin/python3", "--version"], capture_output=True, text=True).stdout).group(1))


def libraries(programs):
    """What the dynamic loader would load for them, as ldd names it."""
    output = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
    missing = re.findall(r"^\s*(\S+) => not found", output, re.MULTILINE)
    assert not missing, f"ldd does not find {missing}"
    return set(re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", output, re.MULTILINE))


def root_files(programs):
    """Paths in the image, without the leading slash, and the files of this machine that they come from."""
    modules = list((PYTHON_LIBRARY / "lib-dynload").glob("*.so"))
    found = {f"usr/local/bin/{pathlib.Path(program).name}": pathlib.Path(program) for program in programs}
    for path in [*TOOLS, *libraries([*programs, *TOOLS, *modules])]:
        # The folder's own name: /lib may be a link, and is one in the image.
        found[os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))[1:]] = pathlib.Path(path)
    for path in PYTHON_LIBRARY.rglob("*"):
        if path.is_file() and not {"test", "__pycache__"} & set(path.parts) and not path.parent.name.startswith("config-"):
            found[str(path)[1:]] = path
    return found


def write_layer(path, programs):
    with tarfile.open(path, "w", dereference=True) as layer:
        def add(name, type, mode=0o755, link="", content=b""):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.linkname, entry.size = type, mode, link, len(content)
            layer.addfile(entry, io.BytesIO(content))

        for name in ("tmp", "var/tmp"):
            add(name, tarfile.DIRTYPE, 0o1777)
        for name in ("bin", "lib", "lib64"):
            add(name, tarfile.SYMTYPE, link=f"usr/{name}")
        add("etc/passwd", tarfile.REGTYPE, 0o644, content=b"root:x:0:0:root:/root:/bin/sh\n")
        for name, source in sorted(root_files(programs).items()):
            layer.add(source, name, recursive=False)


def write_image(folder, programs):
    """FOLDER/image.tar, for `ctr images import`: one layer, called NAME. It sleeps, as a sandbox's own container has to."""
    layer, archive = folder / "layer.tar", folder / "image.tar"
    write_layer(layer, programs)
    with open(layer, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                         "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["sleep", "infinity"]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as image:
        for name, content in (("config.json", config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            image.addfile(entry, io.BytesIO(content))
        image.add(layer, "layer.tar")
    layer.unlink()
    return archive

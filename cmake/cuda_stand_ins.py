"""Builds stand-ins for the CUDA libraries that Python's torch wheel loads at import.

usage: cuda_stand_ins.py SITE_PACKAGES OUT

Each stand-in has the library's name and exports, under the right symbol versions, what the wheel's
libraries import from it; every function aborts. With OUT in LD_LIBRARY_PATH `import torch` works
on a machine without CUDA's 2 GB. For tests on the CPU only.
"""

import collections
import pathlib
import re
import subprocess
import sys

# Library, and how the names of its functions start; the first match wins.
LIBRARIES = [
    ("libcublasLt.so.13", "cublasLt"),
    ("libcublas.so.13", "cublas"),
    ("libcudnn.so.9", "cudnn"),
    ("libcufft.so.12", "cufft"),
    ("libcufile.so.0", "cuFile"),
    ("libcurand.so.10", "curand"),
    ("libcusparseLt.so.0", "cusparseLt"),
    ("libcusparse.so.12", "cusparse"),
    ("libnccl.so.2", "nccl"),
    ("libnccl.so.2", "pnccl"),
    ("libnvshmem_host.so.3", "nvshmem"),
]
NAMES = {library for library, _ in LIBRARIES}
IMPORTERS = ["libtorch_cuda.so", "libtorch_python.so", "libtorch_nvshmem.so", "libc10_cuda.so", "libtorch.so"]


def readelf(option, library):
    return subprocess.run(["readelf", option, "-W", str(library)], capture_output=True, text=True, check=True).stdout


def version_owners(library):
    """Symbol version -> library, from the version needs of one importer."""
    owners, current = {}, None
    for line in readelf("-V", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            current = match.group(1)
        if (match := re.search(r"Name: (\S+)", line)) and current in NAMES:
            owners[match.group(1)] = current
    return owners


def undefined_symbols(library):
    for line in readelf("--dyn-syms", library).splitlines():
        parts = line.split()
        if len(parts) > 7 and parts[6] == "UND":
            name, _, version = parts[7].partition("@")
            yield name, version.lstrip("@") or None, parts[3]


def main():
    libraries = [pathlib.Path(sys.argv[1]) / "torch" / "lib" / name for name in IMPORTERS]
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    owners, exports = {}, collections.defaultdict(dict)
    present = [library for library in libraries if library.exists()]
    for library in present:
        owners.update(version_owners(library))
    for library in present:
        for name, version, kind in undefined_symbols(library):
            owner = owners.get(version) or next((lib for lib, prefix in LIBRARIES if name.startswith(prefix)), None)
            if owner and re.fullmatch(r"\w+", name):
                exports[owner][name] = (version, kind)
    for library in sorted(NAMES):
        source, versions = ["extern void abort(void);"], collections.defaultdict(list)
        for name, (version, kind) in sorted(exports[library].items()):
            source.append(f"int {name}[64];" if kind == "OBJECT" else f"int {name}(void) {{ abort(); }}")
            if version:
                versions[version].append(name)
        code = out / f"{library}.c"
        code.write_text("\n".join(source) + "\n")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-fno-builtin", str(code), "-o", str(out / library), f"-Wl,-soname,{library}"]
        if versions:
            script = out / f"{library}.map"
            script.write_text("".join(f"{v} {{ global: {'; '.join(n)}; }};\n" for v, n in versions.items()))
            command.append(f"-Wl,--version-script={script}")
        subprocess.check_call(command)


main()

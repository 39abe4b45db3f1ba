"""Where a file of an image comes from: a Debian package, a wheel of the Python registry, or this repository."""

import csv
import dataclasses
import email.parser
import os
import pathlib
import re
import subprocess

# What Debian's packages are given under, by their source package: their libraries, programs and headers, which is what an image holds of them.
# Of base-files it holds the texts of licences. tests/images/test_sbom.py notices a package that is missing here.
LICENSES = {
    "brotli": "MIT", "busybox": "GPL-2.0-only", "cli11": "BSD-3-Clause", "cpp-httplib": "MIT", "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later", "gloo": "BSD-3-Clause", "hdf5": "BSD-3-Clause", "libaec": "BSD-2-Clause", "libdeflate": "MIT", "libspng": "BSD-2-Clause", "nlohmann-json3": "MIT", "openssl": "Apache-2.0",
    "prometheus-cpp": "MIT", "xxhash": "BSD-2-Clause", "yaml-cpp": "MIT", "zlib": "Zlib",
}
LICENSE_FILE = re.compile("copyright|licen[cs]e|notice", re.IGNORECASE)
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True, order=True)
class Origin:
    name: str
    version: str
    kind: str  # "debian", "wheel" or "ours"
    license: str  # an SPDX expression, or NOASSERTION
    source: str = ""  # the Debian source package
    source_version: str = ""
    architecture: str = ""
    about: pathlib.Path = dataclasses.field(default=REPOSITORY, compare=False)  # the folder with its licence


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout


def ours():
    version = re.search(r"project\(trainyard VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text()).group(1)
    return Origin("trainyard", version, "ours", "Apache-2.0", about=REPOSITORY)


def debian_package(name):
    version, source, source_version, architecture = run("dpkg-query", "-W", "-f=${Version}\t${source:Package}\t${source:Version}\t${Architecture}", name).split("\t")
    return Origin(name.split(":")[0], version, "debian", LICENSES.get(source, "NOASSERTION"), source, source_version, architecture, pathlib.Path("/usr/share/doc") / name.split(":")[0])


def debian_owners(paths):
    """{path: package} of those that a Debian package holds. It may name /lib what lies in /usr/lib, and one package's folder of
    texts may be a link to another's."""
    spellings = {}
    for path in map(str, paths):
        real = os.path.realpath(path)
        for spelling in {path, real, real.removeprefix("/usr")}:
            spellings.setdefault(spelling, set()).add(path)
    if not spellings:
        return {}
    # It ends with 1 when it does not know one of the spellings.
    listed = subprocess.run(["dpkg-query", "-S", *sorted(spellings)], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    owners, packages = {}, {}
    for line in listed.splitlines():
        names, _, spelling = line.partition(": ")
        if line.startswith("diversion by"):
            continue
        name = names.split(", ")[0]
        if name not in packages:
            packages[name] = debian_package(name)
        for path in spellings.get(spelling, ()):
            owners[path] = packages[name]
    return owners


def site_packages(path):
    """The folder of wheels that `path` lies in, or None."""
    return next((parent for parent in pathlib.Path(path).parents if parent.name == "site-packages"), None)


def wheel_records(site):
    """[(origin, its files)] of what is installed in `site`."""
    found = []
    for info in sorted(site.glob("*.dist-info")):
        metadata = email.parser.Parser().parsestr((info / "METADATA").read_text())
        expression = metadata["License-Expression"] or metadata["License"] or "NOASSERTION"
        if expression == "NVIDIA Proprietary Software":
            expression = "LicenseRef-NVIDIA-Proprietary"  # what its other wheels say
        if not re.fullmatch(r"[A-Za-z0-9.+-]+", expression):
            expression = "NOASSERTION"
        with open(info / "RECORD", newline="") as record:
            files = {os.path.normpath(site / row[0]) for row in csv.reader(record)}
        texts = sorted(name for name in files if LICENSE_FILE.match(os.path.basename(name)))
        # One of them has it beside its libraries.
        about = info if not texts or any(pathlib.Path(text).is_relative_to(info) for text in texts) else pathlib.Path(texts[0]).parent
        found.append((Origin(metadata["Name"], metadata["Version"], "wheel", expression, about=about), files))
    return found


def wheel_owners(paths):
    owners, records = {}, {}
    for path in paths:
        site = site_packages(path)
        if site is None:
            continue
        if site not in records:
            records[site] = wheel_records(site)
        real = os.path.normpath(path)
        owners |= {str(path): origin for origin, files in records[site] if real in files}
    return owners


def owners(paths):
    """{path: origin}; what lies in this repository is ours. A file of nobody is an error."""
    paths = [str(path) for path in paths]
    found = {path: ours() for path in paths if pathlib.Path(path).resolve().is_relative_to(REPOSITORY)}
    found |= wheel_owners([path for path in paths if path not in found])
    found |= debian_owners([path for path in paths if path not in found])
    nobodys = sorted(set(paths) - set(found))
    if nobodys:
        raise SystemExit(f"no Debian package, wheel or folder of this repository holds {nobodys[0]}")
    return found


def compiled_in(program):
    """Debian packages whose headers or archives became part of `program`, as its build folder remembers."""
    build = next(parent for parent in pathlib.Path(program).resolve().parents if (parent / "build.ninja").exists())
    target = pathlib.Path(program).resolve().relative_to(build)
    inputs = run("ninja", "-C", build, "-t", "inputs", target).splitlines()
    objects = {line for line in inputs if line.endswith(".o")}
    parts, wanted = {line for line in inputs if line.startswith("/") and line.endswith(".a")}, False
    for line in run("ninja", "-C", build, "-t", "deps").splitlines():
        if not line.startswith(" "):
            wanted = line.split(":")[0] in objects
        elif wanted and line.strip().startswith("/") and not site_packages(line.strip()):
            parts.add(os.path.realpath(line.strip()))
    return set(debian_owners(path for path in parts if not path.startswith(str(REPOSITORY))).values())


def linked_statically(programs, shared):
    """Packages of which something was compiled into a program, sorted. Not those whose shared library is among the packages
    `shared` (of theirs, inline functions and templates at most), and not the kernel's, whose headers hold no code."""
    known = {origin.source for origin in shared} | {"linux"}
    found = set().union(*(compiled_in(program) for program in programs))
    return sorted(origin for origin in found if origin.source not in known)


def license_texts(origin):
    """The files in which `origin` says under which licence it is given."""
    found = [path for path in origin.about.iterdir() if LICENSE_FILE.match(path.name)]
    texts = [text for path in found for text in ([path] if path.is_file() else path.rglob("*")) if text.is_file()]
    if not texts:
        raise SystemExit(f"{origin.about} holds no licence of {origin.name}")
    return sorted(texts)

#!/usr/bin/env python3
"""Copies the licences of what was compiled into programs: whoever passes a program on has to pass these on with it.

usage: tools/licenses.py OUT PROGRAM...

OUT/PACKAGE holds the texts of a Debian package whose headers or archives became part of a PROGRAM of a build folder. What a program
loads is not in a release's archive, and not here; docker/root.py has the texts of all that is in an image.
"""

import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "docker"))
import origins  # noqa: E402


def loaded(programs):
    """The Debian packages of the shared libraries that the programs name."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    return set(origins.debian_owners(re.findall(r"^\s*(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", listed, re.MULTILINE)).values())


def main(out, programs):
    for origin in origins.linked_statically(programs, loaded(programs)):
        for text in origins.license_texts(origin):
            to = out / origin.name / text.relative_to(origin.about)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(text, to)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])

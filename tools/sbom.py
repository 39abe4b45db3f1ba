#!/usr/bin/env python3
"""Prints the bill of materials of a release's programs, SPDX 2.3 in JSON, from what their --version says.

usage: tools/sbom.py PROGRAM... [PLUGIN.so]        the environment: SOURCE_DATE_EPOCH

What is in an image is more, and is listed by file: docker/sbom.py.
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid


def identifier(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def package(name, version, **more):
    return {"SPDXID": identifier(name), "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION", **more}


def digest(path):
    with open(path, "rb") as file:
        return [{"algorithm": "SHA256", "checksumValue": hashlib.file_digest(file, "sha256").hexdigest()}]


def describe_plugin(path, program):
    """What `program` opens where it can: of the same build, which tools/release.sh has seen to."""
    own = package(os.path.basename(path), program["versionInfo"], licenseDeclared="Apache-2.0", sourceInfo=program["sourceInfo"], checksums=digest(path))
    return [own], [(own["SPDXID"], "OPTIONAL_COMPONENT_OF", program["SPDXID"])]


def describe(program):
    """The program's package, those of its libraries, and how they belong together."""
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()
    name, version = said[0].split()
    own = package(name, version, licenseDeclared="Apache-2.0", sourceInfo="built from " + said[1], checksums=digest(program))
    libraries, relations = [], [("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"])]
    for line in said[3:]:
        if line.startswith("plug-in "):  # what this machine has, and no part of the program
            continue
        library, compiled, how = re.fullmatch(r"library (\S+) +(.+?), (loaded .+|part of the program)", line).groups()
        libraries.append(package(library, compiled, comment=how))
        kind = "STATIC_LINK" if how == "part of the program" else "DYNAMIC_LINK"
        relations.append((own["SPDXID"], kind, identifier(library)))
    return [own, *libraries], relations


def main(programs):
    packages, relations = {}, []
    for program in programs:
        described, more = describe_plugin(program, packages["SPDXRef-trainyard"]) if program.endswith(".so") else describe(program)
        packages.update({each["SPDXID"]: each for each in described})
        relations += more
    version = describe(programs[0])[0][0]["versionInfo"]
    content = json.dumps([list(packages.values()), relations], sort_keys=True)
    created = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"trainyard-{version}",
        "documentNamespace": uuid.uuid5(uuid.NAMESPACE_OID, content).urn,
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: tools/sbom.py"]},
        "packages": list(packages.values()),
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations],
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])

#!/usr/bin/env python3
"""The bill of materials of an image, as SPDX 2.3 in JSON: each file with its digest, and whose it is.

usage: docker/sbom.py OUT NAME

Reads what docker/root.py made, OUT/files and OUT/files.json, and writes OUT/sbom.spdx.json. Runs in the build stage of
docker/Dockerfile, where dpkg and the wheels' records are. The environment: VERSION, REVISION, SOURCE_DATE_EPOCH.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import sys
import urllib.parse
import uuid

import origins


def identifier(kind, text):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def package_id(origin):
    return identifier("Package", f"{origin.kind}-{origin.name}")


def package_url(origin):
    version = urllib.parse.quote(origin.version, safe="~")
    if origin.kind == "debian":
        return f"pkg:deb/debian/{origin.name}@{version}?arch={origin.architecture}&distro=debian-12"
    if origin.kind == "wheel":
        return f"pkg:pypi/{re.sub('[-_.]+', '-', origin.name).lower()}@{version}"
    return f"pkg:generic/{origin.name}@{version}"


def verification_code(files):
    return hashlib.sha1("".join(sorted(file["checksums"][0]["checksumValue"] for file in files)).encode()).hexdigest()


def package(origin, files, revision):
    made = {
        "SPDXID": package_id(origin), "name": origin.name, "versionInfo": origin.version, "downloadLocation": "NOASSERTION",
        "filesAnalyzed": bool(files), "licenseConcluded": "NOASSERTION", "licenseDeclared": origin.license, "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": package_url(origin)}],
    }
    if files:
        made["packageVerificationCode"] = {"packageVerificationCodeValue": verification_code(files)}
        made["licenseInfoFromFiles"] = ["NOASSERTION"]
    if origin.kind == "debian":
        made["supplier"] = "Organization: Debian"
        made["sourceInfo"] = f"built from the Debian source package {origin.source} {origin.source_version}"
    if origin.kind == "ours":
        made["sourceInfo"] = f"built from commit {revision}"
    return made


def describe_file(root, name):
    content = (root / name).read_bytes()
    kind = "BINARY" if content.startswith(b"\x7fELF") else "TEXT"
    return {
        "SPDXID": identifier("File", name), "fileName": f"./{name}", "fileTypes": [kind],
        "checksums": [{"algorithm": algorithm.upper(), "checksumValue": hashlib.new(algorithm, content).hexdigest()} for algorithm in ("sha1", "sha256")],
        "licenseConcluded": "NOASSERTION", "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION",
    }


def document(out, name):
    record = json.loads((out / "files.json").read_text())
    owner_of = origins.owners(set(record["files"].values()))
    files_of = {}
    for path, source in sorted(record["files"].items()):
        files_of.setdefault(owner_of[source], []).append(describe_file(out / "files", path))
    revision, ours = os.environ["REVISION"], origins.ours()
    shared = [origin for origin, files in files_of.items() if any(file["fileTypes"] == ["BINARY"] for file in files)]
    static = origins.linked_statically(record["programs"], shared)
    everything = sorted({*files_of, *static})
    image = {
        "SPDXID": "SPDXRef-Image", "name": name, "versionInfo": os.environ["VERSION"], "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "primaryPackagePurpose": "CONTAINER", "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
    }
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image")]
    relations += [("SPDXRef-Image", "CONTAINS", package_id(origin)) for origin in sorted(files_of)]
    relations += [(package_id(ours), "STATIC_LINK", package_id(origin)) for origin in static]
    relations += [(package_id(origin), "CONTAINS", file["SPDXID"]) for origin in sorted(files_of) for file in files_of[origin]]
    packages = [image] + [package(origin, files_of.get(origin, []), revision) for origin in everything]
    files = [file for origin in sorted(files_of) for file in files_of[origin]]
    licenses = {}  # {identifier: the different texts that packages have under it}
    for origin in everything:
        if origin.license.startswith("LicenseRef-"):
            licenses.setdefault(origin.license, {})[origins.license_texts(origin)[0].read_text()] = origin
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    made = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: trainyard-docker-sbom"]},
        "packages": packages, "files": files,
        "hasExtractedLicensingInfos": [{"licenseId": item, "extractedText": "\n".join(texts)} for item, texts in sorted(licenses.items())],
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations],
    }
    # The same image has the same name for its document.
    made["documentNamespace"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(made, sort_keys=True)).urn
    return made


out, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(out / "sbom.spdx.json").write_text(json.dumps(document(out, name), indent=1) + "\n")

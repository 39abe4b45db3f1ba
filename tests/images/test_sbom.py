"""The bills of materials: valid, and complete for what the archives hold."""

import hashlib
import re

import archives
import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document


def test_it_is_valid_spdx(image):
    document = parse_file(str(archives.FOLDER / f"{image.name}.spdx.json"))
    assert [str(message) for message in validate_full_spdx_document(document)] == []


def test_it_lists_each_file_with_its_digest_and_nothing_else(image):
    listed = {}
    for file in image.sbom()["files"]:
        digests = {item["algorithm"]: item["checksumValue"] for item in file["checksums"]}
        listed[file["fileName"].removeprefix("./")] = digests["SHA256"]
    assert listed == {name: hashlib.sha256(image.read(name)).hexdigest() for name in image.files()}


def test_each_shared_library_belongs_to_a_package_with_a_version(image):
    sbom = image.sbom()
    packages = {package["SPDXID"]: package for package in sbom["packages"]}
    files = {file["SPDXID"]: file["fileName"].removeprefix("./") for file in sbom["files"]}
    owner = {files[relation["relatedSpdxElement"]]: packages[relation["spdxElementId"]] for relation in sbom["relationships"]
             if relation["relationshipType"] == "CONTAINS" and relation["relatedSpdxElement"] in files}
    for name in image.programs_and_libraries():
        assert owner[name]["versionInfo"], name
        kind = owner[name]["externalRefs"][0]["referenceLocator"].split("/")[0]
        ours = name.startswith("usr/local/bin/trainyard") or name.endswith("/libtrainyard_cuda.so")
        expected = "pkg:generic" if ours else "pkg:pypi" if "/lib/trainyard/" in name else "pkg:deb"
        assert kind == expected, name


def test_each_package_has_a_licence_and_debians_the_source_to_ask_for(image):
    for package in image.sbom()["packages"]:
        if package["name"] not in (image.name, "base-files"):  # of which there are the texts of others' licences
            assert package["licenseDeclared"] != "NOASSERTION", f"{package['name']}: docker/origins.py, LICENSES"
        if package.get("supplier") == "Organization: Debian":
            assert re.fullmatch(r"built from the Debian source package [a-z0-9.+-]+ \d\S*", package["sourceInfo"]), package


def test_it_names_what_was_compiled_in(image):
    sbom = image.sbom()
    names = {package["SPDXID"]: package["name"] for package in sbom["packages"]}
    static = {names[relation["relatedSpdxElement"]] for relation in sbom["relationships"] if relation["relationshipType"] == "STATIC_LINK"}
    expected = {"operator": {"libyaml-cpp-dev", "nlohmann-json3-dev", "libcli11-dev"}}
    expected["trainer"] = expected["trainer-cuda"] = expected["local"] = expected["operator"] | {"libgloo-dev", "libhdf5-dev", "libaec-dev", "libdeflate-dev"}
    assert static == expected[image.name.removeprefix("trainyard-")]


def test_it_names_the_commit_of_the_label(image):
    [ours] = [package for package in image.sbom()["packages"] if package["name"] == "trainyard"]
    labels = image.config["config"]["Labels"]
    assert labels["org.opencontainers.image.revision"] in ours["sourceInfo"]
    assert ours["versionInfo"] == labels["org.opencontainers.image.version"]

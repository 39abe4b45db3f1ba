"""What is written from the chart and into it: the CRD, versions, the plain manifests, the page of values."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from helm import CHART, ROOT, Objects, built, conform, render, run
from pod_security import violations

OPERATOR = os.environ.get("TRAINYARD_OPERATOR_BIN", str(ROOT / "build/release/bin/trainyard-operator"))
# What the operator may do, for whoever reads what changes in the templates. tests/cluster shows from the API server's log that it uses them.
RIGHTS = {
    ("trainyard.dev", "trainingjobs"): ["get", "list", "watch", "delete"],
    ("trainyard.dev", "trainingjobs/status"): ["patch"],
    ("trainyard.dev", "trainingjobs/finalizers"): ["update"],
    ("", "pods"): ["get", "list", "watch", "create", "patch", "delete"],
    ("", "services"): ["get", "create", "patch"],
    ("events.k8s.io", "events"): ["create", "patch"],
}


def rights(*roles):
    return {(group, resource): rule["verbs"] for role in roles for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"]}


def test_helm_has_nothing_to_say():
    """With icons it would have less: `lint --strict` counts warnings, and only informs of that."""
    assert "0 chart(s) failed" in run("lint", "--strict", CHART)


def test_the_crd_is_the_programs():
    said = subprocess.run([OPERATOR, "crd"], capture_output=True, text=True, check=True, timeout=60).stdout
    for path in (CHART / "crd.yaml", ROOT / "manifests/crd.yaml"):
        assert path.read_text() == said, f"{path} is out of date: make generate"
    made, plain = render().one("CustomResourceDefinition"), yaml.safe_load(said)
    assert made["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"} and made["metadata"].pop("labels")
    assert made == plain


def test_one_version():
    version = re.search(r"project\(trainyard VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version
    for path in (ROOT / "manifests").rglob("*.yaml"):
        tags = set(re.findall(r"image: \"?trainyard-[a-z]+(:[^\s\",}]+)?", path.read_text()))
        assert tags <= {f":{version}"}, f"{path} has other tags than {version}: {tags}"


def test_the_rights_and_no_more():
    cluster, alone = render(), render({"scope": {"namespaced": True}})
    assert rights(cluster.one("ClusterRole", "trainyard-operator")) == rights(alone.one("Role", "trainyard-operator")) == RIGHTS
    for objects in (cluster, alone):
        assert rights(objects.one("Role", "trainyard-operator-lease")) == {("coordination.k8s.io", "leases"): ["get", "create", "patch"]}
        bound = {(b["roleRef"]["kind"], b["roleRef"]["name"]) for b in objects if b["kind"].endswith("Binding")}
        kind = "ClusterRole" if objects is cluster else "Role"
        assert bound == {(kind, "trainyard-operator"), ("Role", "trainyard-operator-lease")}


def test_the_plain_manifests_are_the_charts():
    result = subprocess.run([ROOT / "charts/render.sh", "--check"], capture_output=True, text=True, timeout=120, env=os.environ | {"HELM": built("helm")})
    assert result.returncode == 0 and not result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("name, namespace", [("install", "trainyard-system"), ("install-namespaced", "training")])
def test_plain_manifests(name, namespace):
    text = (ROOT / f"manifests/{name}.yaml").read_text()
    objects = Objects(text)
    assert objects[0]["kind"] == "Namespace" and objects[0]["metadata"]["name"] == namespace, "what lies in it comes behind it"
    assert all(each["metadata"].get("namespace", namespace) == namespace for each in objects)
    assert "helm.sh" not in text and "Helm" not in re.sub(r"^#.*", "", text, flags=re.M)
    assert not violations(objects.pod["spec"])
    conform(text)
    if name == "install":
        assert objects[0]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    else:
        assert {e["kind"] for e in objects if "namespace" not in e["metadata"]} == {"Namespace", "CustomResourceDefinition"}, "rights in one namespace alone"


def test_the_namespace_of_a_plain_manifest_can_be_another():
    """With the command that stands in it."""
    text = (ROOT / "manifests/install-namespaced.yaml").read_text()
    command = re.search(r"sed 's/[^']*'", " ".join(line.lstrip("# ") for line in text.splitlines()[:2])).group(0)
    changed = subprocess.run(["bash", "-c", command], input=text, capture_output=True, text=True, check=True).stdout
    objects = Objects(changed)
    assert {each["metadata"].get("namespace", "mine") for each in objects} == {"mine"} and objects[0]["metadata"]["name"] == "mine" and "--namespace=mine" in objects.container["args"]
    assert objects.one("RoleBinding", "trainyard-operator")["subjects"][0]["namespace"] == "mine"
    assert objects.one("CustomResourceDefinition") == Objects(text).one("CustomResourceDefinition")


def test_the_page_has_every_value():
    result = subprocess.run([sys.executable, ROOT / "charts/values_table.py"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_schema_has_every_value_and_no_other():
    schema = json.loads((CHART / "values.schema.json").read_text())
    free = {"affinity", "resources"}  # of the API's own fields, which are not all set

    def compare(values, node, path):
        node = schema["definitions"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node
        if not isinstance(values, dict) or "properties" not in node:
            return
        assert node["additionalProperties"] is False, path
        assert set(values) <= set(node["properties"]), f"{path}: no schema for {set(values) - set(node['properties'])}"
        missing = set(node["properties"]) - set(values) - {"global"}
        assert not missing or path in free, f"{path}: no value for {missing}"
        for key, value in values.items():
            compare(value, node["properties"][key], f"{path}.{key}".lstrip("."))

    compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "")


def test_the_package_holds_all_of_it(tmp_path):
    run("package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    names = subprocess.run(["tar", "tzf", package], capture_output=True, text=True, check=True).stdout.split()
    there = {str(path.relative_to(CHART.parent)) for path in CHART.rglob("*") if path.is_file() and path.name != ".helmignore"}
    assert there <= set(names), there - set(names)

"""What is written from the chart and into it: the CRD, versions, the plain manifests, the page of values."""

import itertools
import json
import os
import re
import shutil
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
    ("", "services"): ["get", "create", "patch", "delete"],
    ("events.k8s.io", "events"): ["create", "patch"],
}


def rights(*roles):
    """The verbs of each resource, in the order of the rules."""
    given = {}
    for rule in (rule for role in roles for rule in role["rules"]):
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            given.setdefault((group, resource), []).extend(rule["verbs"])
    return given


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
        assert rights(objects.one("Role", "trainyard-operator-lease")) == {("coordination.k8s.io", "leases"): ["get", "patch", "create"]}
        named = [rule.get("resourceNames") for rule in objects.one("Role", "trainyard-operator-lease")["rules"]]
        assert named == [["trainyard-operator"], None], "of other Leases it may read and change none"
        bound = {(b["roleRef"]["kind"], b["roleRef"]["name"]) for b in objects if b["kind"].endswith("Binding")}
        kind = "ClusterRole" if objects is cluster else "Role"
        assert bound == {(kind, "trainyard-operator"), ("Role", "trainyard-operator-lease")}


def test_the_plain_manifests_are_the_charts():
    result = subprocess.run([ROOT / "charts/render.sh", "--check"], capture_output=True, text=True, timeout=120, env=os.environ | {"HELM": built("helm")})
    assert result.returncode == 0 and not result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("changed, refused", [
    (None, []), ("charts/trainyard/templates/service.yaml", ["install", "install-namespaced", "gangs"]), ("charts/trainyard/crd.yaml", ["install", "install-namespaced", "gangs"]),
    ("manifests/install.yaml", ["install"]), ("charts/trainyard/templates/NOTES.txt", [])])
def test_without_helm_the_seals_tell(tmp_path, changed, refused):
    shutil.copytree(ROOT / "charts", tmp_path / "charts")
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    (tmp_path / "cmake").mkdir()
    shutil.copy(ROOT / "cmake/deps.sh", tmp_path / "cmake")
    if changed:
        (tmp_path / changed).write_text("# changed\n" + (tmp_path / changed).read_text())
    result = subprocess.run([tmp_path / "charts/render.sh", "--check"], capture_output=True, text=True, timeout=120, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    assert (result.returncode != 0) == bool(refused), result.stdout + result.stderr
    assert re.findall(r"manifests/([\w-]+)\.yaml or the chart has changed", result.stdout) == refused and not result.stderr


def typed(page, what):
    """What Helm gives for the page's `helm template ... | kubectl apply -f -` that names WHAT."""
    (command,) = re.findall(rf"^ {{4}}helm (template .*{re.escape(what)}.*) \| kubectl apply -f -$", (ROOT / page).read_text(), re.M)
    return Objects(run(*command.replace("charts/trainyard", str(CHART)).split()))


def test_what_an_administrator_applies_for_one_namespace():
    """Is what the release of who has that namespace alone goes without."""
    objects = typed("docs/install.md", "rights.yaml")
    assert sorted(each["kind"] for each in objects) == ["ClusterRole", "ClusterRole", "Role", "Role", "RoleBinding", "RoleBinding"]
    (command,) = re.findall(r"^    helm (install .*rbac\.create=false.*)$", (ROOT / "docs/install.md").read_text(), re.M)
    rest = Objects(run("template", *command.replace("charts/trainyard", str(CHART)).split()[1:]))
    whole = render({"scope": {"namespaced": True}}, namespace="training")
    assert sorted(objects.names() + rest.names() + ["CustomResourceDefinition/trainingjobs.trainyard.dev"]) == whole.names()
    assert all(each["metadata"].get("namespace") == "training" for each in rest)


def test_gangs_in_one_namespace():
    role, binding = typed("docs/gangs.md", "gangs.yaml")
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "training") and role["rules"][0]["resources"] == ["podgroups"]
    assert binding["subjects"] == Objects((ROOT / "manifests/install-namespaced.yaml").read_text()).one("RoleBinding", "trainyard-operator")["subjects"]


def test_a_release_has_every_plain_manifest():
    packed = re.search(r"for manifest in (.*); do", (ROOT / "tools/release.sh").read_text())[1].split()
    assert sorted(packed) == sorted(path.stem for path in (ROOT / "manifests").glob("*.yaml"))


def test_the_pages_scrape_configuration_finds_the_operator_and_no_other():
    """By the labels and the port of the chart's pod; not by the container's name, which others may have too."""
    block = next(b for b in re.findall(r"```yaml\n(scrape_configs:.*?)```", (ROOT / "docs/dashboards.md").read_text(), re.S) if "kubernetes_sd_configs" in b)
    rules = {job["job_name"]: job["relabel_configs"] for job in yaml.safe_load(block)["scrape_configs"]}["trainyard-operator"]

    def kept(labels):
        meta = {f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}": value for key, value in labels.items()}
        meta |= {"__meta_kubernetes_pod_container_name": "operator", "__meta_kubernetes_pod_container_port_name": "metrics"}
        return all(re.fullmatch(rule["regex"], ";".join(meta.get(label, "") for label in rule["source_labels"])) for rule in rules if rule.get("action") == "keep")

    assert kept(render().pod["metadata"]["labels"])
    assert not kept({"app.kubernetes.io/name": "another", "app.kubernetes.io/component": "operator"}) and not kept({})


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

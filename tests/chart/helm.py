"""Runs Helm and kubeconform on the chart. tests/cluster/build.sh builds both; without them the tests are left out."""

import functools
import json
import os
import pathlib
import shutil
import subprocess

import pytest
import schemas
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/trainyard"
CACHE = pathlib.Path(os.environ.get("TRAINYARD_CACHE", pathlib.Path.home() / ".cache/trainyard"))
RELEASE, NAMESPACE = "trainyard", "trainyard-system"


def built(name):
    """Where build.sh put it, or PATH has it; of Helm the one that renders the manifests as well."""
    if name == "helm" and (helm := subprocess.run([ROOT / "cmake/deps.sh", "--helm"], capture_output=True, text=True, check=True).stdout.strip()):
        return helm
    there = sorted(CACHE.glob(f"cluster-*/bin/{name}"))
    found = str(there[-1]) if there else shutil.which(name)
    if not found:
        pytest.skip(f"there is no {name}; `tests/cluster/build.sh {name}` builds it")
    return found


def run(*args, stdin=None, good=True):
    """Helm's output; of a refusal what it says."""
    result = subprocess.run([built("helm"), *map(str, args)], capture_output=True, text=True, timeout=120, input=stdin)
    assert (result.returncode == 0) == good, result.stdout + result.stderr
    return result.stdout if good else result.stderr


def template(values=None, *args, chart=CHART, release=RELEASE, namespace=NAMESPACE, good=True):
    """The text that the chart gives with these values, as a file of values has them."""
    return run("template", release, chart, "--namespace", namespace, "--values", "-", *args, stdin=json.dumps(values or {}), good=good)


class Objects(list):
    """What a rendering holds."""

    def __init__(self, text):
        super().__init__(document for document in yaml.safe_load_all(text) if document)

    def of(self, kind):
        return [each for each in self if each["kind"] == kind]

    def one(self, kind, name=None):
        found = [each for each in self.of(kind) if name in (None, each["metadata"]["name"])]
        assert len(found) == 1, f"{len(found)} of {kind} {name or ''}: {[(e['kind'], e['metadata']['name']) for e in self]}"
        return found[0]

    def names(self):
        return sorted(f"{each['kind']}/{each['metadata']['name']}" for each in self)

    @property
    def pod(self):
        return self.one("Deployment")["spec"]["template"]

    @property
    def container(self):
        containers = self.pod["spec"]["containers"]
        assert len(containers) == 1
        return containers[0]


def render(values=None, *args, **options):
    return Objects(template(values, *args, **options))


@functools.cache
def schema_folder():
    """JSON schemas of Kubernetes' own API, from the module that the API server is built of, and of the monitors."""
    swagger = sorted(CACHE.glob("cluster-*/modules/k8s.io/kubernetes@*/api/openapi-spec/swagger.json"))
    if not swagger:
        pytest.skip("Kubernetes' module is not there; `tests/cluster/build.sh kubeconform kube-apiserver` brings it")
    crds = sorted(CACHE.glob("cluster-*/bin/monitoring/*.yaml"))
    if not crds:
        pytest.skip("the Prometheus operator's CRDs are not there; `tests/cluster/build.sh monitoring` brings them")
    folder = swagger[0].parents[5] / f"schemas-{schemas.VERSION}"
    if not folder.exists():
        schemas.write(folder, json.loads(swagger[0].read_text()), [yaml.safe_load(path.read_text()) for path in crds])
    return folder


def conform(text):
    """Every object is what the API says, without a field that it does not know."""
    command = [built("kubeconform"), "-strict", "-summary", "-schema-location", f"{schema_folder()}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", "-"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, input=text)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Skipped: 0" in result.stdout, result.stdout
    return result.stdout

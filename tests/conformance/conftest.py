"""One API server for all cases: the in-memory one, or with --server kubernetes a real kube-apiserver (tests/cluster/run.sh)."""

import base64
import dataclasses
import json
import pathlib
import sys
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))

import api_client
import servers


def pytest_addoption(parser):
    parser.addoption("--server", choices=["memory", "kubernetes"], default="memory", help="which API server the cases run on")


@pytest.fixture(scope="session")
def started(request, tmp_path_factory):
    kind = request.config.getoption("--server")
    folder = tmp_path_factory.mktemp(kind)
    made = None
    try:
        made = servers.real_api(folder) if kind == "kubernetes" else servers.memory_api(folder)
        if kind == "memory":  # in its second life it remembers nothing of the versions of its first
            made.processes.stop_all()
            made.kubeconfig.unlink()
            made = servers.memory_api(folder)
        yield made
    finally:
        if made:
            made.processes.stop_all()


def connect(started):
    if started.kind == "kubernetes":
        return api_client.Client("127.0.0.1", 6443, "admin", (started.folder / "ca.crt").read_text(), started.kind)
    config = dict(line.strip().split(": ", 1) for line in started.kubeconfig.read_text().splitlines() if ": " in line and "{" not in line)
    port = int(config["server"].rsplit(":", 1)[1])
    return api_client.Client("127.0.0.1", port, config["token"], base64.b64decode(config["certificate-authority-data"]).decode(), started.kind)


@pytest.fixture(scope="session")
def api(started):
    client = connect(started)
    # A real one answers 429 to the first lists of a kind: it fills its cache then.
    for path in (api_client.JOBS, api_client.PODS, api_client.CLAIMS, api_client.SERVICES, api_client.LEASES):
        servers.wait_until(lambda: client.get(path).code == 200, 60, f"a list of {path}")
    return client


@dataclasses.dataclass
class Forgotten:
    version: str
    token: str  # of the second page of a list of that version


@pytest.fixture(scope="session")
def forgotten(started, api):
    """What the server no longer holds. A token is opaque to a client: only here it is known what one looks like."""
    if started.kind == "memory":
        return Forgotten("1", "1:default/a")
    revision = int(api.get(api_client.JOBS).ok()["metadata"]["resourceVersion"])
    body = json.dumps({"revision": str(revision), "physical": True}).encode()
    urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:2379/v3/kv/compaction", data=body, method="POST"), timeout=30).read()
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": "a\u0000"}).encode()
    return Forgotten("1", base64.urlsafe_b64encode(token).decode().rstrip("="))


@pytest.fixture
def name(request, api):
    """A name of the case's own; what is called so, or begins so, is deleted afterwards."""
    own = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_").lower())
    own = f"{own[:20].strip('-')}-{abs(hash(request.node.nodeid)) % 100000}"
    yield own
    for path in (api_client.JOBS, api_client.PODS, api_client.CLAIMS, api_client.SERVICES, api_client.LEASES):
        for item in api.get(path).ok()["items"]:
            each = item["metadata"]
            if not each["name"].startswith(own):
                continue
            api.delete(f"{path}/{each['name']}", gracePeriodSeconds=0)
            if api.get(f"{path}/{each['name']}").code == 200:
                api.patch(f"{path}/{each['name']}", {"metadata": {"finalizers": None}})

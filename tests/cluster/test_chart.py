"""The chart and the plain manifests on two real nodes: install, upgrade, uninstall, with jobs that run meanwhile. One test goes on from the other."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import urllib.request

import image
import pytest
import yaml
from nodes import Cluster, processes_of
from servers import BIN, ROOT, SHIPPED_OPERATOR, kubeconfig, wait_until
from test_nodes import TRAINER, UNUSED, audited, explain, script

sys.path.insert(0, str(ROOT / "tests/docs"))

import pages
import shell
from test_commands import shortened

CHART, NAME = ROOT / "charts/trainyard", "trainyard-operator"
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
NAMESPACE, ALONE = "trainyard-system", "training"  # of manifests/install.yaml and install-namespaced.yaml
REGISTRYS = f"registry.example/trainyard-operator:{VERSION}"  # as docs/install.md calls the image
# A folder with archives of `make images`: those that are there take the place of the image of what was built here.
IMAGES = os.environ.get("TRAINYARD_IMAGES")
LITERAL = os.environ.get("TRAINYARD_THOROUGH") == "1"  # the examples as they stand, two minutes each; else with fewer steps


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(pathlib.Path(os.environ["CLUSTER_STATE"]), [pathlib.Path(TRAINER).resolve(), SHIPPED_OPERATOR], installed=False)
    for node in made.nodes:
        for name in ("trainyard-operator", "trainyard-trainer"):
            load_image(node, name)
        node.ctr("images", "tag", "--force", f"docker.io/library/trainyard-operator:{VERSION}", REGISTRYS)
    add_storage(made)
    made.kubectl("create", "namespace", NAMESPACE)
    made.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    wait_until(lambda: made.get("serviceaccount", "default", "--namespace", NAMESPACE) and made.get("configmap", "kube-root-ca.crt", "--namespace", NAMESPACE), 30, "what a namespace gets by itself")
    made.before, made.typed = everything(made), 0
    yield made


def load_image(node, name):
    """Under the name that a kubelet looks for."""
    source, wanted = image.NAME, f"docker.io/library/{name}:{VERSION}"
    if IMAGES and (archive := pathlib.Path(IMAGES) / f"{name}.tar").exists():
        source = re.search(r"unpacking (\S+)", node.ctr("images", "import", archive, timeout=600)).group(1)
    if source != wanted:
        node.ctr("images", "tag", "--force", source, wanted)


def add_storage(cluster):
    """A default storage class, of volumes that one node has; what a fresh cluster of one's own has, but made beforehand."""
    cluster.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                   "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
    for index in range(6):
        folder = cluster.folder / f"volume-{index}"
        folder.mkdir()
        host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"node{index % 2}"]}
        cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{index}"},
                       "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "standard", "local": {"path": str(folder)},
                                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}}}})


def environment(cluster, person="admin"):
    """Of a shell in which a person types: their kubeconfig, and no folder of this machine's user."""
    homes = {f"HELM_{kind}_HOME": str(cluster.folder / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
    return os.environ | homes | {"KUBECONFIG": str(cluster.folder / f"{person}.kubeconfig"), "KUBECACHEDIR": str(cluster.folder / "kubectl")}


def commands(section, *words):
    """Those in the blocks of a section of docs/install.md that have all the words."""
    text = (ROOT / "docs/install.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [line for line in re.findall(r"^ {4}((?:kubectl|helm) .*)$", text, re.M) if all(word in line for word in words)]


def typed(cluster, command, person="admin", good=True):
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment(cluster, person))
    assert (result.returncode == 0) == good, command + "\n" + result.stdout + result.stderr + describe(cluster)
    return result.stdout + result.stderr


def helm(cluster, *args, good=True):
    result = subprocess.run([str(BIN / "helm"), *map(str, args)], capture_output=True, text=True, timeout=300, env=environment(cluster))
    assert (result.returncode == 0) == good, result.stdout + result.stderr + describe(cluster)
    return result.stdout if good else result.stderr


def describe(cluster):
    """What a person would look at when operators do not come."""
    return cluster.kubectl("get", "pods,events", "--all-namespaces")


def everything(cluster):
    """Kind, namespace and name of all there is, but for what comes and goes by itself."""
    by_themselves = ("events", "componentstatuses", "ipaddresses", "apiservices", "endpoints", "csinodes")  # from the third on: of a Service, of a CRD, of a Service, of a node
    kinds = [k for k in cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split() if not k.startswith(by_themselves)]
    columns = "-o=jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}"
    found = cluster.kubectl("get", ",".join(kinds), "--all-namespaces", columns).split()
    return {each for each in found if not each.startswith("Lease/kube-node-lease/")}  # a kubelet makes its own some time after its node


def rolled_out(cluster, namespace):
    wait_until(lambda: cluster.kubectl("--namespace", namespace, "rollout", "status", f"deployment/{NAME}", "--timeout=50s"), 180, "the deployment")
    return wait_until(lambda: len(pods := operators(cluster, namespace)) == 2 and pods, 60, "two operators and no other")


def operators(cluster, namespace):
    pods = cluster.get("pods", "--namespace", namespace, "-l", "app.kubernetes.io/component=operator")["items"]
    return {pod["metadata"]["name"]: pod for pod in pods}


def example(name, namespace="default", steps=80):
    """manifests/examples/NAME.yaml in a namespace."""
    text = (ROOT / f"manifests/examples/{name}.yaml").read_text()
    if not LITERAL:
        text, count = re.subn(r"train: \{steps: \d+\}", f"train: {{steps: {steps}}}", text.replace("eval_episodes: 40", "eval_episodes: 2"))
        assert count == 1
    objects = list(yaml.safe_load_all(text))
    for each in objects:
        each["metadata"]["namespace"] = namespace
    return objects


def status(cluster, name, namespace="default"):
    return cluster.get("tj", name, "--namespace", namespace).get("status", {})


def complete(cluster, name, namespace="default", timeout=600 if LITERAL else 240):
    try:
        return wait_until(lambda: (s := status(cluster, name, namespace)).get("phase") == "Succeeded" and s, timeout, f"{name} to complete")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{status(cluster, name, namespace)}\n{explain(cluster, name) if namespace == 'default' else ''}{describe(cluster)}") from None


def waiting_job(cluster, name):
    """Two workers that run until finish() lets them end; nobody may touch them meanwhile."""
    cluster.apply(script(name, ["sh", "-c", "sleep 3600; exit 0"]))
    wait_until(lambda: status(cluster, name).get("phase") == "Running", 90, f"{name} to run")
    return uids(cluster, name)


def uids(cluster, name):
    return {pod: object["metadata"]["uid"] for pod, object in cluster.pods(name).items()}


def finish(cluster, name, pods):
    """Its workers end with 0, and the job was never disturbed."""
    assert uids(cluster, name) == pods
    for uid in pods.values():
        for pid, line in processes_of(uid).items():
            if line == "sleep 3600":
                os.kill(pid, signal.SIGKILL)
    done = complete(cluster, name, timeout=60)
    assert done["attempt"] == 1 and done["restarts"]["total"] == 0 and done["workers"]["succeeded"] == 2


def restart(cluster, name, namespace):
    """A job whose first attempt fails: an operator does most of what it may."""
    job = script(name, ["sh", "-c", "[ $TRAINYARD_ATTEMPT = 2 ]"])
    job["metadata"]["namespace"] = namespace
    cluster.apply(job)
    assert complete(cluster, name, namespace, timeout=120)["restarts"]["total"] == 1


def leaders(cluster, namespace):
    """By their metrics."""
    metrics = [urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/metrics", timeout=5).read().decode() for pod in operators(cluster, namespace).values()]
    return [int(re.search(r"^trainyard_leader (\d)", text, re.M).group(1)) for text in metrics]


@pytest.fixture(scope="module")
def older(cluster):
    """The chart before a field and a column came, of another version."""
    chart = cluster.folder / "older"
    shutil.copytree(CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(re.sub(r"^version: .*", "version: 0.0.9", text, flags=re.M))
    crd = yaml.safe_load((chart / "crd.yaml").read_text())
    version = crd["spec"]["versions"][0]
    version["additionalPrinterColumns"].pop()
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("sharedMemory")
    (chart / "crd.yaml").write_text(yaml.safe_dump(crd))
    return chart


def fields(cluster):
    version = cluster.get("crd", "trainingjobs.trainyard.dev")["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"], version["additionalPrinterColumns"]


def test_the_pages(cluster, tmp_path):
    """What they tell a reader with a cluster to type (tests/docs/pages.py): the quick start but for its end, what other pages show of its job, and
    the end, which leaves the CRD alone."""
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    rewrite = (lambda text: text) if LITERAL else shortened
    for file in (tmp_path / "manifests/examples").rglob("*.yaml"):
        file.write_text(rewrite(file.read_text()))
    blocks = {page.stem: found for page, found in pages.cluster_blocks()}
    quickstart = blocks.pop("quickstart")
    for of_page in (quickstart[:-1], *blocks.values(), quickstart[-1:]):
        try:
            missing = shell.run_page(of_page, "cluster", tmp_path, environment(cluster), rewrite)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{describe(cluster)}") from None
        assert not missing
    left = lambda: everything(cluster) - cluster.before  # noqa: E731
    with contextlib.suppress(AssertionError):
        wait_until(lambda: len(left()) == 1, 60)
    assert left() == {"CustomResourceDefinition//trainingjobs.trainyard.dev"}
    cluster.kubectl("delete", "crd", "trainingjobs.trainyard.dev")
    cluster.typed = len(audited(cluster))  # an operator whose rights go with its release is refused the Lease at its end


def test_helm_install(cluster, older):
    """In a namespace that admits restricted pods alone; then an example as it stands, with a storage class of one node at a time."""
    notes = helm(cluster, "install", "trainyard", older, "--namespace", NAMESPACE, "--wait", "--timeout", "180s")
    assert f"rollout status deployment/{NAME}" in notes and "get tj --watch" in notes
    pods = rolled_out(cluster, NAMESPACE)
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {"node0", "node1"}
    assert wait_until(lambda: sorted(leaders(cluster, NAMESPACE)) == [0, 1], 30, "one leader")
    assert cluster.get("lease", NAME, "--namespace", NAMESPACE)["spec"]["holderIdentity"].split("_")[0] in pods
    wait_until(lambda: cluster.get("pdb", NAME, "--namespace", NAMESPACE)["status"]["disruptionsAllowed"] == 1, 30, "the budget to allow one")
    assert "no such command" in cluster.kubectl("exec", next(iter(pods)), "--namespace", NAMESPACE, "--", NAME, "local", good=False), "what is not in the shipped image"
    assert "sharedMemory" not in fields(cluster)[0]
    cluster.apply(*example("dark-room"))
    done = complete(cluster, "dark-room")
    assert done["attempt"] == 1 and done["checkpoint"]["step"] == done["progress"]["step"]
    workers = cluster.pods("dark-room")
    assert len({pod["spec"]["nodeName"] for pod in workers.values()}) == 1, "where the volume is"


def test_the_pod_monitor_finds_the_workers_port(cluster):
    """By the name that the chart's PodMonitor has."""
    text = helm(cluster, "template", "trainyard", CHART, "--set", "monitoring.podMonitor.enabled=true", "--show-only", "templates/podmonitor.yaml")
    monitor = yaml.safe_load(text)["spec"]
    workers = cluster.get("pods", "-l", ",".join(f"{key}={value}" for key, value in monitor["selector"]["matchLabels"].items()))["items"]
    ports = [[port["containerPort"] for port in pod["spec"]["containers"][0].get("ports", []) if port["name"] == monitor["podMetricsEndpoints"][0]["port"]] for pod in workers]
    assert len(ports) >= 2 and all(each == [9460] for each in ports), ports


def test_the_notes_job(cluster):
    """What the notes say to type, but for its image."""
    notes = helm(cluster, "get", "notes", "trainyard", "--namespace", NAMESPACE)
    job = yaml.safe_load(re.search(r"<<'JOB'\n(.*?)\nJOB", notes, re.S).group(1))
    job["spec"]["template"]["spec"]["containers"][0]["image"] = image.NAME
    cluster.apply(job)
    complete(cluster, "first", timeout=90)
    assert sorted(cluster.kubectl("logs", pod).strip() for pod in cluster.pods("first")) == ["rank 0 of 2", "rank 1 of 2"]


def test_helm_upgrade_disturbs_no_job(cluster):
    """To a chart with new fields in the CRD, and other values; all operators are replaced while a job runs."""
    before, job = set(operators(cluster, NAMESPACE)), waiting_job(cluster, "steady")
    helm(cluster, "upgrade", "trainyard", CHART, "--namespace", NAMESPACE, "--wait", "--timeout", "180s", "--set", "gangs.volcano=true,podAnnotations.changed=yes,resources.requests.cpu=60m")
    after = rolled_out(cluster, NAMESPACE)
    assert not before & set(after) and all(pod["metadata"]["annotations"]["changed"] == "yes" for pod in after.values())
    properties, columns = fields(cluster)
    assert "sharedMemory" in properties and columns == yaml.safe_load((CHART / "crd.yaml").read_text())["spec"]["versions"][0]["additionalPrinterColumns"]
    assert cluster.get("clusterrole", f"{NAME}-gangs")["rules"][0]["apiGroups"] == ["scheduling.volcano.sh"]
    wait_until(lambda: sorted(leaders(cluster, NAMESPACE)) == [0, 1], 30, "one leader")
    finish(cluster, "steady", job)
    restart(cluster, "after", "default")
    rights_are_used(cluster, f"system:serviceaccount:{NAMESPACE}:{NAME}", "clusterrole", NAMESPACE)


def test_going_back_keeps_the_definition(cluster, older):
    (back,), (upgrade,) = commands("Going back", "helm"), commands("Upgrading", "helm")
    typed(cluster, back.replace("charts/trainyard", str(older)))
    assert cluster.get("deployment", NAME, "--namespace", NAMESPACE)["metadata"]["labels"]["helm.sh/chart"] == "trainyard-0.0.9"
    assert "sharedMemory" in fields(cluster)[0], "a job's fields are not dropped"
    typed(cluster, f"{upgrade} --set crd.install=true --wait --timeout 180s")
    rolled_out(cluster, NAMESPACE)
    assert cluster.get("crd", "trainingjobs.trainyard.dev")["metadata"]["labels"]["helm.sh/chart"] == f"trainyard-{VERSION}"


def test_another_release_does_not_take_the_crd(cluster):
    said = helm(cluster, "install", "another", CHART, "--namespace", ALONE, "--set", "scope.namespaced=true,rbac.userRoles=false", "--dry-run=server", good=False)
    assert "trainingjobs.trainyard.dev" in said and "exists and cannot be imported" in said
    helm(cluster, "install", "another", CHART, "--namespace", ALONE, "--set", "scope.namespaced=true,rbac.userRoles=false,crd.install=false", "--dry-run=server")


def test_the_server_accepts_every_object(cluster):
    """With all that can be switched on, and the Prometheus operator's own CRDs."""
    for path in sorted((BIN / "monitoring").glob("*.yaml")):
        cluster.kubectl("create", "-f", path)
    values = {"monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "podMonitor", "prometheusRule")}, "dashboards": {"enabled": True},
              "gangs": {"native": True, "volcano": True, "coscheduling": True}, "networkPolicy": {"egress": {"enabled": True}, "metricsFrom": [{"podSelector": {}}], "workers": {"namespaces": ["default"]}}}
    (cluster.folder / "values.json").write_text(json.dumps(values))
    text = helm(cluster, "template", "trainyard", CHART, "--namespace", NAMESPACE, "--values", cluster.folder / "values.json")
    kinds = {each["kind"] for each in yaml.safe_load_all(text) if each}
    assert {"ServiceMonitor", "PodMonitor", "PrometheusRule"} <= kinds
    established = lambda: all(any(c["type"] == "Established" and c["status"] == "True" for c in crd["status"]["conditions"] or []) for crd in cluster.get("crd")["items"])  # noqa: E731
    wait_until(established, 30, "the CRDs")
    said = wait_until(lambda: cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text), 30, "the server to serve them")
    assert said.count("(server dry run)") == len([each for each in yaml.safe_load_all(text) if each])
    cluster.kubectl("delete", "-f", BIN / "monitoring")


def of_jobs(cluster):
    """What belongs to jobs, or is theirs: kind, namespace and name."""
    own = set()
    for kind in ("pods", "services"):
        own |= {f"{each['kind']}/{each['metadata'].get('namespace', '')}/{each['metadata']['name']}" for each in cluster.get(kind, "--all-namespaces")["items"]
                if "trainyard.dev/job-name" in each["metadata"].get("labels", {})}
    for kind in ("tj", "pvc"):
        own |= {f"{each['kind']}/{each['metadata']['namespace']}/{each['metadata']['name']}" for each in cluster.get(kind, "--all-namespaces")["items"]}
    return own


def test_helm_uninstall_leaves_the_crd_and_the_jobs(cluster):
    cluster.left = waiting_job(cluster, "left")
    helm(cluster, "uninstall", "trainyard", "--namespace", NAMESPACE, "--wait", "--timeout", "120s")
    wait_until(lambda: not operators(cluster, NAMESPACE), 60, "the operators to go")
    rest = lambda: everything(cluster) - cluster.before - of_jobs(cluster)  # noqa: E731
    with contextlib.suppress(AssertionError):
        wait_until(lambda: len(rest()) == 1, 60)
    assert rest() == {"CustomResourceDefinition//trainingjobs.trainyard.dev"}
    assert uids(cluster, "left") == cluster.left and status(cluster, "left")["phase"] == "Running"


def test_plain_manifests(cluster):
    """They go on with what the release left, are upgraded, and go, with the commands of docs/install.md."""
    for section in ("With plain manifests", "Upgrading"):
        apply, image_of_ours = commands(section, "kubectl")
        typed(cluster, apply)
        typed(cluster, image_of_ours)
        pods = rolled_out(cluster, NAMESPACE)
        assert {pod["spec"]["containers"][0]["image"] for pod in pods.values()} == {REGISTRYS}
    finish(cluster, "left", cluster.left)
    cluster.apply(*example("language-model"))
    complete(cluster, "language-model")
    (namespace,), (roles,) = commands("Uninstalling", "delete namespace"), commands("Uninstalling", "delete clusterrole")
    typed(cluster, namespace)
    typed(cluster, roles)
    wait_until(lambda: everything(cluster) - cluster.before - of_jobs(cluster) == {"CustomResourceDefinition//trainingjobs.trainyard.dev"}, 60, "all else to go")


def test_one_namespace(cluster):
    (install,), (uninstall,) = commands("For one namespace", "install-namespaced.yaml"), commands("Uninstalling", f"--namespace {ALONE}")
    typed(cluster, install)
    rolled_out(cluster, ALONE)
    cluster.apply(script("elsewhere", ["sleep", "1"]))
    restart(cluster, "after", ALONE)
    cluster.apply(*example("dark-room", ALONE))
    complete(cluster, "dark-room", ALONE)
    assert not status(cluster, "elsewhere"), "it is in another namespace, and nobody's"
    user = f"system:serviceaccount:{ALONE}:{NAME}"
    requests = [r for r in audited(cluster) if r["user"].get("username") == user and "objectRef" in r]
    assert requests and {r["objectRef"].get("namespace") for r in requests} == {ALONE}
    rights_are_used(cluster, user, "role", ALONE)
    typed(cluster, uninstall)
    rest = lambda: everything(cluster) - cluster.before - of_jobs(cluster)  # noqa: E731
    of_a_namespace = {f"Namespace//{ALONE}", f"ServiceAccount/{ALONE}/default", f"ConfigMap/{ALONE}/kube-root-ca.crt"}
    with contextlib.suppress(AssertionError):
        wait_until(lambda: len(rest()) == 4, 60)
    assert rest() == of_a_namespace | {"CustomResourceDefinition//trainingjobs.trainyard.dev"}
    assert status(cluster, "dark-room", ALONE)["phase"] == "Succeeded", "the jobs stay"


def test_who_has_one_namespace_and_no_more(cluster):
    """Cannot install by themselves, and can after what docs/install.md has an administrator type."""
    (install,) = commands("For one namespace", "rbac.create=false")
    kubeconfig(cluster.folder, "person", user="{token: admin, as: person}")
    cluster.kubectl("--namespace", ALONE, "create", "rolebinding", "person", "--clusterrole=edit", "--user=person")
    for missing in ("crd.install=false,", "rbac.create=false,"):
        assert "forbidden" in typed(cluster, install.replace(missing, "") + " --dry-run=server", "person", good=False)
    for command in commands("For one namespace", "kubectl apply -f manifests/crd.yaml") + commands("For one namespace", "| kubectl apply"):
        typed(cluster, command)
    typed(cluster, f"{install} --wait --timeout 180s", "person")
    rolled_out(cluster, ALONE)
    restart(cluster, "mine", ALONE)
    wait_until(lambda: cluster.kubectl("--as=person", "--namespace", ALONE, "auth", "can-i", "create", "trainingjobs.trainyard.dev"), 30, "the right to jobs")


# Of test_nodes.py's, and one more.
UNUSED_HERE = UNUSED | {("coordination.k8s.io", "leases", "create"): "the release makes the Lease; the right is for when someone deletes it"}


def rights_are_used(cluster, user, kind, namespace):
    """By the API server's log: no right was missing, and none is given that nothing needs."""
    requests = [r for r in audited(cluster)[cluster.typed :] if r["user"].get("username") == user and "objectRef" in r]
    refused = [(r["verb"], r["requestURI"]) for r in requests if r.get("responseStatus", {}).get("code") == 403]
    assert not refused, refused
    used = {(ref.get("apiGroup", ""), "/".join(filter(None, (ref["resource"], ref.get("subresource")))), r["verb"]) for r in requests for ref in [r["objectRef"]]}
    rules = [rule for role in ((kind, NAME), ("role", f"{NAME}-lease")) for rule in cluster.get(*role, "--namespace", namespace)["rules"]]
    given = {(group, resource, verb) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert used <= given and given - used <= set(UNUSED_HERE), (used - given, given - used)
    print(f"{user}: {len(requests)} requests; not used here: {sorted(given - used)}")


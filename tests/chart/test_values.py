"""What the chart gives for sets of values: each object is the API's, the pod is restricted, and what the values ask for is there."""

import shutil

import pytest
import yaml
from helm import CHART, NAMESPACE, conform, render, template
from pod_security import violations

OPERATOR = "trainyard-operator"


def defaults(o):
    assert o.names() == sorted([
        f"ServiceAccount/{OPERATOR}", "CustomResourceDefinition/trainingjobs.trainyard.dev", f"ClusterRole/{OPERATOR}", f"ClusterRoleBinding/{OPERATOR}", f"ClusterRole/{OPERATOR}-edit",
        f"ClusterRole/{OPERATOR}-view", f"Role/{OPERATOR}-lease", f"RoleBinding/{OPERATOR}-lease", f"Lease/{OPERATOR}", f"Service/{OPERATOR}", f"Deployment/{OPERATOR}",
        f"PodDisruptionBudget/{OPERATOR}", f"NetworkPolicy/{OPERATOR}"])
    assert o.container["args"] == ["run", "--listen=0.0.0.0:8080", "--leader-elect", f"--lease-name={OPERATOR}"]
    assert o.container["image"] == f"trainyard-operator:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"
    assert o.one("Deployment")["spec"]["replicas"] == 2
    assert o.container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"} and o.container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert o.container["ports"] == [{"name": "metrics", "containerPort": 8080}]
    assert o.pod["spec"]["topologySpreadConstraints"][0]["matchLabelKeys"] == ["pod-template-hash"], "an upgrade's pods are spread by themselves"
    assert o.pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == o.one("Deployment")["spec"]["selector"]["matchLabels"]
    assert o.pod["spec"]["securityContext"]["runAsUser"] == 65532 and o.container["securityContext"]["readOnlyRootFilesystem"] is True
    assert all(each["metadata"].get("namespace", NAMESPACE) == NAMESPACE for each in o)


def one_namespace(o, name=NAMESPACE):
    assert not o.of("ClusterRoleBinding") and [r["metadata"]["name"] for r in o.of("ClusterRole")] == [f"{OPERATOR}-edit", f"{OPERATOR}-view"]
    assert o.one("Role", OPERATOR)["metadata"]["namespace"] == o.one("RoleBinding", OPERATOR)["metadata"]["namespace"] == name
    assert o.one("RoleBinding", OPERATOR)["subjects"] == [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}]
    assert o.one("Lease")["metadata"]["namespace"] == o.one("Role", f"{OPERATOR}-lease")["metadata"]["namespace"] == NAMESPACE
    assert f"--namespace={name}" in o.container["args"]


def gang_rules(o, *groups, kind="ClusterRole"):
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in o.one(kind, f"{OPERATOR}-gangs")["rules"]] == [
        ([group], ["podgroups"], ["get", "list", "create", "delete"]) for group in groups]
    assert o.one(f"{kind}Binding", f"{OPERATOR}-gangs")["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": f"{OPERATOR}-gangs"}


def service_monitor(o):
    monitor, service = o.one("ServiceMonitor"), o.one("Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items() and monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    release = {"sourceLabels": ["__meta_kubernetes_service_label_app_kubernetes_io_instance"], "targetLabel": "trainyard_release"}
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "path": "/metrics", "interval": "10s", "relabelings": [release]}] and monitor["metadata"]["labels"]["release"] == "prometheus"
    assert service["spec"]["selector"].items() <= o.pod["metadata"]["labels"].items()


def pod_monitor(o, namespaces):
    spec = o.one("PodMonitor")["spec"]
    assert spec["namespaceSelector"] == namespaces and spec["selector"] == {"matchLabels": {"trainyard.dev/managed": "true"}}
    assert (spec["sampleLimit"], spec["labelLimit"], spec["bodySizeLimit"]) == (5000, 32, "4MB"), "what tenants serve is bounded"
    endpoint = spec["podMetricsEndpoints"][0]
    assert endpoint["port"] == "trainyard" and {r["targetLabel"]: r["sourceLabels"] for r in endpoint["relabelings"]} == {
        "trainyard_job": ["__meta_kubernetes_pod_label_trainyard_dev_job_name"], "attempt": ["__meta_kubernetes_pod_label_trainyard_dev_attempt"],
        "worker": ["__meta_kubernetes_pod_label_trainyard_dev_rank"]}


def placed(o):
    spec = o.pod["spec"]
    assert spec["priorityClassName"] == "system-cluster-critical" and spec["nodeSelector"] == {"pool": "system"} and spec["tolerations"][0]["key"] == "system"
    assert "nodeAffinity" in spec["affinity"] and spec["imagePullSecrets"] == [{"name": "registry"}] and spec["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"


def egress(o):
    policy = o.one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    server, workers, host, dns = policy["egress"]
    assert server == {"ports": [{"protocol": "TCP", "port": 8443}], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}
    assert workers["to"] == [{"podSelector": {"matchLabels": {"trainyard.dev/managed": "true"}}, "namespaceSelector": {}}] and workers["ports"][0]["port"] == 9460
    assert host["ports"] == [{"protocol": "TCP", "port": 10260, "endPort": 19999}] and dns["ports"][0]["port"] == 53
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": "metrics"}], "from": [{"namespaceSelector": {"matchLabels": {"team": "watch"}}}]}]


def worker_policies(o):
    made = {p["metadata"]["namespace"]: p["spec"] for p in o.of("NetworkPolicy") if p["metadata"]["name"] == f"{OPERATOR}-workers"}
    assert set(made) == {"a", "b"} and made["a"]["podSelector"]["matchLabels"] == {"trainyard.dev/managed": "true"}
    among, status = made["a"]["ingress"]
    assert "ports" not in among and among["from"][0]["podSelector"]["matchLabels"] == {"trainyard.dev/managed": "true"}
    release = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    assert status["ports"][0]["port"] == 9460 and [peer.get("namespaceSelector") for peer in status["from"]] == [release, release, {"matchLabels": {"a": "b"}}, None]
    assert status["from"][1]["podSelector"] == {"matchLabels": {"app": "prometheus"}} and status["from"][3] == {"ipBlock": {"cidr": "10.0.0.0/8"}}
    assert o.one("NetworkPolicy", OPERATOR)["spec"]["ingress"][0]["from"][0] == {"podSelector": {"matchLabels": {"app": "prometheus"}}}, "which is the same"


def rules_of(own):
    """The file's, but that the release's own operators are missed."""
    text = (CHART / "rules.yaml").read_text().replace("absent(trainyard_leader)", f"absent(trainyard_leader{{{own}}})")
    return has(("PrometheusRule", "spec", "groups"), yaml.safe_load(text)["groups"])


def has(path, value):
    """A check of one place: KIND, and keys."""
    kind, *keys = path

    def check(objects):
        found = objects.one(kind)
        for key in keys:
            found = found[key]
        assert found == value, found
    return check


def lacks(path):
    kind, *keys, last = path

    def check(objects):
        found = objects.one(kind)
        for key in keys:
            found = found[key]
        assert last not in found, found[last]
    return check


def without(*kinds):
    def check(objects):
        assert not set(kinds) & {each["kind"] for each in objects}, objects.names()
    return check


def every(*checks):
    def check(objects):
        for each in checks:
            each(objects)
    return check


def pod(*keys):
    return ("Deployment", "spec", "template", "spec", *keys)


CONTAINER = pod("containers", 0)
NODE_AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]}}}
ALL_MONITORS = {"serviceMonitor": {"enabled": True, "interval": "10s"}, "podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "labels": {"release": "prometheus"}}

SETS = {
    "defaults": ({}, defaults),
    "one_replica": ({"replicas": 1}, has(("Deployment", "spec", "replicas"), 1)),
    "no_election": ({"replicas": 1, "leaderElection": False}, every(
        has(("Deployment", "spec", "strategy"), {"type": "Recreate"}), has((*CONTAINER, "args"), ["run", "--listen=0.0.0.0:8080"]), without("Lease", "Role"))),
    "tag": ({"image": {"repository": "r.example:5000/team/op", "tag": "1.2", "pullPolicy": "Always"}}, has((*CONTAINER, "image"), "r.example:5000/team/op:1.2")),
    "digest": ({"image": {"tag": "1.2", "digest": "sha256:" + "0a" * 32}}, has((*CONTAINER, "image"), "trainyard-operator@sha256:" + "0a" * 32)),
    "namespaced": ({"scope": {"namespaced": True}}, one_namespace),
    "namespaced_elsewhere": ({"scope": {"namespaced": True, "namespace": "research"}}, lambda o: one_namespace(o, "research")),
    "no_crd": ({"crd": {"install": False}}, without("CustomResourceDefinition")),
    "no_rights": ({"rbac": {"create": False, "userRoles": False}}, without("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
    "account": ({"serviceAccount": {"create": False, "name": "mine"}}, every(
        has(pod("serviceAccountName"), "mine"), has(("ClusterRoleBinding", "subjects", 0, "name"), "mine"), has(("RoleBinding", "subjects", 0, "name"), "mine"), without("ServiceAccount"))),
    "account_annotated": ({"serviceAccount": {"annotations": {"iam": "role"}}}, has(("ServiceAccount", "metadata", "annotations"), {"iam": "role"})),
    "volcano": ({"gangs": {"volcano": True}}, lambda o: gang_rules(o, "scheduling.volcano.sh")),
    "every_gang_in_one_namespace": ({"gangs": {"native": True, "volcano": True, "coscheduling": True}, "scope": {"namespaced": True}}, lambda o: gang_rules(
        o, "scheduling.x-k8s.io", "scheduling.k8s.io", "scheduling.volcano.sh", kind="Role")),
    "placement": ({"priorityClassName": "system-cluster-critical", "nodeSelector": {"pool": "system"}, "tolerations": [{"key": "system", "operator": "Exists"}], "affinity": NODE_AFFINITY,
                   "imagePullSecrets": [{"name": "registry"}], "topologySpread": {"whenUnsatisfiable": "DoNotSchedule"}}, placed),
    "no_spread": ({"topologySpread": {"topologyKey": ""}}, lacks(pod("topologySpreadConstraints"))),
    "platform_user": ({"runAsUser": None}, has(pod("securityContext"), {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})),
    "proxy": ({"extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]}, has((*CONTAINER, "env"), [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}])),
    "resources": ({"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi", "cpu": "2"}}}, has((*CONTAINER, "resources"), {
        "requests": {"cpu": "1", "memory": "32Mi"}, "limits": {"memory": "1Gi", "cpu": "2"}})),
    "ipv6_and_port": ({"metrics": {"address": "[::]", "port": 9090, "service": {"annotations": {"a": "b"}}}}, every(
        has((*CONTAINER, "args", 1), "--listen=[::]:9090"), has(("Service", "spec", "ports"), [{"name": "metrics", "port": 9090, "targetPort": "metrics"}]),
        has(("Service", "metadata", "annotations"), {"a": "b"}))),
    "no_service": ({"metrics": {"service": {"enabled": False}}}, without("Service")),
    "monitoring": ({"monitoring": ALL_MONITORS}, every(
        service_monitor, lambda o: pod_monitor(o, {"any": True}), rules_of(f'namespace="{NAMESPACE}",trainyard_release="trainyard"'))),
    "rules_alone": ({"monitoring": {"prometheusRule": {"enabled": True}}}, rules_of(f'namespace="{NAMESPACE}"')),
    "monitoring_of_one_namespace": ({"monitoring": ALL_MONITORS, "scope": {"namespaced": True, "namespace": "research"}}, lambda o: pod_monitor(o, {"matchNames": ["research"]})),
    "no_policies": ({"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}}, without("NetworkPolicy", "PodDisruptionBudget")),
    "budget": ({"replicas": 4, "podDisruptionBudget": {"maxUnavailable": "50%"}}, has(("PodDisruptionBudget", "spec", "maxUnavailable"), "50%")),
    "egress": ({"networkPolicy": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "watch"}}}],
                                  "egress": {"enabled": True, "apiServer": {"ports": [8443], "cidrs": ["10.0.0.1/32"]}, "extra": [{"ports": [{"protocol": "UDP", "port": 53}]}]}}}, egress),
    "egress_in_one_namespace": ({"scope": {"namespaced": True}, "networkPolicy": {"egress": {"enabled": True}}}, has(("NetworkPolicy", "spec", "egress", 1, "to"), [
        {"podSelector": {"matchLabels": {"trainyard.dev/managed": "true"}}, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}}])),
    "worker_policies": ({"networkPolicy": {"metricsFrom": [
        {"podSelector": {"matchLabels": {"app": "prometheus"}}}, {"podSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}], "workers": {"namespaces": ["a", "b"]}}}, worker_policies),
    "names": ({"fullnameOverride": "jobs", "commonLabels": {"team": "ml"}, "podLabels": {"x": "y"}, "podAnnotations": {"a": "b"}}, every(
        has(("Deployment", "metadata", "name"), "jobs"), has((*CONTAINER, "args", -1), "--lease-name=jobs"), has(("Lease", "metadata", "name"), "jobs"),
        lambda o: [has((kind, "metadata", "labels", "team"), "ml")(o) for kind in {each["kind"] for each in o} - {"ClusterRole"}],
        has(("Deployment", "spec", "template", "metadata", "labels", "x"), "y"), has(("Deployment", "spec", "template", "metadata", "annotations", "a"), "b"))),
    "short_name": ({"nameOverride": "ty"}, has(("Deployment", "metadata", "name"), "trainyard-ty-operator")),
    "names_of_digits": ({"fullnameOverride": "e3", "nameOverride": "17", "scope": {"namespaced": True, "namespace": "1234"}, "serviceAccount": {"name": "007"}, "priorityClassName": "0",
                         "monitoring": ALL_MONITORS, "networkPolicy": {"egress": {"enabled": True}, "workers": {"namespaces": ["1234"]}}}, every(
        has(("Deployment", "metadata", "labels", "app.kubernetes.io/name"), "17"), has(pod("serviceAccountName"), "007"), lambda o: [(e["metadata"]["namespace"], e["metadata"]["name"]) for e in o.of("Role")] == [("1234", "e3"), (NAMESPACE, "e3-lease")] or pytest.fail(str(o.of("Role"))))),
    "subchart": ({"global": {"anything": 1}}, defaults),
}


@pytest.mark.parametrize("name", SETS)
def test_a_set_of_values(name):
    values, check = SETS[name]
    objects = render(values)
    check(objects)
    assert not violations(objects.pod["spec"])
    labels = [each["metadata"]["labels"] for each in objects]
    assert all(each["app.kubernetes.io/instance"] == "trainyard" for each in labels)
    assert len(set(objects.names())) == len(objects) or name == "worker_policies", "a name stands once"


def test_every_object_is_one_of_the_api():
    """In one go: most of the time is that of reading the schemas."""
    texts = [template(values) for values, _ in SETS.values()]
    summary = conform("\n---\n".join(texts))
    assert "Invalid: 0, Errors: 0" in summary, summary


def test_a_field_that_the_api_does_not_know_is_noticed():
    """The control of the one above."""
    text = template({}).replace("automountServiceAccountToken: true", "automountServiceAccountTokens: true")
    with pytest.raises(AssertionError, match="automountServiceAccountTokens"):
        conform(text)


def test_a_release_and_a_namespace_of_digits():
    """Which YAML would read as numbers."""
    conform(template({"monitoring": ALL_MONITORS, "networkPolicy": {"egress": {"enabled": True}}, "fullnameOverride": "x"}, release="2024", namespace="1234"))


@pytest.mark.parametrize("release, name", [("trainyard", "trainyard-operator"), ("my-trainyard", "my-trainyard-operator"), ("ml", "ml-trainyard-operator"), ("x" * 53, None), ("my.trainyard", "my-trainyard-operator"), ("a" * 40 + ".bcdefghij", "a" * 40 + "-operator")])
def test_the_names_of_a_release(release, name):
    objects = render(release=release)
    made = objects.one("Deployment")["metadata"]["name"]
    assert (name is None and len(made) <= 50) or made == name
    assert all(len(each["metadata"]["name"]) <= 63 for each in objects)


@pytest.mark.parametrize("image, warned", [({}, True), ({"repository": "operator"}, True), ({"repository": "r.example/operator"}, False)])
def test_the_notes_warn_of_an_image_that_no_registry_has(tmp_path, image, warned):
    """Rendered as the content of an object, since `helm template` leaves the notes out."""
    chart = tmp_path / "trainyard"
    shutil.copytree(CHART, chart)
    (chart / "templates/_notes.tpl").write_text('{{ define "notes" }}' + (chart / "templates/NOTES.txt").read_text() + "{{ end }}")
    (chart / "templates/notes.yaml").write_text('kind: Notes\nmetadata: {name: notes}\ntext: {{ include "notes" . | toJson }}\n')
    notes = render({"image": image}, chart=chart).one("Notes")["text"]
    assert "rollout status deployment/trainyard-operator" in notes
    assert ("load it into every node" in notes) == warned, notes


def test_dashboards_and_rules_are_the_files(tmp_path):
    """Of a copy with a dashboard of its own: what Prometheus' and Grafana's templates hold passes as it is."""
    chart = tmp_path / "trainyard"
    shutil.copytree(CHART, chart)
    board = '{"title": "{{job}} of \\"all\\"", "panels": []}\n'
    (chart / "dashboards").mkdir(exist_ok=True)
    (chart / "dashboards/one_job.json").write_text(board)
    rules = {"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "up == 0", "annotations": {"summary": "{{ $labels.pod }} is `down`"}}]}]}
    (chart / "rules.yaml").write_text(yaml.safe_dump(rules))
    values = {"monitoring": {"prometheusRule": {"enabled": True}}, "dashboards": {"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "ML"}}}
    text = template(values, chart=chart)
    objects = render(values, chart=chart)
    assert objects.one("PrometheusRule")["spec"] == rules
    made = objects.one("ConfigMap", "trainyard-operator-dashboard-one-job")
    assert made["data"] == {"one_job.json": board} and made["metadata"]["namespace"] == "grafana"
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1" and made["metadata"]["annotations"] == {"grafana_folder": "ML"}
    conform(text)

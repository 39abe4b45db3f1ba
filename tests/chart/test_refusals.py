"""Values that cannot be: Helm refuses them, and names the value."""

import pytest
from helm import template

SCHEMA = {  # as `--set` has them, and where Helm says that it is wrong
    "replica=3": "replica",
    "replicas=0": "replicas",
    "replicas=many": "replicas",
    "image.name=x": "image",
    "image.digest=sha256:12": "image/digest",
    "image.pullPolicy=Sometimes": "image/pullPolicy",
    "imagePullSecrets[0]=registry": "imagePullSecrets/0",
    "fullnameOverride=A_B": "fullnameOverride",
    "commonLabels.team=3": "commonLabels/team",
    "scope.namespaces=a": "scope",
    "scope.namespace=A": "scope/namespace",
    "leaderElection=yes-please": "leaderElection",
    "crd.keep=true": "crd",
    "rbac.create=maybe": "rbac/create",
    "gangs.kueue=true": "gangs",
    "resources.memory=1Gi": "resources",
    "runAsUser=0": "runAsUser",
    "metrics.port=null": "metrics",
    "image.repository=null": "image",
    "scope=null": "",
    "networkPolicy.egress.apiServer.ports=null": "networkPolicy/egress/apiServer",
    "image.repository=reg/x:1.0": "image/repository",
    "image.repository=a//b": "image/repository",
    "image.tag=-x": "image/tag",
    "priorityClassName=a\nb": "priorityClassName",
    "topologySpread.topologyKey=a\nb": "topologySpread/topologyKey",
    "metrics.address=999.9.9.9": "metrics/address",
    "networkPolicy.egress.apiServer.cidrs[0]=10.0.0.0/33": "networkPolicy/egress/apiServer/cidrs/0",
    "networkPolicy.workers.namespaces={a,a}": "networkPolicy/workers/namespaces",
    "monitoring.podMonitor.interval=1h2h": "monitoring/podMonitor/interval",
    "terminationGracePeriodSeconds=0": "terminationGracePeriodSeconds",
    "tolerations[0].effect=Never": "tolerations/0/effect",
    "affinity.node=x": "affinity",
    "topologySpread.whenUnsatisfiable=Never": "topologySpread/whenUnsatisfiable",
    "extraEnv[0].value=x": "extraEnv/0",
    "podDisruptionBudget.maxUnavailable=0": "podDisruptionBudget/maxUnavailable",
    "podDisruptionBudget.maxUnavailable=0%": "podDisruptionBudget/maxUnavailable",
    "metrics.port=80": "metrics/port",
    "metrics.address=localhost": "metrics/address",
    "monitoring.podMonitor.interval=soon": "monitoring/podMonitor/interval",
    "monitoring.podMonitor.sampleLimit=0": "monitoring/podMonitor/sampleLimit",
    "monitoring.podMonitor.bodySizeLimit=big": "monitoring/podMonitor/bodySizeLimit",
    "monitoring.serviceMonitor.on=true": "monitoring/serviceMonitor",
    "dashboards.labels.x=1": "dashboards/labels/x",
    "networkPolicy.metricsFrom[0].pods=x": "networkPolicy/metricsFrom/0",
    "networkPolicy.egress.apiServer.ports[0]=0": "networkPolicy/egress/apiServer/ports/0",
    "networkPolicy.workers.namespaces[0]=*": "networkPolicy/workers/namespaces/0",
}


@pytest.mark.parametrize("setting", SCHEMA)
def test_the_schema_refuses(setting):
    said = template({}, "--set", setting, good=False)
    key = setting.split("=")[0].rsplit(".", 1)[-1]
    assert f"at '/{SCHEMA[setting]}'" in said or (f"'{key}'" in said and SCHEMA[setting].split("/")[0] in said), said


# Each allowed by itself.
IMPOSSIBLE = {
    "leaderElection=false": ["replicas: 2", "leaderElection: false", "allowed: 1"],
    "scope.namespace=research": ["scope.namespace: research", "scope.namespaced: true"],
    "serviceAccount.create=false": ["serviceAccount.name: needed"],
    "monitoring.serviceMonitor.enabled=true,metrics.service.enabled=false": ["monitoring.serviceMonitor.enabled", "metrics.service.enabled"],
    "networkPolicy.enabled=false,networkPolicy.egress.enabled=true": ["networkPolicy.egress.enabled: true", "networkPolicy.enabled: false"],
    "scope.namespaced=true,networkPolicy.workers.namespaces={other}": ["networkPolicy.workers.namespaces: other", "allowed: trainyard-system"],
    "commonLabels.app\\.kubernetes\\.io/name=x": ["commonLabels: app.kubernetes.io/name", "nameOverride"],
    "podLabels.app\\.kubernetes\\.io/component=x": ["podLabels: app.kubernetes.io/component"],
    "fullnameOverride=1e3": ["fullnameOverride: needed for 1e3", "begins with a letter"],
    "metrics.address=127.0.0.1": ["metrics.address: 127.0.0.1", "probes", "0.0.0.0"],
    "metrics.address=[::1]": ["metrics.address: [::1]", "probes"],
}


@pytest.mark.parametrize("settings", IMPOSSIBLE)
def test_what_cannot_be_had_together(settings):
    said = template({}, "--set", settings, good=False)
    assert all(word in said for word in IMPOSSIBLE[settings]), said

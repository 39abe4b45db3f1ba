"""The operator as a deployment, and jobs that run: containers on two nodes."""

import base64
import collections
import datetime
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from servers import ROOT, SHIPPED_OPERATOR, wait_until

sys.path.insert(0, str(ROOT / "tests/integration"))

import harness
import image
from nodes import Cluster, processes_of, run

TRAINER = os.environ.get("TRAINYARD_BIN", "build/release/bin/trainyard")
STEPS = 800
CONFIG = harness.merged(harness.SMALL, task={"eval_windows": 16}, train={"steps": STEPS, "eval_every": 250, "log_every": 50, "record": "/checkpoints/record.jsonl"}, model={"dropout": 0.1},
                        data={"path": "/data/set"}, checkpoint={"every": 20})


@pytest.fixture(scope="module")
def cluster():
    folder = pathlib.Path(os.environ["CLUSTER_STATE"])
    made = Cluster(folder, [pathlib.Path(TRAINER).resolve(), SHIPPED_OPERATOR])
    (folder / "shared").mkdir()
    made.apply(OPERATORS)
    wait_until(lambda: made.kubectl("rollout", "status", "deployment/trainyard-operator", "--timeout=50s"), 180, "the operators")
    made.first_tokens = {process: token_of(process) for process in operators(made)}
    yield made


# What a pod gets by itself, but for ten minutes, the shortest that Kubernetes makes them.
TOKEN = {"name": "token", "projected": {"sources": [
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
]}}
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
OPERATOR_RUNS = "^trainyard-operator run"
OPERATORS = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "trainyard-operator"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "trainyard-operator"}},
        "template": {
            "metadata": {"labels": {"app": "trainyard-operator"}},
            "spec": {
                "serviceAccountName": "trainyard-operator",
                "automountServiceAccountToken": False,
                "volumes": [TOKEN],
                "containers": [{
                    "name": "operator",
                    "image": image.NAME,
                    "command": ["trainyard-operator", "run", "--leader-elect", "--listen", "0.0.0.0:8080"],
                    "volumeMounts": [{"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True}],
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1},
                }],
            },
        },
    },
}


def job(cluster, name, config=CONFIG, **spec):
    """As manifests/examples has them, but small; a worker on each node, and a folder of this machine that both have."""
    data = {"name": "data", "mountPath": "/data"}
    return {
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "workers": 2,
            "config": config,
            "checkpoint": {"volume": {"hostPath": {"path": str(cluster.folder / "shared" / name), "type": "DirectoryOrCreate"}}, "graceSeconds": 60},
            "restart": {"backoff": {"initialSeconds": 0, "maxSeconds": 0}},
            "template": {"spec": {
                "topologySpreadConstraints": [spread(name)],
                "initContainers": [{"name": "data", "image": image.NAME, "volumeMounts": [data],
                                    "command": ["trainyard", "synth", "algorithm_distillation", "--source", "ad_epsilon", "--size", "tiny", "--out", "/data/set"]}],
                "containers": [{"name": "trainer", "image": image.NAME, "command": ["trainyard", "launch"], "volumeMounts": [data], "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}],
                "volumes": [{"name": "data", "emptyDir": {}}],
            }},
            **spec,
        },
    }


def spread(name):
    return {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"trainyard.dev/job-name": name}},
            "matchLabelKeys": ["trainyard.dev/attempt"]}


def status(cluster, name):
    return cluster.get("tj", name).get("status", {})


def explain(cluster, name):
    """What a person would look at."""
    lines = [str(status(cluster, name))]
    for pod, object in cluster.pods(name).items():
        lines.append(f"{pod}: {object['status']}")
        try:
            lines.append(cluster.kubectl("logs", pod, "--all-containers", "--tail=20"))
        except subprocess.CalledProcessError as error:
            lines.append(error.stderr)
    return "\n".join(lines)


def wait_for_job(cluster, name, condition, what, timeout=180):
    try:
        return wait_until(lambda: condition(status(cluster, name)), timeout, f"{what} of {name}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{explain(cluster, name)}") from None


def wait_for_phase(cluster, name, phase, timeout=180):
    return wait_for_job(cluster, name, lambda s: s.get("phase") == phase and s, f"phase {phase}", timeout)


def wait_for_checkpoint(cluster, name, step):
    """Of the status, which is what a restart is judged by."""
    return wait_for_job(cluster, name, lambda s: s.get("checkpoint", {}).get("step", 0) >= step and s["checkpoint"]["step"], f"a checkpoint at step {step} or later")


def records(cluster, name):
    return harness.records(cluster.folder / "shared" / name / "record.jsonl")


@pytest.fixture(scope="module")
def uninterrupted(cluster):
    """The status and record of a job that nobody disturbed."""
    cluster.apply(job(cluster, "calm"))
    nodes = wait_until(lambda: {p["spec"].get("nodeName") for p in cluster.pods("calm").values()} == {"node0", "node1"}, 60, "a pod on each node")
    assert nodes
    return wait_for_phase(cluster, "calm", "Succeeded"), records(cluster, "calm")


def test_a_job_trains_on_two_nodes(cluster, uninterrupted):
    status, lines = uninterrupted
    assert status["attempt"] == 1 and status["restarts"]["total"] == 0 and status["world"]["size"] == 2
    assert status["progress"]["step"] == STEPS and status["checkpoint"]["step"] == STEPS and len(lines) == STEPS
    assert (cluster.folder / f"shared/calm/step-{STEPS:08}").is_dir()


def pids(cluster, pod, command):
    """Of the pod's processes whose command line has COMMAND."""
    uid = cluster.get("pod", pod)["metadata"]["uid"]
    return [pid for pid, line in processes_of(uid).items() if re.search(command, line)]


def kill_rank(cluster, pod):
    """SIGKILL to a rank, as the kernel does when memory is short; its launcher lives."""
    victims = wait_until(lambda: pids(cluster, pod, r"^trainyard: rank \d+ of "), 60, f"a rank in {pod}")
    os.kill(victims[0], signal.SIGKILL)


def patch(cluster, name, spec):
    cluster.kubectl("patch", "tj", name, "--type", "merge", "-p", json.dumps({"spec": spec}))


def start_and_train(cluster, name, step, **spec):
    """A job with a checkpoint of STEP or later."""
    cluster.apply(job(cluster, name, **spec))
    try:
        wait_until((cluster.folder / f"shared/{name}/step-{step:08}").is_dir, 120, f"the checkpoint of step {step} of {name}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{explain(cluster, name)}") from None


def went_on(cluster, name, attempt, step):
    """Whether the attempt began at a checkpoint of STEP or later, by its own account."""
    log = cluster.kubectl("logs", f"{name}-{attempt}-0", "-c", "trainer")
    found = re.search(r"resuming from .*step-(\d+)", log)
    assert found and int(found.group(1)) >= step, log


def test_suspend_and_resume(cluster, uninterrupted):
    start_and_train(cluster, "pause", 40)
    uids = [pod["metadata"]["uid"] for pod in cluster.pods("pause").values()]
    patch(cluster, "pause", {"suspend": True})
    wait_for_phase(cluster, "pause", "Suspended")
    assert len(uids) == 2 and not any(ranks(uid) for uid in uids)
    wait_until(lambda: not cluster.pods("pause"), 60, "the kubelets to take away pods that have ended")
    newest = max(int(folder.name[5:]) for folder in (cluster.folder / "shared/pause").glob("step-*"))
    assert 40 <= newest < STEPS
    patch(cluster, "pause", {"suspend": False})
    done = wait_for_phase(cluster, "pause", "Succeeded")
    went_on(cluster, "pause", done["attempt"], newest)
    assert done["attempt"] == 2 and done["restarts"]["total"] == 0
    assert records(cluster, "pause") == uninterrupted[1]


def test_a_killed_rank_restarts_the_job(cluster, uninterrupted):
    start_and_train(cluster, "killed", 40)
    kill_rank(cluster, "killed-1-1")
    done = wait_for_phase(cluster, "killed", "Succeeded")
    assert done["attempt"] == 2 and done["restarts"]["total"] == 1 and done["restarts"]["charged"] == 0, "there was a newer checkpoint: free"
    assert done["lastFailure"]["rank"] == 1 and done["lastFailure"]["signal"] == 9 and done["lastFailure"]["node"] in ("node0", "node1")
    went_on(cluster, "killed", 2, 40)
    assert records(cluster, "killed") == uninterrupted[1]


def lease(cluster):
    return cluster.get("lease", "trainyard-operator")["spec"]


def test_another_operator_takes_over(cluster, uninterrupted):
    start_and_train(cluster, "orphan", 40)
    old = lease(cluster)["holderIdentity"]
    victims = pids(cluster, old.split("_")[0], OPERATOR_RUNS)
    killed = datetime.datetime.now(datetime.timezone.utc)
    os.kill(victims[0], signal.SIGKILL)
    kill_rank(cluster, "orphan-1-0")  # which nobody is there to see
    new = wait_until(lambda: (spec := lease(cluster))["holderIdentity"] != old and spec, 60, "another holder of the lease")
    seconds = (datetime.datetime.fromisoformat(new["acquireTime"]) - killed).total_seconds()
    print(f"the lease moved from {old} to {new['holderIdentity']} in {seconds:.1f} s")
    assert seconds < 20, "15 s after somebody saw it renewed for the last time, and at most 2.4 s from one look at it to the next, before and after"
    done = wait_for_phase(cluster, "orphan", "Succeeded")
    assert done["attempt"] == 2 and done["restarts"]["total"] == 1 and done["lastFailure"]["rank"] == 0
    went_on(cluster, "orphan", 2, 40)
    assert records(cluster, "orphan") == uninterrupted[1]


def test_a_job_does_not_notice_that_the_api_server_starts_again(cluster, uninterrupted):
    start_and_train(cluster, "away", 40)
    cluster.restart_api_server()
    done = wait_for_phase(cluster, "away", "Succeeded")
    assert done["attempt"] == 1 and done["restarts"]["total"] == 0
    assert records(cluster, "away") == uninterrupted[1]


def script(name, command, workers=2, containers=(), **template):
    """A job of someone else's program."""
    return {
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "workers": workers,
            "restart": {"backoff": {"initialSeconds": 0, "maxSeconds": 0}},
            "template": {"spec": {"containers": [{"name": "trainer", "image": image.NAME, "command": command}, *containers], **template}},
        },
    }


PROXY = {"name": "proxy", "image": image.NAME, "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}


def test_a_sidecar_does_not_keep_a_job_from_its_end(cluster):
    """A native one, as service meshes have them, and one of the old kind, which never ends by itself."""
    cluster.apply(script("mesh", ["sleep", "1"], initContainers=[{**PROXY, "restartPolicy": "Always"}]))
    cluster.apply(script("sidecar", ["sleep", "1"], containers=[PROXY]))
    for name in ("mesh", "sidecar"):
        done = wait_for_phase(cluster, name, "Succeeded")
        assert done["attempt"] == 1 and done["workers"]["succeeded"] == 2
        wait_until(lambda: not any(p["status"]["phase"] == "Running" for p in cluster.pods(name).values()), 60, f"the sidecars of {name} to go")


def test_a_script_that_ends_with_0_when_it_is_told_to_has_not_succeeded(cluster):
    saves = ["sh", "-c", "[ $TRAINYARD_ATTEMPT = 3 ] && exit 0; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    cluster.apply(script("saves", saves))
    wait_for_phase(cluster, "saves", "Running")
    patch(cluster, "saves", {"suspend": True})
    wait_for_phase(cluster, "saves", "Suspended")
    patch(cluster, "saves", {"suspend": False})
    wait_for_job(cluster, "saves", lambda s: s["phase"] == "Running" and s["attempt"] == 2, "attempt 2")
    cluster.kubectl("delete", "pod", "saves-2-1", "--wait=false")
    done = wait_for_phase(cluster, "saves", "Succeeded")
    assert done["attempt"] == 3 and done["restarts"]["total"] == 1 and done["restarts"]["charged"] == 0
    # The kubelet takes it away once it has ended: who looks then finds nothing.
    assert done["lastFailure"]["reason"] in ("PodDeleted", "PodVanished") and done["lastFailure"]["rank"] == 1


def test_a_lost_node(cluster):
    """Its cable is cut: what ran there runs on, and commits, until the next attempt has taken the fence."""
    endless = harness.merged(CONFIG, train={"steps": 1000 * STEPS})
    del endless["train"]["record"]  # which both attempts would write
    lonely = job(cluster, "lost", config=endless, workers=1, deadlines={"terminateSeconds": 5})
    lonely["spec"]["checkpoint"]["graceSeconds"] = 5
    cluster.apply(lonely)
    wait_for_checkpoint(cluster, "lost", 40)
    node, uid = cluster.node_of("lost-1-0"), cluster.get("pod", "lost-1-0")["metadata"]["uid"]
    assert ranks(uid), "the rank that is to end by itself"
    run("ip", "link", "set", f"cable{node.index}", "down")
    try:
        wait_for_job(cluster, "lost", lambda s: s["attempt"] == 2 and s["phase"] == "Running", "attempt 2", 300)
        wait_until(lambda: not ranks(uid), 120, "the old rank to end")
        wait_for_checkpoint(cluster, "lost", status(cluster, "lost")["restarts"]["durableStep"] + 20)
        now = status(cluster, "lost")
        assert cluster.node_of("lost-2-0") != node and set(cluster.pods("lost")) == {"lost-2-0"}
        assert now["attempt"] == 2 and now["restarts"]["total"] == 1 and now["restarts"]["charged"] == 0, "a disruption is free"
        assert now["lastFailure"]["reason"] == "DisruptionTarget" and now["lastFailure"]["node"] == node.name, now
        assert not any(c["type"] == "Unfenced" and c["status"] == "True" for c in now["conditions"]), "there is a fence"
        assert "ForceDeleted" in cluster.kubectl("get", "events", "--field-selector", "involvedObject.name=lost")
        words = "".join(log.read_text() for log in node.folder.glob(f"logs/default_lost-1-0_{uid}/trainer/*.log"))
        assert "attempt 2 owns the checkpoints now" in words, words[-2000:]
    finally:
        run("ip", "link", "set", f"cable{node.index}", "up")
        wait_until(node.ready, 120, f"{node.name} to be Ready again")
    cluster.kubectl("delete", "tj", "lost")
    wait_until(lambda: not processes_of(uid), 120, "the kubelet to end what the API has forgotten")
    wait_until(lambda: cluster.kubectl("rollout", "status", "deployment/trainyard-operator", "--timeout=50s"), 180, "the operators")


def ranks(uid):
    """Those of a pod that the API may not know any more."""
    return [pid for pid, line in processes_of(uid).items() if re.search(r"^trainyard: rank \d+ of ", line)]


def with_python(job):
    """The job with this machine's Python and PyTorch as its image has them, mounted where they are."""
    spec = job["spec"]["template"]["spec"]
    folders = {"python": sys.prefix, "stand-ins": os.environ["CLUSTER_STUBS"]}
    spec["volumes"] = [{"name": name, "hostPath": {"path": folder, "type": "Directory"}} for name, folder in folders.items()]
    spec["containers"][0] |= {
        "image": image.NAME,
        "env": [{"name": "PATH", "value": f"{sys.prefix}/bin:/usr/bin:/bin"}, {"name": "LD_LIBRARY_PATH", "value": folders["stand-ins"]}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": name, "mountPath": folder, "readOnly": True} for name, folder in folders.items()],
    }
    job["metadata"]["namespace"] = "default"
    return job


@pytest.mark.parametrize("name, lines", [("plain", {"rank 0 of 2: sum 3", "rank 1 of 2: sum 3"}), ("torchrun", {f"rank {rank} of 4: sum 10" for rank in range(4)})])
def test_a_program_of_the_page(cluster, name, lines):
    """docs/your-own-program.md's jobs: plain PyTorch, and a bare torchrun with two processes a pod."""
    page = (ROOT / "docs/your-own-program.md").read_text()
    text = next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if f"name: {name}}}" in block)
    cluster.apply(with_python(json.loads(cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", stdin=text))))
    assert wait_for_phase(cluster, name, "Succeeded")["attempt"] == 1
    said = "".join(cluster.kubectl("logs", pod) for pod in cluster.pods(name))
    # Not as lines: of two processes with one output, one may write between the other's text and its newline.
    assert lines == set(re.findall(r"rank \d+ of \d+: sum \d+", said)), said


# Seconds since its process started, as the kernel counts them.
MEET = """
import os
import torch.distributed
def age():
    ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    return float(open("/proc/uptime").read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
before = age()
torch.distributed.init_process_group("gloo")
print(f"MET {torch.distributed.get_rank()} {before:.2f} {age():.2f}")
torch.distributed.barrier()
"""


def test_workers_meet_by_the_services_address(cluster):
    """The first connection of an attempt, through a service that is as old as its pods."""
    meeting = with_python(script("meeting", ["python3", "-c", MEET]))
    meeting["spec"]["template"]["spec"]["topologySpreadConstraints"] = [spread("meeting")]
    cluster.apply(meeting)
    assert wait_for_phase(cluster, "meeting", "Succeeded")["attempt"] == 1
    for pod, object in cluster.pods("meeting").items():
        rank, before, after = re.search(r"MET (\d) (\S+) (\S+)", cluster.kubectl("logs", pod)).groups()
        print(f"rank {rank} on {object['spec']['nodeName']}: PyTorch is there {before} s after the process began, and all have met after {after} s")


def token_of(process):
    return pathlib.Path(f"/proc/{process}/root{TOKEN_FOLDER}/token").read_text()


def claims_of(token):
    payload = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


def answer_to(cluster, token):
    """The code of the API server's answer to somebody who has the token."""
    request = urllib.request.Request("https://127.0.0.1:6443/api", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10, context=ssl.create_default_context(cafile=str(cluster.folder / "ca.crt"))) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def audited(cluster):
    text = cluster.audit_log.read_text()
    return [json.loads(line) for line in text[:text.rindex("\n")].splitlines()]


def operators(cluster):
    """The process of each, and its pod."""
    pods = cluster.get("pods", "-l", "app=trainyard-operator", "--field-selector", "status.phase=Running")["items"]
    return {process: pod for pod in pods for process in pids(cluster, pod["metadata"]["name"], OPERATOR_RUNS)}


def leader(cluster):
    return lease(cluster)["holderIdentity"].split("_")[0]


def last_words(cluster):
    """Of the operators that ended."""
    command = ["kubectl", "--kubeconfig", cluster.kubeconfig, "logs", "-l", "app=trainyard-operator", "--previous", "--prefix", "--tail=10"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.skipif(not harness.THOROUGH, reason="waits up to eleven minutes for a token's end; TRAINYARD_THOROUGH=1 runs it")
def test_the_operator_outlives_its_token(cluster):
    """Which ends after ten minutes, and is replaced in its file before: the one that it started with is good for nothing at the end."""
    first = {process: cluster.first_tokens.get(process) or token_of(process) for process in operators(cluster)}  # one that was killed began later
    for token in first.values():
        assert claims_of(token)["exp"] - claims_of(token)["iat"] == 600 and answer_to(cluster, token) == 200
    time.sleep(max(0, max(claims_of(token)["exp"] for token in first.values()) - time.time()))
    wait_until(lambda: {answer_to(cluster, token) for token in first.values()} == {401}, 180, "the first tokens to be refused")  # it grants a minute more, for clocks
    end = datetime.datetime.now(datetime.timezone.utc)
    cluster.apply(script("rotated", ["sleep", "1"]))
    wait_for_phase(cluster, "rotated", "Succeeded")
    # A leader that cannot renew its lease ends, which a busy machine may do to it; then the other leads, and has lived as long.
    alive = {process: pod for process, pod in operators(cluster).items() if process in first}
    assert leader(cluster) in [pod["metadata"]["name"] for pod in alive.values()], last_words(cluster)

    requests = audited(cluster)
    received = lambda request: datetime.datetime.fromisoformat(request["requestReceivedTimestamp"])  # noqa: E731
    credential = lambda request: request["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id", [""])[0]  # noqa: E731
    for process, pod in alive.items():
        # Of a request whose token is refused, the address alone says who sent it.
        mine = [r for r in requests if pod["status"]["podIP"] in r.get("sourceIPs", [])]
        with_first = [received(r) for r in mine if credential(r) == f"JTI={claims_of(first[process])['jti']}"]
        after = [r for r in mine if received(r) > end]
        refused = [r for r in mine if r.get("responseStatus", {}).get("code") == 401]
        left = claims_of(first[process])["exp"] - max(with_first).timestamp()
        print(f"{pod['metadata']['name']}: {len(with_first)} requests with its first token, the last one {left:.0f} s before its end; {len(after)} after it, {len(refused)} refused")
        assert token_of(process) != first[process] and after and left > 0
        assert not refused, "the file has another two minutes before a token's end, and is read again each minute"


# Rights that no job here makes the operator use, and what would.
UNUSED = {
    ("trainyard.dev", "trainingjobs", "list"): "an API server that does not stream what there is with a watch",
    ("trainyard.dev", "trainingjobs", "delete"): "ttlSecondsAfterFinished",
    ("trainyard.dev", "trainingjobs/finalizers", "update"): "never sent: who creates pods that block their owner's deletion has to have it (OwnerReferencesPermissionEnforcement)",
    ("", "pods", "get"): "a name that is taken",
    ("", "pods", "list"): "an API server that does not stream what there is with a watch, and what an old cache may not show",
    ("", "pods", "patch"): "a pod that lost its label (test_scenarios.py)",
    ("events.k8s.io", "events", "patch"): "an event that comes again",
}


def test_the_audit_log(cluster):
    """Of all that was above: which rights the operator used, that none was missing, and that no pod was made twice."""
    name = "system:serviceaccount:default:trainyard-operator"
    requests = [r for r in audited(cluster) if r["user"].get("username") == name and "objectRef" in r]
    code = lambda request: request.get("responseStatus", {}).get("code")
    # A server that has just started says no until it has read the roles; then it says that it is ready.
    excused = lambda request: any(began <= datetime.datetime.fromisoformat(request["requestReceivedTimestamp"]).timestamp() <= ended for began, ended in cluster.restarts)
    refused = [(r["verb"], r["requestURI"], r["requestReceivedTimestamp"], r.get("annotations")) for r in requests if code(r) == 403 and not excused(r)]
    assert not refused, (refused, cluster.restarts)
    used = {(ref.get("apiGroup", ""), "/".join(filter(None, (ref["resource"], ref.get("subresource")))), r["verb"]) for r in requests for ref in [r["objectRef"]]}
    rules = [rule for role in (("clusterrole", "trainyard-operator"), ("role", "trainyard-operator-lease")) for rule in cluster.get(*role)["rules"]]
    given = {(group, resource, verb) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert given - used <= set(UNUSED), "rights that nothing needs"
    made = collections.Counter(r["objectRef"]["name"] for r in requests
                               if r["verb"] == "create" and r["objectRef"]["resource"] == "pods" and code(r) == 201 and "dryRun" not in r["requestURI"])
    assert made and not [pod for pod, times in made.items() if times > 1]
    print(f"{len(requests)} requests, {sum(made.values())} pods; not used here: {sorted(given - used)}")

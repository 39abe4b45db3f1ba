"""Two API servers: Kubernetes' own, and the in-memory one."""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPERATOR = os.environ["TRAINYARD_OPERATOR_BIN"]
SHIPPED_OPERATOR = pathlib.Path(OPERATOR).resolve().parent / "image" / "trainyard-operator"  # without `local`: what the operator's image holds
BIN = pathlib.Path(os.environ.get("CLUSTER_BIN", ""))  # unset where only the in-memory API is asked for
ADDRESS = "10.250.0.1"


def wait_until(condition, timeout=60, what="condition"):
    deadline = time.monotonic() + timeout
    last = None
    while time.monotonic() < deadline:
        try:
            value = condition()
            if value:
                return value
        except (subprocess.SubprocessError, OSError, KeyError, ValueError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"waited {timeout} s for {what}: {last}")


class Processes:
    def __init__(self, folder):
        self.folder, self.running = folder, []

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "ab")
        process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.running.append((name, process))
        return process

    def stop_all(self):
        for _, process in reversed(self.running):
            if process.poll() is None:
                process.terminate()
        for name, process in reversed(self.running):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Api:
    """A server and a person with kubectl."""

    def __init__(self, kind, folder, kubeconfig, processes):
        self.kind, self.folder, self.kubeconfig, self.processes = kind, folder, kubeconfig, processes
        self.operator = None

    def kubectl(self, *args, stdin=None, good=True):
        # What kubectl knows of a server's kinds it keeps by address, and all of ours have the same.
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.folder / "kubectl"), *map(str, args)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60,
                                input=json.dumps(stdin) if isinstance(stdin, dict) else stdin)
        if good and result.returncode != 0:
            error = subprocess.CalledProcessError(result.returncode, result.args, result.stdout, result.stderr + f" {args}")
            error.add_note(error.stderr)  # its own text leaves out what kubectl said
            raise error
        if not good:
            assert result.returncode != 0, result.stdout
        return result.stdout + ("" if good else result.stderr)

    def get(self, *args):
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def pods(self, job):
        return {p["metadata"]["name"]: p for p in self.get("pods", "-l", f"trainyard.dev/job-name={job}")["items"]}

    def apply(self, *objects):
        for each in objects:
            self.kubectl("apply", "-f", "-", stdin=each)

    def set_pod(self, name, phase, ready=False, code=None, ip=None, message=""):
        """What a kubelet would write."""
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}} if code is not None else {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        status = {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "trainer", "ready": ready, "restartCount": 0, "image": "x", "imageID": "", "state": state}],
        }
        if ip:
            status["podIP"], status["podIPs"] = ip, [{"ip": ip}]
        self.kubectl("patch", "pod", name, "--subresource", "status", "--type", "merge", "-p", json.dumps({"status": status}))

    def start_operator(self, kubeconfig=None):
        self.operator = self.processes.start("operator", OPERATOR, "run", "--kubeconfig", kubeconfig or self.operator_kubeconfig, "--listen", "127.0.0.1:18080")
        wait_until(lambda: urllib.request.urlopen("http://127.0.0.1:18080/readyz", timeout=2).status == 200, 30, "the operator to be ready")

    def stop_operator(self, number=signal.SIGTERM):
        self.operator.send_signal(number)
        self.operator.wait(20)


def openssl(folder, *args):
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)


def certificate(folder, name, subject, extensions):
    """NAME.crt and NAME.key, signed by make_pki's authority."""
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
    (folder / f"{name}.ext").write_text(extensions)
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", f"{name}.ext", "-out", f"{name}.crt")


def make_pki(folder):
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", "/CN=test-ca",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    certificate(folder, "server", "/CN=kube-apiserver", f"subjectAltName=IP:127.0.0.1,IP:{ADDRESS},IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc\nextendedKeyUsage=serverAuth\n")
    openssl(folder, "genrsa", "-out", "sa.key", "2048")
    openssl(folder, "rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    (folder / "tokens.csv").write_text('admin,admin,1,"system:masters"\noperator,trainyard-operator,2,""\nmanager,manager,3,"system:masters"\n')


def kubeconfig(folder, name, user=None, server="127.0.0.1"):
    """NAME.kubeconfig; without USER, a flow mapping of kubeconfig's user, NAME is the token."""
    path = folder / f"{name}.kubeconfig"
    path.write_text(f"""apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "https://{server}:6443", certificate-authority: {folder}/ca.crt}}}}]
users: [{{name: u, user: {user or f"{{token: {name}}}"}}}]
contexts: [{{name: c, context: {{cluster: c, user: u, namespace: default}}}}]
""")
    return path


def start_etcd(folder, processes):
    processes.start("etcd", BIN / "etcd", "--name", "e", "--data-dir", folder / "etcd", "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
                    "--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380", "--initial-cluster", "e=http://127.0.0.1:2380",
                    "--log-level", "warn", "--unsafe-no-fsync")


def start_api_server(folder, processes, *flags):
    return processes.start("kube-apiserver", BIN / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--secure-port=6443", f"--advertise-address={ADDRESS}",
                           f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key", f"--client-ca-file={folder}/ca.crt", f"--token-auth-file={folder}/tokens.csv",
                           "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder}/sa.pub", f"--service-account-signing-key-file={folder}/sa.key",
                           "--service-cluster-ip-range=10.96.0.0/16", *flags)


KINDS_OF_RIGHTS = ("CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def install(api, namespace="default"):
    """The CRD and the rights of manifests/install.yaml, for operators that the tests start in NAMESPACE; waits until the API server knows jobs."""
    text = (ROOT / "manifests/install.yaml").read_text().replace("trainyard-system", namespace)
    api.apply({"apiVersion": "v1", "kind": "List", "items": [each for each in yaml.safe_load_all(text) if each and each["kind"] in KINDS_OF_RIGHTS]})
    # Not with `kubectl wait`, which takes a list of conditions that is still null for an error.
    wait_until(lambda: any(c["type"] == "Established" and c["status"] == "True" for c in api.get("crd", "trainingjobs.trainyard.dev")["status"]["conditions"] or []), 30, "the CRD to be established")


def real_api(folder, flags=(), manager_flags=("--controllers=garbage-collector-controller,namespace-controller",)):
    make_pki(folder)
    processes = Processes(folder)
    start_etcd(folder, processes)
    start_api_server(folder, processes, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
                     *flags)
    api = Api("kubernetes", folder, kubeconfig(folder, "admin"), processes)
    wait_until(lambda: api.kubectl("get", "--raw", "/readyz") == "ok", 90, "the API server")
    wait_until(lambda: api.get("namespace", "default"), 60, "the default namespace")
    install(api)  # first: a kind that the garbage collector has not met it looks for every half minute
    processes.start("kube-controller-manager", BIN / "kube-controller-manager", f"--kubeconfig={kubeconfig(folder, 'manager')}", "--leader-elect=false", "--bind-address=127.0.0.1",
                    *manager_flags)
    api.kubectl("create", "clusterrolebinding", "test-operator", "--clusterrole=trainyard-operator", "--user=trainyard-operator")
    api.operator_kubeconfig = kubeconfig(folder, "operator")
    return api


def start_scheduler(manager, processes, **config):
    """MANAGER: its kubeconfig; CONFIG: fields of a KubeSchedulerConfiguration beside those that every test has."""
    path = manager.parent / "scheduler.json"
    path.write_text(json.dumps({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "clientConnection": {"kubeconfig": str(manager)},
                                "leaderElection": {"leaderElect": False}, **config}))
    processes.start("kube-scheduler", BIN / "kube-scheduler", f"--config={path}", "--bind-address=127.0.0.1", "--authentication-skip-lookup")


def add_node(api, name, cpus, labels=None):
    """What a kubelet would say of its node, and the controller that is not here of a node that is ready."""
    room = {"cpu": str(cpus), "memory": "8Gi", "pods": "20"}
    api.kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}})
    ready = {"type": "Ready", "status": "True", "reason": "Said", "message": ""}
    api.kubectl("patch", "node", name, "--subresource", "status", "--type", "merge", "-p", json.dumps({"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}))
    api.kubectl("patch", "node", name, "--type", "merge", "-p", json.dumps({"spec": {"taints": []}}))


def memory_api(folder):
    processes = Processes(folder)
    processes.start("memory-api", OPERATOR, "local", "--api-only", "--serve", "0", "--state-dir", folder / "state")
    path = folder / "state" / "kubeconfig"
    wait_until(path.exists, 20, "the in-memory API")
    api = Api("memory", folder, path, processes)
    wait_until(lambda: api.kubectl("get", "--raw", "/readyz") == "ok", 20, "the in-memory API")
    api.operator_kubeconfig = path
    return api

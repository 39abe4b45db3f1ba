"""Two API servers: Kubernetes' own, and the in-memory one."""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPERATOR = os.environ["TRAINYARD_OPERATOR_BIN"]
ADDRESS = "10.250.0.1"


def wait_until(condition, timeout=60, what="condition"):
    deadline = time.monotonic() + timeout
    last = None
    while time.monotonic() < deadline:
        try:
            value = condition()
            if value:
                return value
        except (subprocess.CalledProcessError, OSError, KeyError, ValueError) as error:
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
        result = subprocess.run(["kubectl", "--kubeconfig", str(self.kubeconfig), *map(str, args)], capture_output=True, text=True, timeout=60,
                                input=json.dumps(stdin) if isinstance(stdin, dict) else stdin)
        if good and result.returncode != 0:
            raise subprocess.CalledProcessError(result.returncode, result.args, result.stdout, result.stderr + f" {args}")
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


def make_pki(folder):
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", "/CN=test-ca",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=kube-apiserver")
    (folder / "server.ext").write_text(f"subjectAltName=IP:127.0.0.1,IP:{ADDRESS},IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc\nextendedKeyUsage=serverAuth\n")
    openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "server.ext", "-out", "server.crt")
    openssl(folder, "genrsa", "-out", "sa.key", "2048")
    openssl(folder, "rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    (folder / "tokens.csv").write_text('admin,admin,1,"system:masters"\noperator,trainyard-operator,2,""\nmanager,manager,3,"system:masters"\n')


def kubeconfig(folder, token):
    path = folder / f"{token}.kubeconfig"
    path.write_text(f"""apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:6443", certificate-authority: {folder}/ca.crt}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u, namespace: default}}}}]
""")
    return path


def real_api(folder, flags=()):
    bin = pathlib.Path(os.environ["CLUSTER_BIN"])
    make_pki(folder)
    processes = Processes(folder)
    processes.start("etcd", bin / "etcd", "--name", "e", "--data-dir", folder / "etcd", "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
                    "--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380", "--initial-cluster", "e=http://127.0.0.1:2380",
                    "--log-level", "warn", "--unsafe-no-fsync")
    processes.start("kube-apiserver", bin / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--secure-port=6443", f"--advertise-address={ADDRESS}",
                    f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key", f"--client-ca-file={folder}/ca.crt", f"--token-auth-file={folder}/tokens.csv",
                    "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder}/sa.pub",
                    f"--service-account-signing-key-file={folder}/sa.key", "--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount",
                    "--enable-admission-plugins=OwnerReferencesPermissionEnforcement", *flags)
    api = Api("kubernetes", folder, kubeconfig(folder, "admin"), processes)
    wait_until(lambda: api.kubectl("get", "--raw", "/readyz") == "ok", 90, "the API server")
    processes.start("kube-controller-manager", bin / "kube-controller-manager", f"--kubeconfig={kubeconfig(folder, 'manager')}", "--leader-elect=false", "--bind-address=127.0.0.1",
                    "--controllers=garbage-collector-controller,namespace-controller")
    wait_until(lambda: api.get("namespace", "default"), 60, "the default namespace")
    api.kubectl("apply", "-f", ROOT / "manifests/crd.yaml")
    api.kubectl("wait", "--for", "condition=Established", "crd/trainingjobs.trainyard.dev", "--timeout=30s")
    api.kubectl("apply", "-f", ROOT / "manifests/rbac.yaml")
    api.kubectl("create", "clusterrolebinding", "test-operator", "--clusterrole=trainyard-operator", "--user=trainyard-operator")
    api.operator_kubeconfig = kubeconfig(folder, "operator")
    return api


def memory_api(folder):
    processes = Processes(folder)
    processes.start("memory-api", OPERATOR, "local", "--api-only", "--serve", "0", "--state-dir", folder / "state")
    path = folder / "state" / "kubeconfig"
    wait_until(path.exists, 20, "the in-memory API")
    api = Api("memory", folder, path, processes)
    wait_until(lambda: api.kubectl("get", "--raw", "/readyz") == "ok", 20, "the in-memory API")
    api.operator_kubeconfig = path
    return api

"""Processes of `trainyard-operator run`, and what they say of themselves."""

import subprocess
import urllib.error
import urllib.request

import harness

# Of one worker that never ends by itself: pods stay objects with `local --api-only`.
JOB = {
    "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "job", "namespace": "default"},
    "spec": {"workers": 1, "template": {"spec": {"containers": [{"name": "trainer", "image": "example.com/image", "command": ["true"]}]}}},
}
JOBS = "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/trainyard-operator"


class Operator:
    """One process, for a with-statement; its log is the file `log`."""

    def __init__(self, kubeconfig, folder, *args):
        self.port = harness.free_port()
        self.log = folder / f"operator-{self.port}.log"
        command = [harness.OPERATOR, "run", "--kubeconfig", kubeconfig, "--listen", f"127.0.0.1:{self.port}", *args]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=harness.environment())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def get(self, path):
        """Code and text; nothing when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return None

    def ready(self):
        return (self.get("/readyz") or (0, ""))[0] == 200

    def metrics(self):
        """Sample -> value: 'trainyard_queue_depth', 'trainyard_jobs{phase="New"}'."""
        lines = self.get("/metrics")[1].splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and not line.startswith("#")}

    def said(self):
        return self.log.read_text(errors="replace")

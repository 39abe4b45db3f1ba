"""The in-memory API server alone, and requests to it."""

import base64
import json
import ssl
import subprocess
import urllib.error
import urllib.request

import harness


class ApiOnly:
    """`local --api-only` in `state`, for a with-statement; port 0: any free one."""

    def __init__(self, state, port=0):
        self.state, self.port = state, port

    def __enter__(self):
        self.process = subprocess.Popen([harness.OPERATOR, "local", "--api-only", "--serve", str(self.port), "--state-dir", self.state], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=harness.environment())
        harness.wait_until(lambda: (self.state / "kubeconfig").exists(), 20, "the in-memory API")
        return self.connect()

    def connect(self):
        """To the `local` that serves the state directory, whoever started it."""
        config = dict(line.strip().split(": ", 1) for line in (self.state / "kubeconfig").read_text().splitlines() if ": " in line and "{" not in line)
        self.server, self.token = config["server"], config["token"]
        self.context = ssl.create_default_context(cadata=base64.b64decode(config["certificate-authority-data"]).decode())
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait(20)

    @property
    def pid(self):
        return self.process.pid

    def send(self, method, path, body=None, content_type="application/json"):
        """The status and the answer, read as JSON where it is some."""
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.server + path, method=method, data=data, headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type})
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as response:
                code, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            code, text = error.code, error.read().decode()
        try:
            return code, json.loads(text)
        except ValueError:
            return code, text

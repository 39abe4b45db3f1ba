"""What strangers' YAML costs `validate`, `local` and the in-memory API: an error, a second and 100 MB at most."""

import http.client
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

import harness
from local_api import ApiOnly

MOST_KIB, MOST_SECONDS = 100 << 10, 1.0  # resident memory; processor time, which says the same on a busy machine

# A process of few bytes between pytest and the program: after exec a process still counts what it was before.
MEASURE = """
import json, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))  # for the machine's sake
result = subprocess.run(sys.argv[1:], capture_output=True, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"code": result.returncode, "stderr": result.stderr, "kib": used.ru_maxrss, "seconds": used.ru_utime + used.ru_stime}))
"""


def bomb():
    """Nine levels of nine aliases: 341 bytes that stand for 400 million values."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    return "\n".join(lines) + "\n"


HOSTILE = {
    "an alias in itself": ("a: &a {b: *a}\n", "an alias stands inside of what it names"),
    "a merge of itself": ("&a {<<: *a}\n", "an alias stands inside of what it names"),
    "a tag": ("!!python/object x\n", "the tag"),
    "a bomb": (bomb(), "aliases expanded"),
    "lists that never end": ("[" * 200_000, "more than 10000 brackets are not closed"),
    "nested lists": ("[" * 200 + "]" * 200, "100 deep"),
    "a long text": ("a: " + "x" * (5 << 20), "larger than"),
}


def operator(*args, stdin=None):
    result = subprocess.run([sys.executable, "-S", "-c", MEASURE, harness.OPERATOR, *map(str, args)], stdin=stdin, capture_output=True, text=True, timeout=60, env=harness.environment())
    return json.loads(result.stdout)


def refused_cheaply(used, says):
    assert used["code"] == 64 and says in used["stderr"], used
    assert used["kib"] < MOST_KIB and used["seconds"] < MOST_SECONDS, used


@pytest.mark.parametrize("name", HOSTILE)
def test_a_job_file(tmp_path, name):
    text, says = HOSTILE[name]
    path = tmp_path / "job.yaml"
    path.write_text(text)
    refused_cheaply(operator("validate", "-f", path), says)
    refused_cheaply(operator("local", "-f", path, "--state-dir", tmp_path / "state"), says)
    with open(path) as file:
        refused_cheaply(operator("validate", "-f", "-", stdin=file), says)


def test_an_endless_file():
    refused_cheaply(operator("validate", "-f", "/dev/zero"), "larger than")
    with open("/dev/zero") as file:
        refused_cheaply(operator("validate", "-f", "-", stdin=file), "larger than")


def spent(pid):
    """KiB at most so far, and seconds of processor time."""
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(status["VmHWM"].split()[0]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_apply_patch(tmp_path):
    path = "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs/job?fieldManager=test"
    with ApiOnly(tmp_path / "state") as api:
        for name, (text, says) in HOSTILE.items():
            before = spent(api.pid)[1]
            code, answer = api.send("PATCH", path, text, "application/apply-patch+yaml")
            assert code == 400 and says in answer["message"], (name, answer)
            kib, seconds = spent(api.pid)
            assert kib < MOST_KIB and seconds - before < MOST_SECONDS, (name, kib, seconds - before)
        assert api.send("GET", "/readyz")[0] == 200


def test_a_client_that_keeps_its_connection_holds_up_no_stop(tmp_path):
    with ApiOnly(tmp_path / "state") as api:
        host, port = api.server.removeprefix("https://").split(":")
        client = http.client.HTTPSConnection(host, int(port), context=api.context, timeout=30)
        client.request("GET", "/healthz", headers={"Authorization": f"Bearer {api.token}"})
        assert client.getresponse().read() == b"ok"
        start = time.monotonic()
        api.process.terminate()
        assert api.process.wait(60) == 75
        assert time.monotonic() - start < 15, "the library waits for twenty"

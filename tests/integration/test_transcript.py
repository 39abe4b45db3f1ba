"""The kubectl session in docs/local.md, typed again: every command of it, in order, against a `local` that runs the example."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

import harness

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPERATOR = os.environ.get("TRAINYARD_OPERATOR_BIN", "build/release/bin/trainyard-operator")
# What differs from run to run: ages and times, addresses, how far a counter is, uids, who is the nearest server.
CHANGES = [
    (r"\b127(\.\d+){3}(:\d+)?", "ADDRESS"),
    (r"\b(\d+[hms])+\b( ago)?", "AGE"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\btick \d+", "tick N"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
    (r" deleted from \w+ namespace$", " deleted"),  # kubectl 1.34 says where
    (r" +", " "),
]


def session():
    """[(command, output lines)] of the indented blocks with a prompt."""
    steps = []
    for line in (ROOT / "docs/local.md").read_text().splitlines():
        if line.startswith("    $ "):
            steps.append((line[6:], []))
        elif line.startswith("    ") and steps:
            steps[-1][1].append(line[4:])
        elif line.strip() and steps:  # prose ends a block; what is indented after it without a prompt is no output
            steps.append((None, []))
    return [step for step in steps if step[0]]


def normal(lines):
    """What must be the same. A watch or a followed log says the same line any number of times."""
    said = []
    for line in lines:
        for pattern, name in CHANGES:
            line = re.sub(pattern, name, line)
        line = line.strip()
        if line and (not said or said[-1] != line):
            said.append(line)
    return said


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not on PATH; `make test-cluster` builds one")
def test_the_kubectl_session_of_the_documentation(tmp_path):
    steps = session()
    assert len(steps) >= 15, "docs/local.md has lost its session"
    state = tmp_path / "state"
    local = subprocess.Popen([OPERATOR, "local", "-f", ROOT / "manifests/examples/sleeper.yaml", "--serve", "0", "--state-dir", state],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=harness.environment())
    try:
        harness.wait_until(lambda: (state / "kubeconfig").exists() or local.poll() is not None, what="the API's kubeconfig")
        shell = {**os.environ, "KUBECONFIG": str(state / "kubeconfig"), "DIR": str(state)}
        for command, expected in steps:
            command = re.sub(r"\bDIR/", f"{state}/", command)
            result = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90, env=shell, cwd=ROOT)
            if os.environ.get("TRAINYARD_SHOW_SESSION"):  # to write the document anew
                print(f"    $ {command}\n" + "".join(f"    {line}\n" for line in result.stdout.splitlines()), end="")
                continue
            assert normal(result.stdout.splitlines()) == normal(expected), command
    finally:
        local.terminate()
        output = local.communicate(timeout=60)[0]
    assert local.returncode == 75, output

"""manifests/examples: each is valid, and those that need nothing but Python run on this machine as they stand."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import harness
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = {path.stem: path for path in (ROOT / "manifests/examples").glob("*.yaml") if not path.name.endswith(".config.yaml")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_valid(name):
    result = subprocess.run([harness.OPERATOR, "validate", "-f", EXAMPLES[name]], capture_output=True, text=True, timeout=90, env=harness.environment())
    assert result.returncode == 0 and ": valid" in result.stdout, result.stdout + result.stderr
    assert "not checked" not in result.stdout, result.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_as_it_stands_on_a_cluster_with_a_default_storage_class(name):
    """A claim that it mounts is its own, for one node, and then its workers stay on one."""
    *others, job = yaml.safe_load_all(EXAMPLES[name].read_text())
    spec = job["spec"]["template"]["spec"]
    volumes = [*spec.get("volumes", []), job["spec"].get("checkpoint", {}).get("volume", {})]
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
    assert claims == {each["metadata"]["name"] for each in others if each["kind"] == "PersistentVolumeClaim"}
    for claim in others:
        if claim["kind"] == "PersistentVolumeClaim":
            assert claim["spec"]["accessModes"] == ["ReadWriteOnce"] and "storageClassName" not in claim["spec"]
            (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert term == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"trainyard.dev/job-name": job["metadata"]["name"]}}}


def start(tmp_path, name):
    """`local`, where the image's python3 is this one here, which has PyTorch."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    return subprocess.Popen([harness.OPERATOR, "local", "-f", EXAMPLES[name], "--state-dir", tmp_path / "state"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process, timeout=240):
    try:
        return process.communicate(timeout=timeout)[0]
    finally:
        process.kill()


def test_the_script_goes_on_where_it_was_told_to_stop(tmp_path):
    first = start(tmp_path, "pytorch")
    saved = tmp_path / "state/claims/default/pytorch/state.pt"
    deadline = time.monotonic() + 120
    while not saved.exists() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    said = end(first)
    assert first.returncode == 75 and "rank 0 of 2 begins at step 0" in said, said
    second = start(tmp_path, "pytorch")
    said = end(second)
    begun = re.search(r"rank 0 of 2 begins at step (\d+)", said)
    assert second.returncode == 0 and begun and 50 <= int(begun.group(1)) < 2000, said
    (log,) = (tmp_path / "state/pods").glob("default_pytorch-2-0_*/trainer.log")  # on the terminal steps are the line of state
    assert float(re.search(r"step 2000: loss (\S+)", log.read_text()).group(1)) < 0.01, said


@pytest.mark.skipif(not harness.THOROUGH, reason="make test-thorough runs it; docs/your-own-program.md has one like it")
def test_torchrun_starts_two_ranks_a_pod(tmp_path):
    run = start(tmp_path, "torchrun")
    said = end(run)
    assert run.returncode == 0, said
    # Of two processes with one output, one may write between the other's text and its newline; the second worker's is in its log.
    losses = dict(re.findall(r"rank (\d) of 4: loss (\d+\.\d+)", said))
    assert set(losses) == {"0", "1"} and all(float(loss) < 0.01 for loss in losses.values()), said

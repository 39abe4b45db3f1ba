"""`validate`: what it asks the trainer about spec.config."""

import pathlib
import shutil
import subprocess

import pytest

import harness


def validate(tmp_path, spec, program=harness.OPERATOR):
    path = harness.write_config(tmp_path / "job.json", {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "job"}, "spec": spec})
    return subprocess.run([program, "validate", "-f", path], capture_output=True, text=True, timeout=90, env=harness.environment())


def spec(command, **config):
    return {"workers": 2, "config": harness.merged(harness.SMALL, data={"path": "/nowhere"}, **config), "template": {"spec": {"containers": [{"name": "trainer", "image": "x", "command": command}]}}}


def test_a_typing_error_in_the_configuration(tmp_path):
    result = validate(tmp_path, spec(["trainyard", "launch"], task={"losss": "x"}))
    assert result.returncode == 64 and "spec.config: unknown key task.losss; did you mean task.loss?" in result.stderr
    several = validate(tmp_path, spec(["trainyard", "launch"], task={"losss": "x"}, optim={"lr": "fast"}))
    said = [line.split(": ", 1)[1] for line in several.stderr.splitlines()]
    assert several.returncode == 64 and len(said) == 2, several.stderr
    assert {line.split(";")[0] for line in said} == {"spec.config: unknown key task.losss", 'spec.config: optim.lr: "fast" is not allowed'}
    good = validate(tmp_path, spec(["trainyard", "launch"]))
    assert good.returncode == 0 and "not checked" not in good.stdout, good.stderr


@pytest.mark.parametrize("command", [["python", "train.py"], ["trainyard", "launch", "--config", "/else"]])
def test_another_programs_configuration_is_its_own(tmp_path, command):
    assert validate(tmp_path, spec(command, task={"losss": "x"})).returncode == 0


def test_without_the_trainer_it_says_that_nobody_looked(tmp_path):
    alone = tmp_path / "bin" / "trainyard-operator"
    alone.parent.mkdir()
    shutil.copy(harness.OPERATOR, alone)
    result = validate(tmp_path, spec(["trainyard", "launch"], task={"losss": "x"}), alone)
    assert result.returncode == 0 and "spec.config is not checked" in result.stdout


def test_a_claim_that_the_file_has_not(tmp_path):
    """A note and no refusal: it may be in the cluster."""
    example = (pathlib.Path(__file__).resolve().parents[2] / "manifests/examples/dark-room.yaml").read_text()
    for name, words in (("dark-room", None), ("dark-rom", "spec.checkpoint.volume.persistentVolumeClaim.claimName: there is no claim dark-rom in this file; did you mean dark-room?")):
        path = tmp_path / "job.yaml"
        path.write_text(example.replace("claimName: dark-room", f"claimName: {name}"))
        result = subprocess.run([harness.OPERATOR, "validate", "-f", path], capture_output=True, text=True, timeout=90, env=harness.environment())
        assert result.returncode == 0 and ("there is no claim" in result.stdout) == bool(words) and (words or "") in result.stdout, result.stdout


def test_what_kubectl_reads_as_a_job(tmp_path):
    """A List of one, as `kubectl get -o yaml` writes it, and whole numbers however they are written."""
    path = tmp_path / "job.yaml"
    job = "apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: job}\nspec: {workers: %s, template: {spec: {containers: [{name: trainer, image: x}]}}}\n"
    items = "apiVersion: v1\nkind: List\nitems:\n" + "".join("- " + line if line.startswith("api") else "  " + line for line in (job % 2).splitlines(True))
    for text, code, words in ((job % "2.0", 0, "valid"), (job % "1_000", 0, "valid"), (job % "2.5", 64, "spec.workers: 2.5 is not allowed"), (items, 0, "valid"),
                              (items + items.partition("items:\n")[2], 64, "holds 2 TrainingJobs; allowed: one"), ("apiVersion: v1\nkind: List\nitems: []\n", 64, "holds 0 TrainingJobs")):
        path.write_text(text)
        result = subprocess.run([harness.OPERATOR, "validate", "-f", path], capture_output=True, text=True, timeout=90, env=harness.environment())
        assert result.returncode == code and words in result.stdout + result.stderr, (text, result.stdout, result.stderr)

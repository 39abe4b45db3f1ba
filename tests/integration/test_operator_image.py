"""The operator's program as an image has it: no `local`, and none of the calls that `local` makes."""

import pathlib
import subprocess

import harness

IMAGE = pathlib.Path(harness.OPERATOR).parent / "image" / "trainyard-operator"


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)


def imports(program):
    listed = subprocess.run(["nm", "--dynamic", "--undefined-only", program], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}


def test_it_makes_no_processes_namespaces_or_mounts():
    calls = {"fork", "vfork", "clone", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "syscall"}
    assert not imports(IMAGE) & calls
    assert {"fork", "unshare"} <= imports(harness.OPERATOR), "the control: `local` makes them"


def test_its_commands_are_the_others(tmp_path):
    assert run(IMAGE, "crd").stdout == run(harness.OPERATOR, "crd").stdout
    result = run(IMAGE, "local", "-f", "job.yaml")
    assert result.returncode == 2 and "local: no such command; allowed: run, validate, crd" in result.stderr
    help_text = run(IMAGE, "--help").stdout
    assert "validate" in help_text and "local" not in help_text
    job = tmp_path / "job.yaml"
    job.write_text("{apiVersion: trainyard.dev/v1alpha1, kind: TrainingJob, metadata: {name: a}, spec: {workers: 1, template: {spec: {containers: [{name: trainer, image: b}]}}}}")
    result = run(IMAGE, "validate", "-f", str(job))
    assert result.returncode == 0 and "valid" in result.stdout and "`local`" not in result.stdout, result

"""What rules and dashboards ask of a Prometheus, and promtool."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from metric_tables import documented

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "trainyard"
RULES = CHART / "rules.yaml"
DASHBOARDS = {path.stem: path for path in sorted((CHART / "dashboards").glob("*.json"))}
# What monitors give each target; the last three are the PodMonitor's of the workers.
TARGET_LABELS = {"namespace", "pod", "instance", "trainyard_job", "attempt", "worker", "trainyard_release"}


def alerts():
    """Alert -> its rule."""
    return {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule}


def promtool(*args):
    """The finished process of `promtool ARGS`; skips where there is none."""
    program = shutil.which(os.environ.get("TRAINYARD_PROMTOOL", "promtool"))
    if not program:
        pytest.skip("promtool is not there; `make deps` brings it from Debian's package prometheus")
    return subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=120)


def panels(dashboard):
    """The panels of a dashboard's file, those inside of rows too."""
    for panel in json.loads(DASHBOARDS[dashboard].read_text())["panels"]:
        yield panel
        yield from panel.get("panels", [])


def queries(dashboard):
    """(panel's title, expression) of each query, with the dashboard's variables in it."""
    return [(panel["title"], target["expr"]) for panel in panels(dashboard) for target in panel.get("targets", [])]


def metrics_of(expression):
    """Names of ours in an expression, of histograms without _bucket, _sum and _count. Two are labels."""
    known = documented()
    names = set(re.findall(r"\btrainyard_\w+", expression)) - {"trainyard_job", "trainyard_release"}
    return {name if name in known else re.sub(r"_(bucket|sum|count)$", "", name) for name in names}

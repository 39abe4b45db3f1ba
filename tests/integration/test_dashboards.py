"""charts/trainyard/dashboards: made by the generator, readable by Grafana's own models, and every query of every panel has an
answer from a Prometheus that scrapes a real job, with a failure and a restart, and the operator."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

import pytest

import harness
from metric_tables import documented, served
from observed import NAME, NAMESPACE, WRONG, Observed
from operators import JOBS
from promql import DASHBOARDS, ROOT, TARGET_LABELS, alerts, panels

GENERATOR = ROOT / "charts" / "dashboards"
sys.path.append(str(GENERATOR))
import ask  # noqa: E402

PICTURES = os.environ.get("TRAINYARD_PICTURES")  # docs/images: draws those of docs/dashboards.md anew


def of(dashboard):
    return json.loads(DASHBOARDS[dashboard].read_text())


def drawn(dashboard):
    """The panels that show something."""
    return [panel for panel in panels(dashboard) if panel["type"] != "row"]


def test_they_are_what_the_generator_writes():
    check = subprocess.run([sys.executable, GENERATOR / "build.py", "--check"], capture_output=True, text=True, timeout=60)
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_grafanas_models_read_them(dashboard):
    """Grafana's schema, as its SDK has it: what it does not know would be lost on the way."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    read = Dashboard.from_json(of(dashboard))
    assert json.loads(JSONEncoder().encode(read)) == of(dashboard)


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_every_panel_can_be_read(dashboard):
    ids = [panel["id"] for panel in panels(dashboard)]
    assert len(set(ids)) == len(ids)
    for panel in drawn(dashboard):
        assert len(panel["description"]) > 10 and panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 and panel["gridPos"]["w"] >= 4, panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert target.get("legendFormat") or len(panel["targets"]) == 1 and panel["type"] == "stat", panel["title"]
    assert [variable["name"] for variable in of(dashboard)["templating"]["list"]][0] == "datasource"


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_no_query_needs_a_label_that_nobody_gives(dashboard):
    known = TARGET_LABELS | {"le"} | {label for _, labels in documented().values() for label in labels}
    for panel in drawn(dashboard):
        for target in panel["targets"]:
            used = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", target["expr"]))
            for listed in re.findall(r"(?:by|on|ignoring|without)\s*\(([^)]*)\)", target["expr"]):
                used.update(filter(None, (label.strip() for label in listed.split(","))))
            used.update(re.findall(r"{{\s*(\w+)\s*}}", target.get("legendFormat", "")))
            assert used <= known, f"{panel['title']}: {used - known}"


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """A run in which everything has happened that a panel tells of: steps, evaluations, checkpoints, a restart, a failure."""
    folder = tmp_path_factory.mktemp("observed")
    data = harness.synth(folder / "data")
    with Observed(folder, data) as run:
        assert run.api.send("POST", JOBS, WRONG)[0] == 201
        harness.wait_until(lambda: run.ask("min(trainyard_checkpoint_last_step) > 0 and count(trainyard_step) == 4"), 60, "a checkpoint that Prometheus knows of")
        run.kill_a_rank()
        harness.wait_until(lambda: run.ask('count(trainyard_phase_seconds_total{attempt="2",phase="evaluation"}) == 4'), 60, "an evaluation of the second attempt")
        harness.wait_until(lambda: run.ask("trainyard_job_failures_total == 1"), 30, "the other job's failure")
        time.sleep(120 if PICTURES else 8)  # a few scrapes of all that
        run.ended = time.time()
        yield run


def prometheus_of(run):
    return ask.Prometheus(run.url, run.begun, run.ended, 1, "6s", (("namespace", NAMESPACE), ("job", NAME)))


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_every_query_has_an_answer(observed, dashboard):
    prometheus = prometheus_of(observed)
    for panel in drawn(dashboard):
        for target in panel["targets"]:
            found = [points for _, points in prometheus.series(target) if points]
            assert found, f"{panel['title']}: no number for {prometheus.filled_in(target['expr'])}"


@pytest.mark.parametrize("dashboard, title, value", [
    ("job", "Restarts", 1), ("job", "Ranks that answer", 4), ("fleet", "Running", 1), ("fleet", "Failed", 1), ("fleet", "Invalid", 0), ("operator", "Replicas", 1), ("operator", "Objects passed over", 0)])
def test_what_is_known_is_told(observed, dashboard, title, value):
    (panel,) = [panel for panel in drawn(dashboard) if panel["title"] == title]
    (_, points), *_ = prometheus_of(observed).series(panel["targets"][0])
    assert points[-1][1] == value


def test_a_restart_and_a_failure_are_told_by_their_reasons(observed):
    told = {}
    for panel in drawn("fleet"):
        if panel["title"] in ("Restarts by reason", "Jobs that failed, by reason"):
            told.update({labels["reason"]: sum(value for _, value in points) for labels, points in prometheus_of(observed).series(panel["targets"][0])})
    assert told == {"Signal9": 1, "CommandNotFound": 1}, "each once, though the first of its reason"


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_the_variables_offer_what_is_there(observed, dashboard):
    offered = {variable["name"]: prometheus_of(observed).values_of(variable["query"]) for variable in of(dashboard)["templating"]["list"] if variable["type"] == "query"}
    assert offered.pop("namespace") == [NAMESPACE] and offered == ({"job": [NAME]} if dashboard == "job" else {})


def test_every_alert_is_evaluated_and_none_fires_without_cause(observed):
    rules = [rule for group in prometheus_of(observed).get("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == set(alerts())
    for rule in rules:
        assert rule["health"] == "ok" and not rule.get("lastError"), rule
        assert rule["state"] != "firing" or rule["name"] == "TrainyardJobFailed", rule["alerts"]
    (failed,) = [rule for rule in rules if rule["name"] == "TrainyardJobFailed"]
    assert [alert["labels"]["reason"] for alert in failed["alerts"]] == ["CommandNotFound"], "the other job's, be it for a minute already or not"


def test_local_tells_prometheus_what_the_charts_monitor_would(observed):
    """In the second attempt as well, whose workers have other addresses."""
    def by_pod(groups):
        return sorted(groups, key=lambda group: group["labels"]["pod"])
    assert observed.worker_targets() and by_pod(json.loads(observed.targets.read_text())) == by_pod(observed.worker_targets())


def test_what_a_worker_serves_is_documented(observed):
    (address, *_) = [target["targets"][0] for target in observed.worker_targets()]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        there = served(response.read().decode())
    known = documented("The workers'")
    assert {name: kind for name, (kind, _) in there.items()} == {name: kind for name, (kind, _) in known.items()}
    # What has no sample yet, as the first checkpoint's duration, has no labels.
    assert {name: labels for name, (_, labels) in there.items() if labels} == {name: known[name][1] for name, (_, labels) in there.items() if labels}


def test_pictures_of_it(observed, tmp_path):
    import draw

    out = pathlib.Path(PICTURES or tmp_path)
    draw.write_all(prometheus_of(observed), out)
    for dashboard in DASHBOARDS:
        assert (out / f"dashboard-{dashboard}.png").read_bytes().startswith(b"\x89PNG")

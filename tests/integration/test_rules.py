"""charts/trainyard/rules.yaml: promtool accepts it, each alert fires in its test and not in a near miss, and nothing in it is made up."""

import re

import pytest
import yaml

from metric_tables import documented
from promql import CHART, DASHBOARDS, ROOT, RULES, TARGET_LABELS, alerts, metrics_of, promtool, queries

TESTS = sorted((ROOT / "tests" / "rules").glob("*.yaml"))
CASES = [case for path in TESTS for case in yaml.safe_load(path.read_text())["tests"]]
EXPECTATIONS = [expectation for case in CASES for expectation in case["promql_expr_test"]]


def labels_of(series):
    return dict(re.findall(r'(\w+)="([^"]*)"', series))


def firing(alert):
    """The labels of each sample with which a test sees the alert fire."""
    samples = [labels_of(sample["labels"]) for expectation in EXPECTATIONS for sample in expectation["exp_samples"]]
    return [labels for labels in samples if labels["alertname"] == alert and labels["alertstate"] == "firing"]


def test_promtool_accepts_the_rules():
    result = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_each_alert_fires_and_does_not(path):
    result = promtool("test", "rules", path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_has_its_test_and_its_near_miss(alert):
    assert firing(alert), "no test sees it fire"
    silent = [expectation for expectation in EXPECTATIONS if alert in expectation["expr"] and not expectation["exp_samples"]]
    assert silent, "no test sees that it does not fire"


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_says_what_to_do(alert):
    rule = alerts()[alert]
    assert rule["for"] and rule["labels"]["severity"] in ("info", "warning", "critical")
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "docs"}
    page, anchor = annotations["docs"].split("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.M)
    assert anchor == alert.lower() and alert in headings, f"{page} has no heading {alert}"
    used = set(re.findall(r"\$labels\.(\w+)", str(annotations)))
    for labels in firing(alert):
        assert used <= set(labels), f"the alert has no label {used - set(labels)}"


def test_the_series_of_the_tests_are_as_they_are_served():
    metrics = documented()
    for case in CASES:
        for series in case["input_series"]:
            name = series["series"].split("{")[0]
            own = set(labels_of(series["series"])) - TARGET_LABELS
            assert own == metrics[name][1] if name != "up" else not own, series["series"]


def test_every_metric_is_documented():
    expressions = [(alert, rule["expr"]) for alert, rule in alerts().items()]
    for dashboard in DASHBOARDS:
        expressions += [(f"{dashboard}.json: {title}", expression) for title, expression in queries(dashboard)]
    for where, expression in expressions:
        unknown = metrics_of(expression) - set(documented())
        assert not unknown, f"{where}: {unknown} is not in docs/metrics.md"


def test_no_recording_rule_is_needed():
    text = "".join(path.read_text() for path in [*(CHART / "dashboards").glob("*.json"), RULES])
    assert "record:" not in text and not re.search(r"trainyard\w*:\w+", text), "a dashboard imported by hand would show nothing"

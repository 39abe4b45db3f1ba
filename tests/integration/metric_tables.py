"""What docs/metrics.md says of metrics, and the same of an answer of /metrics."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def documented(heading=None):
    """Metric -> type and labels, below the heading; of the whole page without one."""
    text = PAGE.read_text()
    if heading:
        text = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| trainyard_")]
    return {name: (kind, frozenset(filter(None, labels.split(", ")))) for name, kind, labels, _ in rows}


def served(text):
    """The same of an answer; of a metric that has no sample the labels are unknown."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    labels = {}
    for name, inside in re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$", text, re.M):
        labels.setdefault(name, set()).update(set(re.findall(r'(\w+)="', inside)) - {"le"})
    return {name: (kind, frozenset(labels[name]) if name in labels else None) for name, kind in kinds.items()}

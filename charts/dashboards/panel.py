"""What our dashboards are made of: a row has panels, a panel has queries."""

import dataclasses

# Of a job's dashboard; the chart's PodMonitor gives the labels.
OF_JOB = 'namespace="$namespace",trainyard_job="$job"'
# Of the operators in the chosen namespaces.
OF_OPERATOR = 'namespace=~"$namespace"'


@dataclasses.dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""
    # Only the value now; a table and a stat over a whole range want no curve.
    instant: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    description: str  # what it says, and what to do about it
    queries: tuple[Query, ...]
    unit: str  # Grafana's name of it
    kind: str = "timeseries"  # timeseries, stat, bargauge
    width: int = 8  # of 24
    stacked: bool = False
    bars: bool = False  # of a time series: bars, one for each interval, for what happens now and then
    low: float | None = 0  # where the axis begins; None: anywhere
    high: float | None = None
    log: bool = False
    thresholds: tuple[tuple[str, float], ...] = ()  # (colour, from where on)
    base: str = "green"  # the colour below all of them
    decimals: int | None = None
    names: bool = False  # of a stat: shows its queries' legends and no numbers
    link: str = ""  # of the series: the dashboard that tells more


@dataclasses.dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclasses.dataclass(frozen=True)
class Variable:
    name: str
    label: str
    query: str  # PromQL's label_values(...)
    everything: bool = False  # several, or all of them


@dataclasses.dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    time_from: str = "now-1h"


def counter(metric, by, selector):
    """What a counter grows by in a second, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def events(metric, by, selector):
    """How often something happened in each interval that is drawn, summed by labels: what charts/trainyard/rules.yaml says of a counter
    of events within a window. What a process has counted before its first scrape is drawn there, if it is younger than five minutes."""
    now, start = f"{metric}{{{selector}}}", "trainyard_start_time_seconds"
    before = (f"{now} offset $__interval <= {now} or {now} * 0 and on (namespace, pod, instance) ({start} offset $__interval or "
              f"time() - {start} < 300) or min_over_time({now}[$__interval])")
    return f"sum by ({by}) ({now} - ({before}))"


def quantile(q, histogram, by, selector, window="$__rate_interval"):
    return f"histogram_quantile({q}, sum by ({', '.join(filter(None, [by, 'le']))}) (rate({histogram}_bucket{{{selector}}}[{window}])))"

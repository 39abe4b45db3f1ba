"""Asks a Prometheus what a dashboard's panels would ask it."""

import dataclasses
import json
import math
import urllib.error
import urllib.parse
import urllib.request


@dataclasses.dataclass(frozen=True)
class Prometheus:
    url: str
    start: float  # of the range that is shown, in seconds since 1970
    end: float
    step: float = 1
    rate_interval: str = "10s"
    variables: tuple[tuple[str, str], ...] = ()  # (name, value)

    def get(self, path, **parameters):
        """The answer's data; ValueError with Prometheus' words when it has none."""
        request = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters.get('query', path)}: {error.read().decode()}") from error

    def filled_in(self, text):
        """Grafana's variables replaced, the longest name first."""
        values = {"__interval": f"{max(1, round(self.step))}s", "__rate_interval": self.rate_interval, "__range": f"{max(1, round(self.end - self.start))}s", **dict(self.variables)}
        for name in sorted(values, key=len, reverse=True):
            text = text.replace(f"${name}", values[name])
        return text

    def series(self, target):
        """[(labels, [(time, value)])] of a panel's target; what is not a number is left out."""
        query = self.filled_in(target["expr"])
        if target.get("instant"):
            result = [(found["metric"], [found["value"]]) for found in self.get("query", query=query, time=self.end)["result"]]
        else:
            result = [(found["metric"], found["values"]) for found in self.get("query_range", query=query, start=self.start, end=self.end, step=self.step)["result"]]
        return [(labels, [(time, float(value)) for time, value in points if math.isfinite(float(value))]) for labels, points in result]

    def values_of(self, query):
        """What a variable offers: label_values(SERIES, LABEL)."""
        series, label = self.filled_in(query).removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        return self.get(f"label/{label}/values", **{"match[]": series})


def panels_of(dashboard):
    """The rows' titles and the panels of a dashboard's JSON, in order."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def legend_of(target, labels):
    """The target's legend with the labels in it; their values without a legend."""
    legend = target.get("legendFormat", "")
    if not legend:
        return ", ".join(labels.values())
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return legend

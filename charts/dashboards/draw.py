#!/usr/bin/env python3
"""Draws what each panel of the dashboards gets from a Prometheus: docs/images/dashboard-*.png, without a Grafana.

draw.py --prometheus http://127.0.0.1:9090 --minutes 60 --set namespace=default --set job=dark-room --out docs/images
"""

import argparse
import datetime
import io
import json
import pathlib
import time

import matplotlib
import PIL.Image

from ask import Prometheus, legend_of, panels_of

matplotlib.use("Agg")
import matplotlib.dates  # noqa: E402
import matplotlib.pyplot  # noqa: E402

DASHBOARDS = pathlib.Path(__file__).resolve().parents[1] / "trainyard" / "dashboards"
INCHES_WIDE, INCHES_PER_ROW, COLUMNS = 16, 0.31, 24
COLORS = {"green": "#2f8f4e", "orange": "#d97a00", "red": "#c4162a", "text": "#1f2430"}
AT_MOST = 300_000  # bytes of a picture


def in_unit(value, unit):
    """A value as Grafana would write it, or nearly so."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "bytes":
        for prefix in ("", "Ki", "Mi", "Gi"):
            if abs(value) < 1024 or prefix == "Gi":
                return f"{value:.3g} {prefix}B"
            value /= 1024
    if unit in ("s", "dtdurations"):
        for seconds, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
            if abs(value) >= seconds:
                return f"{value / seconds:.3g} {name}"
        return f"{1000 * value:.3g} ms" if value else "0 s"
    return f"{value:.5g}" + {"cps": " /s", "ops": " /s", "reqps": " /s"}.get(unit, "")


def color_at(panel, value):
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return COLORS[[step["color"] for step in steps if step.get("value") is None or value >= step["value"]][-1]]


def last_values(panel, prometheus):
    """[(name, value)], of each series the last one."""
    found = []
    for target in panel["targets"]:
        found += [(legend_of(target, labels), points[-1][1]) for labels, points in prometheus.series(target) if points]
    return found


def draw_number(axes, panel, prometheus):
    axes.axis("off")
    found = last_values(panel, prometheus)
    names = panel["options"].get("textMode") == "name"
    text = "\n".join(name if names else in_unit(value, panel["fieldConfig"]["defaults"]["unit"]) for name, value in found) or "no data"
    axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=17 if len(text) < 14 else 12, color=color_at(panel, found[0][1]) if found else "grey")


def draw_bars(axes, panel, prometheus):
    found = last_values(panel, prometheus)[::-1]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.barh(range(len(found)), [value for _, value in found], color=[color_at(panel, value) if len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1 else "#3b78c4" for _, value in found])
    axes.set_yticks(range(len(found)), [name for name, _ in found])
    axes.set_xticks([])
    for i, (_, value) in enumerate(found):
        axes.text(value, i, " " + in_unit(value, unit), va="center", fontsize=8)
    axes.set_xlim(0, 1.3 * panel["fieldConfig"]["defaults"].get("max", max([value for _, value in found] + [1e-9])))


def draw_series(axes, panel, prometheus):
    look, unit = panel["fieldConfig"]["defaults"], panel["fieldConfig"]["defaults"]["unit"]
    curves = []
    for target in panel["targets"]:
        curves += [(legend_of(target, labels), dict(points)) for labels, points in prometheus.series(target) if points]
    times = sorted({moment for _, curve in curves for moment in curve})
    shown = [datetime.datetime.fromtimestamp(moment, datetime.timezone.utc) for moment in times]
    nothing = float("nan")
    if look["custom"]["drawStyle"] == "bars":
        base = [0] * len(times)
        for name, curve in curves:
            heights = [curve.get(moment, 0) for moment in times]
            axes.bar(shown, heights, bottom=base, label=name, width=datetime.timedelta(seconds=prometheus.step))
            base = [below + height for below, height in zip(base, heights)]
    elif look["custom"].get("stacking", {}).get("mode") == "normal":
        axes.stackplot(shown, [[curve.get(moment, 0) for moment in times] for _, curve in curves], labels=[name for name, _ in curves], alpha=0.7)
    else:
        for name, curve in curves:
            axes.plot(shown, [curve.get(moment, nothing) for moment in times], label=name, linewidth=1.1, marker="." if len(curve) < 3 else "")
    top = max([value for _, curve in curves for value in curve.values()] + [0])
    for step in look["thresholds"]["steps"]:
        if step.get("value") is not None and step["value"] <= 2 * top:
            axes.axhline(step["value"], color=COLORS[step["color"]], linewidth=0.8, linestyle="--")
    if look["custom"].get("scaleDistribution", {}).get("type") == "log":
        axes.set_yscale("log")
    elif look.get("min") == 0:
        axes.set_ylim(bottom=-0.03 * top if top else -0.03, top=None if top else 1)  # a line at 0 is seen
    axes.yaxis.set_major_formatter(lambda value, _: in_unit(value, unit))
    axes.xaxis.set_major_locator(matplotlib.dates.AutoDateLocator(minticks=2, maxticks=5))
    axes.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M:%S"))
    axes.grid(alpha=0.25)
    if curves:
        axes.legend(fontsize=6.5, ncols=4, loc="upper left", bbox_to_anchor=(0, -0.13), frameon=False, handlelength=1.2, columnspacing=1)


def draw(name, prometheus):
    """The picture of a dashboard, as PNG."""
    dashboard = json.loads((DASHBOARDS / f"{name}.json").read_text())
    panels = list(panels_of(dashboard))
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + 1
    figure = matplotlib.pyplot.figure(figsize=(INCHES_WIDE, rows * INCHES_PER_ROW), facecolor="white")
    figure.text(0.01, 1 - 0.6 / rows, dashboard["title"], fontsize=15, va="center", weight="bold")
    for panel in panels:
        place = panel["gridPos"]
        left, top = place["x"] / COLUMNS, 1 - (place["y"] + 1) / rows
        if panel["type"] == "row":
            figure.text(left + 0.01, top - 0.5 / rows, panel["title"], fontsize=11, va="center", color="#555555")
            continue
        number = panel["type"] == "stat"
        width, height = place["w"] / COLUMNS, place["h"] / rows
        inside = (0.005, 0.01, 0.95, 0.7) if number else (0.05 if panel["type"] == "timeseries" else 0.07, 0.24, 0, 0)
        box = (left + inside[0], top - height + (0.2 if number else 1.9) / rows, width - inside[0] - 0.012, height - (1.2 if number else 3) / rows)
        axes = figure.add_axes(box)
        axes.tick_params(labelsize=7)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_title(panel["title"], fontsize=9, loc="center" if number else "left")
        {"stat": draw_number, "bargauge": draw_bars, "timeseries": draw_series}[panel["type"]](axes, panel, prometheus)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=75, format="png")
    matplotlib.pyplot.close(figure)
    small = io.BytesIO()
    PIL.Image.open(drawn).convert("P", palette=PIL.Image.Palette.ADAPTIVE, colors=64).save(small, "png", optimize=True)
    return small.getvalue()


def write_all(prometheus, out):
    for path in sorted(DASHBOARDS.glob("*.json")):
        picture = draw(path.stem, prometheus)
        if len(picture) >= AT_MOST:
            raise ValueError(f"{path.stem}: the picture has {len(picture)} bytes; allowed: fewer than {AT_MOST}")
        (pathlib.Path(out) / f"dashboard-{path.stem}.png").write_bytes(picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--minutes", type=float, default=60, help="how much is shown")
    parser.add_argument("--rate-interval", default="2m")
    parser.add_argument("--set", action="append", default=[], metavar="VARIABLE=VALUE")
    parser.add_argument("--out", default="docs/images")
    options = parser.parse_args()
    seconds, now = 60 * options.minutes, time.time()
    write_all(Prometheus(options.prometheus, now - seconds, now, max(1, seconds / 200), options.rate_interval, tuple(tuple(one.split("=", 1)) for one in options.set)), options.out)


if __name__ == "__main__":
    main()

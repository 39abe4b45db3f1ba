#!/usr/bin/env python3
"""Writes charts/trainyard/dashboards/*.json with Grafana's own SDK, of the panels in of_*.py.

build.py          writes them
build.py --check  says whether they are what would be written
"""

import itertools
import pathlib
import sys

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as dashboards
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models

import of_fleet
import of_job
import of_operator

OUT = pathlib.Path(__file__).resolve().parents[1] / "trainyard" / "dashboards"
ALL = {"job": of_job.DASHBOARD, "fleet": of_fleet.DASHBOARD, "operator": of_operator.DASHBOARD}
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TALL, SHORT = 8, 4  # rows of Grafana's grid


def query(number, asked, kind):
    made = prometheus.Dataquery().ref_id(chr(ord("A") + number)).expr(asked.expr).datasource(SOURCE)
    if asked.legend:
        made.legend_format(asked.legend)
    return made.instant() if asked.instant or kind == "stat" else made.range()


def time_series(panel):
    legend = common.VizLegendOptions().display_mode(looks.LegendDisplayMode.LIST).placement(looks.LegendPlacement.BOTTOM).show_legend(True).calcs([])
    made = (
        timeseries.Panel()
        .height(TALL)
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
        .draw_style(looks.GraphDrawStyle.BARS if panel.bars else looks.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(60 if panel.bars else 30 if panel.stacked else 5)
        .show_points(looks.VisibilityMode.NEVER)
    )
    if panel.stacked:
        made.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if panel.log:
        made.scale_distribution(common.ScaleDistributionConfig().type(looks.ScaleDistribution.LOG).log(10))
    if panel.thresholds:
        made.thresholds_style(common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.LINE))
    return made


def last_value():
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)


def number(panel):
    text = looks.BigValueTextMode.NAME if panel.names else looks.BigValueTextMode.AUTO
    return stat.Panel().height(SHORT).reduce_options(last_value()).graph_mode(looks.BigValueGraphMode.NONE).color_mode(looks.BigValueColorMode.VALUE).text_mode(text)


def bars(panel):
    return bargauge.Panel().height(TALL).reduce_options(last_value()).display_mode(looks.BarGaugeDisplayMode.BASIC).orientation(looks.VizOrientation.HORIZONTAL)


def panel_of(panel):
    made = {"timeseries": time_series, "stat": number, "bargauge": bars}[panel.kind](panel)
    made.title(panel.title).description(panel.description).span(panel.width).unit(panel.unit).datasource(SOURCE)
    if panel.low is not None:
        made.min(panel.low)
    if panel.high is not None:
        made.max(panel.high)
    if panel.decimals is not None:
        made.decimals(panel.decimals)
    steps = [models.Threshold(value=None, color=panel.base if panel.thresholds else "text")]
    steps += [models.Threshold(value=value, color=color) for color, value in panel.thresholds]
    made.thresholds(dashboards.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    if panel.link:
        made.data_links([dashboards.DashboardLink("The job's dashboard").url(panel.link)])
    if panel.bars:
        made.interval("1m")  # no bar is of less than a scrape
    for i, asked in enumerate(panel.queries):
        made.with_target(query(i, asked, panel.kind))
    return made


def variable_of(variable):
    made = (
        dashboards.QueryVariable(variable.name)
        .label(variable.label)
        .query(variable.query)
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if variable.everything:
        made.multi(True).include_all(True).all_value(".*").current(models.VariableOption(selected=True, text="All", value="$__all"))
    return made


def dashboard_of(dashboard):
    made = (
        dashboards.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags(["trainyard"])
        .time(dashboard.time_from, "now")
        .refresh("30s")
        .timezone("browser")
        .editable()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboards.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in dashboard.variables:
        made.with_variable(variable_of(variable))
    ids = itertools.count(1)
    for row in dashboard.rows:
        made.with_row(dashboards.Row(row.title).id(next(ids)))
        for panel in row.panels:
            made.with_panel(panel_of(panel).id(next(ids)))
    return made.build()


def text_of(dashboard):
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard_of(dashboard)) + "\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    OUT.mkdir(exist_ok=True)
    for name, dashboard in ALL.items():
        path, text = OUT / f"{name}.json", text_of(dashboard)
        if not arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} is out of date: run make generate")


if __name__ == "__main__":
    main(sys.argv[1:])

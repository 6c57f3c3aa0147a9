"""Building blocks of the dashboards: queries and panels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmaps
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
EVERY = 'job=~"$job", instance=~"$instance"'
"""Matchers common to all selectors: several Gaugeways may share a Prometheus."""
GREEN, YELLOW, RED = "green", "yellow", "red"
HEIGHT, FULL, HALF, THIRD = 8, 24, 12, 8
TOP = 4
"""Height and width of the single-value panels in the first row."""

Unit: TypeAlias = Literal["score", "percentunit", "short", "none", "s", "reqps", "ops", "currencyUSD", "decbytes"]
Built: TypeAlias = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel | statetimeline.Panel
Step: TypeAlias = tuple[float | None, str]
"""(lower bound, colour); the first step has no bound."""


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression with its legend."""

    expr: str
    legend: str
    exemplars: bool = False


def series(name: str, *variables: str, **values: str) -> str:
    """Selector with the dashboard's variables and fixed label values; a leading `~` makes a value a pattern.

    >>> series("gaugeway_verdicts_total", "app", verdict="~pass|fail")
    'gaugeway_verdicts_total{job=~"$job", instance=~"$instance", app=~"$app", verdict=~"pass|fail"}'
    """
    chosen = [f'{variable}=~"${variable}"' for variable in variables]
    fixed = [f'{label}=~"{value[1:]}"' if value[:1] == "~" else f'{label}="{value}"' for label, value in values.items()]
    return f"{name}{{{', '.join([EVERY, *chosen, *fixed])}}}"


def rate(selector: str, *labels: str) -> str:
    """Sum of per-second rates by some labels.

    >>> rate("x_total{}", "app")
    'sum by (app) (rate(x_total{}[$__rate_interval]))'
    """
    return _sum(f"rate({selector}[$__rate_interval])", labels)


def increase(selector: str, window: str, *labels: str) -> str:
    """Sum of increases over a window of fixed length."""
    return _sum(f"increase({selector}[{window}])", labels)


def share(part: str, whole: str) -> str:
    """Ratio of two sums by the same labels; 0 rather than no data if `part` was never counted."""
    return f"({part} or 0 * {whole}) / {whole}"


def quantile(q: float, histogram: str, *labels: str) -> str:
    """Quantile of a histogram's observations; `histogram` selects its buckets."""
    return f"histogram_quantile({q}, {rate(histogram, 'le', *labels)})"


def _sum(inner: str, labels: Sequence[str]) -> str:
    return f"sum by ({', '.join(labels)}) ({inner})" if labels else f"sum({inner})"


def lines(
    title: str,
    description: str,
    unit: Unit,
    *queries: Query,
    width: int = HALF,
    top: float | None = None,
    stacked: Literal["normal", "percent"] | None = None,
    repeat: str | None = None,
) -> timeseries.Panel:
    """Time series panel. `top` fixes the axis to 0 … top; `repeat` creates a panel per value of a variable."""
    panel = timeseries.Panel().show_points(common.VisibilityMode.NEVER).line_width(1)
    panel.fill_opacity(30 if stacked else 0).axis_soft_min(0)
    panel.tooltip(build_common.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    panel.legend(build_common.VizLegendOptions().placement(common.LegendPlacement.BOTTOM).show_legend(show_legend=True))
    if stacked:
        mode = common.StackingMode.NORMAL if stacked == "normal" else common.StackingMode.PERCENT
        panel.stacking(build_common.StackingConfig().mode(mode).group("A"))
    if top is not None:
        panel.min(0).max(top)
    if repeat:
        panel.repeat(repeat).repeat_direction("h").max_per_row(2)
    for letter, query in _lettered(queries):
        panel.with_target(_target(letter, query).range())
    _describe(panel, title, description, unit).span(FULL if repeat else width)
    return panel


def with_bands(panel: timeseries.Panel, names: Iterable[str]) -> timeseries.Panel:
    """Fill between the series `NAME low` and `NAME high`, hiding their lines and legends."""
    hidden = dashboard.DynamicConfigValue(
        id_val="custom.hideFrom", value={"legend": True, "tooltip": False, "viz": False}
    )
    thin = dashboard.DynamicConfigValue(id_val="custom.lineWidth", value=0)
    for name in names:
        low, high = f"{name} low".strip(), f"{name} high".strip()
        panel.override_by_name(
            high,
            [
                hidden,
                thin,
                dashboard.DynamicConfigValue(id_val="custom.fillBelowTo", value=low),
                dashboard.DynamicConfigValue(id_val="custom.fillOpacity", value=15),
            ],
        )
        panel.override_by_name(low, [hidden, thin])
    return panel


def figure(
    title: str, description: str, unit: Unit, expr: str, steps: Sequence[Step], *, names: dict[str, str] | None = None
) -> stat.Panel:
    """Single-value panel coloured by `steps`; `names` maps values to texts."""
    panel = stat.Panel().graph_mode(common.BigValueGraphMode.NONE).color_mode(common.BigValueColorMode.VALUE)
    panel.reduce_options(build_common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.thresholds(_thresholds(steps))
    if names:
        results = {value: dashboard.ValueMappingResult(text=text) for value, text in names.items()}
        panel.mappings([dashboard.ValueMap(options=results)])
    panel.with_target(_target("A", Query(expr, "")).instant())
    _describe(panel, title, description, unit).span(TOP).height(TOP)
    return panel


def listing(title: str, description: str, unit: Unit, columns: Sequence[tuple[str, str]]) -> table.Panel:
    """Table with a row per label set; `columns` are (heading, expression), joined by labels."""
    panel = table.Panel()
    renamed, hidden = {}, {"Time": True, "job": True, "__name__": True}
    for (letter, query), (heading, _) in zip(_lettered([Query(expr, "") for _, expr in columns]), columns, strict=True):
        panel.with_target(_target(letter, query).instant().format(PromQueryFormat.TABLE))
        renamed[f"Value #{letter}"] = heading
    for name, options in (("merge", {}), ("organize", {"excludeByName": hidden, "renameByName": renamed})):
        panel.with_transformation(dashboard.DataTransformerConfig(id_val=name, options=options))
    _describe(panel, title, description, unit).span(FULL)
    return panel


def heat(title: str, description: str, expr: str, *, repeat: str) -> heatmap.Panel:
    """Heat map of a histogram's buckets over time."""
    panel = heatmap.Panel().calculate(calculate=False).repeat(repeat).repeat_direction("h").max_per_row(2)
    panel.y_axis(heatmap.YAxisConfig().unit("none").decimals(2).min(0).max(1)).cell_gap(1)
    panel.color(heatmap.HeatmapColorOptions().mode(heatmaps.HeatmapColorMode.SCHEME).scheme("Blues").steps(32))
    panel.with_target(_target("A", Query(expr, "{{le}}", exemplars=True)).range().format(PromQueryFormat.HEATMAP))
    _describe(panel, title, description, "score").span(FULL)
    return panel


def states(
    title: str, description: str, names: dict[str, tuple[str, str]], *queries: Query, width: int = HALF
) -> statetimeline.Panel:
    """State timeline; `names` maps a value to (text, colour)."""
    results = {value: dashboard.ValueMappingResult(text=text, color=color) for value, (text, color) in names.items()}
    panel = statetimeline.Panel().mappings([dashboard.ValueMap(options=results)]).merge_values(merge_values=True)
    panel.show_value(common.VisibilityMode.NEVER).row_height(0.8)
    for letter, query in _lettered(queries):
        panel.with_target(_target(letter, query).range())
    _describe(panel, title, description, "none").span(width)
    return panel


def _target(letter: str, query: Query) -> prometheus.Dataquery:
    target = prometheus.Dataquery().ref_id(letter).expr(query.expr).legend_format(query.legend).datasource(SOURCE)
    return target.exemplar(exemplar=True) if query.exemplars else target


def _lettered(queries: Iterable[Query]) -> list[tuple[str, Query]]:
    return [(chr(ord("A") + position), query) for position, query in enumerate(queries)]


def _describe(panel: Any, title: str, description: str, unit: Unit) -> Any:
    if unit == "score":  # as on the operator's page
        panel.unit("none").decimals(3)
    else:
        panel.unit(unit)
    return panel.title(title).description(description).datasource(SOURCE).height(HEIGHT)


def _thresholds(steps: Sequence[Step]) -> build.ThresholdsConfig:
    marks = [dashboard.Threshold(value=value, color=color) for value, color in steps]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(marks)

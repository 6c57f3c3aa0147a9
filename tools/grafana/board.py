"""Common parts of the four dashboards: variables, annotations, links, layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard

from gaugeway.data_files import table
from tools.grafana.panels import SOURCE, Built, series

TAG = "gaugeway"
MISSING: Mapping[str, Mapping[str, str]] = table("tools.grafana", "missing.toml")
"""Of each dashboard, what its panels show without data."""
_OPEN_ROWS = 2
"""Rows that are open at first; Grafana queries the panels of a closed row only once it is opened."""
_ALL = dashboard.VariableOption(selected=True, text="All", value="$__all")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A dashboard variable with a label's values; `single` allows one selection only."""

    name: str
    of: str
    single: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard; `rows` are (heading, panels).

    `missing` maps "heading/title" of a panel, its title or its row's heading to what it shows without data: what to do,
    or that all is well.
    """

    uid: str
    title: str
    description: str
    variables: Sequence[Chosen]
    rows: Sequence[tuple[str, Sequence[Built]]]
    missing: Mapping[str, str]

    def build(self) -> dashboard.Dashboard:
        """Build the Grafana dashboard."""
        board = build.Dashboard(self.title).uid(self.uid).description(self.description).tags([TAG]).readonly()
        board.time("now-24h", "now").refresh("1m").timezone("browser").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        board.link(_link()).with_variable(_data_source())
        for chosen in (Chosen("job", "gaugeway_build_info"), Chosen("instance", "gaugeway_build_info")):
            board.with_variable(_variable(chosen))
        for chosen in self.variables:
            board.with_variable(_variable(chosen))
        for annotation in _annotations():
            board.annotation(annotation)
        for number, (heading, panels) in enumerate(self.rows):
            if number < _OPEN_ROWS:
                board.with_row(build.Row(heading))
                for panel in panels:
                    board.with_panel(panel)
                continue
            closed = build.Row(heading).collapsed(collapsed=True)
            for panel in panels:
                closed.with_panel(panel)
            board.with_row(closed)
        built = board.build()
        self._finish(built)
        shown = [*(built.links or ()), *(built.annotations.list_val or ())]
        for item in shown:
            item.placement = None  # the library's default hides them in a menu
        return built

    def _finish(self, built: dashboard.Dashboard) -> None:
        """Number rows and panels, and say what each panel shows without data."""
        heading = ""
        for number, placed in enumerate(_all(built), 1):
            placed.id_val = number
            if isinstance(placed, dashboard.RowPanel):
                heading = placed.title or ""
            else:
                named = (f"{heading}/{placed.title}", placed.title, heading)
                placed.field_config.defaults.no_value = next(
                    self.missing[place] for place in named if place in self.missing
                )


def _all(built: dashboard.Dashboard) -> Iterator[Any]:
    """Yield rows and panels, those inside closed rows included."""
    for placed in built.panels or ():
        yield placed
        if isinstance(placed, dashboard.RowPanel):
            yield from placed.panels


def _data_source() -> build.DatasourceVariable:
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _variable(chosen: Chosen) -> build.QueryVariable:
    """Query variable, refreshed when the time range changes; only `job` and `instance` are never empty."""
    narrowed = {"job": "", "instance": '{job=~"$job"}'}
    text = f"label_values({chosen.of}{narrowed.get(chosen.name, series('', *_before(chosen)))}, {chosen.name})"
    variable = build.QueryVariable(chosen.name).label(chosen.name.title()).datasource(SOURCE)
    variable.query({"query": text, "refId": chosen.name, "qryType": 1}).definition(text)
    variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    variable.sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    if chosen.single:
        return variable.multi(multi=False).include_all(include_all=False)
    every = ".+" if chosen.name in narrowed else ".*"
    return variable.multi(multi=True).include_all(include_all=True).all_value(every).current(_ALL)


def _before(chosen: Chosen) -> tuple[str, ...]:
    return () if chosen.name == "app" else ("app",)


def _annotations() -> list[build.AnnotationQuery]:
    """Annotations that may explain a change: alerts, new versions in the traffic, Gaugeway upgrades, reloads."""
    running = series("gaugeway_build_info")
    first_seen = series("gaugeway_version_first_seen_timestamp_seconds", "app")
    reloads = series("gaugeway_config_reloads_total")
    return [
        _marks(
            "Quality alerts", "red", f"{series('gaugeway_quality_alarm', 'app')} == 1", "{{app}} {{metric}} {{rule}}"
        ),
        _marks(
            "New version in the traffic", "purple", f"1000 * {first_seen}", "{{app}}: {{kind}} {{version}}"
        ).use_value_for_time(use_value_for_time=True),
        _marks(
            "New version of Gaugeway",
            "blue",
            f"group by (job, version) ({running}) unless group by (job, version) ({running} offset 5m)",
            "{{job}} {{version}}",
        ),
        _marks(
            "Configuration reloaded",
            "orange",
            f"sum by (instance, result) (increase({reloads}[1m])) > 0",
            "{{instance}} {{result}}",
        ),
    ]


def _marks(name: str, color: str, expr: str, title: str) -> build.AnnotationQuery:
    query = build.AnnotationQuery().name(name).datasource(SOURCE).enable(enable=True).hide(hide=False)
    return query.icon_color(color).expr(expr).title_format(title)


def _link() -> build.DashboardLink:
    link = build.DashboardLink("Gaugeway").type(dashboard.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.include_vars(include_vars=True).keep_time(keep_time=True).as_dropdown(as_dropdown=False)

"""Dashboards as data: their panels, targets, variables and annotations, and what Grafana would send for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "dashboards"
Dashboard = dict[str, Any]

ANY = {"job": ".+", "instance": ".+", "app": ".*", "metric": ".*", "model": ".*"}
LABEL_VALUES = re.compile(r"label_values\((?P<selector>.*),\s*(?P<label>\w+)\)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")


@dataclass(frozen=True)
class Asked:
    """One query of a dashboard, where it is, and its text as Prometheus gets it."""

    where: str
    expr: str
    kind: str = "panel"


def load() -> dict[str, Dashboard]:
    """File name -> dashboard, as shipped."""
    return {path.name: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("grafana/*.json"))}


def panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Every panel that is no row, those inside closed rows included."""
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels", ())


def targets(dashboard: Dashboard) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every query with its panel."""
    for panel in panels(dashboard):
        for target in panel.get("targets") or ():
            yield panel, target


def variables(dashboard: Dashboard, kind: str) -> list[dict[str, Any]]:
    """The template variables of one type."""
    return [one for one in dashboard["templating"]["list"] if one["type"] == kind]


def text_of(variable: dict[str, Any]) -> str:
    """The query of a variable; Grafana knows it bare and in an object."""
    query = variable["query"]
    return query["query"] if isinstance(query, dict) else query


def sent(expr: str, values: Mapping[str, str] = ANY, *, rate_interval: str = "1m") -> str:
    """The expression with every variable replaced; one that nobody knows stays, and is a syntax error."""
    known = {"__rate_interval": rate_interval, "__interval": "1s", "__range": "1h", **values}
    return _VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), expr)


def asked(dashboard: Dashboard, values: Mapping[str, str] = ANY, *, rate_interval: str = "1m") -> Iterator[Asked]:
    """Every query of panels and annotations, as sent."""
    title = dashboard["title"]
    for panel, target in targets(dashboard):
        where = f"{title}: {panel['title']} {target['refId']}"
        yield Asked(where, sent(target["expr"], values, rate_interval=rate_interval))
    for one in dashboard["annotations"]["list"]:
        if "expr" in one:
            yield Asked(f"{title}: annotation {one['name']}", sent(one["expr"], values), "annotation")

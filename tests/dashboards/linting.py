"""What Grafana's dashboard-linter asks of a dashboard, those of its rules that concern Prometheus, for classic JSON.

Each rule is a function that returns what is wrong. Names are the linter's.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable

from tests.dashboards.reading import LABEL_VALUES, Dashboard, panels, sent, targets, text_of, variables
from tests.support.product import needs

DATA_SOURCES = {"$datasource", "${datasource}"}
UNITS = {
    *("none", "short", "percent", "percentunit", "bytes", "decbytes", "Bps", "s", "ms", "ns", "m", "h", "d"),
    *("ops", "reqps", "rps", "cps", "currencyUSD", "bool", "bool_yes_no", "dateTimeAsIso"),
}
"""Of the units Grafana knows, those that our series could have."""
MATCHERS = {"job": 'job=~"$job"', "instance": 'instance=~"$instance"'}

_SELECTOR = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\{(?P<matchers>[^}]*)\}(?:\[(?P<range>[^\]]*)\])?")
_CALL = re.compile(r"(?P<function>\w+)\($")
_BARE = re.compile(r"\bgaugeway_\w+")

Rule = Callable[[Dashboard], Iterable[str]]


def template_datasource(dashboard: Dashboard) -> Iterable[str]:
    found = variables(dashboard, "datasource")
    if [(one["name"], one["label"], one["query"]) for one in found] != [("datasource", "Data source", "prometheus")]:
        yield "one variable `datasource`, labelled Data source, for Prometheus"


def template_job(dashboard: Dashboard) -> Iterable[str]:
    return _template(dashboard, "job")


def template_instance(dashboard: Dashboard) -> Iterable[str]:
    return _template(dashboard, "instance")


def template_label_promql(dashboard: Dashboard) -> Iterable[str]:
    for variable in variables(dashboard, "query"):
        match = LABEL_VALUES.fullmatch(text_of(variable))
        if match is None:
            yield f"{variable['name']}: not label_values(selector, label)"
        elif problem := syntax_error([sent(match["selector"])]):
            yield f"{variable['name']}: {problem}"


def template_on_time_change_reload(dashboard: Dashboard) -> Iterable[str]:
    for variable in variables(dashboard, "query"):
        if variable.get("refresh") != 2:
            yield f"{variable['name']}: refresh is {variable.get('refresh')}, not 2"


def panel_datasource(dashboard: Dashboard) -> Iterable[str]:
    for panel in panels(dashboard):
        if (panel.get("datasource") or {}).get("uid") not in DATA_SOURCES:
            yield f"{panel['title']}: {panel.get('datasource')}"


def panel_title_description(dashboard: Dashboard) -> Iterable[str]:
    for panel in panels(dashboard):
        if not panel.get("title") or not panel.get("description"):
            yield f"panel {panel['id']}: no title or no description"


def panel_units(dashboard: Dashboard) -> Iterable[str]:
    for panel in panels(dashboard):
        unit = panel["fieldConfig"]["defaults"].get("unit")
        if unit not in UNITS:
            yield f"{panel['title']}: unit {unit}"


def panel_no_targets(dashboard: Dashboard) -> Iterable[str]:
    for panel in panels(dashboard):
        if not panel.get("targets"):
            yield f"{panel['title']}: no query"


def target_promql(dashboard: Dashboard) -> Iterable[str]:
    expressions = [sent(target["expr"]) for _, target in targets(dashboard)]
    if problem := syntax_error(expressions):
        yield problem


def target_rate_interval(dashboard: Dashboard) -> Iterable[str]:
    for where, expr, selector in _selectors(dashboard):
        call = _CALL.search(expr[: selector.start()])
        if call and call["function"] in ("rate", "irate") and selector["range"] != "$__rate_interval":
            yield f"{where}: [{selector['range']}] in {call['function']}"


def target_job(dashboard: Dashboard) -> Iterable[str]:
    return _matched(dashboard, MATCHERS["job"])


def target_instance(dashboard: Dashboard) -> Iterable[str]:
    return _matched(dashboard, MATCHERS["instance"])


def target_counter_agg(dashboard: Dashboard) -> Iterable[str]:
    for where, expr, selector in _selectors(dashboard):
        call = _CALL.search(expr[: selector.start()])
        counted = call and selector["range"] and call["function"] in ("rate", "irate", "increase")
        if selector["name"].endswith("_total") and not counted:
            yield f"{where}: {selector['name']} is a counter"


def uneditable_dashboard(dashboard: Dashboard) -> Iterable[str]:
    if dashboard.get("editable", True):
        yield "editable"


RULES: dict[str, Rule] = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": template_job,
    "template-instance-rule": template_instance,
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_on_time_change_reload,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-job-rule": target_job,
    "target-instance-rule": target_instance,
    "target-counter-agg-rule": target_counter_agg,
    "uneditable-dashboard": uneditable_dashboard,
}


def syntax_error(expressions: Iterable[str]) -> str:
    """What Prometheus' own parser has against some expressions; empty when it has nothing."""
    rules = "".join(f"  - record: checked:{n}\n    expr: |-\n      {one}\n" for n, one in enumerate(expressions))
    text = f"groups:\n- name: checked\n  rules:\n{rules}"
    checked = subprocess.run(
        [needs("promtool"), "check", "rules", "--lint=none", "/dev/stdin"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    return checked.stderr if checked.returncode else ""


def _template(dashboard: Dashboard, name: str) -> Iterable[str]:
    found = [one for one in variables(dashboard, "query") if one["name"] == name]
    if not found:
        yield f"no variable {name}"
    for one in found:
        if one["datasource"]["uid"] not in DATA_SOURCES:
            yield f"{name}: data source {one['datasource']['uid']}"
        if (one["label"], one["multi"], one["allValue"]) != (name.title(), True, ".+"):
            yield f"{name}: label {one['label']}, multi {one['multi']}, all {one['allValue']}"


def _selectors(dashboard: Dashboard) -> Iterable[tuple[str, str, re.Match[str]]]:
    for panel, target in targets(dashboard):
        for selector in _SELECTOR.finditer(target["expr"]):
            yield f"{panel['title']} {target['refId']}", target["expr"], selector


def _matched(dashboard: Dashboard, matcher: str) -> Iterable[str]:
    for where, _, selector in _selectors(dashboard):
        if matcher not in selector["matchers"]:
            yield f"{where}: {selector['name']} without {matcher}"
    for panel, target in targets(dashboard):  # a selector without any matcher has no braces
        for name in _BARE.findall(_SELECTOR.sub("", target["expr"])):
            yield f"{panel['title']} {target['refId']}: {name} without {matcher}"

"""The shipped dashboards: generated, well-formed, and as Grafana's own linter wants them."""

import copy
import doctest
import json
from pathlib import Path

import pytest
import yaml

from tests.dashboards import generator
from tests.dashboards.linting import RULES
from tests.dashboards.reading import FOLDER, load, panels, sent, targets, text_of, variables

DASHBOARDS = load()


def test_what_is_shipped_is_what_the_generator_writes():
    shipped = {path.name: path.read_text("utf-8") for path in (FOLDER / "grafana").glob("*.json")}
    assert shipped == generator.build.rendered()


def test_the_examples_of_the_generator_are_right():
    ran = doctest.testmod(generator.panels)
    assert (ran.failed, ran.attempted > 0) == (0, True)


@pytest.mark.parametrize("name", DASHBOARDS)
@pytest.mark.parametrize("rule", RULES)
def test_the_linter_has_nothing_to_say(name, rule):
    assert list(RULES[rule](DASHBOARDS[name])) == []


def first_target(board):
    return next(target for _, target in targets(board))


def broken_target(change):
    def apply(board):
        target = first_target(board)
        target["expr"] = change(target["expr"])

    return apply


def variable(board, name):
    return next(one for one in board["templating"]["list"] if one["name"] == name)


RATE = 'rate(gaugeway_score_count{job=~"$job", instance=~"$instance"}[5m])'
BARE = 'sum(gaugeway_requests_total{job=~"$job", instance=~"$instance"})'
BREAKAGES = {
    "template-datasource-rule": lambda board: variable(board, "datasource").update(name="source"),
    "template-job-rule": lambda board: variable(board, "job").update(allValue=".*"),
    "template-instance-rule": lambda board: variable(board, "instance").update(multi=False),
    "template-label-promql-rule": lambda board: variable(board, "app").update(query="label_values(x{, app)"),
    "template-on-time-change-reload-rule": lambda board: variable(board, "app").update(refresh=1),
    "panel-datasource-rule": lambda board: next(panels(board)).update(datasource={"uid": "prometheus"}),
    "panel-title-description-rule": lambda board: next(panels(board)).update(description=""),
    "panel-units-rule": lambda board: next(panels(board))["fieldConfig"]["defaults"].update(unit="points"),
    "panel-no-targets-rule": lambda board: next(panels(board)).update(targets=[]),
    "target-promql-rule": broken_target(lambda expr: expr + ")"),
    "target-rate-interval-rule": broken_target(lambda _: RATE),
    "target-job-rule": broken_target(lambda _: 'max(gaugeway_queue_depth{instance=~"$instance"})'),
    "target-instance-rule": broken_target(lambda _: "max(gaugeway_queue_depth)"),
    "target-counter-agg-rule": broken_target(lambda _: BARE),
    "uneditable-dashboard": lambda board: board.update(editable=True),
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_the_linter_finds_what_it_is_for(rule):
    board = copy.deepcopy(DASHBOARDS["quality.json"])
    BREAKAGES[rule](board)
    assert list(RULES[rule](board))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_says_what_to_do_or_that_all_is_well_where_there_is_no_data(name):
    board, missing = DASHBOARDS[name], generator.build.BOARDS[name]().missing
    shown = {panel["title"]: panel["fieldConfig"]["defaults"].get("noValue", "") for panel in panels(board)}
    assert [title for title, text in shown.items() if not text or "no data" in text.lower()] == []
    rows = {row["title"] for row in board["panels"] if row["type"] == "row"}
    places = {part for key in missing for part in key.split("/")}
    assert places <= {*shown, *rows}, "of a panel or row that is not there"
    tiles = {panel["title"] for panel in panels(board) if panel["type"] == "stat"}
    assert [title for title in tiles if len(shown[title]) > 24] == [], "too long for a tile"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_scores_have_the_unit_that_they_have_on_the_operators_page(name):
    ours = ("gaugeway_quality_mean", "gaugeway_quality_corrected_mean", "gaugeway_score_sum", "gaugeway_score_bucket")
    for panel, target in targets(DASHBOARDS[name]):
        if target["expr"].startswith(ours) or any(f"({one}" in target["expr"] for one in ours):
            defaults = panel["fieldConfig"]["defaults"]
            assert (defaults["unit"], defaults.get("decimals")) == ("none", 3), panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_is_used_and_none_is_unknown(name):
    board = DASHBOARDS[name]
    text = json.dumps([board["panels"], board["annotations"], [text_of(one) for one in variables(board, "query")]])
    for one in board["templating"]["list"]:
        assert f"${one['name']}" in text or f"${{{one['name']}}}" in text, one["name"]
    for _, target in targets(board):
        assert "$" not in sent(target["expr"], {one["name"]: "x" for one in board["templating"]["list"]})


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_ids_of_their_own_and_do_not_overlap(name):
    board = DASHBOARDS[name]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in board["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_dashboards_are_told_apart_and_of_the_classic_model():
    assert len({board["uid"] for board in DASHBOARDS.values()}) == len(DASHBOARDS) == 4
    assert {board["schemaVersion"] for board in DASHBOARDS.values()} == {42}


def test_repeated_panels_follow_a_variable_that_there_is():
    for board in DASHBOARDS.values():
        names = {one["name"] for one in board["templating"]["list"] if one.get("multi")}
        assert {panel["repeat"] for panel in panels(board) if "repeat" in panel} <= names


def test_provisioning_reaches_traces_and_the_folder_of_the_dashboards():
    folder = FOLDER / "grafana" / "provisioning"
    read = {path.parent.name: yaml.safe_load(path.read_text()) for path in folder.glob("*/*.yml")}
    sources = {one["uid"]: one for one in read["datasources"]["datasources"]}
    (destination,) = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert destination["name"] == "trace_id"
    assert sources[destination["datasourceUid"]]["type"] == "tempo"
    (provider,) = read["dashboards"]["providers"]
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    assert Path(provider["options"]["path"]).is_absolute()
    interval = yaml.safe_load((FOLDER / "prometheus" / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert sources["prometheus"]["jsonData"]["timeInterval"] == interval

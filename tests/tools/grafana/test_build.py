"""What is shipped is what the generator writes; every panel says what it shows without data."""

import doctest

import pytest

from tests.dashboards.reading import FOLDER, load, panels
from tests.tools.grafana import generator

DASHBOARDS = load()


def test_what_is_shipped_is_what_the_generator_writes():
    shipped = {path.name: path.read_text("utf-8") for path in (FOLDER / "grafana").glob("*.json")}
    assert shipped == generator.build.rendered()


def test_the_examples_of_the_generator_are_right():
    ran = doctest.testmod(generator.panels)
    assert (ran.failed, ran.attempted > 0) == (0, True)


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

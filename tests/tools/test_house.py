"""What `tools/house.py` counts."""

import ast

import pytest
from click.testing import CliRunner

from tools import house

MODULE = '''"""A docstring.

Of three lines."""

import gaugeway.records  # a comment
from monitors.analysis import quality, series


class Settings(Table):
    """Keys."""

    rate: float = 0.25
    many: int = 2
'''


def figures(name, text=MODULE):
    return house.figures_of(name, text, ast.parse(text))


def test_lines_without_blanks_comments_and_docstrings_are_counted():
    assert figures("gateway/config.py")["product SLOC"] == 5


def test_fields_of_tables_are_configuration_keys():
    assert figures("gateway/config.py")["configuration keys"] == 2


@pytest.mark.parametrize(
    ("name", "figure", "number"),
    [
        ("gateway/config.py", "names the data plane takes from the evaluation plane", 2),
        ("gaugeway/storage/x.py", "names the shared ground takes from a plane (outside cli)", 2),
        ("gaugeway/cli/x.py", "names the shared ground takes from a plane (outside cli)", 0),
        ("monitors/config.py", "names the evaluation plane takes from the data plane", 0),
        ("gaugeway/prompts/x.py", "hand-set numbers in prompt reading", 1),
        ("gaugeway/text/x.py", "hand-set numbers in prompt reading", 0),
    ],
)
def test_what_counts_depends_on_the_package(name, figure, number):
    assert figures(name)[figure] == number


def test_a_tall_assignment_of_strings_is_a_word_list():
    words = "WORDS = (\n" + '    "word",\n' * 8 + ")\n"
    assert figures("gaugeway/text/x.py", words)["lines of word lists in Python"] == 10
    numbers = words.replace('"word"', "3")
    assert figures("gaugeway/text/x.py", numbers)["lines of word lists in Python"] == 0


@pytest.mark.parametrize(("limit", "status"), [(10, 0), (9, 1)])
def test_only_with_limits_it_fails_above_one(monkeypatch, limit, status):
    monkeypatch.setattr(house, "LIMITS", {"product modules": limit})
    monkeypatch.setattr(house, "measure", lambda *_, **__: (house.Counter({"product modules": 10}), house.Counter()))
    assert CliRunner().invoke(house.main, ["--limits"]).exit_code == status
    assert CliRunner().invoke(house.main, []).exit_code == 0


def test_a_target_is_shown_beside_the_limit_and_not_enforced(monkeypatch):
    monkeypatch.setattr(house, "LIMITS", {"product modules": 12})
    monkeypatch.setattr(house, "TARGETS", {"product modules": 8})
    monkeypatch.setattr(house, "measure", lambda *_, **__: (house.Counter({"product modules": 10}), house.Counter()))
    result = CliRunner().invoke(house.main, ["--limits"])
    assert "10  product modules (limit 12, target 8)\n" in result.output
    assert result.exit_code == 0


def test_every_target_is_below_a_limit():
    assert all(target < house.LIMITS[name] for name, target in house.TARGETS.items())


def test_the_room_of_a_module_is_the_folder_below_its_package():
    assert [house.room(name) for name in ("gaugeway/text/words.py", "gaugeway/records.py", "a/b/c/d.py")] == [
        "gaugeway/text",
        "gaugeway",
        "a/b",
    ]

"""Statements of an engine: the names that its code uses are those in its files."""

import re
from pathlib import Path

import pytest

from gaugeway.storage.engines import scripts
from gaugeway.storage.engines.scripts import statements

ENGINES = Path(scripts.__file__).parent
FILES = sorted(path.relative_to(ENGINES).as_posix() for path in ENGINES.glob("*/*.sql"))


@pytest.mark.parametrize("file", FILES)
def test_every_statement_that_is_used_is_there(file):
    code = (ENGINES / file).with_suffix(".py").read_text("utf-8")
    used = set(re.findall(r'_SQL\["(\w+)"\]', code))
    assert used
    assert used <= set(statements(file))


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "clickhouse"])
def test_the_statements_of_every_store_are_there(engine):
    code = (ENGINES / "sql_store.py").read_text("utf-8").partition("class RollupStore")[0]
    used = set(re.findall(r'_sql\["(\w+)"\]', code))
    assert {"conversation", "ids"} <= used <= set(statements(f"{engine}/store.sql"))


def test_a_statement_has_neither_its_name_nor_comments():
    found = statements("sqlite/store.sql")
    assert found["ids"] == "SELECT id FROM samples WHERE id > ?1 ORDER BY id LIMIT ?2"
    assert not any("-- " in text for text in found.values())

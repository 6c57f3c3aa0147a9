"""What several commands print in the same way."""

import click
import pytest

from gaugeway.cli.shared import NumberRange, fail, print_table, record, utc
from gaugeway.settings import ConfigError


def test_a_problem_ends_the_command_and_each_of_several_has_a_line(capsys):
    for problem in (ConfigError(["a: wrong", "b: wrong"]), OSError("gone")):
        with pytest.raises(SystemExit) as ended:
            fail(problem)
        assert ended.value.code == 2
    assert capsys.readouterr().err == "gaugeway: a: wrong\ngaugeway: b: wrong\ngaugeway: gone\n"


def test_columns_are_as_wide_as_their_longest_cell(capsys):
    print_table([("ID", "TIME"), ("key_1", utc(0.0))], "none")
    assert capsys.readouterr().out == "ID     TIME\nkey_1  1970-01-01T00:00:00Z\n"
    print_table([("ID", "TIME")], "none")
    assert capsys.readouterr().out == "none\n"


def test_a_change_that_cannot_be_recorded_is_told(tmp_path, capsys):
    record(tmp_path, "key_create", key="k")
    assert '"action":"key_create"' in (tmp_path / "audit.log").read_text()
    (tmp_path / "file").touch()
    record(tmp_path / "file", "key_create")
    assert capsys.readouterr().err.startswith("gaugeway: not in the audit log: ")


@pytest.mark.parametrize("given", ["nan", "NaN", "2", "x"])
def test_a_number_out_of_bounds_or_none_is_refused(given):
    with pytest.raises(click.BadParameter):
        NumberRange(0, 1).convert(given, None, None)


def test_a_number_within_bounds_is_taken():
    assert NumberRange(0, 1).convert("0.25", None, None) == 0.25

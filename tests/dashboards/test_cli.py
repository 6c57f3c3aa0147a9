"""`gaugeway dashboards DIR` writes what is shipped, and nothing of the reader's own is lost."""

from click.testing import CliRunner

from dashboards.cli import dashboards, shipped
from tests.dashboards.reading import FOLDER


def run(*arguments):
    return CliRunner().invoke(dashboards, [str(one) for one in arguments])


def files(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_everything_is_written_and_named(tmp_path):
    result = run(tmp_path / "new")
    assert result.exit_code == 0
    written = files(tmp_path / "new")
    assert sorted(str(tmp_path / "new" / name) for name in written) == result.output.splitlines()
    for name in ("grafana/quality.json", "prometheus/gaugeway.rules.yml", "alertmanager/alertmanager.yml"):
        assert written[name] == (FOLDER / name).read_bytes()
    assert set(written) == set(shipped())


def test_a_second_time_changes_nothing(tmp_path):
    run(tmp_path)
    result = run(tmp_path)
    assert (result.exit_code, result.output) == (0, "")


def test_a_file_that_was_changed_is_not_replaced_unless_told_so(tmp_path):
    run(tmp_path)
    own = tmp_path / "prometheus" / "gaugeway.rules.yml"
    own.write_text("groups: []\n")
    (tmp_path / "grafana" / "quality.json").unlink()
    result = run(tmp_path)
    assert result.exit_code == 2
    assert str(own) in result.output
    assert own.read_text() == "groups: []\n"
    assert not (tmp_path / "grafana" / "quality.json").exists()
    assert run(tmp_path, "--force").exit_code == 0
    assert own.read_bytes() == (FOLDER / "prometheus" / "gaugeway.rules.yml").read_bytes()


def test_a_file_in_place_of_the_directory_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("")
    assert run(tmp_path / "taken").exit_code == 2

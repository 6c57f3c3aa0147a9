"""`gaugeway dashboards DIR` writes what is shipped, and nothing of the reader's own is lost."""

import subprocess

import pytest
import yaml
from click.testing import CliRunner

from dashboards import runbooks
from gaugeway.cli.dashboards import dashboards, shipped
from tests.dashboards.reading import FOLDER
from tests.support.product import needs


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
    assert sorted(str(tmp_path / "new" / name) for name in written) == result.stdout.splitlines()
    for name in ("grafana/quality.json", "prometheus/gaugeway.rules.yml", "alertmanager/alertmanager.yml"):
        assert written[name] == (FOLDER / name).read_bytes()
    assert set(written) == set(shipped())


def test_a_second_time_changes_nothing(tmp_path):
    run(tmp_path)
    result = run(tmp_path)
    assert (result.exit_code, result.stdout) == (0, "")


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


def alerts_in(directory):
    """The annotations of every alert in the rules that were written."""
    rules = yaml.safe_load((directory / "prometheus" / "gaugeway.rules.yml").read_text())
    return [
        (rule["alert"], rule["annotations"]) for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    ]


def unit_tests_pass(directory):
    path = directory / "prometheus" / "tests" / "gateway.test.yml"  # a quick one
    return subprocess.run([needs("promtool"), "test", "rules", path], check=False, capture_output=True).returncode == 0


def expected_in(directory):
    """The alert and the annotations that the unit tests expect, wherever they expect any."""
    for path in (directory / "prometheus" / "tests").glob("*.test.yml"):
        for test in yaml.safe_load(path.read_text())["tests"]:
            for expected in test.get("alert_rule_test", ()):
                for alert in expected["exp_alerts"]:
                    yield expected["alertname"], alert["exp_annotations"]


def test_without_a_public_address_alerts_have_no_runbook_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gaugeway.toml").write_text('[judge]\napi_key = "${NOT_SET}"\n')
    result = run("out")
    assert result.exit_code == 0
    assert "set monitors.public_url" in result.stderr
    written = [*alerts_in(tmp_path / "out"), *expected_in(tmp_path / "out")]
    assert all("runbook_url" not in annotations for _, annotations in written)


def test_runbook_urls_are_those_of_the_page_at_its_public_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = '[judge]\napi_key = "${NOT_SET}"\n[monitors]\npublic_url = "https://quality.example/g/"\n'
    (tmp_path / "gaugeway.toml").write_text(text)
    result = run("out")
    assert (result.exit_code, result.stderr) == (0, "gaugeway: using ./gaugeway.toml\n")
    written = [*alerts_in(tmp_path / "out"), *expected_in(tmp_path / "out")]
    assert {alert for alert, _ in alerts_in(tmp_path / "out")} == set(runbooks())
    for alert, annotations in written:
        assert annotations["runbook_url"] == f"https://quality.example/g/runbooks/{alert}.md"
    assert unit_tests_pass(tmp_path / "out")


def test_runbooks_may_be_elsewhere(tmp_path):
    assert run(tmp_path, "--runbooks", "https://git.example/runbooks").exit_code == 0
    assert dict(alerts_in(tmp_path))["GaugewayDown"]["runbook_url"] == "https://git.example/runbooks/GaugewayDown.md"


@pytest.mark.parametrize("url", ["docs/runbooks", "ftp://git.example", "https://300.1.1.1/"])
def test_an_address_that_no_pager_can_open_is_refused(url, tmp_path):
    result = run(tmp_path / "out", "--runbooks", url)
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()
    (tmp_path / "given.toml").write_text(f'[monitors]\npublic_url = "{url}"\n')
    result = run(tmp_path / "out", "--config", tmp_path / "given.toml")
    assert (result.exit_code, result.stderr[:29]) == (2, "gaugeway: monitors.public_url")

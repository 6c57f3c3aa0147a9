"""The rules and routes: valid for the engines that read them, and every alert tested both ways."""

import re
import shutil
import subprocess

import pytest
import yaml

from tests.dashboards.reading import FOLDER
from tests.support.product import needs

RULES = FOLDER / "prometheus" / "gaugeway.rules.yml"
ROUTES = FOLDER / "alertmanager" / "alertmanager.yml"
TESTS = sorted((FOLDER / "prometheus" / "tests").glob("*.test.yml"))
RUNBOOKS = FOLDER / "runbooks"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def run(*command):
    return subprocess.run([needs(command[0]), *map(str, command[1:])], capture_output=True, text=True, check=False)


def test_promtool_takes_the_rules():
    checked = run("promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("with_tokens", [False, True])
def test_promtool_takes_the_configuration(tmp_path, with_tokens):
    shutil.copytree(FOLDER / "prometheus", tmp_path / "prometheus")
    config = tmp_path / "prometheus" / "prometheus.yml"
    if with_tokens:
        config.write_text(config.read_text().replace("# authorization:", "authorization:"))
        for plane in ("gateway", "monitors"):
            (tmp_path / "prometheus" / f"{plane}.token").write_text("secret")
    checked = run("promtool", "check", "config", config)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    jobs = yaml.safe_load(config.read_text())["scrape_configs"]
    assert ["authorization" in job for job in jobs] == [with_tokens] * 2


def test_amtool_takes_the_routes():
    checked = run("amtool", "check-config", ROUTES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_promtool_finds_that_alerts_fire_when_they_should(path):
    checked = run("promtool", "test", "rules", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def expectations():
    """Alert -> the unit test files and what they expect of it."""
    found = {}
    for path in TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for one in test.get("alert_rule_test", ()):
                found.setdefault(one["alertname"], []).append((path, bool(one["exp_alerts"])))
    return found


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_tested_when_it_fires_and_when_it_does_not(alert):
    assert {fires for _, fires in expectations()[alert]} == {True, False}


@pytest.mark.parametrize("never", [True, False], ids=["never", "always"])
@pytest.mark.parametrize("alert", ALERTS)
def test_the_unit_tests_notice_an_alert_that_never_or_always_fires(alert, never, tmp_path):
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        kept = [rule for rule in group["rules"] if rule.get("alert") == alert]
        group["rules"] = [{**rule, "expr": "vector(0) > 1" if never else "vector(1)"} for rule in kept]
    (tmp_path / "broken.rules.yml").write_text(yaml.safe_dump(rules))
    path = next(path for path, _ in expectations()[alert])
    unit = yaml.safe_load(path.read_text())
    unit["rule_files"] = ["broken.rules.yml"]
    for test in unit["tests"]:
        test["alert_rule_test"] = [one for one in test.get("alert_rule_test", ()) if one["alertname"] == alert]
        test.pop("promql_expr_test", None)
    (tmp_path / "unit.test.yml").write_text(yaml.safe_dump(unit))
    checked = run("promtool", "test", "rules", tmp_path / "unit.test.yml")
    assert checked.returncode == 1, checked.stdout
    assert alert in checked.stdout + checked.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_how_bad_it_is_and_leads_to_its_page(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("page", "warn")
    assert set(rule["annotations"]) == {"summary", "description"}, "the shipped file knows no address of a runbook"
    headings = re.findall(r"^#+ (.+)$", (RUNBOOKS / f"{alert}.md").read_text(), re.MULTILINE)
    assert headings == [alert, "What it means", "How to check", "What to do"]


def test_every_page_is_about_an_alert_and_in_the_list():
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == set(ALERTS)
    listed = re.findall(r"\]\((\w+)\.md\)", (RUNBOOKS / "README.md").read_text())
    assert sorted(listed) == sorted(ALERTS)


def test_names_in_the_routes_are_those_of_the_rules():
    named = set(re.findall(r"Gaugeway[A-Z]\w+", ROUTES.read_text()))
    assert named - {"GaugewayWatchdog"} <= set(ALERTS)  # that one is sent by Gaugeway itself


def test_recordings_are_named_level_metric_operation():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    names = [rule["record"] for group in groups for rule in group["rules"] if "record" in rule]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"app(_metric)?:gaugeway_\w+:[a-z_0-9]+", name), name

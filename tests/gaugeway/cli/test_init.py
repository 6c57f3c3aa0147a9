"""`gaugeway init` writes a file that `gaugeway check` accepts."""

import tomllib

import pytest
from click.testing import CliRunner

from gateway.config import load
from gaugeway.cli.main import main
from gaugeway.settings.shared import Alerts
from gaugeway.signals import SIGNALS
from monitors.alerting.rules import rules_of


def run(*arguments, said=None):
    return CliRunner().invoke(main, ["init", *map(str, arguments)], input=said)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--judge", "gpt-6-luna", "--rate", "1"],
        ["--judge", "own-model", "--judge-url", "http://127.0.0.1:8000/v1", "--slo", "0.9"],
        ["--judge", "m", "--judge-url", "https://judge.example/v1", "--key-variable", "JUDGE_KEY", "--slack"],
        ["--slo", "0.5", "--no-slack"],
        ["--judge", 'odd "name" \\ ü 😀'],
    ],
)
def test_what_it_writes_is_a_valid_configuration(tmp_path, monkeypatch, options):
    for name in ("OPENAI_API_KEY", "JUDGE_KEY"):
        monkeypatch.setenv(name, "sk-test")
    monkeypatch.setenv("SLACK_WEBHOOK", "https://hooks.slack.example/services/x")
    file = tmp_path / "gaugeway.toml"
    done = run("--upstream", "https://api.openai.com/v1", "--output", file, *options)
    assert done.exit_code == 0, done.output
    config = load(file)
    assert config.upstreams[0].base_url == "https://api.openai.com/v1"
    given = dict(zip(options[::2], options[1::2], strict=False))
    assert config.judge.model == given.get("--judge")
    assert "sk-test" not in file.read_text("utf-8")
    assert bool(config.notifiers) == ("--slack" in options)
    assert [rule.slo for rule in config.alerts.rules or ()] == ([float(given["--slo"])] if "--slo" in given else [])


def test_a_judge_without_an_address_is_the_upstream_with_the_key_of_the_environment(tmp_path):
    file = tmp_path / "g.toml"
    assert run("--upstream", "https://api.openai.com/v1", "--judge", "m", "--output", file).exit_code == 0
    judge = tomllib.loads(file.read_text("utf-8"))["judge"]
    assert judge == {"base_url": "https://api.openai.com/v1", "api_key": "${OPENAI_API_KEY}", "model": "m"}


def test_an_slo_is_added_to_the_default_rules(tmp_path):
    file = tmp_path / "g.toml"
    assert run("--upstream", "https://api.openai.com/v1", "--slo", "0.9", "--output", file).exit_code == 0
    alerts = load(file).alerts
    added, *default = rules_of(alerts, ["lexical_groundedness"], SIGNALS)
    assert (added.metric, added.slo) == ("lexical_groundedness", 0.9)
    assert default == list(rules_of(Alerts(), ["lexical_groundedness"], SIGNALS))
    checked = CliRunner().invoke(main, ["check", "--config", str(file)])
    assert (checked.exit_code, checked.stderr) == (0, "")


def test_it_overwrites_nothing_unasked(tmp_path):
    file = tmp_path / "g.toml"
    file.write_text("# mine", "utf-8")
    done = run("--upstream", "https://api.openai.com/v1", "--output", file)
    assert done.exit_code == 2
    assert "--force" in done.output
    assert file.read_text("utf-8") == "# mine"
    assert run("--upstream", "https://api.openai.com/v1", "--output", file, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--upstream is required"),
        (["--upstream", "api.openai.com"], "--upstream"),
        (["--upstream", "https://a.example/v1", "--judge", "m", "--judge-url", "b"], "--judge-url"),
        (["--upstream", "https://a.example/v1", "--key-variable", "sk-1"], "--key-variable"),
        (["--upstream", "https://a.example/v1", "--slo", "nan"], "--slo"),
        (["--upstream", "https://a.example/v1", "--rate", "nan"], "--rate"),
        (["--upstream", "https://a.example/v1", "--judge", "https://b.example/v1"], "--judge"),
        (["--upstream", "https://a.example/v1", "--judge", "a${HOME}"], "--judge"),
        (["--upstream", "https://a.example/v1", "--judge", "a\nb"], "--judge"),
        (["--upstream", "https://a.example/${HOME}"], "--upstream"),
        (["--upstream", "https://a.example/v1", "--judge", "", "--judge-url", "https://b.example/v1"], "--judge-url"),
        (["--upstream", "https://a.example/v1", "--judge-url", "https://b.example/v1"], "--judge-url"),
        (
            [
                "--upstream",
                "https://a.example/v1",
                "--judge",
                "m",
                "--judge-url",
                "https://b.example/v1/chat/completions",
            ],
            "--judge-url: ends in",
        ),
        (["--upstream", "https://a.example/v1", "--judge", "m", "--rate", "0", "--slo", "0.9"], "--slo"),
    ],
)
def test_a_mistake_names_its_option_and_writes_nothing(tmp_path, options, said):
    file = tmp_path / "g.toml"
    done = run(*options, "--output", file)
    assert done.exit_code == 2
    assert said in done.output
    assert not file.exists()


@pytest.mark.parametrize(
    "url", ["https://u:secret@a.example/v1", "https://a.example/v1?x=1", "http://127.0.0.1:8080/v1"]
)
def test_what_check_refuses_is_not_written(tmp_path, url):
    file = tmp_path / "g.toml"
    done = run("--upstream", url, "--output", file)
    assert done.exit_code == 2
    assert "--upstream" in done.output
    assert "Next" not in done.output
    assert not file.exists()


def test_folders_on_the_way_are_made(tmp_path):
    file = tmp_path / "new" / "g.toml"
    assert run("--upstream", "https://a.example/v1", "--output", file).exit_code == 0
    assert file.exists()


def test_a_wrong_answer_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr("gaugeway.cli.init._is_terminal", lambda: True)
    file = tmp_path / "g.toml"
    done = run("--output", file, said="api.openai.com\nhttps://api.openai.com/v1\nhttps://x/v1\nm\nn\n")
    assert done.exit_code == 0, done.output
    assert tomllib.loads(file.read_text("utf-8"))["judge"]["model"] == "m"
    assert "not set" not in done.output


def test_a_key_variable_that_is_given_is_used_whatever_the_address(tmp_path):
    file = tmp_path / "g.toml"
    judge = ("--judge", "m", "--judge-url", "http://10.0.0.5:8000/v1")
    done = run("--upstream", "https://a.example/v1", *judge, "--key-variable", "MYKEY", "--output", file)
    assert done.exit_code == 0, done.output
    assert tomllib.loads(file.read_text("utf-8"))["judge"]["api_key"] == "${MYKEY}"
    assert "export MYKEY=..." in done.output
    assert run("--upstream", "https://a.example/v1", *judge, "--output", file, "--force").exit_code == 0
    assert "# api_key: this endpoint needs none" in file.read_text("utf-8")


def test_without_a_judge_a_rate_of_0_may_have_an_slo(tmp_path):
    file = tmp_path / "g.toml"
    assert run("--upstream", "https://a.example/v1", "--rate", "0", "--slo", "0.9", "--output", file).exit_code == 0
    assert load(file).alerts.rules[0].metric == "lexical_groundedness"


@pytest.mark.parametrize("url", ["https://u:secret@a.example/v1", "http://127.0.0.1:8080/v1"])
def test_an_address_that_check_refuses_is_asked_for_again_at_once(tmp_path, monkeypatch, url):
    monkeypatch.setattr("gaugeway.cli.init._is_terminal", lambda: True)
    file = tmp_path / "g.toml"
    done = run("--output", file, said=f"{url}\nhttps://api.openai.com/v1\nm\nn\n")
    assert done.exit_code == 0, done.output
    again, _, rest = done.output.partition("Model that judges")
    assert again.count("Base URL of your provider") == 2
    assert "Error: " in again
    assert "base_url:" not in again
    assert "Error" not in rest


def test_a_judges_address_asks_until_there_is_a_model(tmp_path, monkeypatch):
    monkeypatch.setattr("gaugeway.cli.init._is_terminal", lambda: True)
    file = tmp_path / "g.toml"
    given = ("--upstream", "https://a.example/v1", "--judge-url", "https://b.example/v1", "--no-slack")
    done = run(*given, "--output", file, said="\nm\n")
    assert done.exit_code == 0, done.output
    assert tomllib.loads(file.read_text("utf-8"))["judge"]["model"] == "m"

"""The README: its commands, its configuration and its addresses are those of the product."""

import re

import click
import httpx
import pytest

from gaugeway.settings import ConfigError
from gaugeway.settings.loading import load as load_monitors
from tests.deploy.reading import PORTS, ROOT, named_in, parse, read_by_both_planes
from tests.support.product import product
from tests.support.scripted_model import serve

TEXT = (ROOT / "README.md").read_text("utf-8")


def test_its_commands_exist_with_their_flags():
    lines = re.findall(r"^\$ (?:docker run .* )?(gaugeway [a-z].*)$", TEXT, re.MULTILINE)
    typed = [
        one.strip().removeprefix("gaugeway ")
        for line in [*re.findall(r"`(gaugeway [a-z][^`]*)`", TEXT), *lines]
        for one in line.split("&&")
    ]
    assert len(typed) > 5
    for line in typed:
        words = line.split("$")[0].split()
        try:
            parse(words)
        except click.MissingParameter:
            continue  # the prose names the command alone
        except click.ClickException as problem:
            pytest.fail(f"gaugeway {line}: {problem.message}")
    assert not re.search(r"^\$ .*\S +# ", TEXT, re.MULTILINE), "a shell may not take comments that are pasted"
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"^\$ make (\w+)", TEXT, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_its_configuration_is_taken(tmp_path, monkeypatch):
    (text,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for name in named_in(text):
        monkeypatch.setenv(name, "https://hooks.slack.example/a")
    path = tmp_path / "gaugeway.toml"
    path.write_text(text)
    config = read_by_both_planes(path)
    assert config.notifiers[0].kind == "slack"
    assert config.alerts.rules is None, "so every metric is watched"


def test_its_addresses_answer(tmp_path):
    shown = re.findall(r"^\| `http://127\.0\.0\.1:(\d+)(/\S*?)`(?:, `(/\S+)`)? \|", TEXT, re.MULTILINE)
    asked = [(int(port), path) for port, *paths in shown for path in paths if path]
    assert len(asked) >= 5
    with serve() as url, product(tmp_path, f'[[upstreams]]\nbase_url = "{url}"\n') as running:
        really = dict(zip(sorted(PORTS), (running.port, running.admin_port, running.monitors_port), strict=True))
        for port, path in asked:
            assert httpx.get(f"http://127.0.0.1:{really[port]}{path}", follow_redirects=True).status_code == 200, path


def test_a_container_is_given_what_it_needs_for_traffic_and_the_page(tmp_path, monkeypatch):
    (line,) = re.findall(r"^\$ (docker run .*)$", TEXT, re.MULTILINE)
    assert re.findall(r"-p (\S+)", line) == ["127.0.0.1:8080:8080", "127.0.0.1:9465:9465"], "on loopback only"
    image = (ROOT / "Dockerfile").read_text("utf-8")
    assert "EXPOSE 8080 9465" in image
    given = dict(re.findall(r"^ *(?:ENV )?(GAUGEWAY_\w+)=(\S+)", image, re.MULTILINE))
    given |= dict(re.findall(r"-e (\w+)=(\S+)", line))
    passed = set(re.findall(r"-e (\w+)(?= )", line)) - set(given)
    assert passed == {"OPENAI_API_KEY", "GAUGEWAY_MONITORS_TOKEN"}
    given.pop("GAUGEWAY_DATA_DIR")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    options = parse(line.split(" gaugeway ")[-1].split())
    tables = {"monitors": {"host": options["monitors_host"], "port": options["monitors_port"]}}
    monkeypatch.setenv("GAUGEWAY_MONITORS_TOKEN", "of-the-page-4711-4711")
    config = load_monitors(None, tables, upstream=options["upstream"])
    assert (config.monitors.host, config.monitors.token) == ("0.0.0.0", "of-the-page-4711-4711")
    monkeypatch.delenv("GAUGEWAY_MONITORS_TOKEN")
    with pytest.raises(ConfigError, match="needs a token"):
        load_monitors(None, tables)

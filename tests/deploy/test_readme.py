"""The README: its commands, its configuration and its addresses are those of the product."""

import re

import click
import httpx
import pytest

from gateway.demo.model import serve
from tests.deploy.reading import PORTS, ROOT, named_in, parse, read_by_both_planes
from tests.support.product import product

TEXT = (ROOT / "README.md").read_text("utf-8")


def test_its_commands_exist_with_their_flags():
    typed = re.findall(
        r"gaugeway ([a-z][^`&\n]*)", " ".join(re.findall(r"`gaugeway [^`]+`|^\$ .*$", TEXT, re.MULTILINE))
    )
    assert len(typed) > 5
    for line in typed:
        words = line.split("$")[0].split()
        try:
            parse(words)
        except click.MissingParameter:
            continue  # the prose names the command alone
        except click.ClickException as problem:
            pytest.fail(f"gaugeway {line}: {problem.message}")
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
            assert httpx.get(f"http://127.0.0.1:{really[port]}{path}").status_code == 200, path

"""No message of `gaugeway check` shows a value that came from `${…}`, at whichever key it stands."""

import os
import threading

import pytest
from click.testing import CliRunner

from gaugeway.cli import main as cli
from gaugeway.cli.check import config_schema

SECRETS = {
    "plain": "sk-Canary7Q2zXv9",
    "url": "ftp://CanaryUser:CanaryPass@canary-host.example:99999/CanaryPath?k=CanaryQuery",
    "odd": "  Canary'quoted\"\\line\nCanaryTwo ",
}


def string_keys(schema=None, definitions=None, path=()):
    """Yield the path of every key whose value may be a text; a list or a table of any name is one step of it."""
    if schema is None:
        schema = config_schema()
        definitions = schema.get("$defs", {})
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from string_keys(option, definitions, path)
    if len(path) > 8:
        return
    if schema.get("type") == "string" or "enum" in schema or not schema:
        yield path
    for name, below in schema.get("properties", {}).items():
        yield from string_keys(below, definitions, (*path, name))
    if isinstance(below := schema.get("items"), dict):
        yield from string_keys(below, definitions, (*path, 0))
    if isinstance(below := schema.get("additionalProperties"), dict):
        yield from string_keys(below, definitions, (*path, "some"))


def toml(path, text):
    value = f'"{text}"'
    for step in reversed(path):
        value = f"[{value}]" if step == 0 else f'{{"{step}" = {value}}}'
    return value[1:-1].strip() if value.startswith("{") else value


pytestmark = pytest.mark.full
KEYS = sorted({*string_keys()}, key=str)


def test_the_schema_has_keys():
    assert len(KEYS) > 60


@pytest.mark.parametrize("kind", SECRETS)
def test_no_key_shows_a_value_from_the_environment(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("CANARY_SECRET", SECRETS[kind])
    monkeypatch.chdir(tmp_path)
    shown = 0
    for path in KEYS:
        file = tmp_path / "gaugeway.toml"
        file.write_text(toml(path, "${CANARY_SECRET}") + "\n")
        result = CliRunner().invoke(cli.main, ["check", "--config", str(file)])
        assert "canary" not in result.output.lower().replace("canary_secret", ""), (path, result.output)
        shown += "${CANARY_SECRET}" in result.output
    assert shown or kind != "plain"


def test_a_file_is_read_only_if_it_is_regular(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    (tmp_path / "gaugeway.toml").write_text(f'[[upstreams]]\nbase_url = "${{file:{pipe}}}"\n')
    result = []

    def check():
        result.append(CliRunner().invoke(cli.main, ["check", "--config", str(tmp_path / "gaugeway.toml")]))

    checking = threading.Thread(target=check, daemon=True)
    checking.start()
    checking.join(60)
    assert result
    assert f"{pipe}: not a regular file" in result[0].output

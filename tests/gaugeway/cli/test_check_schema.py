"""The JSON Schema of the configuration takes what `check` takes, and knows every key of the reference."""

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from gaugeway.cli.check import config_schema
from gaugeway.cli.main import main

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLES = {"gateway", "upstreams", "routing", "capture", "keys", "limits", "prices", "cache", "monitors", "judge"}
TABLES |= {"embeddings", "queue", "store", "metrics", "alerts", "notifiers", "sinks", "telemetry"}


def examples():
    """Every TOML example in the documentation that is a configuration as a whole."""
    for page in PAGES:
        for number, text in enumerate(
            re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        ):
            try:
                read = tomllib.loads(text)
            except tomllib.TOMLDecodeError:
                continue  # several alternatives in one block
            if read and read.keys() <= TABLES and all(isinstance(one, dict | list) for one in read.values()):
                yield pytest.param(read, id=f"{page.stem}-{number}")


def validator():
    return jsonschema.Draft202012Validator(config_schema())


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(config_schema())


@pytest.mark.parametrize("read", list(examples()))
def test_every_example_of_the_documentation_fits(read):
    upstreams = {"upstreams": [{"base_url": "http://127.0.0.1:9000/v1"}]}
    assert [error.message for error in validator().iter_errors(upstreams | read)] == []


def test_there_are_examples():
    assert len(list(examples())) > 20


@pytest.mark.parametrize(
    "read",
    [
        {"gateway": {"prot": 1}},
        {"gateway": {"port": "8080"}},
        {"gateway": {"workers": 65}},
        {"judges": {}},
        {"capture": {"templates": [{"name": "a"}]}},
        {"alerts": {"rules": [{"slo": 0.8}]}},
        {"sinks": [{"kind": "phoenix"}]},
        {"metrics": {"faithfulness": {"rate": 2}}},
    ],
)
def test_what_check_refuses_does_not_fit(read, tmp_path):
    assert list(validator().iter_errors(read)) != []


def test_a_metrics_own_options_fit():
    assert list(validator().iter_errors({"metrics": {"faithfulness": {"rate": 0.5, "mode": "claims"}}})) == []


def test_the_command_prints_it():
    result = CliRunner().invoke(main, ["check", "--schema"])
    assert (result.exit_code, json.loads(result.output)) == (0, json.loads(json.dumps(config_schema())))


def test_every_key_of_the_reference_is_known():
    """The keys of the tables that have their own heading."""
    text = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    defined = config_schema()["$defs"]
    names = {
        "gateway": "Gateway",
        "monitors": "Monitors",
        "routing": "Routing",
        "telemetry": "Telemetry",
        "cache": "Cache",
    }
    for table, name in names.items():
        part = next(part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(f"`[{table}]`"))
        keys = {
            key
            for line in re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE)
            for key in re.findall(r"`([a-z_]+)`", line)
        }
        assert keys == set(defined[name]["properties"]), table

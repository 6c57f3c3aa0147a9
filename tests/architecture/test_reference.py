"""Every name a user may meet is in the reference."""

import re
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest
from prometheus_client import CollectorRegistry

from gateway.config import Config
from gateway.reload import EFFECTS
from gateway.telemetry.metrics import Instruments as GatewayInstruments
from gaugeway.cli.check import config_schema
from gaugeway.extensions import registered
from gaugeway.settings.shared import Rule
from gaugeway.storage.trials import Arm, Trial
from monitors.exporters.instruments import Instruments as MonitorsInstruments
from monitors.metrics.registry import names
from tests.support.commands import commands

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def section(text: str, table: str) -> str:
    """The part of the configuration page whose heading names `table`."""
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return next(part for part in parts if re.match(rf"`\[\[?{table}\b|.*`\[\[?{table}\b", part.split("\n")[0]))


def config_keys() -> list[tuple[str, str]]:
    """(table, key) for every key of the configuration, those of `[[alerts.rules]]` under alerts."""
    keys = []
    for table, kind in get_type_hints(Config).items():
        if table == "trials":
            keys += [
                (table, key) for key in sorted({*Trial.__struct_fields__, *Arm.__struct_fields__} - {"started_at"})
            ]
            continue
        struct = next(one for one in (kind, *get_args(kind)) if hasattr(one, "__struct_fields__"))
        keys += [(table, key) for key in struct.__struct_fields__ if key not in ("options", "rules", "apps")]
    return keys + [("alerts", key) for key in Rule.__struct_fields__]


@pytest.mark.parametrize(("table", "key"), config_keys())
def test_every_configuration_key_is_documented(table, key):
    text = section((REFERENCE / "configuration.md").read_text(), table)
    assert re.search(rf"`(?:\w+\.)?{key}`", text), f"{table}.{key}"


def test_the_reference_says_what_a_reload_does_with_each_key():
    text = section_named((REFERENCE / "configuration.md").read_text(), "What a reload applies")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    documented = {}
    for table, *cells in rows:
        for effect, cell in zip(("live", "monitors", "restart_in_use", "restart"), cells, strict=True):
            keys = [f"{table}.{name}".replace("`", "") for name in cell.split(", ") if name not in ("", "all")]
            if cell == "all":
                keys = [key for key in EFFECTS if f"{key}.".startswith(f"{table}.".replace("`", ""))]
            documented |= dict.fromkeys(keys, effect)
    assert documented == EFFECTS


def section_named(text: str, heading: str) -> str:
    return next(part for part in text.split("\n## ") if part.startswith(heading))


@pytest.mark.parametrize("instruments", [GatewayInstruments, MonitorsInstruments])
def test_every_instrument_is_documented_with_its_labels(instruments):
    registry = CollectorRegistry()
    instruments(registry, version="0")
    text = (REFERENCE / "series.md").read_text()
    text = text.split("## Monitors")[instruments is MonitorsInstruments]
    for collector in registry._collector_to_names:  # noqa: SLF001 - `collect` has no label names
        (family,) = collector.collect()
        name = family.name + ("_total" if family.type == "counter" else "")
        line = next((line for line in text.splitlines() if re.search(rf"^\|.*`{name}`", line)), "")
        assert line, name
        for label in collector._labelnames:  # noqa: SLF001 - same
            assert label in line, (name, label)


@pytest.mark.parametrize("name", names())
def test_every_metric_has_its_page(name):
    assert f"`{name}`" in (REFERENCE / "metrics" / f"{name}.md").read_text()


@pytest.mark.parametrize("table", ["Notifier", "Sink"])
def test_every_option_of_a_registered_extension_is_documented(table):
    text = section((REFERENCE / "configuration.md").read_text(), f"{table.lower()}s")
    assert [key for key in config_schema()["$defs"][table]["properties"] if f"`{key}`" not in text] == []


def test_every_command_and_flag_is_documented():
    text = (REFERENCE / "cli.md").read_text()
    for name, command in commands().items():
        assert f"`gaugeway {name}`" in text, name
        for option in command.params:
            if isinstance(option, click.Argument):
                continue
            assert isinstance(option, click.Option)
            assert all(f"`{flag}`" in text for flag in option.opts), option.opts
            assert option.envvar is None or f"`{option.envvar}`" in text, option.envvar


@pytest.mark.parametrize(
    "name", [name for kind in ("readers", "notifiers", "exporters", "detectors") for name in registered(kind)]
)
def test_every_registered_name_is_documented(name):
    assert f'"{name}"' in (REFERENCE / "configuration.md").read_text()


def test_every_link_in_the_documentation_leads_somewhere():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"

"""The manual: what it tells the reader to type and to expect is so."""

import asyncio
import re
import sqlite3
import subprocess
from pathlib import Path

import click
import pytest

from gateway.config import Config, Upstream
from gaugeway.records import Sample
from gaugeway.storage.stores import from_url
from tests.deploy.reading import DEPLOY, PAGE, PORTS, ROOT, parse

TEXT = PAGE.read_text("utf-8")
SHELL = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FILES = {".db", ".key", ".toml", ".yaml"}
KEYS = sorted({key for key in re.findall(r"`([a-z]+\.[a-z_]+)`", TEXT) if Path(key).suffix not in FILES})
COMMANDS = ("serve", "gateway", "monitors", "check", "dashboards")


def test_every_file_and_folder_it_names_is_there():
    named = set(re.findall(r"\b((?:deploy|dashboards)/[\w./-]+\w)", TEXT))
    assert len(named) > 6
    for name in named:
        assert (ROOT / name).exists(), name


def test_every_command_of_ours_is_one():
    typed = re.findall(rf"(?:^|[`\s])gaugeway ((?:{'|'.join(COMMANDS)})\b[^`\n]*)", TEXT)
    assert len(typed) >= len(COMMANDS)
    for line in typed:
        words = re.match(r"[\w\s./-]*", line.replace("…", "x"))[0].split()
        try:
            known = words[:1] if words[0] in ("serve", "gateway", "monitors") else words
            assert parse(known) is not None
        except click.ClickException as problem:
            pytest.fail(f"gaugeway {line}: {problem.message}")


def test_every_port_it_names_is_somebodys():
    others = {3000, 9090, 9093}
    assert {int(port) for port in re.findall(r"(?::|\bport )(\d{4})\b", TEXT)} <= PORTS | others


@pytest.mark.parametrize("key", KEYS)
def test_every_configuration_key_it_names_is_one(key):
    table, name = key.split(".")
    part = Upstream if table == "upstreams" else getattr(Config(), table)
    assert name in part.__struct_fields__


def test_the_units_are_installed_by_the_names_they_have():
    (typed,) = [block for block in SHELL if "systemctl enable" in block]
    named = re.search(r"enable --now (.*)$", typed, re.MULTILINE)[1].split()
    assert sorted(named) == sorted(unit.stem for unit in (DEPLOY / "systemd").glob("*.service"))
    program = re.search(r"venv (\S+)", typed)[1]
    assert all(
        f"ExecStart={program}/bin/gaugeway " in unit.read_text() for unit in (DEPLOY / "systemd").glob("*.service")
    )


def test_a_backup_made_as_it_says_while_the_store_is_open_can_be_opened(tmp_path):
    (typed,) = [block for block in SHELL if ".backup(" in block]
    data, kept = tmp_path / "gaugeway-data", tmp_path
    store = from_url(f"sqlite:///{data / 'store.db'}")

    async def copied_between_two():
        await store.add(Sample(id="a", started_at=1.0, question="?"), [])
        sqlite3.connect(data / "queue.db").close()
        (data / "redaction.key").write_text("k")
        await asyncio.to_thread(subprocess.run, ["bash", "-euc", typed], cwd=kept, check=True)
        await store.add(Sample(id="b", started_at=2.0), [])
        await store.aclose()

    async def read():
        copy = from_url(f"sqlite:///{kept / 'store.db'}")
        found = [await copy.sample(name) for name in "ab"]
        await copy.aclose()
        return found

    asyncio.run(copied_between_two())
    first, second = asyncio.run(read())
    assert first is not None
    assert first[0].question == "?"
    assert second is None

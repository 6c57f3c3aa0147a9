"""docs/reference/limits.md says what the code does: every bound, its default, its setting and its counter."""

import ast
import importlib
import re
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.config import Config
from gateway.telemetry.metrics import Instruments as GatewayInstruments
from monitors.exporters.instruments import Instruments as MonitorsInstruments

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "limits.md"
UNITS = {
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "ms": 0.001,
    "s": 1,
    "min": 60,
    "h": 3600,
    "days": 86_400,
    "%": 0.01,
}
NAMED_LIKE_A_BOUND = re.compile(r"^_?(?:MAX|MOST|LONGEST)(?:_|$)|_(?:MAX|MOST|LONGEST)$")

MARK = re.compile(r"# internal bound: \S")
"""Beside or above a constant that no client, upstream or text can reach: what it bounds instead."""
NOT_REACHED = ("gaugeway/demo/", "monitors/offline/")
"""The demo's scripted model, and commands that an operator runs on a data set."""


class Row(NamedTuple):
    what: str
    default: str
    setting: str
    beyond: str
    counter: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and not line.startswith(("|---", "| what |")):
            assert len(cells) == len(Row._fields), line
            found.append(Row(*cells))
    return found


def number(text: str) -> float | None:
    """'100 MiB' -> 104857600, 'none' -> None."""
    if text == "none":
        return None
    match = re.match(r"([\d,.]+)(?: (\S+))?", text)
    assert match, text
    return float(match[1].replace(",", "")) * UNITS.get(match[2] or "", 1)


def default_of(key: str) -> object:
    """The default of `table.key` of the configuration, or the value of `module:NAME`."""
    if ":" in key:
        module, name = key.split(":")
        return getattr(importlib.import_module(module), name)
    table, name = key.split(".")
    kind = get_type_hints(Config, include_extras=True)[table]
    struct = next(one for one in (kind, *get_args(kind)) if hasattr(one, "__struct_fields__"))
    field = next(field for field in msgspec.structs.fields(struct) if field.name == name)
    return field.default


def series() -> set[str]:
    names = set()
    for instruments in (GatewayInstruments, MonitorsInstruments):
        registry = CollectorRegistry(auto_describe=True)
        instruments(registry, version="0")
        names |= set(registry._names_to_collectors)  # noqa: SLF001 - `collect` has no suffixes
    return names


def listed() -> set[str]:
    return {setting for row in rows() for setting in re.findall(r"`([^`]+)`", row.setting)}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_a_row_says_what_the_code_does(row):
    settings = re.findall(r"`([^`]+)`", row.setting)
    assert settings, row
    assert (
        default_of(settings[0]) == pytest.approx(number(row.default))
        if number(row.default) is not None
        else default_of(settings[0]) is None
    )
    counters = re.findall(r"`(gaugeway_\w+)", row.counter)
    assert counters or row.counter == "-", row
    assert set(counters) <= series(), row


def assigned(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module assigns to."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return []
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


class Bound(NamedTuple):
    name: str  # module:NAME
    marked: bool
    line: int


def bounds_of_the_code() -> list[Bound]:
    found = []
    for path in sorted(
        path for name in ("gaugeway", "gateway", "monitors", "dashboards/web") for path in (ROOT / name).rglob("*.py")
    ):
        where = path.relative_to(ROOT)
        if where.as_posix().startswith(NOT_REACHED):
            continue
        module = ".".join(where.with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text("utf-8")
        lines = text.splitlines()
        for statement in ast.parse(text).body:
            names = [name for name in assigned(statement) if NAMED_LIKE_A_BOUND.search(name)]
            found += [Bound(f"{module}:{name}", is_marked(lines, statement), statement.lineno) for name in names]
    return found


def is_marked(lines: list[str], statement: ast.stmt) -> bool:
    """Whether a reason stands at the statement or in a line of its own above it."""
    above = lines[statement.lineno - 2] if statement.lineno > 1 else ""
    return bool(
        any(MARK.search(line) for line in lines[statement.lineno - 1 : statement.end_lineno])
        or (above.startswith("#") and MARK.search(above))
    )


def keys_that_bound() -> list[str]:
    found = []
    for table in ("gateway", "capture", "queue", "cache", "limits"):
        kind = get_type_hints(Config)[table]
        found += [
            f"{table}.{key}"
            for key in kind.__struct_fields__
            if re.search(r"(^|_)max_|_bytes$|_timeout_s$|^buffer_", key)
        ]
    return found


@pytest.mark.parametrize("bound", bounds_of_the_code(), ids=lambda bound: bound.name)
def test_every_bound_has_its_row_or_a_reason(bound):
    assert (bound.name in listed()) != bound.marked, bound.name


@pytest.mark.parametrize("key", keys_that_bound())
def test_every_key_that_bounds_has_its_row(key):
    assert key in listed()


def test_no_mark_stands_elsewhere():
    """A mark excuses one constant: it is no comment on anything else."""
    paths = (path for name in ("gaugeway", "gateway", "monitors", "dashboards") for path in (ROOT / name).rglob("*.py"))
    marks = sum(len(MARK.findall(path.read_text("utf-8"))) for path in paths)
    marked = {(bound.name.partition(":")[0], bound.line) for bound in bounds_of_the_code() if bound.marked}
    assert marks == len(marked)

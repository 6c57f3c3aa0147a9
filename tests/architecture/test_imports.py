"""Who may import whom: one direction, no circles, and a pure core."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OURS = ("gaugeway", "gateway", "monitors", "dashboards")

PURE = (
    "gaugeway/records.py",
    "gaugeway/storage/joining.py",
    "gaugeway/sampling.py",
    "monitors/alerting/causes",
    "monitors/analysis/prompt_text.py",
    "gaugeway/text/topics.py",
    "monitors/alerting/slices.py",
    "monitors/alerting/stream.py",
    "monitors/alerting/rule_watch.py",
    "monitors/alerting/changes.py",
    "monitors/analysis/quality.py",
    "gaugeway/sampling.py",
    "monitors/statistics",
    "monitors/alerting/detectors",
    "gateway/http/sse.py",
    "gateway/http/json_member.py",
    "gateway/http/encoding.py",
    "gaugeway/exchange.py",
    "gateway/capture/exchange_reader.py",
    "gateway/http/headers.py",
    "gateway/http/url.py",
    "gaugeway/prompts",
    "gateway/upstreams/policy.py",
    "gateway/upstreams/outlier_ejection.py",
    "gateway/proxy/stream_usage.py",
    "gaugeway/prompts/response_text.py",
    "gateway/access/prices.py",
    "gateway/access/token_bucket.py",
    "gaugeway/storage/keys/names.py",
    "monitors/evaluation/backpressure.py",
)
IMPURE = {"asyncio", "httpx", "openai", "sqlite3", "aiosqlite", "socket", "time", "datetime", "os", "random", "secrets"}


def files(root: Path) -> list[Path]:
    return [root] if root.is_file() else sorted(root.rglob("*.py"))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = ROOT.joinpath(*node.module.split("."))
            for alias in node.names:
                deeper = (inside / f"{alias.name}.py").exists() or (inside / alias.name).is_dir()
                found.add(f"{node.module}.{alias.name}" if deeper else node.module)
    return found


def room(module: str) -> str:
    """A module's package or top-level module: gaugeway.prompts.tool_messages -> gaugeway.prompts."""
    return ".".join(module.split(".")[:2])


def ours() -> list[Path]:
    return [path for package in OURS for path in files(ROOT / package)]


def edges() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in ours():
        here = room(module_of(path))
        others = {room(name) for name in imported(path) if name.split(".")[0] in OURS}
        if others := others - {here, "gaugeway.records"}:
            found.setdefault(here, set()).update(others)
    return found


@pytest.mark.full
def test_the_monitors_never_import_the_gateway():
    assert not [
        name for here, names in edges().items() if here.startswith("monitors") for name in names if "gateway" in name
    ]


@pytest.mark.full
def test_no_two_rooms_need_each_other_even_by_a_detour():
    graph = edges()
    order: list[str] = []

    def visit(here: str, path: tuple[str, ...]) -> None:
        assert here not in path, " -> ".join([*path, here])
        if here not in order:
            for there in sorted(graph.get(here, ())):
                visit(there, (*path, here))
            order.append(here)

    for here in sorted(graph):
        visit(here, ())


def test_records_import_nothing_of_ours():
    assert not {
        name
        for name in imported(ROOT / "gaugeway/records.py")
        if name.split(".")[0] in ("gaugeway", "gateway", "monitors")
    }


@pytest.mark.parametrize("part", PURE)
def test_the_core_is_pure(part):
    for path in files(ROOT / part):
        assert not {name.split(".")[0] for name in imported(path)} & IMPURE, path


@pytest.mark.full
def test_only_the_places_that_put_things_together_name_adapters():
    packages = (
        *(f"gaugeway/storage/engines/{engine}" for engine in ("clickhouse", "postgres", "redis", "sqlite")),
        *("monitors/judges", "monitors/metrics/embeddings", "monitors/exporters", "monitors/alerting/notifiers"),
    )
    shared = {
        "__init__",
        "anchors",
        "budget",
        "connection",
        "cost",
        "factory",
        "decisions",
        "instruments",
        "message",
        "micro_batcher",
        "openai_client",
        "opening",
        "ratings",
        "retirement",
        "rollup_windows",
        "schema",
        "spending",
        "structured_output",
    }
    adapters = {
        module_of(path) for package in packages for path in (ROOT / package).glob("*.py") if path.stem not in shared
    } | {"gateway.upstreams.httpx"}
    opening = {"gateway.access.admission", "gateway.app", "monitors.app", "monitors.evaluation.models"}
    opening |= {"monitors.evaluation.verifiers"}
    for path in ours():
        module = module_of(path)
        named = {name for name in imported(path) if name in adapters and room(name) != room(module)}
        assert not named or module in opening or room(module) == "gaugeway.cli", (module, named)


def test_the_standard_library_is_known_to_this_test():
    assert sys.stdlib_module_names >= {name for name in IMPURE if name not in {"httpx", "openai", "aiosqlite"}}

"""Every route of the installed `openai` package, read from its source, and the table of how the gateway treats it.

python tests/support/openai_routes.py --write   brings the table of docs/reference/routes.md up to date
"""

import ast
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import openai

sys.path.insert(0, str(Path(__file__).parents[2]))

from gateway.access.operations import METERED, READING, UNKNOWN, is_realtime, operation_of
from gaugeway.exchange import DECISION_ROUTES, GENERATION_ROUTES, route_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "routes.md"
BEGIN, END = "<!-- routes: written by tests/support/openai_routes.py -->", "<!-- end of routes -->"
WEBSOCKET = "WebSocket"
BESIDE = (("POST", "/messages"), ("POST", "/messages/count_tokens"), ("POST", "/rerank"), ("POST", "/systemone"))
"""Routes of other providers, which that package does not have."""
_CALLS = {
    "_delete": "DELETE",
    "_get": "GET",
    "_get_api_list": "GET",
    "_patch": "PATCH",
    "_post": "POST",
    "_put": "PUT",
}
_BUDGETS = {"metered": "metered", "free": "free", "unmetered": "`unmetered_usd`", "unknown": "unknown"}


class Treatment(NamedTuple):
    """What the gateway does with requests to a route, as the columns of the table."""

    budget: str
    restricted_key: str
    captured: str


def routes() -> set[tuple[str, str]]:
    """(method, path) of every request that the package makes; a WebSocket is a method too. `{x}` is a parameter."""
    found = set()
    for file in (Path(openai.__file__).parent / "resources").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS:
                method = next((ast.literal_eval(word.value) for word in node.keywords if word.arg == "method"), None)
                found.add(((method or _CALLS[node.func.attr]).upper(), _path(node.args[0]).partition("?")[0]))
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "merge_raw_path":
                paths = re.findall(r"""['"](/[a-z][^'"]*)['"]""", ast.unparse(node.value))
                found |= {(WEBSOCKET, path) for path in paths}
    return found


def _path(node: ast.expr) -> str:
    path = ast.literal_eval(node.args[0] if isinstance(node, ast.Call) else node)
    assert isinstance(path, str), ast.unparse(node)
    return path


def requested(path: str) -> str:
    """A path as a client requests it."""
    return "/v1" + re.sub(r"\{[^}]*\}", "id_1", path)


def treatment(method: str, path: str) -> Treatment:
    """How the gateway treats a route."""
    raw = requested(path).encode()
    if method == WEBSOCKET:
        known = is_realtime(raw)
        return Treatment(_BUDGETS[(METERED if known else UNKNOWN).kind], "by its model" if known else "no", "no")
    operation, route = operation_of(method, raw), route_of(method, raw.decode())
    reads = method in READING and operation.kind == "free"
    captured = "no" if route not in GENERATION_ROUTES else "decision" if route in DECISION_ROUTES else "answer"
    key = "by its model" if operation.names_model else "yes" if reads else "no"
    return Treatment(_BUDGETS[operation.kind], key, captured)


def table() -> str:
    """The table, one row for the routes of a resource that are treated alike."""
    rows = [(path.split("/")[1], treatment(method, path), method, path) for method, path in {*routes(), *BESIDE}]
    lines = ["| Routes | USD budget | key for certain models | captured |", "|---|---|---|---|"]
    for (resource, treated), group in groupby(sorted(rows), key=lambda row: row[:2]):
        alike = [(method, path) for _, _, method, path in group]
        lines.append(f"| {_named(resource, alike, rows)} | {' | '.join(treated)} |")
    return "\n".join(lines)


def _named(resource: str, alike: list[tuple[str, str]], rows: list[tuple[str, Treatment, str, str]]) -> str:
    """Name the routes: a method by its resource alone if all its routes of that resource are treated alike."""
    named = []
    for method, group in groupby(alike, key=lambda route: route[0]):
        paths = [path for _, path in group]
        whole = len(paths) == sum((first, other) == (resource, method) for first, _, other, _ in rows)
        named += [f"`{method} {resource}/…`"] if whole and len(paths) > 1 else [f"`{method} {p[1:]}`" for p in paths]
    return ", ".join(named)


def main() -> None:
    """Print the table, or write it into the page."""
    if "--write" in sys.argv:
        before, after = PAGE.read_text("utf-8").split(BEGIN)[0], PAGE.read_text("utf-8").split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", "utf-8")
    else:
        print(table())  # noqa: T201 - a script


if __name__ == "__main__":
    main()

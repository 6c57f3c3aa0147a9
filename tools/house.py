"""Measures the size and the structure of the product, of what git tracks.

SLOC are lines without blanks, comments and docstrings.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
PRODUCT = ("gaugeway", "gateway", "monitors", "dashboards")
TARGETS = {"product SLOC": 60_000, "hand-set numbers in prompt reading": 160}
"""What figures are to come down to, where that is less than their limit of today."""
LIMITS = {
    "product SLOC": 71_000,
    "product modules": 535,
    "configuration keys": 191,
    "names the data plane takes from the evaluation plane": 0,
    "names the evaluation plane takes from the data plane": 0,
    "names the shared ground takes from a plane (outside cli)": 0,
    "`for one in`": 100,
    "files over 500 lines": 0,
    "hand-set numbers in prompt reading": 192,
    "lines of word lists in Python": 800,
}
"""What `--limits` enforces."""
TESTS = "test SLOC"
MAX_FILE = 500
SHOWN_ROOMS = 30
TALL_TABLE = 8
"""Lines from which on an assignment of strings counts as a word list."""

_COMPOSES = re.compile(
    r"(gateway|monitors|gaugeway)/(cli|demo|app|supervisor)|gaugeway/(__init__|client)\.py|.*__main__"
)
"""Modules that put the planes together: they may import every one."""
_PROMPT_READING = re.compile(r"gateway/(contexts|capture)/|gaugeway/prompts/")
_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_CROSSINGS = {
    "gateway": ("names the data plane takes from the evaluation plane", ("monitors", "dashboards")),
    "monitors": ("names the evaluation plane takes from the data plane", ("gateway", "dashboards")),
    "gaugeway": (
        "names the shared ground takes from a plane (outside cli)",
        ("gateway", "monitors", "dashboards"),
    ),
}
"""Of a package: the figure that counts names from packages it should not import, and those packages."""


def sloc(text: str, tree: ast.Module) -> int:
    """Count the lines that hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def imported_packages(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level package of every imported name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from [node.module.split(".")[0]] * len(node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def settings_fields(tree: ast.Module) -> int:
    """Count the fields of the structs behind tables of `gaugeway.toml`."""
    return sum(
        sum(isinstance(item, ast.AnnAssign) for item in node.body)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(getattr(base, "id", getattr(base, "attr", "")) == "Table" for base in node.bases)
    )


def hand_set_numbers(tree: ast.Module) -> int:
    """Count numeric constants but -1, 0, 1 and 2."""
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    numbers = (value for value in constants if isinstance(value, int | float) and not isinstance(value, bool))
    return sum(abs(number) not in {0, 1, 2} for number in numbers)


def word_list_lines(tree: ast.Module) -> int:
    """Count the lines of assignments that mostly hold strings."""
    lines = 0
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            height = (node.end_lineno or node.lineno) - node.lineno + 1
            constants = (part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))
            if height >= TALL_TABLE and sum(isinstance(value, str) for value in constants) >= 2 * height / 3:
                lines += height
    return lines


def figures_of(name: str, text: str, tree: ast.Module) -> Counter[str]:
    """Return what one module of the product adds to the figures."""
    figures: Counter[str] = Counter({"product SLOC": sloc(text, tree), "product modules": 1})
    figures["configuration keys"] = settings_fields(tree)
    figures["`for one in`"] = len(re.findall(r"\bfor one in\b", text))
    figures["files over 500 lines"] = int(text.count("\n") > MAX_FILE)
    figures["lines of word lists in Python"] = word_list_lines(tree)
    if _PROMPT_READING.match(name):
        figures["hand-set numbers in prompt reading"] = hand_set_numbers(tree)
    package = name.partition("/")[0]
    if package in _CROSSINGS and not _COMPOSES.match(name):
        figure, forbidden = _CROSSINGS[package]
        figures[figure] = sum(other in forbidden for other in imported_packages(tree))
    return figures


def room(name: str) -> str:
    """Return a module's folder below its package: gaugeway/text/words.py -> gaugeway/text."""
    package, *inside = name.split("/")[:-1]
    return "/".join([package, *inside[:1]])


def measure(root: Path, *, tests: bool) -> tuple[Counter[str], Counter[str]]:
    """Return the figures (the tests' lines among them), and the lines of each room."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True)  # noqa: S607 - git of the path
    figures: Counter[str] = Counter()
    rooms: Counter[str] = Counter()
    for name in listed.stdout.splitlines():
        package = name.partition("/")[0]
        if package not in PRODUCT and not (tests and package == "tests"):
            continue
        text = (root / name).read_text("utf-8")
        tree = ast.parse(text)
        if package == "tests":
            figures[TESTS] += sloc(text, tree)
            continue
        added = figures_of(name, text, tree)
        figures += added
        rooms[room(name)] += added["product SLOC"]
    return figures, rooms


@click.command()
@click.option("--limits", is_flag=True, help="Exit 1 where a figure is above its limit.")
@click.option("--product", is_flag=True, help="Leave the tests out; quicker.")
def main(limits: bool, product: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Print figures, limits, and the lines of the largest rooms."""
    figures, rooms = measure(ROOT, tests=not product)
    above = [name for name, limit in LIMITS.items() if figures[name] > limit]
    for name, limit in LIMITS.items():
        target = f", target {TARGETS[name]:,}" if name in TARGETS else ""
        over = "  <- over" if name in above else ""
        click.echo(f"{figures[name]:>7,}  {name} (limit {limit:,}{target}){over}")
    click.echo(f"{figures[TESTS]:>7,}  {TESTS}")
    for name, lines in rooms.most_common(SHOWN_ROOMS):
        click.echo(f"{lines:>7,}  {name}")
    sys.exit(bool(above) and limits)


if __name__ == "__main__":
    main()

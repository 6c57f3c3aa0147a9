"""Files and functions stay small; what does not is listed here, for everybody to see."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("gaugeway", "gateway", "monitors", "dashboards")
MAX_FILE, MAX_FUNCTION = 500, 60

# path, or path:function -> why it may be longer
EXCEPTIONS: dict[str, str] = {}


def too_long():
    for path in sorted(path for name in OURS for path in (ROOT / name).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        text = path.read_text("utf-8")
        if len(text.splitlines()) > MAX_FILE:
            yield name
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION:
                yield f"{name}:{node.name}"


def test_nothing_is_too_long_but_what_is_listed():
    assert set(too_long()) == set(EXCEPTIONS)


@pytest.mark.full
def test_every_module_says_in_one_sentence_what_it_does():
    for path in sorted(path for name in OURS for path in (ROOT / name).rglob("*.py")):
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path

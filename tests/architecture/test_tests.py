"""A test whose scenario nobody calls passes whatever the code does."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def never_called(function):
    """The functions in a function that it does not use."""
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return [inner.name for inner in function.body if isinstance(inner, FUNCTION) and inner.name not in used]


@pytest.mark.full
def test_every_scenario_of_a_test_is_run():
    found = [
        f"{path}:{node.lineno}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, FUNCTION) and never_called(node)
    ]
    assert found == []


def test_a_scenario_that_is_not_run_is_seen():
    (function,) = ast.parse("def test_it():\n    async def scenario():\n        pass\n").body
    assert never_called(function) == ["scenario"]

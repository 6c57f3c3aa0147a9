"""A test file stands where the module stands that it tests."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PRODUCT = ("gaugeway", "gateway", "monitors", "dashboards")
BEHAVIOUR = {
    "dashboards": "the shipped boards and rules, read as Grafana and Prometheus read them",
    "dashboards/web": "pages in a browser",
    "gateway/access": "what clients are answered, over a socket",
    "gateway/capture": "what is captured of an exchange, whichever module reads it",
    "gateway/proxy": "what clients and upstreams see of the proxy, over a socket",
    "gateway/upstreams": "what reaches an upstream, over a socket",
    "gaugeway/runtime": "what every listener of the product keeps",
    "monitors/judges": "judges as the product builds them, asked through a server",
}
"""Folder -> what its tests that are named after a behaviour, not after a module, are about."""
FILES = sorted(path for top in PRODUCT for path in (TESTS / top).rglob("test_*.py"))


def imported(tree):
    """The modules that a file imports from, and each as if the imported name were a module of it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def names_of(folder):
    """What a test of a folder may be named after: its modules, its folders and itself."""
    modules = {path.stem.removeprefix("_") for path in folder.glob("*.py")}
    return modules | {path.name for path in folder.iterdir() if path.is_dir()} | {folder.name}


def of_a_module(path, folder):
    about = path.stem.removeprefix("test_")
    return any(about == name or about.startswith(f"{name}_") for name in names_of(folder))


def of_the_package(path, package):
    names = imported(ast.parse(path.read_text("utf-8")))
    return any(name == package or name.startswith(f"{package}.") for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_a_test_stands_where_its_module_stands(path):
    """It is named after a module of the folder, imports something of the folder, or is about its behaviour."""
    where = path.parent.relative_to(TESTS)
    folder = ROOT / where
    assert folder.is_dir(), f"{where} is no folder of the product"
    about = {where.as_posix(), where.parent.as_posix()} & set(BEHAVIOUR)
    assert of_a_module(path, folder) or of_the_package(path, ".".join(where.parts)) or about


def test_no_reason_outlives_its_folder():
    assert all((TESTS / name).is_dir() and (ROOT / name).is_dir() for name in BEHAVIOUR)

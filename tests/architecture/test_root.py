"""The root holds what a newcomer expects; docstrings cite pages that exist; one version is said everywhere."""

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPECTED = {
    ".dockerignore",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "llms.txt",
    "pyproject.toml",
    "requirements.lock",
}
FOLDERS = {
    ".ci",
    "benchmarks",
    "clients",
    "dashboards",
    "deploy",
    "docs",
    "examples",
    "gateway",
    "gaugeway",
    "monitors",
    "tests",
    "tools",
}


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.decode().split("\0") if name]


def test_no_unexpected_file_or_folder_is_at_the_root():
    assert {name.split("/")[0] for name in tracked()} == EXPECTED | FOLDERS


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_that_the_code_cites_exists():
    for name in tracked("*.py"):
        text = (ROOT / name).read_text("utf-8")
        for page, anchor in re.findall(r"\b(docs/[\w-]+/[\w/-]+\.md)(?:#([\w-]+))?", text):
            assert (ROOT / page).exists(), (name, page)
            assert not anchor or anchor in anchors(ROOT / page), (name, page, anchor)


def test_the_changelog_begins_with_the_version_of_the_package():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert version("gaugeway") == declared
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[0] == declared

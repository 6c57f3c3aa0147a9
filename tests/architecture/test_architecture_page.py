"""The page that explains the architecture names files and folders that exist, and every room."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`((?:gaugeway|gateway|monitors|dashboards)/[\w/.]+)`", PAGE)))
MOST_MODULES = 20
PACKAGES = ("gaugeway", "gateway", "monitors", "dashboards")


@pytest.mark.parametrize("path", PATHS)
def test_what_it_names_exists(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("plane", ["gaugeway", "gateway", "monitors"])
def test_every_room_is_named(plane):
    rooms = {one.parent.name for one in (ROOT / plane).glob("*/__init__.py")}
    beside = {"cli", "api", "demo", "telemetry", "offline", "extensions"}
    assert [room for room in sorted(rooms - beside) if f"{plane}/{room}" not in PAGE] == []


def test_no_folder_has_too_many_modules():
    folders = {one.parent for package in PACKAGES for one in (ROOT / package).rglob("*.py")}
    sizes = {str(one.relative_to(ROOT)): sum(path.stem != "__init__" for path in one.glob("*.py")) for one in folders}
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}

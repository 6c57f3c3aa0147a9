"""What is installed is locked by hash, its licences are known, and no copyleft comes in unseen."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
PAGE = (ROOT / "docs" / "reference" / "licences.md").read_text()
NOT_PERMISSIVE = {"certifi": "MPL-2.0", "python-stdnum": "LGPL-2.1-or-later"}
PERMISSIVE = {"MIT", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Apache-2.0", "PSF-2.0", "Zlib", "CC0-1.0", "CNRI-Python"}
ELSEWHERE = {"httpx2-jsfetch"}
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|MPL|EUPL|CDDL|EPL|SSPL|BUSL)|GNU|Mozilla|Affero|Commons Clause", re.IGNORECASE)
EXTRAS = ("clickhouse", "email", "otlp", "postgres", "redis")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def locked():
    return re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", LOCK, re.MULTILINE)


def test_the_page_lists_exactly_what_is_locked():
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (\d\S*) \| .+ \|$", PAGE, re.MULTILINE)
    assert rows == locked()


def test_every_licence_is_permissive_or_agreed_to():
    for name, licence in re.findall(r"^\| ([a-z0-9-]+) \| \d\S* \| (.+) \|$", PAGE, re.MULTILINE):
        if name in NOT_PERMISSIVE:
            assert licence == NOT_PERMISSIVE[name]
        elif name not in ELSEWHERE:
            assert set(re.split(r" AND | OR ", licence)) <= PERMISSIVE, (name, licence)


@pytest.mark.parametrize("name", sorted({name for name, _ in locked()}))
def test_no_package_declares_another_licence_than_the_page_says(name):
    try:
        declared = metadata(name)
    except PackageNotFoundError:
        pytest.skip("for another system")
    told = [declared.get("License-Expression") or "", (declared.get("License") or "").split("\n")[0]]
    told += [one for one in declared.get_all("Classifier") or () if one.startswith("License ::")]
    assert any(told), "it declares none"
    assert (COPYLEFT.search(" ".join(told)) is not None) == (name in NOT_PERMISSIVE), told


def test_every_file_of_the_lock_has_its_hash():
    for entry in re.split(r"^(?=[a-z])", LOCK, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry.split("\n")[0]
    assert not re.search(r"^-|://| @ |--(extra-)?index-url|--find-links", LOCK, re.MULTILINE)


def test_whatever_the_project_needs_is_in_the_lock():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    names = {canonical(name) for name, _ in locked()}
    assert {canonical(re.match(r"[A-Za-z0-9_.-]+", one)[0]) for one in needed} <= names


def test_the_image_installs_from_the_lock_and_runs_as_nobody_special():
    text = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes" in text
    assert "-r requirements.lock" in text
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE)

"""Wheel and sdist: complete, accepted by the index, and enough to run the product in an environment of its own."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser

import pytest

from benchmarks import installing
from gaugeway.settings import child_environment
from tests.deploy.reading import ROOT

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGES = ("gaugeway", "gateway", "monitors", "dashboards")
NOT_SHIPPED = "dashboards/dev/"


def command(*words, cwd, codes=(0,)):
    """The output of a command that must succeed, without the checkout on its path."""
    environment = child_environment({})
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode in codes, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def tracked(*folders):
    return command("git", "ls-files", *folders, cwd=ROOT).split()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist as `make dist` makes them, of a clean copy of what is tracked; and a wheel without the sdist."""
    if not (ROOT / ".git").exists():
        pytest.skip("which files are tracked is known in a git checkout only")
    source = tmp_path_factory.mktemp("source")
    copied = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    tar = subprocess.run(["tar", "-c", "--null", "-T", "-"], cwd=ROOT, input=copied, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=source, input=tar.stdout, check=True)
    build = (sys.executable, "-m", "build", "--no-isolation")
    command(*build, "--wheel", "--outdir", "direct", ".", cwd=source)
    command("rm", "-rf", "build", cwd=source)
    command(*build, "--outdir", "dist", ".", cwd=source)
    return source


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = (built / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="module")
def home(wheel, tmp_path_factory):
    """An environment with the wheel and what it requires, nothing else."""
    home = tmp_path_factory.mktemp("environment")
    assert installing.install(home, [str(wheel)]) == "installed"
    return home


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}


def test_the_index_takes_both(built):
    files = sorted(str(path) for path in (built / "dist").iterdir())
    assert [re.sub(r".*/", "", path) for path in files] == [
        f"gaugeway-{PROJECT['version']}-py3-none-any.whl",
        f"gaugeway-{PROJECT['version']}.tar.gz",
    ]
    said = command(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files, cwd=built)
    assert said.count("PASSED") == 2, said


def test_every_file_of_the_packages_is_in_the_wheel_and_nothing_else(wheel):
    files = {name for name in contents(wheel) if ".dist-info/" not in name}
    assert files == {name for name in tracked(*PACKAGES) if not name.startswith(NOT_SHIPPED)}


def test_the_sdist_builds_the_same_wheel(built, wheel):
    (direct,) = (built / "direct").glob("*.whl")
    assert contents(direct) == contents(wheel)
    with tarfile.open(next((built / "dist").glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_the_wheel_says_what_it_is(wheel):
    (name,) = [name for name in contents(wheel) if name.endswith(".dist-info/METADATA")]
    described = HeaderParser().parsestr(contents(wheel)[name].decode())
    assert (described["Name"], described["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert described["License-Expression"] == PROJECT["license"]
    assert described["Description-Content-Type"] == "text/markdown"
    assert set(described.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])


def test_an_empty_environment_runs_it(home, tmp_path):
    program = str(home / "bin/gaugeway")
    assert command(program, "--version", cwd=tmp_path).split()[-1] == PROJECT["version"]
    place = command(str(home / "bin/python"), "-c", "import gaugeway; print(gaugeway.__file__)", cwd=tmp_path)
    assert place.startswith(str(home))
    made = ("--upstream", "https://api.openai.com/v1", "--no-slack", "--output", "gaugeway.toml")
    command(program, "init", *made, cwd=tmp_path)
    assert "gaugeway.toml" in command(program, "check", "--config", "gaugeway.toml", cwd=tmp_path)
    command(program, "dashboards", "monitoring", cwd=tmp_path)
    assert list((tmp_path / "monitoring").rglob("*.json"))


def test_the_demo_runs_in_it(home, tmp_path):
    """A busy machine may not get as far as the alert in that time (exit code 1), but it has scores."""
    said = command(str(home / "bin/gaugeway"), "demo", "--seconds", "45", cwd=tmp_path, codes=(0, 1))
    assert re.search(r"0\.\d+ \[0\.\d+, [01]\.\d+\]", said), said[-2000:]

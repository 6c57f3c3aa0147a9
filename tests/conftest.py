"""Settings of the whole suite, and which tests `make test` leaves to `make test-all`."""

import gc
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, and no time limit for one or for making them: a test fails for what it says, not for
# the machine's load.
settings.register_profile(
    "suite", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=20)

_SHOWN = 40
_QUICK = "not full"
_TESTS = Path(__file__).parent
_FULL = ("integration", "frameworks", "deploy")
"""Directories of tests that start whole products, servers and other environments."""
_END_TO_END = {"test_contexts.py", "test_openai_client.py", "test_refused_samples.py"}
"""Of them, those that `make test` runs as well."""
_SERVERS = re.compile(r"postgres|redis|clickhouse|browser|alertmanager|test_rules|test_routes|test_live", re.IGNORECASE)
"""In the name of a test that needs a server, a browser or Prometheus' tools."""


def pytest_configure(config):
    """Fewer generated examples in `make test`; a test that asks for a number asks for a multiple of the profile's."""
    settings.load_profile("quick" if config.option.markexpr == _QUICK else "suite")


@pytest.fixture(autouse=True)
def no_values_of_other_tests(monkeypatch):
    """A process conceals all values that its configuration was ever filled in with: of one test, not of all."""
    monkeypatch.setattr("monitors.runtime.placeholders._filled_in", {})


def pytest_collection():
    """Do not look for garbage among what is imported and collected, which stays: now, or (frozen) in every test."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path, config):
    """Spare `make test` the import of files of which it runs nothing."""
    if config.option.markexpr != _QUICK or collection_path.suffix != ".py" or collection_path == Path(__file__):
        return None
    return _whole(collection_path) or "\npytestmark = pytest.mark.full" in collection_path.read_text() or None


def pytest_collection_modifyitems(items):
    """Mark as `full` what needs more than Python, or much time."""
    whole = {path: _whole(path) for path in {item.path for item in items}}
    for item in items:
        if whole[item.path] or _SERVERS.search(item.name):
            item.add_marker(pytest.mark.full)


def _whole(path):
    """Whether every test of the file needs more than Python."""
    if not path.is_relative_to(_TESTS):
        return False
    where = path.relative_to(_TESTS)
    return bool((where.parts[0] in _FULL and where.name not in _END_TO_END) or _SERVERS.search(where.name))


def pytest_terminal_summary(terminalreporter):
    """Say what the run has cost: this process, its workers, and all that they started and waited for."""
    minutes, seconds = divmod(round(sum(os.times()[:4])), 60)
    terminalreporter.write_line(f"processor time: {minutes} min {seconds} s (CONTRIBUTING.md has the bound)")


def pytest_make_parametrize_id(val):
    """Name long bytes by their kind: compressed ones hold the time, and all processes of a run must agree on names."""
    return "bytes" if isinstance(val, bytes) and len(val) > _SHOWN else None

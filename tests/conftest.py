"""Settings of the whole suite, and which tests `make test` leaves to `make test-all`."""

import re
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, and no time limit for one: a test fails for what it says, not for the machine's load.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")

_SHOWN = 40
_TESTS = Path(__file__).parent
_FULL = ("integration", "frameworks", "deploy")
"""Directories of tests that start whole products, servers and other environments."""
_END_TO_END = {"test_contexts.py", "test_openai_client.py", "test_evaluate_all.py", "test_refused_samples.py"}
"""Of them, those that `make test` runs as well."""
_SERVERS = re.compile(r"postgres|redis|clickhouse|browser|alertmanager|test_rules|test_routes|test_live", re.IGNORECASE)
"""In the name of a test that needs a server, a browser or Prometheus' tools."""


def pytest_collection_modifyitems(items):
    """Mark as `full` what needs more than Python, or much time."""
    for item in items:
        if not item.path.is_relative_to(_TESTS):
            continue
        where = item.path.relative_to(_TESTS)
        whole = where.parts[0] in _FULL and where.name not in _END_TO_END
        if whole or _SERVERS.search(f"{where.name}::{item.name}"):
            item.add_marker(pytest.mark.full)


def pytest_make_parametrize_id(val):
    """Name long bytes by their kind: compressed ones hold the time, and all processes of a run must agree on names."""
    return "bytes" if isinstance(val, bytes) and len(val) > _SHOWN else None

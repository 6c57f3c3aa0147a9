"""Settings of the whole suite, and which tests `make test` leaves to `make test-all`."""

import asyncio
import functools
import gc
import inspect
import os
import re
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest
from httpx import create_ssl_context
from hypothesis import HealthCheck, settings

# The same examples in every run, and no time limit for one or for making them: a test fails for what it says, not for
# the machine's load.
settings.register_profile(
    "suite", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=20)
for call in (httpx.get, httpx.post):  # a busy machine needs more than 5 s
    call.__kwdefaults__["timeout"] = 60.0

_SHOWN = 40
_QUICK = "not full"
_TESTS = Path(__file__).parent
_FULL = ("integration", "frameworks", "deploy")
"""Directories of tests that start whole products, servers and other environments."""
_END_TO_END = {"test_contexts.py", "test_openai_client.py", "test_refused_samples.py"}
"""Of them, those that `make test` runs as well."""
_SERVERS = re.compile(r"postgres|redis|clickhouse|browser|alertmanager|test_rules|test_routes|test_live", re.IGNORECASE)
"""In the name of a test that needs a server, a browser or Prometheus' tools."""
_LONGEST = (
    *("integration/test_alert_judge", "integration/test_alert_causes", "integration/test_operations"),
    *("dashboards/test_live", "integration/test_rolling_upgrade", "integration/test_faults"),
    *("integration/test_scoring_workers", "gaugeway/prompts/test_chain", "dashboards/web/test_charts"),
    *("integration/test_process_ends", "integration/test_fault_matrix", "integration/test_demo"),
)
"""Files that take a minute or more: started last, one of them would keep the whole run waiting for it alone."""


def pytest_configure(config):
    """Fewer generated examples in `make test`; a test that asks for a number asks for a multiple of the profile's."""
    # What is compiled is kept, however pytest was called: many tests start the product.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # noqa: TID251 - a test's own switch
    sys.dont_write_bytecode = False
    settings.load_profile("quick" if config.option.markexpr == _QUICK else "suite")
    pytest.MonkeyPatch().setattr("httpx._transports.default.create_ssl_context", _certificates)


def _certificates(verify=True, cert=None, trust_env=True):
    """Let all clients that trust the usual authorities share these: reading them costs 35 ms, and `httpx.get` does it.

    Tests make thousands of clients, most of them to ask a server on loopback without TLS.
    """
    if verify is not True or cert is not None:
        return create_ssl_context(verify, cert, trust_env)
    return _usual(trust_env, *(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")))  # noqa: TID251 - as httpx


@functools.cache
def _usual(trust_env, *_environment):
    return create_ssl_context(trust_env=trust_env)


@pytest.fixture(autouse=True)
def no_values_of_other_tests(monkeypatch):
    """A process conceals all values that its configuration was ever filled in with: of one test, not of all."""
    monkeypatch.setattr("gaugeway.settings.placeholders._filled_in", {})


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}  # noqa: SLF001 - as pytest's own call
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


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


def pytest_collection_modifyitems(config, items):
    """Mark as `full` what needs more than Python, or much time, and let what takes long come first."""
    whole = {path: _whole(path) for path in {item.path for item in items}}
    for item in items:
        if whole[item.path] or _SERVERS.search(item.name):
            item.add_marker(pytest.mark.full)
    if config.option.markexpr != _QUICK:
        _longest_first(items)


def _longest_first(items):
    """Put the longest files first, then what runs whole products, then files by their number of tests.

    It takes `--no-loadscope-reorder`, or xdist goes by the number alone.
    """
    places = {_TESTS / f"{name}.py": place for place, name in enumerate(_LONGEST)}
    counts = Counter(item.path for item in items)
    items.sort(
        key=lambda item: (
            places.get(item.path, len(places)),
            not item.path.is_relative_to(_TESTS / "integration"),
            -counts[item.path],
        )
    )


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

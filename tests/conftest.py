"""Settings of the whole suite."""

from hypothesis import settings

# The same examples in every run, and no time limit for one: a test fails for what it says, not for the machine's load.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")

_SHOWN = 40


def pytest_make_parametrize_id(val):
    """Name long bytes by their kind: compressed ones hold the time, and all processes of a run must agree on names."""
    return "bytes" if isinstance(val, bytes) and len(val) > _SHOWN else None

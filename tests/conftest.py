"""Settings of the whole suite."""

from hypothesis import settings

# The same examples in every run, and no time limit for one: a test fails for what it says, not for the machine's load.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")

"""No result of a view depends on how busy the machine is: its limits of time are those of a machine without haste."""

from __future__ import annotations

import pytest

from dashboards.web.views import compare, explore


@pytest.fixture(autouse=True)
def no_haste(monkeypatch):
    """Longer limits, which tests of the limits set themselves."""
    for name in ("SPREAD_S", "NEWEST_S", "TOPICS_S"):
        monkeypatch.setattr(explore, name, 30.0)
    for name in ("WITHIN_S", "FINE_WITHIN_S"):
        monkeypatch.setattr(compare, name, 30.0)

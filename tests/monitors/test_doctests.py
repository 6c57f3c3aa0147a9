"""The examples in the docstrings of the pure modules hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import monitors.alerting.detectors
import monitors.statistics

PACKAGES = (monitors.statistics, monitors.alerting.detectors)
MODULES = [f"{p.__name__}.{module.name}" for p in PACKAGES for module in pkgutil.iter_modules(p.__path__)] + [
    "gaugeway.sampling",
    "monitors.alerting.causes",
    "monitors.alerting.slices",
    "gaugeway.text.topics",
    "monitors.alerting.rule_watch",
    "monitors.alerting.rules",
    "monitors.alerting.changes",
    "monitors.alerting.notifiers.message",
]


@pytest.mark.parametrize("name", MODULES)
def test_every_example_prints_what_it_says(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0

"""What `explain` and the report of sources say about the simulated changes of `benchmarks/detection`."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace

import msgspec
import numpy as np

from tests.golden.record import ROOT

BEFORE, SINCE = 500, 400
"""Exchanges on either side of the onset."""


def benchmark(name):
    """A module of the benchmarks of detection, which import each other by their names alone."""
    folder = str(ROOT / "benchmarks/detection")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def changes():
    """Every simulated change: its name, what is said about it."""
    causes, worlds = benchmark("causes"), benchmark("cause_worlds")
    tables = {"": causes.scenarios(), "held out: ": causes.held_out(), "sources: ": causes.sources()}
    for place, (title, table) in enumerate(tables.items()):
        for number, (name, scenario) in enumerate(table.items()):
            seed = 1000 * place + number
            rng = np.random.default_rng([seed, 0])
            day = worlds.side(rng, scenario.before, BEFORE, worlds.ONSET - worlds.DAY_S, worlds.ONSET)
            found = msgspec.structs.asdict(causes.run(replace(scenario, lowest_of=1), day, seed, SINCE))
            yield title + name, {key: value for key, value in found.items() if key != "place"}  # it has all the scores


def incidents():
    """Every incident with bad sources: its name, the sources of the report, the drop and the source of the alert."""
    sources = benchmark("sources")
    for number, kind in enumerate(sources.INCIDENTS):
        world = sources.World(np.random.default_rng([20260301, number]), kind)
        before = world.exchanges(SINCE, sources.ONSET - sources.LENGTH_S, since=False)
        since = world.exchanges(SINCE, sources.ONSET, since=True)
        scope = sources.Scope(
            app="shop", metric="faithfulness", since=sources.ONSET, until=sources.ONSET + sources.LENGTH_S
        )
        report = sources.reported(since, scope)
        is_clear, named = sources.named_by_alert(before, since)
        yield kind.name, {"sources": report.sources[:5], "clear": is_clear, "alert": named, "bad": sorted(world.bad)}


def fresh():
    return dict(changes()) | {f"incident: {name}": found for name, found in incidents()}

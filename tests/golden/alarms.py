"""When the detectors alarm in streams of fixed seeds: the recursion alone, rules on metrics, rules on signals."""

from __future__ import annotations

import itertools

import numpy as np

from gaugeway.settings.shared import Rule
from monitors.alerting.detectors import Bucket
from tests.golden.causes import benchmark
from tests.support.alerting import watching

CALM, LOW = 700, 200
"""Buckets before, in and after a drop."""
RUNS, STEPS, LEARNED, LATEST = 6, 2000, 2000, 4
DROP, PER_BUCKET = 0.1, 10
WEIGHTS = (1.0, 0.5) * (PER_BUCKET // 2)
RULES = {
    "objective": {"slo": 0.85},
    "objective with a tolerance": {"slo": 0.85, "tolerance": 0.03},
    "baseline auto": {"baseline": "auto"},
    "baseline auto, to warn": {"baseline": "auto", "severity": "warn"},
    "baseline window": {"baseline": "window"},
    "baseline ratchet": {"baseline": "ratchet"},
    "baseline seasonal": {"baseline": "seasonal"},
    "threshold": {"slo": 0.8, "detector": "threshold"},
}


def recursion():
    """Law and detector: the steps at which each of the parallel streams alarms; the drop is in the middle."""
    laws, streams = benchmark("laws"), benchmark("streams")
    for number, (law, draw) in enumerate(laws.LAWS.items()):
        rng = np.random.default_rng([7, number])
        history = draw(rng, laws.M0, (LEARNED, RUNS))
        scores = np.concatenate([draw(rng, mean, (STEPS, RUNS)) for mean in (laws.M0, laws.M0 - DROP)])
        for watcher in streams.watchers(500.0):
            if isinstance(watcher, streams.ESR):
                watcher.begin(history)
                watcher.chunk(scores)
                hits = np.array([watcher.step(step) for step in range(len(scores))])
                yield f"{law}: {watcher.name}", [np.flatnonzero(hits[:, run]).tolist() for run in range(RUNS)]


def rules():
    """Law and rule: every change of state, as the bucket with the state."""
    laws = benchmark("laws")
    for number, ((law, draw), (name, settings)) in enumerate(itertools.product(laws.LAWS.items(), RULES.items())):
        stream = watching(1e-5, Rule(metric="faithfulness", **settings)).stream("shop")
        step_s = 3600.0 if name == "baseline seasonal" else 60.0
        rng, states = np.random.default_rng([8, number]), []
        means = [laws.M0] * CALM + [laws.M0 - DROP] * LOW + [laws.M0] * LOW
        for bucket, mean in enumerate(means):
            scores = tuple(draw(rng, mean, PER_BUCKET).tolist())
            before = stream.state
            stream.take(Bucket(start=step_s * bucket, seconds=step_s, scores=scores, weights=WEIGHTS))
            if stream.state != before:
                states.append([bucket, stream.state])
        yield f"{law}: {name}", states


def signals():
    """Change of a signal: the first alarms, as the bucket with the direction."""
    benchmarked = benchmark("signals")
    for name, (signal, draw) in benchmarked.CHANGES.items():
        source, watched, at = benchmarked.learn(signal, np.random.default_rng((9, 0)))
        source.draw = draw
        found = benchmarked.alarms(source, watched, range(at, at + 140))
        yield name, [[bucket - at, stream.flipped] for bucket, stream in itertools.islice(found, LATEST)]


def fresh():
    return dict(recursion()) | dict(rules()) | dict(signals())

"""river's own ADWIN through the product's adapter, stream by stream: it is no numpy, so there are fewer streams."""

from __future__ import annotations

import installs
import numpy as np
from laws import M0

from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.river import RiverDetector

NAME = "ADWIN (river's defaults), drops only"
MINUTE = 10


def alarms(detector: RiverDetector, scores) -> list[int]:
    """The times of the alarms, in scores; it is fed once a minute."""
    found = []
    for start in range(0, len(scores), MINUTE):
        part = tuple(scores[start : start + MINUTE].tolist())
        bucket = Bucket(start=6.0 * start, seconds=60.0, scores=part, weights=(1.0,) * len(part))
        if detector.update(bucket):
            found.append(start + len(part))
    return found


def row(law, rng, *, runs: int, n: int, change_runs: int, drops: tuple[float, ...], longest: int):
    """False alarms per 1e5, P(alarm within 1e4) and median delays; None when river is not installed."""
    if not installs.find():
        return None
    times = [alarms(RiverDetector(), law(rng, M0, n)) for _ in range(runs)]
    rate = sum(map(len, times)) / (runs * n) * 1e5
    early = float(np.mean([bool(found) and found[0] <= 10_000 for found in times]))
    medians = []
    for drop in drops:
        delays = []
        for _ in range(change_runs):
            detector = RiverDetector()
            before = 3000
            scores = np.concatenate([law(rng, M0, before), law(rng, M0 - drop, longest)])
            # a change that is found makes it start afresh, so one alarm is all that is asked for
            found = [t for t in alarms_until(detector, scores, before) if t > before]
            delays.append(found[0] - before if found else longest)
        medians.append(float(np.median(delays)))
    return rate, early, medians


def alarms_until(detector: RiverDetector, scores, before: int):
    """The times of the alarms, until the first one after `before`."""
    for start in range(0, len(scores), MINUTE):
        part = tuple(scores[start : start + MINUTE].tolist())
        bucket = Bucket(start=6.0 * start, seconds=60.0, scores=part, weights=(1.0,) * len(part))
        if detector.update(bucket):
            yield start + len(part)
            if start >= before:
                return

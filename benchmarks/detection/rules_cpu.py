"""Processor time of one rule per 100,000 scores, from stored points to the alert's state.

    PYTHONPATH=CHECKOUT .venv/bin/python benchmarks/detection/rules_cpu.py

Buckets of five minutes; scores without names and in sessions of five. CHECKOUT is the tree that is measured.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from gaugeway.settings.shared import Alerts
from gaugeway.storage.stores import Point
from monitors.alerting import rules as alert_rules

BUCKET_S, BUCKETS_A_DAY = 300.0, 288


def seconds(per_day: float, days: int, session: int) -> tuple[float, int]:
    """Return the seconds per 100,000 scores, and how many scores there were."""
    config = Alerts(bucket_s=BUCKET_S, slices=("app",))
    rules = alert_rules.rules_of(config, ("faithfulness",), ())
    watch = alert_rules.watch_of(rules[0], config, part=alert_rules.budget_parts(rules, config)[0], flipped=False)
    stream, rng = watch.stream("app"), np.random.default_rng(1)
    assert stream is not None
    buckets: list[list[Point]] = []
    made = 0
    for number in range(days * BUCKETS_A_DAY):
        values = rng.beta(9.0, 1.0, rng.poisson(per_day / BUCKETS_A_DAY)).tolist()
        common = {"started_at": number * BUCKET_S, "app": "app", "model": "m", "metric": "faithfulness"}
        buckets.append(
            [
                Point(
                    sample_id=str(made + at),
                    outcome="score",
                    value=value,
                    reason="",
                    rate=1.0,
                    weight=1.0,
                    cluster=f"s:{(made + at) // session}" if session else None,
                    **common,
                )
                for at, value in enumerate(values)
            ]
        )
        made += len(values)
    began = time.process_time()
    for number, points in enumerate(buckets):
        if points:
            stream.take(stream.bucket(number * BUCKET_S, BUCKET_S, points))
    return (time.process_time() - began) / made * 1e5, made


def main() -> int:
    print(alert_rules.__file__, sys.version.split()[0])
    for per_day, days in ((3_000.0, 14), (20_000.0, 4)):
        for session in (0, 5):
            took, made = seconds(per_day, days, session)
            names = f"sessions of {session}" if session else "no names"
            print(f"{per_day:,.0f} scores a day, {names}: {took:.2f} s per 100,000 scores ({made:,} scores)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

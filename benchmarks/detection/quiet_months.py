"""Months of unchanged traffic: how often do the ranked signals alarm, and how soon does a real change?

    nice -n 10 .venv/bin/python -m benchmarks.detection.quiet_months [--months 12] [--runs 20] [--processes 2]

An app with 20,000 exchanges a day whose values are independent and of one law, through the product's references, rules,
budget and streams (buckets of five minutes, five metrics beside the signals). "before" ranks against 256 values, the
oldest of which is replaced every 40 minutes. Writes results/quiet-months.md.
"""

from __future__ import annotations

import argparse
import platform
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.detection.signals import APP, BUCKET_S, PER_BUCKET, PER_DAY, SEED, streams
from monitors.alerting.detectors import Bucket
from monitors.alerting.stream import Stream, on_scale
from monitors.signals.references import HIGH, SIZE, Reference

RESULTS = Path(__file__).parent / "results" / "quiet-months.md"
BUCKETS_A_DAY = PER_DAY // PER_BUCKET
DAYS, LEARN_DAYS, MOST_DAYS = 30, 3, 2
Draw = Callable[[np.random.Generator, int], np.ndarray]
LAWS: Mapping[str, tuple[str, Draw]] = {
    "retriever_score": ("normal", lambda rng, n: 0.8 + 0.05 * rng.standard_normal(n)),
    "contexts_per_answer": ("3 to 5, alike", lambda rng, n: rng.integers(3, 6, n).astype(float)),
    "slow": ("lognormal, sigma 0.5", lambda rng, n: np.exp(0.5 * rng.standard_normal(n))),
    "expensive": ("three prices: 70, 25 and 5 %", lambda rng, n: rng.choice([1.0, 2.0, 9.0], n, p=[0.7, 0.25, 0.05])),
    "no_contexts": ("binary, 3 %", lambda rng, n: (rng.random(n) >= 0.03).astype(float)),
}
CHANGES: Mapping[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "responses take 1.3 times as long": ("slow", lambda x: 1.3 * x),
    "responses take twice as long": ("slow", lambda x: 2.0 * x),
    "retriever scores fall by 0.1 (2 sd)": ("retriever_score", lambda x: x - 0.1),
    "retriever scores fall by 0.02 (0.4 sd)": ("retriever_score", lambda x: x - 0.02),
    "one passage fewer": ("contexts_per_answer", lambda x: x - 1.0),
}


class LastValues:
    """The reference before: 256 values, the oldest of which is replaced every 40 minutes."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._sorted: list[float] = []
        self._changed_at = 0.0

    @property
    def known(self) -> bool:
        return len(self._values) >= SIZE

    def add(self, value: float, at: float) -> None:
        if self.known:
            if at < self._changed_at + 7 * 86_400.0 / SIZE:
                return
            self._sorted.pop(bisect_left(self._sorted, self._values.pop(0)))
        self._values.append(value)
        insort(self._sorted, value)
        self._changed_at = at

    def rank(self, value: float) -> float:
        return (bisect_left(self._sorted, value) + bisect_right(self._sorted, value)) / (2 * SIZE)

    def high(self, value: float) -> float:
        return float(value > self._sorted[int(HIGH * (SIZE - 1))])


class Source:
    """The values of a signal, as the monitors would compute them."""

    def __init__(self, signal: str, rng: np.random.Generator, *, before: bool) -> None:
        self.signal, self.rng, self.draw = signal, rng, LAWS[signal][1]
        self.usual = LastValues() if before else Reference()

    def values(self, at: float) -> list[float]:
        found, usual = [], self.usual
        of = usual.high if self.signal in ("slow", "expensive") else usual.rank
        for value in self.draw(self.rng, PER_BUCKET).tolist():
            if usual.known:
                found.append(1.0 - value if self.signal == "no_contexts" else of(value))
            usual.add(value, at)
        return found


def alarms(source: Source, watched: list[Stream], buckets: range, means: list[float]) -> Iterator[int]:
    """Feed so many buckets; yield the bucket of each alarm of a stream."""
    for index in buckets:
        start = index * BUCKET_S
        if not (values := source.values(start)):
            continue
        means.append(sum(values) / len(values))
        for stream in watched:
            fired = stream.state == "firing"
            scores = tuple(on_scale(value, flipped=stream.flipped) for value in values)
            stream.take(Bucket(start=start, seconds=BUCKET_S, scores=scores, weights=(1.0,) * len(scores)))
            if stream.state == "firing" and not fired:
                yield index


def begun(signal: str, seed: tuple[int, ...], *, before: bool) -> tuple[Source, list[Stream]]:
    watched = [stream for name, stream in streams() if name == signal]
    return Source(signal, np.random.default_rng(seed), before=before), watched


def quiet(signal: str, month: int, *, before: bool) -> tuple[str, bool, int, int, float, float]:
    """Streams and false alarms of a month, and the lowest and highest daily mean from the third day on."""
    source, watched = begun(signal, (SEED, month, list(LAWS).index(signal)), before=before)
    means: list[float] = []
    found = sum(1 for _ in alarms(source, watched, range(DAYS * BUCKETS_A_DAY), means))
    daily = np.array(means[: len(means) // BUCKETS_A_DAY * BUCKETS_A_DAY]).reshape(-1, BUCKETS_A_DAY).mean(axis=1)[2:]
    return signal, before, len(watched), found, float(daily.min()), float(daily.max())


def delay(change: str, run: int, *, before: bool) -> tuple[str, bool, int | None]:
    """Exchanges from a change after three days to the alarm, or None without one in two days."""
    signal, changed = CHANGES[change]
    source, watched = begun(signal, (SEED, run, 99), before=before)
    at, drawn = LEARN_DAYS * BUCKETS_A_DAY, source.draw
    if list(alarms(source, watched, range(at), [])):
        return change, before, -1
    source.draw = lambda rng, n: changed(drawn(rng, n))
    first = next(alarms(source, watched, range(at, at + MOST_DAYS * BUCKETS_A_DAY), []), None)
    return change, before, None if first is None else (first + 1 - at) * PER_BUCKET


def _month(task: tuple[str, int, bool]) -> tuple[str, bool, int, int, float, float]:
    return quiet(task[0], task[1], before=task[2])


def _run(task: tuple[str, int, bool]) -> tuple[str, bool, int | None]:
    return delay(task[0], task[1], before=task[2])


def quiet_table(found: list[tuple[str, bool, int, int, float, float]], months: int) -> Iterator[str]:
    yield "| signal | values | stream-months | alarms before | now | daily means before | now |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    total: Counter[bool | str] = Counter()
    for signal, (law, _) in LAWS.items():
        alarmed, ranges = {}, {}
        for before in (True, False):
            rows = [one for one in found if one[:2] == (signal, before)]
            alarmed[before] = sum(one[3] for one in rows)
            ranges[before] = f"{min(one[4] for one in rows):.3f} to {max(one[5] for one in rows):.3f}"
            total[before] += alarmed[before]
        streamed = rows[0][2] * months
        total["streams"] += streamed
        cells = [law, streamed, alarmed[True], alarmed[False], ranges[True], ranges[False]]
        yield f"| `{signal}` | {' | '.join(map(str, cells))} |"
    yield f"| all | | {total['streams']} | {total[True]} | {total[False]} | | |"
    share = next(stream.budget_per_s for _, stream in streams()) * DAYS * 86_400.0
    allowed = share * total["streams"]
    yield f"\nThe budget allows {allowed:.2f} alarms in {total['streams']} stream-months of app `{APP}`."


def delay_table(found: list[tuple[str, bool, int | None]]) -> Iterator[str]:
    yield "| change | signal | before: exchanges to the alarm, median (90th percentile) | found | now | found |"
    yield "|---|---|--:|--:|--:|--:|"
    for change, (signal, _) in CHANGES.items():
        cells = []
        for before in (True, False):
            runs = [one[2] for one in found if one[:2] == (change, before)]
            some = sorted(one for one in runs if one is not None and one >= 0)
            early = f", {runs.count(-1)} alarmed before the change" if -1 in runs else ""
            shown = "{:.0f} ({:.0f})".format(*np.percentile(some, [50, 90])) if some else "-"
            cells += [shown, f"{len(some)} of {len(runs)}{early}"]
        yield f"| {change} | `{signal}` | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    sides = (True, False)
    months = [(signal, month, before) for month in range(asked.months) for signal in LAWS for before in sides]
    runs = [(change, run, before) for run in range(asked.runs) for change in CHANGES for before in sides]
    with ProcessPoolExecutor(asked.processes) as pool:
        delays = list(pool.map(_run, runs))
        quiets = list(pool.map(_month, months))
    command = f"python -m benchmarks.detection.quiet_months --months {asked.months} --runs {asked.runs}"
    lines = [
        "# Months of unchanged traffic, and real changes",
        f"\n`{command}`, Python {platform.python_version()}, seed {SEED}.",
        f"{PER_DAY:,} exchanges a day of one app; the values",
        'are independent and of one law. "before" ranks against 256 values that are replaced within a week.\n',
        f"{asked.months} months of {DAYS} days for each signal:\n",
        *quiet_table(quiets, asked.months),
        f"\nA change after {LEARN_DAYS} days, {asked.runs} runs each, watched for {MOST_DAYS} days:\n",
        *delay_table(delays),
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""How soon a changed signal pages, how often a quiet day does, and what the signals cost.

    .venv/bin/python benchmarks/detection/signals.py [--runs 100]

An app with 20,000 exchanges a day (14 a minute), the default rules and budget beside five metrics, buckets of five
minutes. Each run learns from 4,000 exchanges; then a quiet day follows, or the change, for up to 10,000 exchanges.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from gaugeway.records import Context, Sample, ToolChecks
from gaugeway.settings.shared import Alerts
from gaugeway.signals import SIGNALS
from monitors.alerting.detectors import Bucket
from monitors.alerting.rules import budget_parts, is_flipped, rules_of, watch_of
from monitors.alerting.stream import Stream, on_scale
from monitors.metrics.registry import names, on_by_default, zero_is_best
from monitors.signals.compute import SignalComputer
from monitors.signals.references import Reference

SEED, APP = 7, "shop"
PER_DAY, LEARN, BUCKET_S = 20_000, 4_000, 300.0
PER_BUCKET = round(PER_DAY * BUCKET_S / 86_400)
MOST = 10_000
QUIET: Mapping[str, float] = {
    "abstained": 0.02,
    "no_contexts": 0.03,
    "language_mismatch": 0.01,
    "truncated": 0.005,
    "tool_invalid": 0.01,
    "tool_unknown": 0.002,
    "tool_repeated": 0.03,
    "tool_empty": 0.05,
}
"""Shares on a quiet day. The others are ranked against what is usual: passages 3 to 5, scores, seconds and USD."""
Draw = Callable[[np.random.Generator, int], np.ndarray]


def share(p: float) -> Draw:
    return lambda rng, n: (rng.random(n) < p).astype(float)


def scores(shift: float) -> Draw:
    return lambda rng, n: 0.8 + 0.05 * (rng.standard_normal(n) - shift)


def passages(fewer: int) -> Draw:
    return lambda rng, n: (rng.integers(3, 6, n) - fewer).astype(float)


def seconds(factor: float) -> Draw:
    return lambda rng, n: factor * np.exp(0.5 * rng.standard_normal(n))


RANKED: Mapping[str, Draw] = {
    "contexts_per_answer": passages(0),
    "retriever_score": scores(0.0),
    "slow": seconds(1.0),
    "expensive": seconds(0.01),
}
CHANGES: Mapping[str, tuple[str, Draw]] = {
    "2 % to 8 % of the answers decline": ("abstained", share(0.08)),
    "2 % to 15 % of the answers decline": ("abstained", share(0.15)),
    "2 % to 40 % of the answers decline": ("abstained", share(0.40)),
    "0.5 % to 10 % of the responses are cut off": ("truncated", share(0.10)),
    "3 % to 20 % of the answers have no passages": ("no_contexts", share(0.20)),
    "retriever scores fall by 0.5 sd": ("retriever_score", scores(0.5)),
    "retriever scores fall by 1 sd": ("retriever_score", scores(1.0)),
    "retriever scores rise by 1 sd": ("retriever_score", scores(-1.0)),
    "one passage fewer": ("contexts_per_answer", passages(1)),
    "responses take 1.5 times as long": ("slow", seconds(1.5)),
    "1 % to 10 % in another language": ("language_mismatch", share(0.10)),
}


class Source:
    """The values of one signal, as the monitors would compute them."""

    def __init__(self, signal: str, rng: np.random.Generator) -> None:
        self.signal, self.rng = signal, rng
        self.usual = Reference() if signal in RANKED else None
        self.draw = RANKED.get(signal) or share(QUIET[signal])

    def values(self, n: int, at: float) -> list[float]:
        found = []
        for value in self.draw(self.rng, n).tolist():
            if self.usual is None:
                found.append(value)
                continue
            if self.usual.known:
                high = self.signal in ("slow", "expensive")
                found.append(self.usual.high(value) if high else self.usual.rank(value))
            self.usual.add(value, at)
        return found


def streams() -> Iterator[tuple[str, Stream]]:
    """The streams of an app's signals, with the product's own share of the budget."""
    config = Alerts(bucket_s=BUCKET_S, slices=("app",))
    rules = rules_of(config, [*filter(on_by_default, names())], SIGNALS)
    for rule, part in zip(rules, budget_parts(rules, config), strict=True):
        if rule.metric in SIGNALS:
            watch = watch_of(rule, config, part=part, flipped=is_flipped(rule, zero_is_best))
            stream = watch.stream(APP)
            assert stream is not None
            yield rule.metric, stream


def alarms(source: Source, watched: list[Stream], buckets: range) -> Iterator[tuple[int, Stream]]:
    """Feed so many buckets; yield the bucket and the stream of each alarm."""
    for index in buckets:
        start = index * BUCKET_S
        if not (values := source.values(PER_BUCKET, start)):
            continue
        for stream in watched:
            before = stream.state
            some = tuple(on_scale(value, flipped=stream.flipped) for value in values)
            stream.take(Bucket(start=start, seconds=BUCKET_S, scores=some, weights=(1.0,) * len(some)))
            if stream.state == "firing" and before != "firing":
                yield index, stream


def learn(signal: str, rng: np.random.Generator) -> tuple[Source, list[Stream], int]:
    source, watched = Source(signal, rng), [stream for name, stream in streams() if name == signal]
    until = LEARN // PER_BUCKET
    assert not list(alarms(source, watched, range(until)))
    return source, watched, until


def quiet(runs: int) -> int:
    """False alarms of all signals in so many days."""
    found = 0
    for run in range(runs):
        for number, signal in enumerate(SIGNALS):
            source, watched, at = learn(signal, np.random.default_rng((SEED, run, number)))
            found += len(list(alarms(source, watched, range(at, at + PER_DAY // PER_BUCKET))))
    return found


def delays(signal: str, draw: Draw, runs: int) -> tuple[list[int], int]:
    """Exchanges from the change to the alarm, one for each run, `MOST` without one; and the wrong directions."""
    found, wrong = [], 0
    for run in range(runs):
        source, watched, at = learn(signal, np.random.default_rng((SEED, run, 99)))
        source.draw = draw
        first = next(alarms(source, watched, range(at, at + MOST // PER_BUCKET)), None)
        found.append(MOST if first is None else (first[0] + 1 - at) * PER_BUCKET)
        if first is not None and len(watched) > 1:
            values = source.values(2_000, 0.0)
            wrong += first[1].flipped != (statistics.fmean(values) > 0.5)
    return found, wrong


ANSWER = (
    "You can return the parcel within thirty days of delivery. Print the label from your account, put it on the box "
    "and bring it to any of our shops or to a post office. The refund takes five working days once the parcel is back. "
)


def cost(runs: int = 7, count: int = 2_000) -> str:
    """Processor time of all signals of one exchange: the least median of some runs."""
    text = "The return policy gives thirty days. " * 30
    contexts = tuple(Context(text=text, score=0.7 + index / 50) for index in range(5))
    plain = Sample(
        id="x",
        started_at=0.0,
        app=APP,
        question="How do I return a parcel that I do not want to keep, and when do I get the money back?",
        response=ANSWER * 2,
        contexts=contexts,
        context_source="structure",
        duration_s=1.3,
        cost_usd=0.002,
    )
    declined = replace(plain, response="I'm sorry, but the documents do not mention that. Please contact our support.")
    german = replace(
        declined, response="Das geht aus den Unterlagen leider nicht hervor. Bitte wenden Sie sich an uns."
    )
    tools = replace(plain, tool_checks=ToolChecks(calls=1, offered=4, validated=1, results=2))
    lines = ["| exchange | µs of processor time, all signals |", "|---|---|"]
    kinds = {"an answer": plain, "it declines": declined, "it declines, in German": german, "with tools": tools}
    for name, sample in kinds.items():
        computer = SignalComputer(SIGNALS)
        for number in range(300):
            computer.compute(replace(sample, started_at=float(number), duration_s=1.0 + number / 300))
        took = []
        for _ in range(runs):
            begin = time.process_time()
            for _ in range(count):
                computer.compute(sample)
            took.append((time.process_time() - begin) / count * 1e6)
        lines.append(f"| {name} | {min(took):.0f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    print(cost(), flush=True)
    print(f"\nFalse alarms of all {len(SIGNALS)} signals in {runs} quiet days: {quiet(runs)}", flush=True)
    print("\n| change | signal | exchanges to the alarm: median (90th percentile) | found |")
    print("|---|---|---|---|", flush=True)
    for name, (signal, draw) in CHANGES.items():
        found, wrong = delays(signal, draw, runs)
        median, late = np.percentile(found, [50, 90])
        note = f", {wrong} in the wrong direction" if wrong else ""
        seen = sum(one < MOST for one in found)
        print(f"| {name} | `{signal}` | {median:.0f} ({late:.0f}) | {seen} of {runs}{note} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

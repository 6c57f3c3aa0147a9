"""How often the source behind low scores is named, and how often a good one is: over simulated incidents.

    .venv/bin/python benchmarks/detection/sources.py             # 200 incidents a row: some minutes on one core
    .venv/bin/python benchmarks/detection/sources.py --write docs/explanation/sources.md   # between the markers there

Report: scored exchanges of a window, as `/api/sources` reads them. Alert: `explain` with 1,000 exchanges before the
onset and as many since as the row says; the source of the alert is right, another one, or none. Without a clear drop
there is nothing to explain, and seldom an alert.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from causes import wilson

from monitors.alerting.causes import Observation, Passages, explain
from monitors.alerting.causes.observations import ALPHA, compare
from monitors.analysis.retrieval.sources import RetrievedExchange, Scope, reported

SEED, RUNS = 20260301, 200
HOUR_S = 3600.0
ONSET, LENGTH_S = 1_760_018_700.0, 12 * HOUR_S
TOPICS, QUESTIONS = 8, 300
BEFORE, SIZES = 1000, (300, 1000)
CLAIMS = 5
DROP = 0.5
APP = "shop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A kind of incident: how many sources there are, how many of them are bad, and what is special about it.

    `beside`: a popular good source is retrieved in three of five exchanges with the bad one and a quarter of the
    others. `fall`: the app gets worse with all sources at the onset.
    """

    name: str
    sources: int
    bad: int = 1
    beside: bool = False
    fall: float = 0.0


INCIDENTS = (
    Incident(name="one bad of 50", sources=50),
    Incident(name="one bad of 300", sources=300),
    Incident(name="one bad of 2,000", sources=2000),
    Incident(name="two bad of 300", sources=300, bad=2),
    Incident(name="one bad of 300, a popular good one beside it", sources=300, beside=True),
    Incident(name="none bad of 50", sources=50, bad=0),
    Incident(name="none bad of 300", sources=300, bad=0),
    Incident(name="none bad of 2,000", sources=2000, bad=0),
    Incident(name="none bad of 300, all answers worse", sources=300, bad=0, fall=0.2),
)


class World:
    """An app: topics with their own sources and questions, of which one in ten is hard, and what became bad in it."""

    def __init__(self, rng: np.random.Generator, kind: Incident) -> None:
        self._rng = rng
        self._kind = kind
        self._topic = rng.integers(TOPICS, size=QUESTIONS)
        self._difficulty = rng.normal(0.0, 0.05, QUESTIONS) + np.where(rng.random(QUESTIONS) < 0.1, 0.3, 0.0)
        self._asked = 1.0 / np.arange(1, QUESTIONS + 1) ** 0.7
        self._asked /= self._asked.sum()
        self._pools = np.array_split(rng.permutation(kind.sources), TOPICS)
        homes = rng.choice(TOPICS, kind.bad, replace=False)
        self._bad = {f"doc-{self._pools[home][0]}": (home, rng.uniform(0.3, 0.8)) for home in homes}
        self._popular = "popular" if kind.beside else None

    @property
    def bad(self) -> frozenset[str]:
        """The names of the bad sources."""
        return frozenset(self._bad)

    def exchanges(self, n: int, start: float, *, since: bool) -> list[RetrievedExchange]:
        """Draw exchanges over twelve hours; `since` the onset the bad sources are bad."""
        rng = self._rng
        return [self._exchange(start + LENGTH_S * at / n, f"{int(start)}-{at}", rng, since=since) for at in range(n)]

    def _exchange(self, at: float, name: str, rng: np.random.Generator, *, since: bool) -> RetrievedExchange:
        question = int(rng.choice(QUESTIONS, p=self._asked))
        topic = int(self._topic[question])
        passages = self._passages(question, topic, rng)
        low = since and not passages.isdisjoint(self._bad)
        model = "a" if rng.random() < 0.7 else "b"
        quality = 0.93 - 0.02 * topic - self._difficulty[question] - 0.04 * (model == "b")
        quality = (quality - self._kind.fall * since) * (1.0 - DROP * low)
        score = rng.binomial(CLAIMS, np.clip(quality, 0.0, 1.0)) / CLAIMS
        return RetrievedExchange(
            id=name,
            started_at=at,
            model=model,
            rate=0.5 if rng.random() < 0.5 else 1.0,
            passages=tuple(sorted(passages)),
            question=str(question),
            topic=str(topic),
            cluster=f"q:{question}",
            score=score,
            passed=score >= 0.7,
            cited=frozenset(),
            contradicted=frozenset(),
        )

    def _passages(self, question: int, topic: int, rng: np.random.Generator) -> set[str]:
        """Two sources that the question always gets, one that varies, and the bad one in some of its topic."""
        pool = self._pools[topic][1:]
        usual = [pool[(7 * question + step) % len(pool)] for step in (0, 3)]
        found = {f"doc-{one}" for one in (*usual, rng.choice(pool))}
        for name, (home, part) in self._bad.items():
            if home == topic and rng.random() < part:
                found.add(name)
        if self._popular is not None and rng.random() < (0.25 if found.isdisjoint(self._bad) else 0.6):
            found.add(self._popular)
        return found


def named_by_report(since: Sequence[RetrievedExchange]) -> set[str]:
    """The sources that the report names."""
    scope = Scope(app=APP, metric="faithfulness", since=ONSET, until=ONSET + LENGTH_S)
    return {one.name for one in reported(since, scope).sources if one.named}


def named_by_alert(before: Sequence[RetrievedExchange], since: Sequence[RetrievedExchange]) -> tuple[bool, str | None]:
    """Whether the drop is clear, without which there is no cause, and the source that the alert names."""
    sides = [[observed(one) for one in side] for side in (before, since)]
    passages = {one.id: Passages(documents=frozenset(one.passages), contradicted=False) for one in (*before, *since)}
    is_clear = compare("faithfulness", *sides).clear(ALPHA)
    return is_clear, explain("faithfulness", *sides, passages=passages).source


def observed(one: RetrievedExchange) -> Observation:
    """An exchange as the search for a cause sees it."""
    return Observation(
        sample_id=one.id,
        metric="faithfulness",
        started_at=one.started_at,
        rate=one.rate,
        outcome="score",
        value=one.score,
        reason="",
        version="1",
        judge="judge",
        strata={"model": one.model, "topic": f"topic:{one.topic}"},
        question=one.question,
    )


def percent(part: float, whole: float) -> str:
    """A share in per cent, with its 95 % interval."""
    return wilson(int(part), int(whole))


def row(kind: Incident, n: int, runs: int, seed: int) -> str:
    """One line of the table."""
    right = named = bad = some_wrong = clear = alert_right = alert_wrong = 0
    for run in range(runs):
        world = World(np.random.default_rng([seed, run, n, kind.sources]), kind)
        before = world.exchanges(BEFORE, ONSET - LENGTH_S, since=False)
        since = world.exchanges(n, ONSET, since=True)
        found = named_by_report(since)
        right += len(found & world.bad)
        named += len(found)
        bad += len(world.bad)
        some_wrong += not found <= world.bad
        is_clear, source = named_by_alert(before, since)
        clear += is_clear
        alert_right += source in world.bad
        alert_wrong += source is not None and source not in world.bad
    cells = [
        kind.name,
        f"{n:,}",
        percent(right, named) if named and bad else "-",
        percent(right, bad) if bad else "-",
        percent(some_wrong, runs),
        percent(clear, runs),
        percent(alert_right, clear) if bad and clear else "-",
        percent(alert_wrong, clear) if clear else "-",
    ]
    return f"| {' | '.join(cells)} |"


def table(runs: int, seed: int, only: str) -> Iterable[str]:
    """The lines of the table."""
    yield (
        "| incident | scores since | report: precision | report: recall | report: any wrong name | clear drops "
        "| right source in their alert | wrong source |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for number, kind in enumerate(INCIDENTS):
        if only in kind.name:
            for n in SIZES:
                yield row(kind, n, runs, seed + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="", help="incidents whose name contains this")
    parser.add_argument("--write", type=Path, help="a page with the markers, to put the table between")
    options = parser.parse_args()
    lines = []
    for line in table(options.runs, SEED, options.only):
        print(line, flush=True)
        lines.append(line)
    if options.write is not None:
        begin, end = "<!-- begin: benchmarks/detection/sources.py -->", "<!-- end: benchmarks/detection/sources.py -->"
        head, rest = options.write.read_text("utf-8").split(begin)
        options.write.write_text("\n".join([head + begin, "", *lines, "", end + rest.split(end)[1]]), "utf-8")


if __name__ == "__main__":
    main()

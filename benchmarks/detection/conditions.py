"""What breaks detectors in practice, each with the guard and without: orders, samples, slices, clocks.

    .venv/bin/python benchmarks/detection/conditions.py [--full]

All streams are LLM-like and without a drop. The statistic is the detector's own, many streams at once.
"""

from __future__ import annotations

import argparse

import numpy as np
from laws import M0, SEED, llm_like
from streams import log_mean

from monitors.statistics import eprocess
from monitors.statistics.multiple_testing import share

C, MINUTE = 5e4, 10
BETS = eprocess.bets()


def increments(scores, weights=1.0):
    """The bets' log increments of scores on the last axis of (…, scores), summed over it."""
    payoffs = eprocess.drop_payoffs(scores, np.broadcast_to(weights, scores.shape), M0)
    return eprocess.log_factors(payoffs, BETS).sum(axis=-2)


class Counter:
    """Counts the alarms of streams that get a bucket a step; a bucket without scores changes nothing."""

    def __init__(self, streams: int, log_start):
        self.log_m = np.full((streams, eprocess.BETS), eprocess.EMPTY)
        self.log_start, self.alarms = np.broadcast_to(log_start, (streams,))[:, None], 0

    def step(self, logs, filled=None):
        moved = eprocess.shiryaev_roberts(self.log_m, logs, self.log_start)
        self.log_m = moved if filled is None else np.where(filled[:, None], moved, self.log_m)
        hit = log_mean(self.log_m) >= 0.0
        if hit.any():
            self.alarms += int(hit.sum())
            self.log_m[hit] = eprocess.EMPTY


def rate_of(buckets, *, streams: int, weights=None) -> float:
    """Alarms per 1e5 scores of buckets (steps, streams, scores a bucket), at one alarm in C scores as the budget."""
    size = buckets.shape[-1]
    counter = Counter(streams, np.log(size / C))
    for start in range(0, len(buckets), 200):
        part = buckets[start : start + 200]
        for logs in increments(part, 1.0 if weights is None else weights[start : start + 200]):
            counter.step(logs)
    return counter.alarms / buckets.size * 1e5


def biased(rng, n: int, streams: int):
    """Bad answers judged at .20, good ones at .05: with the weights .05/rate, and without them."""
    everything = llm_like(rng, M0, (16 * n * streams,))
    rates = np.where(everything < M0, 0.20, 0.05)
    kept = rng.random(everything.shape) < rates
    scores, rates = everything[kept], rates[kept]
    steps = scores.size // (MINUTE * streams)
    shape = steps, streams, MINUTE
    scores, rates = scores[: np.prod(shape)].reshape(shape), rates[: np.prod(shape)].reshape(shape)
    return rate_of(scores, streams=streams, weights=0.05 / rates), rate_of(scores, streams=streams)


def backlog(rng, n: int, streams: int):
    """Of every 2000 exchanges the last 300 come back together, low scores last; the mean is .02 above the SLO."""
    scores = llm_like(rng, M0 + 0.02, (n // 2000, 2000, streams))
    arrived = scores.copy()
    arrived[:, -300:] = -np.sort(-scores[:, -300:], axis=1)
    in_minutes = (n // MINUTE, MINUTE, streams)
    started, came = (part.reshape(in_minutes).transpose(0, 2, 1) for part in (scores, arrived))
    return rate_of(started, streams=streams), rate_of(came, streams=streams)


def first_come(rng, n: int, streams: int):
    """50 exchanges a minute, of which 5 are judged: a random choice, or the first to be done; bad answers are short."""
    fair, first = [], []
    for _ in range(n // 5):
        scores = llm_like(rng, M0, (streams, 50))
        done = rng.exponential(0.5 + scores)
        fair.append(scores[:, :5])  # independent of everything, like a hash of the id
        first.append(np.take_along_axis(scores, np.argsort(done, axis=1)[:, :5], axis=1))
    return rate_of(np.array(fair), streams=streams), rate_of(np.array(first), streams=streams)


def chosen_bets(rng, n: int, streams: int):
    """A cheap score guesses each judged one: bet on every score, or only where the guess is low."""
    scores = llm_like(rng, M0, (n // MINUTE, streams, MINUTE))
    low = scores + rng.normal(0.0, 0.3, scores.shape) < 0.7
    # a score of m0 leaves every factor at 1: no bet
    return rate_of(scores, streams=streams), rate_of(np.where(low, scores, M0), streams=streams)


def slices(rng, minutes: int, streams: int) -> tuple[float, float]:
    """All of the traffic and 50 unequal slices of it on one budget: alarms in all of them together, and the budget."""
    parts, budget = 50, 1.0 / 5000.0
    shares = 1.0 / np.arange(1, parts + 1)
    starts = np.log(budget / 2) + np.log([1.0, *(share(order) for order in range(parts))])
    counter = Counter(streams * (parts + 1), np.tile(starts, streams))
    which = np.arange(streams)[:, None]
    for _ in range(minutes):
        scores = llm_like(rng, M0, (streams, MINUTE))
        part = rng.choice(parts, size=(streams, MINUTE), p=shares / shares.sum()) + 1
        each = increments(scores[..., None])
        logs, filled = np.zeros((streams, parts + 1, eprocess.BETS)), np.zeros((streams, parts + 1), dtype=bool)
        np.add.at(logs, (which, part), each)
        logs[:, 0], filled[:, 0] = each.sum(axis=1), True
        filled[which, part] = True
        counter.step(logs.reshape(-1, eprocess.BETS), filled.reshape(-1))
    return counter.alarms / streams, budget * minutes


def clock(rng, days: int, streams: int) -> tuple[float, float]:
    """Bursty traffic against a budget of one alarm in 30 days: alarms of a stream, and the budget."""
    counter = Counter(streams, np.log(1.0 / 43_200))
    for _ in range(days * 24):
        rates = np.where(rng.random(streams) < 0.1, 8.0, 0.5)
        counts = np.minimum(15, rng.poisson(rates, (60, streams)))
        there = np.arange(15) < counts[..., None]
        scores = np.where(there, llm_like(rng, M0, there.shape), M0)
        for logs, filled in zip(increments(scores), counts > 0, strict=True):
            counter.step(logs, filled)
    return counter.alarms / streams, days / 30


TRAPS = {
    "bad answers judged four times as often: weighted / unweighted": biased,
    "a backlog whose low scores arrive last: by start time / by arrival": backlog,
    "5 of 50 per minute judged: by hash / first to finish": first_come,
    "an additional covariate: bet on every score / only on suspects": chosen_bets,
}
BUDGETS = {
    "all traffic and 50 slices, 10⁴ minutes": (slices, 10_000),
    "bursty traffic, 120 days": (clock, 120),
}


def tables(*, full: bool) -> tuple[str, list[str]]:
    """The two tables as Markdown, and the bars that are not met."""
    n, streams = (100_000, 40) if full else (20_000, 10)
    lines = ["| trap | with the guard (bound 2) | without |", "|---|---|---|"]
    problems = []
    for name, trap in TRAPS.items():
        kept, broken = trap(np.random.default_rng(SEED), n, streams)
        lines.append(f"| {name} | {kept:.2f} | {broken:.0f} |")
        problems += [f"{name}: {kept:.2f}"] if kept > 2.0 else []
    lines += ["", "| one budget | alarms | budget |", "|---|---|---|"]
    for name, (condition, length) in BUDGETS.items():
        alarms, budget = condition(np.random.default_rng(SEED), length if full else length // 10, streams)
        lines.append(f"| {name} | {alarms:.2f} | {budget:.2f} |")
        # a tenth of the length is for trying it out: too few alarms to tell
        problems += [f"{name}: {alarms:.2f} of {budget:.2f}"] if alarms > budget and full else []
    return "\n".join(lines), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="40 streams of 100 000 scores")
    text, problems = tables(full=parser.parse_args().full)
    print(text)
    print("\n".join(f"NOT MET: {problem}" for problem in problems) or "all bars met")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

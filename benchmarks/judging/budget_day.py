"""A day with a burst of ten times the load under a budget: what is spent, what is covered, what is estimated.

    .venv/bin/python benchmarks/judging/budget_day.py            # 20 days of each kind, half a minute
    .venv/bin/python benchmarks/judging/budget_day.py --days 60

Columns: spend over the cap, the lowest factor, the fewest judged in any quarter of an hour, the largest change of the
factor from one minute to the next, the day's mean by scoring everything and by estimate, the estimate's mean error, how
often its 95 % interval holds the truth, and the same for the rare slice.

Arrivals are Poisson with a daily rhythm, a judged sample costs 0.002 USD on average (log-normal), quality falls from
.85 to .70 during the burst and a rare slice (1 in 200) has .60. The budget pays for about a fifth to a third of the
day. Every score is known here, so the estimate from the judged ones (Hajek, weights 1/rate) can be held against scoring
everything.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from gaugeway import sampling
from monitors.judges.budget import DAY_S, BudgetPacer, Spent
from monitors.statistics.confidence_sequence import closed_window
from monitors.statistics.weighted_mean import hajek

BASE_PER_S, COST_USD, BUDGET_USD, RARE = 0.2, 0.002, 10.0, 1 / 200
BURSTS = {
    "none": (0.0, 0.0),
    "noon": (12.0, 13.0),
    "evening": (22.5, 23.5),
    "midnight": (23.75, 24.0),
    "start": (0.0, 0.5),
}
"""Hours of the day between which ten times as much comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What became of one day."""

    usd: float
    everything: float
    estimate: float
    inside: bool
    rare_everything: float
    rare_estimate: float
    rare_judged: int
    scored: int
    of: int
    lowest: float
    emptiest: float
    step: float


def arrivals(rng: np.random.Generator, burst: tuple[float, float]) -> np.ndarray:
    """Times of arrival in seconds of the day."""
    most = 14.0 * BASE_PER_S
    times = np.cumsum(rng.exponential(1.0 / most, int(1.1 * most * DAY_S)))
    times = times[times < DAY_S]
    return times[rng.random(times.size) < load(times, burst) / most]


def load(times: np.ndarray, burst: tuple[float, float]) -> np.ndarray:
    """Arrivals a second: little at night, ten times as many in the burst."""
    rhythm = BASE_PER_S * (1.0 - 0.4 * np.cos(2.0 * np.pi * times / DAY_S))
    return rhythm * np.where(in_burst(times, burst), 10.0, 1.0)


def in_burst(times: np.ndarray, burst: tuple[float, float]) -> np.ndarray:
    return (times >= 3600.0 * burst[0]) & (times < 3600.0 * burst[1])


def simulate(seed: int, burst: tuple[float, float]) -> Day:
    """One day from midnight to midnight, judged by the pacer as a worker would."""
    rng = np.random.default_rng(seed)
    times = arrivals(rng, burst)
    bursting, rare = in_burst(times, burst), rng.random(times.size) < RARE
    mean = np.where(rare, 0.60, np.where(bursting, 0.70, 0.85))
    scores = rng.beta(8.0 * mean, 8.0 * (1.0 - mean))
    costs = rng.lognormal(np.log(COST_USD) - 0.5 * 0.7**2, 0.7, times.size)
    pacer = BudgetPacer(BUDGET_USD, spent=Spent(day=0, usd=0.0))
    rates, chosen = np.empty(times.size), np.zeros(times.size, dtype=bool)
    due: list[tuple[float, float]] = []
    for i, now in enumerate(times.tolist()):
        while due and due[0][0] <= now:
            pacer.observe(due[0][1], due[0][0])
            due.pop(0)
        rates[i] = pacer.rate(now, "rare" if rare[i] else "common")
        if sampling.keep(f"{seed}-{i}", rates[i], "budget"):
            chosen[i] = True
            due.append((now + 5.0, float(costs[i])))  # an answer takes its time
    hours = np.histogram(times[chosen], bins=24 * 4, range=(0.0, DAY_S))[0]
    judged = hajek(scores[chosen], rates[chosen])
    low, high = closed_window(judged)
    of_rare = chosen & rare
    minutes = [rates[(times >= t) & (times < t + 60.0) & ~rare] for t in range(0, int(DAY_S), 60)]
    smooth = np.array([some.mean() for some in minutes if some.size])
    return Day(
        usd=float(costs[chosen].sum()),
        everything=float(scores.mean()),
        estimate=judged.mean,
        inside=low <= scores.mean() <= high,
        rare_everything=float(scores[rare].mean()),
        rare_estimate=hajek(scores[of_rare], rates[of_rare]).mean,
        rare_judged=int(of_rare.sum()),
        scored=int(chosen.sum()),
        of=times.size,
        lowest=float(rates.min()),
        emptiest=float(hours.min()),
        step=float(np.abs(np.diff(np.log(smooth))).max()),
    )


def row(name: str, days: list[Day]) -> str:
    usd = np.array([day.usd for day in days]) / BUDGET_USD
    gap = np.array([day.estimate - day.everything for day in days])
    rare = np.array([day.rare_estimate - day.rare_everything for day in days])
    root = np.sqrt(len(days))
    return (
        f"{name:9} {np.mean([day.of for day in days]):7.0f} {np.mean([day.scored for day in days]):6.0f}"
        f"  {usd.mean():6.3f} [{usd.min():.3f}, {usd.max():.3f}]"
        f"  {min(day.lowest for day in days):.4f} {min(day.emptiest for day in days):4.0f}"
        f"  {np.exp(max(day.step for day in days)):4.1f}x"
        f"  {np.mean([day.everything for day in days]):.4f} {np.mean([day.estimate for day in days]):.4f}"
        f" {gap.mean():+.4f} ± {1.96 * gap.std(ddof=1) / root:.4f} {np.mean([day.inside for day in days]):5.0%}"
        f"  {np.mean([day.rare_judged for day in days]):4.0f} {rare.mean():+.4f} ± {1.96 * rare.std(ddof=1) / root:.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=20)
    options = parser.parse_args()
    print(
        "burst     arrived judged  spend/cap [min, max]    lowest in15m  step  mean   estimate  error ± 95 %"
        "      in CI  rare, error ± 95 %"
    )
    for name, burst in BURSTS.items():
        print(row(name, [simulate(1000 + seed, burst) for seed in range(options.days)]), flush=True)


if __name__ == "__main__":
    main()

"""False alarms at the boundary and delays after drops: the e-SR detector and the usual alternatives, same streams.

    .venv/bin/python benchmarks/detection/null_and_drops.py          # small
    .venv/bin/python benchmarks/detection/null_and_drops.py --full   # 200 x 100 000 null scores, 400 runs a drop

The mean is exactly .85, and so is the SLO: the bound is 100 000/c = 2 false alarms per 100 000 scores. Delays are
medians of scores from the change to the first alarm, after 2000 scores of history and 1000 more without a change.
"""

from __future__ import annotations

import argparse

import adwin
import numpy as np
from laws import LAWS, M0, SEED
from streams import LEARNED, ROLLING, SLO, SLO_BELOW, watchers

C, CHUNK, HISTORY, CALM = 5e4, 250, 2000, 1000
DROPS = (0.05, 0.10, 0.20)
LONGEST = 12_000
BARS = {  # what each median delay may be, by law and drop; None: no bar
    SLO: {"beta": (100, 40, 20), "LLM-like": (400, 150, 55), "binary": (650, 215, 75)},
    LEARNED: {
        "beta": (None, 45, None),
        "LLM-like": (None, 220, None),
        "binary": (None, 350, None),
    },
    SLO_BELOW: {"beta": (290, 60, None), "LLM-like": (1150, 245, None), "binary": (1650, 345, None)},
}


def chunks(law, rng, mean: float, n: int, runs: int):
    """Scores in pieces that fit into the cache."""
    for start in range(0, n, CHUNK):
        yield start, law(rng, mean, (min(CHUNK, n - start), runs))


def begun(law, rng, runs: int):
    """Watchers that know the history of their streams."""
    everyone = watchers(C)
    history = law(rng, M0, (HISTORY, runs))
    for watcher in everyone:
        watcher.begin(history)
    return everyone


def watch(watcher, scores, start: int, first) -> int:
    """Show a watcher the next scores; note the first alarms in `first`, and return how many there were."""
    watcher.chunk(scores)
    count = 0
    for t in range(len(scores)):
        hit = watcher.step(t)
        if hit.any():
            count += int(hit.sum())
            first[hit] = np.minimum(first[hit], start + t + 1)
    return count


def null(law, rng, *, runs: int, n: int):
    """For each watcher: alarms per 1e5 scores, and the share of streams with one within the first 1e4."""
    everyone = begun(law, rng, runs)
    counts, first = np.zeros(len(everyone)), np.full((len(everyone), runs), n + 1)
    for start, scores in chunks(law, rng, M0, n, runs):
        for index, watcher in enumerate(everyone):
            counts[index] += watch(watcher, scores, start, first[index])
    return {
        watcher.name: (counts[index] / (runs * n) * 1e5, float((first[index] <= 10_000).mean()))
        for index, watcher in enumerate(everyone)
    }


def delays(law, rng, drop: float, *, runs: int):
    """For each watcher the median delay; those that take longer than `LONGEST` are given as that."""
    everyone = begun(law, rng, runs)
    first = {watcher.name: np.full(runs, LONGEST) for watcher in everyone}
    for start, scores in chunks(law, rng, M0, CALM, runs):
        for watcher in everyone:
            watch(watcher, scores, start, np.zeros(runs))
    for start, scores in chunks(law, rng, M0 - drop, LONGEST, runs):
        for watcher in list(everyone):
            watch(watcher, scores, start, first[watcher.name])
            if (first[watcher.name] < LONGEST).mean() > 0.6:  # the median is known
                everyone.remove(watcher)
    return {name: float(np.median(times)) for name, times in first.items()}


def measure(*, full: bool):
    """Names -> laws -> (false alarms per 1e5, P(alarm within 1e4), median delays)."""
    runs, n, change_runs = (200, 100_000, 400) if full else (100, 10_000, 100)
    found: dict[str, dict[str, tuple]] = {}
    for name, law in LAWS.items():
        rates = null(law, np.random.default_rng(SEED), runs=runs, n=n)
        rng = np.random.default_rng(SEED + 1)
        medians = [delays(law, rng, drop, runs=change_runs) for drop in DROPS]
        for watcher, (rate, early) in rates.items():
            found.setdefault(watcher, {})[name] = rate, early, [median[watcher] for median in medians]
        few = {"runs": 40, "n": n, "change_runs": 60} if full else {"runs": 5, "n": n, "change_runs": 10}
        second = adwin.row(law, np.random.default_rng(SEED), **few, drops=DROPS, longest=LONGEST)
        if second is not None:
            found.setdefault(adwin.NAME, {})[name] = second
    return found


def table(found) -> str:
    """The measurements as Markdown, one detector a line; laws are separated by slashes in the order of `LAWS`."""
    lines = [
        "| detector | false alarms per 10⁵ scores | P(alarm within 10⁴) | drop .05 | drop .10 | drop .20 |",
        "|---|---|---|---|---|---|",
    ]
    for name, laws in found.items():
        of = [laws[law] for law in LAWS]
        cells = [" / ".join(f"{one[0]:.2f}" for one in of), " / ".join(f"{one[1]:.2f}" for one in of)]
        cells += [" / ".join(shown(one[2][index]) for one in of) for index in range(len(DROPS))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(delay: float) -> str:
    """A median delay; a stream without an alarm counts as the longest time tried."""
    return f"{delay:.0f}" if delay < LONGEST else f"> {LONGEST}"


def misses(found) -> list[str]:
    """Where a bar is not met."""
    problems = []
    for law in LAWS:
        rate, early, _ = found[SLO][law]
        if rate > 2.0 or early > 0.20:
            problems.append(f"null, {law}: {rate:.2f} per 1e5 (bar 2.0), P {early:.2f} (bar .20)")
        for name, bars in BARS.items():
            for drop, bar, median in zip(DROPS, bars[law], found[name][law][2], strict=True):
                if bar is not None and median > bar:
                    problems.append(f"{name}, {law}, drop {drop}: {median:.0f} (bar {bar})")
    for law in ("LLM-like", "binary"):
        ours, theirs = found[SLO][law], found[ROLLING[0]][law]
        slow = found[ROLLING[1]][law]
        if theirs[0] < 60 * ours[0] or ours[2][1] >= slow[2][1]:
            problems.append(f"against rolling means, {law}: {ours} {theirs} {slow}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="200 x 100 000 null scores and 400 runs a drop")
    found = measure(full=parser.parse_args().full)
    print(f"m0 {M0}, c {C:.0f}, seed {SEED}, numpy {np.__version__}; {' / '.join(LAWS)}")
    print(table(found))
    print("\n".join(f"NOT MET: {problem}" for problem in misses(found)) or "all bars met")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

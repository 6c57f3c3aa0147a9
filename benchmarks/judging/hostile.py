"""A judge that misbehaves: each fault in a tenth of its answers, then all of them, each in a tenth; what comes of it.

    .venv/bin/python benchmarks/judging/hostile.py                    # about two minutes
    .venv/bin/python benchmarks/judging/hostile.py --samples 200 --mode separate

Four metrics on every sample, 8 places, 0.05 s latency; a stall is 30 s long and an answer has 0.5 s (the product's
limit is 60 s). Eleven tenths are more than there is, so every fault is drawn for every request by itself, and of
those drawn one, chosen at random, comes to pass; a 429 is followed by up to three more. "wrong" counts scores that
differ from those of a well-behaved judge on the same samples. "told" is how many of the spoiled answers stand in the
judge's counters under their reason, of those that have one (a missing verdict is asked for again and an extra one
ignored: no failures). The next columns are the time for the same samples once the judge has come to its senses,
against the time with a judge that was never odd, and the places in use then. Exit code 1: a score is wrong, a failure
has no reason, or not every sample gets its right scores afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gaugeway.records import Failed, Score
from tests.support.hostile_judge import FAULTS, Bench, HostileJudge, Run, samples

LATENCY_S, STALL_S, RATE = 0.05, 30.0, 0.1
REASONS = ("unreadable", "timeout", "rate_limited", "deadline", "blind")
UNREADABLE = ("malformed", "truncated", "wrong_enum", "nan", "fifteen_of_ten")
HEAD = "fault          spoiled    told   right wrong failed    s  after places  failures by reason | unusable answers"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A hostile round, one after it on samples with other ids, and what the judge did and drew in the first."""

    hostile: Run
    after: Run
    seen: Counter[str]
    drawn: Counter[str]


def values(run: Run) -> dict[tuple[str, str], float]:
    """The scores by sample and metric."""
    found = {(one.sample_id.removeprefix("after-"), one.metric): one.outcome for one in run.evaluations}
    return {key: one.value for key, one in found.items() if isinstance(one, Score)}


async def judge(server: HostileJudge, count: int, mode: str) -> Trial:
    bench = Bench(server.url, mode=mode)
    hostile = await bench.round(samples(count))
    seen, drawn = Counter(server.seen), Counter(server.drawn)
    server.sane()
    after = await bench.round([replace(one, id=f"after-{one.id}") for one in samples(count)])
    await bench.aclose()
    return Trial(hostile=hostile, after=after, seen=seen, drawn=drawn)


def told(trial: Trial) -> tuple[int, int]:
    """How many spoiled answers were counted under their reason, and how many there were to count."""
    kinds, unusable = trial.hostile.kinds, trial.hostile.unusable
    counted = (
        (("empty",), unusable["empty"]),
        (("html",), unusable["no_completion"]),
        (("rate_limited",), kinds["rate_limited"]),
        (("stalled",), kinds["timeout"]),
        (UNREADABLE, unusable["no_json"] + unusable["wrong_shape"] + unusable["truncated"]),
    )
    pairs = [(sum(trial.seen[fault] for fault in faults), number) for faults, number in counted]
    return sum(min(pair) for pair in pairs), sum(there for there, _ in pairs)


def listed(counts: Counter) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "-"


def row(name: str, trial: Trial, right: dict[tuple[str, str], float]) -> bool:
    """Print one trial; whether everything was as it should be."""
    found = values(trial.hostile)
    wrong = sum(value != right[key] for key, value in found.items())
    failed = Counter(one.outcome.error for one in trial.hostile.evaluations if isinstance(one.outcome, Failed))
    counted, there = told(trial)
    spoiled = trial.seen.total() - trial.seen["fine"]
    print(
        f"{name:14} {spoiled:4}/{trial.seen.total():<4}{counted:4}/{there:<4}{len(found) - wrong:5}{wrong:6}"
        f"{failed.total():7}{trial.hostile.seconds:6.1f}{trial.after.seconds:6.1f}{trial.after.limit:5}"
        f"   {listed(failed)} (asks: {listed(trial.hostile.kinds + Counter())}) | {listed(trial.hostile.unusable)}",
        flush=True,
    )
    return not wrong and set(failed) <= set(REASONS) and values(trial.after) == right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=80)
    parser.add_argument("--mode", choices=["fused", "separate"], default="fused")
    options = parser.parse_args()

    def trial(*faults: str) -> Trial:
        with HostileJudge(faults=faults, rate=RATE, stall_s=STALL_S, latency_s=LATENCY_S) as server:
            return asyncio.run(judge(server, options.samples, options.mode))

    clean = trial().hostile
    right = values(clean)
    print(f"{options.mode}: {len(right)} scores of a well-behaved judge in {clean.seconds:.1f} s, {clean.calls} calls")
    print(HEAD)
    fine = [row(fault, trial(fault), right) for fault in FAULTS]
    everything = trial(*FAULTS)
    fine.append(row("all, 10 % each", everything, right))
    shares = sorted(everything.drawn[fault] / everything.seen.total() for fault in FAULTS)
    print(f"all: each fault was drawn for {shares[0]:.0%} to {shares[-1]:.0%} of the requests")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())

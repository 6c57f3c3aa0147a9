"""A judge that misbehaves: each fault in a tenth of its answers, then all of them together; what becomes of the scores.

    .venv/bin/python benchmarks/judging/hostile.py                    # about two minutes
    .venv/bin/python benchmarks/judging/hostile.py --samples 200 --mode separate

Four metrics on every sample, 8 places, 0.05 s latency; a stall is 2 s long and an answer has 0.5 s (the product's limit
is 60 s). "wrong" counts scores that differ from those of a well-behaved judge on the same samples. The last columns are
the time for the same samples once the judge has come to its senses, against the time with a judge that was never odd,
and the places in use then.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from monitors.records import Failed, Score
from tests.support.hostile_judge import FAULTS, Bench, HostileJudge, Run, samples

LATENCY_S = 0.05


def scores(run: Run) -> dict[tuple[str, str], object]:
    return {(one.sample_id, one.metric): one.outcome for one in run.evaluations}


async def judge(server: HostileJudge, count: int, mode: str) -> tuple[Run, Run, Counter]:
    """A hostile round and, on samples with other ids, one after it."""
    bench = Bench(server.url, mode=mode)
    hostile = await bench.round(samples(count))
    seen = Counter(server.seen)
    server.sane()
    after = await bench.round([replace(one, id=f"after-{one.id}") for one in samples(count)])
    await bench.aclose()
    return hostile, after, seen


def listed(counts: Counter) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=80)
    parser.add_argument("--mode", choices=["fused", "separate"], default="fused")
    options = parser.parse_args()
    with HostileJudge(faults=(), latency_s=LATENCY_S) as server:
        clean, _, _ = asyncio.run(judge(server, options.samples, options.mode))
    right = scores(clean)
    print(f"{options.mode}: {len(right)} scores of a well-behaved judge in {clean.seconds:.1f} s, {clean.calls} calls")
    print(
        f"{'fault':14} spoiled   right wrong failed   s  after places  failures by reason | unusable answers by reason"
    )
    trials = [*((fault, (fault,), 0.1) for fault in FAULTS), ("all, 6 % each", FAULTS, 0.06)]
    for name, faults, rate in trials:
        with HostileJudge(faults=faults, rate=rate, latency_s=LATENCY_S) as server:
            hostile, after, seen = asyncio.run(judge(server, options.samples, options.mode))
        found = scores(hostile)
        values = {key: one.value for key, one in found.items() if isinstance(one, Score)}
        wrong = sum(value != right[key].value for key, value in values.items())
        failed = Counter(one.error for one in found.values() if isinstance(one, Failed))
        told = hostile.kinds + Counter()
        spoiled = seen.total() - seen["fine"]
        print(
            f"{name:14} {spoiled:4}/{seen.total():<4}{len(values) - wrong:6}{wrong:6}{failed.total():7}"
            f"{hostile.seconds:5.1f}{after.seconds:6.1f}{after.limit:5}   {listed(failed)} (asks: {listed(told)})"
            f" | {listed(hostile.unusable)}",
            flush=True,
        )


if __name__ == "__main__":
    main()

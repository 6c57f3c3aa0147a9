"""The tables of the fleet's benchmark."""

from __future__ import annotations

import datetime as dt
import os
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from run import Results


def written(results: Results, names: Sequence[str], command: str, machine: str) -> str:
    """The page."""
    day = dt.datetime.now(dt.UTC).date()
    head = (
        f"`python benchmarks/fleet/{command}`, {day}: {os.cpu_count()} cores, {machine}, which has other work and runs "
        "engines, model, judge and client, too. Columns are gateways + monitors."
    )
    parts = ["# A fleet beside one of each", head]
    if results.runs:
        parts += _throughput(results, names)
    if results.played:
        parts += _drop(results, names)
    return "\n\n".join(parts) + "\n"


def _throughput(results: Results, names: Sequence[str]) -> list[str]:
    rows = []
    for delay_s in sorted({delay for _, delay in results.runs}, reverse=True):
        runs = [results.runs[name, delay_s] for name in names]
        kind = f"judge takes {delay_s:g} s" if delay_s else "judge takes no time (the two cores are the limit)"
        rows.append([f"samples a second, {kind}", *(_spread([run.per_s for run in one]) for one in runs)])
        rows.append(["… against 1 + 1, SQLite", *(_ratio(one, runs[0]) for one in runs)])
        rows.append(["… request, median / p99 ms", *(_latency(one) for one in runs)])
    every = [[run for (name, _), some in results.runs.items() if name == one for run in some] for one in names]
    rows.append(["evaluations in the store", *(_same(run.rows for run in one) for one in every)])
    rows.append(["… with another outcome than embedded", *(str(sum(run.other for run in one)) for one in every)])
    rows.append(["… missing, more, or twice", *(str(sum(run.missing for run in one)) for one in every)])
    rows.append(["every request answered 200", *(_yes(run.unharmed for run in one) for one in every)])
    for counter in every[0][0].counters:
        pairs = [[run.counters[counter] for run in one] for one in every]
        rows.append([f"{counter}, all processes / expected", *(_pairs(one) for one in pairs)])
    rounds = len(next(iter(results.runs.values())))
    said = (
        f"{results.exchanges} exchanges, captured at a rate of 0.8, judged by two metrics at 0.5 and 0.3; median of "
        f"{rounds} (least to most). `judge.concurrency` is 4 in each process, so with a slow judge more processes ask "
        "more at once."
    )
    return ["## Throughput and scores", said, _table(["", *names], rows)]


def _drop(results: Results, names: Sequence[str]) -> list[str]:
    played = [results.played[name] for name in names]
    first = played[0].told
    rows = [
        ["messages to the webhook", *(str(one.told.alerts) for one in played)],
        ["evidence at the end, log10", *(f"{one.told.evidence_log10:.9f}" for one in played)],
        ["scores since the onset", *(str(one.told.scores) for one in played)],
        ["estimate", *(f"{one.told.estimate:.9f}" for one in played)],
        ["onset, alarm after the drop, s", *(f"{one.told.onset_s:.0f}, {one.told.alarm_s:.0f}" for one in played)],
        ["same as embedded", *("yes" if one.told.same_as(first) else "no" for one in played)],
        ["every request answered 200", *("yes" if one.unharmed else "no" for one in played)],
        ["looks at who leads", *(str(one.looks or "-") for one in played)],
        ["… two held the lock / acted as leader", *(_looked(one, "{0} / {1}") for one in played)],
        ["… longest time without a leader, s", *(_looked(one, "{2:.2f}") for one in played)],
        [
            "terms before and after the kill",
            *(f"{one.terms[0]}, {one.terms[1]}" if one.looks else "-" for one in played),
        ],
    ]
    said = "The leader of a fleet is killed with 9 during the healthy part; nobody restarts it."
    return ["## A planted drop", said, _table(["", *names], rows)]


def _looked(one, form: str) -> str:
    return form.format(*one.leaders) if one.looks else "-"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def _ratio(runs, first) -> str:
    mine, others = (statistics.median(run.per_s for run in some) for some in (runs, first))
    return f"{mine / others:.2f}"


def _latency(runs) -> str:
    return " / ".join(
        f"{statistics.median(values):.0f}" for values in zip(*((r.median_ms, r.p99_ms) for r in runs), strict=True)
    )


def _same(values) -> str:
    return ", ".join(map(str, sorted(set(values))))


def _yes(values) -> str:
    return "yes" if all(values) else "no"


def _pairs(pairs) -> str:
    if all(have == expected for have, expected in pairs):
        return _same(f"{have:.0f} / {expected:.0f}" for have, expected in pairs)
    return "WRONG: " + "; ".join(f"{have:.0f} / {expected:.0f}" for have, expected in pairs)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)

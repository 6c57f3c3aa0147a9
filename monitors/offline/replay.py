"""`gaugeway replay`: scores captured exchanges again, with another judge or other metrics.

Readers of live scores (estimates, alerts, the page) do not look at versions, so a second score of a sample under the
same metric would count it twice. Replayed scores are therefore stored as metrics of their own,
`faithfulness~gpt-6-luna`. A new judge is a new label, and scores that exist under (sample, metric, version) are reused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gaugeway.records import Evaluation, Failed, Sample
from gaugeway.storage.stores import Store
from monitors.analysis import captured
from monitors.analysis.captured import SEPARATOR
from monitors.evaluation.evaluator import judge_of
from monitors.metrics import Metric
from monitors.offline.data_errors import DataError
from monitors.offline.results import Measure, Row, Run
from monitors.offline.run import Plan, Progress, evaluated, for_each

LABEL = "replay"
"""The label of metrics without a judge."""


def name_of(metric: Metric, label: str | None) -> str:
    """Return the name a replayed metric is stored under: NAME~LABEL, by default the judge's name."""
    return f"{metric.name}{SEPARATOR}{label or judge_of(metric) or LABEL}"


async def replay(
    store: Store,
    plan: Plan,
    *,
    since: float,
    until: float,
    label: str | None = None,
    limit: int | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> tuple[Run, Run]:
    """Score the exchanges captured from `since` to `until` again; return the runs of the old and the new scores.

    Failures are not stored, so the next replay retries. Raises DataError if the label already has scores of another
    version of a metric, which would mix two series.
    """
    started = time.time()
    found = await captured.ids(store, since, until, limit=limit)
    progress = Progress(total=len(found))
    rows: dict[str, tuple[Row, Row]] = {}

    async def work(sample_id: str) -> None:
        if (pair := await _again(store, sample_id, plan, label, progress)) is not None:
            rows[sample_id] = pair
        progress.done += 1
        on_progress(progress)

    await for_each(found, work, plan.concurrency)
    pairs = [rows[sample_id] for sample_id in found if sample_id in rows]
    before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    old = Run(source="captured", created_at=since, measures=_measures(plan, before), rows=tuple(before))
    new = Run(
        source="replay",
        created_at=started,
        measures=tuple(plan.measures()),
        rows=tuple(after),
        seconds=time.time() - started,
        paid_usd=progress.usd,
        reused=progress.reused,
    )
    return old, new


async def _again(
    store: Store, sample_id: str, plan: Plan, label: str | None, progress: Progress
) -> tuple[Row, Row] | None:
    """Return the sample's old and new row; None if it was deleted or holds no answer."""
    if (found := await store.sample(sample_id)) is None or found[0].skip_reason is not None:
        return None
    sample, stored = found
    known = _known(plan, stored, label)
    missing = [enabled.metric for enabled in plan.metrics if enabled.metric.name not in known]
    fresh = await asyncio.gather(*(evaluated(metric, sample, plan.timeout_s) for metric in missing))
    names = {metric.name: name_of(metric, label) for metric in missing}
    labelled = [
        replace(evaluation, metric=names[evaluation.metric])
        for evaluation in fresh
        if not isinstance(evaluation.outcome, Failed)
    ]
    if labelled:
        await store.add(sample, labelled)
    progress.reused += len(known)
    progress.failed += sum(isinstance(evaluation.outcome, Failed) for evaluation in fresh)
    progress.usd += sum(evaluation.cost_usd for evaluation in fresh)
    return _rows(sample, stored, known | {evaluation.metric: evaluation for evaluation in fresh})


def _known(plan: Plan, stored: Sequence[Evaluation], label: str | None) -> dict[str, Evaluation]:
    """Return the usable scores by metric: from an earlier replay, or live ones by the same judge and version.

    With an explicit label, live scores are not reused.
    """
    there = {evaluation.metric: evaluation for evaluation in stored}
    known: dict[str, Evaluation] = {}
    for metric in (enabled.metric for enabled in plan.metrics):
        now = (str(metric.version), judge_of(metric))
        live, again = there.get(metric.name), there.get(name := name_of(metric, label))
        if again is not None and (again.version, again.judge) != now:
            then = f"{name} is in the store with version {again.version} by {again.judge}"
            raise DataError([f"{then}, and this replay uses {now[0]} by {now[1]}: choose another --label"])
        if again is None and label is None and live and not isinstance(live.outcome, Failed):
            again = live if (live.version, live.judge) == now else None
        if again is not None:
            known[metric.name] = replace(again, metric=metric.name)
    return known


def _rows(sample: Sample, stored: Sequence[Evaluation], now: dict[str, Evaluation]) -> tuple[Row, Row]:
    live = {evaluation.metric: evaluation for evaluation in stored if SEPARATOR not in evaluation.metric}
    return Row(sample=sample, evaluations=live), Row(sample=sample, evaluations=now)


def _measures(plan: Plan, rows: Sequence[Row]) -> tuple[Measure, ...]:
    """Return the replayed metrics with the version and judge of their latest live score."""
    latest: dict[str, Evaluation] = {}
    for row in rows:
        latest |= row.evaluations
    return tuple(
        replace(measure, version=latest[measure.name].version, judge=latest[measure.name].judge)
        for measure in plan.measures()
        if measure.name in latest
    )

"""`gaugeway export`: writes captured exchanges with their scores in the format of `gaugeway evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import msgspec

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.stores import Store
from monitors.analysis import captured
from monitors.analysis.human_labels import default_passing
from monitors.analysis.retrieval.coverage_gaps import is_declined
from monitors.analysis.retrieval.source_reading import DEFAULT_METRICS


class Exported(msgspec.Struct):
    """The number of exchanges written, and of what is left out.

    `left_out` exchanges hold no answer (errors, tool calls); `conversations` are the records of whole conversations,
    whose exchanges are written one by one.
    """

    written: int = 0
    left_out: int = 0
    conversations: int = 0


async def export(
    store: Store,
    file: IO[str],
    *,
    since: float,
    until: float,
    worst: int | None = None,
    metric: str | None = None,
    gaps: bool = False,
) -> Exported:
    """Write one JSON object per line, oldest first; with `worst`, only that many exchanges, the worst first.

    `metric` selects the exchanges it was computed for and ranks them; without it each exchange ranks by its worst
    score. With `gaps`, only questions without a good answer: declined, without passages found, or with a score of
    `metric` (or else of `faithfulness` or `lexical_groundedness`) that fails the default threshold.
    """
    if worst is not None:
        order = await captured.by_badness(store, since, until, metric)
    else:
        order = await captured.ids(store, since, until, metric=metric)
    exported = Exported()
    for sample_id in order:
        if exported.written == worst:
            break
        found = await store.sample(sample_id)
        if found is None:  # deleted by retention meanwhile
            continue
        sample, evaluations = found
        if sample.transcript:
            exported.conversations += 1
            continue
        if gaps and not _is_gap(sample, evaluations, metric):
            continue
        if sample.skip_reason is not None and not (gaps and is_declined(sample, evaluations)):
            exported.left_out += 1
            continue
        record = captured.as_record(sample, {evaluation.metric: evaluation for evaluation in evaluations})
        file.write(msgspec.json.encode(record).decode() + "\n")
        exported.written += 1
    return exported


def _is_gap(sample: Sample, evaluations: Sequence[Evaluation], metric: str | None) -> bool:
    """Return whether a question has no good answer."""
    if is_declined(sample, evaluations) or (sample.context_source != "none" and not sample.contexts):
        return True
    scores = {
        evaluation.metric: evaluation.outcome.value
        for evaluation in evaluations
        if isinstance(evaluation.outcome, Score)
    }
    name = next((candidate for candidate in ((metric,) if metric else DEFAULT_METRICS) if candidate in scores), None)
    return name is not None and not default_passing(name).passes(scores[name])

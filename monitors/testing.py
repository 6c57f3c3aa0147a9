"""Test helper for RAG apps: scores one case and raises an AssertionError that explains a low score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gaugeway.records import Failed, Score, Skipped
from gaugeway.settings import shared as config
from monitors.judges import MinimalJudge
from monitors.metrics import Metric
from monitors.metrics.embeddings import MinimalEmbeddings
from monitors.offline.library import evaluate
from monitors.offline.results import Measure, Row, Run

_EXCERPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A scored case; a metric without a score is missing in `scores`."""

    run: Run

    @property
    def scores(self) -> dict[str, float]:
        """The scores by metric."""
        row = self.run.rows[0]
        return {name: value for name in row.evaluations if (value := row.score(name)) is not None}

    @property
    def reasons(self) -> dict[str, str]:
        """The reason of each metric's score, or of its absence."""
        return {name: _said(evaluation.outcome) for name, evaluation in self.run.rows[0].evaluations.items()}


def gaugeway_case(
    *,
    question: str | None = None,
    response: str,
    contexts: Sequence[str] = (),
    reference: str | None = None,
    metrics: Sequence[str | Metric] = ("lexical_groundedness",),
    fail_under: float | Mapping[str, float] | None = None,
    judge: str | MinimalJudge | config.Judge | None = None,
    embeddings: MinimalEmbeddings | config.Embeddings | None = None,
    **fields: Any,
) -> Case:
    """Score one case; raise an AssertionError that shows it when a metric misses its floor.

    `fail_under` is one floor for all metrics or one for some, by name; the others, or all without it, are held to 0.7,
    and to 0.3 where 0 is best. There a floor is the most that is allowed. A metric that could not be computed, or does
    not apply, misses its floor: what was not measured is not fine. `fields` are more fields of a record, such as
    `reference_contexts`; `judge` and `embeddings` are as for `monitors.evaluate`.

    Raises DataError or ConfigError for a case that cannot be tried at all.
    """
    __tracebackhide__ = True  # pytest shows the line of the test, not ours
    record = {"id": "case", "user_input": question, "response": response, "retrieved_contexts": list(contexts)}
    run = evaluate(
        [{**record, "reference": reference, **fields}],
        metrics=metrics,
        judge=judge,
        embeddings=embeddings,
        source="case",
    )
    limits = _limits(run.measures, fail_under)
    problems = [
        problem
        for measure in run.measures
        if (problem := _problem(measure, run.rows[0], limits.get(measure.name))) is not None
    ]
    if problems:
        raise AssertionError(_message(problems, run.rows[0]))
    return Case(run=run)


def _limits(measures: Sequence[Measure], fail_under: float | Mapping[str, float] | None) -> dict[str, float]:
    known = {measure.name: measure.threshold for measure in measures}
    if fail_under is None:
        return known
    if not isinstance(fail_under, Mapping):
        return dict.fromkeys(known, float(fail_under))
    if unknown := [name for name in fail_under if name not in known]:
        raise ValueError(f"fail_under: {unknown[0]!r} is not among the metrics: {', '.join(known)}")
    return known | dict(fail_under)


def _problem(measure: Measure, row: Row, limit: float | None) -> str | None:
    value = row.score(measure.name)
    said = _said(row.evaluations[measure.name].outcome)
    if value is None:
        return f"{measure.name} has no score: {said}"
    if limit is None or (value <= limit if measure.lower_is_better else value >= limit):
        return None
    return f"{measure.name} is {value:.3f}, {'above' if measure.lower_is_better else 'below'} {limit:g}: {said}"


def _message(problems: Sequence[str], row: Row) -> str:
    sample = row.sample
    lines = [*problems, "", f"question: {_excerpt(sample.question or '-')}", f"response: {_excerpt(sample.response)}"]
    lines += [f"context {index}: {_excerpt(context.text)}" for index, context in enumerate(sample.contexts)]
    for name, evaluation in row.evaluations.items():
        evidence = evaluation.outcome.evidence if isinstance(evaluation.outcome, Score) else ()
        lines += [
            f"{name}: {item['verdict']}: {item['claim']}" for item in evidence if {"claim", "verdict"} <= item.keys()
        ]
    return "\n".join(lines)


def _said(outcome: Score | Skipped | Failed) -> str:
    match outcome:
        case Score(_, reason):
            return reason
        case Skipped(reason):
            return f"skipped ({reason})"
        case Failed(error, detail):
            return f"failed ({error}{': ' if detail else ''}{detail})"


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"

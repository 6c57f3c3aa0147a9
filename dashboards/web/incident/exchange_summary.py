"""Evaluations of an exchange as lines, its summary beside a list, and the times that it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from dashboards.web.format import shortened
from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Point
from monitors.alerting.stored_exchanges import faults_of
from monitors.analysis.captured import OF_TRIAL
from monitors.analysis.human_labels import Passings

_EVIDENCE = 4000
"""Characters of the evidence that are shown."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation as a table row."""

    evaluation: Evaluation
    kind: str
    value: float | None = None
    reason: str = ""
    detail: str = ""
    evidence: str = ""


class CandidateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the candidate `arm` of a trial answered to the exchange's question, with its scores by metric."""

    trial: str
    arm: str
    text: str
    scores: dict[str, float]


def candidate_answers(evaluations: Sequence[Evaluation]) -> tuple[list[CandidateAnswer], list[Evaluation]]:
    """The answers of trials' candidates, which stand in the evidence of their scores, and all other evaluations."""
    answers: dict[tuple[str, str], CandidateAnswer] = {}
    others = []
    for evaluation in evaluations:
        metric, _, of = evaluation.metric.partition(OF_TRIAL)
        outcome = evaluation.outcome
        said = outcome.evidence[-1] if isinstance(outcome, Score) and outcome.evidence else {}
        trial, arm, text = (str(said.get(name, "")) for name in ("trial", "arm", "answer"))
        if isinstance(outcome, Score) and of and of == f"{trial}.{arm}":
            answer = CandidateAnswer(trial=trial, arm=arm, text=text, scores={})
            answers.setdefault((trial, arm), answer).scores[metric] = outcome.value
        else:
            others.append(evaluation)
    return list(answers.values()), others


def line_of(evaluation: Evaluation) -> Line:
    """Table row of an evaluation; long evidence is truncated."""
    match evaluation.outcome:
        case Score(value, reason, evidence):
            return Line(evaluation=evaluation, kind="score", value=value, reason=reason, evidence=evidence_of(evidence))
        case Skipped(reason):
            return Line(evaluation=evaluation, kind="skipped", reason=reason.replace("_", " "))
        case Failed(error, detail):
            return Line(evaluation=evaluation, kind="failed", reason=error.replace("_", " "), detail=detail[:_EVIDENCE])


class Badge(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation in a few words: `kind` is the class of its mark, `words` say pass, fail or why there is no score.

    `hint` has what it was compared with.
    """

    metric: str
    kind: Literal["good", "bad", "warn", ""]
    words: str
    value: float | None = None
    error: str = ""
    hint: str = ""


def badge_of(scored: Evaluation | Point, passing: Passings, error_of: Callable[[Evaluation | Point], str]) -> Badge:
    """The badge of an evaluation."""
    name = scored.metric
    line = line_of(scored) if isinstance(scored, Evaluation) else scored
    outcome = line.kind if isinstance(line, Line) else line.outcome
    if line.value is None:
        words = f"{outcome}: {line.reason.replace('_', ' ')}"
        return Badge(metric=name, kind="warn" if outcome == "failed" else "", words=words, hint="No score: in no mean")
    rule, error = passing(name), error_of(scored)
    passes = rule.passes(line.value)
    return Badge(
        metric=name,
        kind="good" if passes else "bad",
        words="pass" if passes else "fail",
        value=line.value,
        error=error,
        hint=f"{line.value:.3f}{error}; passes at {rule.threshold:g} or {'less' if rule.flipped else 'more'}",
    )


def evidence_of(evidence: Sequence[Mapping[str, Any]]) -> str:
    """The evidence as JSON, one item per paragraph, truncated to about `_EVIDENCE` characters."""
    shown: list[str] = []
    size = 0
    for number, item in enumerate(evidence):
        if size > _EVIDENCE:
            shown.append(f"… ({len(evidence) - number} more items)")
            break
        piece = msgspec.json.format(msgspec.json.encode(item)).decode()
        shown.append(piece if len(piece) <= _EVIDENCE else f"{piece[:_EVIDENCE]} …")
        size += len(shown[-1])
    return "\n".join(shown)


def question_of(sample: Sample) -> str:
    """The question on one line, truncated; of a conversation its first message."""
    opening = next((message.text for message in sample.transcript if message.role == "user"), "")
    return shortened(sample.question or opening)


ANSWER, PASSAGE, PASSAGES = 1_500, 200, 8
"""Characters of the answer and of a passage, and passages, that a summary shows."""


def summary_of(
    sample: Sample, evaluations: Sequence[Evaluation], names: Sequence[str], badge: Callable[[Evaluation], Badge]
) -> dict[str, Any]:
    """The fields of `preview.html`; `names` are those of the passages."""
    badges = [badge(evaluation) for evaluation in evaluations if evaluation.metric not in SIGNALS]
    passages = [
        (name, " ".join(context.text[: 4 * PASSAGE].split())[:PASSAGE])
        for name, context in zip(names, sample.contexts, strict=False)
    ]
    return {
        "title": question_of(sample) or "(no question)",
        "sample": sample,
        "badges": badges,
        "faults": faults_in(badges, evaluations),
        "answer": sample.response[:ANSWER],
        "rest": max(0, len(sample.response) - ANSWER),
        "passages": passages[:PASSAGES],
        "more_passages": max(0, len(passages) - PASSAGES),
    }


def faults_in(badges: Sequence[Badge], evaluations: Sequence[Evaluation]) -> list[str]:
    """What is wrong with an answer, by the metrics that it fails."""
    failed = [badge.metric for badge in badges if badge.kind == "bad"]
    faults = dict.fromkeys(fault for metric in failed for fault in faults_of(evaluations, metric))
    return list(faults)[:PASSAGES]


JUDGED = 12
"""Evaluations shown: those that took longest."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A bar from `start` seconds after the request was sent, `seconds` long; `start` may be negative."""

    name: str
    kind: Literal["retriever", "model", "judge"]
    start: float
    seconds: float

    @property
    def end(self) -> float:
        """When it ends."""
        return self.start + self.seconds


def spans_of(sample: Sample, evaluations: Sequence[Evaluation]) -> list[Span]:
    """The spans of an exchange.

    Only lengths are stored: the retriever's is placed before the request, and evaluations, which run at the same time,
    after the answer. They happen later, when the answer has long been delivered.
    """
    found = []
    if sample.retrieval_s is not None:
        found.append(Span(name="retriever", kind="retriever", start=-sample.retrieval_s, seconds=sample.retrieval_s))
    if sample.duration_s is not None:
        found.append(Span(name=f"model {sample.model}", kind="model", start=0.0, seconds=sample.duration_s))
    judged = [
        evaluation
        for evaluation in evaluations
        if evaluation.seconds > 0.0 and evaluation.metric not in SIGNALS and not isinstance(evaluation.outcome, Skipped)
    ]
    judged.sort(key=lambda evaluation: -evaluation.seconds)
    end = sample.duration_s or 0.0
    found += [
        Span(
            name=f"{evaluation.metric}{f' by {evaluation.judge}' if evaluation.judge else ''}",
            kind="judge",
            start=end,
            seconds=evaluation.seconds,
        )
        for evaluation in judged[:JUDGED]
    ]
    return found

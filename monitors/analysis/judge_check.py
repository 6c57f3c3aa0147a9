"""How far a judge agrees with people: by class and slice, where they differ, its calibration, wordings of a rubric.

Only scores of the latest version and judge count. Agreement is about two verdicts: whether people pass an answer, and
whether its score passes the metric's threshold.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from gaugeway.records import Sample, Score, grouped
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Query, Store
from gaugeway.text.language import language_of
from gaugeway.text.topics import topics
from monitors.alerting.stream import on_scale
from monitors.analysis.human_labels import LABEL_PASSES, Passings, default_passing
from monitors.metrics import raw_of
from monitors.statistics.agreement import MIN_LABELS, Interval, kappa, share_at_any_time
from monitors.statistics.calibration import MIN_PAIRS, Reliability, digest, fit, reliability
from monitors.statistics.confidence_sequence import ALPHA, confidence_sequence
from monitors.statistics.eprocess import Array, log_evidence
from monitors.statistics.multiple_testing import affected
from monitors.statistics.weighted_mean import hajek

MAX_LABELS = 2_000
"""Labelled answers of one metric that are read, the last to get a label."""
MAX_METRICS = 20
"""Metrics that are checked at once, those with the most labels."""
MAX_SLICES = 10
"""Values of one slice that are shown, those with the most labels."""
MAX_CASES = 10
"""Disagreements that are shown."""
MAX_SHOWN = 400
"""Characters of a question, an answer, or a text of the evidence that are shown."""
_TRIED, _AT_ONCE, _ITEMS = 200, 50, 3
_WORDS = ("fail", "pass")
_WHOLE = ("all", "label")
_WORD = re.compile(r"\w+")


class Judged(NamedTuple):
    """An answer with what people (or the metric taken for the truth) say, and what the judge says.

    `raw` is the score before calibration, `truth` in [0, 1]: both on the metric's own scale. `passed` is the verdict of
    people, `judged` that of the stored score.
    """

    sample: Sample
    outcome: Score
    made_by: tuple[str, str | None]
    raw: float
    truth: float
    passed: bool
    judged: bool


@dataclass(frozen=True, slots=True)
class Group:
    """The share of labelled answers on which judge and people agree, of all of them or of one class or slice.

    `by` is "all", "label" (the class that people gave), "app", "language", "topic" or "source". The intervals of one
    `by` hold together at 95 %, whenever one looks.
    """

    by: str
    name: str
    agreement: Interval


class Case(Struct, frozen=True):
    """An answer on which the verdicts of judge and people, "pass" or "fail", differ; long texts are cut."""

    id: str
    app: str
    question: str
    answer: str
    score: float
    judge: str
    people: str
    reason: str
    evidence: tuple[dict[str, Any], ...]


class Proposal(Struct, frozen=True):
    """A calibration map fitted to the first `fitted` pairs, as `gaugeway.toml` takes it, checked on those after.

    `before` and `after` are about the same later pairs. `better`: its squared error is smaller, wrong with probability
    <= .05 whenever one looks.
    """

    calibration: str
    fitted: int
    before: Reliability
    after: Reliability
    better: bool


class JudgeCheck(Struct, frozen=True):
    """One metric's scores by one version and judge beside the truth: "rating", "reference" or a metric.

    `kappa` is None where judge or people gave one verdict only. `reliability` is that of the raw scores, `in_force`
    that of the stored ones where they are calibrated. `left_out` labels are about scores of another version or judge.
    """

    metric: str
    version: str
    judge: str | None
    truth: str
    labels: int
    left_out: int
    kappa: Interval | None
    groups: tuple[Group, ...]
    reliability: Reliability
    in_force: Reliability | None
    proposal: Proposal | None
    cases: tuple[Case, ...]


async def judge_checks(
    store: Store, query: Query, *, passing: Passings = default_passing, truth: str | None = None
) -> list[JudgeCheck]:
    """Check the metric of the query, else those with labels; with `truth`, by the scores of that metric."""
    metrics = [query.metric]
    if query.metric is None:
        labels = Counter(label.metric for label in await store.ratings(replace(query, without=tuple(SIGNALS))))
        metrics = [metric for metric, _ in labels.most_common(MAX_METRICS)]
    checks = []
    for metric in filter(None, metrics):
        source, found = await judged_answers(store, replace(query, metric=metric), passing=passing, truth=truth)
        if found:
            checks.append(await asyncio.to_thread(_check, metric, source, found))
    return checks


async def judged_answers(
    store: Store, query: Query, *, passing: Passings = default_passing, truth: str | None = None
) -> tuple[str, list[Judged]]:
    """Return the source of the truth and the answers that it is about, in the order in which it arrived.

    Without `truth` these are the labels of people, or where there is none the verdicts of references.
    """
    rule = passing(query.metric or "")
    if truth is not None:
        points = await store.series(replace(query, metric=truth, outcome="score", order="newest", limit=MAX_LABELS))
        flipped = passing(truth).flipped
        good = {point.sample_id: on_scale(point.value or 0.0, flipped=flipped) for point in reversed(points)}
        least = on_scale(passing(truth).threshold, flipped=flipped)
    else:
        labels, least = await store.ratings(query), LABEL_PASSES
        truth = "rating" if any(label.source == "rating" for label in labels) else "reference"
        given = grouped((label.sample_id, label.rating) for label in labels if label.source == truth)
        good = {sample_id: math.fsum(ratings) / len(ratings) for sample_id, ratings in given.items()}
    found, ids = list[Judged](), list(good)[-MAX_LABELS:]
    for start in range(0, len(ids), _AT_ONCE):
        stored = await asyncio.gather(*map(store.sample, ids[start : start + _AT_ONCE]))
        for sample, evaluations in filter(None, stored):
            scored = [evaluation for evaluation in evaluations if evaluation.metric == query.metric]
            if scored and isinstance(outcome := scored[-1].outcome, Score):
                version, raw = raw_of(scored[-1].version, outcome)
                own, passed = on_scale(good[sample.id], flipped=rule.flipped), good[sample.id] >= least
                made_by = version, scored[-1].judge
                found.append(Judged(sample, outcome, made_by, raw, own, passed, rule.passes(outcome.value)))
    return truth, found


def _check(metric: str, source: str, everything: Sequence[Judged]) -> JudgeCheck:
    made_by = max(everything, key=lambda judged: judged.sample.started_at).made_by
    found = [judged for judged in everything if judged.made_by == made_by]
    raw, truth, stored = np.array([(judged.raw, judged.truth, judged.outcome.value) for judged in found]).T
    mapped = stored != raw
    verdicts = Counter((judged.passed, judged.judged) for judged in found)
    table = [[verdicts[passed, judged] for judged in (True, False)] for passed in (True, False)]
    counts = len(found), len(everything) - len(found)
    agreed = kappa(table) if all(len(set(words)) > 1 for words in zip(*verdicts, strict=True)) else None
    before, proposal = reliability(raw, truth), _proposal(raw, truth, digest(metric, *made_by))
    after = reliability(stored[mapped], truth[mapped]) if mapped.any() else None
    groups, cases = tuple(_groups(found)), tuple(_cases(found))
    return JudgeCheck(metric, *made_by, source, *counts, agreed, groups, before, after, proposal, cases)


def _groups(found: Sequence[Judged]) -> Iterator[Group]:
    about = topics({judged.sample.id: judged.sample.question for judged in found if judged.sample.question}, {})
    having: dict[str, dict[str, list[bool]]] = {}
    for judged in found:
        sample = judged.sample
        values: dict[str, Iterable[str | None]] = {
            "all": [""],
            "label": [_WORDS[judged.passed]],
            "app": [sample.app],
            "language": [language_of(sample.question or sample.response)],
            "topic": [about.get(sample.id)],
            "source": {context.source or context.id for context in sample.contexts},
        }
        for by, name in ((by, name) for by, names in values.items() for name in names if name is not None):
            having.setdefault(by, {}).setdefault(name, []).append(judged.passed == judged.judged)
    for by, groups in having.items():
        least = 1 if by in _WHOLE else MIN_LABELS
        sizes = Counter({name: len(agrees) for name, agrees in groups.items() if len(agrees) >= least})
        names = [name for name, _ in sizes.most_common(MAX_SLICES)]
        for name in names if by in _WHOLE or len(groups) > 1 else ():
            agreement = share_at_any_time(sum(groups[name]), len(groups[name]), ALPHA / len(names))
            yield Group(by, name.removeprefix("topic:"), agreement)


def _proposal(raw: Array, truth: Array, fitted_for: str) -> Proposal | None:
    """Fit to the first 30, 60, 120 ... pairs, so that the map is fixed before the pairs arrive that check it.

    A third of the pairs or more is left for the check. None where there are too few, or the map would be flat.
    """
    if raw.size * 2 < MIN_PAIRS * 3:
        return None
    fitted = MIN_PAIRS << int(math.log2(raw.size * 2 / (MIN_PAIRS * 3)))
    calibration = fit(raw[:fitted], truth[:fitted], fitted_for)
    if calibration.is_flat:
        return None
    later, wanted = raw[fitted:], truth[fitted:]
    mapped = calibration.apply(later)
    # a bound known before the truths: payoffs in [-1, 1] whatever the score
    grid = np.linspace(0.0, 1.0, 1001)
    both = grid + calibration.apply(grid)
    bound = max(float(np.max(np.abs(2.0 * grid - both) * np.maximum(both, 2.0 - both))), 1e-9)
    better = bool(log_evidence(((later - wanted) ** 2 - (mapped - wanted) ** 2) / bound) >= -math.log(ALPHA))
    return Proposal(str(calibration), fitted, reliability(later, wanted), reliability(mapped, wanted), better)


def _cases(found: Sequence[Judged]) -> Iterator[Case]:
    """Return the disagreements that are sure and unlike one another.

    One after the other, that with the largest product of the distance of score and truth and (1 - likeness) to each
    case chosen before, the likeness being the share of common words.
    """
    some = sorted((j for j in found if j.passed != j.judged), key=lambda j: -abs(j.outcome.value - j.truth))[:_TRIED]
    words = [{*_WORD.findall(f"{j.sample.question} {j.sample.response}".lower())} for j in some]
    worth = [abs(j.outcome.value - j.truth) for j in some]
    for _ in range(min(MAX_CASES, len(some))):
        at = max(range(len(some)), key=worth.__getitem__)
        sample, outcome = some[at].sample, some[at].outcome
        texts = sample.question or "", sample.response or "\n".join(message.text for message in sample.transcript)
        question, answer, why = (text[:MAX_SHOWN] for text in (*texts, outcome.reason))
        evidence = tuple({key: _cut(value) for key, value in item.items()} for item in outcome.evidence[:_ITEMS])
        verdicts = _WORDS[some[at].judged], _WORDS[some[at].passed]
        yield Case(sample.id, sample.app, question, answer, outcome.value, *verdicts, why, evidence)
        likeness = [len(own & words[at]) / max(1, len(own | words[at])) for own in words]
        worth = [value * (1.0 - like) for value, like in zip(worth, likeness, strict=True)]
        worth[at] = -1.0


def _cut(value: Any) -> Any:
    return value[:MAX_SHOWN] if isinstance(value, str) else value


class Wording(Struct, frozen=True):
    """A wording of a rubric on labelled answers; `difference` is its agreement less that of the first wording.

    Its interval may be looked at as labels arrive. `better` wordings agree more than the first one.
    """

    name: str
    agreement: Interval
    difference: Interval
    better: bool


def compare_wordings(agrees: Mapping[str, Sequence[bool]], alpha: float = ALPHA) -> list[Wording]:
    """Compare wordings with the first one, by whether each agreed with the label of each answer.

    e-BH over the wordings (`affected`) names the better ones; of at most two the probability that the strongest is
    wrong is <= alpha, whenever one looks. Raises ValueError for lengths that differ.

    >>> found = compare_wordings({"a": [True, False] * 40, "b": [True] * 80})
    >>> [(wording.name, wording.difference.value, wording.better) for wording in found]
    [('a', 0.0, False), ('b', 0.5, True)]
    """
    named = {name: np.array(values, dtype=np.float64) for name, values in agrees.items()}
    base = next(iter(named.values()))
    gains = {name: values - base for name, values in named.items()}
    evidence = {name: float(log_evidence(gain)) for name, gain in [*gains.items()][1:]}
    better, found = affected(evidence, alpha), []
    for name, values in named.items():
        low, high = confidence_sequence(hajek((1.0 + gains[name]) / 2.0, np.ones(base.size)))
        difference = Interval(value=float(gains[name].mean()), low=2.0 * low - 1.0, high=2.0 * high - 1.0, n=base.size)
        found.append(Wording(name, share_at_any_time(float(values.sum()), base.size), difference, name in better))
    return found

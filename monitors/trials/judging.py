"""Judges both answers of an exchange by the same metrics, and notes what a comparison needs of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from gaugeway.records import Evaluation, Failed, Sample, Score
from gaugeway.storage.trials import Trial
from gaugeway.text.abstention import abstained
from gaugeway.text.json_schema import fits
from gaugeway.text.language import language_of
from gaugeway.text.topics import TopicModel
from monitors.analysis.captured import OF_TRIAL
from monitors.analysis.trial_result import Pair, TrialResult, TrialRules, trial_result
from monitors.evaluation.evaluator import evaluate, judge_of
from monitors.judges import TRIAL_APP
from monitors.metrics import Metric, lower_is_better, scores_conversations
from monitors.metrics.registry import Catalogue
from monitors.trials.preference import EQUAL, PREFERENCE, Preference

ANSWERED, ABSTAINED, FORMAT = "answered", "abstention", "format"
"""Metrics that need no judge: whether there was an answer, whether it declined, whether it fits the JSON schema."""
RATIOS = ("seconds", "input_tokens", "output_tokens", "usd")
_TAGS = 5


class Judged(NamedTuple):
    """The scores of both answers by metric, the candidate's evaluations, and what judging cost in USD."""

    scores: dict[str, tuple[float, float]]
    evaluations: list[Evaluation]
    unscored: dict[str, str]
    usd: float


def metrics_of(trial: Trial, catalogue: Catalogue) -> dict[str, Metric]:
    """Return the metrics of the catalogue that judge a trial: those it names, else all that score answers."""
    known = {name: metric for name, metric in catalogue.by_name.items() if not scores_conversations(metric)}
    changes_passages = any(arm.max_contexts is not None or arm.drop_source is not None for arm in trial.arms)
    wanted = (
        {trial.primary, *trial.metrics}
        if trial.metrics
        else {
            name
            for name, metric in known.items()
            if judge_of(metric) is not None and (changes_passages or getattr(metric, "measures", "") != "retrieval")
        }
        | {trial.primary}
    )
    return {name: metric for name, metric in known.items() if name in wanted}


def problems_of(trial: Trial, catalogue: Catalogue, *, has_judge: bool) -> list[str]:
    """Return what of a trial cannot be judged here; each line begins with its field."""
    known = {name for name, metric in catalogue.by_name.items() if not scores_conversations(metric)}
    known |= {PREFERENCE} if has_judge else set()
    names = [("primary", trial.primary), *(("metrics", name) for name in trial.metrics)]
    return [
        f"{field}: no metric {name!r} scores answers here; there are {', '.join(sorted(known))}"
        for field, name in names
        if name not in known
    ]


async def judge(
    trial: Trial,
    judges: tuple[Mapping[str, Metric], Preference | None],
    live: tuple[Sample, Sequence[Evaluation]],
    candidate: Sample,
    *,
    timeout_s: float,
) -> Judged:
    """Score both answers. What is known of the live one, by the same version and judge, is not judged again."""
    (metrics, preference), (sample, known) = judges, live
    scored = {(one.metric, one.version, one.judge): one for one in known if isinstance(one.outcome, Score)}
    app = f"{TRIAL_APP}{trial.name}"
    before, after = replace(sample, app=app), replace(candidate, app=app)

    async def both(name: str, metric: Metric) -> tuple[str, Evaluation, Evaluation]:
        there = scored.get((name, str(metric.version), judge_of(metric)))
        return (name, there or await _one(metric, before, timeout_s), await _one(metric, after, timeout_s))

    runs = [both(name, metric) for name, metric in metrics.items()]
    scores: dict[str, tuple[float, float]] = {}
    unscored: dict[str, str] = {}
    evaluations, usd = [], 0.0
    for name, old, new in await asyncio.gather(*runs):
        usd += new.cost_usd + (old.cost_usd if old not in known else 0.0)
        evaluations.append(new)
        _pair(name, old, new, scores, unscored)
    if preference is not None and PREFERENCE in (trial.primary, *trial.metrics):
        found = await _one(preference.against(sample.response), after, timeout_s)
        usd += found.cost_usd
        evaluations.append(found)
        if isinstance(found.outcome, Score):
            scores[PREFERENCE] = (EQUAL, found.outcome.value)
        else:
            unscored[PREFERENCE] = _reason(found)
    return Judged(scores, evaluations, unscored, usd)


async def _one(metric: Metric, sample: Sample, timeout_s: float) -> Evaluation:
    return await evaluate(metric, sample, rate=1.0, clock=time.perf_counter, timeout_s=timeout_s)


def _pair(
    name: str, old: Evaluation, new: Evaluation, scores: dict[str, tuple[float, float]], unscored: dict[str, str]
) -> None:
    if isinstance(old.outcome, Score) and isinstance(new.outcome, Score):
        scores[name] = (old.outcome.value, new.outcome.value)
    else:
        unscored[name] = _reason(new if isinstance(old.outcome, Score) else old)


def _reason(evaluation: Evaluation) -> str:
    outcome = evaluation.outcome
    return outcome.error if isinstance(outcome, Failed) else getattr(outcome, "reason", "")


def facts_of(
    live: Sample, candidate: Sample, body: Mapping[str, Any], why_not: str | None, topics: TopicModel | None = None
) -> dict[str, Any]:
    """Return what is known of both answers without a judge, and of the question: `scores`, `numbers`, `facets`."""
    scores = {ANSWERED: (1.0, 0.0 if why_not else 1.0)}
    if why_not is None:
        scores[ABSTAINED] = (float(abstained(live.response)), float(abstained(candidate.response)))
        before, after = (_fits(sample.response, _schema_of(body)) for sample in (live, candidate))
        if before is not None and after is not None:
            scores[FORMAT] = (before, after)
    numbers = {
        "seconds": (live.duration_s, candidate.duration_s),
        "input_tokens": (live.usage and live.usage.input_tokens, candidate.usage and candidate.usage.input_tokens),
        "output_tokens": (live.usage and live.usage.output_tokens, candidate.usage and candidate.usage.output_tokens),
        "usd": (live.cost_usd, candidate.cost_usd),
    }
    facets = {"language": language_of(live.question or "") or "unknown"}
    if live.contexts and live.contexts[0].source:
        facets["source"] = live.contexts[0].source
    if topics is not None and live.question:
        facets["topic"] = topics.of({"": live.question})[""].removeprefix("topic:")
    facets |= {f"tag:{name}": value for name, value in list(live.tags.items())[:_TAGS]}
    return {
        "scores": scores,
        "numbers": {name: pair for name, pair in numbers.items() if None not in pair},
        "facets": facets,
        "cluster": live.cluster,
        "rate": live.rate,
    }


def labelled(evaluation: Evaluation, trial: Trial, arm: str, live: Sample, answer: Mapping[str, Any]) -> Evaluation:
    """Return a candidate's evaluation as it is stored with the live exchange, the answer in its evidence."""
    name = f"{evaluation.metric}{OF_TRIAL}{trial.name}.{arm}"
    if isinstance(outcome := evaluation.outcome, Score):
        outcome = Score(outcome.value, outcome.reason, (*outcome.evidence, dict(answer)))
    return replace(evaluation, sample_id=live.id, metric=name, outcome=outcome)


def _schema_of(body: Mapping[str, Any]) -> Any | None:
    """Return the JSON schema that an answer must fit, where the request gives one."""
    text = body.get("text")
    form: Any = body.get("response_format") or (text.get("format") if isinstance(text, dict) else None)
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    named = form.get("json_schema", form)
    return named.get("schema") if isinstance(named, dict) else None


def _fits(text: str, schema: Any) -> float | None:
    """Return whether an answer is JSON that fits a schema; None without one, and beyond the bounds of `fits`."""
    if fits(schema, {}) is None:
        return None
    try:
        fitting = fits(schema, msgspec.json.decode(text.encode("utf-8", "replace")))
    except (msgspec.DecodeError, RecursionError):
        return 0.0
    return None if fitting is None else float(fitting)


def result_of(
    trial: Trial, facts: Iterable[tuple[str, float, Mapping[str, Any]]], falls: Callable[[str], bool]
) -> TrialResult:
    """Return the result of one arm from the facts of its answers: exchange, time, facts, in order of the time.

    `falls` says of which metrics the lowest value is best.
    """
    names = [trial.primary, *(name for name in trial.metrics if name != trial.primary), ANSWERED, ABSTAINED, FORMAT]
    pairs: dict[str, list[Pair]] = {name: [] for name in dict.fromkeys(names)}
    pairs |= {name: [] for name in RATIOS}
    for exchange, at, fact in facts:
        about = (fact.get("rate", 1.0), fact.get("cluster"), fact.get("facets", {}))
        for metric, both in {**fact.get("scores", {}), **fact.get("numbers", {})}.items():
            before, after = reversed(both) if trial.watch else both
            pairs.setdefault(metric, []).append(Pair(exchange, at, before, after, *about))
    rules = TrialRules(
        primary=trial.primary,
        margin=trial.margin,
        alpha=trial.alpha,
        arms=len(trial.arms),
        lower_is_better=frozenset(name for name in pairs if name == ABSTAINED or falls(name)),
        ratios=frozenset(RATIOS),
    )
    found = trial_result(pairs, rules)
    return _turned(found) if trial.watch else found


def _turned(found: TrialResult) -> TrialResult:
    """Return a result whose sides were swapped with live and candidate in their places; its decisions are of live."""

    def turned(row: Any) -> dict[str, Any]:
        low, high = (None if end is None else -end for end in (row.high, row.low))
        gain = None if row.difference is None else -row.difference
        return {"live": row.candidate, "candidate": row.live, "difference": gain, "low": low, "high": high}

    metrics = []
    for row in found.metrics:
        metric = replace(row, **turned(row))
        if row.ratio is not None:
            ends = [None if end is None else 1.0 / end for end in (row.high, row.low)]
            metric = replace(metric, ratio=1.0 / row.ratio, low=ends[0], high=ends[1])
        metrics.append(metric)
    slices = tuple(replace(part, **turned(part)) for part in found.slices)
    return replace(found, metrics=tuple(metrics), slices=slices)


def falls_of(catalogue: Catalogue) -> Callable[[str], bool]:
    """Return what says of which metrics of the catalogue the lowest value is best."""
    return {name for name, metric in catalogue.by_name.items() if lower_is_better(metric)}.__contains__

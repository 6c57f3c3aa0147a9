"""What the description of an alert reads of stored exchanges: their passages, the steps of an agent, and examples."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from gaugeway.records import Alert, Evaluation, Example, Sample, Score
from gaugeway.storage.engines.failures import engine_failed
from gaugeway.storage.stores import Point, Store
from gaugeway.text.passage_identity import passage_names, passage_origins
from monitors.alerting.causes import Passages
from monitors.alerting.causes.steps import FallenStep, Retrieved, Step, fallen_step
from monitors.alerting.stream import usable
from monitors.metrics.judged.passage_verdicts import by_step, passage_verdicts, relevances

MAX_EXCHANGES = 500
"""Exchanges whose passages are read on each side of an onset."""
MAX_STEPS_READ = 200
"""Exchanges whose steps are read on each side of an onset."""
MAX_READ_S = 20.0
AT_ONCE = 8
MOST_FAULTS, MAX_TEXT = 3, 300  # internal bound: size of a message that we send
HASHED = "blake2b:"
_RELEVANCE = "context_relevancy"
_log = logging.getLogger("gaugeway")

T = TypeVar("T")


def shuffled(ids: Iterable[str]) -> list[str]:
    """Return ids in the order of a hash, so that the first ones are a random part."""
    return sorted(ids, key=lambda sample_id: blake2b(sample_id.encode(), digest_size=8).digest())


async def read_passages(
    store: Store, metric: str, sides: Sequence[Sequence[Point]], *, quote: bool, salt: str = ""
) -> Mapping[str, Passages]:
    """Return the passages of stored exchanges with a score of `metric`, by sample id; none if the store is too slow.

    Documents have the names of `gaugeway.text.passage_identity`; without `quote` a hash with `salt` of these.
    """
    ids = [sample_id for side in sides for sample_id in shuffled(_rates(metric, side))[:MAX_EXCHANGES]]
    try:
        async with asyncio.timeout(MAX_READ_S):
            return await _read_each(store, ids, lambda *stored: _passages(*stored, quote=quote, salt=salt))
    except TimeoutError:
        _log.warning("reading the passages for the cause of a drop of %s timed out after %.0f s", metric, MAX_READ_S)
        return {}


async def find_fallen_step(store: Store, before: Sequence[Point], since: Sequence[Point]) -> FallenStep | None:
    """Return the step of an agent whose passages became less relevant; None without one, or if the store fails."""
    sides = []
    try:
        async with asyncio.timeout(MAX_READ_S):
            for rates in (_rates(_RELEVANCE, before), _rates(_RELEVANCE, since)):
                relevance = await _read_each(store, shuffled(rates)[:MAX_STEPS_READ], relevance_by_step)
                sides.append([Retrieved(relevance=steps, rate=rates[key]) for key, steps in relevance.items()])
    except TimeoutError:
        _log.warning("reading passages to find the hop behind a drop timed out after %.0f s", MAX_READ_S)
        return None
    except Exception as error:
        if not engine_failed(error):
            raise
        _log.warning("cannot read passages to find the hop behind a drop: %s", type(error).__name__)
        return None
    return fallen_step(*sides)


async def read_example(store: Store, point: Point, *, quote: bool) -> Example:
    """Return an exchange as alerts show it; without `quote`, or if it is deleted, only its score."""
    stored = await store.sample(point.sample_id) if quote else None
    if stored is None:
        return Example(id=point.sample_id, value=point.value or 0.0)
    return _example(*stored, point.metric, point.value or 0.0)


async def read_worst(store: Store, alert: Alert) -> list[Example]:
    """Return the worst exchanges of an alert that are still stored, with their texts and faults."""

    def read(sample: Sample, evaluations: Sequence[Evaluation]) -> Example | None:
        score = _score(evaluations, alert.metric)
        return None if score is None else _example(sample, evaluations, alert.metric, score.value)

    known = await _read_each(store, alert.worst_exchanges, read)
    return [known[sample_id] for sample_id in alert.worst_exchanges if sample_id in known]


def _example(sample: Sample, evaluations: Sequence[Evaluation], metric: str, value: float) -> Example:
    question, answer = map(_quoted, _question_and_answer(sample))
    return Example(id=sample.id, value=value, question=question, answer=answer, faults=faults_of(evaluations, metric))


def relevance_by_step(sample: Sample, evaluations: Iterable[Evaluation]) -> Mapping[Step, float] | None:
    """Return the mean relevance of an exchange's passages by step; None where none of them has a step and a rating."""
    score = _score(evaluations, _RELEVANCE)
    if score is None:
        return None
    steps = by_step(sample.contexts, relevances(sample.contexts, score.evidence))
    return {Step(*step): sum(some) / len(some) for step, some in steps.items()} or None


def faults_of(evaluations: Iterable[Evaluation], metric: str) -> tuple[str, ...]:
    """Return what is wrong with an answer: the unsupported claims, or else the reason of its score."""
    score = _score(evaluations, metric)
    if score is None:
        return ()
    claims = [text for piece in score.evidence if (text := _fault(piece))][:MOST_FAULTS]
    return tuple(map(_shortened, claims or ([score.reason] if score.reason else [])))


async def _read_each(
    store: Store, ids: Iterable[str], part: Callable[[Sample, Sequence[Evaluation]], T | None]
) -> dict[str, T]:
    """Return a part of each stored exchange that has it, by id."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def read(sample_id: str) -> tuple[str, T | None]:
        async with gate:
            stored = await store.sample(sample_id)
        return sample_id, None if stored is None else part(*stored)

    parts = await asyncio.gather(*map(read, ids))
    return {sample_id: read_part for sample_id, read_part in parts if read_part is not None}


def _rates(metric: str, side: Iterable[Point]) -> dict[str, float]:
    """Return the sampling rates of the scores of `metric` by sample id."""
    return {point.sample_id: point.rate for point in side if point.metric == metric and usable(point)}


def _passages(sample: Sample, evaluations: Iterable[Evaluation], *, quote: bool, salt: str) -> Passages | None:
    known = (*passage_names(sample, salt=salt), *passage_origins(sample, salt=salt))
    names = frozenset(name if quote else _hashed(name, salt) for name in known if name)
    verdicts = passage_verdicts(evaluations)
    contradicted = None if verdicts is None else verdicts.any_contradiction
    return Passages(documents=names, contradicted=contradicted, count=len(sample.contexts)) if names else None


def _hashed(name: str, salt: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), key=salt.encode()[:64], digest_size=4).hexdigest()


def _score(evaluations: Iterable[Evaluation], metric: str) -> Score | None:
    scores = (evaluation.outcome for evaluation in evaluations if evaluation.metric == metric)
    return next((outcome for outcome in scores if isinstance(outcome, Score)), None)


def _fault(piece: Mapping[str, Any]) -> str:
    """Return the claim of a piece of evidence against the answer."""
    if piece.get("verdict", "supported") != "supported" or piece.get("relevance") == "irrelevant":
        return str(piece.get("claim") or "")
    if piece.get("contradicted") is True:
        return str(piece.get("reason") or "")
    if piece.get("unsupported_numbers") or piece.get("unsupported_names"):
        return str(piece.get("sentence") or "")
    return ""


def _question_and_answer(sample: Sample) -> tuple[str, str]:
    """Return question and answer; of a whole conversation the first question and the last answer."""
    if not sample.transcript:
        return sample.question or "", sample.response
    asked = [message.text for message in sample.transcript if message.role == "user"]
    answers = [message.text for message in sample.transcript if message.role == "assistant"]
    return next(iter(asked), ""), answers[-1] if answers else ""


def _quoted(text: str) -> str:
    """Return a stored text as alerts quote it; empty if only its hash is stored."""
    return "" if text.startswith(HASHED) else _shortened(text)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"

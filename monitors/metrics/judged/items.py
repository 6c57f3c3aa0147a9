"""Numbered items in prompts: fencing them, and getting a verdict for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from gaugeway.records import Sample, Skipped
from monitors.judges import JudgeError
from monitors.metrics.judged.prompts import Datum

V = TypeVar("V")
ATTEMPTS = 2


async def complete(
    ask: Callable[[Sequence[int]], Awaitable[Iterable[tuple[int, V]]]], wanted: Sequence[int], times: int = ATTEMPTS
) -> Mapping[int, V]:
    """Get a verdict for every id in `wanted`, in at most `times` calls: later calls ask for the missing ones.

    The first verdict on an id counts; verdicts on other ids are ignored. Raises JudgeError if any is still missing.
    """
    found: dict[int, V] = {}
    missing = list(wanted)
    for _ in range(times):
        if missing:
            asked = frozenset(missing)
            for id_, verdict in await ask(missing):
                if id_ in asked:
                    found.setdefault(id_, verdict)
            missing = [id_ for id_ in wanted if id_ not in found]
    if missing:
        raise JudgeError("unreadable", f"no verdict on {len(missing)} of {len(wanted)} items, asked twice")
    return {id_: found[id_] for id_ in wanted}


def question_of(sample: Sample) -> list[Datum]:
    """Return the question, if there is one."""
    return [Datum("question", sample.question)] if sample.question and sample.question.strip() else []


def contexts_of(sample: Sample, indexes: Sequence[int] | None = None) -> list[Datum]:
    """Return the non-empty contexts, or those at `indexes`, with their index in the sample."""
    chosen = sent_contexts(sample) if indexes is None else indexes
    return [Datum("context", sample.contexts[index].text, index=index) for index in chosen]


def claims_of(claims: Sequence[str], ids: Sequence[int]) -> list[Datum]:
    """Return the claims with these ids."""
    return [Datum("claim", claims[id_], id=id_) for id_ in ids]


Part: TypeAlias = Literal["response", "question", "reference", "contexts"]


def sent_contexts(sample: Sample) -> list[int]:
    """Return the indexes of the non-empty contexts: the judge sees these, and denominators count them."""
    return [index for index, context in enumerate(sample.contexts) if context.text.strip()]


def unanswered(sample: Sample, *parts: Part) -> Skipped | None:
    """Return Skipped("no_response"), Skipped("no_question") ... when a part has no text; None when all have."""
    for part in parts:
        there = sent_contexts(sample) if part == "contexts" else (getattr(sample, part) or "").strip()
        if not there:
            return Skipped(f"no_{part}")
    return None

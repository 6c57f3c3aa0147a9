"""Asking about numbered items: what is fenced for the judge, and that every item gets its verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from monitors.judges import JudgeError
from monitors.metrics.judged.prompts import Datum
from monitors.records import Sample, Skipped

V = TypeVar("V")
ASKED = 2


async def complete(
    ask: Callable[[Sequence[int]], Awaitable[Iterable[tuple[int, V]]]], wanted: Sequence[int], times: int = ASKED
) -> Mapping[int, V]:
    """Ask for every id in `wanted` and once more (at most `times`) for those that got no verdict; in the order wanted.

    The first verdict on an id counts, one nobody asked for does not. Raises JudgeError when some stay without.
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
    """The question, where there is one."""
    return [Datum("question", sample.question)] if sample.question and sample.question.strip() else []


def contexts_of(sample: Sample, indexes: Sequence[int] | None = None) -> list[Datum]:
    """The contexts that have any text, or the chosen ones, under their index in the sample."""
    chosen = sent_contexts(sample) if indexes is None else indexes
    return [Datum("context", sample.contexts[index].text, index=index) for index in chosen]


def claims_of(claims: Sequence[str], ids: Sequence[int]) -> list[Datum]:
    """The claims with these ids."""
    return [Datum("claim", claims[id_], id=id_) for id_ in ids]


Part: TypeAlias = Literal["response", "question", "reference", "contexts"]


def sent_contexts(sample: Sample) -> list[int]:
    """The indexes of the contexts that have any text: those a judge sees, and the denominators count."""
    return [index for index, context in enumerate(sample.contexts) if context.text.strip()]


def unanswered(sample: Sample, *parts: Part) -> Skipped | None:
    """The outcome for a sample in which one of these parts has no text: `no_response`, `no_question` ..."""
    for part in parts:
        there = sent_contexts(sample) if part == "contexts" else (getattr(sample, part) or "").strip()
        if not there:
            return Skipped(f"no_{part}")
    return None

"""Joins supplements to samples: which samples a supplement concerns, and the sample that results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gaugeway.records import Context, Sample, Supplement, ToolCall, changed
from gaugeway.settings import bounds

SOURCES = {"contexts": "contexts_api", "feedback": "feedback", "spans": "spans"}
"""The channels of supplements, the most trusted first, and the `context_source` of the contexts that came through."""

SETTLE_S = 6.0
"""OpenTelemetry's batch processors export every 5 s: by then the spans of a trace that ended together are here."""

CLOCKS_S = 0.05
"""What the clocks of an app and the gateway may differ by: a tool that ended so much later still counts as before."""

_EXPLICIT = "explicit"
_RANK = {_EXPLICIT: 0, "contexts_api": 1, "feedback": 2, "spans": 3}
_NOBODY = "none"


class Address(NamedTuple):
    """The target of a supplement; `kind` is exchange, key or trace."""

    kind: str
    value: str


def address_of(supplement: Supplement) -> Address | None:
    """Return whom a supplement concerns: the most exact name it gives counts alone.

    One trace holds many exchanges (a rewritten question, several hops): whoever names the exchange or its key and is
    inside a trace as well does not mean the others.

    >>> address_of(Supplement(id="1", received_at=0.0, source="contexts", key="k", trace_id="t"))
    Address(kind='key', value='k')
    """
    if supplement.exchange_id is not None:
        return Address("exchange", supplement.exchange_id)
    if supplement.key is not None:
        return Address("key", supplement.key)
    return None if supplement.trace_id is None else Address("trace", supplement.trace_id)


def addresses_of(sample: Sample) -> list[Address]:
    """Return every address under which a supplement reaches this sample."""
    named = (("exchange", sample.id), ("key", sample.context_key), ("trace", sample.trace_id))
    return [Address(kind, value) for kind, value in named if value is not None]


def may_join(supplement: Supplement, sample: Sample) -> bool:
    """Whether the sender of a supplement may speak for the sample's app.

    >>> said = Supplement(id="1", received_at=0.0, source="feedback", key="k", app="shop")
    >>> [may_join(said, Sample(id="s", started_at=0.0, app=app)) for app in ("shop", "rival")]
    [True, False]
    """
    return supplement.app is None or supplement.app == sample.app


def targets_of(sample: Sample) -> list[tuple[Address, str | None]]:
    """Return every address together with each `Supplement.app` under which a supplement reaches this sample."""
    return [(address, app) for address in addresses_of(sample) for app in (None, sample.app)]


def join(sample: Sample, supplements: Iterable[Supplement]) -> Sample:
    """Return a sample that nobody has judged yet with what was said about it.

    Contexts: those the client sent with the request stay; then come the contexts request, feedback, and retriever
    spans, whichever is first to have any; then what an extractor read out of the text. A span counts only where no
    extractor recognised a retrieval at all: what stood in the request is what the model saw. The contexts request's
    question goes with its contexts, because most chats have some last turn, and a guess must not beat the app. Every
    other question and reference fills a gap only, and the first one to come stays, in whatever order they are read.
    The contexts of all supplements together stay within the bounds; the rest is left out. Spans of tools
    and agents that ended before the exchange began are the calls of an answer that shows none.
    """
    permitted = (supplement for supplement in supplements if may_join(supplement, sample))
    ours = sorted(permitted, key=lambda supplement: (supplement.received_at, supplement.id))
    joined = _with_contexts(sample, ours)
    return changed(
        joined,
        question=joined.question or _first(supplement.question for supplement in ours),
        reference=joined.reference or _first(supplement.reference for supplement in ours),
        calls=joined.calls or _calls(joined, ours),
        retrieval_s=_covered(ours) if joined.retrieval_s is None else joined.retrieval_s,
    )


def complete(sample: Sample, supplements: Iterable[Supplement]) -> Sample:
    """Return a sample that was judged already with its gaps filled: what a score was computed from never changes."""
    joined = join(sample, supplements)
    kept = replace(joined, question=sample.question or joined.question)
    return replace(kept, contexts=sample.contexts, context_source=sample.context_source) if sample.contexts else kept


_FILLED = ("question", "reference", "calls", "conversation", "turn", "hop", "cluster", "history", "retrieval_s")
"""Fields that may come later, or change when another exchange arrives late; contexts, too, and their source."""


def completes(new: Sample, old: Sample) -> bool:
    """Whether `new` is `old` with gaps filled by what was said beside it, and differs in nothing else.

    Where it stands in its conversation is no difference: that may change when another exchange arrives late.
    """
    apart = replace(new, **{name: getattr(old, name) for name in _FILLED})
    if replace(apart, contexts=old.contexts, context_source=old.context_source) != old:
        return False
    if old.contexts and (new.contexts, new.context_source) != (old.contexts, old.context_source):
        return False
    if old.calls not in ((), new.calls) or old.retrieval_s not in (None, new.retrieval_s):
        return False
    return old.question in (None, "", new.question) and old.reference in (None, "", new.reference)


def expected(sample: Sample, *, spans: bool) -> str | None:
    """Name the channel through which contexts should still come, "contexts" or "spans"; None for none.

    A key promises contexts, and those beat whatever was read out of the text. Spans (if anything receives them) are
    worth waiting for only where the request showed no retrieval; where some came, more of the same trace may follow.
    What is no answer to judge waits for nothing.
    """
    if sample.skip_reason is not None:
        return None
    if sample.context_key is not None and _rank(sample.context_source) > _RANK["feedback"]:
        return "contexts"
    return "spans" if spans and sample.trace_id is not None and _may_replace("spans", sample.context_source) else None


class _Waiting(NamedTuple):
    sample: Sample
    channel: str
    until: float


class WaitingRoom:
    """Samples that expect contexts, each for at most `window_s`, at most `limit` of them. `now` never goes back.

    Explicit contexts end the wait. Spans shorten it to `settle_s`: a tracer exports in batches, so that of a trace with
    several hops the first one may be here when the last one is still under way.
    """

    def __init__(self, window_s: float, limit: int, settle_s: float = 0.0) -> None:
        self._window_s = window_s
        self._settle_s = min(settle_s, window_s)
        self._limit = limit if window_s > 0 else 0
        self._waiting: dict[str, _Waiting] = {}
        self._ids: dict[Address, set[str]] = {}

    def __contains__(self, sample_id: object) -> bool:
        return sample_id in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def admit(self, sample: Sample, channel: str, now: float, *, settling: bool = False) -> bool:
        """Let a sample wait for `channel`, or for the rest of what is `settling`; False when there is no room."""
        if len(self._waiting) >= self._limit:
            return False
        until = now + (self._settle_s if settling else self._window_s)
        self._waiting[sample.id] = _Waiting(sample, channel, until)
        for address in addresses_of(sample):
            self._ids.setdefault(address, set()).add(sample.id)
        return True

    def release(self, supplements: Iterable[Supplement], now: float) -> list[Sample]:
        """Return, and keep no longer, the samples that these bring what they wait for."""
        released = []
        for supplement in supplements:
            address = address_of(supplement)
            if address is None or (supplement.contexts is None and supplement.calls is None):
                continue
            for sample_id in sorted(self._ids.get(address, ())):
                waiting = self._waiting[sample_id]
                if not may_join(supplement, waiting.sample):
                    continue
                if supplement.source != "spans":
                    released.append(self._leave(sample_id))
                elif waiting.channel == "spans":
                    self._waiting[sample_id] = waiting._replace(until=min(waiting.until, now + self._settle_s))
        return released

    def due(self, now: float) -> list[Sample]:
        """Return, and keep no longer, the samples whose time is up."""
        over = [sample_id for sample_id, waiting in self._waiting.items() if waiting.until <= now]
        return [self._leave(sample_id) for sample_id in over]

    def holds(self, supplement: Supplement) -> bool:
        """Whether it reaches a sample that waits here."""
        address = address_of(supplement)
        ids = self._ids.get(address, ()) if address is not None else ()
        return any(may_join(supplement, self._waiting[sample_id].sample) for sample_id in ids)

    def _leave(self, sample_id: str) -> Sample:
        sample = self._waiting.pop(sample_id).sample
        for address in addresses_of(sample):
            self._ids[address].discard(sample_id)
            if not self._ids[address]:
                del self._ids[address]
        return sample


def _with_contexts(sample: Sample, supplements: Sequence[Supplement]) -> Sample:
    """Return the sample with the contexts of the most trusted channel that has any."""
    for channel, source in SOURCES.items():
        said = [
            supplement for supplement in supplements if supplement.source == channel and supplement.contexts is not None
        ]
        if not said or not _may_replace(source, sample.context_source):
            continue
        question = _first(supplement.question for supplement in said) if channel == "contexts" else None
        return replace(
            sample,
            contexts=bounds.passages(
                _distinct(context for supplement in said for context in supplement.contexts or ())
            ).contexts,
            context_source=source,
            question=question or sample.question,
        )
    return sample


def _calls(sample: Sample, supplements: Sequence[Supplement]) -> tuple[ToolCall, ...]:
    """Return the tools and agents of the trace that had ended when the request of an answer was made, in their order.

    An agent that still runs is the one that asks. An answer whose request holds the results of tools gets the calls of
    the exchanges before (`monitors.evaluation.conversations`).
    """
    within_turn = sample.links.within_turn if sample.links is not None else (sample.hop or 1) > 1
    if sample.skip_reason is not None or within_turn:
        return ()
    # Half of the exchange at most: an agent that asks for its answer ends after all of it.
    latest = sample.started_at + min(CLOCKS_S, (sample.duration_s or 0.0) / 2)
    before = (
        supplement for supplement in supplements if supplement.ended_at is not None and supplement.ended_at <= latest
    )
    return tuple(call for supplement in before for call in supplement.calls or ())[-bounds.MAX_CALLS :]


def _may_replace(source: str, there: str) -> bool:
    if source == "spans":
        return there in (_NOBODY, "spans")
    return there != _EXPLICIT and _rank(source) <= _rank(there)


def _rank(source: str) -> int:
    return _RANK.get(source, len(_RANK))


def _distinct(contexts: Iterable[Context]) -> tuple[Context, ...]:
    """Leave out what was said before: the same text under the same id, or under none."""
    kept: list[Context] = []
    ids: dict[str, set[str | None]] = {}
    nameless: dict[str, int] = {}
    for context in contexts:
        if context.id in (known := ids.setdefault(context.text, set())) or (known and context.id is None):
            continue
        if context.id is None:
            nameless[context.text] = len(kept)
        if None in known:  # now the passage has a name
            known.discard(None)
            kept[nameless[context.text]] = context
        else:
            kept.append(context)
        known.add(context.id)
    return tuple(kept)


def _covered(supplements: Iterable[Supplement]) -> float | None:
    """Return how long retrievers worked, in seconds: the union of their spans' times; None where none is known."""
    spans = sorted(
        (supplement.received_at, supplement.retrieval_s)
        for supplement in supplements
        if supplement.retrieval_s is not None
    )
    if not spans:
        return None
    total, until = 0.0, -math.inf
    for start, took in spans:
        total += max(0.0, start + took - max(start, until))
        until = max(until, start + took)
    return total


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)

"""Transcripts: a conversation that has been silent for a while becomes a sample of its own, for its own metrics."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b

from gaugeway.records import Message, Sample
from gaugeway.settings.bounds import bounded_transcript
from gaugeway.storage.queues import Queue
from gaugeway.storage.stores import Store

MOST_EXCHANGES = 200
"""Stored exchanges of a conversation that are read, the latest."""

INCOMPLETE = "incomplete"
"""Why a conversation is skipped: some of its exchanges are not known."""

_SEEN_BY_THE_USER = frozenset(
    {
        *("client_cancelled", "upstream_truncated", "upstream_error", "timeout", "rejected", "error_response"),
        *("refusal", "content_filter", "truncated_response", "empty_response", "cache_hit"),
    }
)
"""Skip reasons of exchanges that the user saw end; others are steps on the way to an answer, or are not the user's."""
_RESTART_S = 3600.0
"""How far a new process looks back. Conversations that have their scores are left out."""
_AT_ONCE = 50


@dataclass(eq=False)
class TranscriptMaker:
    """Queues the transcript of each conversation once it has been silent for `silence_s` seconds.

    `chosen(conversation)` says whether any metric will be computed for a conversation, so that the others are not read.
    A conversation that goes on later gets another transcript, of all of it. Samples in the queue hold back what is as
    old as they are: they may be its last.
    """

    store: Store
    queue: Queue
    _: KW_ONLY
    silence_s: float
    chosen: Callable[[Sample], bool]
    oldest: Callable[[], Awaitable[float | None]]
    clock: Callable[[], float] = time.time
    _until: float | None = field(default=None, init=False)

    async def tick(self) -> int:
        """Queue the transcripts that are due; return how many. Raises EngineError and QueueFull."""
        now, oldest = self.clock(), await self.oldest()
        until = min(now, now if oldest is None else oldest) - self.silence_s
        since = until - _RESTART_S if self._until is None else self._until
        if until <= since:
            return 0
        names = [name for name in await self.store.silent(since, until) if self.chosen(_blank(name))]
        made = 0
        for start in range(0, len(names), _AT_ONCE):
            found = [await self._transcript(name) for name in names[start : start + _AT_ONCE]]
            transcripts = [sample for sample in found if sample is not None]
            await self.queue.put(transcripts)
            made += len(transcripts)
        self._until = until
        return made

    async def _transcript(self, name: str) -> Sample | None:
        if not (stored := await self.store.conversation(name, MOST_EXCHANGES)) or stored[-1].transcript:
            return None
        exchanges = [sample for sample in stored if not sample.transcript]
        return transcript_of(name, exchanges, silence_s=self.silence_s)


def transcript_of(name: str, exchanges: Sequence[Sample], *, silence_s: float) -> Sample | None:
    """Return the sample that stands for a conversation; None when no exchange of it answers the user.

    `exchanges` are those stored of it, the oldest first. It is skipped as "incomplete" where earlier turns are known
    neither as exchanges nor from the first one's history, and where exchanges are captured one by one at a lower rate
    than 1. Of a turn that was answered again after an edit, and what followed it, only the last branch counts.
    """
    seen = [sample for sample in exchanges if sample.skip_reason is None or sample.skip_reason in _SEEN_BY_THE_USER]
    if not (answers := _last_branch(seen)):
        return None
    first, last = answers[0], answers[-1]
    begun = list(first.history)
    asked_before = sum(message.role == "user" for message in begun)
    known = asked_before >= (first.turn or 1) - 1 and len(exchanges) < MOST_EXCHANGES
    rate = min(sample.rate for sample in answers)
    complete = known and all(sample.sampled_whole or sample.rate == 1.0 for sample in answers)
    messages = [*begun, *(message for sample in answers for message in _messages(sample))]
    return Sample(
        id=f"conversation-{blake2b(f'{name} {last.id}'.encode(), digest_size=12).hexdigest()}",
        started_at=last.started_at + silence_s,
        app=last.app,
        model=last.model,
        tags=last.tags,
        session=last.session,
        rate=rate,
        prompt=last.prompt,
        cluster=_cluster(name, last.cluster),
        conversation=name,
        cost_usd=_total([sample.cost_usd for sample in exchanges]),
        transcript=bounded_transcript(tuple(messages)),
        skip_reason=None if complete else INCOMPLETE,
    )


def _cluster(name: str, cluster: str | None) -> str:
    """Return the cluster of a conversation, the same when it goes on later."""
    return cluster if cluster is not None and cluster.startswith("s:") else f"s:{name} {cluster or ''}".rstrip()


def _last_branch(answers: Sequence[Sample]) -> list[Sample]:
    """Drop the answers that a later one replaced: it stands at their turn, or before it.

    Exchanges without a history all stand at turn 1, and replace nothing.
    """
    kept: list[Sample] = []
    for sample in answers:
        turn = sample.turn or 1
        while turn > 1 and kept and (kept[-1].turn or 1) >= turn:
            kept.pop()
        kept.append(sample)
    return kept


def _messages(answer: Sample) -> list[Message]:
    said = [] if not (answer.question or "").strip() else [Message(role="user", text=answer.question or "")]
    text = answer.response if answer.response.strip() else f"[no answer: {answer.skip_reason or 'empty'}]"
    return [*said, Message(role="assistant", text=text)]


def _total(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


def _blank(name: str) -> Sample:
    """A sample that is drawn as the conversation's transcript will be."""
    return Sample(id="", started_at=0.0, conversation=name, transcript=(Message(role="user", text=""),))

"""Puts samples into their conversations, and completes answers with what the earlier exchanges of their turn hold."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from gaugeway.records import TOOL_SOURCES, Context, Links, Message, Sample, changed
from gaugeway.settings.bounds import MAX_CALLS, MAX_HISTORY_TEXT, passages
from gaugeway.storage.conversations import (
    JOINED,
    TRACE_S,
    Linked,
    Lookup,
    Move,
    Place,
    after,
    before,
    cluster_with,
    decide,
    doubts,
    linked,
    placed,
)
from gaugeway.storage.engines.failures import Unsupported, engine_failed
from gaugeway.storage.stores import Store
from monitors.evaluation.persist import Persistence, WorkerObserver

HOP = "hop"
"""Why a step on the way to an answer is skipped."""

MOST_MOVED = 500
"""Exchanges that change their place because of one batch."""

_TRIES = 20
_log = logging.getLogger("gaugeway.worker")


class ConversationJoiner:
    """Joins samples to conversations through the store, so that any worker on any machine may have the others.

    An exchange is stored first and then decided about, together with those that are there already and continue it: so
    the outcome is the same in whatever order exchanges arrive, and whoever processes them.
    """

    def __init__(self, store: Store, persistence: Persistence, observer: WorkerObserver) -> None:
        self._store = store
        self._persist = persistence
        self._observer = observer

    async def join(self, samples: Sequence[Sample]) -> Sequence[Sample] | None:
        """Return the samples in their conversations; None when the worker is stopped first.

        Those that continue none have no links any more.
        """
        new = {exchange.id: exchange for sample in samples if (exchange := linked(sample)) is not None}
        if not new:
            return samples
        try:
            found = await self._persist.attempt("link", lambda: self._join(new), engine_failed)
        except Unsupported:
            return samples
        except Exception as error:  # noqa: BLE001 - not the engine's failure: they are evaluated one by one
            self._observer.failed("link")
            _log.warning("cannot join %d samples: %s: %s", len(new), type(error).__name__, error)
            found = new
        if found is None:
            return None
        for result, n in Counter(hop.place.result for hop in found.values()).items():
            self._observer.linked(result, n)
        return [_joined(sample, found.get(sample.id)) for sample in samples]

    async def current(self, samples: Sequence[Sample]) -> Sequence[Sample] | None:
        """Return joined samples where they stand by now; None when the worker is stopped first."""
        names = [sample.id for sample in samples if sample.conversation is not None]
        if not names:
            return samples
        found = await self._persist.attempt("link", lambda: self._store.links(names), engine_failed)
        if found is None:
            return None
        by_id = {exchange.id: exchange for exchange in found}
        return [
            sample
            if sample.conversation is None
            else changed(_joined(sample, by_id.get(sample.id)), links=None, skip_reason=sample.skip_reason)
            for sample in samples
        ]

    async def _join(self, new: Mapping[str, Linked]) -> Mapping[str, Linked]:
        """Decide until nothing changes any more.

        Another process may move an exchange while this one decides what continues it. Whoever moved something looks
        again at what it continues and at what continues it, so that the one who is later sees the other's move.
        """
        looked_at = dict(new)
        stored = await self._store.link(list(new.values()))
        for _ in range(_TRIES):
            decision = _Decision({**looked_at, **{exchange.id: exchange for exchange in stored}})
            await decision.make(self._store)
            if not decision.moves:
                break
            missed = await self._store.place(decision.moves)
            late = [
                exchange
                for exchange, was in decision.moves
                if was is None and exchange.place.before and exchange.id not in new
            ]
            if n := sum(exchange.id not in missed for exchange in late):
                self._observer.linked("late", n)
            looked_at |= {move.one.id: move.one for move in decision.moves[:MOST_MOVED]}
            stored = await self._store.links(list(looked_at))
        return {name: decision.rows[name] for name in new}


class _Decision:
    """One decision about a batch: `rows` are the exchanges as they will stand, `moves` those that change."""

    def __init__(self, batch: Mapping[str, Linked]) -> None:
        self.rows: dict[str, Linked] = dict(batch)
        self._batch = batch
        self._were: dict[str, Linked] = dict(batch)
        self._found: dict[Lookup, Sequence[Linked]] = {}

    @property
    def moves(self) -> list[Move]:
        """What has to be changed in the store."""
        changed = [(exchange, self._were[name]) for name, exchange in self.rows.items() if exchange != self._were[name]]
        return [Move(exchange, was.place.before) for exchange, was in changed]

    async def make(self, store: Store) -> None:
        """Decide about the batch, and again about those that are there and may continue one of it."""
        batch = list(self._batch.values())
        await self._look(store, [lookup for exchange in batch for lookup in (*before(exchange), *after(exchange))])
        others = {exchange.id: exchange for exchange in self._followers(batch) if exchange.id not in self._batch}
        await self._look(
            store, [lookup for exchange in others.values() for lookup in (*before(exchange), *after(exchange))]
        )
        decided = sorted((*batch, *others.values()), key=lambda exchange: (exchange.started_at, exchange.id))
        doubted: dict[str, list[Lookup]] = {}
        for exchange in decided:
            other = self._decide(exchange, []).before
            if other is not None and (lookup := doubts(exchange, self.rows[other])) is not None:
                doubted[exchange.id] = [lookup]
        await self._look(store, [lookup for some in doubted.values() for lookup in some])
        for exchange in decided:
            self._put(exchange, self._decide(exchange, doubted.get(exchange.id, [])))
        await self._follow(store, [self.rows[exchange.id] for exchange in decided])

    def _decide(self, exchange: Linked, doubted: Sequence[Lookup]) -> Place:
        return decide(exchange, {lookup: self._now(self._found[lookup]) for lookup in (*before(exchange), *doubted)})

    async def _look(self, store: Store, lookups: Iterable[Lookup]) -> None:
        wanted = [lookup for lookup in dict.fromkeys(lookups) if lookup not in self._found]
        if not wanted:
            return
        self._found |= await store.linked(wanted)
        for lookup in wanted:
            for exchange in self._found[lookup]:
                self._were.setdefault(exchange.id, exchange)
                self.rows.setdefault(exchange.id, exchange)

    def _now(self, found: Sequence[Linked]) -> list[Linked]:
        return [self.rows[exchange.id] for exchange in found]

    def _followers(self, some: Iterable[Linked]) -> list[Linked]:
        """Those that follow what one of these gave, and those that may serve its tool calls."""
        found = [exchange for other in some for lookup in after(other) for exchange in self._found.get(lookup, ())]
        for other in some:
            if other.calls and other.trace_id is not None:
                lookup = Lookup(
                    other.app, f"t:{other.trace_id}", other.started_at - TRACE_S, other.started_at + TRACE_S
                )
                found += [
                    exchange for exchange in self._found.get(lookup, ()) if exchange.started_at >= other.started_at
                ]
        return found

    def _put(self, exchange: Linked, place: Place) -> list[Linked]:
        """Put an exchange in its place; return it if that changed."""
        was = self.rows[exchange.id]
        joined = place.result in JOINED and place.before is not None
        self.rows[exchange.id] = replace(was, place=place, named=was.named or joined)
        if place.before is not None:
            other = self.rows[place.before]
            continued = other.continued or (exchange.links.within_turn and place.result != "trace")
            if not other.named or continued != other.continued:
                self.rows[other.id] = replace(other, named=True, continued=continued)
        stands, stood = ((*at[:3], at.start) for at in (place, was.place))
        return [self.rows[exchange.id]] if stands != stood else []

    async def _follow(self, store: Store, moved: Sequence[Linked]) -> None:
        """Move what continues these, where it does not stand behind them."""
        seen = {exchange.id for exchange in moved}
        while moved and len(seen) <= MOST_MOVED:
            await self._look(store, [lookup for exchange in moved for lookup in (*after(exchange), *before(exchange))])
            parents = {exchange.id for exchange in moved}
            children = [self.rows[exchange.id] for exchange in self._followers(moved)]
            following = []
            for child in children:
                if child.place.before in parents and child.id not in seen:
                    seen.add(child.id)
                    place = placed(child, self.rows[child.place.before], child.place.result)
                    following += self._put(child, place)
            moved = following


def _of_the_hop_before(sample: Sample, hop: int) -> tuple[Context, ...]:
    """Return the passages of tools with their hop, where the request shows no calls but of the response it continues.

    Such a request names that response by its id, so it counts hops from 1 whatever came before.
    """
    stored = sample.links is not None and (sample.links.follows or "").startswith("r:")
    if not stored or hop <= 1 or sample.context_source not in TOOL_SOURCES:
        return sample.contexts
    return tuple(replace(context, hop=hop - 1) for context in sample.contexts)


def _recalls(sample: Sample) -> bool:
    return sample.links is not None and sample.links.recall > 0


def _joined(sample: Sample, exchange: Linked | None) -> Sample:
    """Return a sample at its place. What is known to be a step on the way to an answer is not judged as one."""
    if exchange is None:
        return sample
    step = exchange.place.inner or exchange.continued
    conversation, cluster = exchange.place.conversation, cluster_with(exchange) if exchange.named else sample.cluster
    return changed(
        sample,
        # The names it has already stay the same objects: a sample where nothing changes is not copied.
        conversation=sample.conversation if conversation == sample.conversation else conversation,
        turn=exchange.place.turn,
        hop=exchange.place.hop,
        cluster=sample.cluster if cluster == sample.cluster else cluster,
        contexts=_of_the_hop_before(sample, exchange.place.hop),
        skip_reason=HOP if step and sample.skip_reason is None else sample.skip_reason,
        links=sample.links if exchange.place.before is not None or _recalls(sample) else None,
    )


HOPS = "hops"
"""The `context_source` of an answer whose contexts all come from earlier hops."""

WAIT_S = 3.0
"""How long an answer waits until its earlier hops are stored: another worker may have them."""

_POLL_S = 0.2
_PROMPT_FROM = 200
"""Characters from which a message of the user may be a prompt with passages."""
_COMPARED = 500
_SAID_BY_THE_APP = ("explicit", "contexts_api", "feedback")


class _Known(NamedTuple):
    """The earlier exchanges of the turn, the answers of the turns before, and whether the one before is stored."""

    turn: list[Sample]
    answers: list[Sample]
    complete: bool


class TurnGatherer:
    """Completes answers with what the earlier exchanges of their turn hold."""

    def __init__(self, store: Store, persistence: Persistence) -> None:
        self._store = store
        self._persist = persistence

    @staticmethod
    def concerns(sample: Sample) -> bool:
        """Whether `gather` looks for anything: whether a sample is an answer that lacks something of what came before.

        Others it returns as they are.
        """
        if (links := sample.links) is None or sample.skip_reason is not None:
            return False
        return links.within_turn or _lacks_history(links, sample) or _holds_prompts(sample)

    async def gather(self, sample: Sample) -> Sample | None:
        """Return an answer with the contexts and the question of its turn, and with the history that it lacks.

        Earlier prompts in a history become the questions that were found in them. Other samples are returned as they
        are; None when the worker is stopped first.
        """
        if (links := sample.links) is None or not self.concerns(sample):
            return sample
        recalls = _lacks_history(links, sample)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                known = await self._persist.attempt("turn", lambda: self._known(sample), engine_failed)
            except Unsupported:
                return sample
            if known is None:
                return None
            if known.complete or time.monotonic() >= deadline:
                break
            await asyncio.sleep(_POLL_S)
        completed = _with_calls(_with_hops(sample, known.turn), known.turn) if links.within_turn else sample
        if recalls:
            return _with_history(completed, known.answers, links.recall)
        return _with_questions(completed, known.answers)

    async def _known(self, sample: Sample) -> _Known:
        """Look up the exchanges before: a session may hold several conversations at once, so links decide."""
        stored = await self._store.conversation(sample.conversation or "")
        earlier = {
            exchange.id: exchange
            for exchange in stored
            if exchange.id != sample.id and exchange.started_at < sample.started_at
        }
        rows = {exchange.id: exchange for exchange in await self._store.links([sample.id, *earlier])}
        if (own := rows.get(sample.id)) is None:
            return _Known([], [], complete=True)
        start = own.place.start
        expected = {exchange.id for exchange in await self._served(own) if exchange.place.start == start}
        turn = [exchange for name, exchange in earlier.items() if name in rows and rows[name].place.start == start]
        chain: dict[str, Sample] = {}
        before = own.place.before
        while before is not None and before in earlier and before in rows and before not in chain:
            chain[before] = earlier[before]
            before = rows[before].place.before
        answers = [
            exchange
            for exchange in chain.values()
            if exchange.skip_reason is None and (exchange.turn or 0) < own.place.turn
        ]
        if own.place.before is None and sample.links is not None and sample.links.recall:
            # The upstream keeps the conversation: what came before in it is what the model was shown.
            answers = [
                exchange
                for exchange in reversed(earlier.values())
                if exchange.skip_reason is None and not exchange.transcript
            ]
        if _holds_prompts(sample) and own.place.before is not None:
            expected.add(own.place.before)
        return _Known(turn, answers[::-1], complete=expected <= earlier.keys() and (start in chain or start == own.id))

    async def _served(self, own: Linked) -> Sequence[Linked]:
        """The exchanges of the same trace that began before, those of sub-agents too."""
        if own.trace_id is None:
            return ()
        lookup = Lookup(own.app, f"t:{own.trace_id}", own.started_at - TRACE_S, own.started_at)
        found = (await self._store.linked([lookup])).get(lookup, ())
        return [exchange for exchange in found if exchange.id != own.id and exchange.started_at < own.started_at]


def _with_hops(sample: Sample, hops: Sequence[Sample]) -> Sample:
    """Return an answer with what its earlier hops found; what the app itself said about the answer stays."""
    asked = next((exchange.question for exchange in hops if exchange.question), None)
    if sample.context_source in _SAID_BY_THE_APP:
        return replace(sample, question=sample.question or asked)
    # A request that names the response before by its id has the user's words no more: its question is a tool's query.
    stored = sample.links is not None and (sample.links.follows or "").startswith("r:")
    question = asked or sample.question if stored else sample.question or asked
    called = {
        exchange.hop: frozenset(call.name for call in exchange.calls) for exchange in hops if exchange.hop is not None
    }
    own = _placed(sample, called)
    known = {context.text for context in own}
    new: dict[str, Context] = {}
    for hop in hops:
        new |= {
            context.text: context
            for context in _placed(hop, called)
            if context.text not in known and context.text not in new
        }
    found = any(exchange.context_source != "none" for exchange in hops)
    source = HOPS if sample.context_source == "none" and found else sample.context_source
    contexts = passages((*own, *new.values())).contexts if new else own
    return replace(sample, question=question, contexts=contexts, context_source=source)


def _with_calls(sample: Sample, hops: Sequence[Sample]) -> Sample:
    """Return an answer with the tool calls of its turn, in their order."""
    calls = [replace(call, hop=exchange.hop) for exchange in (*hops, sample) for call in exchange.calls]
    return replace(sample, calls=tuple(calls[-MAX_CALLS:]))


def _placed(exchange: Sample, called: Mapping[int, frozenset[str]]) -> tuple[Context, ...]:
    """Return an exchange's passages, each with the hop and the tool that retrieved it, as far as they are known.

    `called` are the tools that the response of each hop called. Passages in the prompt of an exchange, as a
    sub-agent's, are its own.
    """
    own_hop = None if exchange.context_source in TOOL_SOURCES else exchange.hop
    earlier = {hop: names for hop, names in called.items() if exchange.hop is None or hop < exchange.hop}
    return tuple(_at_step(context, own_hop, earlier) for context in exchange.contexts)


def _at_step(context: Context, own_hop: int | None, called: Mapping[int, frozenset[str]]) -> Context:
    hop, tool = context.hop or own_hop, context.tool
    if context.hop is not None:
        names = called.get(context.hop, frozenset())
        if tool is None:
            tool = next(iter(names)) if len(names) == 1 else None
        elif tool not in names:  # a sub-agent counts its own hops
            hop = max((number for number, some in called.items() if tool in some), default=hop)
    return context if (hop, tool) == (context.hop, context.tool) else replace(context, hop=hop, tool=tool)


def _lacks_history(links: Links, sample: Sample) -> bool:
    return links.recall > 0 and not sample.history


def _holds_prompts(sample: Sample) -> bool:
    return any(message.role == "user" and len(message.text) > _PROMPT_FROM for message in sample.history)


def _with_questions(sample: Sample, answers: Sequence[Sample]) -> Sample:
    """Return a sample whose history has questions in place of prompts, as far as the exchanges before are known.

    An app that puts passages into the user's message hands them back with the history. Which exchange a message is from
    is decided by the answer after it.
    """
    questions = {
        _beginning(exchange.response): exchange.question
        for exchange in answers
        if exchange.question and exchange.response.strip()
    }
    said = list(sample.history)
    for index, (message, reply) in enumerate(pairwise(sample.history)):
        question = (
            questions.get(_beginning(reply.text)) if (message.role, reply.role) == ("user", "assistant") else None
        )
        if question is not None and len(question) < len(message.text):
            said[index] = replace(message, text=question[:MAX_HISTORY_TEXT])
    return replace(sample, history=tuple(said))


def _beginning(text: str) -> str:
    return " ".join(text[:_COMPARED].split())


def _with_history(sample: Sample, answers: Sequence[Sample], most: int) -> Sample:
    """Return an answer with the questions and answers of the turns before."""
    said: list[Message] = []
    for exchange in answers:
        if exchange.question:
            said.append(Message(role="user", text=exchange.question[:MAX_HISTORY_TEXT]))
        said.append(Message(role="assistant", text=exchange.response[:MAX_HISTORY_TEXT]))
    return replace(sample, history=tuple(said[-most:]))

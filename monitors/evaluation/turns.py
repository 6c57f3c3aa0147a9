"""One answer of several exchanges: the last one is judged, with what all of them retrieved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from gaugeway.records import TOOL_SOURCES, Context, Links, Message, Sample
from gaugeway.settings.bounds import MAX_CALLS, MAX_HISTORY_TEXT, passages
from gaugeway.storage.conversations import TRACE_S, Linked, Lookup
from gaugeway.storage.engines.failures import Unsupported, engine_failed
from gaugeway.storage.stores import Store
from monitors.evaluation.persist import Persistence

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
        links = sample.links
        if links is None or sample.skip_reason is not None:
            return False
        return links.within_turn or _recalls(links, sample) or _holds_prompts(sample)

    async def gather(self, sample: Sample) -> Sample | None:
        """Return an answer with the contexts and the question of its turn, and with the history that it lacks.

        Earlier prompts in a history become the questions that were found in them. Other samples are returned as they
        are; None when the worker is stopped first.
        """
        links = sample.links
        if links is None or not self.concerns(sample):
            return sample
        recalls = _recalls(links, sample)
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
        own = rows.get(sample.id)
        if own is None:
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


def _recalls(links: Links, sample: Sample) -> bool:
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
    for index, (message, after) in enumerate(pairwise(sample.history)):
        question = (
            questions.get(_beginning(after.text)) if (message.role, after.role) == ("user", "assistant") else None
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

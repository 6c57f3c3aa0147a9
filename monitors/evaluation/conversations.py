"""Puts samples into their conversations: what they continue is looked for in the store, before they are evaluated."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gaugeway.records import TOOL_SOURCES, Context, Sample, changed
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
from monitors.evaluation.observer import WorkerObserver
from monitors.evaluation.persist import Persistence

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

    async def current(self, sample: Sample) -> Sample | None:
        """Return a joined sample where it stands by now; None when the worker is stopped first."""
        found = await self.current_each([sample])
        return None if found is None else found[0]

    async def current_each(self, samples: Sequence[Sample]) -> Sequence[Sample] | None:
        """Do what `current` does for several samples."""
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

"""Joins exchanges to conversations: which earlier exchange a request continues, and its place in the conversation.

Pure. The decision is a function of the exchanges that are known, whatever their order of arrival: when another one
arrives late, it is made again. A wrong join is worse than none, so that one of several that fit is taken only where
everything that tells them apart points to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from gaugeway.records import Links, Sample, same_scheme

WINDOW_S = 86_400.0
"""How long after an exchange another one may continue it."""

KEPT_S = WINDOW_S + 21_600.0
"""How long links are kept: an exchange may wait in the queue before it is joined."""

TRACE_S = 3_600.0
MOST_CANDIDATES = 50
"""Exchanges that are looked at for one decision, the latest first."""

SKEW_S = 1.0
"""How far the clocks of two gateways may differ."""

LEAST_LENGTH, SURE_LENGTH = 24, 160
"""Characters, without spaces, of a text that joins without other evidence; where some exchanges are not captured."""

_RECENT_S, _LONG_AGO_S = 600.0, 3_600.0
_UNIQUE = 10_000
"""The length that calls with random ids, and ids of responses, count as."""

Result: TypeAlias = Literal[
    "first", "session", "response_id", "tool_call", "text", "trace", "missing", "ambiguous", "weak", "late"
]
"""How an exchange was joined, or why not: the label of the counter.

"first" begins a conversation; "session": the app names it, and no earlier exchange was found; "response_id",
"tool_call", "text", "trace": by that it continues an earlier one. "missing": no earlier exchange fits, "ambiguous":
several do, "weak": one does, by a short text alone. "late" is counted when an exchange that was one of these three, or
"first", is joined after all.
"""

JOINED: frozenset[Result] = frozenset({"response_id", "tool_call", "text", "trace"})


class Place(NamedTuple):
    """Where an exchange stands: `before` is the exchange it continues, `start` the first one of its turn.

    `inner` exchanges are a sub-agent's.
    """

    conversation: str
    turn: int
    hop: int
    result: Result
    before: str | None = None
    inner: bool = False
    start: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """What is known of an exchange for joining it. `session` is the hash of its session, `cluster` as in `Sample`.

    `named` says that the scores' clusters name its conversation, `continued` that another exchange goes on with the
    same turn. `calls` counts its tool calls; `sampled` says that some exchanges of its kind are not captured.
    """

    id: str
    app: str
    started_at: float
    ended_at: float
    place: Place
    links: Links = field(default_factory=Links)
    session: str | None = None
    cluster: str | None = None
    trace_id: str | None = None
    prompt: str | None = None
    calls: int = 0
    sampled: bool = False
    named: bool = False
    continued: bool = False


class Move(NamedTuple):
    """An exchange at its new place; `expected` is the exchange that it continued when this was decided."""

    one: Linked
    expected: str | None


class Lookup(NamedTuple):
    """Exchanges of `app` under `key` that started from `since` to `until`."""

    app: str
    key: str
    since: float
    until: float


def linked(sample: Sample) -> Linked | None:
    """Return what joins a sample, standing for itself; None for a sample of an older gateway."""
    if (links := sample.links) is None:
        return None
    session, named = sample.conversation, sample.conversation is not None
    unknown: Result = "first" if links.follows is None else "missing"
    result: Result = "session" if named else unknown
    place = Place(session or sample.id, links.turn, links.hop, result, start=sample.id)
    return Linked(
        **{name: getattr(sample, name) for name in ("id", "app", "started_at", "cluster", "trace_id", "prompt")},
        ended_at=sample.started_at + max(sample.duration_s or 0.0, 0.0),
        place=place,
        links=links,
        session=session,
        calls=len(sample.calls),
        sampled=sample.rate < 1.0,
        named=named,
    )


def keys_of(exchange: Linked) -> Iterator[str]:
    """Yield the keys under which an exchange is found: what it gives, what it follows, and its trace.

    Texts that many exchanges give are found by the pair as well, and by the question.
    """
    for item in exchange.links.gives:
        yield f"g:{item}"
    if exchange.links.pair_given is not None:
        yield f"p:{exchange.links.pair_given}"
    if exchange.links.gives and exchange.links.gives[0].startswith("t:"):
        for asked in exchange.links.asked:
            yield f"a:{exchange.links.gives[0]}:{asked}"
    if exchange.links.follows is not None:
        yield f"f:{exchange.links.follows}"
    if exchange.trace_id is not None:
        yield f"t:{exchange.trace_id}"


def before(exchange: Linked) -> Iterator[Lookup]:
    """Yield the lookups of what an exchange may continue."""
    since, until = exchange.started_at - WINDOW_S, exchange.started_at + SKEW_S
    if exchange.links.follows is not None:
        yield Lookup(exchange.app, f"g:{exchange.links.follows}", since, until)
    if exchange.links.pair_before is not None:
        yield Lookup(exchange.app, f"p:{exchange.links.pair_before}", since, until)
    if (key := _asked_key(exchange)) is not None:
        yield Lookup(exchange.app, key, since, until)
    if exchange.trace_id is not None:
        yield Lookup(
            exchange.app, f"t:{exchange.trace_id}", exchange.started_at - TRACE_S, exchange.started_at + TRACE_S
        )


def _asked_key(exchange: Linked) -> str | None:
    """The key of exchanges that gave the text that one follows to the question that it shows before."""
    follows, asked = exchange.links.follows, exchange.links.asked_before
    return None if follows is None or asked is None or follows[0] != "t" else f"a:{follows}:{asked}"


def doubts(exchange: Linked, other: Linked) -> Lookup | None:
    """Return the lookup of what may show that one does not continue the other, although its text is the other's.

    It finds requests that showed the text before the other exchange had given it.
    """
    if (follows := exchange.links.follows) is None or follows[0] != "t":
        return None
    return Lookup(exchange.app, f"f:{follows}", exchange.started_at - WINDOW_S, other.ended_at - SKEW_S)


def after(exchange: Linked) -> Iterator[Lookup]:
    """Yield the lookups of what may continue an exchange."""
    since, until = exchange.started_at - SKEW_S, exchange.started_at + WINDOW_S
    for item in exchange.links.gives:
        yield Lookup(exchange.app, f"f:{item}", since, until)


def decide(exchange: Linked, found: Mapping[Lookup, Sequence[Linked]]) -> Place:
    """Return the place of an exchange; `found` holds what each of its lookups (`before`) found.

    A place behind another exchange is not final until `doubts` were looked up and it was decided again.
    """
    other, result = _continued(exchange, found)
    if other is None and (outer := _outer(exchange, found)) is not None:
        other, result = outer, "trace"
    return placed(exchange, other, result)


def placed(exchange: Linked, found: Linked | None, result: Result) -> Place:
    """Return the place of an exchange that continues `found`."""
    links = exchange.links
    if found is None:
        unjoined: Result = "session" if exchange.session and result in ("first", "missing") else result
        return Place(exchange.session or exchange.id, links.turn, links.hop, unjoined, start=exchange.id)
    conversation = exchange.session or found.place.conversation
    inner = result == "trace" or found.place.inner
    if result == "trace" or links.within_turn:
        return Place(conversation, found.place.turn, found.place.hop + 1, result, found.id, inner, found.place.start)
    return Place(conversation, found.place.turn + 1, 1, result, found.id, inner, exchange.id)


def cluster_with(exchange: Linked) -> str | None:
    """Return the cluster of an exchange whose conversation has several: the conversation comes first."""
    if exchange.session:
        return exchange.cluster
    return f"s:{exchange.place.conversation} {exchange.cluster or ''}".rstrip()


def _continued(exchange: Linked, found: Mapping[Lookup, Sequence[Linked]]) -> tuple[Linked | None, Result]:
    if (follows := exchange.links.follows) is None:
        return None, "first"
    several = {other.id: other for others in found.values() for other in others}
    fitting = [other for other in several.values() if follows in other.links.gives and _may_continue(exchange, other)]
    evidence = {other.id: _evidence(exchange, other) for other in fitting}
    uncontested = {"pair", "asked", "session", "trace"}
    fitting = [other for other in fitting if not _contradicts(exchange, other) or evidence[other.id] & uncontested]
    if not fitting:
        return None, "missing"
    if (chosen := _one_of(exchange, _best(fitting, evidence))) is None:
        return None, "ambiguous"
    crowded = _crowded(found, f"g:{follows}")
    if "asked" in evidence[chosen.id] and (key := _asked_key(exchange)) is not None:
        crowded = crowded and _crowded(found, key)
    said = evidence[chosen.id]
    if _is_fixed(exchange, chosen, found, said) or not _suffices(exchange, chosen, said, crowded=crowded):
        return None, "weak"
    return chosen, "response_id" if follows[0] == "r" else "tool_call" if follows[0] == "c" else "text"


def _is_fixed(
    exchange: Linked, other: Linked, found: Mapping[Lookup, Sequence[Linked]], evidence: frozenset[str]
) -> bool:
    """Whether the app itself writes the text (a greeting, an example).

    Then requests showed it, with the same words before, when the other exchange had not given it yet; those that
    continue a third exchange do not count.
    """
    if (lookup := doubts(exchange, other)) is None or lookup not in found or evidence & {"session", "trace"}:
        return False
    shown = [
        shows
        for shows in found[lookup]
        if shows.id != exchange.id
        and shows.place.before is None
        and ("pair" not in evidence or shows.links.pair_before == exchange.links.pair_before)
        and ("asked" not in evidence or shows.links.asked_before == exchange.links.asked_before)
    ]
    return bool(shown)


def _crowded(found: Mapping[Lookup, Sequence[Linked]], key: str) -> bool:
    """Whether there are more exchanges under a key than were looked at."""
    return any(len(others) > MOST_CANDIDATES for lookup, others in found.items() if lookup.key == key)


def _may_continue(exchange: Linked, other: Linked) -> bool:
    """Whether the other exchange was over before, and nothing says that it is another conversation's."""
    if other.id == exchange.id or not other.ended_at - SKEW_S <= exchange.started_at <= other.started_at + WINDOW_S:
        return False
    if exchange.session and other.session and exchange.session != other.session:
        return False
    mine, theirs = _names(exchange.cluster), _names(other.cluster)
    return all(mine[kind] == theirs[kind] for kind in ("u", "k") if kind in mine and kind in theirs)


def _names(cluster: str | None) -> dict[str, str]:
    """The names of a cluster by kind."""
    return {kind: name for kind, _, name in (pair.partition(":") for pair in (cluster or "").split())}


def _evidence(exchange: Linked, other: Linked) -> frozenset[str]:
    """What besides the item itself says that one continues the other."""
    mine, theirs = _names(exchange.cluster), _names(other.cluster)
    found = {
        "session": bool(exchange.session) and exchange.session == other.session,
        "trace": bool(exchange.trace_id) and exchange.trace_id == other.trace_id,
        "pair": exchange.links.pair_before is not None and exchange.links.pair_before == other.links.pair_given,
        "asked": exchange.links.asked_before is not None and exchange.links.asked_before in other.links.asked,
        "user": "u" in mine and mine["u"] == theirs.get("u"),
    }
    return frozenset(name for name, holds in found.items() if holds)


def _contradicts(exchange: Linked, other: Linked) -> bool:
    """Whether the item before is another one."""
    return exchange.links.pair_before is not None and exchange.links.pair_before != other.links.pair_given


def _best(fitting: Sequence[Linked], evidence: Mapping[str, frozenset[str]]) -> list[Linked]:
    """Return those that have every kind of evidence that any has."""
    all_kinds = frozenset[str]().union(*(evidence[other.id] for other in fitting))
    return [other for other in fitting if evidence[other.id] == all_kinds]


def _one_of(exchange: Linked, best: Sequence[Linked]) -> Linked | None:
    """Return the one that is meant: they are one conversation's, or one request's, or only one is recent."""
    if not (ordered := sorted(best, key=lambda other: (other.started_at, other.id))):
        return None
    last = ordered[-1]
    if len(ordered) == 1 or len({other.place.conversation for other in ordered}) == 1:
        return last
    resent = any(other.links.again for other in ordered)
    if resent and last.links.same is not None and len({other.links.same for other in ordered}) == 1:
        return ordered[0]
    ages = [exchange.started_at - other.ended_at for other in ordered]
    return last if ages[-1] <= _RECENT_S and all(age >= _LONG_AGO_S for age in ages[:-1]) else None


def _suffices(exchange: Linked, other: Linked, evidence: frozenset[str], *, crowded: bool) -> bool:
    """Whether what is known is enough, now that nothing else fits as well."""
    length, sampled = exchange.links.length, exchange.sampled or other.sampled
    if evidence & {"session", "trace"} or length >= _UNIQUE:
        return True
    if sampled and length < SURE_LENGTH:  # another exchange may have given the same, and not be captured
        return "asked" in evidence and len(evidence) > 1
    if "pair" in evidence:
        return True
    if crowded:
        return evidence >= {"asked", "user"}
    if "asked" in evidence or length >= SURE_LENGTH:
        return bool(evidence) or not sampled or exchange.links.asked_before is None
    return exchange.links.asked_before is not None and (bool(evidence) or length >= LEAST_LENGTH)


def _outer(exchange: Linked, found: Mapping[Lookup, Sequence[Linked]]) -> Linked | None:
    """Return the exchange whose tool call a sub-agent's exchange serves: one of the same trace that waits for tools.

    It is asked what a call says. Or it has another prompt, which another conversation with the same agent has not, and
    the trace holds one conversation only.
    """
    key = f"t:{exchange.trace_id}"
    if exchange.trace_id is None or exchange.links.within_turn or _crowded(found, key):
        return None
    trace = {other.id: other for lookup, others in found.items() if lookup.key == key for other in others}
    served = {
        other.place.before
        for other in trace.values()
        if not other.place.inner and other.started_at < exchange.started_at
    }
    waiting = [
        other
        for other in trace.values()
        if other.calls
        and other.id not in served
        and other.started_at < exchange.started_at
        and _may_continue(exchange, other)
    ]
    asked = [other for other in waiting if set(exchange.links.asked) & set(other.links.arguments)]
    alone = len({other.place.conversation for other in trace.values() if other.started_at < exchange.started_at}) == 1
    unlike = [
        other
        for other in waiting
        if alone and exchange.prompt and other.prompt and exchange.prompt != other.prompt
        if same_scheme((exchange.prompt, other.prompt))
    ]
    outer = asked or unlike
    if len({other.place.conversation for other in outer}) != 1:
        return None
    return max(outer, key=lambda other: (other.started_at, other.id))

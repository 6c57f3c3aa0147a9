"""What is stored in every engine, and what is read of it through the ports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from gaugeway.records import (
    Context,
    Evaluation,
    Failed,
    Links,
    Message,
    Sample,
    Score,
    Skipped,
    Supplement,
    ToolCall,
    Usage,
)
from gaugeway.storage import conversations, queues, stores
from gaugeway.storage.conversations import Lookup, Move
from gaugeway.storage.keys import Keys, Quota
from gaugeway.storage.stores import Query
from gaugeway.storage.templates import StoredTemplate, Templates

NOON = 1_700_049_600.0
HOUR_S, DAY_S = 3600.0, 86_400.0
EVER = Query(since=NOON - DAY_S, until=NOON + 2 * DAY_S)
WHOLE_HOUR = Query(since=NOON, until=NOON + HOUR_S)
DAY = 19_676
"""The UTC day of `NOON`, counted from 1970."""
FOREVER_S, AT_ONCE_S = 1e9, 0.001
QUERIES = {
    "all": EVER,
    "newest": Query(since=EVER.since, until=EVER.until, order="newest", limit=3),
    "lowest": Query(since=EVER.since, until=EVER.until, order="lowest", limit=3),
    "tagged": Query(since=EVER.since, until=EVER.until, tag=("tenant", "a")),
    "text": Query(since=EVER.since, until=EVER.until, text="REFUND"),
    "source": Query(since=EVER.since, until=EVER.until, source="handbook"),
    "session": Query(since=EVER.since, until=EVER.until, session="visit"),
}


def samples() -> list[Sample]:
    """Exchanges of two days: a turn of a conversation with its tool, a bare one, and a whole conversation."""
    passage = Context(text="Refunds take 14 days.", id="p1", score=0.5, source="handbook", hop=1, tool="search")
    first = Sample(
        id="first",
        started_at=NOON + 1.0,
        app="shop",
        model="m1",
        question="How long does a refund take?",
        contexts=(passage,),
        context_source="tools",
        response="14 days. \N{SNOWMAN} \0",
        tags={"tenant": "a"},
        session="visit",
        trace_id="trace",
        context_key="key",
        rate=0.5,
        usage=Usage(input_tokens=10, output_tokens=3),
        prompt="2-p1",
        cluster="s:visit",
        calls=(ToolCall(name="search", arguments="{}", hop=1),),
        links=Links(gives=("t:14 days",), length=200, asked=("q",)),
    )
    second = Sample(
        id="second",
        started_at=NOON + 61.0,
        app="shop",
        model="m2",
        question="And abroad?",
        response="30 days.",
        conversation="first",
        turn=2,
        hop=1,
        links=Links(follows="t:14 days", length=200, asked_before="q"),
    )
    bare = Sample(id="bare", started_at=NOON + DAY_S, response="Yes.", skip_reason="error")
    whole = Sample(
        id="conversation-1",
        started_at=NOON + 120.0,
        app="shop",
        transcript=(Message(role="user", text="Hello?"), Message(role="assistant", text="Hi.")),
    )
    return [first, second, bare, whole]


def evaluations(sample: Sample) -> list[Evaluation]:
    """Outcomes of every kind, signals with and without a column of their own among them."""
    made = {
        "first": [
            ("faithfulness", Score(0.25, "why", ({"claim": "14 days", "n": 1},))),
            ("answer_relevance", Failed("timeout", "after 30 s")),
            ("slow", Score(1.0)),
            ("retriever_score", Score(0.5)),
        ],
        "second": [("faithfulness", Score(0.75)), ("slow", Score(0.0)), ("truncated", Score(1.0, "cut"))],
        "bare": [("faithfulness", Skipped("error"))],
        "conversation-1": [("goal_reached", Score(1.0))],
    }
    weight = 0.5 if sample.id == "first" else None
    return [
        Evaluation(
            sample_id=sample.id,
            metric=metric,
            version="v1",
            outcome=outcome,
            judge="judge" if metric == "faithfulness" else None,
            seconds=0.0 if isinstance(outcome, Score) and not outcome.reason else 0.5,
            rate=sample.rate,
            weight=weight,
        )
        for metric, outcome in made[sample.id]
    ]


def supplements() -> list[Supplement]:
    """What is said by exchange, key and trace."""
    given: list[dict[str, Any]] = [
        {"source": "feedback", "exchange_id": "first", "rating": 1.0, "by": "Ann"},
        {"source": "feedback", "trace_id": "trace", "label": "faithfulness:fail", "app": "shop"},
        {"source": "feedback", "exchange_id": "second", "reference": "30 days", "comment": "too short"},
        {"source": "contexts", "key": "key", "contexts": (Context(text="Refunds take 14 days."),)},
    ]
    return [
        Supplement(id=f"said-{number}", received_at=NOON + 200.0 + number, **one) for number, one in enumerate(given)
    ]


def linked() -> list[conversations.Linked]:
    """The links of the two exchanges of a conversation."""
    return [found for sample in samples() if (found := conversations.linked(sample)) is not None]


async def fill_store(url: str) -> None:
    """Store everything, and have sums of a past hour kept."""
    async with contextlib.aclosing(stores.from_url(url)) as store:
        for sample in samples():
            await store.add(sample, evaluations(sample))
        await store.supplement(supplements())
        await store.save({"detectors": b"\0state", "alerts": b"{}"})
        first, second = linked()
        await store.link([first, second])
        place = second.place._replace(conversation="first", before=first.id, result="text")
        await store.place([Move(replace(second, place=place, named=True), None)])
        await store.summary(WHOLE_HOUR)
        await store.scored(WHOLE_HOUR)
        await store.spread(WHOLE_HOUR, "model")
        await store.outcomes(WHOLE_HOUR)


async def read_store(url: str) -> dict[str, Any]:
    """Everything that the ports return of what was stored."""
    ids = [sample.id for sample in samples()]
    lookup = Lookup("shop", "g:t:14 days", NOON, NOON + HOUR_S)
    async with contextlib.aclosing(stores.from_url(url)) as store:
        return {
            "samples": [await store.sample(sample_id) for sample_id in ids],
            "conversation": await store.conversation("first"),
            "addressed": await store.addressed("trace_id", "trace", EVER.since, EVER.until),
            "questions": await store.questions(ids),
            "supplements": [await store.supplements_of(sample) for sample in samples()],
            "series": {name: await store.series(query) for name, query in QUERIES.items()},
            "summary": {by: _in_order(await store.summary(EVER, by)) for by in ("", "model", "tag:tenant")},
            "kept summary": _in_order(await store.summary(WHOLE_HOUR)),
            "scored": _in_order(await store.scored(EVER)),
            "spread": [_in_order((await store.spread(WHOLE_HOUR, by)).parts) for by in ("", "model")],
            "outcomes": _in_order(await store.outcomes(EVER)),
            "paired": _in_order(await store.paired(EVER, "retriever_score")),
            "ratings": await store.ratings(EVER),
            "links": await store.links(ids),
            "linked": [list((await store.linked([lookup])).values())],
            "states": {name: value.hex() for name, value in (await store.load()).items()},
            "holds": await store.holds(ids),
        }


def _in_order(groups: Iterable[Any]) -> list[Any]:
    """Groups, which an engine returns in any order."""
    return sorted(groups, key=repr)


async def fill_queue(url: str) -> None:
    """A sample and a supplement that wait, some that are held, one whose lease is over, and a dead letter."""
    bare, held, over, dead = (Sample(id=name, started_at=NOON + at, response="Yes.") for at, name in enumerate("abcd"))
    first, second, *_ = supplements()
    async with contextlib.aclosing(queues.from_url(url, FOREVER_S, 3)) as queue:
        await queue.put([held])
        await queue.lease(1)
        await queue.supply([first])
        await queue.take(1)
    async with contextlib.aclosing(queues.from_url(url, AT_ONCE_S, 3)) as queue:
        await queue.put([over])
        await queue.lease(1)
        await queue.put([bare, samples()[0], dead])
        await queue.set_aside("d", "refused")
        await queue.supply([second])


async def read_queue(url: str) -> dict[str, Any]:
    """What the queue counts and hands out."""
    async with contextlib.aclosing(queues.from_url(url, FOREVER_S, 3)) as queue:
        depth = await queue.depth()
        leases = await queue.lease(10)
        return {
            "depth": [depth.ready, depth.leased, depth.dead, depth.oldest_started_at],
            "leases": [[lease.attempt, lease.sample] for lease in leases],
            "supplements": await queue.take(10),
        }


async def fill_keys(keys: Keys) -> str:
    """A key with limits, a revoked one, and what was spent; return the secret of the first."""
    async with contextlib.aclosing(keys):
        key, secret = await keys.create(
            app="shop", now=NOON, models=("m*", "n"), expires_at=NOON + DAY_S, quota=Quota(requests_per_min=2.5)
        )
        other, _ = await keys.create(app="other", now=NOON + 1.0, quota=Quota(usd_per_day=1.0))
        await keys.revoke(other.id, NOON + 2.0)
        await keys.spend({(DAY, f"key:{key.id}"): 0.25, (DAY, "app:shop"): 1.5}, DAY)
    return secret


async def read_keys(keys: Keys) -> dict[str, Any]:
    """All keys, and the spending of the day."""
    async with contextlib.aclosing(keys):
        spent = await keys.spend({}, DAY)
        return {"keys": await keys.keys(), "spent": {f"{day} {name}": usd for (day, name), usd in spent.items()}}


async def fill_templates(templates: Templates) -> None:
    """A learned template and a confirmed one."""
    async with contextlib.aclosing(templates):
        for version in ("v1", "v2"):
            await templates.put_template(
                StoredTemplate(
                    app="shop",
                    version=version,
                    kind="chat",
                    literals=("Context: ", "Question: "),
                    slots=("passages", "question"),
                    split={"how": "lines"},
                    seen=3,
                    learned_at=NOON,
                )
            )
        await templates.set_template_state("shop", "v2", "confirmed")


async def read_templates(templates: Templates) -> dict[str, Any]:
    """All templates."""
    async with contextlib.aclosing(templates):
        return {"templates": await templates.templates()}


def as_json(found: dict[str, Any]) -> dict[str, Any]:
    """What was read, as it stands in the file of what is expected."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return plain

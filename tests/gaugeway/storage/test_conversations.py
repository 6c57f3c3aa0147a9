"""Which earlier exchange a request continues: the evidence that is asked for, and what is left unjoined."""

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.conversations import run, scripted
from gaugeway.records import Links, Sample
from gaugeway.storage import conversations
from gaugeway.storage.conversations import MOST_CANDIDATES, decide, linked
from gaugeway.storage.engines.sqlite.store import SQLiteStore

LONG, SHORT = 400, 11
DAY = 86_400.0


def exchange(name, at, follows=None, gives=("t:x",), *, cluster=None, rate=1.0, session=None, trace=None, **links):
    sample = Sample(
        id=name,
        started_at=at,
        duration_s=1.0,
        rate=rate,
        cluster=cluster,
        conversation=session,
        trace_id=trace,
        links=Links(follows=follows, gives=gives, **links),
    )
    return linked(sample)


def decision(one, *others):
    """The exchange that one is joined to, or why it is not; every lookup finds what a store would find."""
    found = {lookup: looked_up(lookup, others) for lookup in conversations.before(one)}
    chosen = {other.id: other for other in others}.get(decide(one, found).before)
    if chosen is not None and (lookup := conversations.doubts(one, chosen)) is not None:
        found[lookup] = looked_up(lookup, others)
    place = decide(one, found)
    return place.before or place.result


def looked_up(lookup, others):
    fitting = [
        other
        for other in others
        if lookup.key in conversations.keys_of(other) and lookup.since <= other.started_at <= lookup.until
    ]
    return sorted(fitting, key=lambda other: -other.started_at)[: MOST_CANDIDATES + 1]


def after(at=100.0, length=SHORT, **more):
    return exchange("y", at, "t:x", ("t:y",), length=length, turn=2, **more)


def test_a_text_of_its_own_joins_by_itself():
    one = after(length=30, asked_before="q:1")
    assert decision(one, exchange("a", 0.0)) == "a"
    assert decision(one, exchange("a", 0.0, gives=("t:z",))) == "missing"
    assert decision(after(length=LONG), exchange("a", 0.0)) == "a"


def test_a_short_text_needs_more():
    assert decision(after(), exchange("a", 0.0)) == "weak"
    assert decision(after(asked_before="q:1"), exchange("a", 0.0, asked=("q:1",))) == "a"
    assert decision(after(asked_before="q:1"), exchange("a", 0.0, asked=("q:2",))) == "weak"
    assert decision(after(asked_before="q:1", cluster="u:1"), exchange("a", 0.0, cluster="u:1")) == "a"
    assert decision(after(cluster="u:1"), exchange("a", 0.0, cluster="u:1")) == "weak"
    assert decision(after(pair_before="p"), exchange("a", 0.0, pair_given="p")) == "a"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"asked_before": "q:1"}, {"asked": ("q:1",)}),
        ({"pair_before": "p"}, {"pair_given": "p"}),
        ({"cluster": "u:1"}, {"cluster": "u:1"}),
        ({"session": "s"}, {"session": "s"}),
        ({"trace": "t"}, {"trace": "t"}),
    ],
)
def test_evidence_tells_equal_texts_apart(mine, theirs):
    twins = exchange("a", 0.0), exchange("b", 10.0)
    assert decision(after(length=LONG), *twins) == "ambiguous"
    other = exchange("c", 20.0, **theirs)
    assert decision(after(length=LONG, **mine), *twins, other) == "c"
    last = exchange("d", 30.0, **theirs)  # one session is one conversation, whichever is meant
    assert decision(after(length=LONG, **mine), *twins, other, last) == ("d" if "session" in mine else "ambiguous")


def test_a_text_that_the_app_writes_itself_joins_nothing():
    shown = exchange("s", -50.0, "t:x", ("t:s",), length=LONG)
    for user in (None, "u:1"):
        one = after(length=LONG, asked_before="q:1", cluster=user)
        giver = exchange("a", 0.0, asked=("q:2",), cluster=user)
        assert decision(one, giver, shown) == "weak"
        assert decision(one, giver, replace(shown, started_at=50.0)) == "a"
        assert decision(one, replace(giver, links=Links(gives=("t:x",), asked=("q:1",))), shown) == "a"
    pair = {"asked_before": "q:1", "pair_before": "p"}
    giver = exchange("a", 0.0, "t:w", pair_given="p")
    assert decision(after(length=LONG, **pair), giver, exchange("s", -50.0, "t:x", ("t:s",), **pair)) == "weak"
    assert decision(after(length=LONG, **pair), giver, exchange("s", -50.0, "t:x", ("t:s",))) == "a"


def test_evidence_that_points_to_two_is_ambiguous():
    one = after(length=LONG, asked_before="q:1", cluster="u:1")
    assert decision(one, exchange("a", 0.0, asked=("q:1",)), exchange("b", 1.0, cluster="u:1")) == "ambiguous"


@pytest.mark.parametrize("kind", ["u", "k"])
def test_two_users_or_keys_are_never_joined(kind):
    one = after(length=LONG, asked_before="q:1", cluster=f"{kind}:1")
    assert decision(one, exchange("a", 0.0, asked=("q:1",), cluster=f"{kind}:2")) == "missing"
    assert decision(one, exchange("a", 0.0, asked=("q:1",))) == "a"


def test_two_sessions_are_never_joined():
    assert decision(after(length=LONG, session="s"), exchange("a", 0.0, session="t")) == "session"
    assert decision(after(length=LONG, session="s"), exchange("a", 0.0, session="s")) == "a"


def test_another_text_before_is_another_conversation_unless_the_question_is_the_same():
    one = after(length=LONG, pair_before="p", asked_before="q:1")
    assert decision(one, exchange("a", 0.0, pair_given="r")) == "missing"
    assert decision(one, exchange("a", 0.0, pair_given="r", asked=("q:1",))) == "a"


def test_only_what_was_over_within_a_day_is_continued():
    assert decision(after(DAY + 50.0, length=LONG), exchange("a", 0.0)) == "missing"
    assert decision(after(0.5, length=LONG), exchange("a", 10.0)) == "missing"
    assert decision(after(5.0, length=LONG), replace(exchange("a", 4.0), ended_at=8.0)) == "missing"


def test_the_one_that_is_recent_is_meant_when_the_others_are_long_ago():
    asked = {"asked": ("q:1",)}
    old, new = exchange("a", 0.0, **asked), exchange("b", 9_000.0, **asked)
    assert decision(after(9_100.0, asked_before="q:1"), old, new) == "b"
    assert decision(after(12_000.0, asked_before="q:1"), old, new) == "ambiguous"


def test_a_request_sent_again_is_one():
    asked = {"asked": ("q:1",), "same": "d:1"}
    one, other = exchange("a", 0.0, **asked), exchange("b", 5.0, again=True, **asked)
    assert decision(after(asked_before="q:1"), one, other) == "a"
    assert decision(after(asked_before="q:1"), one, exchange("b", 5.0, **asked)) == "ambiguous"


def test_where_exchanges_are_sampled_a_short_text_needs_two_kinds_of_evidence():
    asked = {"asked": ("q:1",)}
    one = after(rate=0.5, asked_before="q:1", cluster="u:1")
    assert decision(one, exchange("a", 0.0, rate=0.5, **asked)) == "weak"
    assert decision(one, exchange("a", 0.0, rate=0.5, cluster="u:1", **asked)) == "a"
    assert decision(after(rate=0.5, length=LONG, asked_before="q:1"), exchange("a", 0.0, **asked)) == "a"
    assert decision(after(rate=0.5, length=LONG, asked_before="q:1"), exchange("a", 0.0)) == "weak"


def test_a_text_that_many_give_is_told_by_question_or_pair():
    crowd = [exchange(f"c{n}", float(n), asked=(f"q:{n}",)) for n in range(200)]
    assert decision(after(1_000.0, asked_before="q:7"), *crowd) == "c7"
    assert decision(after(1_000.0, length=LONG), *crowd) in ("ambiguous", "weak")
    pairs = [exchange(f"c{n}", float(n), "t:p", pair_given=f"p:{n}") for n in range(200)]
    assert decision(after(1_000.0, pair_before="p:7"), *pairs) == "c7"


def test_tool_calls_and_ids_of_responses_need_nothing_else():
    for kind, result in (("c", "tool_call"), ("r", "response_id")):
        one = exchange("y", 100.0, f"{kind}:1", ("t:y",), length=10_000, rate=0.1)
        found = {next(conversations.before(one)): [exchange("a", 0.0, gives=(f"{kind}:1",))]}
        assert (decide(one, found).before, decide(one, found).result) == ("a", result)


def sub_agent(prompt="sub", **more):
    return replace(exchange("b", 10.0, None, ("t:b",), trace="t", **more), prompt=prompt)


def caller(name="a", at=0.0, **more):
    return replace(exchange(name, at, None, (f"c:{name}",), trace="t", **more), prompt="main", calls=1)


def test_a_sub_agent_serves_a_call_of_its_trace():
    assert decision(sub_agent(), caller()) == "a"
    assert decision(sub_agent("main"), caller()) == "first"
    assert decision(sub_agent("main", asked=("q:1",)), caller(arguments=("q:1",))) == "a"
    assert decision(sub_agent(), replace(caller(), calls=0)) == "first"
    assert decision(replace(sub_agent(), trace_id="u"), caller()) == "first"


def test_in_a_trace_of_several_conversations_only_the_arguments_tell_a_sub_agent():
    others = caller(arguments=("q:1",)), caller("c", 5.0)
    assert decision(sub_agent(), *others) == "first"
    assert decision(sub_agent(asked=("q:1",)), *others) == "a"


def test_a_call_that_was_served_waits_for_nobody():
    served = exchange("s", 5.0, "c:a", ("t:s",), length=10_000, trace="t", within_turn=True)
    served = replace(served, place=conversations.placed(served, caller(), "tool_call"))
    assert decision(sub_agent(), caller(), served) == "first"


@pytest.mark.full
@pytest.mark.parametrize(
    ("canned", "users", "rate", "least"), [(0.1, 0.5, 1.0, 0.99), (0.4, 0.0, 1.0, 0.95), (0.3, 0.2, 0.5, 0.4)]
)
async def test_scripted_conversations_of_many_kinds_are_joined_and_never_wrongly(tmp_path, canned, users, rate, least):
    calls = list(scripted.conversations(90, 7, canned=canned, users=users))
    samples, _ = run.samples_of(calls, rate=rate)
    store = SQLiteStore(tmp_path / "store.db")
    try:
        await run.join(samples, [store], 7)
        due, right, _, wrong = await run.check(calls, samples, store)
    finally:
        await store.aclose()
    assert wrong == Counter()
    assert right.total() >= least * due.total() > 0

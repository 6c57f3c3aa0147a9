"""Which supplement concerns which sample, and what becomes of the sample."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.records import CaptureInfo, Context, Links, PromptPart, Sample, Supplement, ToolCall
from gaugeway.settings.bounds import MAX_BYTES, MAX_CALLS, MAX_PASSAGES, bounded, shed, size
from gaugeway.storage.joining import Address, WaitingRoom, address_of, addresses_of, complete, completes, expected, join


def context(text, **fields):
    return Context(text=text, **fields)


def sample(**fields):
    return Sample(**{"id": "e1", "started_at": 1.0, "response": "Yes.", **fields})


def said(source, *texts, at=1.0, **fields):
    contexts = None if texts == (None,) else tuple(context(text) for text in texts)
    return Supplement(
        **{"id": f"{source}{at}", "received_at": at, "source": source, "trace_id": "t", "contexts": contexts, **fields}
    )


def texts(joined):
    return [one.text for one in joined.contexts]


FOUND = {"contexts": (context("in the text"),), "context_source": "templates"}


@pytest.mark.parametrize(
    ("there", "supplements", "expected_texts", "source"),
    [
        ({}, [said("contexts", "a")], ["a"], "contexts_api"),
        ({}, [said("feedback", "a")], ["a"], "feedback"),
        ({}, [said("spans", "a")], ["a"], "spans"),
        ({}, [said("spans", "s"), said("feedback", "f"), said("contexts", "c")], ["c"], "contexts_api"),
        ({}, [said("spans", "s"), said("feedback", "f")], ["f"], "feedback"),
        (FOUND, [said("contexts", "c"), said("spans", "s")], ["c"], "contexts_api"),
        (FOUND, [said("feedback", "f")], ["f"], "feedback"),
        (FOUND, [said("spans", "s")], ["in the text"], "templates"),
        ({"context_source": "tools"}, [said("spans", "s")], [], "tools"),
        ({**FOUND, "context_source": "explicit"}, [said("contexts", "c")], ["in the text"], "explicit"),
        ({"context_source": "explicit"}, [said("contexts", "c"), said("spans", "s")], [], "explicit"),
        (FOUND, [said("contexts")], [], "contexts_api"),
        (FOUND, [said("contexts", None)], ["in the text"], "templates"),
        ({}, [said("spans")], [], "spans"),
        ({}, [said("another channel", "a")], [], "none"),
        ({}, [], [], "none"),
    ],
)
def test_what_was_said_explicitly_beats_what_was_observed_and_both_what_was_guessed(
    there, supplements, expected_texts, source
):
    for order in itertools.permutations(supplements):
        joined = join(sample(**there), order)
        assert (texts(joined), joined.context_source) == (expected_texts, source)


def test_several_hops_are_kept_in_the_order_in_which_they_began_without_what_was_found_twice():
    hops = [
        said("spans", at=2.0, contexts=(context("b", id="2"), context("a", id="1"), context("c"))),
        said("spans", at=1.0, contexts=(context("a", id="1", score=0.5), context("b", id="1"), context("d"))),
        said("spans", at=3.0, contexts=(context("a"), context("d", id="4"), context("e"), context("e"))),
    ]
    for order in itertools.permutations(hops):
        joined = join(sample(trace_id="t"), order)
        assert [(one.text, one.id) for one in joined.contexts] == [
            ("a", "1"),
            ("b", "1"),
            ("d", "4"),
            ("b", "2"),
            ("c", None),
            ("e", None),
        ]
        assert joined.contexts[0].score == 0.5


def test_question_and_reference_fill_gaps_and_the_first_to_come_stays():
    supplements = [
        said("feedback", None, at=3.0, reference="third"),
        said("contexts", None, at=2.0, reference="second", question="asked"),
        said("spans", None, at=1.0, question="searched for"),
    ]
    for order in itertools.permutations(supplements):
        joined = join(sample(), order)
        assert (joined.question, joined.reference) == ("searched for", "second")
        assert join(sample(question="q", reference="r"), order) == sample(question="q", reference="r")


def test_a_question_that_comes_with_the_contexts_of_the_app_beats_the_one_read_out_of_the_text():
    supplements = [said("contexts", "c", question="standalone"), said("spans", "s", question="searched for")]
    assert join(sample(question="and then?"), supplements).question == "standalone"
    assert join(sample(question="and then?"), supplements[1:]).question == "and then?"
    explicit = sample(question="mine", context_source="explicit")
    assert join(explicit, supplements).question == "mine"


def test_what_was_judged_is_completed_but_never_changed():
    supplements = [said("contexts", "c", question="standalone", reference="r")]
    bare = complete(sample(question="q"), supplements)
    assert (texts(bare), bare.question, bare.reference) == (["c"], "q", "r")
    judged = sample(**FOUND)
    kept = complete(judged, supplements)
    assert (kept.contexts, kept.context_source) == (judged.contexts, "templates")
    assert (kept.question, kept.reference) == ("standalone", "r")
    assert complete(sample(question="q", **FOUND), [said("contexts", "c")]) == sample(question="q", **FOUND)


def test_the_retrieval_took_what_its_spans_cover_and_overlaps_count_once():
    spans = [
        said("spans", "a", at=10.0, retrieval_s=0.5),
        said("spans", "b", at=10.25, retrieval_s=0.5),
        said("spans", "c", at=20.0, retrieval_s=0.25),
        said("contexts", "d", at=1.0),
    ]
    assert join(sample(), spans).retrieval_s == pytest.approx(1.0)
    assert join(sample(), spans[3:]).retrieval_s is None
    judged = join(sample(), spans[:1])
    assert complete(judged, spans).retrieval_s == 0.5
    assert completes(complete(sample(**FOUND), spans), sample(**FOUND))


channels = st.sampled_from(["contexts", "feedback", "spans"])
words = st.sampled_from(["a", "b", "c"])
supplements = st.builds(
    Supplement,
    id=st.uuids().map(str),
    received_at=st.floats(0, 10),
    source=channels,
    trace_id=st.just("t"),
    question=st.none() | words,
    reference=st.none() | words,
    contexts=st.none() | st.lists(st.builds(Context, text=words, id=st.none() | words), max_size=3).map(tuple),
)
samples = st.builds(
    Sample,
    id=st.just("e1"),
    started_at=st.just(1.0),
    question=st.none() | words,
    reference=st.none() | words,
    contexts=st.lists(st.builds(Context, text=words), max_size=2).map(tuple),
    context_source=st.sampled_from(["none", "explicit", "tools", "contexts_api", "feedback", "spans"]),
)


@given(samples, st.lists(supplements, max_size=4), st.randoms())
def test_a_completed_sample_completes_the_one_there_was_whatever_was_said_in_whatever_order(there, some, random):
    completed = complete(there, some)
    assert completes(completed, there)
    shuffled = list(some)
    random.shuffle(shuffled)
    assert join(there, shuffled) == join(there, some)
    assert complete(completed, some).contexts == completed.contexts or not completed.contexts
    assert all(text in [one.text for one in completed.contexts] for text in [one.text for one in there.contexts])


@pytest.mark.parametrize(
    ("change", "fills"),
    [
        ({}, True),
        ({"question": "q"}, True),
        ({"reference": "r"}, True),
        ({"contexts": (context("c"),), "context_source": "spans"}, True),
        ({"context_source": "contexts_api"}, True),
        ({"retrieval_s": 0.5}, True),
        ({"response": "No."}, False),
        ({"tags": {"a": "b"}}, False),
        ({"id": "e2"}, False),
        ({"question": "q", "skip_reason": "tool_call"}, False),
    ],
)
def test_only_gaps_are_filled(change, fills):
    assert completes(replace(sample(), **change), sample()) is fills


@pytest.mark.parametrize("field", ["question", "reference", "contexts"])
def test_what_is_there_is_not_replaced_and_not_removed(field):
    full = sample(question="q", reference="r", **FOUND)
    other = (context("d"),) if field == "contexts" else "x"
    assert not completes(replace(full, **{field: other}), full)
    assert not completes(replace(full, **{field: () if field == "contexts" else None}), full)


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"exchange_id": "e", "key": "k", "trace_id": "t"}, Address("exchange", "e")),
        ({"key": "k", "trace_id": "t"}, Address("key", "k")),
        ({"trace_id": "t"}, Address("trace", "t")),
        ({}, None),
    ],
)
def test_the_most_exact_name_counts_alone(fields, address):
    assert address_of(Supplement(id="1", received_at=0.0, source="contexts", **fields)) == address


def test_a_sample_is_reached_by_its_id_its_key_and_its_trace():
    assert addresses_of(sample()) == [("exchange", "e1")]
    assert addresses_of(sample(context_key="k", trace_id="t")) == [("exchange", "e1"), ("key", "k"), ("trace", "t")]


@pytest.mark.parametrize(
    ("fields", "spans", "channel"),
    [
        ({"context_key": "k"}, False, "contexts"),
        ({"context_key": "k", **FOUND}, False, "contexts"),
        ({"context_key": "k", "trace_id": "t", "context_source": "spans"}, True, "contexts"),
        ({"context_key": "k", "context_source": "explicit"}, True, None),
        ({"context_key": "k", "context_source": "contexts_api"}, True, None),
        ({"context_key": "k", "context_source": "feedback"}, True, None),
        ({"context_key": "k", "skip_reason": "tool_call"}, True, None),
        ({"trace_id": "t"}, True, "spans"),
        ({"trace_id": "t"}, False, None),
        ({"trace_id": "t", **FOUND}, True, None),
        ({"trace_id": "t", "context_source": "tools"}, True, None),
        ({"trace_id": "t", "context_source": "spans"}, True, "spans"),
        ({"trace_id": "t", "context_source": "spans"}, False, None),
        ({"trace_id": "t", "context_source": "feedback"}, True, None),
        ({}, True, None),
    ],
)
def test_contexts_are_expected_where_a_key_promised_them_or_a_trace_may_bring_them(fields, spans, channel):
    assert expected(sample(**fields), spans=spans) == channel


def names(some):
    return [one.id for one in some]


def test_a_waiting_room_lets_go_of_those_to_whom_something_is_brought():
    room = WaitingRoom(10.0, 10, settle_s=2.0)
    assert room.admit(sample(id="keyed", context_key="k", trace_id="t"), "contexts", 0.0)
    assert room.admit(sample(id="first", trace_id="t"), "spans", 1.0)
    assert room.admit(sample(id="second", trace_id="t"), "spans", 2.0)
    assert room.release([said("contexts", None, key="k"), said("contexts", "s", trace_id="u")], 3.0) == []
    assert names(room.release([said("contexts", "s", exchange_id="first")], 3.0)) == ["first"]
    assert names(room.release([said("contexts", key="k"), said("contexts", key="k")], 3.0)) == ["keyed"]
    assert names(room.release([said("feedback", "s")], 3.0)) == ["second"]
    assert len(room) == 0
    assert not room.holds(said("spans", trace_id="t"))


def test_where_a_span_came_the_rest_of_its_trace_is_waited_for_a_little_longer_and_never_beyond_the_window():
    room = WaitingRoom(10.0, 10, settle_s=2.0)
    room.admit(sample(id="keyed", context_key="k", trace_id="t"), "contexts", 0.0)
    room.admit(sample(id="early", trace_id="t"), "spans", 0.0)
    room.admit(sample(id="some", trace_id="u"), "spans", 0.5, settling=True)
    assert room.release([said("spans", "s")], 1.0) == []
    assert names(room.due(2.4)) == []
    assert names(room.due(2.5)) == ["some"]
    room.release([said("spans", "s", at=2.0)], 2.9)
    assert names(room.due(3.0)) == ["early"]
    room.admit(sample(id="late", trace_id="t"), "spans", 3.0)
    room.release([said("spans", "s")], 12.0)
    assert names(room.due(13.0)) == ["keyed", "late"]


def test_a_waiting_room_lets_go_of_those_whose_time_is_up_in_the_order_they_came():
    room = WaitingRoom(10.0, 10)
    for number in range(3):
        room.admit(sample(id=str(number)), "spans", float(number))
    assert room.due(9.9) == []
    assert names(room.due(11.0)) == ["0", "1"]
    assert room.holds(said("feedback", exchange_id="2"))
    assert names(room.due(100.0)) == ["2"]


@pytest.mark.parametrize(("window_s", "limit", "admitted"), [(1.0, 2, 2), (0.0, 2, 0)])
def test_a_waiting_room_has_no_more_places_than_it_has(window_s, limit, admitted):
    room = WaitingRoom(window_s, limit)
    assert sum(room.admit(sample(id=str(number)), "spans", 0.0) for number in range(5)) == admitted
    assert len(room) == admitted


class Counted(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_passages_named_later_are_joined_in_linear_time():
    count = 2_000
    found = [[context(Counted(f"{at:x}"), id=name) for at in range(count)] for name in (None, "named")]
    supplement = said("contexts", None, contexts=tuple(found[0] + found[1]), key="k", trace_id=None)
    Counted.compared = 0
    joined = join(sample(context_key="k"), [supplement])
    assert joined.contexts == tuple(found[1][:MAX_PASSAGES])
    assert Counted.compared < 10 * count


def test_the_contexts_of_all_supplements_together_stay_within_the_bounds():
    some = [said("spans", *(f"{at}-{n}" for n in range(150)), at=at) for at in (1.0, 2.0)]
    assert texts(join(sample(trace_id="t"), some)) == [f"{at}-{n}" for at in (1.0, 2.0) for n in range(150)][:200]
    long = [said("spans", f"{at}" * (MAX_BYTES // 5), at=at) for at in (1.0, 2.0)]
    assert [len(one) for one in texts(join(sample(trace_id="t"), long))] == [MAX_BYTES // 5 * 3, MAX_BYTES // 5 * 2]


@given(
    st.lists(
        st.builds(
            Context,
            text=st.text(max_size=3).map(lambda text: text * 200_000),
            id=st.none() | st.sampled_from(["", "a", "ü" * 300_000]),
            source=st.none() | st.just("é"),
        ),
        max_size=6,
    )
)
def test_what_is_bounded_is_a_beginning_of_what_was_said(contexts):
    supplement = said("contexts", None, contexts=tuple(contexts))
    within, cut = bounded(supplement)
    assert size(within) <= MAX_BYTES
    assert cut == (size(supplement) > MAX_BYTES)
    assert within.contexts[:-1] == supplement.contexts[: max(0, len(within.contexts) - 1)]
    assert bounded(shed(supplement)) == (within, cut)


def test_what_another_app_says_neither_joins_nor_ends_a_wait():
    ours = Sample(id="s", started_at=0.0, app="shop", context_key="k")
    foreign = Supplement(
        id="1", received_at=0.0, source="contexts", key="k", contexts=(Context(text="x"),), question="?", app="rival"
    )
    own, anybody = replace(foreign, app="shop"), replace(foreign, app=None)
    assert join(ours, [foreign]) == complete(ours, [foreign]) == ours
    assert join(ours, [own]).contexts == join(ours, [anybody]).contexts == own.contexts
    room = WaitingRoom(10.0, 10)
    room.admit(ours, "contexts", 0.0)
    assert room.release([foreign], 1.0) == []
    assert not room.holds(foreign)
    assert room.holds(own)
    assert room.release([own], 1.0) == [ours]


def test_how_the_prompt_was_read_stays_whatever_contexts_come_beside_it():
    capture = CaptureInfo(
        source="templates", parts=(PromptPart(role="user", kind="passage", start=0, end=3, passage=0),)
    )
    captured = sample(**FOUND, capture=capture)
    joined = join(captured, [said("contexts", "beside it", exchange_id="e1")])
    assert (joined.context_source, joined.capture) == ("contexts_api", capture)
    assert completes(replace(sample(capture=capture), reference="R"), sample(capture=capture))


def step(name, ended_at, at=0.5, **fields):
    return said("spans", None, at=at, id=name, calls=(ToolCall(name=name),), ended_at=ended_at, **fields)


@pytest.mark.parametrize(
    ("there", "called"),
    [
        ({}, ["early", "late", "skewed"]),
        ({"links": Links(within_turn=False)}, ["early", "late", "skewed"]),
        ({"links": Links(within_turn=True)}, []),
        ({"hop": 2}, []),
        ({"hop": 1}, ["early", "late", "skewed"]),
        ({"skip_reason": "tool_call"}, []),
        ({"calls": (ToolCall(name="own"),)}, ["own"]),
        ({"app": "rival"}, []),
        ({"duration_s": 0.06}, ["early", "late"]),
        ({"duration_s": None}, ["early", "late"]),
    ],
)
def test_an_answer_that_shows_no_calls_gets_the_tools_and_agents_that_had_ended_before(there, called):
    spans = [
        step("late", 0.9, at=0.8),
        step("early", 0.3, at=0.1),
        step("skewed", 1.04, at=0.9),
        step("running agent", 9.0, at=0.0),
        step("endless", None),
        said("spans", "a passage", at=0.2),
    ]
    joined = join(
        sample(**{"duration_s": 2.0, **there}), [replace(one, app="shop" if "app" in there else None) for one in spans]
    )
    assert [one.name for one in joined.calls] == called


def test_calls_that_come_late_complete_a_stored_answer_once():
    before = sample(hop=1)
    after = complete(before, [step("weather", 0.9)])
    assert [one.name for one in after.calls] == ["weather"]
    assert completes(after, before)
    assert not completes(before, after)
    assert not completes(replace(after, calls=(ToolCall(name="other"),)), after)
    assert complete(after, [step("weather", 0.9), step("search", 0.8)]) == after


def test_calls_of_spans_are_bounded():
    joined = join(sample(), [step(f"t{number}", 0.9, at=number / 1000) for number in range(50)])
    assert [one.name for one in joined.calls] == [f"t{number}" for number in range(50 - MAX_CALLS, 50)]


def test_a_call_lets_a_waiting_answer_wait_only_for_the_rest_of_the_trace():
    room = WaitingRoom(60.0, 10, settle_s=6.0)
    room.admit(sample(trace_id="t"), "spans", 0.0)
    assert room.release([step("weather", 0.9)], 1.0) == []
    assert [one.id for one in room.due(7.0)] == ["e1"]

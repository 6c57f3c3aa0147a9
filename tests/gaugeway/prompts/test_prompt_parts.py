"""Where the question, the passages and the instructions stand in a request, whatever extractor found them."""

from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.capture.factory import extractors_of
from gateway.config import Capture
from gaugeway.exchange import Request, Response
from gaugeway.prompts import Extraction, trace
from gaugeway.prompts.prompt_parts import LONGEST_SECRET, capture_info
from gaugeway.records import Context
from gaugeway.settings.bounds import MAX_INSTRUCTION_BYTES, MAX_PARTS, bounded_capture

ROOF = "The roof of the shed carries ninety kilograms of snow."
DOOR = "The door of the shed opens to the inside, and locks by itself."
WALL = "The walls are of larch; they turn grey within two years."


def request(*messages, route="chat_completions", **body):
    told = [{"role": role, "content": content} for role, content in messages]
    return Request(route=route, headers={}, body=({"messages": told} if told else {}) | body)


def extraction(question, *passages, **fields):
    contexts = tuple(Context(text=one) for one in passages)
    return Extraction(question=question, contexts=contexts, **{"source": "test"} | fields)


def marked(request, found, **options):
    """The parts as (message, kind, the words that the offsets cut out, passage)."""
    texts = {}
    for index, message in enumerate(request.body["messages"]):
        content = message["content"]
        texts[index] = content if isinstance(content, str) else "\n".join(part["text"] for part in content)
    return [
        (one.message, one.kind, texts[one.message][one.start : one.end], one.passage)
        for one in capture_info(request, found, **options).parts
    ]


def test_every_part_is_at_its_offsets_and_instructions_carry_their_words():
    asked = request(("system", "Be brief."), ("user", f"Excerpts:\n1) {ROOF}\n2) {DOOR}\n\nAsked: How much snow? Go."))
    found = extraction("How much snow?", ROOF, DOOR)
    assert marked(asked, found) == [
        (0, "instructions", "Be brief.", None),
        (1, "instructions", "Excerpts:\n", None),
        (1, "instructions", "1) ", 0),
        (1, "passage", ROOF, 0),
        (1, "instructions", "\n2) ", 1),
        (1, "passage", DOOR, 1),
        (1, "instructions", "\n\nAsked: ", None),
        (1, "question", "How much snow?", None),
        (1, "instructions", " Go.", None),
    ]
    words = [one.text for one in capture_info(asked, found).parts]
    assert words == ["Be brief.", "Excerpts:\n", "1) ", "", "\n2) ", "", "\n\nAsked: ", "", " Go."]


def test_how_it_was_found_goes_along():
    found = extraction("Q?", marker="m", confidence=0.75, reason="numbered items", cut=True)
    info = capture_info(request(("user", "Q?")), found)
    assert (info.source, info.marker, info.confidence, info.reason) == ("test", "m", 0.75, "numbered items")
    assert (info.cut, info.shortened) == (True, False)
    nobody = capture_info(request(("user", "Q?")), extraction("Q?", source="none"))
    assert (nobody.source, nobody.confidence) == ("none", None)
    assert [one.kind for one in nobody.parts] == ["question"]


@pytest.mark.parametrize(("given", "kept"), [(2.0, 1.0), (-1.0, 0.0), (0.5, 0.5)])
def test_a_confidence_of_somebody_elses_extractor_stays_in_bounds(given, kept):
    assert capture_info(request(("user", "Q?")), extraction("Q?", confidence=given)).confidence == kept


def test_blanks_between_passages_are_no_instructions():
    asked = request(("system", f"Notes:\n{ROOF}\n\n{DOOR}\n"), ("user", "Which way does the door open?"))
    assert [one[1] for one in marked(asked, extraction("Which way does the door open?", ROOF, DOOR))] == [
        "instructions",
        "passage",
        "passage",
        "question",
    ]


def test_turns_before_this_one_are_left_out():
    asked = request(("system", "Be kind."), ("user", "Hi!"), ("assistant", "Hello!"), ("user", "And the roof?"))
    assert [one[:3] for one in marked(asked, extraction("And the roof?"))] == [
        (0, "instructions", "Be kind."),
        (3, "question", "And the roof?"),
    ]


def test_an_earlier_turn_that_holds_the_passages_is_part_of_the_prompt():
    asked = request(("user", f"Read: {ROOF} {DOOR}"), ("assistant", "Read."), ("user", "How much snow?"))
    assert [one[:2] for one in marked(asked, extraction("How much snow?", ROOF, DOOR))] == [
        (0, "instructions"),
        (0, "passage"),
        (0, "passage"),
        (2, "question"),
    ]


def test_of_the_same_passages_in_two_turns_those_of_the_last_one_count():
    turn = f"Notes: {ROOF}\nHow much?"
    asked = request(("user", turn), ("assistant", "Ninety."), ("user", turn))
    assert {one[0] for one in marked(asked, extraction("How much?", ROOF))} == {2}


def test_the_question_may_be_an_earlier_turn_or_stand_in_the_system_message():
    asked = request(("user", "How much snow?"), ("assistant", "Let me look."), ("user", f"Found: {ROOF}"))
    assert (0, "question", "How much snow?", None) in marked(asked, extraction("How much snow?", ROOF))
    asked = request(("system", f"Answer 'How much snow?' from: {ROOF}"), ("user", "Go on."))
    assert (0, "question", "How much snow?", None) in marked(asked, extraction("How much snow?", ROOF))


def test_a_tools_result_has_passages_but_no_instructions():
    asked = request(("user", "How much?"), ("tool", f"Source: a.md\n{ROOF}\n--\n{DOOR}"), ("tool", '{"celsius": 4}'))
    assert [one[:3] for one in marked(asked, extraction("How much?", ROOF, DOOR))] == [
        (0, "question", "How much?"),
        (1, "passage", ROOF),
        (1, "passage", DOOR),
    ]


def test_a_passage_that_is_nowhere_word_for_word_has_no_part_and_the_others_have():
    asked = request(("user", "How much?"), ("tool", '[{"text": "Grey\\nwalls"}, {"text": "' + DOOR + '"}]'))
    assert [one.passage for one in capture_info(asked, extraction("How much?", "Grey\nwalls", DOOR)).parts] == [None, 1]


def test_passages_in_another_order_and_equal_ones_are_found_each():
    text = f"{DOOR}\n{ROOF}\n{ROOF}\n{WALL}"
    asked = request(("system", text), ("user", "Well?"))
    parts = capture_info(asked, extraction("Well?", ROOF, ROOF, WALL, DOOR)).parts
    at = {one.passage: one.start for one in parts if one.kind == "passage"}
    assert at == {3: 0, 0: text.index(ROOF), 1: text.rindex(ROOF), 2: text.index(WALL)}


def test_a_short_passage_is_looked_for_beside_its_neighbours():
    text = f"About larch and sheds.\n- larch\n- {ROOF}\n- sheds\n- {DOOR}\n- snow\nMore about snow."
    asked = request(("system", text), ("user", "Well?"))
    parts = capture_info(asked, extraction("Well?", "larch", ROOF, "sheds", DOOR, "snow")).parts
    at = [one.start for one in parts if one.kind == "passage"]
    assert at == [text.index(one) for one in ("larch\n-", ROOF, "sheds\n-", DOOR, "snow\nMore")]


def test_short_passages_alone_are_words_in_their_order():
    asked = request(("user", "Scarlet? Options: red, car, 7, 17."))
    parts = capture_info(asked, extraction(None, "red", "car", "7")).parts
    assert [one.start for one in parts if one.kind == "passage"] == [18, 23, 28]


def test_a_short_question_is_marked_once_and_not_inside_a_passage():
    text = f"Why? Explain why.\nQuestion: Why?\n{ROOF} Why?\nAnswer:"
    marks = capture_info(request(("user", text)), extraction("Why?", f"{ROOF} Why?")).parts
    assert [one.start for one in marks if one.kind == "question"] == [text.index(": Why?") + 2]


def test_a_question_that_is_repeated_is_marked_each_time():
    question = "How much snow does the roof carry?"
    asked = request(("user", f"{question}\n{ROOF}\n{question}"))
    assert [one[1] for one in marked(asked, extraction(question, ROOF))] == ["question", "passage", "question"]


def test_texts_beside_the_messages_come_first():
    body = {"instructions": "Be brief.", "input": [{"role": "user", "content": [{"type": "input_text", "text": "Q?"}]}]}
    body["input"].append({"type": "function_call_output", "call_id": "1", "output": f"x {ROOF}"})
    found = capture_info(request(route="responses", **body), extraction("Q?", ROOF))
    assert [(one.message, one.role, one.kind) for one in found.parts] == [
        (0, "system", "instructions"),
        (1, "user", "question"),
        (2, "tool", "passage"),
    ]
    anthropic = request(("user", "Q?"), route="messages", system="Be brief.")
    assert [one.message for one in capture_info(anthropic, extraction("Q?")).parts] == [0, 1]
    assert [one.kind for one in capture_info(request(route="completions", prompt="Q?"), extraction("Q?")).parts] == [
        "question"
    ]


def test_without_content_offsets_stay_and_words_do_not():
    asked = request(("user", f"Notes: {ROOF}\nWell?"))
    found = extraction("Well?", ROOF)
    bare = capture_info(asked, found, content=False).parts
    assert {one.text for one in bare} == {""}
    assert [(one.kind, one.start, one.end) for one in bare] == [
        (one.kind, one.start, one.end) for one in capture_info(asked, found).parts
    ]


def test_long_instructions_are_cut_evenly_and_keep_a_margin_until_they_are_redacted():
    asked = request(("system", "rule " * 20_000), ("system", "Short."), ("user", "Q?"))
    info = capture_info(asked, extraction("Q?"))
    first, second, _ = info.parts
    assert info.shortened
    assert second.text == "Short."
    assert MAX_INSTRUCTION_BYTES < len(first.text) <= MAX_INSTRUCTION_BYTES + LONGEST_SECRET
    assert (first.start, first.end) == (0, 100_000)
    kept = bounded_capture(info)
    assert sum(len(one.text.encode()) for one in kept.parts) <= MAX_INSTRUCTION_BYTES
    assert bounded_capture(kept) == kept


def test_of_too_many_parts_the_shortest_instructions_go_first():
    passages = [f"Passage number {number} is about the shed." for number in range(200)]
    text = "Here they are, in no order:" + "".join(f"\n* {one}" for one in passages) + "\nThe question follows."
    asked = request(("system", text), *(("system", f"Rule number {number}") for number in range(60)), ("user", "Well?"))
    info = capture_info(asked, extraction("Well?", *passages))
    assert len(info.parts) == MAX_PARTS
    assert info.shortened
    assert [one.passage for one in info.parts if one.kind == "passage"] == list(range(200))
    texts = [one.text for one in info.parts if one.text]
    assert "\nThe question follows." in texts
    assert "Rule number 59" in texts
    assert [one.kind for one in info.parts][-1] == "question"


def test_what_is_searched_for_in_vain_is_bounded():
    """Passages that are nowhere, before one that is: of a text this long only some can be looked for."""
    text = "larch " * 50_000 + ROOF
    asked = request(("user", text))
    nowhere = [f"{WALL} Number {number}." for number in range(199)]
    many = capture_info(asked, extraction("larch?", *nowhere, ROOF))
    assert not [one for one in many.parts if one.kind == "passage"]
    few = capture_info(asked, extraction("larch?", *nowhere[:2], ROOF))
    assert [one.passage for one in few.parts if one.kind == "passage"] == [2]


PIECES = st.lists(st.sampled_from([ROOF, DOOR, "snow", "a", "1", " ", "\n\n", "ß", "雪", "Notes:", "- "]), max_size=12)


@given(
    PIECES, PIECES, PIECES, st.lists(st.sampled_from([ROOF, DOOR, "snow", "a", "1", "nowhere", " ", "雪"]), max_size=6)
)
def test_parts_are_apart_in_order_and_say_what_stands_there(system, user, tool, passages):
    texts = ["".join(system), "".join(user), "".join(tool)]
    asked = request(*zip(("system", "user", "tool"), texts, strict=True))
    found = extraction("a snow?" if len(passages) % 2 else "snow", *passages)
    parts = capture_info(asked, found).parts
    places = [(one.message, one.start, one.end) for one in parts]
    assert places == sorted(places)
    for one, after in pairwise(parts):
        assert one.message < after.message or one.end <= after.start
    for one in parts:
        there = texts[one.message][one.start : one.end]
        assert there == {"instructions": one.text, "question": found.question}.get(one.kind, there)
        if one.kind == "passage":
            assert there == passages[one.passage]
    indexes = [one.passage for one in parts if one.kind == "passage"]
    assert len(indexes) == len(set(indexes))


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=6), lambda x: st.lists(x, max_size=3))
ODD = st.recursive(
    JSON,
    lambda x: st.dictionaries(st.sampled_from(["role", "content", "type", "text", "output"]), x, max_size=4),
)


@given(ODD, st.sampled_from(["chat_completions", "responses", "messages", "completions"]), st.text(max_size=4))
def test_odd_requests_are_marked_or_left_alone(value, route, question):
    body = {"messages": [value], "input": [value], "prompt": value, "system": value, "instructions": value}
    capture_info(Request(route=route, headers={}, body=body), extraction(question, question))


def test_the_built_in_extractors_find_what_is_marked():
    rule = "-" * 21
    text = f"Context information is below.\n{rule}\n{ROOF}\n\n{DOOR}\n{rule}\nGiven the context information and not prior knowledge, answer the query.\nQuery: How much snow?\nAnswer: "  # noqa: E501
    asked = request(("user", text))
    extractors = extractors_of(Capture())
    found = trace(asked, Response(status=200, body={}), extractors)[-1][1]
    assert [one[1] for one in marked(asked, found)] == [
        "instructions",
        "passage",
        "passage",
        "instructions",
        "question",
        "instructions",
    ]


@given(
    PIECES,
    PIECES,
    PIECES,
    st.lists(st.sampled_from([ROOF, DOOR, WALL, ROOF + DOOR, ROOF[5:], "nowhere " * 9]), max_size=6),
)
@example([], [ROOF, "\n", DOOR], [WALL], [ROOF, DOOR, WALL])
@example([ROOF], [DOOR, ROOF, DOOR], [], [DOOR, ROOF, DOOR])
@example([ROOF], [DOOR, "\n\n", DOOR], [], [ROOF, DOOR])
def test_passages_in_the_order_of_the_text_are_found_where_a_search_finds_them(system, user, tool, passages):
    texts = ["".join(system), "".join(user), "".join(tool)]
    asked = request(*zip(("system", "user", "tool"), texts, strict=True))
    found = capture_info(asked, extraction("How much snow?", *passages))
    with mock.patch("gaugeway.prompts.prompt_parts._mark_in_order", return_value=False):
        assert capture_info(asked, extraction("How much snow?", *passages)) == found

"""What an exchange shows of its conversation: hashes that fit its successor's, turn and hop, history and tool calls."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.capture.conversation import ConversationReader
from gateway.capture.exchange_reader import Capture, read
from gaugeway.prompts import Extraction
from gaugeway.records import Context
from gaugeway.redaction import Redactor
from gaugeway.settings.bounds import MAX_HISTORY_TEXT
from tests.gateway.capture.test_exchange_reader import LIMIT, answer, recording

LONG = "The warranty lasts two years from the day of purchase, and can be extended once. " * 3


def user(text):
    return {"role": "user", "content": text}


def model(text):
    return {"role": "assistant", "content": text}


def calling(*ids, name="search", arguments='{"query": "warranty of the drill"}', content=None):
    calls = [{"id": one, "type": "function", "function": {"name": name, "arguments": arguments}} for one in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(identity, text="[]"):
    return {"role": "tool", "tool_call_id": identity, "content": text}


def parts(messages, response="A.", *, question=None, key="k", route="chat_completions", turns=6, **body):
    said = (
        response if isinstance(response, dict) else {"choices": [{"message": model(response), "finish_reason": "stop"}]}
    )
    place = "input" if route == "responses" else "messages"
    found = recording({"model": "m", place: messages, **body}, said, route=route)
    return ConversationReader(key, history_turns=turns).read(read(found, LIMIT), question)


def links(*args, **more):
    return parts(*args, **more)[0]


def calls(*ids, **more):
    return {"choices": [{"message": calling(*ids, **more), "finish_reason": "tool_calls"}]}


def test_a_request_follows_what_the_exchange_before_gave():
    first, second = links([user("a")], LONG), links([user("a"), model(LONG), user("b")])
    assert second.follows in first.gives
    assert first.follows is None
    assert second.length > 100
    assert second.asked_before in first.asked
    assert (first.turn, second.turn, second.hop, second.within_turn) == (1, 2, 1, False)


@pytest.mark.parametrize(
    "written",
    [
        f"  {LONG}\n",
        LONG.replace(" ", "\n  "),
        [{"type": "text", "text": LONG}],
        [{"type": "text", "text": LONG[:50]}, {"type": "text", "text": LONG[50:]}],
    ],
)
def test_a_text_is_the_same_however_it_is_handed_back(written):
    assert links([user("x"), model(written), user("b")]).follows in links([user("a")], LONG).gives


def test_reasoning_is_left_out_of_a_text():
    assert links([model(LONG), user("b")]).follows in links([user("a")], f"<think>hm</think>\n{LONG}").gives


def test_a_trimmed_and_rewritten_history_still_follows():
    before = links([user("a"), model("x"), user("long prompt with passages")], LONG)
    after = links([{"role": "system", "content": "so far: x"}, user("short"), model(LONG), user("c")])
    assert after.follows in before.gives
    assert after.pair_before is None


def test_two_items_tell_equal_answers_apart():
    one = links([user("a"), model("first"), user("b")], "I don't know.")
    other = links([user("a"), model("second"), user("b")], "I don't know.")
    after = links([user("a"), model("second"), user("b"), model("I don't know."), user("c")])
    assert after.follows in one.gives
    assert after.follows in other.gives
    assert after.pair_before == other.pair_given != one.pair_given


def test_a_question_taken_out_of_a_prompt_is_known_by_it():
    before = links([user("Context: ... Question: How long?")], LONG, question="How long?")
    assert links([user("How long?"), model(LONG), user("b")]).asked_before in before.asked


def test_tool_calls_are_followed_by_their_ids():
    first = links([user("a")], calls("call_0123456789abcdef"))
    second = links([user("a"), calling("call_0123456789abcdef"), result("call_0123456789abcdef")])
    assert second.follows in first.gives
    assert (second.turn, second.hop, second.within_turn) == (1, 2, True)
    assert second.asked_before in first.asked
    assert second.length > 1000


@pytest.mark.parametrize("result", ["Observation: Two years.", "<tool_response>\nTwo years.\n</tool_response>"])
def test_a_result_written_as_a_turn_of_the_user_is_none(result):
    turns = [user("How long?"), model("Action: search\nAction Input: warranty"), user(result)]
    found, history, _ = parts(turns)
    assert (found.turn, found.hop, history) == (1, 2, ())


def test_ids_that_are_counted_are_no_evidence_by_themselves():
    first = links([user("a")], calls("call_1"))
    assert links([user("a"), calling("call_1"), result("call_1")]).follows in first.gives
    other = calling("call_1", arguments='{"query": "another thing"}')
    assert links([user("a"), other, result("call_1")]).follows not in first.gives


def test_a_tool_loop_after_an_answer_fits_as_pair():
    begun = [user("a"), model("first"), user("b"), calling("call_aaaaaaaaaaaa"), result("call_aaaaaaaaaaaa")]
    before = links(begun, calls("call_bbbbbbbbbbbb"))
    after = links([*begun, calling("call_bbbbbbbbbbbb"), result("call_bbbbbbbbbbbb")])
    assert after.follows in before.gives
    assert after.pair_before == before.pair_given is not None
    assert (after.turn, after.hop) == (2, 3)


def test_an_answer_fits_as_pair_whether_the_tools_are_kept_or_not():
    begun = [user("a"), model("first"), user("b")]
    loop = [calling("call_bbbbbbbbbbbb"), result("call_bbbbbbbbbbbb")]
    before = links([*begun, *loop], LONG)
    kept, dropped = links([*begun, *loop, model(LONG), user("c")]), links([*begun, model(LONG), user("c")])
    assert kept.pair_before == dropped.pair_before == before.pair_given is not None
    assert kept.asked_before == dropped.asked_before == before.asked[0]


def test_the_responses_api_is_followed_by_id_and_by_items():
    body = {
        "id": "resp_1",
        "output": [
            {"type": "reasoning", "id": "rs_1"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call", "call_id": "call_0123456789ab", "name": "search", "arguments": "{}"},
        ],
    }
    first = links("a", body, route="responses")
    output = {"type": "function_call_output", "call_id": "call_0123456789ab", "output": "[]"}
    by_id = links([output], route="responses", previous_response_id="resp_1")
    by_items = links([user("a"), *body["output"], output], route="responses")
    assert by_id.follows in first.gives
    assert by_items.follows in first.gives
    assert by_id.within_turn
    assert (by_items.turn, by_items.hop, by_items.within_turn) == (1, 2, True)
    assert not links([user("b")], route="responses", previous_response_id="resp_1").within_turn


def test_anthropic_messages_are_followed():
    response = {
        "content": [{"type": "text", "text": "Hm."}, {"type": "tool_use", "id": "toolu_0123456789", "input": {}}]
    }
    first = links([user("a")], response, route="messages")
    back = {"type": "tool_result", "tool_use_id": "toolu_0123456789", "content": "[]"}
    second = links([user("a"), model(response["content"]), user([back])], {"content": []}, route="messages")
    assert second.follows in first.gives
    assert (second.turn, second.hop, second.gives) == (1, 2, ())


def test_a_prefill_is_part_of_the_answer():
    first = links([user("a"), model("{")], '"x": 1}')
    assert first.follows is None
    assert (first.turn, first.hop, first.within_turn) == (1, 1, False)
    assert links([user("a"), model('{"x": 1}'), user("b")]).follows in first.gives


def test_hashes_belong_to_one_app_and_key_and_show_nothing():
    one, other = links([user("a")], LONG), links([user("a")], LONG, key="other")
    assert set(one.gives).isdisjoint(other.gives)
    assert "warranty" not in json.dumps([one.gives, one.asked])


def test_the_text_that_a_sub_agent_is_asked_is_known():
    first = links([user("a")], calls("call_0123456789ab", arguments='{"task": "Find the warranty", "n": 3}'))
    assert links([user("Find the warranty")]).asked[0] in first.arguments


@pytest.mark.parametrize(
    "messages",
    [
        [],
        None,
        [None, 3, {"role": "assistant"}, {"role": "user"}],
        [{"role": ["user"], "type": ["x"]}, {"role": {"a": 1}, "content": {"b": 2}}, user("x")],
        [{"role": "assistant", "tool_calls": [None, {"function": None}, {"function": {"name": 1, "arguments": 2}}]}],
        [{"role": "assistant", "content": [{"type": "tool_use", "id": 5, "input": {"a": ["b"]}}]}, user("x")],
        [{"role": "assistant", "function_call": {"name": "f"}}, user("\x00")],
    ],
)
@pytest.mark.parametrize("route", ["chat_completions", "messages", "responses", "completions"])
def test_odd_requests_are_no_error(messages, route):
    assert links(messages, "\x00", route=route).turn == 1


def test_history_is_what_stands_before_the_question():
    messages = [{"role": "system", "content": "s"}, user("a"), model("A."), user("b"), calling("c1"), result("c1")]
    messages += [model("B."), user("context"), user("c"), calling("c2"), result("c2")]
    assert [(one.role, one.text) for one in parts(messages)[1]] == [
        ("user", "a"),
        ("assistant", "A."),
        ("user", "b"),
        ("assistant", "B."),
    ]
    assert [one.text for one in parts(messages, turns=2)[1]] == ["b", "B."]
    assert parts(messages, turns=0)[1] == ()
    assert parts([user("a")])[1] == ()


def test_tools_that_a_response_calls_are_kept():
    made = parts([user("a")], calls("call_1", "call_2"))[2]
    assert [(one.name, one.arguments) for one in made] == [("search", '{"query": "warranty of the drill"}')] * 2


def test_history_and_calls_are_redacted_before_they_are_cut():
    mail = "anna@example.com"
    text = "x" * (MAX_HISTORY_TEXT - 5) + " " + mail
    capture = Capture([], rate=1.0, salt="s", limit=LIMIT, protect=Redactor(("email",), salt="s").redact_sample)
    body = {"messages": [user(text), model(mail), user("c")]}
    message = calling("call_1", arguments=json.dumps({"to": mail}))
    found = recording(body, answer(None, "tool_calls", tool_calls=message["tool_calls"]))
    sample = capture.make(read(found, LIMIT))
    assert sample.history[0].text.endswith(" [EMA")
    assert len(sample.history[0].text) == MAX_HISTORY_TEXT
    assert sample.history[1].text.startswith("[EMAIL_")
    assert "anna" not in sample.calls[0].arguments
    assert sample.links.turn == 2


def test_a_session_is_the_conversation():
    capture = Capture([], rate=1.0, salt="s", limit=LIMIT)

    def sample(**more):
        return capture.make(read(recording({"messages": [user("a")], **more}), LIMIT))

    one, other = sample(metadata={"thread_id": "t1"}), sample(metadata={"thread_id": "t2"})
    assert one.session == "t1"
    assert one.conversation != other.conversation
    assert "t1" not in one.conversation
    assert one.cluster.startswith("s:")
    assert sample().conversation is None


PASSAGES = [LONG * 5, "Größe und Preis, 価格 🙂\n" * 60, "x" * 1100, " \t\n" * 500 + "an end", "\ud83d" * 1024, "short"]
GAPS = ["", "\n\n", "Use: ", " " * 600, "</think>", "<b>", "ü", "\u2003", "y" * 300]


@settings(max_examples=3 * settings.default.max_examples // 2)
@given(
    st.lists(st.sampled_from(PASSAGES) | st.sampled_from(GAPS), max_size=14),
    st.lists(st.sampled_from(PASSAGES), max_size=6),
)
@example(["Use: ", PASSAGES[0], "\n\n", PASSAGES[1], "\n\n", "y" * 300], PASSAGES[:2])
@example([PASSAGES[0], "\n\n", PASSAGES[0], "", PASSAGES[0]], [PASSAGES[0]] * 3)
@example([" " * 600, PASSAGES[0], "\n\n", PASSAGES[0], " " * 600], [PASSAGES[0]])
@example(["y" * 300, " " * 600, PASSAGES[2], PASSAGES[2] * 70], [PASSAGES[2]] * 6)
def test_the_passages_in_a_turn_do_not_change_its_hash(pieces, passages):
    """Their lengths are kept, which saves most of the time; the turn is hashed as if nothing was known of it."""
    messages = [user("".join(pieces))]
    exchange = read(recording({"model": "m", "messages": [user("?")]}, answer("A.")), LIMIT)
    exchange.request.body["messages"] = messages
    found = Extraction(question="?", contexts=tuple(Context(text=one) for one in passages), source="learned")
    for _ in range(2):  # what is kept of a passage, and what is made of it at first
        known = ConversationReader("k").read(exchange, "?", found)[0]
        assert known == ConversationReader("k").read(exchange, "?")[0]

import gzip
import json
import re

import msgspec
import pytest

from gateway.capture.exchange_reader import Capture, read, skip_reason
from gateway.capture.factory import capture_of
from gateway.capture.fingerprints import Resubmissions
from gateway.capture.result import capture as make_sample
from gateway.capture.result import summarise
from gateway.config import Capture as Settings
from gaugeway.exchange import Explicit, Recording, Trace
from gaugeway.prompts import UserTemplate
from gaugeway.records import Usage
from gaugeway.redaction import Redactor
from gaugeway.settings.bounds import MAX_INSTRUCTION_BYTES

LIMIT = 1_000_000


def recording(body=None, response=None, *, route="chat_completions", headers=(), raw=None, **fields):
    content = raw if raw is not None else json.dumps(response if response is not None else answer()).encode()
    return Recording(
        id="e1",
        started_at=100.0,
        method="POST",
        path="/v1/chat/completions",
        route=route,
        request_headers=[(b"content-type", b"application/json")],
        request_body=json.dumps(body or {"model": "m", "messages": [{"role": "user", "content": "Q?"}]}).encode(),
        status=fields.pop("status", 200),
        response_headers=[(b"content-type", b"application/json"), *headers],
        chunks=[content],
        **fields,
    )


def answer(content="A.", finish="stop", **message):
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    return {"id": "chatcmpl-1", "model": "m-2026", "choices": [choice], "usage": usage}


def test_a_completion_becomes_an_exchange_and_a_sample():
    explicit = Explicit(app="shop", session="s", tags={"v": "7"}, reference="R")
    found = recording(trace=Trace("a" * 32, "b" * 16), explicit=explicit, duration_s=0.5)
    sample = Capture([], rate=1.0, salt="s", limit=LIMIT).make(read(found, LIMIT))
    assert sample is not None
    assert (sample.id, sample.app, sample.model, sample.question, sample.response) == ("e1", "shop", "m", "Q?", "A.")
    assert (sample.session, sample.tags, sample.reference, sample.rate) == ("s", {"v": "7"}, "R", 1.0)
    assert (sample.trace_id, sample.span_id, sample.response_id) == ("a" * 32, "b" * 16, "chatcmpl-1")
    assert sample.usage == Usage(input_tokens=5, output_tokens=2, cached_tokens=1)
    assert (sample.context_source, sample.skip_reason, sample.duration_s) == ("none", None, 0.5)


def test_a_gzipped_response_is_unpacked():
    packed = gzip.compress(json.dumps(answer("unpacked")).encode())
    assert read(recording(raw=packed, headers=[(b"content-encoding", b"gzip")]), LIMIT).response.text == "unpacked"


def test_a_stream_is_folded_whatever_its_chunks_were():
    events = b"".join(
        b"data: " + json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"
        for text in ("one ", "two")
    )
    found = recording(raw=b"")
    found.chunks = [events[index : index + 7] for index in range(0, len(events), 7)]
    found.response_headers = [(b"Content-Type", b"text/event-stream; charset=utf-8")]
    exchange = read(found, LIMIT)
    assert exchange.stream
    assert exchange.response.text == "one two"


def test_a_response_of_the_responses_api_is_read():
    body = {
        "id": "resp_1",
        "output": [
            {"type": "reasoning"},
            {
                "type": "message",
                "content": [{"type": "output_text", "text": "A."}, {"type": "output_text", "text": "B."}],
            },
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    exchange = read(recording({"model": "m", "input": "Q?"}, body, route="responses"), LIMIT)
    assert exchange.response.text == "A.B."
    assert exchange.response.usage == Usage(input_tokens=3, output_tokens=4)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"ending": "client_cancelled"}, "client_cancelled"),
        ({"ending": "upstream_truncated"}, "upstream_truncated"),
        ({"status": 429, "response": {"error": {"message": "slow down"}}}, "error_response"),
        ({"response": answer("half", finish="length")}, "truncated_response"),
        ({"response": answer("half", finish="max_tokens")}, "truncated_response"),
        ({"response": answer("half", finish="MAX_TOKENS")}, "truncated_response"),
        ({"response": answer("", finish="content_filter")}, "content_filter"),
        ({"response": answer(None, finish="tool_calls", tool_calls=[{"id": "c"}])}, "tool_call"),
        ({"response": answer(None, tool_calls=[{"id": "c"}])}, "tool_call"),
        ({"response": answer("  ")}, "empty_response"),
        ({"response": answer(None, refusal="I cannot.")}, "refusal"),
        ({"response": {}}, "empty_response"),
    ],
)
def test_what_is_no_answer_to_judge_says_why(fields, reason):
    assert skip_reason(read(recording(**fields), LIMIT)) == reason


@pytest.mark.parametrize("raw", [b"<html>", b"[1]", b"\xff"])
def test_a_response_that_is_no_json_object_is_an_error_not_an_empty_answer(raw):
    with pytest.raises(ValueError, match="the response body"):
        read(recording(raw=raw), LIMIT)


def test_odd_types_in_a_response_are_passed_over():
    odd = {"id": 7, "choices": [None, {"message": "x"}], "usage": {"prompt_tokens": True, "completion_tokens": -1}}
    exchange = read(recording(response=odd), LIMIT)
    assert exchange.response.id is None
    assert exchange.response.usage == Usage()
    assert exchange.response.text == ""


def test_an_azure_path_names_the_model_when_the_body_does_not():
    found = recording({"messages": []})
    found.path = "/openai/deployments/prod-gpt/chat/completions"
    assert read(found, LIMIT).model == "prod-gpt"


def test_sampling_is_decided_by_the_trace_so_that_all_its_calls_share_one_fate():
    capture = Capture([], rate=0.5, salt="s", limit=LIMIT)
    for number in range(20):
        trace = Trace(f"{number:032x}", "b" * 16)
        one, other = recording(trace=trace), recording(trace=trace)
        other.id = "e2"
        assert capture.decide(one) == capture.decide(other)


def test_whole_conversations_are_sampled_by_the_session_that_a_header_names():
    capture = Capture([], rate=0.5, salt="s", limit=LIMIT)
    capture.by_conversation = True
    decisions = {}
    for number in range(400):
        one = recording(trace=Trace(f"{number:032x}", "b" * 16))
        one.request_headers = [*one.request_headers, (b"X-Session-Id", f"s{number % 40}".encode())]
        decisions.setdefault(number % 40, set()).add(capture.decide(one))
    assert all(len(each) == 1 for each in decisions.values())
    assert 8 <= sum(each == {"captured"} for each in decisions.values()) <= 32


@pytest.mark.parametrize("by_conversation", [False, True])
@pytest.mark.parametrize(
    ("said", "whole"),
    [
        ({}, False),
        ({"metadata": {"chat_id": "s1"}}, False),  # known only once the body is decoded
        ({"header": (b"x-session-id", b"s1")}, True),
        ({"header": (b"baggage", b"session.id=s1")}, True),
        ({"explicit": Explicit(session="s1")}, True),
    ],
)
def test_a_sample_says_whether_its_session_decided_about_its_capture(said, whole, by_conversation):
    capture = Capture([], rate=0.5, salt="s", limit=LIMIT)
    capture.by_conversation = by_conversation
    body = {"model": "m", "messages": [{"role": "user", "content": "Q?"}]}
    body |= {"metadata": said["metadata"]} if "metadata" in said else {}
    found = recording(body, explicit=said.get("explicit", Explicit()))
    found.request_headers += [said["header"]] if "header" in said else []
    sample = capture.make(read(found, LIMIT))
    assert sample.sampled_whole == (whole and by_conversation)


@pytest.mark.parametrize(
    ("first", "second", "judged_again"),
    [
        ({"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}, False),
        ({}, {}, True),  # two users may ask the same
        ({"session": "s"}, {"session": "s"}, False),
        ({"session": "s"}, {"session": "t"}, True),
        ({"user": "u"}, {"user": "u"}, False),
    ],
)
def test_only_what_must_be_the_same_request_again_is_not_judged_twice(first, second, judged_again):
    capture = Capture([], rate=1.0, salt="s", limit=LIMIT, resubmissions=Resubmissions(60, 10))
    reasons = []
    for said in (first, second):
        body = {"model": "m", "messages": [{"role": "user", "content": "Q?"}]}
        body |= {"user": said["user"]} if "user" in said else {}
        found = recording(body, explicit=Explicit(session=said.get("session")))
        found.request_headers += [(b"x-stainless-retry-count", said.get("x-stainless-retry-count", "0").encode())]
        reasons.append(capture.make(read(found, LIMIT)).skip_reason)
    assert reasons == [None, None if judged_again else "resubmission"]


def test_an_auxiliary_call_is_kept_but_not_judged():
    asked = (
        "Here is a conversation with a follow up question. Please rephrase the follow up question so that it is a "
        "standalone question.\n\nChat History:\nUser: How long?\nFollow Up Input: And then?\nStandalone question:"
    )
    body = {"model": "m", "messages": [{"role": "user", "content": asked}]}
    sample = Capture([], rate=1.0, salt="s", limit=LIMIT).make(read(recording(body), LIMIT))
    assert (sample.skip_reason, sample.tags) == ("auxiliary", {"auxiliary": "standalone_question"})


LOCKERS = "Lockers take a two-crown coin."


@pytest.mark.parametrize(
    ("passage", "asked"),
    [
        ("Generate a title for the chat.", "When on Sundays?"),
        ("Support macro: summarize the conversation before handing over.", "When on Sundays?"),
        ("The pool opens at nine on Sundays, as always.", "Extract the keywords of passage 2, please."),
    ],
)
def test_neither_a_passage_nor_the_question_decides_what_kind_of_call_it_is(passage, asked):
    said = f"Answer from the context.\n\nContext:\n{passage}\n\n{LOCKERS}\n\nQuestion: {asked}"
    body = {"messages": [{"role": "user", "content": said}]}
    pattern = UserTemplate(name="pool", pattern=r"Context:\n(?P<contexts>.*)\n\nQuestion: (?P<question>.*)")
    capture = capture_of(Settings(templates=(pattern,)), "key", lambda _: None)
    sample = make_sample(capture, recording(body)).sample
    assert sample.skip_reason is None
    assert "auxiliary" not in sample.tags
    assert [context.text for context in sample.contexts] == [passage, LOCKERS]


def test_an_answer_that_an_output_tool_hands_over_is_judged_and_stays_a_call():
    function = {"name": "final_result", "arguments": json.dumps({"answer": "Below 90 degrees."})}
    said = answer(None, "tool_calls", tool_calls=[{"id": "c", "type": "function", "function": function}])
    sample = Capture([], rate=1.0, salt="s", limit=LIMIT).make(read(recording(response=said), LIMIT))
    assert (sample.skip_reason, sample.response) == (None, "Below 90 degrees.")
    assert [call.name for call in sample.calls] == ["final_result"]


def test_a_sample_is_protected_before_anybody_sees_it():
    redactor = Redactor(("email",), (), "k")
    body = {"model": "m", "messages": [{"role": "user", "content": "Mail ada@example.com"}]}
    sample = Capture([], rate=1.0, salt="s", limit=LIMIT, protect=redactor.redact_sample).make(
        read(recording(body, answer("Sent to ada@example.com.")), LIMIT)
    )
    assert "example.com" not in f"{sample.question}{sample.response}"
    assert sample.question.removeprefix("Mail ") in sample.response


def captured(body, **options):
    return Capture([], rate=1.0, salt="s", limit=LIMIT, **options).make(read(recording(body), LIMIT))


def test_a_sample_says_how_it_was_found_and_its_instructions_are_protected_too():
    told = [{"role": "system", "content": "Write to ada@example.com."}, {"role": "user", "content": "How long?"}]
    body = {"model": "m", "messages": told}
    sample = captured(body, protect=Redactor(("email",), (), "k").redact_sample)
    instructions, question = sample.capture.parts
    assert (instructions.kind, instructions.start, instructions.end) == ("instructions", 0, 25)
    assert re.fullmatch(r"Write to \[EMAIL_[0-9a-f]{6}\]\.", instructions.text)
    assert (question.kind, question.message, question.text) == ("question", 1, "")
    assert (sample.capture.source, sample.capture.confidence) == ("none", None)
    bare = captured(body, content=False)
    assert bare.question == "How long?"  # the evaluation needs it, and the store hashes it
    assert [one.text for one in bare.capture.parts] == ["", ""]


@pytest.mark.parametrize("visible", range(1, 40, 3))
def test_a_secret_at_the_end_of_what_is_kept_is_redacted_as_a_whole(visible):
    secret = "sk-" + "4fZ81kQ0xW7b2Lm9" * 2
    rules = "r" * (MAX_INSTRUCTION_BYTES - visible - 1) + f" {secret} and more. " * 60
    told = [{"role": "system", "content": rules}, {"role": "user", "content": "How long?"}]
    sample = captured({"model": "m", "messages": told}, protect=Redactor(("secret",), (), "k").redact_sample)
    kept = sample.capture.parts[0].text
    assert sample.capture.shortened
    assert len(kept) == MAX_INSTRUCTION_BYTES
    assert secret[:4] not in kept


def session_capture(**options):
    redactor = Redactor(("email",), (), "salt")
    return Capture([], rate=1.0, salt="s", limit=LIMIT, protect=redactor.redact_sample, **options)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_summary_names_the_redacted_session_captured_or_not(read_only):
    capture = session_capture()
    found = recording(body={"model": "m", "messages": MESSAGES}, explicit=Explicit(session="anna@example.com"))
    made = [(summarise if read_only else make_sample)(capture, found) for _ in range(3)]  # instructions that recur
    result = made[-1]
    assert result.summary.conversation.startswith("[EMAIL_")
    assert result.summary.prompt == (None if read_only else result.sample.prompt)
    if not read_only:
        assert result.sample.session == result.summary.conversation
        assert result.sample.prompt is not None


def test_the_session_of_a_client_that_wants_no_capture_is_in_no_summary():
    found = recording(explicit=Explicit(session="s-7", capture=False))
    assert summarise(session_capture(), found).summary.conversation is None
    assert summarise(session_capture(), recording()).summary.conversation is None


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q?"}]
CHAT = {"prompt_tokens": 50, "completion_tokens": 20}
RESPONSES = {"input_tokens": 50, "output_tokens": 20}


@pytest.mark.parametrize(
    ("route", "usage", "cached", "written", "reasoning"),
    [
        ("chat_completions", CHAT, None, None, None),
        (
            "chat_completions",
            CHAT
            | {"prompt_tokens_details": {"cached_tokens": 9}, "completion_tokens_details": {"reasoning_tokens": 8}},
            9,
            None,
            8,
        ),
        (
            "chat_completions",
            CHAT | {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 7}},
            0,
            7,
            None,
        ),
        ("chat_completions", CHAT | {"prompt_tokens_details": {"cache_creation_tokens": 7}}, None, 7, None),
        (
            "responses",
            RESPONSES
            | {"input_tokens_details": {"cached_tokens": 9}, "output_tokens_details": {"reasoning_tokens": 8}},
            9,
            None,
            8,
        ),
        ("messages", RESPONSES | {"cache_read_input_tokens": 9, "cache_creation_input_tokens": 7}, 9, 7, None),
        ("chat_completions", CHAT | {"completion_tokens_details": {"reasoning_tokens": "8"}}, None, None, None),
        ("chat_completions", CHAT | {"completion_tokens_details": [8], "prompt_tokens_details": 9}, None, None, None),
    ],
)
def test_cache_and_reasoning_tokens_are_read_from_each_api(route, usage, cached, written, reasoning):
    found = read(recording(response={"id": "r", "model": "m", "usage": usage}, route=route), LIMIT).response.usage
    assert found == Usage(
        input_tokens=50,
        output_tokens=20,
        cached_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
    )


@pytest.mark.parametrize(
    ("odd", "text"),
    {
        "not UTF-8": (b"caf\xe9", "caf\ufffd"),
        "half an emoji": (b"\\ud83d!", "\ufffd!"),
        "an emoji in two halves": (b"\\ud83d\\ude00", "\U0001f600"),
        "a control character": (b"a\tb", "a\tb"),
    }.values(),
)
def test_a_body_is_read_although_a_strict_decoder_refuses_its_characters(odd, text):
    raw = json.dumps(answer("@")).encode().replace(b"@", odd).replace(b'"completion_tokens": 2', b'"cost": NaN')
    exchange = read(recording(raw=b"\xef\xbb\xbf" + raw), LIMIT)
    assert (exchange.response.text, exchange.response.usage.input_tokens) == (text, 5)
    asked = b'{"model": "m", "temperature": NaN, "messages": [{"role": "user", "content": "' + odd + b'"}]}'
    exchange = read(msgspec.structs.replace(recording(), request_body=asked), LIMIT)
    assert exchange.request.body["messages"][0]["content"] == text
    assert exchange.request.body["temperature"] is None


def test_what_is_no_json_is_an_error():
    for raw in (b"<html>", b'{"choices": [', b"[" * 100_000, b"NaN", b'"text"'):
        with pytest.raises(ValueError, match="response body is not"):
            read(recording(raw=raw), LIMIT)


PASSAGES = [
    "Mars has two moons, Phobos and Deimos. Both were found in 1877, by the same astronomer.",
    "Venus has no moon at all, and neither has Mercury, which is closer to the sun.",
    "Earth has one moon, Luna. It is the fifth largest of the solar system.",
]
PROMPTS = {
    "langchain": "Answer the question based only on the following context:\n{0}\n\nQuestion: How many moons has Mars?",
    "llamaindex": "Context information is below.\n---------------------\n{0}\n---------------------\n"
    "Given the context information and not prior knowledge, answer the query.\n"
    "Query: How many moons has Mars?\nAnswer: ",
    "separated": "Antworte nur mit diesen Auszügen.\n\n{1}\n\nFrage: How many moons has Mars?",
}
BODIES = {
    "chat_completions": lambda said: {"messages": [{"role": "user", "content": [{"type": "text", "text": said}]}]},
    "completions": lambda said: {"prompt": said},
    "responses": lambda said: {"input": [{"role": "user", "content": [{"type": "input_text", "text": said}]}]},
    "messages": lambda said: {"system": "Be\nbrief.", "messages": [{"role": "user", "content": said}]},
}


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("route", BODIES)
def test_a_prompt_with_crlf_is_read_as_one_with_line_feeds(name, route):
    def sample_of(body):
        decoder = capture_of(Settings(), "key", lambda _: None)
        return make_sample(decoder, recording(body, ANSWERS.get(route), route=route)).sample

    body = BODIES[route](PROMPTS[name].format("\n\n".join(PASSAGES), "\n---\n".join(PASSAGES)))
    lines, crlf = sample_of(body), sample_of(json.loads(json.dumps(body).replace(r"\n", r"\r\n")))
    assert [one.text for one in lines.contexts] == PASSAGES
    for field in ("question", "contexts", "context_source", "capture", "history"):
        assert getattr(crlf, field) == getattr(lines, field), field


ANSWERS = {"completions": {"choices": [{"text": "Two.", "finish_reason": "stop"}]}}

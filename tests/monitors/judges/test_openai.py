"""The judge over HTTP: what it sends, how it reads what comes back, what it does when that is no good."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import traceback

import numpy as np
import pytest
from msgspec.structs import replace

from gaugeway.settings.shared import Price
from monitors.judges import SPEND, JudgeError, Observer, Prompt, Spend
from monitors.judges import structured_output as reading
from monitors.judges.middleware.failure_log import advice_on
from monitors.judges.openai import MAX_THINKING, OpenAIJudge
from monitors.metrics.embeddings.openai import OpenAIEmbeddings
from monitors.metrics.judged import schemas as answers
from tests.support.llm_server import LLMServer, Mood, Reply, error

KEY = "sk-very-secret-0123456789"
PROMPT = Prompt(task="mood", version="1", system="Task: mood", user="How are you?")


GOOD = Reply(content={"mood": "good", "why": "sun"})


def ask(server, *, times=1, answer_type=Mood, prompt=PROMPT, **options):
    """Ask `times` times with one judge; the answers, or the JudgeErrors where there was none."""

    async def run():
        judge = OpenAIJudge(server.url, KEY, "judge-1", **{"max_retries": 0, "timeout_s": 5.0, **options})
        results = []
        try:
            for _ in range(times):
                try:
                    results.append(await judge.ask(prompt, answer_type))
                except JudgeError as failure:
                    results.append(failure)
        finally:
            await judge.aclose()
        return results

    return asyncio.run(run())


def test_the_answer_is_read_into_the_type_asked_for():
    with LLMServer(GOOD) as server:
        assert ask(server) == [Mood("good", "sun")]
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].body["temperature"] == 0.0
    assert server.requests[0].body["messages"] == [
        {"role": "system", "content": "Task: mood"},
        {"role": "user", "content": "How are you?"},
    ]


def test_the_schema_sent_is_strict_all_the_way_down():
    schema = reading.strict_schema(answers.ClaimsVerdicts)
    assert schema["type"] == "object"
    assert schema["required"] == ["noncommittal", "claims"]
    claim = schema["properties"]["claims"]["items"]
    assert claim["required"] == list(claim["properties"])
    assert claim["additionalProperties"] is schema["additionalProperties"] is False
    assert '"default"' not in json.dumps(schema)
    with LLMServer(GOOD) as server:
        ask(server)
    shape = server.requests[0].body["response_format"]
    assert shape["type"] == "json_schema"
    assert (shape["json_schema"]["name"], shape["json_schema"]["strict"]) == ("mood", True)
    assert shape["json_schema"]["schema"] == reading.strict_schema(Mood)


@pytest.mark.parametrize(
    "text",
    [
        'Here you are:\n```json\n{"mood": "bad", "why": "rain"}\n```\nAnything else?',
        '```\n{"mood": "bad", "why": "rain"}\n```',
        '<think>maybe {"mood": "good"}?</think>{"mood": "bad", "why": "rain"}',
        'In the set {x} I choose {"mood": "bad", "why": "rain", "extra": [1, {"a": 2}]}',
    ],
)
def test_fences_prose_and_thoughts_around_the_answer_do_not_matter(text):
    with LLMServer(Reply(content=text)) as server:
        assert ask(server) == [Mood("bad", "rain")]
    assert len(server.requests) == 1


@pytest.mark.full
@pytest.mark.parametrize(
    "content", ["{mood: good}", "no idea", '{"mood": "splendid"}', '{"why": "sun"}', '["good"]', '{"mood": 1}', ""]
)
def test_an_unreadable_answer_is_asked_for_once_more_and_then_fails(content):
    with LLMServer(Reply(content=content)) as server:
        (failure,) = ask(server)
    assert failure.kind == "unreadable"
    assert len(server.requests) == 2
    with LLMServer(Reply(content=content), GOOD) as server:
        assert ask(server) == [Mood("good", "sun")]
    assert '"additionalProperties": false' in server.requests[1].text, "the second asking spells the schema out"


def test_braces_without_end_are_given_up_on_quickly():
    started = time.thread_time()
    for text in ("{" * 200_000, '{"a":' * 50_000, "[" * 100_000):
        with pytest.raises(reading.UnreadableError):
            reading.read(text, Mood)
    assert time.thread_time() - started < 2.0


@pytest.mark.parametrize("body", [b"<html>502</html>", b"{}", b'{"choices": []}', b'{"choices": [{"message": null}]}'])
def test_a_reply_that_is_no_completion_is_unreadable(body):
    with LLMServer(Reply(body=body)) as server:
        (failure,) = ask(server)
    assert failure.kind == "unreadable"


def test_a_refusal_is_told_apart_and_not_asked_again():
    with LLMServer(Reply(refusal="I cannot help with that.")) as server:
        assert ask(server)[0].kind == "refused"
    assert len(server.requests) == 1
    with LLMServer(Reply(content="", finish_reason="content_filter")) as server:
        assert ask(server)[0].kind == "refused"


CAPPED = replace(PROMPT, output_cap=1_200)
CUT = Reply(content='{"mood": "good", "why": "sun and s', finish_reason="length")


def caps(server):
    """The bound on the answer's tokens in each request, by its name."""
    names = ("max_tokens", "max_completion_tokens")
    return [{name: request.body[name] for name in names if name in request.body} for request in server.requests]


@pytest.mark.parametrize("cut", [CUT, Reply(content='{"mood": "good", "why": "su'), Reply(content='{"mood": "good"')])
def test_a_truncated_answer_is_asked_for_once_more_with_twice_the_tokens_and_named_so(cut):
    with LLMServer(cut) as server:
        (failure,) = ask(server, prompt=CAPPED)
    assert failure.kind == "truncated"
    assert caps(server) == [{"max_tokens": 1_200}, {"max_tokens": 2_400}]
    with LLMServer(cut, GOOD) as server:
        assert ask(server, prompt=CAPPED) == [Mood("good", "sun")]
    assert "judge.model" not in advice_on("truncated")


def test_without_a_cap_none_is_sent():
    with LLMServer(GOOD) as server:
        ask(server)
    assert caps(server) == [{}]


@pytest.mark.parametrize("known", [("max_tokens",), ("max_completion_tokens",), ()])
def test_the_cap_goes_by_the_name_that_the_server_accepts_and_that_is_remembered(known):
    def answering(request):
        wrong = {"max_tokens", "max_completion_tokens"}.intersection(request.body).difference(known)
        return error(400, f"Unsupported parameter: '{min(wrong)}'", param=min(wrong)) if wrong else GOOD

    with LLMServer(answering) as server:
        assert ask(server, times=2, prompt=CAPPED) == [Mood("good", "sun")] * 2
    assert caps(server)[-2:] == [dict.fromkeys(known, 1_200)] * 2


def test_the_cap_is_lowered_to_what_the_server_allows():
    def answering(request):
        if request.body["max_tokens"] > 1_024:
            return error(
                400, "max_tokens is too large: 1200. This model supports at most 1024 tokens", param="max_tokens"
            )
        return GOOD

    with LLMServer(answering) as server:
        assert ask(server, times=2, prompt=CAPPED) == [Mood("good", "sun")] * 2
    assert caps(server) == [{"max_tokens": 1_200}, {"max_tokens": 1_024}, {"max_tokens": 1_024}]


def test_a_cap_beyond_the_context_window_is_left_out_of_this_request_only():
    def answering(request):
        if "max_tokens" in request.body and "long" in request.text:
            return error(400, "maximum context length is 2048 tokens; you requested 3000 (1800 in the messages)")
        return GOOD

    with LLMServer(answering) as server:
        assert ask(server, prompt=replace(CAPPED, user="long")) == [Mood("good", "sun")]
        assert ask(server, prompt=CAPPED) == [Mood("good", "sun")]
    assert caps(server) == [{"max_tokens": 1_200}, {}, {"max_tokens": 1_200}]


@pytest.mark.parametrize("content", ["", "<think>The user asks"])
def test_a_model_that_thinks_gets_tokens_for_that_as_well(content):
    with LLMServer(Reply(content=content, finish_reason="length"), GOOD) as server:
        assert ask(server, times=2, prompt=CAPPED) == [Mood("good", "sun")] * 2
    assert [cap["max_tokens"] for cap in caps(server)] == [1_200, 2_400 + MAX_THINKING, 1_200 + MAX_THINKING]


def test_lists_are_bounded_unless_the_server_refuses_that():
    def answering(request):
        if "maxItems" in json.dumps(request.body["response_format"]):
            return error(
                400, "Invalid schema: In context=('claims',), 'maxItems' is not permitted", param="response_format"
            )
        return Reply(content={"noncommittal": True, "claims": []})

    with LLMServer(answering) as server:
        ask(server, times=2, answer_type=answers.Claims)
    assert [request.body["response_format"]["type"] for request in server.requests] == ["json_schema"] * 3
    claims = server.requests[0].body["response_format"]["json_schema"]["schema"]["properties"]["claims"]
    assert claims == {"type": "array", "maxItems": answers.MAX_ITEMS, "items": {"type": "string"}}


@pytest.mark.parametrize("claims", [["x"] * (answers.MAX_ITEMS + 1), ["x" * (answers.MAX_TEXT + 1)]])
def test_an_answer_beyond_the_bounds_is_not_taken(claims):
    with LLMServer(Reply(content={"noncommittal": False, "claims": claims})) as server:
        (failure,) = ask(server, answer_type=answers.Claims)
    assert failure.kind == "unreadable"


def test_a_refused_json_schema_falls_back_to_json_mode_and_that_is_remembered():
    def answering(request):
        if request.body["response_format"]["type"] == "json_schema":
            return error(400, "This response_format type is unavailable now", param="response_format")
        return GOOD

    with LLMServer(answering) as server:
        assert ask(server, times=2) == [Mood("good", "sun")] * 2
    kinds = [request.body["response_format"]["type"] for request in server.requests]
    assert kinds == ["json_schema", "json_object", "json_object"]
    assert json.dumps(reading.strict_schema(Mood)) in server.requests[1].body["messages"][0]["content"]
    assert server.requests[1].body["messages"][1] == {"role": "user", "content": "How are you?"}


def test_a_server_without_json_mode_is_asked_in_plain_words():
    def answering(request):
        if "response_format" in request.body:
            return error(422, "extra fields not permitted: response_format")
        return Reply(content='Gladly: {"mood": "good", "why": "sun"}')

    with LLMServer(answering) as server:
        assert ask(server, times=2) == [Mood("good", "sun")] * 2
    assert [("response_format" in request.body) for request in server.requests] == [True, True, False, False]
    assert "JSON schema" in server.requests[-1].text


def test_another_bad_request_is_no_reason_to_fall_back():
    with LLMServer(error(400, "This model's maximum context length is 8192 tokens")) as server:
        (failure,) = ask(server)
    assert failure.kind == "context_overflow"
    assert "maximum context length" in failure.detail
    assert len(server.requests) == 1
    with LLMServer(error(400, "'messages' must not be empty")) as server:
        assert ask(server)[0].kind == "bad_request"
    assert len(server.requests) == 1


TOO_LONG = (
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens (8500 in the "
    "messages, 500 in the response_format schemas). Unsupported. Please reduce the length of the messages or schemas."
)


@pytest.mark.parametrize("code", ["context_length_exceeded", None])
def test_a_sample_that_is_too_long_leaves_structured_output_on(code):
    body = {"error": {"message": TOO_LONG if code is None else "response_format unsupported", "code": code}}
    refusal = Reply(status=400, body=json.dumps(body).encode())
    with LLMServer(refusal, GOOD) as server:
        failure, answer = ask(server, times=2)
    assert (failure.kind, answer) == ("context_overflow", Mood("good", "sun"))
    kinds = [request.body["response_format"]["type"] for request in server.requests]
    assert kinds == ["json_schema", "json_schema"]


def test_words_of_the_sample_in_a_refusal_are_no_reason_to_fall_back():
    echo = error(400, "Flagged as harmful: 'which temperature and json_schema do I need for'")
    with LLMServer(echo, GOOD) as server:
        assert ask(server, times=2)[0].kind == "bad_request"
    assert len(server.requests) == 2
    assert server.requests[1].body["response_format"]["type"] == "json_schema"
    assert "temperature" in server.requests[1].body


def test_what_did_not_help_is_not_remembered():
    refusals = [
        error(400, "'temperature' is not supported"),
        error(400, "response_format is not supported"),
        error(400, "no"),
    ]
    with LLMServer(*refusals, GOOD) as server:
        assert ask(server, times=2)[1] == Mood("good", "sun")
    assert "temperature" in server.requests[3].body
    assert server.requests[3].body["response_format"]["type"] == "json_schema"


def test_half_a_surrogate_pair_is_cleaned_and_a_whole_one_kept():
    escaped = r'{"mood": "good", "why": "\ud83d a \ud83d\ude00 b \\ud83d c \uDE00 \u00e9"}'
    assert reading.read(escaped, Mood) == Mood("good", "? a \U0001f600 b \\ud83d c ? \u00e9")
    assert reading.read('{"mood": "good", "why": "\ud83d"}', Mood) == Mood("good", "?")


def test_a_model_that_takes_no_temperature_is_asked_without():
    def answering(request):
        if "temperature" in request.body:
            return error(400, "Unsupported value: 'temperature' does not support 0.0", param="temperature")
        return GOOD

    with LLMServer(answering) as server:
        assert ask(server, times=2) == [Mood("good", "sun")] * 2
    assert len(server.requests) == 3
    assert all(request.body["response_format"]["type"] == "json_schema" for request in server.requests)


def test_too_many_requests_are_repeated_when_the_server_says_so():
    busy = error(429, "slow down", headers={"retry-after": "0.3"})
    with LLMServer(busy, GOOD) as server:
        started = time.perf_counter()
        assert ask(server, max_retries=1) == [Mood("good", "sun")]
        assert time.perf_counter() - started >= 0.3
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate_limited"), (500, "server_error"), (503, "server_error"), (401, "bad_request"), (404, "bad_request")],
)
def test_a_status_becomes_the_kind_of_the_error(status, kind):
    with LLMServer(error(status, "no")) as server:
        assert ask(server)[0].kind == kind


def test_a_server_error_is_repeated_as_often_as_configured():
    broken = error(500, "oops", headers={"retry-after-ms": "5"})
    with LLMServer(broken, broken, GOOD) as server:
        assert ask(server, max_retries=2) == [Mood("good", "sun")]
    assert len(server.requests) == 3


def test_the_deadline_holds_for_all_retries_together():
    with LLMServer(Reply(delay_s=300.0)) as server:
        started = time.perf_counter()
        (failure,) = ask(server, timeout_s=0.3, max_retries=500)
        assert time.perf_counter() - started < 60.0
    assert failure.kind == "timeout"


def test_a_server_that_is_not_there_is_a_connection_error():
    with LLMServer() as server:
        pass
    assert ask(server)[0].kind == "connection"


def test_no_more_than_the_configured_number_of_questions_are_under_way():
    async def run(url):
        judge = OpenAIJudge(url, None, "m", concurrency=2, max_retries=0)
        started = time.perf_counter()
        await asyncio.gather(*(judge.ask(PROMPT, Mood) for _ in range(6)))
        await judge.aclose()
        return time.perf_counter() - started

    with LLMServer(Reply(content=GOOD.content, delay_s=0.1)) as server:
        assert asyncio.run(run(server.url)) >= 0.3


class Told(Observer):
    """An observer that remembers."""

    def __init__(self):
        self.calls, self.failures = [], []

    def judged(self, model, seconds, input_tokens, output_tokens, usd):
        assert seconds >= 0
        self.calls.append((model, input_tokens, output_tokens, usd))

    def failed(self, model, kind):
        self.failures.append((model, kind))


def test_every_answered_call_is_paid_for_and_every_failed_question_told_once():
    told = Told()
    tab = Spend()

    async def run(url):
        SPEND.set(tab)
        judge = OpenAIJudge(
            url, KEY, "judge-1", max_retries=0, price=Price(input=2.0, output=8.0), observer=told, timeout_s=5.0
        )
        await judge.ask(PROMPT, Mood)
        with contextlib.suppress(JudgeError):
            await judge.ask(PROMPT, Mood)
        await judge.aclose()

    usd = (100 * 2.0 + 50 * 8.0) / 1e6
    with LLMServer(Reply(content=GOOD.content, tokens=(100, 50)), Reply(content="?", tokens=(100, 50))) as server:
        asyncio.run(run(server.url))
    assert told.calls == [("judge-1", 100, 50, pytest.approx(usd))] * 3
    assert told.failures == [("judge-1", "unreadable")]
    assert (tab.calls, tab.input_tokens, tab.output_tokens) == (3, 300, 150)
    assert tab.usd == pytest.approx(3 * usd)


@pytest.mark.parametrize("odd", [10**30, -5])
def test_tokens_that_cannot_be_are_not_counted(odd):
    told = Told()
    with LLMServer(Reply(content=GOOD.content, tokens=(odd, 50))) as server:
        ask(server, price=Price(input=2.0, output=8.0), observer=told)
    assert told.calls == [("judge-1", 0, 50, pytest.approx(50 * 8.0 / 1e6))]


def test_the_key_is_in_no_error_no_traceback_and_no_log(caplog):
    caplog.set_level(logging.DEBUG)
    echo = error(401, f"Incorrect API key provided: {KEY}")
    with LLMServer(echo) as server:
        (failure,) = ask(server)
    assert failure.detail.endswith("Incorrect API key provided: ***")
    printed = "".join(traceback.format_exception(failure))
    assert KEY not in printed + str(failure) + failure.detail + caplog.text
    with pytest.raises(ValueError, match="api_key") as caught:
        OpenAIJudge("http://127.0.0.1:9/v1", f"{KEY}\u2026", "m")
    assert KEY not in str(caught.value)


def test_the_environment_of_the_sdk_changes_nothing(monkeypatch):
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "from-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    with LLMServer(GOOD) as server:
        assert ask(server) == [Mood("good", "sun")]
    assert "from-the-environment" not in str(server.requests[0].headers)


def embed(server, texts, **options):
    async def run():
        embeddings = OpenAIEmbeddings(server.url, KEY, "e-1", **options)
        try:
            return await embeddings.embed(texts)
        finally:
            await embeddings.aclose()

    return asyncio.run(run())


def test_embeddings_come_in_the_order_of_the_texts():
    with LLMServer(vectors={"a": [1.0, 0.0], "b": [0.0, 2.0]}) as server:
        np.testing.assert_array_equal(embed(server, ["b", "a"]), [[0.0, 2.0], [1.0, 0.0]])
        assert embed(server, []).shape == (0, 0)
    rows = [{"index": 1, "embedding": [3.0]}, {"index": 0, "embedding": [4.0]}]
    with LLMServer(Reply(body=json.dumps({"data": rows}).encode())) as server:
        np.testing.assert_array_equal(embed(server, ["x", "y"]), [[4.0], [3.0]])


@pytest.mark.parametrize(
    "data",
    [
        [],
        [{"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}],
        [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}],
        [{"index": 0, "embedding": ["x"]}, {"index": 1, "embedding": [1.0]}],
    ],
)
def test_embeddings_that_do_not_match_the_texts_are_unreadable(data):
    with LLMServer(Reply(body=json.dumps({"data": data}).encode())) as server, pytest.raises(JudgeError) as caught:
        embed(server, ["x", "y"])
    assert caught.value.kind == "unreadable"


def test_errors_of_embeddings_are_those_of_a_judge():
    with LLMServer(error(400, f"bad {KEY}")) as server, pytest.raises(JudgeError) as caught:
        embed(server, ["x"])
    assert (caught.value.kind, KEY in caught.value.detail) == ("bad_request", False)
    with LLMServer(Reply(delay_s=30.0)) as server, pytest.raises(JudgeError) as caught:
        embed(server, ["x"], timeout_s=0.2)
    assert caught.value.kind == "timeout"

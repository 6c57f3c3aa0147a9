"""Verifiers that misbehave: no wrong score, every failure its reason, the traffic of others undisturbed."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import threading
import time

import pytest

from gaugeway.records import Failed, Score
from gaugeway.runtime.tasks import spawn
from tests.support.grounding import FALSE, KINDS, TRUE, Opened, run, sample, table
from tests.support.llm_server import LLMServer, Reply, Request
from tests.support.verifier_server import VerifierServer, refused

NESTED = b'{"a":' * 100_000
ROW = [{"label": "consistent", "score": 0.9}, {"label": "hallucinated", "score": 0.1}]
SHAPES = {
    "classify predict": [
        {"a": 1},
        [ROW[0], ROW[1]],
        [[]] * 2,
        [[{"label": "consistent", "score": "high"}]] * 2,
        [[{"label": "consistent", "score": 7.0}]] * 2,
        [[{"label": "consistent", "score": -0.5}]] * 2,
        [[ROW[0], ROW[0]]] * 2,
        [ROW] * 3,
        [],
    ],
    "classify classify": [
        {"data": [{"index": 1, "probs": [0.1, 0.9]}]},
        {"data": [{"index": 0, "probs": [0.1, 0.9]}, {"index": 0, "probs": [0.1, 0.9]}]},
        {"data": [{"index": one, "probs": []} for one in range(2)]},
        {"data": [{"index": one, "probs": [0.2, 0.3, 0.5]} for one in range(2)]},
        {"data": [{"index": one, "probs": [0.2, 1e308]} for one in range(2)]},
        {"data": {}},
        [],
    ],
    "lettucedetect spans": [
        {"predictions": [{"start": 0, "end": 10_000, "text": "x", "hallucination_score": 0.9}]},
        {"predictions": [{"start": 5, "end": 5, "text": "", "hallucination_score": 0.9}]},
        {"predictions": [{"start": -3, "end": 5, "text": "", "hallucination_score": 0.9}]},
        {"predictions": [{"start": 0, "end": 5, "text": "", "hallucination_score": 1.5}]},
        {
            "predictions": [
                {"start": 0, "end": 9, "hallucination_score": 1},
                {"start": 3, "end": 5, "hallucination_score": 1},
            ]
        },
        {"predictions": [{"start": one, "end": one + 1, "hallucination_score": 1} for one in range(5)] * 300},
        {"spans": []},
        [],
    ],
    "lettucedetect tokens": [
        {"predictions": []},
        {"predictions": [{"token": "Quite", "hallucination_score": 0.1}, {"token": "else", "hallucination_score": 0}]},
        {"predictions": [{"token": "The", "hallucination_score": 3}]},
        {"predictions": {}},
    ],
    "lettucedetect chat": [
        {"hallucinated_spans": [{"text": "not in the answer", "category": "contradiction", "subcategory": "value"}]},
        {"hallucinated_spans": [{"text": TRUE, "category": "fine", "subcategory": "value"}]},
        {"hallucinated_spans": [{"text": "T", "category": "contradiction", "subcategory": "value"}] * 1001},
        {"hallucination_list": []},
        "No hallucinations found.",
    ],
    "minicheck": ["Maybe", "", {"yes": 1}],
}
CHAT = ("lettucedetect chat", "minicheck")


def reply_of(name, shape):
    return Reply(content=shape) if name in CHAT else Reply(body=json.dumps(shape).encode())


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, some in SHAPES.items() for shape in some])
def test_a_reply_that_does_not_fit_the_request_is_no_score(name, shape):
    with LLMServer(reply_of(name, shape), api_path="") as server:
        opened = Opened(table(name, server.url))
        (found,) = run(opened, sample())
    assert isinstance(found.outcome, Failed)
    assert found.outcome.error == "unreadable"
    if name != "lettucedetect chat":  # quotes are compared with the answer after the endpoint answered
        assert opened.count("judge_errors_total", judge_model=opened.verifier.model, error="unreadable") >= 1


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(body=b"<!doctype html><h1>502</h1>"), "unreadable"),
        (Reply(body=b""), "unreadable"),
        (Reply(body=b"[[NaN]]"), "unreadable"),
        (Reply(body=NESTED), "unreadable"),
        (Reply(body=b"\xff\xfe\x00"), "unreadable"),
        (Reply(body=b" " * (17 * 2**20)), "too_large"),
        (Reply(body=gzip.compress(b" " * (64 * 2**20)), headers={"content-encoding": "gzip"}), "too_large"),
        (Reply(body=b"x", headers={"content-encoding": "br"}), "unreadable"),
        (Reply(status=302, body=b"", headers={"location": "http://127.0.0.1:9/"}), "bad_request"),
        (refused(401, "bad key key-123"), "bad_request"),
        (refused(429, "Model is overloaded", "Overloaded"), "rate_limited"),
        (refused(500, "out of memory"), "server_error"),
        (refused(503, "starting"), "server_error"),
    ],
)
def test_every_failure_has_its_reason_and_none_shows_the_key(name, reply, error):
    with LLMServer(reply, api_path="") as server:
        (found,) = run(Opened(table(name, server.url, api_key="key-123")), sample(TRUE))
    assert isinstance(found.outcome, Failed)
    assert found.outcome.error == error
    assert "key-123" not in found.outcome.detail
    assert len(found.outcome.detail) <= 500


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_probability_that_is_no_number_is_no_score(token):
    body = f'[[{{"label": "consistent", "score": {token}}}]]'.encode()
    with LLMServer(Reply(body=body), api_path="") as server:
        (found,) = run(Opened(table("classify predict", server.url)), sample(TRUE))
    assert found.outcome.error == "unreadable"


def test_log_probabilities_that_are_missing_once_do_not_switch_minicheck_off():
    with VerifierServer() as good:
        replies = [Reply(content="Yes"), good.answer]
        with LLMServer(*replies, api_path="") as server:
            opened = Opened(table("minicheck", server.url))
            first, second = run(opened, sample(TRUE, id="1"), sample(FALSE, id="2"), at_once=False)
    assert first.outcome.error == "unreadable"
    assert second.outcome.value < 0.1


@pytest.mark.parametrize(("max_retries", "asked"), [(0, 1), (1, 2)])
@pytest.mark.parametrize(("name", "reply"), [("minicheck", "Maybe"), ("lettucedetect chat", "none")])
def test_an_unreadable_reply_is_asked_for_again_only_with_retries(name, reply, max_retries, asked):
    logprobs = {"content": [{"token": reply, "logprob": -0.1, "top_logprobs": []}]}
    choice = {"message": {"content": reply}, "finish_reason": "stop", "logprobs": logprobs}
    with LLMServer(Reply(body=json.dumps({"choices": [choice]}).encode()), api_path="") as server:
        (found,) = run(Opened(table(name, server.url, max_retries=max_retries)), sample(TRUE))
        assert len(server.requests) == asked
    assert found.outcome.error == "unreadable"
    assert found.outcome.detail in ("expected Yes or No, got 'Maybe'", "the reply contains no JSON object")


def test_minicheck_refuses_a_positive_log_probability():
    logprobs = {"content": [{"token": "Yes", "logprob": 4, "top_logprobs": []}]}
    choice = {"message": {"content": "Yes"}, "finish_reason": "stop", "logprobs": logprobs}
    with LLMServer(Reply(body=json.dumps({"choices": [choice]}).encode()), api_path="") as server:
        (found,) = run(Opened(table("minicheck", server.url)), sample(TRUE))
    assert (found.outcome.error, found.outcome.detail) == ("unreadable", "log-probability 4 of 'Yes' is positive")


@pytest.mark.parametrize("refuses", [False, True])
def test_minicheck_asks_for_few_tokens_and_takes_a_reply_that_was_cut(refuses):
    def answer(request: Request) -> Reply:
        if refuses and "max_tokens" in request.body:
            body = {"error": {"message": "Unsupported parameter: 'max_tokens'", "param": "max_tokens"}}
            return Reply(status=400, body=json.dumps(body).encode())
        logprobs = {
            "content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": []}, {"token": ", for", "logprob": 0}]
        }
        choice = {"message": {"content": "Yes, for"}, "finish_reason": "length", "logprobs": logprobs}
        return Reply(body=json.dumps({"choices": [choice]}).encode())

    with LLMServer(answer, api_path="") as server:
        (found,) = run(Opened(table("minicheck", server.url)), sample(TRUE))
        bounds = [request.body.get("max_tokens") for request in server.requests]
    assert found.outcome.value == pytest.approx(math.exp(-0.1))
    assert bounds == ([4, None] if refuses else [4])


def test_a_server_without_log_probabilities_is_named():
    def refuse(request: Request) -> Reply:
        if "logprobs" not in request.body:
            return Reply(content="Yes")
        body = {"error": {"message": "logprobs is not supported", "param": "logprobs", "type": "invalid"}}
        return Reply(status=400, body=json.dumps(body).encode())

    with LLMServer(refuse, api_path="") as server:
        (found,) = run(Opened(table("minicheck", server.url)), sample(TRUE))
    assert isinstance(found.outcome, Failed)
    assert "log-probabilities" in found.outcome.detail


@pytest.mark.parametrize("name", KINDS)
def test_a_slow_server_costs_a_timeout_and_no_more(name):
    with LLMServer(Reply(delay_s=20.0, body=b"[]"), api_path="") as server:
        opened = Opened(table(name, server.url, timeout_s=0.3))
        started = time.monotonic()
        (found,) = run(opened, sample())
        assert time.monotonic() - started < 10.0
    assert found.outcome.error == "timeout"


@pytest.mark.parametrize("name", KINDS)
def test_in_an_outage_the_circuit_opens_and_closes_again(name):
    down = threading.Event()
    down.set()

    def answer(request: Request) -> Reply:
        return refused(503, "down") if down.is_set() else good.answer(request)

    with VerifierServer() as good, LLMServer(answer, api_path="") as server:
        opened = Opened(table(name, server.url), blind_after=3, blind_s=0.2, cache="off")
        model = opened.verifier.model

        async def main():
            try:
                failed = await opened.scores(*[sample(id=str(one)) for one in range(6)], at_once=False)
                blind, asked = opened.count("judge_blind", judge_model=model, role="verifier"), len(server.requests)
                down.clear()
                for one in range(100):
                    await asyncio.sleep(0.1)
                    (last,) = await opened.scores(sample(TRUE, id=f"later-{one}"))
                    if isinstance(last.outcome, Score):
                        break
                return failed, blind, asked, last
            finally:
                await opened.verifier.aclose()

        failed, blind, asked, last = asyncio.run(main())
    assert {one.outcome.error for one in failed} <= {"server_error", "blind"}
    assert blind == 1
    assert asked <= 9, "three failures, then a probe from time to time: twelve pairs were not asked about"
    assert isinstance(last.outcome, Score)
    assert opened.count("judge_blind", judge_model=model, role="verifier") == 0


@pytest.mark.parametrize("name", ["minicheck", "lettucedetect spans"])
@pytest.mark.parametrize("concurrency", [16, 4])
def test_a_server_that_never_answers_opens_the_circuit_within_its_retries(name, concurrency):
    with LLMServer(Reply(delay_s=60.0, body=b"[]"), api_path="") as server:
        limits = {"timeout_s": 2.0, "max_retries": 2, "concurrency": concurrency}
        opened = Opened(table(name, server.url, **limits), blind_after=10)
        found = run(opened, *[sample(f"{TRUE} {FALSE} {one}", id=str(one)) for one in range(60)])
        asked = len(server.requests)
    assert opened.count("judge_blind", judge_model=opened.verifier.model, role="verifier") == 1
    assert 0 < asked < 40, "what waited for a place when the circuit opened was not sent"
    assert {one.outcome.error for one in found} == {"blind"}


def test_answers_to_some_of_the_pairs_are_not_taken_for_those_of_others():
    def first_only(request: Request) -> Reply:
        rows = json.loads(good.answer(request).body)
        return Reply(body=json.dumps(rows[:1]).encode())

    with VerifierServer() as good, LLMServer(first_only, api_path="") as server:
        (found,) = run(Opened(table("classify predict", server.url)), sample(f"{FALSE} {TRUE}"))
    assert [one["verdict"] for one in found.outcome.evidence] == ["not_mentioned", "supported"]
    assert [len(request.body["inputs"]) for request in server.requests] == [2, 1, 1]


def test_one_pair_that_the_server_refuses_does_not_fail_the_others():
    poison = "This one is poison for the model."

    def picky(request: Request) -> Reply:
        if any(poison in claim for _, claim in request.body["inputs"]):
            return refused(422, "Tokenization error", "Tokenizer")
        return good.answer(request)

    with VerifierServer() as good, LLMServer(picky, api_path="") as server:
        opened = Opened(table("classify predict", server.url))
        found = run(
            opened,
            *[sample(poison if one == 7 else TRUE, id=str(one), passages=(f"{TRUE} {one}",)) for one in range(16)],
        )
    assert [isinstance(one.outcome, Failed) for one in found] == [one == 7 for one in range(16)]
    assert len(server.requests) <= 9


def test_a_caller_that_gives_up_does_not_stop_the_batch_of_the_others():
    with VerifierServer() as good:

        def slow(request: Request) -> Reply:
            reply = good.answer(request)
            return Reply(body=reply.body, delay_s=0.5)

        with LLMServer(slow, api_path="") as server:
            opened = Opened(table("classify predict", server.url))

            async def main():
                leaving = spawn(opened.metric.score(sample(f"{TRUE} {FALSE}", id="1")), name="answer")
                staying = spawn(opened.metric.score(sample(TRUE, id="2", app="shop")), name="answer")
                await asyncio.sleep(0.2)
                leaving.cancel()
                score = await staying
                await opened.verifier.aclose()
                return score

            assert isinstance(asyncio.run(main()), Score)


def row(*labels):
    return Reply(body=json.dumps([[{"label": one, "score": 0.5} for one in labels]]).encode())


@pytest.mark.parametrize(
    ("name", "reply", "advice"),
    [
        ("classify predict", row("A", "B"), "set judge.grounding.label to the label that means supported"),
        ("classify predict", Reply(body=b"[]"), "the reply does not have the format of /predict"),
        (
            "classify predict",
            Reply(body=b'[[{"label": "1", "score": NaN}]]'),
            "the reply does not have the format of /predict",
        ),
        ("classify predict", refused(404, "gone"), "judge.grounding.base_url ends before /predict"),
        (
            "classify predict",
            refused(413, "batch size 2 > maximum allowed batch size 1"),
            "lower judge.grounding.batch_size",
        ),
        ("classify classify", refused(404, "gone"), "judge.grounding.base_url ends before /classify"),
        ("lettucedetect spans", refused(404, "gone"), "judge.grounding.base_url ends before /v1/lettucedetect/spans"),
        ("minicheck", refused(404, "gone"), "judge.grounding.base_url ends before /chat/completions"),
        ("minicheck", Reply(content="Yes"), "the model does not answer Yes or No with log-probabilities"),
        ("lettucedetect chat", Reply(content="none"), "the model does not return the requested JSON"),
    ],
)
def test_the_log_says_what_to_do_about_a_verifier_that_fails(caplog, name, reply, advice):
    with LLMServer(reply, api_path="") as server:
        opened = Opened(table(name, server.url))
        run(opened, sample(TRUE))
    (line,) = [one.message for one in caplog.records if " failed (" in one.message]
    assert line.startswith(f"verifier {opened.verifier.model} at {server.url} failed (")
    assert advice in line


@pytest.mark.full
@pytest.mark.parametrize("retry_after", ["86400", "5"])
@pytest.mark.parametrize("name", ["classify predict", "minicheck"])
def test_a_verifier_that_is_always_busy_opens_its_circuit_and_holds_up_nobody(name, retry_after):
    """Each answer fails at once instead of waiting for the Retry-After, which is longer than the time limit."""
    busy = Reply(status=429, body=b'{"error": "busy"}', headers={"retry-after": retry_after})
    with LLMServer(busy, api_path="/v1" if name == "minicheck" else "") as server:
        url = server.url.removesuffix("/v1") if name == "minicheck" else server.url
        opened = Opened(table(name, url, timeout_s=3.0, max_retries=1), blind_after=5)

        async def main():
            async with asyncio.timeout(30.0):  # 150 answers waited for hours
                try:
                    return await opened.scores(*(sample(id=str(one)) for one in range(150)))
                finally:
                    await opened.verifier.aclose()

        found = asyncio.run(main())
    assert {one.outcome.error for one in found} == {"rate_limited", "blind"}
    assert opened.count("judge_blind", judge_model=opened.verifier.model, role="verifier") == 1.0
    assert len(server.requests) < 30

"""What an endpoint says beside its words, probabilities; Azure's form; and how an endpoint wants to be asked."""

from __future__ import annotations

import asyncio
import json
import math

import msgspec
import pytest

from gaugeway.settings.shared import Price
from monitors.judges import SPEND, JudgeError, Observer, Prompt, Spend
from monitors.judges.openai import OpenAIJudge
from monitors.judges.openai_client import Alternative, Token
from monitors.judges.scripted import Scripted
from monitors.judges.structured_output import choice_in, strict_schema, sureness, weights
from tests.support.llm_server import LLMServer, Mood, Reply, error

PROMPT = Prompt(task="geval", version="1", system="Task: geval", user="How good?")
SCALE = ("1", "2", "3", "4", "5")


def token(text, chance=1.0, **others):
    alternatives = {text: chance, **{name.replace("_", " "): one for name, one in others.items()}}
    return Token(text, math.log(chance), [Alternative(name, math.log(one)) for name, one in alternatives.items()])


def completion(*tokens, logprobs=True, usage=None):
    """A reply whose words and probabilities are those of `tokens`."""
    content = "".join(one.token for one in tokens)
    choice = {"message": {"content": content}, "finish_reason": "stop"}
    if logprobs:
        choice["logprobs"] = {"content": [msgspec.to_builtins(one) for one in tokens]}
    usage = usage or {"prompt_tokens": 100, "completion_tokens": 10}
    return Reply(body=json.dumps({"choices": [choice], "usage": usage}).encode())


def run(server, ask, *, url=None, **options):
    async def judging():
        judge = OpenAIJudge(url or server.url, "key-1", "judge-1", **{"max_retries": 0, "timeout_s": 5.0, **options})
        try:
            return await ask(judge)
        finally:
            await judge.aclose()

    return asyncio.run(judging())


def test_the_score_tokens_alternatives_are_weighed_over_the_choices():
    reply = completion(token("4", 0.6, **{"5": 0.2, "3": 0.1, " 4": 0.05, "four": 0.05}))
    with LLMServer(reply) as server:
        found = run(server, lambda judge: judge.ask_scored(PROMPT, SCALE))
    assert found == pytest.approx({"1": 0.0, "2": 0.0, "3": 0.1, "4": 0.65, "5": 0.2, "four": 0.05})
    body = server.requests[0].body
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
    assert "response_format" not in body
    assert body["messages"][0]["content"].endswith("Answer with one of these and nothing else: 1, 2, 3, 4, 5")


def test_an_endpoint_without_probabilities_gives_none_and_is_not_asked_again():
    async def twice(judge):
        return [await judge.ask_scored(PROMPT, SCALE) for _ in range(2)]

    with LLMServer(completion(token("4"), logprobs=False)) as server:
        assert run(server, twice) == [None, None]
    assert len(server.requests) == 1

    def answering(request):
        if "logprobs" in request.body:
            return error(400, "This model does not support logprobs.", param="logprobs")
        return completion(token("4"), logprobs=False)

    with LLMServer(answering) as server:
        assert run(server, twice) == [None, None]
        assert [request.body.get("top_logprobs") for request in server.requests] == [20, 5, None]


def test_a_server_that_gives_five_alternatives_is_asked_for_five():
    def answering(request):
        if request.body["top_logprobs"] > 5:
            return error(400, "Requested sample logprobs of 20, which is greater than max allowed: 5")
        return completion(token("2", 0.9))

    async def twice(judge):
        return [await judge.ask_scored(PROMPT, SCALE) for _ in range(2)]

    with LLMServer(answering) as server:
        assert run(server, twice) == [pytest.approx({"1": 0.0, "2": 0.9, "3": 0.0, "4": 0.0, "5": 0.0})] * 2
    assert [request.body["top_logprobs"] for request in server.requests] == [20, 5, 5]


@pytest.mark.parametrize("text", ["eleven", "4 or 5", "", "7", "4.5", "-4"])
def test_an_answer_that_states_no_choice_is_asked_for_once_more_and_then_unreadable(text):
    with LLMServer(completion(token(text or " "))) as server, pytest.raises(JudgeError) as caught:
        run(server, lambda judge: judge.ask_scored(PROMPT, SCALE))
    assert caught.value.kind == "unreadable"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4", (0, "4")),
        ('"4"', (1, "4")),
        ("Score: 4.", (7, "4")),
        ('{"reason": "1 of 2 parts", "score": 3}', (36, "3")),
        ("**5**", (2, "5")),
        ("10", None),
        ("3 to 4", None),
    ],
)
def test_the_choice_is_found_where_it_is_stated(text, found):
    assert choice_in(text, SCALE) == found


def test_a_choice_of_several_tokens_gets_what_its_first_one_has():
    scale = ("1", "2", "10")
    assert weights([token("1", 0.8, **{"2": 0.2}), token("0", 0.9)], scale)["10"] == pytest.approx(0.0)
    good = ("good", "bad")
    found = weights([token("go", 0.6, bad=0.3), token("od", 0.9)], good)
    assert found == pytest.approx({"good": 0.6, "bad": 0.3})


def test_odd_probabilities_are_no_probabilities():
    with pytest.raises(ValueError, match="log-probability 4 of '4' is positive"):
        weights([Token("4", 4.0)], SCALE)
    assert weights([Token("4", 1e-6)], SCALE)["4"] == 1.0
    assert weights([Token("4", None)], SCALE) is None
    assert weights([Token("4", math.nan)], SCALE) is None
    assert weights([], SCALE) is None
    with LLMServer(Reply(body=b'{"choices": [{"message": {"content": "4"}, "logprobs": {"content": "x"}}]}')) as server:
        assert run(server, lambda judge: judge.ask_scored(PROMPT, SCALE)) is None


def test_a_judge_is_as_sure_as_of_its_least_likely_verdict():
    parts = [token('{"'), token("mood"), token('": "'), token("go", 0.9), token("od", 0.8)]
    plain = [*parts, token('", "why": "sun"}', 0.1)]
    assert sureness(plain, strict_schema(Mood)) == pytest.approx(0.72)
    assert sureness([], strict_schema(Mood)) is None
    with LLMServer(completion(*plain)) as server:
        answer, sure = run(server, lambda judge: judge.ask_sure(PROMPT, Mood))
    assert (answer, sure) == (Mood("good", "sun"), pytest.approx(0.72))
    assert server.requests[0].body["response_format"]["type"] == "json_schema"
    with LLMServer(completion(*plain, logprobs=False)) as server:
        assert run(server, lambda judge: judge.ask_sure(PROMPT, Mood)) == (Mood("good", "sun"), None)


def test_a_judge_that_knows_no_probabilities_is_no_obstacle():
    judge = Scripted({"geval": {"mood": "bad"}})
    assert asyncio.run(judge.ask_scored(PROMPT, SCALE)) is None
    assert asyncio.run(judge.ask_sure(PROMPT, Mood)) == (Mood("bad"), None)


def test_azures_form_has_the_deployment_in_the_path_and_the_key_in_its_own_header():
    good = Reply(content={"mood": "good"})
    with LLMServer(good, api_path="") as server:
        assert run(server, lambda judge: judge.ask(PROMPT, Mood), api_version="2024-10-21") == Mood("good")
        prefix = f"{server.url}/openai/deployments/other"
        run(server, lambda judge: judge.ask(PROMPT, Mood), url=prefix, api_version="2024-10-21")
    first, second = server.requests
    assert first.path == "/openai/deployments/judge-1/chat/completions?api-version=2024-10-21"
    assert first.headers["api-key"] == "key-1"
    assert "authorization" not in first.headers
    assert second.path.startswith("/openai/deployments/other/chat/completions?")


def test_a_way_that_stops_working_is_looked_for_afresh():
    """A server that took JSON mode only is updated and takes a schema only."""
    takes = "json_object"

    def answering(request):
        kind = request.body.get("response_format", {}).get("type")
        if kind not in (takes, None):
            return error(400, f"'response_format.type' must be '{takes}' or 'text'")
        return Reply(content={"mood": "good"})

    async def asking(judge):
        nonlocal takes
        await judge.ask(PROMPT, Mood)
        takes = "json_schema"
        await judge.ask(PROMPT, Mood)
        await judge.ask(PROMPT, Mood)

    with LLMServer(answering) as server:
        run(server, asking)
    kinds = [request.body["response_format"]["type"] for request in server.requests]
    assert kinds == ["json_schema", "json_object", "json_object", "json_schema", "json_schema"]


def test_cached_input_and_prices_per_thousand_are_counted():
    tab = Spend()
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 600}}

    async def asking(judge):
        SPEND.set(tab)
        await judge.ask_scored(PROMPT, SCALE)

    with LLMServer(completion(token("4"), usage=usage)) as server:
        run(server, asking, price=Price(input=0.002, output=0.008, cached=0.0005, per=1000))
    assert tab.usd == pytest.approx(0.4 * 0.002 + 0.6 * 0.0005 + 0.1 * 0.008)


def test_every_unreadable_answer_is_told_with_what_was_wrong():
    told = []
    replies = [
        Reply(content=""),
        Reply(content='{"mood": NaN}'),
        Reply(content='{"mood": "mostly"}'),
        Reply(body=b"<p>"),
    ]
    with LLMServer(*replies, Reply(content="{", finish_reason="length")) as server:

        async def asking(judge):
            for _ in range(3):
                with pytest.raises(JudgeError):
                    await judge.ask(PROMPT, Mood)

        observer = Observer()
        observer.unusable = lambda model, reason: told.append((model, reason))
        run(server, asking, observer=observer)
    reasons = ["empty", "no_json", "wrong_shape", "no_completion", "truncated", "truncated"]
    assert told == [("judge-1", reason) for reason in reasons]

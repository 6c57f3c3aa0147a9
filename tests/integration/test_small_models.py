"""Small real models behind their own servers: what the proxy passes on, a judge too weak to judge, embeddings."""

import asyncio
import json
import re
from collections import Counter
from typing import Annotated

import httpx
import msgspec
import openai
import pytest

from gaugeway.demo.servers import body
from monitors.judges import JudgeError, Prompt
from monitors.judges.openai import OpenAIJudge
from monitors.metrics.embeddings.openai import OpenAIEmbeddings
from tests.support.llm_server import LLMServer, Reply
from tests.support.models import CHAT_MODEL, chat_model, doubts, embedding_model, words_of
from tests.support.product import product
from tests.support.running import running_gateway, serving

pytestmark = pytest.mark.full

JSON = {"content-type": "application/json"}
QUESTION = [{"role": "user", "content": "How many days are in a week?"}]
ASKED = {
    "model": CHAT_MODEL,
    "messages": QUESTION,
    "temperature": 0,
    "seed": 1,
    "max_tokens": 32,
    "cache_prompt": False,
}
OF_ONE_ANSWER = re.compile(rb'"(?:id|created)":(?:"[^"]*"|\d+)|"timings":\{[^}]*\}')
"""What llama.cpp writes anew into each answer: its name, time and speed."""


class Tap:
    """Passes requests on to a server, piece by piece, and keeps the bytes of each answer's body.

    One that holds a name of `refused` is answered with 400, as OpenAI answers an unknown parameter, and not passed on.
    """

    def __init__(self, url, refused=()):
        self.url, self.refused, self.asked, self.bodies = url.removesuffix("/v1"), refused, [], []

    async def __call__(self, scope, receive, send):
        content = await body(receive)
        if wrong := [name for name in self.refused if f'"{name}"' in content.decode()]:
            param = "response_format" if wrong[0] == "maxItems" else wrong[0]
            error = {"message": f"Unsupported parameter: '{wrong[0]}' is not supported.", "param": param}
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps({"error": error}).encode()})
            return
        self.asked.append(json.loads(content))
        async with (
            httpx.AsyncClient(base_url=self.url, timeout=120) as client,
            client.stream(scope["method"], scope["path"], content=content, headers=JSON) as answer,
        ):
            headers = [(b"content-type", answer.headers["content-type"].encode())]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
            self.bodies.append(b"")
            async for piece in answer.aiter_raw():
                self.bodies[-1] += piece
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_a_real_model_passes_byte_for_byte(stream):
    url, asked = chat_model(), ASKED | {"stream": stream}

    async def main():
        tap = Tap(url)
        async with (
            serving(tap) as port,
            running_gateway(f"http://127.0.0.1:{port}/v1") as gateway,
            httpx.AsyncClient(timeout=120) as client,
        ):
            through = await client.post(f"http://127.0.0.1:{gateway.port}/v1/chat/completions", json=asked)
            direct = await client.post(f"{url}/chat/completions", json=asked)
            (sample,) = await gateway.samples(1)
        assert through.content == tap.bodies[0]
        assert through.headers["content-type"] == direct.headers["content-type"]
        assert OF_ONE_ANSWER.sub(b"", through.content) == OF_ONE_ANSWER.sub(b"", direct.content)
        return through.content, sample

    content, sample = asyncio.run(main())
    if stream:
        events = [json.loads(line[6:]) for line in content.splitlines() if line.startswith(b"data: {")]
        text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
        assert len(events) > 8
    else:
        text = json.loads(content)["choices"][0]["message"]["content"]
        assert sample.usage.output_tokens == json.loads(content)["usage"]["completion_tokens"]
    assert text
    assert sample.response == text
    assert sample.question == QUESTION[0]["content"]


CONFIG = """
[[upstreams]]
base_url = "{upstream}"

[judge]
base_url = "{judge}"
model = "{model}"
api_key = "not-needed"
timeout_s = 120
concurrency = 1
max_retries = 0

[capture]
ask_judge = false

[metrics.context_relevancy]
enabled = false

[metrics.faithfulness]
rate = 1.0

[metrics.hallucination]
rate = 1.0

[metrics.answer_relevancy]
rate = 1.0
method = "statements"
"""
PASSING = {
    "faithfulness": ("verdict", ["supported"]),
    "hallucination": ("contradicted", [True]),
    "answer_relevancy": ("relevance", ["relevant", "borderline"]),
}
"""By metric, the field of its evidence that it counts, and the values that count."""
JUDGED = tuple(PASSING)
QUESTION_OF_PASSAGES = "How long does the Moon need for one orbit?"
PASSAGES = [
    "The Moon needs 27.3 days for one orbit. The diameter of the Moon is 3,474 kilometres.",
    "Sunspots are dark patches that are cooler than the surface around them.",
]
STATED = [words_of(sentence) for sentence in PASSAGES[0].split(". ")]
ANSWERS = ["The Moon needs 27.3 days for one orbit.", "The harbour of Lisbon was rebuilt in 1931 by seven engineers."]


def test_a_judge_too_weak_to_judge_stores_no_score_that_nothing_proves_and_each_failure_has_a_name(tmp_path):
    judge = chat_model()
    replies = [Reply(content=answer) for answer in ANSWERS]
    with LLMServer(*replies) as upstream:
        config = CONFIG.format(upstream=upstream.url, judge=judge, model=CHAT_MODEL)
        with product(tmp_path, config) as running:
            with openai.OpenAI(base_url=running.base_url, api_key="k", max_retries=0, timeout=60) as client:
                got = [ask(client) for _ in ANSWERS]
            running.until(lambda: len(judged(running)) == len(JUDGED) * len(ANSWERS), 400, what="all are judged")
            outcomes = judged(running)
            failed = [outcome for *_, outcome in outcomes if outcome["kind"] == "failed"]
            counted = Counter()
            for metric in (*JUDGED, "lexical_groundedness"):
                for kind in ("failed", "score"):
                    labels = {"metric": metric, "outcome": kind}
                    counted[metric, kind] = running.value(running.monitors, "gaugeway_evaluations_total", **labels)
    assert got == ANSWERS
    assert len(upstream.requests) == len(ANSWERS)
    assert all(re.fullmatch(r"[a-z_]+", outcome["error"]) and outcome["detail"] for outcome in failed)
    assert +counted == Counter((metric, outcome["kind"]) for _, metric, outcome in outcomes) + Counter(
        {("lexical_groundedness", "score"): len(ANSWERS)}
    )
    for answer, metric, outcome in outcomes:
        if outcome["kind"] == "score":
            assert list(doubts(outcome["evidence"], answer, PASSAGES[:1], QUESTION_OF_PASSAGES, 1 / 3)) == [], metric
            assert follows(metric, outcome), outcome
            missed = [item["claim"] for item in outcome["evidence"] if item.get("verdict") == "not_mentioned"]
            assert not [claim for claim in missed if words_of(claim) in STATED]


def follows(metric, outcome):
    """Whether a score is what its own evidence comes to."""
    field, passing = PASSING[metric]
    rated = [item[field] for item in outcome["evidence"] if field in item]
    if outcome["reason"] == "the response is noncommittal":
        return outcome["value"] == 0.0
    return bool(rated) and outcome["value"] == pytest.approx(sum(value in passing for value in rated) / len(rated))


def ask(client):
    answer = client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": QUESTION_OF_PASSAGES}],
        extra_body={"gaugeway": {"contexts": PASSAGES[:1]}},
    )
    return answer.choices[0].message.content


def judged(running):
    """(answer, metric, outcome) of every judged metric of every exchange so far."""
    found = []
    for listed in running.get("/api/exchanges?metric=lexical_groundedness"):
        stored = running.get(f"/api/exchanges/{listed['sample_id']}")
        answer = stored["sample"]["response"]
        found += [(answer, one["metric"], one["outcome"]) for one in stored["evaluations"] if one["metric"] in JUDGED]
    return found


class FewClaims(msgspec.Struct):
    claims: Annotated[list[str], msgspec.Meta(max_length=2)]


LISTED = Prompt(
    task="listed", version="1", system="Answer with JSON.", user="List many claims about the Moon.", output_cap=32
)


def asked_through(answer_type, prompt, *refused, times=1):
    """The answers or failures of a model whose endpoint refuses these names; what it was asked, and what it said."""

    async def main():
        tap, results = Tap(chat_model(), refused), []
        async with serving(tap) as port:
            judge = OpenAIJudge(f"http://127.0.0.1:{port}/v1", None, CHAT_MODEL, timeout_s=120, max_retries=0)
            for _ in range(times):
                try:
                    results.append(await judge.ask(prompt, answer_type))
                except JudgeError as error:
                    results.append(error)
            await judge.aclose()
        return results, tap.asked, [json.loads(content) for content in tap.bodies]

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("refused", "name"),
    [
        ((), "max_tokens"),
        (("max_tokens",), "max_completion_tokens"),
        (("max_tokens", "maxItems"), "max_completion_tokens"),
    ],
)
def test_llama_cpp_cuts_an_answer_at_the_bound_under_each_name_and_so_the_failure_says(refused, name):
    class Endless(msgspec.Struct):
        claims: Annotated[list[str], msgspec.Meta(max_length=200)]

    (failure,), asked, answers = asked_through(Endless, LISTED, *refused)
    assert failure.kind == "truncated"
    assert "cut at 64 tokens" in str(failure)
    assert [request[name] for request in asked] == [32, 64]
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [32, 64]
    assert {request["response_format"]["type"] for request in asked} == {"json_schema"}
    assert ("maxItems" in json.dumps(asked)) == ("maxItems" not in refused)


def test_llama_cpp_ends_a_list_at_its_bound():
    longer = Prompt(task="listed", version="1", system=LISTED.system, user=LISTED.user, output_cap=300)
    (bounded, again), asked, answers = asked_through(FewClaims, longer, "max_tokens", "max_completion_tokens", times=2)
    assert len(bounded.claims) == len(again.claims) == 2
    assert [answer["choices"][0]["finish_reason"] for answer in answers] == ["stop", "stop"]
    assert not {"max_tokens", "max_completion_tokens"} & set().union(*asked)


def test_a_text_too_long_for_llama_cpp_is_named():
    long = Prompt(task="listed", version="1", system=LISTED.system, user="word " * 9_000, output_cap=32)
    (failure,), _, _ = asked_through(FewClaims, long)
    assert failure.kind == "context_overflow"


def test_the_check_of_evidence_sees_what_stands_nowhere():
    answer, fine = (
        ANSWERS[0],
        {"claim": "The Moon needs 27.3 days for an orbit", "verdict": "supported", "contexts": [0]},
    )
    assert list(doubts([fine | {"quote": "needs 27.3 days for one orbit"}], answer, PASSAGES)) == []
    assert len(list(doubts([fine | {"quote": ""}], answer, PASSAGES))) == 1
    assert len(list(doubts([fine | {"quote": "needs 27.3 days", "contexts": []}], answer, PASSAGES))) == 1
    assert len(list(doubts([fine | {"quote": "a week in Paris", "contexts": [1]}], answer, PASSAGES))) == 1
    foreign = {"claim": "The store opens at nine on Sundays", "verdict": "not_mentioned"}
    assert len(list(doubts([foreign], answer, PASSAGES))) == 1
    asked = {"claim": "The Moon lasts long", "verdict": "not_mentioned"}
    assert list(doubts([asked], answer, PASSAGES, QUESTION_OF_PASSAGES, 1 / 3)) == []
    assert len(list(doubts([asked], "In 1931.", PASSAGES, QUESTION_OF_PASSAGES, 1 / 3))) == 1


def test_embeddings_of_a_real_model_come_through_as_they_are_and_rank_passages():
    url = embedding_model()
    texts = ["How long does the Moon need for one orbit?", *PASSAGES]

    async def main():
        async with running_gateway(url) as gateway:
            base_url = f"http://127.0.0.1:{gateway.port}/v1"
            ours = OpenAIEmbeddings(base_url, None, "e5-passage")
            vectors = await ours.embed(texts)
            await ours.aclose()
            for encoding in ("float", "base64"):
                asked = {"model": "e5-passage", "input": texts, "encoding_format": encoding}
                async with httpx.AsyncClient(timeout=60) as client:
                    through = await client.post(f"{base_url}/embeddings", json=asked)
                    direct = await client.post(f"{url}/embeddings", json=asked)
                assert through.content == direct.content
            async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
                read = await client.embeddings.create(model="e5-passage", input=texts)
            await gateway.until(lambda: gateway.total("gaugeway_requests_total", route="embeddings") == 4)
        return vectors, read

    vectors, read = asyncio.run(main())
    assert vectors.shape == (3, 384)
    assert vectors[1].tolist() == pytest.approx(read.data[1].embedding, abs=1e-6)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]

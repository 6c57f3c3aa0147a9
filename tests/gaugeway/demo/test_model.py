"""The scripted model, asked by real OpenAI clients over HTTP."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing, contextmanager

import httpx
import numpy as np
import openai
import pytest

from gaugeway.demo import model as demo
from tests.support.scripted_model import Failure, Model, serve

PASSAGES = "Mars has two small moons, Phobos and Deimos.\n\nVenus is the hottest planet."
RAG = f"Use the context.\nQuestion: How many moons does Mars have? \nContext: {PASSAGES} \nAnswer:"


def user(text):
    return [{"role": "user", "content": text}]


@contextmanager
def client_of(model=None):
    with (
        serve(model or demo.Model()) as base_url,
        closing(openai.OpenAI(base_url=base_url, api_key="k", max_retries=0)) as client,
    ):
        yield client


@contextmanager
def plain_client(model=None):
    with serve(model or demo.Model()) as base_url, httpx.Client(base_url=base_url, trust_env=False) as client:
        yield client


def test_a_chat_completion_answers_from_the_passages_of_the_prompt():
    with client_of() as client:
        completion = client.chat.completions.create(model="handbook-1", messages=user(RAG))
    assert "two small moons" in completion.choices[0].message.content
    assert completion.choices[0].finish_reason == "stop"
    assert completion.model == "handbook-1"
    assert completion.created > 0
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens > 0


def test_the_streamed_chunks_join_to_the_answer_that_is_not_streamed():
    with client_of() as client:
        whole = client.chat.completions.create(model="handbook-1", messages=user(RAG)).choices[0].message.content
        chunks = list(
            client.chat.completions.create(
                model="handbook-1", messages=user(RAG), stream=True, stream_options={"include_usage": True}
            )
        )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
    assert len(chunks) > 4
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(whole.split())
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"


def test_without_include_usage_no_chunk_of_a_stream_carries_usage():
    with client_of() as client:
        chunks = list(client.chat.completions.create(model="m", messages=user("Who?"), stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_an_async_client_gets_streams_and_answers_at_the_same_time():
    async def ask(base_url):
        async with openai.AsyncOpenAI(base_url=base_url, api_key="k") as client:

            async def streamed():
                stream = await client.chat.completions.create(model="m", messages=user(RAG), stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

            async def whole():
                completion = await client.chat.completions.create(model="m", messages=user(RAG))
                return completion.choices[0].message.content

            return await asyncio.gather(*(turn() for _ in range(5) for turn in (streamed, whole)))

    with serve(demo.Model()) as base_url:
        answers = asyncio.run(ask(base_url))
    assert len(set(answers)) == 1


async def test_the_model_can_be_served_from_the_running_loop():
    async with demo.serving(demo.Model()) as base_url, openai.AsyncOpenAI(base_url=base_url, api_key="k") as client:
        assert [model.id async for model in client.models.list()] == ["handbook-1", "judge-1", "embed-1"]


def test_a_limit_on_tokens_cuts_the_answer():
    with client_of() as client:
        completion = client.chat.completions.create(model="m", messages=user(RAG), max_completion_tokens=3)
    assert completion.choices[0].finish_reason == "length"
    assert len(completion.choices[0].message.content.split()) == 3


def test_a_text_to_repeat_is_repeated_word_for_word():
    text = "One  two\nthree. " * 40
    with client_of() as client:
        stream = client.chat.completions.create(model="m", messages=user(f"Repeat after me: {text}"), stream=True)
        said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert said == text.strip()


def test_embeddings_are_the_same_as_floats_and_as_base64():
    with client_of(Model()) as client:
        floats = client.embeddings.create(model="embed-1", input=["red planet"], encoding_format="float").data[0]
        packed = client.embeddings.create(model="embed-1", input=["red planet"]).data[0]
    assert len(floats.embedding) == 256
    assert np.allclose(floats.embedding, packed.embedding)
    assert np.linalg.norm(floats.embedding) == pytest.approx(1.0)


def test_embeddings_of_texts_that_share_words_are_nearer_than_those_of_others():
    texts = ["the moons of Mars", "Mars and its moons", "acid clouds over Venus"]
    with client_of(Model()) as client:
        first, near, far = (one.embedding for one in client.embeddings.create(model="e", input=texts).data)
    assert np.dot(first, near) > 0.9
    assert np.dot(first, far) < 0.3


def test_the_same_request_gets_the_same_bytes_and_headers():
    with plain_client(Model()) as client:
        answers = [client.post("/chat/completions", json={"messages": user(RAG)}) for _ in range(2)]
    assert answers[0].content == answers[1].content
    assert answers[0].headers.raw == answers[1].headers.raw
    assert answers[0].headers["x-request-id"].startswith("req_")
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "9999"
    assert int(answers[0].headers["openai-processing-ms"]) > 0


def test_errors_have_the_shape_of_openai():
    with client_of() as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.fine_tuning.jobs.list()
        with pytest.raises(openai.BadRequestError) as missing:
            client.chat.completions.create(model="m", messages=[])
    assert unknown.value.body["type"] == "invalid_request_error"
    assert unknown.value.body["code"] == "unknown_url"
    assert missing.value.body["param"] == "messages"


def test_a_body_that_is_no_json_is_refused():
    with plain_client() as client:
        assert client.post("/chat/completions", content=b"{").status_code == 400
        assert client.get("/chat/completions").status_code == 405


def test_the_model_fails_while_told_to():
    model = Model()
    with client_of(model) as client:
        model.failing = Failure(status=429, retry_after_s=1.5)
        with pytest.raises(openai.RateLimitError) as limited:
            client.chat.completions.create(model="m", messages=user("Who?"))
        model.failing = Failure(tasks_only=True)
        assert client.chat.completions.create(model="m", messages=user("Who?")).choices
        judging = [{"role": "system", "content": "Task: claims"}, *user("")]
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="m", messages=judging)
    assert limited.value.response.headers["retry-after"] == "1.5"


def test_the_log_keeps_the_latest_requests():
    model = Model(log_size=2)
    with client_of(model) as client:
        for number in range(3):
            client.chat.completions.create(model=f"m{number}", messages=user("Who?"), extra_headers={"X-Mark": "yes"})
    assert [entry.body["model"] for entry in model.log] == ["m1", "m2"]
    assert model.log[0].header("x-mark") == "yes"
    assert (model.log[0].status, model.log[0].ended) == (200, "complete")


def test_a_client_that_leaves_a_stream_is_noticed():
    model = Model(chunk_delay_s=0.02)
    with client_of(model) as client:
        request = user("Repeat after me: " + "word " * 600)
        with client.chat.completions.create(model="m", messages=request, stream=True) as stream:
            next(iter(stream))
        deadline = time.monotonic() + 60
        while model.log[0].ended == "open" and time.monotonic() < deadline:
            time.sleep(0.01)
    assert model.log[0].ended == "disconnected"
    assert model.log[0].chunks < 600

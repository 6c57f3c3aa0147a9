"""Embeddings: batches, the cache, what happens when the endpoint fails, and who pays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import numpy as np
import pytest

from gaugeway.settings import shared as config
from monitors.judges import SPEND, JudgeError, Spend
from monitors.metrics.embeddings import Embeddings
from monitors.metrics.embeddings.openai import OpenAIEmbeddings
from monitors.metrics.embeddings.opening import Batched, CachedEmbeddings, open_embeddings
from tests.support.llm_server import LLMServer, Reply, error

BATCH_WAIT_S = "monitors.metrics.embeddings.opening.BATCH_WAIT_S"
KEY = "sk-very-secret-0123456789"


def vector(text):
    """Another vector for each text; stands in for a model."""
    return [float(len(text)), float(sum(map(ord, text)) % 97), 1.0]


def answer(request):
    """Answer like an embeddings endpoint; a text "bad" is refused with all that came with it."""
    texts = request.body["input"]
    if "bad" in texts:
        return error(400, "this text cannot be embedded")
    rows = [{"index": index, "embedding": vector(text)} for index, text in enumerate(texts)]
    return Reply(body=json.dumps({"data": rows, "usage": {"prompt_tokens": 10 * len(texts)}}).encode())


def slowly(request):
    reply = answer(request)
    return Reply(body=reply.body, status=reply.status, delay_s=0.2)


class Ledger:
    """Everything an observer is told."""

    def __init__(self):
        self.requests, self.failures, self.lookups = [], [], []

    def embedded(self, model, texts, seconds, tokens, usd):
        self.requests.append((model, texts, tokens, round(usd, 9)))

    def embedding_failed(self, model, kind):
        self.failures.append((model, kind))

    def embeddings_looked_up(self, model, hits, misses):
        self.lookups.append((hits, misses))


@contextlib.asynccontextmanager
async def embeddings_on(server, observer=None, **options):
    """Open embeddings on `server`, use them, close them."""
    settings = config.Embeddings(model="e-1", base_url=server.url, api_key=KEY, **{"max_retries": 0, **options})
    opened = open_embeddings(settings, observer)
    try:
        yield opened
    finally:
        await opened.aclose()


def inputs(server):
    return [request.body["input"] for request in server.requests]


async def test_what_is_asked_at_once_goes_out_together():
    with LLMServer(answer) as server:
        async with embeddings_on(server) as embeddings:
            results = await asyncio.gather(*(embeddings.embed([f"text {n}", "the same"]) for n in range(10)))
    assert len(server.requests) == 1
    assert sorted(inputs(server)[0]) == sorted({f"text {n}" for n in range(10)} | {"the same"})
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result, [vector(f"text {n}"), vector("the same")])


async def test_a_full_batch_does_not_wait(monkeypatch):
    monkeypatch.setattr(BATCH_WAIT_S, 30.0)

    with LLMServer(answer) as server:
        async with embeddings_on(server, batch_size=2) as embeddings:
            started = time.perf_counter()
            await embeddings.embed(["a", "b"])
            assert (time.perf_counter() - started) < 5.0


async def test_an_unfull_batch_waits(monkeypatch):
    monkeypatch.setattr(BATCH_WAIT_S, 0.3)

    with LLMServer(answer) as server:
        async with embeddings_on(server, batch_size=100) as embeddings:
            started = time.perf_counter()
            await embeddings.embed(["a"])
            assert (time.perf_counter() - started) >= 0.3


async def test_more_texts_than_a_batch_holds_come_back_in_order():
    texts = [f"text {n}" for n in range(25)]

    with LLMServer(answer) as server:
        async with embeddings_on(server, batch_size=10) as embeddings:
            np.testing.assert_array_equal((await embeddings.embed(texts)), [vector(text) for text in texts])
    assert sorted(map(len, inputs(server))) == [5, 10, 10]


async def test_nobody_fails_for_the_text_of_another():
    with LLMServer(answer) as server:
        async with embeddings_on(server) as embeddings:
            good, bad, better = await asyncio.gather(
                *(embeddings.embed([text]) for text in ("good", "bad", "better")), return_exceptions=True
            )
    np.testing.assert_array_equal(good, [vector("good")])
    np.testing.assert_array_equal(better, [vector("better")])
    assert isinstance(bad, JudgeError)
    assert bad.kind == "bad_request"


async def test_a_failure_of_the_endpoint_is_everybodys_and_tried_no_more():
    ledger = Ledger()

    with LLMServer(error(503, "out of order")) as server:
        async with embeddings_on(server, observer=ledger) as embeddings:
            results = await asyncio.gather(*(embeddings.embed([text]) for text in "abc"), return_exceptions=True)
    assert [one.kind for one in results] == ["server_error"] * 3
    assert len({id(one) for one in results}) == 3
    assert len(server.requests) == 1
    assert ledger.failures == [("e-1", "server_error")]


async def test_one_who_gives_up_does_not_stop_the_others():
    with LLMServer(slowly) as server:
        async with embeddings_on(server) as embeddings:
            patient = asyncio.ensure_future(embeddings.embed(["a"]))
            hasty = asyncio.ensure_future(embeddings.embed(["b"]))
            await asyncio.sleep(0.1)
            hasty.cancel()
            result, (gone,) = await patient, await asyncio.gather(hasty, return_exceptions=True)
    np.testing.assert_array_equal(result, [vector("a")])
    assert isinstance(gone, asyncio.CancelledError)


async def test_closing_answers_those_who_still_wait(monkeypatch):
    monkeypatch.setattr(BATCH_WAIT_S, 60.0)

    with LLMServer(answer) as server:
        async with embeddings_on(server) as embeddings:
            waiting = asyncio.ensure_future(embeddings.embed(["a"]))
            await asyncio.sleep(0)
            await embeddings.aclose()
            np.testing.assert_array_equal((await waiting), [vector("a")])


async def test_a_text_is_paid_for_once():
    ledger = Ledger()

    with LLMServer(answer) as server:
        async with embeddings_on(server, observer=ledger, price=2.0) as embeddings:
            first = await embeddings.embed(["a", "b", "a"])
            second = await embeddings.embed(["b", "c"])
            again = await embeddings.embed(["c", "b", "a"])
            counts = (embeddings.hits, embeddings.misses)
    assert inputs(server) == [["a", "b"], ["c"]]
    np.testing.assert_array_equal(first, [vector("a"), vector("b"), vector("a")])
    np.testing.assert_array_equal(second, [vector("b"), vector("c")])
    np.testing.assert_array_equal(again, [vector("c"), vector("b"), vector("a")])
    assert counts == (4, 4)
    assert ledger.lookups == [(0, 3), (1, 1), (3, 0)]
    assert ledger.requests == [("e-1", 2, 20, 40e-6), ("e-1", 1, 10, 20e-6)]


async def test_the_cache_is_bounded_and_forgets_the_least_recently_used():
    asked = []

    class Model(Embeddings):
        async def embed(self, texts):
            asked.extend(texts)
            return np.array([vector(text) for text in texts])

    entry = 3 * 8 + 250
    cached = CachedEmbeddings(Model(), model="e-1", max_mb=3 * entry / 1e6)
    await cached.embed(["a", "b", "c"])
    await cached.embed(["a"])
    await cached.embed(["d"])
    assert len(cached) == 3
    asked.clear()
    await cached.embed(["a", "c", "d"])
    assert asked == []
    await cached.embed(["b"])
    assert asked == ["b"]
    await cached.embed([f"{n}" for n in range(1_000)])
    assert len(cached) == 3


def test_another_model_has_other_vectors():
    class Model(Embeddings):
        def __init__(self, value):
            self.value = value

        async def embed(self, texts):
            return np.full((len(texts), 2), self.value)

    one, two = (CachedEmbeddings(Model(value), model=name) for value, name in ((1.0, "e-1"), (2.0, "e-2")))
    assert asyncio.run(one.embed(["a"])).tolist() == [[1.0, 1.0]]
    assert asyncio.run(two.embed(["a"])).tolist() == [[2.0, 2.0]]


def test_half_a_surrogate_pair_is_a_text_of_its_own():
    class Lengths(Embeddings):
        asked = 0

        async def embed(self, texts):
            self.asked += len(texts)
            return np.array([[float(ord(text[-1]))] for text in texts])

    inner = Lengths()
    cached = CachedEmbeddings(inner, model="e-1")
    assert asyncio.run(cached.embed(["a\ud800"])).tolist() == [[float(0xD800)]]
    assert asyncio.run(cached.embed(["a?", "a\ud800"])).tolist() == [[float(ord("?"))], [float(0xD800)]]
    assert inner.asked == 2


async def test_a_model_that_changes_its_length_fails_once_and_recovers():
    class Model(Embeddings):
        length = 2

        async def embed(self, texts):
            return np.ones((len(texts), self.length))

    model = Model()
    cached = CachedEmbeddings(model, model="e-1")
    await cached.embed(["a"])
    model.length = 3
    with pytest.raises(JudgeError) as failure:
        await cached.embed(["a", "b"])
    assert failure.value.kind == "unreadable"
    assert (await cached.embed(["a", "b"])).shape == (2, 3)


async def test_a_failure_is_not_kept():
    with LLMServer(error(500, "not now"), answer) as server:
        async with embeddings_on(server) as embeddings:
            with pytest.raises(JudgeError):
                await embeddings.embed(["a"])
            np.testing.assert_array_equal((await embeddings.embed(["a"])), [vector("a")])


async def test_what_it_costs_goes_on_the_tab_of_the_metric_that_asks():
    with LLMServer(answer) as server:
        async with embeddings_on(server, price=2.0) as embeddings:
            spend = Spend()
            tab = SPEND.set(spend)
            await embeddings.embed(["a", "b"])
            await embeddings.embed(["a"])
            SPEND.reset(tab)
    assert (spend.input_tokens, spend.usd) == (20, pytest.approx(40e-6))


async def test_a_busy_endpoint_is_asked_again_as_it_says():
    with LLMServer(error(429, "slow down", headers={"retry-after-ms": "20"}), answer) as server:
        async with embeddings_on(server, max_retries=2) as embeddings:
            np.testing.assert_array_equal((await embeddings.embed(["a"])), [vector("a")])
    assert len(server.requests) == 2


async def test_the_deadline_counts_retries_in_and_waiting_for_a_place_out():
    with LLMServer(error(429, "slow down", headers={"retry-after": "200"})) as server:
        async with embeddings_on(server, max_retries=5, timeout_s=0.5) as embeddings:
            started = time.perf_counter()
            with pytest.raises(JudgeError) as failure:
                await embeddings.embed(["a"])
            kind, seconds = failure.value.kind, time.perf_counter() - started
    assert kind in ("timeout", "rate_limited")
    assert seconds < 60.0

    with LLMServer(slowly) as server:
        async with embeddings_on(server, concurrency=1, timeout_s=2.0, batch_size=1) as embeddings:
            assert len(await asyncio.gather(*(embeddings.embed([text]) for text in "abcdefghijkl"))) == 12


async def test_no_more_requests_than_allowed_are_under_way():
    with LLMServer(slowly) as server:
        async with embeddings_on(server, concurrency=2, batch_size=1) as embeddings:
            started = time.perf_counter()
            await asyncio.gather(*(embeddings.embed([text]) for text in "abcdef"))
            assert (time.perf_counter() - started) >= 0.55


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"base_url": "http://x/v1"}, "embeddings.model"),
        ({"model": "e-1"}, "embeddings.base_url"),
        ({"kind": "local"}, "embeddings.model"),
    ],
)
def test_half_a_configuration_is_a_mistake(settings, problem):
    with pytest.raises(ValueError, match=f"^{problem}"):
        open_embeddings(config.Embeddings(**settings))


def test_no_configuration_is_no_embeddings():
    assert open_embeddings(config.Embeddings()) is None


def test_a_batch_has_at_least_one_text():
    with pytest.raises(ValueError, match="at least one"):
        Batched(OpenAIEmbeddings("http://127.0.0.1:1/v1", None, "m"), size=0, wait_s=0.0)


async def test_azures_form_names_the_deployment_and_keeps_the_key_in_its_own_header():
    with LLMServer(answer, api_path="") as server:
        async with embeddings_on(server, api_version="2024-10-21") as embeddings:
            np.testing.assert_array_equal((await embeddings.embed(["a"])), [vector("a")])
    request = server.requests[0]
    assert request.path == "/openai/deployments/e-1/embeddings?api-version=2024-10-21"
    assert request.headers["api-key"] == KEY
    assert "authorization" not in request.headers


async def test_the_kind_of_a_failure_reaches_everybody_who_waits():
    with LLMServer(error(429, "slow down", headers={"retry-after": "7"})) as server:
        async with embeddings_on(server) as embeddings:
            results = await asyncio.gather(*(embeddings.embed([text]) for text in "ab"), return_exceptions=True)
    assert [(one.kind, "slow down" in one.detail) for one in results] == [("rate_limited", True)] * 2

"""The two requests about an exchange, over a real connection: what they take, refuse, and bring to the queue."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.access.keys import Keyring
from gateway.api.feedback import Supplements
from gateway.api.health import Readiness, traffic_app
from gaugeway.records import Context
from gaugeway.storage.engines.failures import RefusedError
from gaugeway.storage.keys import VirtualKey, digest
from tests.support.running import serving

pytestmark = pytest.mark.full

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CONTEXTS, FEEDBACK = "/gaugeway/v1/contexts", "/gaugeway/v1/feedback"


class BrokenQueue(MemoryQueue):
    """A queue whose engine is down until `mend`ed."""

    broken = True

    async def supply(self, supplements):
        if self.broken:
            raise OSError("disk full")
        await super().supply(supplements)


class Bench:
    """A running traffic port with its supplements; counts what becomes of them."""

    def __init__(self, queue=None, **options):
        self.queue = queue or MemoryQueue()
        self.results = []
        self.failures = 0
        self.supplements = Supplements(queue=self.queue, observer=self, **options)

    def supplement(self, source, result):
        self.results.append((source, result))

    def hand_off_failed(self):
        self.failures += 1

    async def post(self, path, body, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(path, content=content, headers=headers)

    async def taken(self, count):
        found = []
        async with asyncio.timeout(60):
            while len(found) < count:
                found += await self.queue.take(count)
                await asyncio.sleep(0.01)
        return found


def run(scenario, *, start=True, **options):
    async def main():
        bench = Bench(**options)
        if start:
            bench.supplements.start()
        async with (
            serving(traffic_app(Readiness(), bench.supplements)) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as bench.client,
        ):
            await scenario(bench)
            await bench.supplements.aclose(timeout_s=0.5)

    asyncio.run(main())


def refused(response, status, param, code="invalid_value"):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    return error["message"]


def test_contexts_reach_the_queue_as_they_were_said():
    async def scenario(bench):
        before = time.time()
        response = await bench.post(
            CONTEXTS,
            {
                "key": "k",
                "contexts": ["one", {"text": "zwei €", "id": 7, "score": 0.5, "source": "b.md"}],
                "question": "q?",
                "reference": "r",
            },
            traceparent=PARENT,
        )
        assert response.status_code == 202
        (one,) = await bench.taken(1)
        assert response.json() == {"id": one.id}
        assert (one.source, one.key, one.trace_id, one.question, one.reference) == ("contexts", "k", TRACE, "q?", "r")
        assert one.contexts == (Context(text="one"), Context(text="zwei €", id="7", score=0.5, source="b.md"))
        assert before <= one.received_at <= time.time()
        assert bench.results == [("contexts", "accepted")]

    run(scenario)


def test_feedback_reaches_the_queue_as_it_was_said():
    said = {"exchange_id": "e", "reference": "r", "rating": 0, "label": "wrong", "comment": "no, it is not"}

    async def scenario(bench):
        for body in (said, {"trace_id": TRACE.upper(), "contexts": []}, {"key": "k", "contexts": None, "rating": 1.0}):
            assert (await bench.post(FEEDBACK, body)).status_code == 202
        first, second, third = await bench.taken(3)
        assert {name: getattr(first, name) for name in said} == said
        assert (first.source, first.contexts, first.trace_id) == ("feedback", None, None)
        assert (second.trace_id, second.contexts) == (TRACE, ())
        assert (third.key, third.contexts, third.rating) == ("k", None, 1.0)

    run(scenario)


def test_every_request_has_an_id_of_its_own():
    async def scenario(bench):
        ids = {(await bench.post(CONTEXTS, {"key": "k", "contexts": []})).json()["id"] for _ in range(20)}
        assert len(ids) == 20
        assert {one.id for one in await bench.taken(20)} == ids

    run(scenario)


@pytest.mark.parametrize("path", [CONTEXTS, FEEDBACK])
def test_the_trace_of_the_request_itself_stands_in_for_one_in_the_body(path):
    async def scenario(bench):
        assert (await bench.post(path, {"contexts": ["a"]}, traceparent=PARENT)).status_code == 202
        assert (
            await bench.post(path, {"contexts": ["a"], "trace_id": "f" * 32}, traceparent=PARENT)
        ).status_code == 202
        assert [one.trace_id for one in await bench.taken(2)] == [TRACE, "f" * 32]

    run(scenario)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CONTEXTS, {"key": "k"}, "contexts"),
        (CONTEXTS, {"key": "k", "contexts": None}, "contexts"),
        (CONTEXTS, {"key": "k", "contexts": "text"}, "contexts"),
        (CONTEXTS, {"key": "k", "contexts": [{"txt": "a"}]}, "contexts[0].txt"),
        (CONTEXTS, {"key": "k", "contexts": ["a", {"text": 1}]}, "contexts[1].text"),
        (CONTEXTS, {"key": "k", "contexts": [], "context": []}, "context"),
        (CONTEXTS, {"key": "k", "contexts": [], "exchange_id": "e"}, "exchange_id"),
        (CONTEXTS, {"key": 1, "contexts": []}, "key"),
        (CONTEXTS, {"key": "", "contexts": []}, "key"),
        (CONTEXTS, {"key": "k" * 513, "contexts": []}, "key"),
        (CONTEXTS, {"key": "k", "contexts": [], "question": 5}, "question"),
        (CONTEXTS, {"contexts": []}, "key"),
        (CONTEXTS, {"contexts": [], "trace_id": "abc"}, "trace_id"),
        (CONTEXTS, {"contexts": [], "trace_id": "0" * 32}, "trace_id"),
        (CONTEXTS, {"contexts": [], "trace_id": TRACE + "\n"}, "trace_id"),
        (CONTEXTS, [], None),
        (CONTEXTS, b"{", None),
        (CONTEXTS, b"", None),
        (CONTEXTS, b'{"key": "\xff", "contexts": []}', None),
        (CONTEXTS, b'{"key": "k", "contexts": [], "question": "\\ud83d"}', None),
        (FEEDBACK, {"exchange_id": "e"}, None),
        (FEEDBACK, {"rating": 0.5}, "exchange_id"),
        (FEEDBACK, {"exchange_id": "e", "rating": 1.01}, "rating"),
        (FEEDBACK, {"exchange_id": "e", "rating": -0.5}, "rating"),
        (FEEDBACK, {"exchange_id": "e", "rating": True}, "rating"),
        (FEEDBACK, {"exchange_id": "e", "rating": "good"}, "rating"),
        (FEEDBACK, {"exchange_id": "e", "label": "x" * 201}, "label"),
        (FEEDBACK, {"exchange_id": "e", "question": "q?"}, "question"),
        (FEEDBACK, {"exchange_id": "e", "contexts": [1]}, "contexts[0]"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_field_at_fault(path, body, param):
    async def scenario(bench):
        message = refused(await bench.post(path, body), 400, param)
        assert param is None or message.startswith(f"{param}: ")
        assert bench.results == []

    run(scenario)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (CONTEXTS, {"contexts": [], "trace_id": "abc"}, "trace_id: expected 32 hex digits, not all zero."),
        (CONTEXTS, {"key": 1, "contexts": []}, "key: expected a string, got a number."),
        (CONTEXTS, {"key": "", "contexts": []}, "key: expected at least 1 character."),
        (CONTEXTS, {"key": "k"}, "contexts: required, but missing."),
        (CONTEXTS, {"key": "k", "contexts": None}, "contexts: expected an array, got null."),
        (FEEDBACK, {"exchange_id": "e", "label": "x" * 201}, "label: expected at most 200 characters."),
        (FEEDBACK, {"exchange_id": "e", "rating": 1.01}, "rating: expected a number of at most 1."),
        (FEEDBACK, {"exchange_id": "e", "rating": True}, "rating: expected a number, got a boolean."),
        (FEEDBACK, {"exchange_id": "e", "stars": 5}, "stars: unknown field."),
    ],
)
def test_a_mistake_is_told_in_words_of_json(path, body, message):
    async def scenario(bench):
        assert (await bench.post(path, body)).json()["error"]["message"] == message

    run(scenario)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_beyond_the_limit_is_refused_while_one_at_it_is_taken(chunked):
    async def parts(body):
        yield body

    async def scenario(bench):
        body = json.dumps({"key": "k", "contexts": ["a" * 100]}).encode()
        exact = body + b" " * (1000 - len(body))
        assert (await bench.post(CONTEXTS, exact)).status_code == 202
        response = await bench.client.post(CONTEXTS, content=parts(exact + b" ") if chunked else exact + b" ")
        assert "1000 bytes" in refused(response, 413, None, "request_too_large")

    run(scenario, max_body_bytes=1000)


def test_a_packed_body_is_refused_clearly():
    async def scenario(bench):
        response = await bench.post(CONTEXTS, b"...", **{"content-encoding": "gzip"})
        refused(response, 415, None, "unsupported_encoding")

    run(scenario)


def test_another_method_and_another_path_are_answered_in_the_same_shape():
    async def scenario(bench):
        for method, path in (("GET", CONTEXTS), ("DELETE", FEEDBACK), ("PUT", "/readyz"), ("POST", "/healthz")):
            response = await bench.client.request(method, path)
            assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")
        response = await bench.client.post("/gaugeway/v1/context")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_url")

    run(scenario)


def test_with_keys_a_key_is_asked_for_before_anything_is_read():
    secret = b"gw-" + b"s" * 43
    ring = Keyring([VirtualKey(id="key_1", digest=digest(secret), app="shop", created_at=0.0)])

    async def scenario(bench):
        for headers in ({}, {"authorization": "Bearer gw-wrong"}):
            response = await bench.post(CONTEXTS, b"not even JSON", **headers)
            refused(response, 401, None, "invalid_api_key")
            assert response.headers["www-authenticate"].startswith("Bearer")
        headers = {"authorization": f"Bearer {secret.decode()}"}
        assert (await bench.post(CONTEXTS, {"key": "k", "contexts": []}, **headers)).status_code == 202

    run(scenario, authorise=lambda headers: ring.check(headers, 1.0))


def test_what_is_said_is_redacted_before_it_reaches_the_queue_and_what_cannot_be_is_lost():
    def redact(supplement):
        if supplement.comment == "cannot":
            raise ValueError(supplement.comment)
        return dataclasses.replace(supplement, comment=supplement.comment.replace("secret", "[SECRET]"))

    async def scenario(bench):
        for comment in ("a secret", "cannot", "another secret"):
            await bench.post(FEEDBACK, {"exchange_id": "e", "comment": comment})
        assert [one.comment for one in await bench.taken(2)] == ["a [SECRET]", "another [SECRET]"]
        await bench.supplements.aclose()
        assert bench.results.count(("feedback", "error")) == 1

    run(scenario, redact=redact)


@pytest.mark.parametrize("limits", [{"max_items": 2}, {"max_bytes": 80}])
def test_when_there_is_no_room_the_client_is_told_when_to_come_again(limits):
    async def scenario(bench):
        statuses = []
        for _ in range(4):
            response = await bench.post(CONTEXTS, {"key": "k", "contexts": ["abc"]})
            statuses.append(response.status_code)
        assert statuses == [202, 202, 503, 503]
        assert response.headers["retry-after"] == "5"
        assert response.json()["error"] | {"message": ""} == {
            "message": "",
            "type": "api_error",
            "param": None,
            "code": "overloaded",
        }
        assert bench.results == [("contexts", "accepted")] * 2 + [("contexts", "full")] * 2
        bench.supplements.start()
        assert len(await bench.taken(2)) == 2
        async with asyncio.timeout(60):
            while (await bench.post(CONTEXTS, {"key": "k", "contexts": ["abc"]})).status_code != 202:  # noqa: ASYNC110 - room has no event to wait for
                await asyncio.sleep(0.01)

    run(scenario, start=False, **limits)


def test_a_queue_that_fails_costs_the_client_nothing_and_is_tried_again_in_order():
    queue = BrokenQueue()

    async def scenario(bench):
        for number in range(120):
            response = await bench.post(CONTEXTS, {"key": f"k{number}", "contexts": []})
            assert response.status_code == 202
        queue.broken = False
        assert [one.key for one in await bench.taken(120)] == [f"k{number}" for number in range(120)]

    run(scenario, queue=queue)


def test_what_cannot_be_delivered_before_the_end_is_counted(caplog):
    async def scenario(bench):
        await bench.post(CONTEXTS, {"key": "k", "contexts": []})
        await bench.supplements.aclose(timeout_s=0.2)
        assert bench.results == [("contexts", "accepted"), ("contexts", "error")]

    run(scenario, queue=BrokenQueue())
    assert "1 supplements lost" in caplog.text


def test_what_waits_is_delivered_before_the_end():
    async def scenario(bench):
        for number in range(70):
            await bench.post(CONTEXTS, {"key": f"k{number}", "contexts": []})
        bench.supplements.start()
        await bench.supplements.aclose()
        assert len(await bench.queue.take(100)) == 70

    run(scenario, start=False)


def test_without_supplements_the_paths_are_not_there():
    async def main():
        async with (
            serving(traffic_app(Readiness())) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            assert (await client.post(CONTEXTS, json={})).status_code == 404
            assert (await client.get("/healthz")).status_code == 200

    asyncio.run(main())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(
    ["exchange_id", "key", "trace_id", "contexts", "reference", "rating", "label", "question", "x"]
)


@given(st.dictionaries(fields, json_values).map(json.dumps).map(str.encode) | st.binary(max_size=60))
def test_whatever_is_sent_is_either_taken_or_refused_with_400(body):
    async def main():
        bench = Bench()
        transport = httpx.ASGITransport(traffic_app(Readiness(), bench.supplements))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as bench.client:
            statuses = [(await bench.post(path, body)).status_code for path in (CONTEXTS, FEEDBACK)]
        bench.supplements.start()
        await bench.supplements.aclose()
        return statuses, await bench.queue.take(9)

    statuses, taken = asyncio.run(main())
    assert set(statuses) <= {202, 400}
    assert len(taken) == statuses.count(202)
    assert all(one.exchange_id or one.key or one.trace_id for one in taken)


def test_a_supplement_that_the_queue_refuses_is_counted_and_the_others_arrive():
    class Picky(MemoryQueue):
        async def supply(self, supplements):
            if any(one.key == "bad" for one in supplements):
                raise RefusedError("too long")
            await super().supply(supplements)

    async def scenario(bench):
        for key in ("a", "bad", "b"):
            await bench.post(CONTEXTS, {"key": key, "contexts": ["x"]})
        bench.supplements.start()
        assert {one.key for one in await bench.taken(2)} == {"a", "b"}
        async with asyncio.timeout(60):
            while ("contexts", "error") not in bench.results:  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.01)

    run(scenario, start=False, queue=Picky())


@pytest.mark.parametrize(
    ("passages", "taken"),
    [
        (["x"] * 200, True),
        (["x"] * 201, False),
        ([{"text": f"{at}", "id": f"{at}"} for at in range(50_000)], False),
        (["x" * 500_000] * 2, True),
        (["x" * 500_000] * 2 + ["x"], False),
        ([{"text": "x", "source": "x" * 1_000_000}], True),  # names are cut
    ],
    ids=["most", "one more", "many", "longest", "one byte more", "long source"],
)
@pytest.mark.parametrize("path", [CONTEXTS, FEEDBACK])
def test_more_passages_than_are_kept_are_refused_and_counted(path, passages, taken):
    async def scenario(bench):
        response = await bench.post(path, {"key": "k", "contexts": passages})
        if taken:
            assert response.status_code == 202
            assert [len(one.contexts) for one in await bench.taken(1)] == [len(passages)]
        else:
            refused(response, 413, "contexts", "request_too_large")
            assert bench.results == [(path.rpartition("/")[2], "too_large")]

    run(scenario)


@pytest.mark.parametrize(
    ("path", "field", "most"),
    [
        (CONTEXTS, "question", 100_000),
        (FEEDBACK, "reference", 100_000),
        (FEEDBACK, "comment", 100_000),
        (FEEDBACK, "label", 200),
    ],
)
def test_a_text_beyond_its_bound_is_refused(path, field, most):
    async def scenario(bench):
        said = {"key": "k", "contexts": []}
        assert (await bench.post(path, said | {field: "x" * most})).status_code == 202
        refused(await bench.post(path, said | {field: "x" * (most + 1)}), 400, field)
        assert bench.results == [(path.rpartition("/")[2], "accepted")]

    run(scenario)


def test_what_is_said_carries_the_app_of_its_key_whatever_it_names():
    keys = [
        VirtualKey(id=app, digest=digest(f"gw-{app}".encode()), app=app, created_at=0.0) for app in ("shop", "rival")
    ]
    ring = Keyring(keys)

    async def scenario(bench):
        for app in ("shop", "rival"):
            headers = {"authorization": f"Bearer gw-{app}", "x-gaugeway-app": "shop"}
            assert (await bench.post(CONTEXTS, {"key": app, "contexts": []}, **headers)).status_code == 202
            assert (await bench.post(FEEDBACK, {"key": app, "rating": 1}, **headers)).status_code == 202
        assert sorted((one.key, one.app) for one in await bench.taken(4)) == [("rival",) * 2] * 2 + [("shop",) * 2] * 2

    run(scenario, authorise=lambda headers: ring.check(headers, 1.0))


def test_without_keys_it_carries_the_app_that_is_named_or_none():
    async def scenario(bench):
        for name in ("shop", "caf%C3%A9", ""):
            await bench.post(FEEDBACK, {"key": name or "none", "rating": 1}, **{"x-gaugeway-app": name})
        await bench.post(FEEDBACK, {"key": "-", "rating": 1})
        assert [one.app for one in await bench.taken(4)] == ["shop", "caf\u00e9", None, None]
        odd = await bench.post(FEEDBACK, {"key": "k", "rating": 1}, **{"x-gaugeway-app": "%FF"})
        assert odd.status_code == 400

    run(scenario)

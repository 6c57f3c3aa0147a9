"""Contexts that come apart from their request, through the whole product."""

import time

import httpx

from tests.support.llm_server import LLMServer, Reply
from tests.support.product import product

CONFIG = """
[[upstreams]]
base_url = "{upstream}"
[monitors]
otlp_receiver = true
join_window_s = 8
"""
STARTED_NS = time.time_ns()  # spans older than the retention are deleted
TRACE = "0af7651916cd43dd8448eb211c80319c"
BODY = {"model": "m", "messages": [{"role": "user", "content": "How many moons has Mars?"}]}


def span(trace, index, *texts):
    """A retriever's span as OpenInference writes it, in OTLP's JSON."""
    attributes = {"openinference.span.kind": "RETRIEVER", "input.value": "moons of Mars"}
    for position, text in enumerate(texts):
        attributes[f"retrieval.documents.{position}.document.content"] = text
        attributes[f"retrieval.documents.{position}.document.id"] = f"{index}-{position}"
    return {
        "traceId": trace,
        "spanId": f"{index:016x}",
        "name": "retrieve",
        "startTimeUnixNano": str(STARTED_NS + index),
        "endTimeUnixNano": str(STARTED_NS + index + 100),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }


def ask(running, **headers):
    answer = httpx.post(f"{running.base_url}/chat/completions", json=BODY, headers=headers)
    return answer.headers["x-gaugeway-exchange-id"]


def stored(running, exchange_id):
    running.until(
        lambda: httpx.get(f"{running.monitors}/api/exchanges/{exchange_id}").status_code == 200, 60, what="it is stored"
    )
    return running.get(f"/api/exchanges/{exchange_id}")


def scored(found):
    return [one["outcome"]["kind"] for one in found["evaluations"] if one["metric"] == "lexical_groundedness"]


def test_contexts_reach_their_exchange_by_key_by_trace_and_as_feedback(tmp_path):
    with (
        LLMServer(Reply(content="Mars has two moons.")) as upstream,
        product(tmp_path, CONFIG.format(upstream=upstream.url)) as running,
    ):
        traffic = f"http://127.0.0.1:{running.port}/gaugeway/v1"
        said = {"key": "turn-1", "contexts": ["Mars has two moons, Phobos and Deimos."]}
        assert httpx.post(f"{traffic}/contexts", json=said).status_code == 202  # before the call
        before = ask(running, **{"x-gaugeway-context-key": "turn-1"})
        after = ask(running, **{"x-gaugeway-context-key": "turn-2"})
        assert httpx.post(f"{traffic}/contexts", json={**said, "key": "turn-2"}).status_code == 202
        traced = ask(running, traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
        hops = [span(TRACE, 2, "Deimos is small."), span(TRACE, 1, "Phobos is a moon of Mars.", "Mars is red.")]
        payload = {"resourceSpans": [{"scopeSpans": [{"spans": hops}]}]}
        assert httpx.post(f"{running.monitors}/v1/traces", json=payload).status_code == 200
        bare = ask(running)
        assert scored(stored(running, bare)) == ["skipped"]
        feedback = {"exchange_id": bare, "contexts": ["Mars has two moons."], "reference": "Two."}
        assert httpx.post(f"{traffic}/feedback", json=feedback).status_code == 202

        for exchange_id in (before, after):
            found = stored(running, exchange_id)
            assert found["sample"]["context_source"] == "contexts_api"
            assert scored(found) == ["score"]
        found = stored(running, traced)
        assert found["sample"]["context_source"] == "spans"
        texts = [one["text"] for one in found["sample"]["contexts"]]
        assert texts == ["Phobos is a moon of Mars.", "Mars is red.", "Deimos is small."]
        assert scored(found) == ["score"]
        running.until(lambda: scored(stored(running, bare)) == ["score"], 60, what="what was skipped is computed")
        assert stored(running, bare)["sample"]["reference"] == "Two."

"""What fuzzing found stays found, its harnesses run, and the API does what its document says."""

import asyncio
import importlib
import json

import httpx
import pytest
from litestar import Litestar, get
from prometheus_client import CollectorRegistry

from benchmarks.fuzzing import api, engine
from gateway import config as gateway_config
from gateway.api.health import Readiness, traffic_app
from gateway.api.health import admin_app as gateway_admin
from gateway.http import sse
from gateway.http.sse_events import Events
from gateway.proxy.stream_usage import HideUsage
from gaugeway.prompts.explicit import ExplicitError, from_body_key
from gaugeway.settings import ConfigError
from gaugeway.settings import loading as monitors_config
from gaugeway.settings.shared import Alerts
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.delivery import Delivery
from monitors.api.alerts import alert_handlers
from monitors.api.openapi import document
from monitors.api.otlp import Decoded, Span, receiver
from monitors.api.otlp import codec as otlp
from monitors.judges import openai_client
from tests.support.product import product
from tests.support.running import serving

DEEP = b"[" * 100_000


@pytest.mark.parametrize("target", sorted(engine.TARGETS))
def test_a_harness_finds_nothing_in_what_it_begins_with(target):
    harness = importlib.import_module(f"benchmarks.fuzzing.{target}")
    for seed in harness.SEEDS:
        harness.one(seed)


@pytest.mark.parametrize("unreadable", [b'{"x":"\xff"}', b'{"x":' + DEEP])
def test_an_unreadable_event_costs_itself_and_not_the_answer(unreadable):
    stream = b'data: {"choices":[{"text":"a"}]}\n\ndata: ' + unreadable + b'\n\ndata: {"choices":[{"text":"b"}]}\n\n'
    (choice,) = sse.fold("completions", stream)["choices"]
    assert choice["text"] == "ab"


def test_a_line_that_is_not_followed_by_an_empty_one_is_no_event():
    assert list(Events(b"data: a\n")) == []
    assert list(Events(b"data: a\n\n")) == [b"a"]


def test_an_event_with_usage_that_is_not_utf_8_passes_as_it_came():
    event = b'data: {"choices":["\xff"],"usage":{}}\n\n'
    assert HideUsage().feed(event) == event


def test_contexts_that_are_not_utf_8_are_refused():
    with pytest.raises(ExplicitError):
        from_body_key(b'{"contexts":["\xff"]}')


@pytest.mark.parametrize(
    "text",
    [f"x = {'9' * 5000}", "gateway = 1", "monitors = []", "[[gateway]]", "monitors = 2020-01-01"],
)
def test_a_configuration_that_is_none_is_a_config_error_under_options_too(text, tmp_path):
    file = tmp_path / "gaugeway.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        gateway_config.load(file, {"gateway": {"port": 1}, "monitors": {"port": 2}})
    with pytest.raises(ConfigError):
        monitors_config.load(file, {"monitors": {"port": 1}, "gateway": {"host": "h"}})


@pytest.mark.parametrize("body", [b'{"choices":[{"message":{"content":"\xff"}}]}', b'{"choices":' + DEEP, b"[]", b""])
def test_a_reply_that_is_no_completion_is_one_kind_of_error(body):
    with pytest.raises(ValueError, match=r"."):
        openai_client.read_completion(body)


@pytest.mark.parametrize("odd", [b'["\xff"]', b'["\xff', DEEP])
def test_log_probabilities_that_cannot_be_read_are_none(odd):
    completion = openai_client.Completion(choices=[openai_client.Choice(message=openai_client.Message(), logprobs=odd)])
    assert completion.tokens() == []


@pytest.mark.parametrize("name", ["arrayValue", "unknown"])
def test_spans_nested_without_end_are_no_export_request(name):
    value = b'{"key":"k","value":{"' + name.encode() + b'":{"values":' + DEEP
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[' + value
    with pytest.raises(ValueError, match="ExportTraceServiceRequest"):
        otlp.decode(body, otlp.JSON)


@pytest.mark.parametrize("attribute", ["gen_ai.prompt", "gen_ai.completion"])
def test_a_span_nested_without_end_costs_itself_and_not_its_request(attribute):
    fields = {"langsmith.span.kind": "retriever", "gen_ai.completion": '["a"]'}
    good = Span(trace_id="1" * 32, span_id="1" * 16, started_ns=1, attributes=fields)
    odd = Span(trace_id="2" * 32, span_id="2" * 16, started_ns=1, attributes=fields | {attribute: DEEP.decode()})
    read = receiver.read(Decoded(spans=(odd, good)), 1e9)
    assert [one.trace_id for one in read.supplements] == ["1" * 32]
    assert (read.rejected, read.counts["unreadable"]) == (1, 1)


@pytest.mark.parametrize("body", [b'{"by":"\xff"}', DEEP, b'{"by":' + DEEP])
def test_a_body_that_is_no_json_is_refused_whatever_it_is_made_of(body, tmp_path):
    async def main():
        store = SQLiteStore(tmp_path / "store.db")
        delivery = Delivery({}, store, lambda: 0.0, None, Alerts())
        app = Litestar(alert_handlers(delivery.acknowledgements), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.post("/api/alerts/x/ack", content=body)).status_code == 400
        await store.aclose()

    asyncio.run(main())


def test_a_method_that_is_not_allowed_is_told_which_are():
    async def main():
        async with serving(traffic_app(Readiness())) as port, httpx.AsyncClient() as client:
            answer = await client.post(f"http://127.0.0.1:{port}/healthz")
        assert answer.status_code == 405
        assert "GET" in answer.headers["allow"]

    asyncio.run(main())


def test_a_handler_that_nobody_described_is_noticed():
    @get("/api/new", sync_to_thread=False)
    def new() -> None:
        """Nothing."""

    with pytest.raises(KeyError):
        document([new])


def test_the_gateway_describes_the_routes_that_it_has():
    async def main():
        async with serving(gateway_admin(CollectorRegistry(), "127.0.0.1", "t")) as port, httpx.AsyncClient() as client:
            url = f"http://127.0.0.1:{port}/api/openapi.json"
            assert (await client.get(url)).status_code == 401
            return (await client.get(url, headers={"authorization": "Bearer t"})).json()

    told = asyncio.run(main())
    assert set(told["paths"]) == {"/gaugeway/v1/contexts", "/gaugeway/v1/feedback", "/healthz", "/readyz"}


def test_the_running_product_does_what_its_documents_say(tmp_path):
    (tmp_path / "data").mkdir()
    asyncio.run(api.fill(tmp_path / "data"))
    bearer = {"authorization": f"Bearer {api.TOKEN}"}
    with product(tmp_path, api.CONFIG) as running:
        url = f"{running.monitors}/api/openapi.json"
        assert httpx.get(url).status_code == 401
        told = httpx.get(url, headers=bearer).json()
        assert {"/api/exchanges", "/api/silences", "/v1/traces", "/api/openapi.json"} <= set(told["paths"])
        assert json.dumps(told).count('"$ref"') > 20
        held, requests = api.attack(running, tmp_path, 3, "--phases=coverage", "--generation-deterministic")
        log = running.log.read_text()
    assert held
    assert requests > 100
    assert "Traceback" not in log

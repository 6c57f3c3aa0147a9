"""Names and counts from clients and upstreams are bounded where they enter, on both HTTP paths."""

import asyncio
import json
import re
from urllib.parse import quote

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.config import Config, Price, Upstream
from gateway.telemetry.metrics import MAX_REQUEST_SERIES, Instruments
from gaugeway.exchange import Recording
from gaugeway.runtime.label_cap import MAX_PAIRS
from gaugeway.settings.bounds import MAX_NAME, MAX_TAGS
from tests.support.running import read_request, running_gateway, tcp_server

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("fast_path", [False, True])]
LONG = "n" * 5000
MARKED = re.compile(r".{183}~[0-9a-f]{16}", re.DOTALL)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202e\ud800-\udfff]")
HUGE = 10**30


def answering(**fields):
    body = json.dumps({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}], **fields}).encode()

    async def handler(reader, writer):
        while True:
            try:
                await read_request(reader)
            except asyncio.IncompleteReadError:
                writer.close()
                return
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            await writer.drain()

    return handler


async def captured(fast_path, bodies, headers=None, *, upstream=None, config=None, then=lambda _: None):
    """Send the bodies one after the other; the samples they became."""
    async with tcp_server(answering(**(upstream or {}))) as port:
        config = config or {}
        url = Upstream(base_url=f"http://127.0.0.1:{port}/v1")
        async with (
            running_gateway("", config=Config(upstreams=(url,), **config), fast_path=fast_path) as running,
            httpx.AsyncClient(timeout=30) as client,
        ):
            # The fast path takes only requests for which an upstream connection is idle.
            await client.post(f"http://127.0.0.1:{running.port}/v1/embeddings", json={})
            for body in bodies:
                full = {"model": "m", "messages": [{"role": "user", "content": "Hi?"}]} | body
                answer = await client.post(
                    f"http://127.0.0.1:{running.port}/v1/chat/completions", json=full, headers=headers or {}
                )
                assert answer.status_code == 200, answer.text[:300]
            samples = await running.samples(len(bodies), within_s=30)
            then(running)
            return samples


async def test_long_names_are_cut_stay_distinct_and_are_the_same_every_time(fast_path):
    def named(end):
        name = LONG + end
        return {"model": name, "gaugeway": {"app": name, "session": name, "tags": {name: name}}}

    first, again, other = await captured(fast_path, [named("a"), named("a"), named("b")])
    for one in (first, again, other):
        names = [one.app, one.model, one.session, *one.tags, *one.tags.values()]
        assert all(len(name) == MAX_NAME and MARKED.fullmatch(name) for name in names)
    assert (first.app, first.model, first.session, first.tags) == (again.app, again.model, again.session, again.tags)
    assert first.app != other.app
    assert first.model != other.model
    assert first.tags != other.tags


async def test_names_in_headers_are_bounded_as_those_in_the_body(fast_path):
    headers = {
        "x-gaugeway-app": LONG,
        "x-gaugeway-session": quote("s\x00\x1b[31m"),
        "x-gaugeway-context-key": LONG,
        "x-gaugeway-tags": f"{LONG}={LONG}, tenant={quote(chr(10))}b",
    }
    by_header, by_body = await captured(fast_path, [{}, {"gaugeway": {"app": LONG}}], headers)
    assert by_header.app == by_body.app
    assert MARKED.fullmatch(by_header.context_key)
    assert not CONTROL.search(by_header.session + "".join(by_header.tags.values()))
    assert "".join(by_header.tags)[:5] == "nnnnn"


async def test_control_characters_leave_names_distinct_and_harmless(fast_path):
    odd = ["a\x00", "a\x01", "a\u202eb", "a\x9f"]
    samples = await captured(fast_path, [{"model": one, "gaugeway": {"app": one}} for one in odd])
    assert len({one.app for one in samples}) == len({one.model for one in samples}) == len(odd)
    assert not any(CONTROL.search(one.app + one.model) for one in samples)


async def test_names_that_are_fit_stay_as_they_are(fast_path):
    fit = ["support", "gpt-4o-2024-08-06", "日本 語", "équipe/é:ß@x", "👩‍👧", "x" * MAX_NAME]
    samples = await captured(fast_path, [{"model": one, "gaugeway": {"app": one, "tags": {one: one}}} for one in fit])
    assert [one.app for one in samples] == [one.model for one in samples] == fit
    assert [one.tags for one in samples] == [{one: one} for one in fit]


@pytest.mark.full
async def test_of_too_many_tags_the_first_are_kept_and_the_others_counted(fast_path):
    def dropped(running):
        assert running.counter("gaugeway_tags_dropped_total") == 20_000 - MAX_TAGS

    tags = {f"t{number}": "v" for number in range(20_000)}
    (sample,) = await captured(fast_path, [{"gaugeway": {"tags": tags}}], then=dropped)
    assert list(sample.tags.items()) == list(tags.items())[:MAX_TAGS]


async def test_what_the_upstream_names_is_bounded(fast_path):
    body = {"model": None, "gaugeway": {"contexts": [{"text": "t", "id": LONG, "source": LONG}]}}
    (sample,) = await captured(fast_path, [body], upstream={"id": "i\n" * 5000, "model": LONG})
    assert len(sample.response_id) == len(sample.model) == MAX_NAME
    assert len(sample.contexts[0].id) == len(sample.contexts[0].source) == 1000


@pytest.mark.full
async def test_metrics_stay_small_whatever_clients_call_models_and_apps(fast_path):
    def small(running):
        assert len(generate_latest(running.gateway.registry)) < 2_000_000

    bodies = [{"model": f"{n}-" + "m" * 100_000, "gaugeway": {"app": f"{n}-" + "a" * 100_000}} for n in range(40)]
    await captured(fast_path, bodies, then=small)


@pytest.mark.parametrize("count", [HUGE, -HUGE, 2**63, 2**64, -1, 10**12])
async def test_counts_that_cannot_be_are_unknown(fast_path, count):
    usage = {"prompt_tokens": count, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": count}}

    def counted(running):
        assert running.total("gaugeway_tokens_total") == 7
        assert running.total("gaugeway_cost_usd_total") == pytest.approx(7e-6)

    prices = {"prices": {"*": Price(input=1.0, output=1.0)}}
    (sample,) = await captured(fast_path, [{}], upstream={"usage": usage}, config=prices, then=counted)
    assert (sample.usage.input_tokens, sample.usage.output_tokens, sample.usage.cached_tokens) == (None, 7, None)


class Spans:
    """Keeps what it is given."""

    def __init__(self):
        self.ended = []

    def on_end(self, span):
        self.ended.append(span)

    def shutdown(self):
        pass


async def test_parameters_beyond_64_bits_do_not_reach_the_exporter(fast_path, monkeypatch):
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    spans = Spans()

    monkeypatch.setattr("gateway.telemetry.tracing.batch_processor", lambda _: spans)
    odd = {"max_tokens": HUGE, "seed": -HUGE, "n": HUGE, "temperature": LONG, "top_p": [[HUGE]], "top_k": HUGE}
    await captured(fast_path, [odd])
    (span,) = spans.ended
    assert encode_spans([span])
    assert len(str(span.attributes)) < 5000
    assert str(HUGE) not in str(span.attributes)


def series(registry, name):
    return {
        tuple(sorted(sample.labels.items()))
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def ended(**fields):
    return Recording(id="1", started_at=0.0, method="POST", path="/", request_headers=[], duration_s=0.1, **fields)


@pytest.mark.full
async def test_pairs_of_app_and_model_are_bounded(fast_path):
    registry = CollectorRegistry()
    instruments = Instruments(registry, version="1")
    for app in range(60):
        for model in range(60):
            one = ended(route="chat_completions", status=200)
            instruments.request(one, app=f"a{app}", model=f"m{model}", stream=False)
    shown = series(registry, "gaugeway_request_duration_seconds_count")
    assert MAX_PAIRS <= len(shown) <= MAX_PAIRS + 60
    assert registry.get_sample_value("gaugeway_label_overflow_total", {"label": "app_model"}) == 3600 - MAX_PAIRS
    found = (sample for family in registry.collect() for sample in family.samples)
    assert sum(sample.value for sample in found if sample.name == "gaugeway_requests_total") == 3600


async def test_series_of_requests_are_bounded_however_kinds_combine(fast_path, monkeypatch):
    monkeypatch.setattr("gateway.telemetry.metrics.MAX_REQUEST_SERIES", 100)
    assert MAX_REQUEST_SERIES > 100
    registry = CollectorRegistry()
    instruments = Instruments(registry, version="1")
    for app in range(20):
        for status in range(100, 1200, 100):
            one = ended(route="chat_completions", status=status)
            instruments.request(one, app=f"a{app}", model="m", stream=False)
    assert len(series(registry, "gaugeway_requests_total")) <= 100 + 11

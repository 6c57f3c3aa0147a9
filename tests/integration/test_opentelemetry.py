"""Spans and events as a collector receives them, over OTLP."""

import contextlib
import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.demo.model import Model, serve
from tests.support.product import product

CONFIG = """
[[upstreams]]
base_url = "{url}"

[judge]
base_url = "{url}"
model = "judge-1"

[metrics.faithfulness]
rate = 1.0

[telemetry]
otlp_endpoint = "{collector}"
"""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "Phobos and Deimos are secrets"


class Collector:
    """Receives OTLP over HTTP."""

    def __init__(self):
        self.spans = []
        self.events = []
        self.raw = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path, body):
        self.raw += body
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        else:
            for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.events += [record for scope in resource.scope_logs for record in scope.log_records]

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def collecting(tmp_path, model):
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve(model))
        collector = stack.enter_context(contextlib.closing(Collector()))
        yield collector, stack.enter_context(product(tmp_path, CONFIG.format(url=url, collector=collector.url)))


def attributes(one):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in one.attributes}


def ask(running, **headers):
    return httpx.post(
        f"{running.base_url}/chat/completions",
        headers=headers,
        json={
            "model": "m",
            "temperature": 0.5,
            "messages": [{"role": "user", "content": f"How many moons has Mars? {SECRET}"}],
            "gaugeway": {"contexts": [f"Mars has two moons. {SECRET}."], "app": "shop"},
        },
    ).raise_for_status()


def test_spans_links_and_events_join_the_apps_trace(tmp_path):
    model = Model()
    with collecting(tmp_path, model) as (collector, running):
        ask(running, traceparent=f"00-{TRACE}-{PARENT}-01")
        ask(running)
        running.until(
            lambda: running.value(running.monitors, "gaugeway_evaluations_total", metric="faithfulness") == 2,
            60,
            what="both are scored",
        )
        running.stop()  # flushes the buffers
    clients = [span for span in collector.spans if span.name == "chat m"]
    assert len(clients) == 2
    client = next(span for span in clients if span.trace_id.hex() == TRACE)
    root = next(span for span in clients if span is not client)
    assert client.parent_span_id.hex() == PARENT
    assert client.kind == 3  # CLIENT
    assert root.parent_span_id == b""
    found = attributes(client)
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.model"] == "m"
    assert found["gen_ai.request.temperature"] == 0.5
    assert found["gen_ai.usage.input_tokens"] > 0
    assert found["gaugeway.app"] == "shop"
    # the upstream was told that our span is its parent
    seen = {entry.header("traceparent") for entry in model.log if entry.task is None}
    assert seen == {f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in clients}
    evaluations = [span for span in collector.spans if span.name == "evaluation shop"]
    assert len(evaluations) == 2
    for span in evaluations:
        assert span.parent_span_id == b""
        assert span.trace_id.hex() != TRACE
        (link,) = span.links
        assert (link.trace_id, link.span_id) in {(one.trace_id, one.span_id) for one in clients}
        assert attributes(span)["openinference.span.kind"] == "EVALUATOR"
    events = [event for event in collector.events if event.trace_id.hex() == TRACE]
    named = {attributes(event)["gen_ai.evaluation.name"]: event for event in events}
    assert {"faithfulness", "lexical_groundedness"} <= set(named)
    for event in events:
        assert event.event_name == "gen_ai.evaluation.result"
        assert event.span_id == client.span_id
    score = attributes(named["faithfulness"])
    assert 0.0 <= score["gen_ai.evaluation.score.value"] <= 1.0
    assert score["gaugeway.evaluation.judge.model"] == "judge-1"
    assert b"secret" not in collector.raw.lower()


def test_an_unsampled_trace_gets_no_span_of_ours_but_its_evaluation(tmp_path):
    with collecting(tmp_path, Model()) as (collector, running):
        ask(running, traceparent=f"00-{TRACE}-{PARENT}-00")
        running.until(
            lambda: running.value(running.monitors, "gaugeway_evaluations_total", metric="faithfulness") == 1,
            60,
            what="it is scored",
        )
        running.stop()
    assert [span.name for span in collector.spans] == ["evaluation shop"]


def test_a_collector_that_is_gone_slows_nothing(tmp_path):
    with serve(Model()) as url:
        config = CONFIG.format(url=url, collector="http://127.0.0.1:9")
        with product(tmp_path, config, command="gateway") as running:
            seconds = [ask(running).elapsed.total_seconds() for _ in range(20)]
            assert max(seconds) < 1.0
            running.until(
                lambda: running.value(running.admin, "gaugeway_exchanges_total", outcome="captured") == 20,
                60,
                what="all are captured",
            )

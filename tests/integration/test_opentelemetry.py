"""Spans and events as a collector receives them, over OTLP."""

import contextlib
import gzip
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gaugeway.records import PROMPT_SCHEME
from gaugeway.runtime.otlp_exporters import SCHEMA_URL
from tests.support.product import product
from tests.support.scripted_model import Model, serve

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
        self.metrics = []
        self.paths = []
        self.scopes = []
        self.resources = []
        self.headers = []
        self.raw = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.headers.append(self.headers)
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
        self.paths.append(path)
        if path.endswith("/v1/traces"):
            found = ExportTraceServiceRequest.FromString(body).resource_spans
            scopes = [scope for resource in found for scope in resource.scope_spans]
            self.spans += [span for scope in scopes for span in scope.spans]
        elif path.endswith("/v1/metrics"):
            found = ExportMetricsServiceRequest.FromString(body).resource_metrics
            scopes = [scope for resource in found for scope in resource.scope_metrics]
            self.metrics += [metric for scope in scopes for metric in scope.metrics]
        else:
            found = ExportLogsServiceRequest.FromString(body).resource_logs
            scopes = [scope for resource in found for scope in resource.scope_logs]
            self.events += [record for scope in scopes for record in scope.log_records]
        self.resources += [attributes(one.resource) for one in found]
        self.scopes += [(one.scope.name, one.scope.version, one.schema_url) for one in scopes]

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


def ask(running, instructions=None, **headers):
    return httpx.post(
        f"{running.base_url}/chat/completions",
        headers=headers,
        json={
            "model": "m",
            "temperature": 0.5,
            "messages": [
                *([instructions] if instructions else []),
                {"role": "user", "content": f"How many moons has Mars? {SECRET}"},
            ],
            "gaugeway": {"contexts": [f"Mars has two moons. {SECRET}."], "app": "shop"},
        },
    ).raise_for_status()


def assert_metrics_agree(metrics, spans):
    named = {metric.name: metric for metric in metrics}
    (durations,) = named["gen_ai.client.inference.duration"].histogram.data_points
    assert durations.count == len(spans)
    assert attributes(durations)["gen_ai.request.model"] == "m"
    (spent,) = named["gen_ai.client.inference.usage.input_tokens"].sum.data_points
    assert spent.as_int == sum(attributes(span)["gen_ai.usage.input_tokens"] for span in spans)
    assert not [name for name in named if name.startswith(("gen_ai.client.operation", "gen_ai.client.token"))]


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
    asked = [entry for entry in model.log if entry.task is None and entry.path.endswith("/chat/completions")]
    seen = {entry.header("traceparent") for entry in asked}
    assert seen == {f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in clients}
    evaluations = [span for span in collector.spans if span.name == "evaluation shop"]
    assert len(evaluations) == 2
    for span in evaluations:
        assert span.parent_span_id == b""
        assert span.trace_id.hex() != TRACE
        (link,) = span.links
        assert (link.trace_id, link.span_id) in {(one.trace_id, one.span_id) for one in clients}
        assert attributes(span)["openinference.span.kind"] == "EVALUATOR"
        assert attributes(span)["gaugeway.signal.abstained"] == 0.0
        assert attributes(span)["gaugeway.signal.truncated"] == 0.0
    events = [event for event in collector.events if event.trace_id.hex() == TRACE]
    named = {attributes(event)["gen_ai.evaluation.name"]: event for event in events}
    assert {"faithfulness", "lexical_groundedness"} <= set(named)
    assert "abstained" not in named
    for event in events:
        assert event.event_name == "gen_ai.evaluation.result"
        assert event.span_id == client.span_id
    score = attributes(named["faithfulness"])
    assert 0.0 <= score["gen_ai.evaluation.score.value"] <= 1.0
    assert score["gaugeway.evaluation.judge.model"] == "judge-1"
    assert score["gen_ai.evaluation.score.label"] == (
        "pass" if score["gen_ai.evaluation.score.value"] >= 0.7 else "fail"
    )
    assert score["gaugeway.evaluation.outcome"] == "scored"
    assert_metrics_agree(collector.metrics, clients)
    assert b"secret" not in collector.raw.lower()
    assert set(collector.scopes) == {("gaugeway", version("gaugeway"), SCHEMA_URL)}
    assert {one["service.name"] for one in collector.resources} == {"gaugeway-gateway", "gaugeway-monitors"}


def test_conversation_prompt_and_provider_are_named_and_a_session_is_redacted(tmp_path):
    model = Model()
    config = CONFIG.replace("[judge]", 'provider = "vllm"\n\n[capture]\nredact = ["email"]\n\n[judge]', 1)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve(model))
        collector = stack.enter_context(contextlib.closing(Collector()))
        running = stack.enter_context(product(tmp_path, config.format(url=url, collector=collector.url)))
        instructions = {"role": "system", "content": "You know the planets."}
        for extra in ({}, {"x-gaugeway-capture": "off"}):
            ask(running, instructions=instructions, **{"x-session-id": "anna@example.com", **extra})
        running.until(
            lambda: running.value(running.monitors, "gaugeway_evaluations_total", metric="faithfulness") == 1,
            60,
            what="one is scored",
        )
        running.stop()
    captured, off = sorted(
        (one for one in collector.spans if one.name == "chat m"), key=lambda one: one.start_time_unix_nano
    )
    found = attributes(captured)
    assert found["gen_ai.provider.name"] == found["llm.provider"] == "vllm"
    assert found["gen_ai.conversation.id"] == found["session.id"]
    assert found["gen_ai.conversation.id"].startswith("[EMAIL_")
    assert re.fullmatch(rf"{PROMPT_SCHEME}[0-9a-f]{{12}}", found["gen_ai.prompt.version"])
    evaluation = attributes(next(one for one in collector.spans if one.name == "evaluation shop"))
    for name in ("gen_ai.conversation.id", "gen_ai.prompt.version"):
        assert {evaluation[name], *(attributes(one)[name] for one in collector.events)} == {found[name]}
    assert not {"gen_ai.conversation.id", "session.id", "gen_ai.prompt.version"} & set(attributes(off))
    assert b"anna" not in collector.raw


def test_without_a_table_the_environment_says_where_to_export_and_as_what(tmp_path, monkeypatch):
    """OTEL_SERVICE_NAME beats OTEL_RESOURCE_ATTRIBUTES, and headers are sent but never logged."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve(Model()))
        collector = stack.enter_context(contextlib.closing(Collector()))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{collector.url}/")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=s3cr3t%20key,torn s3cr3t")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-gateway")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=staging")
        config = CONFIG.partition("[telemetry]")[0].format(url=url)
        running = stack.enter_context(product(tmp_path, config))
        ask(running)
        running.until(
            lambda: running.value(running.monitors, "gaugeway_evaluations_total", metric="faithfulness") == 1,
            60,
            what="it is scored",
        )
        running.stop()
    assert {span.name for span in collector.spans} == {"chat m", "evaluation shop"}
    assert collector.events
    assert {one["service.name"] for one in collector.resources} == {"shop-gateway"}
    assert {one["deployment.environment.name"] for one in collector.resources} == {"staging"}
    assert {one["x-collector-key"] for one in collector.headers} == {"s3cr3t key"}
    assert "OTEL_EXPORTER_OTLP_HEADERS: ignoring" in running.log.read_text()
    assert "s3cr3t" not in running.log.read_text()


def test_the_configuration_beats_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=of-the-environment")
    more = 'otlp_headers = {{ x-key = "of-the-file" }}\n'
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve(Model()))
        collector = stack.enter_context(contextlib.closing(Collector()))
        config = (CONFIG + more).format(url=url, collector=collector.url)
        running = stack.enter_context(product(tmp_path, config, command="gateway"))
        ask(running)
        running.stop()
    assert [span.name for span in collector.spans] == ["chat m"]
    assert {one["x-key"] for one in collector.headers} == {"of-the-file"}
    assert not {one["x-langfuse-ingestion-version"] for one in collector.headers} - {None}


def test_old_names_are_added_and_langfuse_gets_its_header_and_only_spans(tmp_path):
    """Both processes write to Langfuse's path, where neither log events nor metrics are taken."""
    version_header = "x-langfuse-ingestion-version"
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve(Model()))
        collector = stack.enter_context(contextlib.closing(Collector()))
        config = CONFIG.format(url=url, collector=f"{collector.url}/api/public/otel")
        more = 'events = false\ncontent = true\nsemconv = "both"\notlp_headers = { authorization = "Basic abc" }\n'
        running = stack.enter_context(product(tmp_path, config + more))
        ask(running)
        running.until(
            lambda: running.value(running.monitors, "gaugeway_evaluations_total", metric="faithfulness") == 1,
            60,
            what="it is scored",
        )
        running.stop()
    assert set(collector.paths) == {"/api/public/otel/v1/traces"}
    assert {(one[version_header], one["authorization"]) for one in collector.headers} == {("4", "Basic abc")}
    retrieval = attributes(next(span for span in collector.spans if span.name == "retrieval"))
    assert retrieval["gen_ai.request.top_k"] == retrieval["gen_ai.retrieval.top_k"] == 1


def test_spans_of_tools_that_an_app_sends_are_durations_for_the_collector(tmp_path):
    began = time.time_ns()
    tool = {
        "traceId": TRACE,
        "spanId": PARENT,
        "name": "execute_tool search",
        "startTimeUnixNano": str(began - 250_000_000),
        "endTimeUnixNano": str(began),
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
            {"key": "gen_ai.tool.name", "value": {"stringValue": "search"}},
        ],
    }
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serve(Model()))
        collector = stack.enter_context(contextlib.closing(Collector()))
        config = CONFIG.format(url=url, collector=collector.url) + "\n[monitors]\notlp_receiver = true\n"
        running = stack.enter_context(product(tmp_path, config, command="monitors"))
        body = {"resourceSpans": [{"scopeSpans": [{"spans": [tool, {**tool, "spanId": "1" * 16}]}]}]}
        httpx.post(f"{running.monitors}/v1/traces", json=body).raise_for_status()
        running.stop()  # flushes what a minute would
    (metric,) = collector.metrics
    (found,) = metric.histogram.data_points
    assert metric.name == "gen_ai.execute_tool.duration"
    assert (found.count, round(found.sum, 3), attributes(found)) == (2, 0.5, {"gen_ai.tool.name": "search"})


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

"""Scores at a server that checks them against what Langfuse documents for `POST /api/public/scores`.

Schema: CreateScoreRequest in fern/apis/server/definition/scores.yml of github.com/langfuse/langfuse.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gaugeway.records import Evaluation, Sample, Score
from monitors.exporters import outbox
from monitors.exporters.langfuse import LangfuseSink
from tests.monitors.exporters.test_outbox import FAITHFUL, LEXICAL, SAMPLE, SPAN, TRACE, Counts

TEXT = {
    *("id", "traceId", "sessionId", "observationId", "datasetRunId", "name", "comment", "environment", "queueId"),
    *("dataType", "configId", "source"),
}
DATA_TYPES = {"NUMERIC", "CATEGORICAL", "BOOLEAN", "TEXT", "CORRECTION"}


def problems(body):
    """What is wrong with a request, by the schema."""
    if unknown := set(body) - TEXT - {"value", "metadata"}:
        yield f"unknown: {unknown}"
    yield from (f"{key} is no string" for key in TEXT & set(body) if not isinstance(body[key], str))
    if not body.get("name"):
        yield "name is required"
    if "value" not in body:
        yield "value is required"
    data_type = body.get("dataType", "NUMERIC")
    if data_type not in DATA_TYPES:
        yield f"dataType is {data_type}"
    number = isinstance(body.get("value"), int | float) and not isinstance(body["value"], bool)
    if number != (data_type in ("NUMERIC", "BOOLEAN")):
        yield "the value does not fit its dataType"
    if sum(key in body for key in ("traceId", "sessionId", "datasetRunId")) != 1:
        yield "a score belongs to a trace, a session or a run"
    if "observationId" in body and "traceId" not in body:
        yield "an observation belongs to a trace"
    if not isinstance(body.get("metadata", {}), dict):
        yield "metadata is no map"
    if not re.fullmatch(r"(?!langfuse)[a-z0-9_-]+", body.get("environment", "default")):
        yield "environment"


class Langfuse:
    """Keeps one score for an id, the last. `limits` are answered first: (status, headers)."""

    def __init__(self, *limits):
        self.scores, self.requests = {}, 0
        server, waiting = self, list(limits)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                server.requests += 1
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = "Basic " + base64.b64encode(b"pk-lf-1:sk-lf-1").decode()
                if self.path != "/api/public/scores":
                    self.answer(404, {"message": "not found"})
                elif self.headers["authorization"] != key:
                    self.answer(401, {"message": "Invalid credentials"})
                elif waiting:
                    status, headers = waiting.pop(0)
                    self.answer(status, {"message": "slow down"}, headers)
                elif found := list(problems(body)):
                    self.answer(400, {"message": "Invalid request data", "error": found})
                else:
                    server.scores[body["id"]] = body
                    self.answer(200, {"id": body["id"]})

            def answer(self, status, body, headers=()):
                text = json.dumps(body).encode()
                self.send_response(status)
                for name, value in dict(headers).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_S", 0.02)


def send(server, *batches, key="sk-lf-1", until, give_up_s=5.0, **options):
    async def main():
        counts = Counts()
        sink = LangfuseSink(
            url=server.url, observe=counts, public_key="pk-lf-1", secret_key=key, give_up_s=give_up_s, **options
        )
        for batch in batches:
            sink.export(SAMPLE, batch)
        for result, scores in until.items():
            await counts.until(result, scores)
        await sink.aclose()
        return counts

    return asyncio.run(main())


def test_what_is_sent_fits_the_documented_schema():
    with Langfuse() as server:
        counts = send(server, [FAITHFUL, LEXICAL], until={"sent": 2}, content=True, environment="production")
    assert counts == {"sent": 2}
    found = {one["name"]: one for one in server.scores.values()}
    assert found["faithfulness"] | {"id": ""} == {
        "id": "",
        "traceId": TRACE,
        "observationId": SPAN,
        "name": "faithfulness",
        "value": 0.5,
        "dataType": "NUMERIC",
        "comment": "the answer says: Two.",
        "environment": "production",
        "metadata": {"exchange": "x1", "app": "shop", "version": "1-a", "judge": "judge-1"},
    }
    assert found["lexical_groundedness"]["metadata"]["judge"] == "none"


def test_sent_twice_it_is_there_once_and_another_version_beside_it():
    newer = Evaluation(sample_id="x1", metric="faithfulness", version="2-a", outcome=Score(0.25))
    with Langfuse() as server:
        send(server, [FAITHFUL], [FAITHFUL], [newer], until={"sent": 3})
    assert server.requests == 3
    assert sorted(one["value"] for one in server.scores.values()) == [0.25, 0.5]


def test_a_rate_limit_is_waited_for_and_nothing_is_lost():
    with Langfuse((429, {"retry-after": "1"}), (503, {})) as server:
        counts = send(server, [FAITHFUL, LEXICAL], until={"sent": 2})
    assert counts["sent"] == len(server.scores) == 2
    assert counts["retried"] >= 2


def test_a_wrong_key_loses_nothing_until_it_is_given_up():
    with Langfuse() as server:
        counts = send(server, [FAITHFUL], until={"gave_up": 1}, key="sk-lf-2", give_up_s=0.2)
    assert counts["gave_up"] == 1
    assert counts["retried"] >= 1
    assert not server.scores


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a", "traceId": TRACE},
        {"name": "a", "value": "0.5", "traceId": TRACE},
        {"name": "a", "value": 0.5},
        {"name": "a", "value": 0.5, "traceId": TRACE, "score": 1},
        {"name": "a", "value": 0.5, "traceId": TRACE, "environment": "langfuse-x"},
        {"name": "a", "value": 0.5, "sessionId": "s", "observationId": SPAN},
    ],
)
def test_the_server_refuses_what_the_schema_does_not_allow(body):
    assert list(problems(body))


def test_a_sample_without_a_trace_has_nowhere_to_go():
    async def main(server):
        counts = Counts()
        sink = LangfuseSink(url=server.url, observe=counts, public_key="pk-lf-1", secret_key="sk-lf-1")
        sink.export(Sample(id="x2", started_at=0.0), [FAITHFUL])
        await sink.aclose()
        return counts

    with Langfuse() as server:
        assert asyncio.run(main(server)) == {"no_trace": 1}
    assert server.requests == 0

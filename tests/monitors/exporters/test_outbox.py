"""What sinks send, how often, and what becomes of it: against real HTTP servers that keep what they were sent."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

from gaugeway import settings
from gaugeway.records import Context, Evaluation, Failed, Sample, Score, Skipped
from gaugeway.settings import ConfigError
from gaugeway.settings import shared as config
from monitors.exporters import factory as sinks
from monitors.exporters import outbox
from monitors.exporters import retrieval_spans as retrieval
from monitors.exporters.instruments import Instruments
from monitors.exporters.langfuse import LangfuseSink
from monitors.exporters.mlflow import MLflowSink
from monitors.exporters.outbox import Delivery, NotYetError, Outbox, RefusedError, UnavailableError
from monitors.exporters.phoenix import PhoenixSink

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLE = Sample(
    id="x1",
    started_at=1_760_000_000.0,
    app="shop",
    model="m",
    question="How many moons has Mars?",
    contexts=(Context(text="Mars has two moons."), Context(text="Venus has none.")),
    context_source="explicit",
    response="Two.",
    trace_id=TRACE,
    span_id=SPAN,
)
FAITHFUL = Evaluation(
    sample_id="x1", metric="faithfulness", version="1-a", judge="judge-1", outcome=Score(0.5, "the answer says: Two.")
)
LEXICAL = Evaluation(sample_id="x1", metric="lexical_groundedness", version="1", outcome=Score(1.0, "all of it"))
RELEVANT = Evaluation(
    sample_id="x1",
    metric="context_relevancy",
    version="1-b",
    judge="judge-1",
    outcome=Score(0.5, "", ({"context": 0, "ratio": 1.0}, {"context": 1, "ratio": 0.0}, {"context": 7, "ratio": 1.0})),
)


@dataclass
class Call:
    """One request as it arrived."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """A real HTTP server on loopback; `answer` says status, headers and JSON of the answer to a call."""

    answer: Any
    calls: list[Call] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in head[1:] if one)}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                method, target, _ = head[0].split()
                parts = urlsplit(target)
                call = Call(method, parts.path, parts.query, headers, json.loads(raw) if raw else None)
                self.calls.append(call)
                status, more, body = self.answer(call)
                text = json.dumps(body).encode()
                lines = [
                    f"HTTP/1.1 {status} X",
                    f"content-length: {len(text)}",
                    *(f"{k}: {v}" for k, v in more.items()),
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode() + text)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer):
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        yield server


def well(_call):
    return 200, {}, {"data": []}


class Counts(dict):
    """What became of how many scores."""

    def __call__(self, result, scores):
        self[result] = self.get(result, 0) + scores

    async def until(self, result, scores, within_s=60.0):
        async with asyncio.timeout(within_s):
            while self.get(result, 0) < scores:  # noqa: ASYNC110 - counters have no event to wait for
                await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_S", 0.02)


async def test_phoenix_is_sent_scores_on_the_span_and_relevance_on_the_passages():
    counts = Counts()
    async with serving(well) as server:
        sink = PhoenixSink(url=server.url, observe=counts, api_key="k", documents=True)
        skipped = Evaluation(sample_id="x1", metric="recall", version="1", outcome=Skipped("no_reference"))
        failed = Evaluation(sample_id="x1", metric="geval", version="1", outcome=Failed("judge_timeout"))
        sink.export(SAMPLE, [FAITHFUL, RELEVANT, LEXICAL, skipped, failed])
        await counts.until("sent", 5)
        await sink.aclose()
        calls = server.calls
    assert counts == {"sent": 5}
    spans, documents = sorted(calls, key=lambda call: call.path, reverse=True)
    assert (spans.method, spans.path, spans.query) == ("POST", "/v1/span_annotations", "sync=true")
    assert spans.headers["authorization"] == "Bearer k"
    faithful, _, lexical = spans.body["data"]
    assert faithful == {
        "span_id": SPAN,
        "name": "faithfulness",
        "annotator_kind": "LLM",
        "identifier": "x1:faithfulness:1-a",
        "result": {"score": 0.5},
        "metadata": {"exchange": "x1", "app": "shop", "version": "1-a", "judge": "judge-1"},
    }
    assert lexical["annotator_kind"] == "CODE"
    assert (documents.path, documents.query) == ("/v1/document_annotations", "sync=true")
    assert [(one["span_id"], one["document_position"], one["result"]) for one in documents.body["data"]] == [
        (retrieval.span_id(SAMPLE), 0, {"score": 1.0}),
        (retrieval.span_id(SAMPLE), 1, {"score": 0.0}),
    ]
    assert "identifier" not in documents.body["data"][0]  # Phoenix takes none there


@pytest.mark.parametrize("content", [False, True])
async def test_explanations_quote_the_answer_and_go_out_only_when_asked_for(content):
    counts = Counts()
    keys = {"public_key": "p", "secret_key": "s"}
    async with serving(well) as server:
        sinks = [
            PhoenixSink(url=server.url, observe=counts, content=content),
            MLflowSink(url=server.url, observe=counts, content=content),
            LangfuseSink(url=server.url, observe=counts, content=content, **keys),
        ]
        for sink in sinks:
            sink.export(SAMPLE, [FAITHFUL])
        await counts.until("sent", 3)
        for sink in sinks:
            await sink.aclose()
        sent = json.dumps([call.body for call in server.calls])
    assert sent.count("the answer says") == (3 if content else 0)
    assert "Mars" not in sent


async def test_only_the_chosen_metrics_are_sent_and_what_has_no_trace_is_counted():
    counts = Counts()
    async with serving(well) as server:
        sink = PhoenixSink(url=server.url, observe=counts, metrics=["lexical_*"])
        sink.export(SAMPLE, [FAITHFUL])
        sink.export(Sample(id="x2", started_at=0.0), [LEXICAL])
        sink.export(SAMPLE, [FAITHFUL, LEXICAL])
        await counts.until("sent", 1)
        await sink.aclose()
        calls = server.calls
    assert [[one["name"] for one in call.body["data"]] for call in calls] == [["lexical_groundedness"]]
    assert counts == {"no_trace": 1, "sent": 1}


async def test_a_score_that_comes_before_its_span_is_sent_again_until_the_span_is_there():
    counts, known = Counts(), set()

    def phoenix(call):
        missing = {one["span_id"] for one in call.body["data"]} - known
        return (404, {}, {"detail": "do not exist"}) if missing else (200, {}, {"data": []})

    async with serving(phoenix) as server:
        sink = PhoenixSink(url=server.url, observe=counts)
        sink.export(SAMPLE, [FAITHFUL])
        other = Sample(id="x2", started_at=0.0, trace_id=TRACE, span_id="00f067aa0ba902b7")
        known.add(other.span_id)
        sink.export(other, [LEXICAL])
        await counts.until("sent", 1)  # the one that waits holds up nobody
        await counts.until("retried", 2)
        known.add(SPAN)
        await counts.until("sent", 2)
        await sink.aclose()
        calls = server.calls
    assert set(counts) == {"sent", "retried"}
    assert len(calls) == counts["sent"] + counts["retried"]


async def test_mlflow_keeps_one_assessment_for_an_evaluation_however_often_it_is_sent():
    counts, stored = Counts(), {}

    def mlflow(call):
        trace = f"/api/3.0/mlflow/traces/tr-{TRACE}"
        assert call.path.startswith(trace)
        if call.method == "GET":
            return 200, {}, {"trace": {"trace_info": {"assessments": list(stored.values())}}}
        one = call.body["assessment"]
        if call.method == "POST":
            stored[f"a-{len(stored)}"] = {**one, "assessment_id": f"a-{len(stored)}"}
        else:
            assert call.path == f"{trace}/assessments/{one['assessment_id']}"
            stored[one["assessment_id"]] |= {key: one[key] for key in call.body["update_mask"].split(",")}
        return 200, {}, {"assessment": one}

    async with serving(mlflow) as server:
        sink = MLflowSink(url=server.url, observe=counts, public_key="user", secret_key="word")
        for evaluation in (FAITHFUL, FAITHFUL, LEXICAL):
            sink.export(SAMPLE, [evaluation])
        again = Evaluation(sample_id="x1", metric="faithfulness", version="1-a", outcome=Score(0.75))
        sink.export(SAMPLE, [again])
        await counts.until("sent", 4)
        await sink.aclose()
        calls = server.calls
    assert {one["assessment_name"]: one["feedback"]["value"] for one in stored.values()} == {
        "faithfulness": 0.75,
        "lexical_groundedness": 1.0,
    }
    assert len(stored) == 2
    assert [call.method for call in calls].count("PATCH") == 1
    assert stored["a-0"]["source"] == {"source_type": "LLM_JUDGE", "source_id": "judge-1"}
    assert stored["a-1"]["source"] == {"source_type": "CODE", "source_id": "gaugeway"}
    assert stored["a-0"]["span_id"] == SPAN
    assert calls[0].headers["authorization"] == "Basic " + base64.b64encode(b"user:word").decode()


# --- the outbox ----------------------------------------------------------------------------------------------------


def outcome_of(answers, *, give_up_s=5.0, count=1):
    """Send to a server that gives these answers in order, the last for ever; return counts and times of arrival."""

    async def main():
        counts, times, replies = Counts(), [], list(answers)

        def answer(_call):
            times.append(asyncio.get_running_loop().time())
            return replies.pop(0) if len(replies) > 1 else replies[0]

        async with serving(answer) as server:
            sink = PhoenixSink(url=server.url, observe=counts, give_up_s=give_up_s)
            sink.export(SAMPLE, [FAITHFUL])
            async with asyncio.timeout(60):
                while not any(counts.get(one) for one in ("sent", "refused", "gave_up")):  # noqa: ASYNC110 - same
                    await asyncio.sleep(0.005)
            await sink.aclose()
        return counts, times

    return asyncio.run(main())


@pytest.mark.parametrize("status", [401, 408, 429, 500, 503])
def test_a_server_that_cannot_now_is_asked_again(status):
    counts, _ = outcome_of([(status, {}, {}), (status, {}, {}), (200, {}, {})])
    assert counts == {"retried": 2, "sent": 1}


@pytest.mark.parametrize("status", [307, 400, 413, 422])
def test_what_is_refused_is_not_sent_again(status, caplog):
    counts, times = outcome_of([(status, {}, {"detail": "no"})])
    assert (counts, len(times)) == ({"refused": 1}, 1)
    assert f"answered {status}: no" in caplog.text


def test_what_was_sent_is_not_repeated_in_the_log(caplog):
    counts, _ = outcome_of([(422, {}, {"detail": [{"msg": "wrong", "input": "the answer says"}]})])
    assert counts == {"refused": 1}
    assert "answered 422" in caplog.text
    assert "the answer" not in caplog.text


def test_retry_after_is_honoured():
    counts, times = outcome_of([(429, {"retry-after": "1"}, {}), (200, {}, {})])
    assert counts == {"retried": 1, "sent": 1}
    assert times[1] - times[0] >= 0.95


@pytest.mark.parametrize("status", [404, 503])
def test_after_the_time_to_give_up_it_is_given_up_and_said(status, caplog):
    counts, times = outcome_of([(status, {}, {})], give_up_s=0.3)
    assert counts.pop("retried") == len(times) - 1
    assert counts == {"gave_up": 1}
    assert "gave up 1 scores" in caplog.text


async def test_exporting_never_waits_and_holds_a_bounded_number_while_the_server_is_gone():
    counts = Counts()
    box = Outbox("gone", _unavailable, count=counts, give_up_s=60, limit=100)
    begin = time.thread_time()
    for number in range(150):
        box.offer(Delivery(number, str(number), 2))
    took = time.thread_time() - begin
    await asyncio.sleep(0.2)
    await box.aclose(0.1)
    assert counts["overflow"] == 100  # 50 deliveries of two scores
    assert counts["unsent"] == 200
    assert took < 0.1


async def _unavailable(_item):
    raise UnavailableError("gone")


async def test_while_nothing_gets_through_one_delivery_tries_and_then_all_go():
    counts, tried, up = Counts(), [], False

    async def send(item):
        tried.append(item)
        await asyncio.sleep(0.01)
        if not up:
            raise UnavailableError("gone")

    box = Outbox("gone", send, count=counts, give_up_s=60)
    for number in range(50):
        box.offer(Delivery(number, str(number), 1))
    await asyncio.sleep(0.5)
    before = len(tried)
    up = True
    await counts.until("sent", 50)
    await box.aclose()
    assert before < 15  # four at first, then one by one with pauses; without the pause it were hundreds
    assert counts["sent"] == 50
    assert counts["retried"] < 20


async def test_those_who_wait_behind_a_server_that_is_gone_are_given_up_too_without_a_try_of_their_own():
    counts = Counts()
    box = Outbox("gone", _unavailable, count=counts, give_up_s=0.3)
    for number in range(500):
        box.offer(Delivery(number, str(number), 1))
    await counts.until("gave_up", 500)
    await box.aclose()
    assert counts["gave_up"] == 500
    assert counts["retried"] < 20


async def test_deliveries_of_one_key_go_one_after_the_other_in_order():
    counts, ended, at_once = Counts(), [], []
    under_way = 0

    async def send(item):
        nonlocal under_way
        under_way += 1
        at_once.append(under_way)
        await asyncio.sleep(0.002)
        under_way -= 1
        ended.append(item)

    box = Outbox("slow", send, count=counts, give_up_s=60)
    for number in range(12):
        box.offer(Delivery(number, "same", 1))
    await counts.until("sent", 12)
    await box.aclose()
    assert ended == list(range(12))
    assert set(at_once) == {1}


async def test_closing_sends_what_is_left_without_waiting_for_what_was_to_be_waited_for():
    counts, there = Counts(), False

    async def send(_item):
        if not there:
            raise NotYetError("no span")

    box = Outbox("late", send, count=counts, give_up_s=60)
    box.offer(Delivery(1, "1", 1))
    await counts.until("retried", 4)
    there = True
    await box.aclose()
    box.offer(Delivery(2, "2", 1))
    assert counts["sent"] == 1
    assert counts["overflow"] == 1


async def test_a_mistake_of_ours_is_counted_and_stops_nobody(caplog):
    counts = Counts()

    async def send(item):
        if item == 0:
            raise KeyError("oops")
        if item == 1:
            raise RefusedError("no")

    box = Outbox("odd", send, count=counts, give_up_s=60)
    for number in range(3):
        box.offer(Delivery(number, str(number), 1))
    await counts.until("sent", 1)
    await box.aclose()
    assert counts == {"refused": 2, "sent": 1}
    assert "KeyError" in caplog.text


# --- from the configuration ----------------------------------------------------------------------------------------


def opened(*tables, **telemetry):
    shared = settings.convert({"sinks": [*tables], "telemetry": telemetry}, config.Config)
    registry = CollectorRegistry()
    return sinks.open_sinks(shared, Instruments(registry, version="0")), registry


def test_sinks_are_off_unless_they_are_named():
    assert opened()[0] == []


def test_each_sink_counts_under_its_kind_and_place():
    async def main():
        async with serving(well) as server:
            built, registry = opened(
                {"kind": "phoenix", "url": server.url},
                {"kind": "phoenix", "url": server.url, "metrics": ["faith*"]},
                {"kind": "langfuse", "url": server.url, "public_key": "p", "secret_key": "s"},
            )
            for sink in built:
                sink.export(SAMPLE, [FAITHFUL, LEXICAL])
            for sink in built:
                await sink.aclose()
        return [
            registry.get_sample_value("gaugeway_sink_results_total", {"sink": name, "result": "sent"})
            for name in ("phoenix-0", "phoenix-1", "langfuse-2")
        ]

    assert asyncio.run(main()) == [2, 1, 2]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"kind": "phenix", "url": "http://h"}, "kind: unknown kind 'phenix'; use one of langfuse, mlflow, phoenix"),
        ({"kind": "phoenix", "url": "http://u:s3cr3t@h"}, "no password"),
        ({"kind": "phoenix", "url": "h:6006"}, "http://"),
        ({"kind": "langfuse", "url": "http://h"}, "public_key"),
        ({"kind": "phoenix", "url": "http://h", "secret_key": "s3cr3t"}, "secret_key"),
    ],
)
def test_a_sink_that_cannot_be_built_is_named_without_its_keys(table, said):
    with pytest.raises(ConfigError) as caught:
        opened(table)
    assert caught.value.problems[0].startswith("sinks[0]")
    assert said in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_passages_are_annotated_only_where_they_are_exported():
    async def main(**telemetry):
        async with serving(well) as server:
            (sink,), _ = opened({"kind": "phoenix", "url": server.url}, **telemetry)
            sink.export(SAMPLE, [RELEVANT])
            await sink.aclose()
        return sorted(call.path for call in server.calls)

    endpoint = "http://127.0.0.1:9"
    spans = "/v1/span_annotations"
    assert asyncio.run(main()) == [spans]
    assert asyncio.run(main(otlp_endpoint=endpoint)) == [spans]
    assert asyncio.run(main(otlp_endpoint=endpoint, content=True)) == ["/v1/document_annotations", spans]


@pytest.mark.full
async def test_keys_are_never_logged(caplog):
    async def main(server, status):
        counts = Counts()
        built = [
            PhoenixSink(url=server.url, observe=counts, api_key="phoenix-word", give_up_s=0.1),
            MLflowSink(url=server.url, observe=counts, api_key="mlflow-word", give_up_s=0.1),
            LangfuseSink(url=server.url, observe=counts, public_key="p", secret_key="langfuse-word", give_up_s=0.1),
        ]
        for sink in built:
            sink.export(SAMPLE, [FAITHFUL])
        await asyncio.sleep(0.3)
        for sink in built:
            await sink.aclose()

    caplog.set_level(logging.DEBUG)
    for status in (200, 400, 401, 404, 500):
        async with serving(lambda _call, status=status: (status, {}, {})) as server:
            await main(server, status)
    assert "answered 400" in caplog.text
    assert "-word" not in caplog.text
    assert base64.b64encode(b"p:langfuse-word").decode() not in caplog.text
    assert "word" not in repr(config.Sink(kind="langfuse", url="http://h", options={"secret_key": "word"}))

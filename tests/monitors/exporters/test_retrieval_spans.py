"""Passages as a retrieval span: what is in it, where it hangs, and when there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version

import pytest
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from gaugeway.records import Context, Evaluation, Failed, Score, Skipped
from gaugeway.runtime.otlp_exporters import SCHEMA_URL
from monitors.exporters import retrieval_spans as retrieval
from monitors.exporters.otel import OTelExporter
from monitors.exporters.outbox import SampleScores
from monitors.metrics.judged.passage_verdicts import relevances
from tests.monitors.exporters.test_outbox import FAITHFUL, RELEVANT, SAMPLE, SPAN, TRACE

PASSES = {"faithfulness": (0.7, False)}


def exported(*samples, content=True, events=True, evaluations=(FAITHFUL,), passes=PASSES, both=False):
    spans, logs = InMemorySpanExporter(), InMemoryLogRecordExporter()
    exporter = OTelExporter(
        SimpleSpanProcessor(spans),
        SimpleLogRecordProcessor(logs) if events else None,
        passes=passes,
        content=content,
        both=both,
    )
    for sample in samples:
        exporter.export(sample, evaluations)
    found, records = spans.get_finished_spans(), logs.get_finished_logs()
    exporter.shutdown()
    return found, records


def test_passages_are_a_retriever_span_below_the_exchange():
    passage = Context(text="Mars has two moons.", id="d1", score=0.9, source="atlas.pdf")
    spans, _ = exported(replace(SAMPLE, contexts=(passage, Context(text="Venus has none."))))
    span = next(one for one in spans if one.name == "retrieval")
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == SPAN
    assert f"{span.context.span_id:016x}" == retrieval.span_id(SAMPLE)
    assert span.kind is SpanKind.INTERNAL
    assert span.start_time == span.end_time == int(SAMPLE.started_at * 1e9)
    found = dict(span.attributes)
    assert json.loads(found.pop("gen_ai.retrieval.documents")) == [
        {"id": "d1", "score": 0.9, "content": "Mars has two moons.", "metadata": {"source": "atlas.pdf"}},
        {"content": "Venus has none."},
    ]
    assert found == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.query.text": "How many moons has Mars?",
        "gen_ai.retrieval.top_k": 2,
        "openinference.span.kind": "RETRIEVER",
        "input.value": "How many moons has Mars?",
        "input.mime_type": "text/plain",
        "retrieval.documents.0.document.id": "d1",
        "retrieval.documents.0.document.score": 0.9,
        "retrieval.documents.0.document.content": "Mars has two moons.",
        "retrieval.documents.0.document.metadata": '{"source": "atlas.pdf"}',
        "retrieval.documents.1.document.content": "Venus has none.",
        "gaugeway.exchange.id": "x1",
        "gaugeway.app": "shop",
        "gaugeway.context.source": "explicit",
    }
    evaluation = next(one for one in spans if one.name == "evaluation shop")
    assert evaluation.attributes["input.value"] == "How many moons has Mars?"
    assert evaluation.attributes["output.value"] == "Two."


def test_both_adds_the_name_before_0_1():
    old = {}
    for both in (False, True):
        spans, _ = exported(SAMPLE, both=both)
        found = next(one for one in spans if one.name == "retrieval").attributes
        assert found["gen_ai.retrieval.top_k"] == len(SAMPLE.contexts)
        old[both] = found.get("gen_ai.request.top_k")
    assert old == {False: None, True: float(len(SAMPLE.contexts))}


def test_every_span_names_the_session_and_no_event_does():
    spans, logs = exported(replace(SAMPLE, session="s1"))
    assert [one.attributes["session.id"] for one in spans] == ["s1", "s1"]
    assert "session.id" not in logs[0].log_record.attributes
    assert "session.id" not in exported(SAMPLE)[0][0].attributes


def test_without_content_there_is_no_text_in_any_span():
    spans, _ = exported(SAMPLE, content=False)
    assert [one.name for one in spans] == ["evaluation shop"]
    assert "Mars" not in spans[0].to_json()
    assert "Two" not in spans[0].to_json()


def test_a_retrieval_that_found_nothing_is_shown_and_none_is_not():
    nothing = replace(SAMPLE, contexts=())
    assert "retrieval" in [one.name for one in exported(nothing)[0]]
    assert "retrieval" not in [one.name for one in exported(replace(nothing, context_source="none"))[0]]
    assert "retrieval" not in [one.name for one in exported(replace(SAMPLE, trace_id=None))[0]]


def test_the_same_sample_again_is_the_same_span():
    spans, _ = exported(SAMPLE, SAMPLE, replace(SAMPLE, id="x2"))
    ids = [one.context.span_id for one in spans if one.name == "retrieval"]
    assert ids[0] == ids[1] != ids[2]


def test_long_texts_are_cut():
    spans, _ = exported(replace(SAMPLE, contexts=(Context(text="a" * 100_000),)))
    span = next(one for one in spans if one.name == "retrieval")
    assert len(span.attributes["retrieval.documents.0.document.content"]) == retrieval.LONGEST + 1


def test_every_span_and_event_names_scope_version_and_schema():
    spans, logs = exported(SAMPLE)
    assert {one.name for one in spans} == {"retrieval", "evaluation shop"}
    scopes = {one.instrumentation_scope for one in (*spans, *logs)}
    assert {(one.name, one.version, one.schema_url) for one in scopes} == {
        ("gaugeway", version("gaugeway"), SCHEMA_URL)
    }


def scored(value, metric="faithfulness"):
    return Evaluation(sample_id="x1", metric=metric, version="1", outcome=Score(value))


@pytest.mark.parametrize(
    ("evaluation", "passes", "label"),
    [
        (scored(0.7), PASSES, "pass"),
        (scored(0.69), PASSES, "fail"),
        (scored(0.3, "toxicity"), {"toxicity": (0.3, True)}, "pass"),
        (scored(0.31, "toxicity"), {"toxicity": (0.3, True)}, "fail"),
        (scored(0.9, "no_threshold"), PASSES, None),
        (replace(FAITHFUL, outcome=Skipped("no_contexts")), PASSES, None),
        (replace(FAITHFUL, outcome=Failed("timeout")), PASSES, None),
    ],
)
def test_the_label_says_whether_the_threshold_is_met_and_the_outcome_whether_there_is_a_score(
    evaluation, passes, label
):
    spans, logs = exported(SAMPLE, evaluations=[evaluation], passes=passes, content=False)
    event = logs[0].log_record.attributes
    outcome, kind = evaluation.outcome, type(evaluation.outcome)
    assert event.get("gen_ai.evaluation.score.label") == label
    assert event["gaugeway.evaluation.outcome"] == {Score: "scored", Skipped: "skipped", Failed: "failed"}[kind]
    assert event.get("gaugeway.evaluation.skip_reason") == (outcome.reason if kind is Skipped else None)
    assert event.get("error.type") == (outcome.error if kind is Failed else None)
    assert event.get("gen_ai.evaluation.score.value") == (outcome.value if kind is Score else None)
    span = spans[0].attributes
    assert span.get("evaluations.0.evaluation.label") == label
    assert span["evaluations.0.evaluation.outcome"] == event["gaugeway.evaluation.outcome"]


def test_spans_and_events_name_the_version_of_the_prompt():
    spans, logs = exported(replace(SAMPLE, prompt="0a1b2c3d4e5f"))
    found = [dict(one.attributes) for one in spans] + [dict(one.log_record.attributes) for one in logs]
    assert {one["gen_ai.prompt.version"] for one in found} == {"0a1b2c3d4e5f"}


def test_events_can_be_left_out_for_endpoints_that_take_none():
    assert exported(SAMPLE)[1]
    assert not exported(SAMPLE, events=False)[1]


@pytest.mark.parametrize(
    ("evidence", "found"),
    [
        (RELEVANT.outcome.evidence, [(0, 1.0), (1, 0.0)]),
        (({"context": 0, "ratio": None}, {"context": 1, "ratio": 0.25}), [(1, 0.25)]),
        (({"context": 1, "ratings": [2, 1]},), [(1, 0.75)]),
        (({"context": 0, "useful": True}, {"context": 1, "useful": False}), [(0, 1.0), (1, 0.0)]),
        (({"claim": "c", "verdict": "supported", "context": 0},), []),
        (({"ratings": [2, 1]}, {"context": None, "useful": True}, {"rank": 1, "relevant": True}), []),
    ],
)
def test_the_relevance_of_each_passage_is_read_from_the_evidence(evidence, found):
    score = Score(0.5, "", evidence)
    scored = SampleScores(Evaluation(sample_id="x1", metric="m", version="1", outcome=score), score)
    assert list(relevances(SAMPLE.contexts, scored.score.evidence)) == found


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"session": "chat-7", "conversation": "a1b2"}, "chat-7"),
        ({"conversation": "a1b2"}, "a1b2"),
        ({}, None),
    ],
)
def test_spans_and_events_name_the_conversation(names, expected):
    spans, logs = exported(replace(SAMPLE, **names))
    found = [dict(one.attributes) for one in spans] + [dict(one.log_record.attributes) for one in logs]
    assert len(found) == 3
    assert {one.get("gen_ai.conversation.id") for one in found} == {expected}


def signal(name, value):
    return Evaluation(sample_id="x1", metric=name, version="2", outcome=Score(value))


def test_signals_are_attributes_of_the_evaluation_and_no_events():
    spans, events = exported(SAMPLE, evaluations=(FAITHFUL, signal("abstained", 1.0), signal("slow", 0.0)))
    found = next(one for one in spans if one.name == "evaluation shop").attributes
    assert {key: value for key, value in found.items() if "signal" in key} == {
        "gaugeway.signal.abstained": 1.0,
        "gaugeway.signal.slow": 0.0,
    }
    assert found["evaluations.0.evaluation.name"] == "faithfulness"
    assert "evaluations.1.evaluation.name" not in found
    assert len(events) == 1


def test_an_exchange_with_signals_alone_has_no_span():
    assert exported(SAMPLE, evaluations=(signal("abstained", 1.0),)) == ((), ())

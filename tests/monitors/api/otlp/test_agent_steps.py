"""Spans of tools and agents, as an instrumented app exports them, become the calls of its answer."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Sample, ToolCall
from gaugeway.redaction import Redactor
from gaugeway.settings.bounds import MAX_ARGUMENTS, MAX_CALLS, bounded_supplement
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from monitors.api.otlp import Decoded, Span
from monitors.api.otlp.receiver import read
from tests.monitors.api.otlp.test_otlp import exported, openinference, receiving
from tests.support.product import product

pytestmark = pytest.mark.full

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NOW = 1_700_000_000.0
CITY = '{"city": "Paris"}'


def tool(name, arguments=None, **more):
    given = {} if arguments is None else {"gen_ai.tool.call.arguments": arguments}
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **given, **more}


def agent(name):
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}


def agent_run(tracer, on_answer=lambda trace_id: None):
    """An agent that calls a tool, asks another agent, and then its model, which is when `on_answer` is called."""
    with tracer.start_as_current_span("invoke_agent concierge") as root:
        root.set_attributes(agent("concierge"))
        with tracer.start_as_current_span("execute_tool weather") as called:
            called.set_attributes(tool("weather", CITY, **{"gen_ai.tool.call.id": "call_1"}))
        with tracer.start_as_current_span("invoke_agent researcher") as other:
            other.set_attributes(agent("researcher"))
            with tracer.start_as_current_span("search") as inner:
                inner.set_attributes(tool("search") | openinference("q?", ("d1", "Paris is a city.", 0.5)))
        trace_id = format(root.get_span_context().trace_id, "032x")
        time.sleep(0.1)
        on_answer(trace_id)
        with tracer.start_as_current_span("chat m") as chat:
            chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    return trace_id


async def test_opentelemetrys_own_exporter_is_understood():
    queue = MemoryQueue()
    async with receiving(queue) as (url, counts):
        trace_id = await exported(url, agent_run)
        found = sorted(await queue.take(10), key=lambda one: one.received_at)
        assert counts() == {"openinference": 1.0}
    assert [one.calls for one in found] == [
        (ToolCall(name="concierge"),),
        (ToolCall(name="weather", arguments=CITY),),
        (ToolCall(name="researcher"),),
        (ToolCall(name="search", arguments="q?"),),
    ]
    assert {one.trace_id for one in found} == {trace_id}
    concierge, weather, *_ = found
    assert weather.received_at <= weather.ended_at < concierge.ended_at
    assert [bool(one.contexts) for one in found] == [False, False, False, True]


async def _put(path, name, trace_id):
    queue = SQLiteQueue(path)
    one = Sample(id=name, started_at=time.time(), question="q?", response="Paris is a city.", trace_id=trace_id)
    await queue.put([one])
    await queue.aclose()


def test_what_ended_before_the_answer_was_asked_for_is_its_calls_in_the_running_product(tmp_path):
    """The agent that asks is still running then, so it is none of them."""
    config = "[monitors]\notlp_receiver = true\njoin_window_s = 60\n"
    with product(tmp_path, config, command="monitors") as running:
        url, path = f"{running.monitors}/v1/traces", running.data / "queue.db"
        run = lambda tracer: agent_run(tracer, lambda trace_id: asyncio.run(_put(path, "answer", trace_id)))  # noqa: E731
        asyncio.run(exported(url, run))

        def stored():
            try:
                return running.get("/api/exchanges/answer")
            except Exception:  # noqa: BLE001 - not stored yet
                return None

        running.until(lambda: stored() is not None, 60, what="the answer is stored")
        exchange = stored()
        assert [(one["name"], one["arguments"]) for one in exchange["sample"]["calls"]] == [
            ("weather", CITY),
            ("researcher", ""),
            ("search", "q?"),
        ]
        assert [one["text"] for one in exchange["sample"]["contexts"]] == ["Paris is a city."]
        series = "gaugeway_agent_spans_total"
        assert running.value(running.monitors, series, operation="execute_tool") == 2
        assert running.value(running.monitors, series, operation="invoke_agent") == 2


def span(attributes, **more):
    times = {"started_ns": int(NOW * 1e9), "ended_ns": int((NOW + 1) * 1e9)}
    return Span(**{"trace_id": TRACE, "span_id": SPAN, "attributes": attributes, **times, **more})


def steps(*spans):
    return read(Decoded(spans=spans), NOW + 10)


@pytest.mark.parametrize(
    ("attributes", "call"),
    [
        (tool("weather", CITY), ToolCall(name="weather", arguments=CITY)),
        (tool("weather", {"city": "Paris"}), ToolCall(name="weather", arguments='{"city":"Paris"}')),
        (tool("weather", "__REDACTED__"), ToolCall(name="weather")),
        (tool("weather", {"n": "\ud800"}), ToolCall(name="weather")),
        (agent("planner") | {"input.value": "a question"}, ToolCall(name="planner")),
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.id": "asst_1"}, ToolCall(name="asst_1")),
        (
            {"openinference.span.kind": "TOOL", "tool.name": "weather", "input.value": CITY},
            ToolCall(name="weather", arguments=CITY),
        ),
        ({"openinference.span.kind": "AGENT", "agent.name": "planner"}, ToolCall(name="planner")),
        (
            {"traceloop.span.kind": "tool", "traceloop.entity.name": "weather", "traceloop.entity.input": CITY},
            ToolCall(name="weather", arguments=CITY),
        ),
        ({"traceloop.span.kind": "agent", "traceloop.entity.name": "planner"}, ToolCall(name="planner")),
    ],
)
def test_each_convention_is_read(attributes, call):
    found = steps(span(attributes))
    assert [one.calls for one in found.supplements] == [(call,)]
    assert found.supplements[0].contexts is None
    assert (found.rejected, found.complaint) == (0, "")


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "chat", "openinference.span.kind": "TOOL", "tool.name": "x"},
        {"gen_ai.operation.name": "create_agent", "gen_ai.agent.name": "planner"},
        {"openinference.span.kind": "LLM"},
        {"openinference.span.kind": ["TOOL"]},
        {},
    ],
)
def test_other_spans_are_ignored(attributes):
    assert steps(span(attributes)).supplements == []


def test_a_tool_without_a_name_is_rejected_and_counted():
    found = steps(span({"gen_ai.operation.name": "execute_tool"}))
    assert (found.supplements, found.rejected, found.steps) == ([], 1, {"unreadable": 1})
    assert found.complaint == f"span {SPAN} (execute_tool): no gen_ai.tool.name"


def test_a_span_with_passages_and_a_call_carries_both():
    attributes = tool("search", '{"q": "moons"}') | openinference("moons?", ("d1", "Mars has two.", 0.5))
    (one,) = steps(span(attributes)).supplements
    assert one.calls == (ToolCall(name="search", arguments='{"q": "moons"}'),)
    assert one.contexts == (Context(text="Mars has two.", id="d1", score=0.5, source="d1.md"),)
    assert one.question == "moons?"


def test_passages_that_are_left_out_do_not_cost_the_call():
    attributes = tool("search") | {"openinference.span.kind": "RETRIEVER"}
    found = steps(span(attributes))
    assert [one.calls for one in found.supplements] == [(ToolCall(name="search"),)]
    assert (found.rejected, found.counts, found.steps) == (0, {"unreadable": 1}, {"execute_tool": 1})
    assert "leave content out" in found.complaint


@pytest.mark.parametrize(
    ("started_s", "ended_s", "ended_at"),
    [(NOW, NOW + 2, NOW + 2), (NOW, NOW, NOW), (NOW, NOW - 1, None), (0, NOW, None), (NOW, 0, None), (9e9, 9e9, None)],
)
def test_an_end_that_cannot_be_is_not_believed(started_s, ended_s, ended_at):
    one = span(tool("weather"), started_ns=int(started_s * 1e9), ended_ns=int(ended_s * 1e9))
    assert steps(one).supplements[0].ended_at == ended_at


def test_arguments_are_redacted_before_they_are_cut_and_dropped_without_content():
    secret = "sk-" + "a1B2" * 12
    arguments = json.dumps({"note": "x" * (MAX_ARGUMENTS - 30), "key": secret})
    redactor = Redactor(("secret",), (), "salt")
    (one,) = steps(span(tool("pay", arguments))).supplements
    kept = bounded_supplement(redactor.redact_supplement(one))
    assert len(kept.calls[0].arguments) == MAX_ARGUMENTS
    assert "[SECRET_" in kept.calls[0].arguments
    assert "sk-" not in kept.calls[0].arguments
    assert redactor.supplement_without_content(one).calls == (ToolCall(name="pay"),)


def test_the_calls_of_one_span_are_bounded():
    (one,) = steps(span(tool("n" * 10_000, "a" * 10_000_000))).supplements
    assert len(one.calls[0].name) == 200
    assert len(one.calls[0].arguments) == 100_000
    assert len(bounded_supplement(one).calls) <= MAX_CALLS

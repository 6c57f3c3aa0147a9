"""How long retrievers, tools and agents took, by an app's spans: names, attributes, and what is left out."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from monitors.api.otlp import Span
from monitors.api.otlp.durations import StepDurations

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND


def span(seconds=0.25, started=START, **attributes):
    return Span(
        trace_id="1" * 32,
        span_id="2" * 16,
        started_ns=started,
        ended_ns=started + int(seconds * SECOND),
        attributes={name.replace("__", "."): value for name, value in attributes.items()},
    )


def recorded(*spans):
    """The metrics by name: of each point what was measured, and its attributes."""
    reader = InMemoryMetricReader()
    StepDurations(reader).record(spans)
    data = reader.get_metrics_data()
    scopes = [] if data is None else data.resource_metrics[0].scope_metrics
    return {
        metric.name: [(point.sum, point.count, dict(point.attributes)) for point in metric.data.data_points]
        for scope in scopes
        for metric in scope.metrics
    }


TOOL = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "search"}
AGENT = {"gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": "planner"}


def test_each_step_is_under_the_name_and_with_the_attributes_of_its_operation():
    found = recorded(
        span(0.25, **TOOL, gen_ai__tool__type="function", gen_ai__agent__name="planner"),
        span(0.5, **TOOL, gen_ai__tool__type="function", gen_ai__agent__name="planner"),
        span(0.1, **TOOL, error__type="timeout", gen_ai__tool__call__arguments="anna@example.com"),
        span(3.0, **AGENT, gen_ai__request__model="m"),
        span(0.02, gen_ai__operation__name="retrieval"),
        span(9.0, gen_ai__operation__name="chat"),
    )
    assert found == {
        "gen_ai.execute_tool.duration": [
            (
                0.75,
                2,
                {"gen_ai.tool.name": "search", "gen_ai.tool.type": "function", "gen_ai.agent.name": "planner"},
            ),
            (0.1, 1, {"gen_ai.tool.name": "search", "error.type": "timeout"}),
        ],
        "gen_ai.invoke_agent.duration": [(3.0, 1, {"gen_ai.agent.name": "planner", "gen_ai.request.model": "m"})],
        "gen_ai.retrieval.duration": [(0.02, 1, {"gen_ai.operation.name": "retrieval"})],
    }


@pytest.mark.parametrize(
    ("attributes", "name", "labels"),
    [
        (
            {"openinference__span__kind": "TOOL", "tool__name": "search"},
            "gen_ai.execute_tool.duration",
            {"gen_ai.tool.name": "search"},
        ),
        (
            {"traceloop__span__kind": "agent", "traceloop__entity__name": "planner"},
            "gen_ai.invoke_agent.duration",
            {"gen_ai.agent.name": "planner"},
        ),
        (
            {"openinference__span__kind": "RETRIEVER"},
            "gen_ai.retrieval.duration",
            {"gen_ai.operation.name": "retrieval"},
        ),
    ],
)
def test_spans_of_other_conventions_are_recorded_under_the_same_names(attributes, name, labels):
    assert recorded(span(**attributes)) == {name: [(0.25, 1, labels)]}


def test_a_tool_that_retrieves_is_both():
    found = recorded(span(**TOOL, gen_ai__retrieval__documents="[]"))
    assert set(found) == {"gen_ai.execute_tool.duration", "gen_ai.retrieval.duration"}


@pytest.mark.parametrize(
    "left_out",
    [
        span(gen_ai__operation__name="execute_tool"),
        span(-1.0, **TOOL),
        span(3601.0, **TOOL),
        span(started=0, **TOOL),
    ],
)
def test_a_tool_without_a_name_and_a_time_that_cannot_be_are_left_out(left_out):
    assert recorded(left_out) == {}


def test_names_of_an_app_are_bounded_and_only_texts():
    (point,) = recorded(span(**AGENT | {"gen_ai__agent__name": "a" * 10_000}, error__type=7))[
        "gen_ai.invoke_agent.duration"
    ]
    assert list(point[2]) == ["gen_ai.agent.name"]
    assert len(point[2]["gen_ai.agent.name"]) == 200

"""The reference says how every route of the installed `openai` package is treated."""

import pytest

from gateway.access.operations import operation_of
from tests.support.openai_routes import BEGIN, END, PAGE, routes, table, treatment


def test_the_reference_lists_every_route_of_the_openai_package():
    shown = PAGE.read_text("utf-8").split(BEGIN)[1].split(END)[0].strip()
    assert shown == table(), "the routes or their treatment changed: python tests/support/openai_routes.py --write"


def test_the_routes_are_read_from_the_package():
    read = routes()
    assert len(read) > 380
    assert {
        ("POST", "/decisions"),
        ("DELETE", "/models/{model}"),
        ("WebSocket", "/live/sessions/{session_id}/attach"),
    } < read


def test_a_route_that_the_gateway_does_not_know_is_listed_as_unknown():
    assert treatment("POST", "/oracles/{oracle_id}/ask") == ("unknown", "no", "no")


@pytest.mark.parametrize("path", ["decisions", "systemone"])
def test_a_decision_writes_no_tokens_and_names_its_model(path):
    operation = operation_of("POST", f"/v1/{path}".encode())
    assert (operation.kind, operation.names_model, operation.input_only) == ("metered", True, True)
    assert operation_of("POST", f"/v1/{path}/d_1".encode()).kind == "unknown"
    assert operation_of("GET", f"/v1/{path}".encode()).kind == "unknown"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("evals/e/runs/r/cancel", "free"),
        ("fine_tuning/jobs/j/pause", "free"),
        ("fine_tuning/jobs/j/resume", "unmetered"),
        ("conversations/c/items", "free"),
        ("organization/projects/p/archive", "unknown"),
        ("cancel", "unknown"),
        ("responses/cancel", "unmetered"),
    ],
)
def test_what_stops_or_stores_something_is_free(path, kind):
    assert operation_of("POST", f"/v1/{path}".encode()).kind == kind

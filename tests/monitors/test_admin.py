"""Who may read the monitors' admin port."""

from __future__ import annotations

import pytest
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from monitors.api import admin_app
from monitors.quality import Quality


class Insight:
    """As much of the plane as these tests ask for."""

    store = None

    async def status(self):
        return {"version": "0"}

    def quality(self):
        return [Quality(app=app, metric="m", n=1, n_eff=1.0, coverage_ratio=1.0) for app in ("a", "b")]

    def states(self):
        return {("a", "m"): "firing"}

    def alerts(self):
        return []


def ask(path, *, host="127.0.0.1", token=None, headers=None):
    app = admin_app(Insight(), CollectorRegistry(), host=host, token=token)
    with TestClient(app) as client:
        return client.get(path, headers=headers or {})


@pytest.mark.parametrize(
    "name", ["localhost", "LOCALHOST:9465", "127.0.0.1:9465", "[::1]:9465", "[::1]", "10.0.0.7:9465", "127.0.0.1:"]
)
def test_without_a_token_a_request_to_this_machine_is_answered(name):
    for path in ("/api/status", "/metrics"):
        assert ask(path, host="10.0.0.7", headers={"host": name}).status_code == 200


def test_the_address_it_is_bound_to_is_a_name_of_it():
    assert ask("/api/status", host="fe80::1", headers={"host": "[fe80::1]:9465"}).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["evil.example", "evil.example:9465", "localhost.evil.example", "127.0.0.1.evil.example:80", "localhost:x", ""],
)
def test_a_name_that_somebody_else_made_point_here_is_refused(name):
    for path in ("/api/status", "/api/exchanges", "/api/exchanges/x", "/metrics"):
        answer = ask(path, headers={"host": name})
        assert answer.status_code == 403
        assert "localhost" in answer.text
    assert ask("/healthz", headers={"host": name}).status_code == 200


def test_with_a_token_the_token_decides_and_the_name_does_not():
    headers = {"host": "gaugeway.internal:9465"}
    assert ask("/api/status", token="t", headers=headers).status_code == 401
    assert ask("/api/status", token="t", headers=headers | {"authorization": "Bearer t"}).status_code == 200


def test_the_state_of_what_no_rule_watches_is_said():
    answer = ask("/api/metrics", headers={"host": "localhost"}).json()
    assert [(one["app"], one["state"]) for one in answer] == [("a", "firing"), ("b", "unwatched")]

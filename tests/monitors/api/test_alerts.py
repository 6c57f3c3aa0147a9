"""Silences, acknowledgements and dead letters over real HTTP, with a real delivery behind them."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager

import httpx
import pytest
from litestar import Litestar

from gaugeway.settings.shared import Alerts
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.acknowledgements import NotLeaderError
from monitors.alerting.delivery import Delivery
from monitors.api.alerts import alert_handlers
from monitors.api.app import not_here
from tests.support.alerting import People
from tests.support.receivers import alert
from tests.support.running import serving

MATCHERS = [{"name": "app", "op": "=", "value": "shop"}]


class World:
    def __init__(self, delivery, client):
        self.delivery, self.client, self.later_s = delivery, client, 0.0

    def notified(self, notifier, result):
        """Nobody counts."""

    async def tick(self, *alerts):
        self.delivery.start(alerts)
        await self.delivery.aclose()

    async def ask(self, method, path, body=None, status=200, **headers):
        response = await self.client.request(method, path, json=body, headers=headers)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def refused(self, method, path, body, status=400, **headers):
        return (await self.ask(method, path, body, status, **headers))["detail"]


@asynccontextmanager
async def alerts_api(tmp_path, *, begun=True, config=None, **notifiers):
    store = SQLiteStore(tmp_path / "store.db")
    made = World(None, None)
    made.delivery = Delivery(notifiers, store, lambda: time.time() + made.later_s, made, config or Alerts())
    if begun:
        made.delivery.restore(await store.load(), [])
    app = Litestar(
        alert_handlers(made.delivery.acknowledgements),
        exception_handlers={NotLeaderError: not_here},
        openapi_config=None,
        logging_config=None,
    )
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as made.client:
        yield made
    await store.aclose()


async def test_a_silence_is_made_shown_and_taken_back(tmp_path):
    people = People()
    async with alerts_api(tmp_path, people=people) as world:
        body = {"matchers": MATCHERS, "duration_s": 600, "by": "lee", "comment": "new index"}
        made = await world.ask("POST", "/api/silences", body, 201)
        assert (made["state"], made["by"], made["comment"]) == ("active", "lee", "new index")
        assert made["ends"] - made["starts"] == 600.0
        assert abs(made["starts"] - time.time()) < 5.0
        await world.tick(alert())
        assert people.heard == []
        later = {"matchers": MATCHERS, "starts": time.time() + 60, "ends": time.time() + 120, "by": "lee"}
        planned = await world.ask("POST", "/api/silences", later, 201)
        assert planned["state"] == "pending"
        assert {one["id"] for one in await world.ask("GET", "/api/silences")} == {made["id"], planned["id"]}
        await world.ask("DELETE", f"/api/silences/{made['id']}", status=204)
        states = {one["id"]: (one["state"], one["removed"]) for one in await world.ask("GET", "/api/silences")}
        assert states == {made["id"]: ("expired", True), planned["id"]: ("pending", False)}
        assert made["id"] in await world.refused("DELETE", f"/api/silences/{made['id']}", None, 404)
        await world.tick(alert())
        assert len(people.heard) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"matchers": []}, "matchers: "),
        (
            {"matchers": [{"name": "ap", "value": "x"}]},
            "matchers[0].name: Invalid enum value 'ap'; expected one of 'alertname', 'app'",
        ),
        ({"matchers": [{"name": "app", "op": "~", "value": "x"}]}, "matchers[0].op: "),
        ({"matchers": [{"name": "app", "value": 7}]}, "matchers[0].value: "),
        ({"matchers": [*MATCHERS, {"name": "rule", "op": "=~", "value": "("}]}, "matchers[1].value: not a regular"),
        ({"matchers": [{"name": "app", "op": "=~", "value": ".*"}]}, "matchers: at least one"),
        ({"by": ""}, "by: "),
        ({"by": None}, "by: "),
        ({"duration_s": -1}, "duration_s: "),
        ({"duration_s": 5, "ends": 9e9}, "ends: give either"),
        ({"duration_s": None}, "ends: give either"),
        ({"duration_s": 1e300}, "ends: must be in the future, after starts, and within ten years"),
        ({"duration_s": 1e308, "starts": 1e308}, "ends: must be in the future"),
        ({"duration_s": None, "ends": 1000.0}, "ends: must be in the future"),
        ({"until": 5}, "body: "),
        ({"comment": "x" * 2001}, "comment: "),
    ],
)
async def test_what_is_wrong_with_a_silence_is_said_with_the_fields_name(tmp_path, changes, said):
    async with alerts_api(tmp_path) as world:
        body = {"matchers": MATCHERS, "duration_s": 600, "by": "lee", **changes}
        assert (await world.refused("POST", "/api/silences", body)).startswith(said)
        assert await world.ask("GET", "/api/silences") == []


async def test_a_body_that_is_none_is_said_to_be_none(tmp_path):
    async with alerts_api(tmp_path) as world:
        response = await world.client.post("/api/silences", content=b"{oops")
        assert response.status_code == 400
        assert response.json()["detail"].startswith("body: not JSON")


async def test_an_alert_that_fires_is_acknowledged_and_the_acknowledgement_taken_back(tmp_path):
    async with alerts_api(tmp_path, people=People()) as world:
        path = "/api/alerts/0123456789abcdef/ack"
        assert "0123456789abcdef" in await world.refused("POST", path, {"by": "lee"}, 404)
        await world.tick(alert())
        ack = await world.ask("POST", path, {"by": "lee", "comment": "on it"})
        assert (ack["by"], ack["comment"]) == ("lee", "on it")
        assert world.delivery.acknowledgements.acks()["0123456789abcdef"].by == "lee"
        assert (await world.refused("POST", path, {"comment": "x"})).startswith(
            "body: Object missing required field `by`"
        )
        await world.ask("DELETE", path, status=204)
        await world.ask("DELETE", path, status=404)


async def test_dead_letters_are_shown_and_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr("monitors.alerting.delivery.GIVE_UP_S", 30.0)

    deaf = People(failures=3)
    async with alerts_api(tmp_path, deaf=deaf) as world:
        await world.tick(alert())
        world.later_s = 60.0
        await world.tick(alert())
        (letter,) = await world.ask("GET", "/api/dead-letters")
        assert (letter["notifier"], letter["alert"]["fingerprint"]) == ("deaf", "0123456789abcdef")
        path = f"/api/dead-letters/{letter['id']}/retry"
        assert "nobody at home" in await world.refused("POST", path, None, 502)
        deaf.failures = 0
        assert await world.ask("POST", path) == {"delivered": True}
        assert await world.ask("GET", "/api/dead-letters") == []
        await world.ask("POST", path, status=404)


async def test_a_page_of_another_origin_changes_nothing(tmp_path):
    async with alerts_api(tmp_path) as world:
        body = {"matchers": MATCHERS, "duration_s": 600, "by": "lee"}
        for method, path in [
            ("POST", "/api/silences"),
            ("DELETE", "/api/silences/1"),
            ("POST", "/api/alerts/1/ack"),
            ("DELETE", "/api/alerts/1/ack"),
            ("POST", "/api/dead-letters/1/retry"),
        ]:
            await world.ask(method, path, body, 403, origin="https://evil.example")
            await world.ask(method, path, body, 403, origin="null")
        own = str(world.client.base_url).rstrip("/")
        await world.ask("POST", "/api/silences", body, 201, origin=own)


async def test_before_the_engine_has_begun_changes_are_answered_503(tmp_path):
    async with alerts_api(tmp_path, begun=False) as world:
        body = {"matchers": MATCHERS, "duration_s": 600, "by": "lee"}
        assert "is starting" in await world.refused("POST", "/api/silences", body, 503)
        assert "is starting" in await world.refused("POST", "/api/alerts/1/ack", {"by": "lee"}, 503)

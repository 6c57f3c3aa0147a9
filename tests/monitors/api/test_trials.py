"""`/api/trials`: what may be started from the network, what is refused, and who may ask."""

import contextlib

import httpx
import pytest
from litestar import Litestar

from gaugeway.settings.shared import Config
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.trials import Trials
from monitors.api.trials import TrialDesk, trial_handlers
from tests.gaugeway.storage.test_trials import KEPT
from tests.monitors.trials.test_judging import catalogue
from tests.support.running import serving
from tests.support.trials import Spoken

UPSTREAMS = ({"name": "live", "base_url": "http://127.0.0.1:9/v1", "api_key": "sk-live-4711"},)
CONFIG = Config(upstreams=UPSTREAMS, prices={"candidate-*": {"input": 1.0, "output": 2.0}})
GIVEN = {
    "name": "t",
    "app": "shop",
    "primary": "spoken",
    "usd": 5,
    "send": "redacted",
    "arms": [{"model": "candidate-1"}],
}


@contextlib.asynccontextmanager
async def served(folder):
    """The handlers on a port, and the trials behind them."""
    trials = Trials(SQLiteDocuments(folder))
    app = Litestar(
        trial_handlers(TrialDesk(trials, CONFIG, catalogue(Spoken()), lambda: 1000.0)),
        openapi_config=None,
        logging_config=None,
    )
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        try:
            yield client, trials
        finally:
            await trials.aclose()


async def test_a_trial_is_started_read_and_stopped(tmp_path, caplog):
    caplog.set_level("INFO", "gaugeway.audit")
    async with served(tmp_path) as (client, trials):
        made = await client.post("/api/trials", json=GIVEN)
        assert (made.status_code, made.json()["state"], made.json()["started_at"]) == (201, "running", 1000.0)
        await trials.keep([("t", "x", KEPT)], 1000.0)
        one = (await client.get("/api/trials/t")).json()
        assert (one["verdict"], one["waiting"], one["arms"][0]["host"]) == ("not yet", 1, "127.0.0.1:9")
        assert (await client.get("/api/trials")).json() == [one]
        stopped = (await client.post("/api/trials/t/stop")).json()
        assert (stopped["state"], stopped["why"], stopped["waiting"]) == ("ended", "stopped", 0)
        again = await client.post("/api/trials/t/stop")
        assert (again.status_code, again.json()["why"]) == (200, "stopped")
    assert caplog.text.count("trial_start") == 1
    assert caplog.text.count("trial_stop") == 1
    assert "4711" not in caplog.text + str(one)


@pytest.mark.parametrize("name", ["base_url", "api_key"])
async def test_no_address_and_no_key_may_be_named(tmp_path, name):
    async with served(tmp_path) as (client, trials):
        body = GIVEN | {"arms": [{"model": "candidate-1", name: "http://evil.example/v1"}]}
        answer = await client.post("/api/trials", json=body)
        assert answer.status_code == 400
        assert f"arms.{name}: only the command" in answer.text
        assert await trials.all() == []


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"send": None}, "send"),
        ({"days": "soon"}, "days"),
        ({"arms": [1]}, "arms"),
        ({"arms": "x"}, "arms"),
        ({"usd": "much"}, "usd"),
        ({"primary": "gone"}, "primary"),
        ({"name": "A b"}, "name"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"arms": [{"upstream": "gone", "model": "candidate-1"}]}, "arms.upstream"),
        ({"until": 1.0}, "until"),
    ],
)
async def test_bad_input_names_the_field(tmp_path, more, field):
    async with served(tmp_path) as (client, trials):
        answer = await client.post("/api/trials", json=GIVEN | more)
        assert (answer.status_code, field in answer.json()["detail"]) == (400, True), answer.text
        assert await trials.all() == []


async def test_a_body_that_is_none_is_refused(tmp_path):
    async with served(tmp_path) as (client, _):
        for body in (b"", b"[]", b"{", b"\xff"):
            answer = await client.post("/api/trials", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400, body


async def test_a_name_that_is_taken_or_unknown_is_said(tmp_path):
    async with served(tmp_path) as (client, _):
        await client.post("/api/trials", json=GIVEN)
        again = await client.post("/api/trials", json=GIVEN)
        assert (again.status_code, "there is a trial t already" in again.text) == (400, True)
        for answer in (await client.get("/api/trials/gone"), await client.post("/api/trials/gone/stop")):
            assert (answer.status_code, "no trial gone" in answer.text) == (404, True)


async def test_another_sites_page_starts_and_stops_nothing(tmp_path):
    evil = {"origin": "https://evil.example"}
    async with served(tmp_path) as (client, trials):
        assert (await client.post("/api/trials", json=GIVEN, headers=evil)).status_code == 403
        await client.post("/api/trials", json=GIVEN)
        assert (await client.post("/api/trials/t/stop", headers=evil)).status_code == 403
        assert [stored.state for stored in await trials.all()] == ["running"]


async def test_what_cannot_be_reached_is_503(tmp_path, monkeypatch):
    async def away(*_):
        raise EngineError("away")

    async with served(tmp_path) as (client, _):
        monkeypatch.setattr(SQLiteDocuments, "changed", away)
        monkeypatch.setattr(SQLiteDocuments, "update", away)
        for answer in (await client.get("/api/trials"), await client.post("/api/trials", json=GIVEN)):
            assert answer.status_code == 503

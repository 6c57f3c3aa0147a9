"""`/api/datasets`: what is added, read and refused, over a socket."""

import time

import pytest

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.engines.failures import EngineError
from tests.support.incidents import incident
from tests.support.pages import world

TOKEN = "a-token-of-at-least-thirty-two-characters"


async def fill(w, **about):
    for n, word in enumerate(("warranty", "museum", "laptop")):
        given = {"question": f"Where is the {word}?", "response": "Here.", "app": "shop"} | about
        sample = Sample(id=f"x{n}", started_at=time.time() - 60, **given)
        made = Evaluation(sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(n / 10))
        await w.store.add(sample, [made])


async def test_exchanges_are_added_by_filter_and_by_id_and_read_by_version(tmp_path):
    async with world(tmp_path) as w:
        await fill(w)
        body = {"app": "shop", "metric": "faithfulness", "below": 0.15, "by": "ana"}
        answer = await w.client.post("/api/datasets/low", json=body)
        assert (answer.status_code, answer.json()["added"]) == (201, 2)
        more = (await w.client.post("/api/datasets/low", json={"exchanges": ["x2", "x1"]})).json()
        assert (more["added"], more["known"], more["dataset"]["version"]) == (1, 1, 2)
        assert (await w.client.get("/api/datasets")).json() == [more["dataset"]]
        assert (await w.client.get("/api/datasets?app=help")).json() == []
        first = (await w.client.get("/api/datasets/low@1")).json()
        assert [record["id"] for record in first["records"]] == ["x0", "x1"]
        assert first["records"][0]["provenance"]["by"] == "ana"
        assert (await w.client.get("/api/datasets/low@9")).status_code == 404


async def test_an_alert_is_named_by_its_fingerprint(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w)
        added = (await w.client.post("/api/datasets/incident", json={"alert": alert.fingerprint, "limit": 500})).json()
        assert added["added"] >= 1
        read = (await w.client.get("/api/datasets/incident")).json()
        assert {record["provenance"]["alert"] for record in read["records"]} == {alert.fingerprint}
        answer = await w.client.post("/api/datasets/incident", json={"alert": "other"})
        assert (answer.status_code, answer.json()["detail"]) == (404, "no alert has the fingerprint other")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "give exchanges, an alert, labelled, an app or a metric"),
        ({"below": 0.5}, "below and above need a metric"),
        ({"limit": 501}, "limit: "),
        ({"words": 1}, "words"),
        ({"exchanges": ["gone"]}, "no stored exchange with an answer matches"),
    ],
)
async def test_what_is_wrong_with_a_body_is_said(tmp_path, body, detail):
    async with world(tmp_path) as w:
        answer = await w.client.post("/api/datasets/low", json=body)
        assert answer.status_code == 400
        assert detail in answer.json()["detail"]


async def test_only_who_has_the_token_reads_and_adds(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        await fill(w)
        for answer in (await w.client.get("/api/datasets"), await w.client.post("/api/datasets/low", json={})):
            assert answer.status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        body = {"exchanges": ["x0"]}
        evil = headers | {"origin": "https://evil.example"}
        assert (await w.client.post("/api/datasets/low", json=body, headers=evil)).status_code == 403
        assert (await w.client.post("/api/datasets/low", json=body, headers=headers)).status_code == 201


async def test_what_cannot_be_reached_is_503(tmp_path, monkeypatch):
    async def away(*_):
        raise EngineError("disk full")

    async with world(tmp_path) as w:
        monkeypatch.setattr(w.datasets, "_stored", away)
        answer = await w.client.get("/api/datasets")
        assert (answer.status_code, answer.json()["detail"]) == (503, "the data sets cannot be reached: EngineError")

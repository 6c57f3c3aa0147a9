"""`/api/exchanges/{id}/label` and `/api/alerts/{fingerprint}`, over a socket."""

import time

import pytest

from gaugeway.storage.stores import Query
from tests.support.incidents import incident
from tests.support.pages import world

LABEL = {"metric": "faithfulness", "label": "fail", "by": "ana"}


async def test_a_label_goes_to_the_queue_for_the_answers_own_app(tmp_path):
    async with world(tmp_path) as w:
        sample = await w.add(0.9, app="shop")
        answer = await w.client.post(f"/api/exchanges/{sample.id}/label", json=LABEL)
        assert (answer.status_code, answer.json()["label"]) == (202, "fail")
        (kept,) = await w.queue.take(10)
        assert (kept.exchange_id, kept.app, kept.label, kept.by) == (sample.id, "shop", "faithfulness:fail", "ana")


@pytest.mark.parametrize(
    ("about", "status", "detail"),
    [
        ({"label": "good"}, 400, "label: "),
        ({"metric": "other"}, 400, "metric: this exchange has no score of other"),
        ({"by": ""}, 400, "by: "),
        ({"score": 1}, 400, "body: "),
    ],
)
async def test_a_label_that_is_wrong_names_its_field(tmp_path, about, status, detail):
    async with world(tmp_path) as w:
        sample = await w.add(0.9)
        answer = await w.client.post(f"/api/exchanges/{sample.id}/label", json=LABEL | about)
        assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (status, detail)


async def test_labels_of_unknown_exchanges_and_from_other_sites_are_refused(tmp_path):
    async with world(tmp_path) as w:
        sample = await w.add(0.9)
        assert (await w.client.post("/api/exchanges/unknown/label", json=LABEL)).status_code == 404
        headers = {"origin": "http://evil.example"}
        answer = await w.client.post(f"/api/exchanges/{sample.id}/label", json=LABEL, headers=headers)
        assert answer.status_code == 403


async def test_one_alert_comes_with_its_worst_answers_and_what_is_wrong_with_them(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w)
        read = (await w.client.get(f"/api/alerts/{alert.fingerprint}")).json()
        assert read["fingerprint"] == alert.fingerprint
        assert read["acknowledgement"] is None
        assert [example["id"] for example in read["worst"]] == list(alert.worst_exchanges)
        assert read["worst"][0]["value"] == pytest.approx(0.2)
        assert "within two years" in read["worst"][0]["faults"][0]
        await w.client.post(f"/api/alerts/{alert.fingerprint}/ack", json={"by": "lee"})
        assert (await w.client.get(f"/api/alerts/{alert.fingerprint}")).json()["acknowledgement"]["by"] == "lee"
        assert (await w.client.get("/api/alerts/other")).status_code == 404


async def test_exchanges_are_read_before_a_time_and_of_one_model(tmp_path):
    async with world(tmp_path) as w:
        now = time.time()
        for at, model in ((now - 300, "m-1"), (now - 200, "m-2"), (now - 100, "m-1")):
            await w.add(0.9, at=at, model=model)
        read = (await w.client.get("/api/exchanges", params={"until": now - 150})).json()
        assert [point["model"] for point in read] == ["m-2", "m-1"]
        assert len((await w.client.get("/api/exchanges?model=m-1")).json()) == 2
        assert (await w.client.get("/api/exchanges?until=nan")).status_code == 400
        assert len(await w.store.series(Query(since=0, until=now))) == 3

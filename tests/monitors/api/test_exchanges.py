"""`/api/exchanges/{id}`: what is stored of an exchange, as the document of the API describes it."""

from __future__ import annotations

import asyncio

import httpx
from prometheus_client import CollectorRegistry

from gaugeway.records import CaptureInfo, Context, PromptPart, Sample
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.analysis.captured import as_record
from monitors.api.app import admin_app

PARTS = (
    PromptPart(role="system", kind="instructions", start=0, end=9, text="Be brief."),
    PromptPart(role="user", kind="passage", start=0, end=5, message=1, passage=0),
)
FOUND = CaptureInfo(source="documents", marker="<doc>", confidence=0.75, reason="a tag", parts=PARTS)


class Insight:
    """A plane with nothing but a store."""

    def __init__(self, store):
        self.store = store

    def judge_repeats(self):
        return []


def asked(path, *samples):
    """The answers for these samples, and the document."""

    async def main():
        store = SQLiteStore(path / "store.db")
        for sample in samples:
            await store.add(sample, [])
        app = admin_app(Insight(store), CollectorRegistry(), host="127.0.0.1", token=None)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answers = [(await client.get(f"/api/exchanges/{one.id}")).json() for one in samples]
            document = (await client.get("/api/openapi.json")).json()
        await store.aclose()
        return answers, document

    return asyncio.run(main())


def test_an_exchange_says_how_it_was_found_and_an_old_one_that_it_does_not_know(tmp_path):
    new = Sample(id="new", started_at=1.0, contexts=(Context(text="Roof."),), context_source="documents", capture=FOUND)
    (told, old), document = asked(tmp_path, new, Sample(id="old", started_at=1.0))
    capture = told["sample"]["capture"]
    assert {name: capture[name] for name in ("source", "marker", "confidence", "reason")} == {
        "source": "documents",
        "marker": "<doc>",
        "confidence": 0.75,
        "reason": "a tag",
    }
    assert capture["parts"][1] == {
        "role": "user",
        "kind": "passage",
        "start": 0,
        "end": 5,
        "message": 1,
        "text": "",
        "passage": 0,
    }
    assert old["sample"]["capture"] is None
    schemas = document["components"]["schemas"]
    assert {"$ref": "#/components/schemas/CaptureInfo"} in schemas["Sample"]["properties"]["capture"]["anyOf"]
    assert set(schemas["CaptureInfo"]["required"]) == set(capture)
    assert set(schemas["PromptPart"]["required"]) == set(capture["parts"][0])


def test_the_place_in_a_conversation_has_the_names_of_the_export(tmp_path):
    sample = Sample(id="new", started_at=1.0, conversation="c-1", turn=2, hop=1)
    (told,), document = asked(tmp_path, sample)
    place = {"conversation_id": "c-1", "turn": 2, "hop": 1}
    assert place.items() <= told["sample"].items()
    assert place.items() <= as_record(sample, {}).items()
    assert set(document["components"]["schemas"]["Sample"]["required"]) == set(told["sample"])

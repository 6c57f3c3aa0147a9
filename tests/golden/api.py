"""Every answer to a GET of the monitors' API over a seeded store, and the paths of the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
from prometheus_client import CollectorRegistry

from monitors.analysis.series import SeriesReader
from monitors.api.app import admin_app
from tests.golden.record import brief, plain
from tests.golden.seeded import monitors
from tests.support.running import serving

QUERIES = {
    "/api/exchanges": ("?limit=5", "?app=shop&metric=faithfulness&order=lowest&limit=5", "?since_s=600000&limit=1000"),
    "/api/alerts/{fingerprint}": ("alert",),
    "/api/conversations": ("?limit=5", "?app=desk&since_s=600000"),
    "/api/conversations/{conversation_id}": ("talk",),
    "/api/datasets/{name}": ("kept", "version"),
    "/api/exchanges/{exchange_id}": ("shop", "desk"),
    "/api/compare": (
        "?by=model&a=m-1&b=m-2",
        "?by=prompt&a=p-1&b=p-2&app=desk",
        "?by=period&a=3d..1d&b=1d..now&app=desk",
    ),
    "/api/judge-check": ("?metric=faithfulness&app=desk", "?metric=lexical_groundedness&truth=faithfulness"),
    "/api/datasets": ("", "?app=shop", "?app=nobody"),
    "/api/labels": ("", "?app=desk"),
    "/api/sources": ("?app=shop", "?app=desk&metric=faithfulness&since_s=300000&order=bad"),
    "/api/topics": ("?app=shop", "?app=desk&since_s=300000"),
    "/api/clusters": ("?app=shop&kind=failures&since=3d", "?app=desk&kind=questions&since=3d"),
    "/api/context-costs": ("?app=shop", "?app=desk&metric=faithfulness&since_s=300000"),
    "/api/series": (
        "?app=desk&metric=faithfulness&since=3d&step=6h",
        "?app=desk&metric=lexical_groundedness&by=tag:tenant&since=1d",
        "?app=shop&metric=faithfulness&by=model&since=3h",
    ),
}
"""Of each path the queries; others are asked without one."""
IDS = {"shop": "bad-318", "desk": "desk-440", "kept": "incident", "version": "incident@1", "talk": "conversation-1"}
MATCHERS = [{"name": "app", "op": "=", "value": "desk"}]
RANDOM = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
"""The id of a silence."""
MOST_TRIES = 50


def parted(value):
    """A long answer in parts, each short or hashed."""
    if isinstance(value, dict):
        return {
            name: parted(part) if name in ("rows", "groups", "sample") else brief(part) for name, part in value.items()
        }
    if isinstance(value, list):
        return [brief(part) for part in value] if len(value) > 8 else [parted(part) for part in value]
    return value


async def answers(client):
    """Path and query -> answer; the document's paths with their parameters, bodies and statuses."""
    (alert,) = [alert for alert in (await client.get("/api/alerts")).json() if alert["app"] == "shop"]
    ids = IDS | {"alert": alert["fingerprint"]}
    await client.post("/api/silences", json={"matchers": MATCHERS, "duration_s": 600, "by": "lee", "comment": "index"})
    await client.post(f"/api/alerts/{alert['fingerprint']}/ack", json={"by": "lee", "comment": "reading"})
    document = (await client.get("/api/openapi.json")).json()
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            yield f"OpenAPI {method} {path}", operation_of(operation)
        if "get" in operations and path not in ("/metrics", "/llms.txt", "/api/openapi.json"):
            for query in QUERIES.get(path, ("",)):
                address = re.sub(r"\{\w+\}", lambda _, name=query: ids[name], path) if "{" in path else path + query
                yield f"GET {address}", await answered(client, address)
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"schema {name}", sorted(schema.get("properties", ()))


def operation_of(operation):
    parameters = [[said["name"], said["in"], said.get("required", False)] for said in operation.get("parameters", ())]
    return {"parameters": parameters, "statuses": sorted(operation["responses"])}


async def answered(client, address):
    """Status and body; what was read in part is asked for again, so that a busy machine makes no difference."""
    for _ in range(MOST_TRIES):
        answer = await client.get(address)
        body = json.loads(RANDOM.sub("id", answer.text))
        if not isinstance(body, dict) or (body.get("complete", True) and not body.get("partial", False)):
            break
    return {"status": answer.status_code, "body": parted(plain(body))}


async def asked():
    async with monitors() as world:
        series = SeriesReader(world.parts.store, effects=world.parts.engine.design_effects)
        app = admin_app(
            world.parts.scheduler, CollectorRegistry(), host="127.0.0.1", token=None, handlers=world.handlers(series)
        )
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            return {name: value async for name, value in answers(client)}


def fresh():
    return asyncio.run(asked())

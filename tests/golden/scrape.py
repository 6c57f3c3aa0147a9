"""What Prometheus reads from the gateway and the monitors after a fixed set of events."""

from __future__ import annotations

import asyncio

import httpx

from gateway.config import Config, Price, Upstream
from tests.golden.seeded import monitors
from tests.support.llm_server import LLMServer, Reply, error
from tests.support.running import running_gateway

QUESTION = {"model": "m-1", "messages": [{"role": "user", "content": "How long is the warranty?"}]}
RETRIEVED = {**QUESTION, "gaugeway": {"app": "shop", "contexts": ["The warranty is two years."]}}
REPLIES = (Reply(content="Two years."), Reply(content="Two years."), error(500, "out"), Reply(content=""))
SAMPLES = len(REPLIES)
VARYING = {"gaugeway_handoff_waiting", "gaugeway_queue_bytes"}
"""Gauges that depend on the machine, as do the times of all histograms of seconds."""


def families(registry):
    """Name -> type, label names, and the value of each series, or that it varies."""
    labels = {
        family.name: list(getattr(collector, "_labelnames", ()))
        for collector in registry._collector_to_names  # noqa: SLF001 - `collect` has no label names
        for family in collector.collect()
    }
    for family in registry.collect():
        is_timed = family.type == "histogram" and family.name.endswith("_seconds")
        series = {}
        for sample in family.samples:
            said = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            varies = family.name in VARYING or (is_timed and not sample.name.endswith("_count"))
            if not sample.name.endswith("_created"):
                series[f"{sample.name}{{{said}}}"] = "varies" if varies else sample.value
        yield family.name, {"type": family.type, "labels": labels.get(family.name, []), "series": series}


async def of_gateway():
    """Two answers, one with passages of its own, a failure, an empty answer, a request that is refused."""
    with LLMServer(*REPLIES) as server:
        upstream = Upstream(name="main", base_url=server.url, max_retries=0)
        config = Config(upstreams=(upstream,), prices={"*": Price(input=1.0, output=2.0)})
        async with running_gateway("", config=config) as running, httpx.AsyncClient(timeout=60) as client:
            for body in (QUESTION, RETRIEVED, QUESTION, QUESTION, {**QUESTION, "gaugeway": {"contexts": 1}}):
                await client.post(f"http://127.0.0.1:{running.port}/v1/chat/completions", json=body)
            await running.until(lambda: running.total("gaugeway_exchanges_total") >= SAMPLES)
            await running.samples(SAMPLES)
            return dict(families(running.gateway.registry))


async def of_monitors():
    async with monitors() as world:
        return dict(families(world.parts.instruments.registry))


def fresh():
    made = {"gateway": asyncio.run(of_gateway()), "monitors": asyncio.run(of_monitors())}
    return {f"{plane} {name}": family for plane, families in made.items() for name, family in sorted(families.items())}

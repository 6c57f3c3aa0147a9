"""What the exporters say of an endpoint that takes only spans."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from gaugeway.runtime import otlp_exporters
from gaugeway.runtime.otlp_metrics import SECONDS, Instrument, Metrics
from tests.support.running import serving


@contextlib.asynccontextmanager
async def answering(status):
    async def app(_, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with serving(app) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(("status", "said"), [(404, 1), (405, 1), (501, 1), (400, 0), (200, 0)])
async def test_an_endpoint_without_metrics_is_named_once_with_the_setting(status, said, caplog):
    async with answering(status) as url:
        reader = otlp_exporters.metric_reader(url)
        durations = Instrument("gen_ai.client.inference.duration", "s", SECONDS)
        metrics = Metrics(reader, "gaugeway-gateway", [durations])
        durations.add((), 0.5)
        with caplog.at_level(logging.WARNING, "gaugeway"):
            for _ in range(2):
                await asyncio.to_thread(reader.collect)
            await metrics.aclose()
    expected = "telemetry.otlp_endpoint takes no metrics: `events = false` sends only spans"
    assert [record.getMessage() for record in caplog.records if record.name == "gaugeway"] == [expected] * said

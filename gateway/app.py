"""The gateway put together: the one place that names its adapters."""

from __future__ import annotations

import logging
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import prometheus_client
from prometheus_client import CollectorRegistry

from gateway import contexts, routes, tracing, upstream
from gateway.capture import Capture
from gateway.config import Config
from gateway.handoff import HandOff
from gateway.instruments import Instruments
from gateway.proxy import Proxy
from gateway.target import Target
from gateway.upstream import Upstream
from monitors import telemetry
from monitors.config import queue_url
from monitors.importer import load
from monitors.queues import Queue
from monitors.queues.opening import from_url
from monitors.serving import Listener, serve
from monitors.settings import ConfigError

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Scope, Send

_log = logging.getLogger("gaugeway")
_PROXIED = ("/v1/", "/openai/")


class Gateway:
    """The data plane: an ASGI callable for the traffic port, an admin app, and the hand-off to the queue."""

    def __init__(self, config: Config, *, queue: Queue, upstream_client: Upstream | None = None) -> None:
        settings, capture, chosen = config.gateway, config.capture, config.upstreams[0]
        target = Target.parse(chosen.base_url, name=chosen.name, api_key=chosen.api_key)
        self.registry = CollectorRegistry()
        self.readiness = routes.Readiness()
        self._drain_s = settings.drain_s
        self._queue = queue
        self._upstream = upstream_client or load(settings.upstream_client, upstream.BUILT_IN)(
            connect_timeout_s=settings.connect_timeout_s, read_timeout_s=settings.read_timeout_s
        )
        self._span_processor, spans = _spans(config, target)
        self.handoff = HandOff(
            queue=queue,
            reader=Capture(
                [load(name, contexts.BUILT_IN)() for name in capture.extractors],
                rate=capture.rate,
                salt=capture.salt,
                limit=capture.max_content_bytes,
            ),
            instruments=Instruments(self.registry, version=version("gaugeway")),
            on_exchange=spans.emit if spans else None,
            upstream=target.name,
            max_items=capture.buffer_exchanges,
            max_bytes=capture.buffer_bytes,
        )
        self._proxy = Proxy(
            upstream=self._upstream,
            target=target,
            record=self.handoff.offer,
            tracing=tracing.OwnSpans(propagate=config.telemetry.propagate) if spans else tracing.ForeignSpans(),
            max_body_bytes=settings.max_body_bytes,
            max_content_bytes=capture.max_content_bytes,
        )
        self._other = routes.traffic_app(self.readiness)
        self.admin = routes.admin_app(self.registry, settings.admin_token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send `/v1/*` and `/openai/*` straight to the proxy, everything else through Litestar."""
        if is_http(scope) and scope["path"].startswith(_PROXIED):
            await self._proxy(scope, receive, send)
        else:
            await self._other(scope, receive, send)

    async def aclose(self) -> None:
        """Deliver what was captured, then let go of every connection."""
        await self.handoff.aclose()
        await self._upstream.aclose()
        await self._queue.aclose()
        if self._span_processor is not None:
            self._span_processor.shutdown()


async def run(config: Config, data_dir: Path, *, supervised: bool = False) -> None:
    """Run the data plane until it is told to stop."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # so in the library
    settings = config.gateway
    try:
        queue = from_url(queue_url(config, data_dir), config.queue.lease_s, config.queue.max_attempts)
    except ValueError as error:
        raise ConfigError([f"queue.url: {error}"]) from error
    gateway = Gateway(config, queue=queue)
    gateway.handoff.start()
    _log.info("gateway: http://%s:%d/v1 -> %s", settings.host, settings.port, config.upstreams[0].base_url)
    listeners = [
        Listener(gateway, settings.host, settings.port),
        Listener(gateway.admin, settings.admin_host, settings.admin_port),
    ]
    try:
        await serve(listeners, drain_s=settings.drain_s, on_stop=gateway.readiness.drain, supervised=supervised)
    finally:
        await gateway.aclose()


def is_http(scope: Scope) -> TypeGuard[HTTPScope]:
    """Whether this is an HTTP request (and no WebSocket)."""
    return str(scope["type"]) == "http"


def _spans(config: Config, target: Target) -> tuple[Any, tracing.OTelSpans | None]:
    endpoint = config.telemetry.otlp_endpoint
    if endpoint is None:
        return None, None
    processor = tracing.batch_processor(telemetry.span_exporter(endpoint))
    return processor, tracing.OTelSpans(processor, server_address=target.host, server_port=target.port)

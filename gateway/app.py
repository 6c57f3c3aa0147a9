"""The gateway's composition root: the one place that names its adapters."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeGuard, cast

import prometheus_client
from prometheus_client import CollectorRegistry

from gateway.access.accounting import Accounting
from gateway.access.admission import Admission
from gateway.access.gate import Gate
from gateway.access.prices import Prices
from gateway.access.sync import REFRESH_S
from gateway.api import health as routes
from gateway.api.feedback import Authorise, Supplements
from gateway.capture.factory import capture_of, redactor_of, template_form
from gateway.config import Config, sampled
from gateway.handoff.buffer import BufferSettings, CaptureBuffer
from gateway.handoff.observer import CaptureObserver
from gateway.handoff.sampler_client import SamplerClient, SamplerProcesses
from gateway.handoff.spill import ATTEMPTS, DRAIN_PER_S, LEASE_S, Spill
from gateway.handoff.template_sync import TemplateSync
from gateway.handoff.trial_requests import TrialRequests
from gateway.http.origins import OriginPolicy
from gateway.http.url import Target
from gateway.proxy import loops
from gateway.proxy.cache import Cache
from gateway.proxy.handler import Limits, Proxy
from gateway.proxy.server import traffic_protocol
from gateway.proxy.websocket import Realtime, Times
from gateway.reload import REFUSED, RestartNeeded, check_live, report_refusal
from gateway.telemetry import inference_metrics, tracing
from gateway.telemetry.inference_metrics import InferenceMetrics
from gateway.telemetry.metrics import Instruments
from gateway.upstreams import Upstream
from gateway.upstreams.pool import NativeUpstream
from gateway.upstreams.provider import provider_of
from gateway.upstreams.router import ClientSettings, Router
from gaugeway.processes.worker_metrics import WorkerMetrics, inherited
from gaugeway.redaction import redaction_key
from gaugeway.runtime import audit
from gaugeway.runtime import otlp_exporters as telemetry
from gaugeway.runtime.http_bounds import patient
from gaugeway.runtime.http_protocol import ServerProtocol
from gaugeway.runtime.serving import Listener, serve
from gaugeway.settings import ConfigError
from gaugeway.settings.loading import queue_url, store_url
from gaugeway.settings.placeholders import concealed
from gaugeway.settings.shared import LOOPBACK
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.queues import MAX_ATTEMPTS, Queue, from_url
from gaugeway.storage.templates import Templates, open_templates
from gaugeway.storage.trials import Trials, open_trials

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Scope, Send, WebSocketScope
    from opentelemetry.sdk.trace import SpanProcessor

_log = logging.getLogger("gaugeway")
_PROXIED, _OWN = ("/v1/", "/openai/"), "/gaugeway/"


class _Access(NamedTuple):
    """Who may send requests, and how they are charged."""

    gate: Gate | None
    accounting: Accounting
    origins: OriginPolicy | None


class Gateway:
    """The data plane: the ASGI app of the traffic port, the admin app, and the capture buffer.

    Only tests switch off the fast path, which serves generation routes without the ASGI app.
    """

    def __init__(
        self,
        config: Config,
        *,
        queue: Queue,
        keys_file: Path | None = None,
        redaction_key: str | None = None,
        sampler: SamplerProcesses | None = None,
        spill_file: Path | None = None,
        metrics_socket: socket.socket | None = None,
        templates: Templates | None = None,
        trials: Trials | None = None,
        fast_path: bool = True,
    ) -> None:
        self.registry = CollectorRegistry()
        self.readiness = routes.Readiness()
        self.instruments = Instruments(self.registry, version=version("gaugeway"))
        self._spill = _spill(config, queue, spill_file, self.instruments)
        self._queue = self._spill or queue
        self._config = config
        self._redaction_key = redaction_key
        self._clients: dict[ClientSettings, Upstream] = {}
        self._span_processor = tracing.batch_processor(config.telemetry)
        self._metrics = None if self._span_processor is None else inference_metrics.opened(config.telemetry)
        self._admission = Admission(config, keys_file, self.instruments)
        self._cache = _cache(config)
        self._accounting = self._build_accounting(config, self._admission.gate)
        spans = None if self._span_processor is None else _spans(config, self._span_processor, self._metrics)
        self._observer = CaptureObserver(self.instruments, self._accounting, spans)
        self._templates = self._build_templates(config, templates)
        self._sampler = None
        if sampler is not None:
            self._sampler = SamplerClient(sampled(config), self._key(config), self._templates, sampler)
        self._trials = None if trials is None else TrialRequests(trials, _redact(config, self._key(config)))
        self.handoff = self._build_handoff(config)
        self._supplements = Supplements(
            queue=self._queue,
            authorise=_authorise(config, self._admission.gate),
            redact=redactor_of(config.capture, self._key(config)).redact_supplement,
            observer=self.instruments,
        )
        self._origins, self._own_origins = _origins(config)
        access = _Access(self._admission.gate, self._accounting, self._origins)
        self._proxy = self._build_proxy(config, access, self._cache)
        self._realtime = self._build_realtime(config, access)
        self.protocol = self._protocol(config, fast_path=fast_path)
        self._other = routes.traffic_app(self.readiness, self._supplements, self.instruments.invalid_request)
        settings = config.gateway
        self._workers = None
        if metrics_socket is not None:
            self._workers = WorkerMetrics(metrics_socket, self.registry, self.instruments.modes)
        exposed = self.registry if self._workers is None else self._workers.total
        self.admin = routes.admin_app(exposed, settings.admin_host, settings.admin_token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send `/v1/*` and `/openai/*` straight to the proxy, everything else through Litestar."""
        proxied = scope["path"].startswith(_PROXIED)
        origins = self._origins if proxied else self._own_origins if scope["path"].startswith(_OWN) else None
        if origins is not None:
            if (screened := await origins.screen(scope, send, refuse=not proxied)) is None:
                return
            send = screened
        if not proxied:
            await self._other(scope, receive, send)
        elif is_http(scope):
            await self._proxy(scope, receive, send)
        else:
            await self._realtime(cast("WebSocketScope", scope), receive, send)

    async def start(self) -> None:
        """Start the background tasks."""
        self.handoff.start()
        self._supplements.start()
        if self._spill is not None:
            self._spill.start()
        if self._templates is not None:
            self._templates.start()
        if self._trials is not None:
            self._trials.start()
        await self._admission.start()
        if self._workers is not None:
            await self._workers.start()

    def apply(self, config: Config) -> None:
        """Apply a new configuration to new requests; requests under way keep theirs.

        All of it or nothing. Raises RestartNeeded for keys that cannot be changed in a running gateway (see
        `gateway.reload`), and ConfigError.
        """
        check_live(self._config, config)
        parts = self._admission.prepare(config)
        gate = parts.gate if parts is not None else None
        cache = self._cache if config.cache == self._config.cache else _cache(config)
        reader = capture_of(config.capture, self._key(config))
        redactor = redactor_of(config.capture, self._key(config))
        form = template_form(config.capture, self._key(config))
        spans = None if self._span_processor is None else _spans(config, self._span_processor, self._metrics)
        accounting = self._build_accounting(config, gate)
        origins, own_origins = _origins(config)
        access = _Access(gate, accounting, origins)
        realtime = self._build_realtime(config, access)
        proxy = self._build_proxy(config, access, cache)
        # Nothing below can fail.
        self._admission.use(parts, config)
        self._cache, self._accounting = cache, accounting
        self._observer.accounting, self._observer.spans = accounting, spans
        self._realtime, self._proxy = realtime, proxy
        self._origins, self._own_origins = origins, own_origins
        self.handoff.use(reader)
        if self._templates is not None:
            self._templates.form = form
        if self._trials is not None:
            self._trials.redact = _redact(config, self._key(config))
        if self._sampler is not None and sampled(config) != sampled(self._config):
            self._sampler.use(sampled(config))
        self._supplements.use(_authorise(config, gate), redactor.redact_supplement)
        self._config = config

    def reload(self, read: Callable[[], Config]) -> None:
        """Apply the configuration that `read` returns; an invalid one changes nothing and is reported."""
        try:
            self.apply(read())
        except RestartNeeded as error:
            self.count_refusal(error.keys)
            report_refusal(error)
        except Exception as error:  # noqa: BLE001 - whatever a file names (a certificate, a class); counted as refused
            self.count_refusal(())
            unknown = [f"{type(error).__name__}: {concealed(str(error))}"]
            problems = error.problems if isinstance(error, ConfigError) else unknown
            audit.tell("reload", outcome="refused", process=os.getpid(), problems=len(problems))
            _log.error("reload refused, configuration unchanged: %s", "; ".join(problems))
        else:
            self.instruments.reloaded("applied")
            audit.tell("reload", outcome="applied", process=os.getpid())

    def count_refusal(self, keys: Sequence[str]) -> None:
        """Count a refused reload; `keys` are those that need a restart, if that was the reason."""
        self.instruments.reloaded("refused", keys)

    async def aclose(self) -> None:
        """Deliver what was captured, then close every connection."""
        if self._spill is not None:
            self._spill.hurry()
        await self.handoff.aclose()
        if self._templates is not None:
            await self._templates.aclose()
        if self._trials is not None:
            await self._trials.aclose()
        await self._supplements.aclose()
        await self._admission.aclose()
        for client in self._clients.values():
            await client.aclose()
        await self._queue.aclose()
        if self._span_processor is not None:
            await telemetry.shut_down(self._span_processor.shutdown)
        if self._metrics is not None:
            await self._metrics.aclose()
        if self._workers is not None:
            await self._workers.aclose()

    def _key(self, config: Config) -> str:
        return self._redaction_key or config.capture.salt

    def _client(self, wanted: ClientSettings) -> Upstream:
        """Return the client for these settings, kept across reloads. The native client does not support proxies."""
        if wanted not in self._clients:
            settings = self._config.gateway
            connect_s, read_s = settings.connect_timeout_s, settings.read_timeout_s
            if wanted.proxy is not None or settings.upstream_client == "httpx":
                from gateway.upstreams.httpx import HttpxUpstream  # noqa: PLC0415 - few need it, and httpx is large

                self._clients[wanted] = HttpxUpstream(
                    connect_timeout_s=connect_s, read_timeout_s=read_s, ca_file=wanted.ca_file, proxy=wanted.proxy
                )
            else:
                native = NativeUpstream(connect_timeout_s=connect_s, read_timeout_s=read_s, ca_file=wanted.ca_file)
                native.on_resend = self.instruments.resent
                self._clients[wanted] = native
        return self._clients[wanted]

    def _protocol(self, config: Config, *, fast_path: bool) -> type[ServerProtocol]:
        settings = config.gateway
        return patient(
            traffic_protocol((lambda: self._proxy) if fast_path else None, self.instruments.invalid_request),
            body_s=settings.client_timeout_s,
            max_pending_bytes=max(settings.max_pending_body_bytes, settings.max_body_bytes),
            on_body_given_up=self.instruments.body_given_up,
            write_s=settings.client_timeout_s,
            on_stall=self.instruments.write_stalled,
        )

    def _build_accounting(self, config: Config, gate: Gate | None) -> Accounting:
        return Accounting(Prices(config.prices), gate, self.instruments)

    def _build_handoff(self, config: Config) -> CaptureBuffer:
        return CaptureBuffer(
            queue=self._queue,
            reader=capture_of(config.capture, self._key(config)),
            observer=self._observer,
            sampler=self._sampler,
            settings=BufferSettings(config.capture.buffer_exchanges, config.capture.buffer_bytes),
            **({} if self._trials is None else {"on_sample": self._trials.offer}),
        )

    def _build_templates(self, config: Config, templates: Templates | None) -> TemplateSync | None:
        if templates is None:
            return None
        return TemplateSync(templates, self.instruments, template_form(config.capture, self._key(config)))

    def _build_realtime(self, config: Config, access: _Access) -> Realtime:
        first = config.upstreams[0]
        return Realtime(
            target=Target.parse(first.base_url, name=first.name, api_key=first.api_key),
            record=self.handoff.offer,
            times=Times(
                connect_s=config.gateway.connect_timeout_s, write_s=config.gateway.client_timeout_s, recheck_s=REFRESH_S
            ),
            gate=access.gate,
            accounting=access.accounting,
            on_stall=self.instruments.write_stalled,
            baggage=config.telemetry.baggage,
            gateway_id=_id(config),
            origins=access.origins,
        )

    def _build_proxy(self, config: Config, access: _Access, cache: Cache | None) -> Proxy:
        settings = config.gateway
        router = Router(
            config.upstreams,
            config.routing,
            client=self._client,
            observer=self.instruments,
            baggage=config.telemetry.baggage,
            first_byte_s=settings.first_byte_timeout_s,
        )
        return Proxy(
            router=router,
            record=self.handoff.offer,
            tracing=tracing.OwnSpans(propagate=config.telemetry.propagate)
            if self._span_processor
            else tracing.ForeignSpans(),
            limits=Limits(
                body_bytes=settings.max_body_bytes,
                upload_bytes=settings.max_upload_bytes,
                content_bytes=config.capture.max_content_bytes,
                read_s=settings.read_timeout_s,
                first_byte_s=settings.first_byte_timeout_s,
                total_s=settings.total_timeout_s,
            ),
            include_usage=config.capture.include_usage,
            gate=access.gate,
            accounting=access.accounting,
            cache=cache,
            gateway_id=_id(config),
            origins=access.origins,
        )


async def run(
    config: Config,
    data_dir: Path,
    *,
    supervised: bool = False,
    reload: Callable[[], Config] | None = None,
    sampler: SamplerProcesses | None = None,
) -> None:
    """Run the data plane until it is stopped; SIGHUP applies what `reload` reads."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # so in the library
    settings = config.gateway
    try:
        waits = config.queue
        queue = from_url(queue_url(config, data_dir), waits.lease_s, MAX_ATTEMPTS, waits.max_bytes)
    except ValueError as error:
        raise ConfigError([f"queue.url: {error}"]) from error
    key = _redaction_key(config, data_dir)
    gateway = Gateway(
        config,
        queue=queue,
        keys_file=data_dir / "keys.db",
        redaction_key=key,
        sampler=sampler or SamplerProcesses(),
        spill_file=data_dir / "spill.db",
        metrics_socket=inherited(),
        templates=_templates(config, data_dir),
        trials=_trials(config, data_dir),
    )
    audit_log = audit.open_if_possible(data_dir)
    await gateway.start()
    if reload is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gateway.reload, reload)
    targets = ", ".join(configured.base_url for configured in config.upstreams)
    shared = settings.workers > 1
    listeners = [
        Listener(
            gateway, settings.host, settings.port, shared, gateway.protocol, gateway.instruments.connection_closed
        ),
        Listener(gateway.admin, settings.admin_host, settings.admin_port, shared),
    ]
    try:
        await serve(
            listeners,
            drain_s=settings.drain_s,
            delay_s=settings.drain_delay_s,
            on_stop=gateway.readiness.drain,
            supervised=supervised,
            on_line=lambda line: _obey(gateway, line),
            on_listening=lambda: _log.info("gateway: http://%s:%d/v1 -> %s", settings.host, settings.port, targets),
        )
    finally:
        await gateway.aclose()
        audit.close_file(audit_log)


def _templates(config: Config, data_dir: Path) -> Templates | None:
    """Open the store of shared templates; None, and every process learns on its own, if that fails."""
    try:
        return open_templates(store_url(config, data_dir))
    except ValueError as error:
        _log.warning("store.url: %s; learned templates are neither kept nor shared", error)
        return None


def _trials(config: Config, data_dir: Path) -> Trials | None:
    """Open the trials beside the store; None where it keeps none, or nothing of the content may be kept."""
    try:
        return open_trials(store_url(config, data_dir)) if config.capture.content else None
    except ValueError:
        return None


def _redact(config: Config, key: str) -> Callable[[str], Callable[[str], str] | None]:
    """Return what says how an app's texts are redacted: None for an app whose are not."""
    redactor, plain = redactor_of(config.capture, key), frozenset(config.capture.unredacted_apps)
    return lambda app: None if app in plain else redactor.redact


def _redaction_key(config: Config, data_dir: Path) -> str:
    """Return the key in the data directory; a key of this process only where the directory is not writable."""
    try:
        return redaction_key(config.capture.salt, data_dir)
    except OSError as error:
        _log.error(
            "cannot write to the data directory %s (%s): traffic goes on; with an embedded queue nothing is captured",
            data_dir.absolute(),
            error.strerror,
        )
        return secrets.token_hex(32)


def _obey(gateway: Gateway, line: str) -> None:
    """Handle a line that the supervisor wrote to standard input."""
    word, *keys = line.split()
    if word == REFUSED:
        gateway.count_refusal(keys)


def is_http(scope: Scope) -> TypeGuard[HTTPScope]:
    """Whether this is an HTTP request (and no WebSocket)."""
    return str(scope["type"]) == "http"


def _authorise(config: Config, gate: Gate | None) -> Authorise | None:
    return gate.identify if gate is not None and config.keys.enabled else None


def _origins(config: Config) -> tuple[OriginPolicy | None, OriginPolicy | None]:
    """Return the policies for proxied routes and for the gateway's own; None where every web page may send requests."""
    settings = config.gateway
    pays = not config.keys.enabled and any(configured.api_key for configured in config.upstreams)
    hosts = settings.allowed_hosts or ((settings.host,) if settings.host in LOOPBACK else None)
    proxied = OriginPolicy(enforced=pays, origins=settings.allowed_origins, hosts=hosts)
    if config.keys.enabled:
        own = OriginPolicy(enforced=False, origins=settings.allowed_origins, hosts=None)
    else:
        own = OriginPolicy(enforced=True, origins=settings.allowed_origins, hosts=hosts if pays else None)
    needed = pays or settings.allowed_origins
    return proxied if needed else None, own


def _id(config: Config) -> bytes:
    return loops.deployment_id(
        config.gateway.host, config.gateway.port, [configured.base_url for configured in config.upstreams]
    )


def _cache(config: Config) -> Cache | None:
    cache = config.cache
    return Cache(cache.apps, ttl_s=cache.ttl_s, max_bytes=cache.max_bytes) if cache.apps else None


def _spill(config: Config, queue: Queue, path: Path | None, instruments: Instruments) -> Spill | None:
    """Open the spill file of a remote queue, if it is configured or still holds samples from an earlier run."""
    remote = not (config.queue.url or "sqlite:").startswith("sqlite:")
    if path is None or not remote or not (config.queue.spill_bytes or path.exists()):
        return None
    file = SQLiteQueue(path, LEASE_S, ATTEMPTS, max_bytes=config.queue.spill_bytes)
    return Spill(queue, file, drain_per_s=DRAIN_PER_S / config.gateway.workers, count=instruments.spilled)


def _spans(config: Config, processor: SpanProcessor, metrics: InferenceMetrics | None) -> tracing.OTelSpans:
    servers = {}
    for configured in config.upstreams:
        target = Target.parse(configured.base_url)
        servers[configured.name] = tracing.Server(target.host, target.port, configured.provider or provider_of(target))
    both = config.telemetry.semconv == "both"
    return tracing.OTelSpans(processor, servers=servers, metrics=metrics, both=both)

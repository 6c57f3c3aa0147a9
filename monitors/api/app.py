"""The admin port of the evaluation plane: metrics, and JSON under `/api/`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Annotated, Any, Protocol

import msgspec
from litestar import Request, Response, Router, get
from litestar.config.compression import CompressionConfig
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotFoundException
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.template import TemplateConfig
from litestar.types import Message, Scope
from prometheus_client import CollectorRegistry

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.runtime.auth import WebApp, allowed_hosts, guess_guard, metrics_handler, token_guard, warn_if_short
from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.stores import Query, StateStore, Store
from monitors.alerting.acknowledgements import NotLeaderError
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.quality import Quality
from monitors.api.errors import as_json, on_error
from monitors.api.openapi import SAMPLE_NAMES, openapi_handler
from monitors.metrics.judged.evidence import VerifiedShare
from monitors.statistics.agreement import Repeatability, half_width_of

DAY_S = 86_400.0
_KINDS = {Score: "score", Skipped: "skipped", Failed: "failed"}
_COMPRESSION = CompressionConfig(backend="gzip", minimum_size=1024, gzip_compress_level=5, exclude=["^/events$"])
"""Events are sent one by one, so they are left as they are. The page's cookies are SameSite=Strict: no other site can
have a response compressed that holds both its own text and a visitor's form key."""


_FOR_AGENTS = """# Gaugeway

> The monitors of a running Gaugeway: alerts on the answer quality of RAG apps, with their cause, as JSON under /api/.

Routes and fields: [OpenAPI 3.1](/api/openapi.json), with the header `Authorization: Bearer TOKEN` where a token is set.
As tools for an agent: `pip install 'gaugeway[mcp]'`, then `gaugeway mcp --url` with this address. The tools named below
exist there.

"""


class Insight(Protocol):
    """The evaluation plane's data, as far as the API shows it."""

    @property
    def store(self) -> Store:
        """The store of samples and evaluations."""

    @property
    def state_store(self) -> StateStore | None:
        """Where small states are kept; None without."""

    async def status(self) -> dict[str, Any]:
        """Configuration and state, as `/api/status` returns them."""

    def quality(self) -> Sequence[Quality]:
        """The latest estimates by app and metric."""

    def is_estimated(self) -> bool:
        """Whether the scores have been read once: before, `quality` is empty whatever is stored."""

    def captured(self) -> Sequence[Captured]:
        """Capture coverage by app."""

    def judge_repeats(self) -> Sequence[Repeatability]:
        """How far the judge's scores of the same answer differ, by metric; empty while nothing is judged twice."""

    def judge_evidence(self) -> Sequence[VerifiedShare]:
        """How much of the judge's evidence could be verified, by judge and metric."""

    def states(self) -> Mapping[tuple[str, str], str]:
        """(app, metric) -> the worst state (quiet, pending or firing) of the rules that watch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The operator's page as the admin app mounts it; its handlers do their own authentication.

    `entered` tells whether a visitor is logged in, who may then read the JSON too. `before_send` is called with every
    response head. `on_error` renders an error for a browser. `stop` closes the event streams. The leader calls
    `count_gateways` every few seconds.
    """

    handlers: Sequence[Any]
    templates: TemplateConfig[Any]
    entered: Callable[[ASGIConnection[Any, Any, Any, Any]], bool]
    before_send: Callable[[Message, Scope], Awaitable[None]]
    on_error: Callable[[Request[Any, Any, Any], HTTPException], Response[Any]]
    stop: Callable[[], None]
    count_gateways: Callable[[], Awaitable[None]] | None = None


def admin_app(
    insight: Insight,
    registry: CollectorRegistry,
    *,
    host: str,
    token: str | None,
    handlers: Sequence[Any] = (),
    pages: Pages | None = None,
) -> WebApp:
    """Build the admin app for the address `host`; with a token, everything except `/healthz` requires it.

    `handlers` are served behind the same guards; `pages` only behind the one that checks the Host header.
    """

    @get("/healthz", sync_to_thread=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    guarded = [
        metrics_handler(registry),
        *_overview_handlers(insight, registry),
        *_exchange_handlers(insight),
        *handlers,
    ]
    guarded.append(openapi_handler([healthz, *guarded]))
    warn_if_short("monitors.token", token)
    here, entered = [allowed_hosts(host, token), guess_guard(token)], pages.entered if pages else None
    return WebApp(
        [
            healthz,
            Router("/", route_handlers=guarded, guards=[*here, token_guard(token, entered)]),
            *([Router("/", route_handlers=pages.handlers, guards=here)] if pages is not None else []),
        ],
        template_config=pages.templates if pages is not None else None,
        compression_config=_COMPRESSION,
        before_send=[pages.before_send] if pages is not None else [],
        exception_handlers={
            NotLeaderError: not_here,
            Unsupported: _not_offered,
            HTTPException: on_error(pages.on_error if pages else None, here[:1]),
        },
        openapi_config=None,
        logging_config=None,
    )


def not_here(_: Request[Any, Any, Any], error: NotLeaderError) -> Response[Any]:
    """503 for a change that this process cannot make: it is starting, or another one is the leader."""
    return as_json(HTTPException(status_code=503, detail=str(error), headers={"retry-after": "1"}))


def _not_offered(_: Request[Any, Any, Any], error: Unsupported) -> Response[Any]:
    return as_json(HTTPException(status_code=501, detail=str(error)))


def _overview_handlers(insight: Insight, registry: CollectorRegistry) -> list[Any]:
    @get("/api/status")
    async def status() -> dict[str, Any]:
        return await insight.status()

    @get("/api/metrics", sync_to_thread=False)
    def metrics() -> list[dict[str, Any]]:
        states, spent = insight.states(), _spent(registry)
        return [
            asdict(quality) | {"state": states.get(key, "unwatched"), "usd": spent.get(key, 0.0)}
            for quality in insight.quality()
            for key in [(quality.app, quality.metric)]
        ]

    @get("/api/capture", sync_to_thread=False)
    def capture() -> list[dict[str, Any]]:
        return [asdict(coverage) for coverage in insight.captured()]

    @get("/llms.txt", media_type="text/plain", sync_to_thread=True)
    def llms() -> str:
        return _FOR_AGENTS + (files("gaugeway") / "mcp" / "guide.md").read_text("utf-8")

    return [status, metrics, capture, llms]


def _spent(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """Return the USD that the judges cost since the start, by app and metric."""
    families = (family for family in registry.collect() if family.name == "gaugeway_evaluation_cost_usd")
    samples = (sample for family in families for sample in family.samples if sample.name.endswith("_total"))
    return {(sample.labels["app"], sample.labels["metric"]): sample.value for sample in samples}


def _exchange_handlers(insight: Insight) -> list[Any]:
    store = insight.store

    @get("/api/exchanges")
    async def exchanges(
        *,
        app: FromQuery[str | None] = None,
        metric: FromQuery[str | None] = None,
        model: FromQuery[str | None] = None,
        since_s: Annotated[float, QueryParameter(gt=0, description="how far back, seconds")] = DAY_S,
        until: Annotated[
            float, QueryParameter(ge=0, le=1e10, description="only exchanges before this Unix time")
        ] = 1e10,
        order: Annotated[str, QueryParameter(pattern="^(newest|lowest|highest)$")] = "newest",
        limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        now = time.time()
        query = Query(
            since=now - since_s,
            until=min(until, now + DAY_S),
            metric=metric,
            without=() if metric else tuple(SIGNALS),
            app=app,
            model=model,
            order=order,  # type: ignore[arg-type]  # the pattern says so
            limit=limit,
        )
        found = insight.judge_repeats()
        return [
            msgspec.structs.asdict(point) | {"half_width": half_width_of(point, found)}
            for point in await store.series(query)
        ]

    @get("/api/exchanges/{exchange_id:str}")
    async def exchange(exchange_id: FromPath[str]) -> dict[str, Any]:
        if (found := await store.sample(exchange_id)) is None:
            raise NotFoundException(f"no captured exchange has the id {exchange_id}")
        said, repeats = await store.supplements_of(found[0]), insight.judge_repeats()
        return _as_json(*found, repeats) | {"supplements": [asdict(supplement) for supplement in said]}

    return [exchanges, exchange]


def _as_json(sample: Sample, evaluations: Sequence[Evaluation], repeats: Sequence[Repeatability]) -> dict[str, Any]:
    fields = {SAMPLE_NAMES.get(name, name): value for name, value in asdict(sample).items()}
    shown = [_evaluation(one) | {"half_width": half_width_of(one, repeats)} for one in evaluations]
    return {"sample": fields, "evaluations": shown}


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    fields = asdict(evaluation)
    return fields | {"outcome": {"kind": _KINDS[type(evaluation.outcome)], **fields["outcome"]}}

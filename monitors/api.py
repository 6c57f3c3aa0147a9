"""The admin port of the evaluation plane: metrics, and JSON under `/api/`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Protocol

from litestar import Litestar, Router, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery, QueryParameter
from prometheus_client import CollectorRegistry

from monitors.admin import allowed_hosts, metrics_handler, token_guard
from monitors.quality import Quality
from monitors.records import Alert, Evaluation, Failed, Sample, Score, Skipped
from monitors.stores import Query, Store

DAY_S = 86_400.0


class Insight(Protocol):
    """What the API shows."""

    @property
    def store(self) -> Store:
        """Where samples and evaluations are."""

    async def status(self) -> dict[str, Any]:
        """What is configured and how the plane is doing."""

    def quality(self) -> Sequence[Quality]:
        """The latest estimates."""

    def states(self) -> Mapping[tuple[str, str], str]:
        """The worst state, quiet, pending or firing, of the rules that watch each stream, by app and metric."""

    def alerts(self) -> Sequence[Alert]:
        """Alerts, newest first."""


def admin_app(
    insight: Insight, registry: CollectorRegistry, *, host: str, token: str | None, handlers: Sequence[Any] = ()
) -> Litestar:
    """Build the admin app for the address `host`; with a token everything but `/healthz` asks for it.

    `handlers` are served beside its own, behind the same guards.
    """

    @get("/healthz", sync_to_thread=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    guarded = [metrics_handler(registry), *_overview_handlers(insight), *_exchange_handlers(insight.store), *handlers]
    return Litestar(
        [healthz, Router("/", route_handlers=guarded, guards=[allowed_hosts(host, token), token_guard(token)])],
        openapi_config=None,
        logging_config=None,
    )


def _overview_handlers(insight: Insight) -> list[Any]:
    @get("/api/status")
    async def status() -> dict[str, Any]:
        return await insight.status()

    @get("/api/metrics", sync_to_thread=False)
    def metrics() -> list[dict[str, Any]]:
        states = insight.states()
        return [asdict(one) | {"state": states.get((one.app, one.metric), "unwatched")} for one in insight.quality()]

    @get("/api/alerts", sync_to_thread=False)
    def alerts() -> list[dict[str, Any]]:
        return [asdict(alert) for alert in insight.alerts()]

    return [status, metrics, alerts]


def _exchange_handlers(store: Store) -> list[Any]:
    @get("/api/exchanges")
    async def exchanges(
        app: FromQuery[str | None] = None,
        metric: FromQuery[str | None] = None,
        since_s: Annotated[float, QueryParameter(gt=0, description="how far back, seconds")] = DAY_S,
        order: Annotated[str, QueryParameter(pattern="^(newest|lowest|highest)$")] = "newest",
        limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        now = time.time()
        query = Query(since=now - since_s, until=now + DAY_S, metric=metric, app=app, order=order, limit=limit)  # type: ignore[arg-type]  # the pattern says so
        return [asdict(point) for point in await store.series(query)]

    @get("/api/exchanges/{exchange_id:str}")
    async def exchange(exchange_id: FromPath[str]) -> dict[str, Any]:
        found = await store.sample(exchange_id)
        if found is None:
            raise NotFoundException(f"no captured exchange has the id {exchange_id}")
        said = await store.supplements_of(found[0])
        return _as_json(*found) | {"supplements": [asdict(one) for one in said]}

    return [exchanges, exchange]


def _as_json(sample: Sample, evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    return {"sample": asdict(sample), "evaluations": [_evaluation(evaluation) for evaluation in evaluations]}


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    match evaluation.outcome:
        case Score():
            kind = "score"
        case Skipped():
            kind = "skipped"
        case Failed():
            kind = "failed"
    fields = asdict(evaluation)
    return fields | {"outcome": {"kind": kind, **fields["outcome"]}}

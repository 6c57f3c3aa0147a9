"""Alerts, silences, acknowledgements, labels, dead letters, versions and baselines over HTTP, for the admin port."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from litestar import Request, delete, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import ClientException, HTTPException, NotFoundException, PermissionDeniedException
from litestar.params import FromPath, FromQuery

from gaugeway.records import Alert, Supplement
from gaugeway.runtime import audit
from gaugeway.settings import explained
from gaugeway.storage.stores import Store
from monitors.alerting.acknowledgements import MAX_VALUE, Ack, Acknowledgements, Label, Matcher, Operator, Silence
from monitors.alerting.engine import AlertEngine
from monitors.alerting.notifiers import NotDeliveredError
from monitors.alerting.notifiers.message import headline, summary
from monitors.alerting.stored_exchanges import read_worst
from monitors.analysis.human_labels import label_of

T = TypeVar("T")
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Comment = Annotated[str, msgspec.Meta(max_length=2000)]


class NewMatcher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One condition of a new silence."""

    name: Label
    op: Operator = "="
    value: Annotated[str, msgspec.Meta(max_length=MAX_VALUE)]


class NewSilence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /api/silences`: Unix seconds; `starts` defaults to now; `ends` or `duration_s` is required."""

    matchers: Annotated[tuple[NewMatcher, ...], msgspec.Meta(min_length=1, max_length=20)]
    starts: float | None = None
    ends: float | None = None
    duration_s: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    by: Name
    comment: Comment = ""


class NewAck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /api/alerts/{fingerprint}/ack`."""

    by: Name
    comment: Comment = ""


def alert_handlers(desk: Acknowledgements) -> list[Any]:
    """The handlers; the admin app guards them."""
    return [*_silence_handlers(desk), *_ack_handlers(desk), *_letter_handlers(desk)]


def same_origin(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
    """Refuse cross-origin changes: without a token nothing else protects against them."""
    origin = connection.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != connection.headers.get("host", ""):
        audit.tell("change", outcome="refused", address=address_of(connection), path=connection.scope["path"])
        raise PermissionDeniedException("cross-origin requests are not allowed")


def address_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    """Client address of a request; behind a proxy it is the proxy's."""
    return connection.client.host if connection.client else None


async def add_silence(desk: Acknowledgements, silence: Silence, request: Request[Any, Any, Any], now: float) -> None:
    """Add a silence that somebody asks for. Raises HTTPException."""
    if problems := silence.problems(now):
        raise HTTPException(status_code=400, detail="; ".join(problems))
    try:
        await desk.silence(silence)
    except ValueError as error:
        raise HTTPException(status_code=409, detail=str(error)) from error
    audit.tell("silence", by=silence.by, address=address_of(request), silence=silence.id, ends=silence.ends)


async def delivered_now(desk: Acknowledgements, letter_id: str, request: Request[Any, Any, Any]) -> bool:
    """Deliver an undelivered notification; return False for an unknown one. Raises HTTPException."""
    try:
        known = await desk.retry(letter_id)
    except NotDeliveredError as error:
        audit.tell("redeliver", outcome="failed", address=address_of(request), letter=letter_id)
        raise HTTPException(status_code=502, detail=f"not delivered: {error}") from error
    if known:
        audit.tell("redeliver", address=address_of(request), letter=letter_id)
    return known


def _silence_handlers(desk: Acknowledgements) -> list[Any]:
    @get("/api/silences")
    async def silences() -> list[dict[str, Any]]:
        now = time.time()
        return [{**msgspec.to_builtins(listed), "state": listed.state(now)} for listed in await desk.silences()]

    @post("/api/silences", guards=[same_origin])
    async def silence(request: Request[Any, Any, Any]) -> dict[str, Any]:
        now = time.time()
        made = _silence(await body_of(request, NewSilence), now)
        await add_silence(desk, made, request, now)
        return {**msgspec.to_builtins(made), "state": made.state(now)}

    @delete("/api/silences/{silence_id:str}", guards=[same_origin])
    async def unsilence(silence_id: FromPath[str], request: Request[Any, Any, Any]) -> None:
        if not await desk.unsilence(silence_id):
            raise NotFoundException(f"no silence has the id {silence_id}")
        audit.tell("unsilence", address=address_of(request), silence=silence_id)

    return [silences, silence, unsilence]


def _ack_handlers(desk: Acknowledgements) -> list[Any]:
    path = "/api/alerts/{fingerprint:str}/ack"

    @post(path, guards=[same_origin], status_code=200)
    async def acknowledge(fingerprint: FromPath[str], request: Request[Any, Any, Any]) -> Ack:
        body = await body_of(request, NewAck)
        ack = Ack(by=body.by, at=time.time(), comment=body.comment)
        if not await desk.acknowledge(fingerprint, ack):
            raise NotFoundException(f"no firing alert has the fingerprint {fingerprint}")
        audit.tell("ack", by=body.by, address=address_of(request), alert=fingerprint)
        return ack

    @delete(path, guards=[same_origin])
    async def unacknowledge(fingerprint: FromPath[str], request: Request[Any, Any, Any]) -> None:
        if not await desk.unacknowledge(fingerprint):
            raise NotFoundException(f"no acknowledged alert has the fingerprint {fingerprint}")
        audit.tell("unack", address=address_of(request), alert=fingerprint)

    return [acknowledge, unacknowledge]


def _letter_handlers(desk: Acknowledgements) -> list[Any]:
    @get("/api/dead-letters")
    async def dead_letters() -> list[dict[str, Any]]:
        return [msgspec.to_builtins(notification) for notification in await desk.undelivered()]

    @post("/api/dead-letters/{letter_id:str}/retry", guards=[same_origin], status_code=200)
    async def retry(letter_id: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, Any]:
        if not await delivered_now(desk, letter_id, request):
            raise NotFoundException(f"no dead letter has the id {letter_id}")
        return {"delivered": True}

    return [dead_letters, retry]


def _silence(new: NewSilence, now: float) -> Silence:
    starts = now if new.starts is None else new.starts
    if (new.ends is None) == (new.duration_s is None):
        raise HTTPException(status_code=400, detail="ends: give either ends or duration_s")
    return Silence(
        id=uuid.uuid4().hex,
        matchers=tuple(Matcher(name=matcher.name, op=matcher.op, value=matcher.value) for matcher in new.matchers),
        starts=starts,
        ends=starts + new.duration_s if new.duration_s is not None else new.ends or 0.0,
        by=new.by,
        comment=new.comment,
    )


async def body_of(request: Request[Any, Any, Any], kind: type[T]) -> T:
    """Decode the body. Raises HTTPException 400 whose detail starts with the field's name."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.ValidationError as error:
        where, message = explained(error, kind)
        detail = f"{where.lstrip('.') or 'body'}: {message}"
        raise HTTPException(status_code=400, detail=detail) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HTTPException(status_code=400, detail=f"body: not JSON: {error}") from error
    except RecursionError as error:
        raise HTTPException(status_code=400, detail="body: nested too deeply") from error


def _shown(alert: Alert) -> dict[str, Any]:
    """Return an alert with the texts that the page and the notifications show."""
    return {**asdict(alert.on_own_scale()), "title": headline(alert), "summary": summary(alert)}


def incident_handlers(engine: AlertEngine, store: Store) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/alerts/{fingerprint:str}")
    async def alert(fingerprint: FromPath[str]) -> dict[str, Any]:
        known = next((alert for alert in engine.alerts() if alert.fingerprint == fingerprint), None)
        if known is None:
            raise NotFoundException(f"no alert has the fingerprint {fingerprint}")
        worst = [asdict(example) for example in await read_worst(store, known)]
        ack = engine.acknowledgements.acks().get(fingerprint)
        more = {"acknowledgement": msgspec.to_builtins(ack), "worst": worst}
        return _shown(known) | _handling(engine, fingerprint) | more

    return [alert]


class NewLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /api/exchanges/{exchange_id}/label`; `withdrawn` takes back an earlier one by that person."""

    metric: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    label: Literal["pass", "fail", "withdrawn"]
    by: Name


def labelling_handlers(store: Store, supply: Callable[[Sequence[Supplement]], Awaitable[Any]]) -> list[Any]:
    """The handlers; the admin app guards them. Labels go to `supply`."""

    @post("/api/exchanges/{exchange_id:str}/label", guards=[same_origin], status_code=202)
    async def add(exchange_id: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, str]:
        new = await body_of(request, NewLabel)
        if (stored := await store.sample(exchange_id)) is None:
            raise NotFoundException(f"no captured exchange has the id {exchange_id}")
        sample, evaluations = stored
        if new.metric not in {evaluation.metric for evaluation in evaluations}:
            raise ClientException(f"metric: this exchange has no score of {new.metric}")
        await supply([label_of(sample, new.metric, new.label, new.by, time.time())])
        audit.tell("label", by=new.by, address=address_of(request), exchange=exchange_id, metric=new.metric)
        return {"exchange_id": exchange_id, "metric": new.metric, "label": new.label}

    return [add]


def rule_handlers(engine: AlertEngine) -> list[Any]:
    """The handlers of alerts, versions and baselines; the admin app guards them."""

    @get("/api/alerts", sync_to_thread=False)
    def alerts() -> list[dict[str, Any]]:
        return [_shown(alert) | _handling(engine, alert.fingerprint) for alert in engine.alerts()]

    @get("/api/versions", sync_to_thread=False)
    def versions() -> list[dict[str, Any]]:
        return [msgspec.to_builtins(version) for version in engine.versions.all()]

    @post("/api/rules/{rule:str}/rebaseline", guards=[same_origin], status_code=200, sync_to_thread=False)
    def rebaseline(
        rule: FromPath[str], request: Request[Any, Any, Any], app: FromQuery[str | None] = None
    ) -> dict[str, int]:
        try:
            streams = engine.rebaseline(rule, app)
        except KeyError as error:
            raise NotFoundException(f"no rule is called {rule!r}") from error
        audit.tell("rebaseline", address=address_of(request), rule=rule, app=app, streams=streams)
        return {"streams": streams}

    return [alerts, versions, rebaseline]


def _handling(engine: AlertEngine, fingerprint: str) -> dict[str, Any]:
    """Whom an alert is assigned to, null for no one, and the notes on it."""
    history = engine.acknowledgements.history
    notes = [{"at": note.at, "by": note.by, "text": note.comment} for note in history.notes(fingerprint)]
    return {"assignee": history.assignee(fingerprint) or None, "notes": notes}

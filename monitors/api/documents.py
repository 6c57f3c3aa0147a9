"""`/api/templates` and `/api/datasets` on the admin port: what the documents of an engine keep for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.exceptions import ClientException, HTTPException, NotFoundException
from litestar.params import FromPath, FromQuery

from gaugeway.records import Alert
from gaugeway.runtime import audit
from gaugeway.storage.engines.failures import EngineError, Unsupported
from gaugeway.storage.stores import Store
from gaugeway.storage.templates import State, StoredTemplate, Templates, only_templates
from gaugeway.storage.trials import UnknownTrialError
from monitors.analysis.datasets import MAX_ADDED, WORST, Added, Datasets, UnknownDatasetError
from monitors.api.alerts import address_of, body_of, same_origin


def template_handlers(kept: Templates) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/templates")
    async def templates(app: FromQuery[str | None] = None) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(template) for template in await stored(kept, app)]

    @post("/api/templates/{version:str}/confirm", guards=[same_origin], status_code=200)
    async def confirm(version: FromPath[str], app: FromQuery[str], request: Request[Any, Any, Any]) -> dict[str, str]:
        await decide(kept, request, app, version, "confirmed")
        return {"state": "confirmed"}

    @post("/api/templates/{version:str}/reject", guards=[same_origin], status_code=200)
    async def reject(version: FromPath[str], app: FromQuery[str], request: Request[Any, Any, Any]) -> dict[str, str]:
        await decide(kept, request, app, version, "rejected")
        return {"state": "rejected"}

    return [templates, confirm, reject]


class NewRows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /api/datasets/{name}`; `since_s` seconds of scores are searched."""

    exchanges: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ADDED)] = ()
    alert: str | None = None
    labelled: bool = False
    app: str | None = None
    metric: str | None = None
    below: float | None = None
    above: float | None = None
    since_s: Annotated[float, msgspec.Meta(gt=0.0)] = 86_400.0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_ADDED)] = WORST
    by: Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")] = ""


def dataset_handlers(kept: Datasets, store: Store, alerts: Callable[[], Sequence[Alert]]) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/datasets")
    async def datasets(app: FromQuery[str | None] = None) -> list[dict[str, Any]]:
        with answering("the data sets"):
            return [asdict(made) for made in await kept.versions(app)]

    @get("/api/datasets/{name:str}")
    async def dataset(name: FromPath[str]) -> dict[str, Any]:
        with answering("the data sets"):
            made, records = await kept.read(name)
        return asdict(made) | {"records": records}

    @post("/api/datasets/{name:str}", guards=[same_origin])
    async def add(name: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, Any]:
        wanted = msgspec.structs.asdict(await body_of(request, NewRows))
        wanted["since"], fingerprint = time.time() - wanted["since_s"], wanted["alert"]
        wanted["alert"] = next((known for known in alerts() if known.fingerprint == fingerprint), None)
        if fingerprint is not None and wanted["alert"] is None:
            raise NotFoundException(f"no alert has the fingerprint {fingerprint}")
        return asdict(await add_rows(kept, store, request, name, wanted))

    return [datasets, dataset, add]


async def add_rows(kept: Datasets, store: Store, request: Request[Any, Any, Any], name: str, wanted: Any) -> Added:
    """Add what is wanted (as `Datasets.add`) and log who did. Raises HTTPException 400 or 503."""
    with answering("the data sets"):
        added = await kept.add(store, name, wanted, time.time())
    about = {"dataset": name, "version": str(added.dataset.version)}
    audit.tell("dataset_add", by=wanted["by"] or None, address=address_of(request), **about)
    return added


async def stored(kept: Templates, app: str | None = None) -> list[StoredTemplate]:
    """Read the templates. Raises HTTPException 503 if they cannot be read."""
    with answering("the learned templates"):
        return only_templates(await kept.templates(app))


async def decide(kept: Templates, request: Request[Any, Any, Any], app: str, version: str, state: State) -> None:
    """Confirm or reject a template and log who did. Raises HTTPException 404 or 503."""
    with answering("the learned templates"):
        known = await kept.set_template_state(app, version, state)
    if not known:
        raise NotFoundException(f"app {app} has no template {version}")
    audit.tell(f"template_{state}", address=address_of(request), app=app, version=version)


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Turn errors about `what` is kept into HTTP ones: 404 for what is unknown, 400 for a wrong value, 503."""
    try:
        yield
    except (UnknownDatasetError, UnknownTrialError) as error:
        raise NotFoundException(str(error)) from error
    except EngineError as error:
        raise HTTPException(status_code=503, detail=f"{what} cannot be reached: {type(error).__name__}") from error
    except (HTTPException, Unsupported):  # the app answers it
        raise
    except ValueError as error:
        raise ClientException(str(error)) from error

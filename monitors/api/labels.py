"""`GET /api/labels` on the admin port."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

from litestar import get
from litestar.params import FromQuery, QueryParameter

from gaugeway.storage.stores import Query, Store
from monitors.analysis.human_labels import HALF_WIDTH, WINDOW_S, Passings, default_passing, labelled


def label_handlers(store: Store, passing: Passings = default_passing) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/labels")
    async def labels(
        app: FromQuery[str | None] = None,
        metric: FromQuery[str | None] = None,
        since_s: Annotated[float, QueryParameter(gt=0, description="how far back, seconds")] = WINDOW_S,
        half_width: Annotated[
            float, QueryParameter(gt=0, le=0.5, description="half width of the planned interval")
        ] = HALF_WIDTH,
    ) -> list[dict[str, Any]]:
        now = time.time()
        query = Query(since=now - since_s, until=now + 1.0, app=app, metric=metric)
        return [asdict(agreement) for agreement in await labelled(store, query, passing=passing, half_width=half_width)]

    return [labels]

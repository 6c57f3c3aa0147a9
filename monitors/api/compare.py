"""`GET /api/compare` on the admin port."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

from litestar import get
from litestar.exceptions import ClientException
from litestar.params import FromQuery, QueryParameter

from gaugeway.storage.stores import Store
from monitors.analysis import ab_compare as comparing
from monitors.analysis.ab_query import PERIOD, VersionQuery, keys_of, period_of, read
from monitors.metrics.registry import zero_is_best

WEEK_S = 7 * 86_400.0
MOST, READING_S = 20_000, 2.0
"""Where the store cannot aggregate: scores read per version and metric, and the time limit for reading."""
MOST_QUESTIONS, WITHIN_S = 2000, 0.12
"""Scores of both versions up to which they are read individually with their questions; time limit for counting."""


def compare_handlers(store: Store, lower_is_better: Callable[[str], bool] = zero_is_best) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/compare")
    async def compare(
        *,
        by: FromQuery[str],
        a: FromQuery[str],
        b: FromQuery[str],
        app: FromQuery[str | None] = None,
        metric: FromQuery[list[str] | None] = None,
        since_s: Annotated[float, QueryParameter(gt=0, description="how far back, seconds")] = WEEK_S,
        delta: Annotated[
            float, QueryParameter(ge=0, lt=1, description="acceptable loss of B against A")
        ] = comparing.MARGIN,
        alpha: Annotated[
            float, QueryParameter(gt=0, lt=1, description="probability of any wrong decision")
        ] = comparing.ALPHA,
    ) -> dict[str, Any]:
        now = time.time()
        span: dict[str, Any] = {"since": now - since_s, "until": now + 1.0}
        span |= {"few": MOST_QUESTIONS, "within_s": WITHIN_S, "most": MOST, "reading_s": READING_S}
        wanted = VersionQuery(by=by, a=a, b=b, metrics=metric or (), app=app, **span)
        try:
            if by == PERIOD:
                wanted = replace(wanted, periods=(period_of(a, now), period_of(b, now)))
            everything, partial_ = await read(store, wanted)
        except (ValueError, OverflowError) as error:
            raise ClientException(str(error)) from error
        keys = await keys_of(store, everything, "auto", most=MOST_QUESTIONS)
        work = partial(comparing.compare, margin=delta, alpha=alpha, keys=keys, lower_is_better=lower_is_better)
        rows = await asyncio.to_thread(work, everything)
        answer = {"by": by, "a": a, "b": b, "delta": delta, "alpha": alpha, "decision": comparing.decision(rows)}
        return answer | {"partial": partial_, "rows": [asdict(row) for row in rows]}

    return [compare]

"""A real store file full of scores, as if an app had run with two versions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from gaugeway.records import Evaluation, Sample, Score, Supplement
from gaugeway.storage.engines.sqlite.store import SQLiteStore


class One(NamedTuple):
    """A score to be stored, `ago_s` seconds before now."""

    sample: str
    value: float
    ago_s: float
    metric: str = "faithfulness"
    app: str = "shop"
    fields: dict[str, Any] = {}  # noqa: RUF012 - never changed
    made: dict[str, Any] = {}  # noqa: RUF012 - never changed


def fill(path: Path, scores: Iterable[One], supplements: Iterable[Supplement] = ()) -> None:
    """Write a store at `path`."""

    async def main() -> None:
        store = SQLiteStore(path)
        now = time.time()
        for one in scores:
            sample = Sample(id=one.sample, started_at=now - one.ago_s, app=one.app, **one.fields)
            made = {"version": "1", **one.made}
            evaluation = Evaluation(sample_id=one.sample, metric=one.metric, outcome=Score(one.value), **made)
            await store.add(sample, [evaluation])
        await store.supplement(list(supplements))
        await store.aclose()

    asyncio.run(main())

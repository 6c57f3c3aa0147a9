"""Which documents exchanges got, and whether their answers contradict them: read for the cause of an alert."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from gaugeway.records import Evaluation, Sample
from gaugeway.storage.stores import Point, Store
from gaugeway.text.passage_identity import passage_names
from monitors.alerting.causes import Passages
from monitors.alerting.stream import usable
from monitors.metrics.judged.passage_verdicts import passage_verdicts

MAX_EXCHANGES = 500
"""Exchanges that are read on each side of an onset."""
MAX_READ_S = 20.0
AT_ONCE = 8
_log = logging.getLogger("gaugeway")


async def read_passages(
    store: Store, metric: str, sides: Sequence[Sequence[Point]], *, quote: bool, salt: str = ""
) -> Mapping[str, Passages]:
    """Return the passages of stored exchanges with a score of `metric`, by sample id; none if the store is too slow.

    Documents have the names of `gaugeway.text.passage_identity`; without `quote` a hash with `salt` of these.
    """
    ids = [sample_id for side in sides for sample_id in _chosen(metric, side)]
    gate = asyncio.Semaphore(AT_ONCE)

    async def read(sample_id: str) -> tuple[str, Passages | None]:
        async with gate:
            stored = await store.sample(sample_id)
        return sample_id, None if stored is None else _passages(*stored, quote=quote, salt=salt)

    try:
        async with asyncio.timeout(MAX_READ_S):
            found = await asyncio.gather(*map(read, ids))
    except TimeoutError:
        _log.warning("reading the passages for the cause of a drop of %s timed out after %.0f s", metric, MAX_READ_S)
        return {}
    return {sample_id: passages for sample_id, passages in found if passages is not None}


def _chosen(metric: str, side: Iterable[Point]) -> list[str]:
    """Return ids in the order of a hash, a random part."""
    ids = {point.sample_id for point in side if point.metric == metric and usable(point)}
    return sorted(ids, key=lambda sample_id: blake2b(sample_id.encode(), digest_size=8).digest())[:MAX_EXCHANGES]


def _passages(sample: Sample, evaluations: Iterable[Evaluation], *, quote: bool, salt: str) -> Passages | None:
    known = passage_names(sample, salt=salt)
    names = frozenset(name if quote else _hashed(name, salt) for name in known if name)
    verdicts = passage_verdicts(evaluations)
    contradicted = None if verdicts is None else verdicts.any_contradiction
    return Passages(documents=names, contradicted=contradicted, count=len(sample.contexts)) if names else None


def _hashed(name: str, salt: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), key=salt.encode()[:64], digest_size=4).hexdigest()

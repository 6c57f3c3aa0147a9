"""Latency statistics: mean and percentiles of retrieval, generation and their total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

PERCENTILES = (50.0, 95.0, 99.0)


class Timing(Struct, frozen=True, kw_only=True):
    """The durations of one answer in seconds; `retrieval_s` is None when unknown."""

    generation_s: float
    retrieval_s: float | None = None


class Latency(Struct, frozen=True, kw_only=True):
    """`n` durations in seconds. Percentiles are interpolated between neighbours."""

    n: int
    mean: float
    p50: float
    p95: float
    p99: float


def summary(timings: Iterable[Timing]) -> Mapping[str, Latency | None]:
    """Mean, p50, p95 and p99 of "retrieval", "generation" and "total"; None where there is no duration.

    The total is over the answers whose retrieval is known; where none is, it is the generation. Mixed, the answers
    without a retrieval time would make it look faster. Raises ValueError for a duration that is none.

    >>> found = summary([Timing(generation_s=1.0, retrieval_s=0.5), Timing(generation_s=3.0)])
    >>> found["generation"].mean, found["total"].mean, found["total"].n
    (2.0, 1.5, 1)
    """
    timings = list(timings)
    retrieval = [timing.retrieval_s for timing in timings if timing.retrieval_s is not None]
    generation = [timing.generation_s for timing in timings]
    both = [timing.generation_s + timing.retrieval_s for timing in timings if timing.retrieval_s is not None]
    return {"retrieval": _of(retrieval), "generation": _of(generation), "total": _of(both or generation)}


def _of(durations: Sequence[float]) -> Latency | None:
    if not durations:
        return None
    if not (np.isfinite(values := np.asarray(durations, dtype=np.float64)).all() and (values >= 0.0).all()):
        raise ValueError("a duration is a finite number of seconds, 0 or more")
    p50, p95, p99 = np.percentile(values, PERCENTILES)
    return Latency(n=len(values), mean=float(values.mean()), p50=float(p50), p95=float(p95), p99=float(p99))

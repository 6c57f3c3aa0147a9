"""The covariates of the estimates: which metric of all traffic narrows the interval of which judged one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import PairedSums, Query
from monitors.metrics.registry import declared, names
from monitors.statistics.control_variate import Fit, Powered, fitted, powered

_MAY_MISS = 0.05
_SIGNALS = tuple(SIGNALS)
"""Computed for all traffic as well, so that nothing is estimated."""
Key = tuple[str, str]
"""App and metric."""


def covariates() -> list[str]:
    """Return the metrics without a judge that are computed for all traffic, the better covariate first."""
    ranks = {name: declared(name, "covariate_rank") for name in names()}
    return sorted((name for name, rank in ranks.items() if rank is not None), key=ranks.__getitem__)


class Pairs(Protocol):
    """The part of the store that pairs scores."""

    async def paired(self, query: Query, cheap: str) -> Sequence[PairedSums]:
        """Return the scores that `query` asks for beside those of the metric `cheap`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Helped:
    """An estimate that uses a covariate, and that covariate's name."""

    found: Powered
    covariate: str


def helped(
    paired: Iterable[PairedSums], fits: Mapping[Key, Fit] | None = None, covariate: str = ""
) -> dict[Key, Helped]:
    """Return the estimates of the streams that the covariate can help.

    `paired` are sums of scores paired with the covariate, `fits` the controls fitted to an earlier window. A covariate
    has no covariate itself: it is computed for all traffic.
    """
    made, cheap = {}, covariates()
    for sums in paired:
        if sums.metric in cheap:
            continue
        if (found := _powered(sums, (fits or {}).get((sums.app, sums.metric)))) is not None:
            made[sums.app, sums.metric] = Helped(found=found, covariate=covariate)
    return made


def comparable(sums: PairedSums) -> bool:
    """Return whether the covariate was computed on (nearly) the same exchanges as the metric.

    Otherwise the mean over the covariate's exchanges would differ from that of the scores.
    """
    n = sums.sums.n
    return n > 0 and sums.alone <= _MAY_MISS * n and sums.missing <= _MAY_MISS * (n + sums.missing)


@dataclass(slots=True)
class _Fits:
    """The controls of one covariate, and when they are fitted again."""

    known: dict[Key, Fit] = field(default_factory=dict)
    refit_at: float = 0.0


class Covariates:
    """Reads the scores paired with the covariates `names`, the best first, from a store.

    Where the first cannot help (it failed, or was added a moment ago), the next one does. The controls are fitted to
    the window before, every quarter of a window.
    """

    def __init__(self, store: Pairs, names: Iterable[str], window_s: float) -> None:
        self._store = store
        self._window_s = window_s
        self._fits = {name: _Fits() for name in covariates() if name in frozenset(names)}

    async def helped(self, window: Query, now: float, wanted: Collection[Key]) -> dict[Key, Helped]:
        """Return the estimates in a window that have a covariate; no more is read once all of `wanted` have one.

        Raises EngineError.
        """
        made: dict[Key, Helped] = {}
        for name, fits in self._fits.items():
            if made and made.keys() >= set(wanted):
                break
            if now >= fits.refit_at:
                before = Query(since=now - 2 * self._window_s, until=now - self._window_s, without=_SIGNALS)
                earlier = await self._store.paired(before, name)
                fits.known = {(sums.app, sums.metric): fitted(sums.sums) for sums in earlier if comparable(sums)}
                fits.refit_at = now + self._window_s / 4
            paired = await self._store.paired(replace(window, without=_SIGNALS), name)
            made = helped(paired, fits.known, name) | made
        return made


def _powered(sums: PairedSums, fit: Fit | None) -> Powered | None:
    if not comparable(sums):
        return None
    try:
        found = powered([sums.sums], None if fit is None else [fit])
    except ValueError:
        return None
    return found if found.enough else None

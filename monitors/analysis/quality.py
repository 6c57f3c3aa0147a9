"""Current quality: the mean with its interval per app and metric, over the window."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.stores import PairedSums, Query, Spent, Summary
from monitors.metrics import ANCHOR, DISAGREEMENT
from monitors.metrics.registry import declared, names
from monitors.statistics.confidence_sequence import MIN_N_EFF, closed_window, confidence_sequence
from monitors.statistics.control_variate import Fit, Powered, fitted, powered
from monitors.statistics.weighted_mean import Estimate, hajek_from_sums

_MAY_MISS = 0.05
_PAUSE_PER_ROW_S = 200e-6
"""Reading what a score cost takes 4 microseconds, and is to take a fiftieth of a core."""
_SIGNALS = tuple(SIGNALS)
"""Computed for all traffic as well, so that nothing is estimated."""
Key = tuple[str, str]
"""App and metric."""


def covariates() -> list[str]:
    """Return the metrics without a judge that are computed for all traffic, the better covariate first."""
    ranks = {name: declared(name, "covariate_rank") for name in names()}
    return sorted((name for name, rank in ranks.items() if rank is not None), key=ranks.__getitem__)


def two_tiers(names: Iterable[str]) -> list[str]:
    """Return the metrics among `names` that both decisions and the anchor judge, sorted."""
    known = frozenset(names)
    return sorted(name for name in known if name + ANCHOR in known)


class Pairs(Protocol):
    """The part of the store that pairs scores."""

    async def paired(self, query: Query, cheap: str) -> Sequence[PairedSums]:
        """Return the scores that `query` asks for beside those of the metric `cheap`."""

    async def spent(self, query: Query) -> Sequence[Spent]:
        """Return what the evaluations of the query's time cost. Raises Unsupported where that is not known."""


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
    """Reads the scores paired with the covariates among the metrics `names`, the best first, and what two tiers cost.

    The best covariate of the anchor's scores are the decisions on the same metric.

    Where the first cannot help (it failed, or was added a moment ago), the next one does. The controls are fitted to
    the window before, every quarter of a window.
    """

    def __init__(self, store: Pairs, names: Iterable[str], window_s: float) -> None:
        self._store = store
        self._window_s = window_s
        known = frozenset(names)
        self._tiers, self._spent_at = two_tiers(known), 0.0
        self._spent: Sequence[Spent] = ()
        tiers = [(name, name + ANCHOR) for name in self._tiers]
        plain: list[tuple[str, str | None]] = [(name, None) for name in covariates() if name in known]
        self._fits = {pair: _Fits() for pair in [*tiers, *plain]}

    async def helped(self, window: Query, now: float, wanted: Collection[Key]) -> dict[Key, Helped]:
        """Return the estimates in a window that have a covariate; no more is read once all of `wanted` have one.

        Raises EngineError.
        """
        made: dict[Key, Helped] = {}
        for (name, metric), fits in self._fits.items():
            if made and made.keys() >= set(wanted):
                break
            window = replace(window, metric=metric, without=_SIGNALS)
            if now >= fits.refit_at:
                before = replace(window, since=now - 2 * self._window_s, until=now - self._window_s)
                earlier = await self._store.paired(before, name)
                fits.known = {(sums.app, sums.metric): fitted(sums.sums) for sums in earlier if comparable(sums)}
                fits.refit_at = now + self._window_s / 4
            paired = await self._store.paired(window, name)
            made = helped(paired, fits.known, name) | made
        return made

    async def with_spend(self, found: Sequence[Quality], window: Query, now: float) -> Sequence[Quality]:
        """Return the estimates, those of metrics in two tiers with their spend in a window. Raises EngineError."""
        if self._tiers and now >= self._spent_at:
            with suppress(Unsupported):
                self._spent = await self._store.spent(window)
            self._spent_at = now + _PAUSE_PER_ROW_S * sum(spent.scores for spent in self._spent)
        return with_spend(found, self._spent, self._tiers)


def _powered(sums: PairedSums, fit: Fit | None) -> Powered | None:
    if not comparable(sums):
        return None
    try:
        found = powered([sums.sums], None if fit is None else [fit])
    except ValueError:
        return None
    return found if found.enough else None


MAX_STREAMS = 5000
"""Estimated and exported streams (app, metric, slice): those with the most scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The mean of one metric of one app (or slice) over the last `window_s` seconds, on the metric's own scale.

    `mean` and the intervals are None below an effective sample size of 10. `ci_low` to `ci_high` is valid however often
    it is looked at; `fixed_low` to `fixed_high`, which is narrower, if it is looked at once, at a time that the scores
    do not decide. `coverage_ratio` is the share of
    applicable samples with a score (the others failed). With `method` "powered" the estimate uses the metric
    `covariate`: `correlation` is that of the two scores, `saving` the factor by which judge calls would grow without
    it, `alone_low` to `alone_high` the interval around `alone_mean` without it.
    `design_effect`, at least 1, is the factor by which clusters (sessions, users, ...) widen the variance; `n_eff`
    is already divided by it. It is that of the stream that an alert rule watches; 1 where no rule does. Of metrics
    judged in two tiers, `usd_window` is what judging cost in `monitors.window_s`, `usd_per_1000` for 1,000 scores; None
    without a price.
    """

    app: str
    metric: str
    n: int
    n_eff: float
    coverage_ratio: float
    slice: str = ""
    mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    fixed_low: float | None = None
    fixed_high: float | None = None
    window_s: float = 0.0
    method: Literal["hajek", "powered"] = "hajek"
    correlation: float | None = None
    saving: float | None = None
    covariate: str | None = None
    design_effect: float = 1.0
    alone_mean: float | None = None
    alone_low: float | None = None
    alone_high: float | None = None
    usd_window: float | None = None
    usd_per_1000: float | None = None


def estimate(
    summaries: Iterable[Summary],
    helped: Mapping[tuple[str, str], Helped] | None = None,
    effects: Mapping[tuple[str, str, str], float] | None = None,
    *,
    window_s: float = 0.0,
) -> list[Quality]:
    """Estimate from the summaries of a window of `window_s`; return estimates sorted by app, metric and slice.

    `helped` are the estimates with a covariate by app and metric, `effects` the design effects by app, metric and
    slice.
    """
    widened, better = effects or {}, helped or {}
    ordered = sorted(summaries, key=lambda summary: (summary.app, summary.metric, summary.slice))
    return [
        _quality(
            summary,
            None if summary.slice else better.get((summary.app, summary.metric)),
            widened.get((summary.app, summary.metric, summary.slice), 1.0),
            window_s,
        )
        for summary in ordered
    ]


def with_spend(found: Sequence[Quality], spent: Iterable[Spent], tiers: Collection[str]) -> Sequence[Quality]:
    """Return the estimates, those of the metrics `tiers` with what their judges cost.

    A call answers several metrics, and the first pays for it: what a tier cost is divided among its metrics by scores.
    """
    tier_of = dict.fromkeys(tiers, "") | {name + end: ANCHOR for name in tiers for end in (ANCHOR, DISAGREEMENT)}
    usd, scores, own = defaultdict[Key, float](float), Counter[Key](), Counter[Key]()
    for row in spent:
        if (tier := tier_of.get(row.metric)) is not None:
            usd[row.app, tier] += row.usd
            if not row.metric.endswith(DISAGREEMENT):
                scores[row.app, tier] += row.scores
                own[row.app, row.metric] += row.scores

    def priced(quality: Quality) -> Quality:
        key, n = (quality.app, tier_of.get(quality.metric, "")), own[quality.app, quality.metric]
        if quality.slice or not (n and usd[key]):
            return quality
        each = usd[key] / scores[key]
        return replace(quality, usd_window=each * n, usd_per_1000=1000.0 * each)

    return [priced(quality) for quality in found]


def largest(summaries: Sequence[Summary], most: int = MAX_STREAMS) -> Sequence[Summary]:
    """Return the `most` summaries with the most scores: clients choose app names, so their number is unbounded."""
    if len(summaries) <= most:
        return summaries
    return heapq.nlargest(most, summaries, key=lambda summary: summary.n + summary.failed)


def _quality(summary: Summary, helped: Helped | None, effect: float, window_s: float) -> Quality:
    better = helped.found if helped is not None else None
    covered = summary.n / (summary.n + summary.failed) if summary.n or summary.failed else 0.0
    found = hajek_from_sums(summary)
    use = better if better is not None and found is not None and better.n_eff > found.n_eff else None
    known = use.estimate() if use is not None else found
    if known is not None:
        known = known.widened(effect)
    low, mean, high = _interval(known)
    alone = _interval(found.widened(effect)) if use is not None and found is not None else (None, None, None)
    fixed_low, fixed_high = closed_window(known) if known is not None and mean is not None else (None, None)
    return Quality(
        app=summary.app,
        metric=summary.metric,
        slice=summary.slice,
        n=summary.n,
        n_eff=known.n_eff if known is not None else 0.0,
        coverage_ratio=covered,
        mean=mean,
        ci_low=low,
        ci_high=high,
        fixed_low=fixed_low,
        fixed_high=fixed_high,
        window_s=window_s,
        method="powered" if use is not None else "hajek",
        correlation=better.correlation if better is not None else None,
        saving=better.saving if better is not None else None,
        covariate=helped.covariate if helped is not None and use is not None else None,
        design_effect=effect,
        alone_low=alone[0],
        alone_mean=alone[1],
        alone_high=alone[2],
    )


def _interval(found: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """Return lower limit, mean and upper limit; None if there are too few scores."""
    if found is None or found.n_eff < MIN_N_EFF:
        return None, None, None
    low, high = confidence_sequence(found)
    return low, min(1.0, max(0.0, found.mean)), high

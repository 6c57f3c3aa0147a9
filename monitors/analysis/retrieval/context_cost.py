"""What the passages in an app's prompts cost, and how many answers rest on them: by position, source and k.

Pure: `context_costs` takes exchanges that were read, `monitors.analysis.retrieval.source_reading` reads them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from gaugeway.text.passage_identity import id_or_source_of
from monitors.analysis.retrieval.passage_use import PassageUse
from monitors.analysis.retrieval.sources import RetrievedExchange, Scope
from monitors.statistics.clusters import groups_of
from monitors.statistics.confidence_sequence import ALPHA, closed_window, student
from monitors.statistics.weighted_mean import hajek

Basis: TypeAlias = Literal["claims", "words"]
Array: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

MAX_POSITIONS = 50
MAX_COSTED_SOURCES = 20
"""Sources of the report, those with most characters in the prompts."""
MAX_CANDIDATES = 8
"""Values of k that advice is given for, spread evenly below the usual one."""
TOKENS_PER_CHARACTER = 0.25
"""For an app without any reported tokens: a rule of thumb for English."""
FEWEST_CONVERSATIONS = 5
"""Conversations with the rarer outcome that show how alike the answers of one are; with fewer they count as one."""
TRIAL_PATH = "/trials/new"
_BASES = {"claims": "by the claims that a judge found supported", "words": "by shared words alone, as no judge looked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A mean or share of `n` answers with its 95 % interval; a mean of one conversation has none."""

    value: float
    ci_low: float | None
    ci_high: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageCost:
    """What some passages cost and did for `answers` answers; an unknown number is None.

    `name` is their position from 1, their source, or the candidate that leaves them out. `tokens` are theirs per
    answer, `prompt_share` is their share of all tokens of the prompts, `usd_per_1000` their cost for 1,000 answers at
    the configured prices. `rests_on` is the share of the answers with evidence in which a claim rests on one of them,
    `rests_only_on` that in which a claim rests on nothing else.
    """

    name: str
    answers: int
    tokens: Amount | None
    prompt_share: Amount | None
    usd_per_1000: Amount | None
    rests_on: Amount | None
    rests_only_on: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTrial:
    """What a finished trial of a candidate found: the difference of a metric's means, candidate less usual.

    The interval misses the difference with probability `error` at most. `candidate` is as in `Advice`.
    """

    name: str
    candidate: str
    metric: str
    difference: float
    ci_low: float
    ci_high: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A cheaper candidate, "max_contexts=6" or "drop_source=NAME", and what it would save.

    `saved` is about all answers with passages. `command` and `link` start a trial of it; `trial` is the result of one.
    Without a trial nothing is known of the quality of its answers. `text` says all this in words.
    """

    candidate: str
    saved: PassageCost
    command: str
    link: str
    trial: FinishedTrial | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCostReport:
    """What the passages of one app cost over a window.

    `read`, `complete` and `pending` are as in `SourceReport`. `answers` have passages, usually (the weighted median)
    `usual_k` of them and at most `most_k`. The tokens of `measured` answers are shares of those that the provider
    reported, of `estimated` ones they are from characters; of the others they are unknown. What answers rest on is by
    `basis`: a judge's "claims", or the "words" that sentences share with passages; None without either. `judged`
    answers have such evidence. `positions` and `sources` are about the answers with such passages. `unnamed` answers
    have passages without id and source, which are no `sources`; `other_sources` have fewer characters than those.
    """

    app: str
    since: float
    until: float
    read: int
    complete: bool
    pending: int
    answers: int
    usual_k: int
    most_k: int
    measured: int
    estimated: int
    basis: Basis | None
    judged: int
    unnamed: int
    other_sources: int
    positions: tuple[PassageCost, ...]
    sources: tuple[PassageCost, ...]
    advice: tuple[Advice, ...]


def context_costs(exchanges: Sequence[RetrievedExchange], scope: Scope) -> ContextCostReport:
    """Build the report from the exchanges of one app."""
    used = [(exchange, exchange.use) for exchange in exchanges if exchange.use is not None]
    prompts = _Prompts(used)
    usual, most, sources = prompts.usual(), int(prompts.sizes.max(initial=0)), prompts.named()
    listed = {name: np.equal(prompts.sources, number) for name, number in sources[:MAX_COSTED_SOURCES]}
    candidates = [("max_contexts", str(k), prompts.positions >= k) for k in _below(usual)]
    candidates += [("drop_source", id_or_source_of(name) or "", passages) for name, passages in listed.items()]
    report = ContextCostReport(
        app=scope.app,
        since=scope.since,
        until=scope.until,
        read=len(exchanges),
        complete=scope.complete,
        pending=scope.pending,
        answers=len(used),
        usual_k=usual,
        most_k=most,
        measured=int(prompts.measured.sum()),
        estimated=int((prompts.counted & ~prompts.measured).sum()),
        basis=prompts.basis,
        judged=int(prompts.judged.sum()),
        unnamed=int(prompts.with_any(prompts.sources < 0).sum()),
        other_sources=len(sources) - len(listed),
        positions=tuple(prompts.cost(str(at + 1), prompts.positions == at) for at in range(min(most, MAX_POSITIONS))),
        sources=tuple(prompts.cost(name, passages) for name, passages in listed.items()),
        advice=tuple(_advice(scope.app, prompts, *candidate) for candidate in candidates),
    )
    return with_trials(report, ())


def with_trials(report: ContextCostReport, trials: Sequence[FinishedTrial]) -> ContextCostReport:
    """Return the report whose advice names the result of the last of the app's trials of its candidate."""
    finished = {trial.candidate: trial for trial in trials}
    tried = (replace(advice, trial=finished.get(advice.candidate)) for advice in report.advice)
    return replace(report, advice=tuple(replace(advice, text=_in_words(advice, report)) for advice in tried))


class _Prompts:
    """n answers, and their m passages as flat arrays: `rows` [m] is the answer, from 0, `positions` [m] the place."""

    def __init__(self, used: Sequence[tuple[RetrievedExchange, PassageUse]]) -> None:
        self._n = len(used)
        self.sizes = np.array([len(exchange.passages) for exchange, _ in used], np.intp)
        self._begins = np.cumsum(self.sizes) - self.sizes
        self.rows = np.repeat(np.arange(self._n), self.sizes)
        self.positions = np.arange(len(self.rows)) - self._begins[self.rows]
        self._rates = np.array([exchange.rate for exchange, _ in used], np.float64)
        self._clusters = np.array(groups_of([exchange.cluster for exchange, _ in used]), np.int64)
        self._index: dict[str, int] = {}
        names = [name if id_or_source_of(name) else "" for exchange, _ in used for name in exchange.passages]
        numbers = [self._index.setdefault(name, len(self._index)) if name else -1 for name in names]
        self.sources = np.array(numbers, np.intp)
        self._count_tokens([use for _, use in used])
        self._read_support([use for _, use in used])

    def _count_tokens(self, uses: Sequence[PassageUse]) -> None:
        """Share the reported tokens by characters; else take the app's tokens per character, or the rule of thumb."""

        def flat(values: Iterable[Sequence[float] | None]) -> Array:
            pairs = zip(values, self.sizes, strict=True)
            return np.array([value for some, size in pairs for value in some or (0.0,) * size], np.float64)

        seen = np.array([use.seen for use in uses], np.float64)
        reported = np.array([use.input_tokens or np.nan for use in uses], np.float64)
        whole = np.array([use.whole for use in uses], np.bool_)
        self.counted = np.array([use.characters is not None for use in uses], np.bool_)
        self.measured = whole & np.isfinite(reported) & self.counted
        self._characters, characters = flat(use.characters for use in uses), seen[self.measured].sum()
        ratio = reported[self.measured].sum() / characters if characters else TOKENS_PER_CHARACTER
        tokens = self._characters * np.where(self.measured, reported / np.maximum(seen, 1.0), ratio)[self.rows]
        total = np.bincount(self.rows, tokens, self._n)
        # an estimate never exceeds what the provider reported
        self._tokens = tokens * np.where(total > reported, reported / np.maximum(total, 1.0), 1.0)[self.rows]
        self._prompt = np.where(np.isnan(reported) & whole, seen * ratio, reported)
        self._priced = self.counted & np.array([use.usd_per_token is not None for use in uses], np.bool_)
        self._usd = self._tokens * flat(use.usd_per_token for use in uses)

    def _read_support(self, uses: Sequence[PassageUse]) -> None:
        """Take what a judge said where it said anything at all, else the shared words."""
        support = [use.claims for use in uses]
        self.basis: Basis | None = "claims" if any(support) else None
        if self.basis is None:
            support = [use.sentences for use in uses]
            self.basis = "words" if any(support) else None
        self.judged = np.array([one is not None for one in support], np.bool_)
        # metrics are computed for nested samples: both were with the lower of the two probabilities
        rates = [1.0 if one is None else one.rate for one in support]
        self._support_rates = np.minimum(self._rates, np.array(rates, np.float64))
        claims = [(row, some) for row, one in enumerate(support) if one is not None for some in one.passages]
        self._claim_rows = np.array([row for row, _ in claims], np.intp)
        self._cites = np.array([len(some) for _, some in claims], np.intp)
        self._cited = np.array([self._begins[row] + index for row, some in claims for index in some], np.intp)

    def usual(self) -> int:
        """Return the weighted median of the number of passages; 0 without answers."""
        if not self._n:
            return 0
        return int(np.quantile(self.sizes, 0.5, weights=1.0 / self._rates, method="inverted_cdf"))

    def named(self) -> list[tuple[str, int]]:
        """Return the sources with a name and their numbers, those with most characters in the prompts first."""
        weights = np.where(self.sources < 0, 0.0, self._characters / self._rates[self.rows])
        sums = np.bincount(np.maximum(self.sources, 0), weights, len(self._index))
        return sorted(self._index.items(), key=lambda entry: (-sums[entry[1]], entry[0]))

    def with_any(self, passages: Flags) -> Flags:
        """Return which answers have any of these passages."""
        return self._sums(self.rows, passages) > 0.0

    def cost(self, name: str, passages: Flags, *, of_all: bool = False) -> PassageCost:
        """Return what these passages [m] cost the answers that have any of them, or all."""
        answers = np.ones(self._n, np.bool_) if of_all else self.with_any(passages)
        tokens, usd = (self._sums(self.rows, some * passages) for some in (self._tokens, self._usd))
        counted, each = answers & self.counted, np.ones(self._n)
        claims = np.repeat(np.arange(len(self._cites)), self._cites)
        hits = np.bincount(claims, passages[self._cited], len(self._cites))
        on, only = (
            self._sums(self._claim_rows, some) > 0.0 for some in (hits > 0.0, (hits == self._cites) & (hits > 0.0))
        )
        return PassageCost(
            name=name,
            answers=int(answers.sum()),
            tokens=self._ratio(tokens, each, counted),
            prompt_share=self._ratio(tokens, self._prompt, counted & (self._prompt > 0.0)),
            usd_per_1000=self._ratio(1000.0 * usd, each, answers & self._priced),
            rests_on=self._share(on, answers & self.judged),
            rests_only_on=self._share(only, answers & self.judged),
        )

    def _sums(self, rows: NDArray[np.intp], values: Array | Flags) -> Array:
        return np.asarray(np.bincount(rows, values, self._n), np.float64)

    def _ratio(self, amounts: Array, totals: Array, chosen: Flags) -> Amount | None:
        """Return sum(w amount)/sum(w total) with the interval of its linearisation; None without answers.

        The variance is that of the mean of (amount - ratio total)/mean total. Reference: C.-E. Särndal, B. Swensson &
        J. Wretman (1992), Model Assisted Survey Sampling, 5.6.
        """
        if not chosen.any():
            return None
        x, y, rates = amounts[chosen], totals[chosen], self._rates[chosen]
        mean = float((y / rates).sum() / (1.0 / rates).sum())
        ratio = float((x / rates).sum() / (1.0 / rates).sum()) / mean
        found = hajek((x - ratio * y) / mean, rates, self._clusters[chosen])
        degrees, low, high = int(found.n_eff - 1.0 if found.degrees is None else found.degrees), None, None
        if degrees >= 1 and (found.clusters or 0) > 1:
            half = student(ALPHA, degrees) * found.sd / found.n_eff**0.5
            low, high = _rounded(max(0.0, ratio - half)), _rounded(ratio + half)
        return Amount(value=_rounded(ratio), ci_low=low, ci_high=high, n=found.n)

    def _share(self, there: Flags, chosen: Flags) -> Amount | None:
        """Return the share of the chosen answers; None without any."""
        if not chosen.any():
            return None
        rates, clusters = self._support_rates[chosen], self._clusters[chosen]
        found = hajek(there[chosen].astype(np.float64), rates, clusters)
        if min(np.unique(clusters[there[chosen] == flag]).size for flag in (True, False)) < FEWEST_CONVERSATIONS:
            sums = np.bincount(np.unique(clusters, return_inverse=True)[1], 1.0 / rates)
            found = replace(found, n_eff=float(sums.sum() ** 2 / (sums**2).sum()))
        low, high = closed_window(found)
        return Amount(value=_rounded(found.mean), ci_low=_rounded(low), ci_high=_rounded(high), n=found.n)


def _below(usual: int) -> list[int]:
    """Return the candidates below the usual k, the largest first.

    >>> _below(4), _below(1), _below(41)
    ([3, 2, 1], [], [40, 34, 29, 23, 18, 12, 7, 1])
    """
    wanted = min(MAX_CANDIDATES, usual - 1)
    return sorted({round(k) for k in np.linspace(1, usual - 1, wanted)}, reverse=True) if wanted > 0 else []


_START = ("gaugeway", "trial", "start")
_BOUNDS = ("--primary", "faithfulness", "--send", "redacted", "--usd", "5")


def _advice(app: str, prompts: _Prompts, parameter: str, value: str, passages: Flags) -> Advice:
    candidate = f"{parameter}={value}"
    slug = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:40] or "source"
    name = f"contexts-{value}" if parameter == "max_contexts" else f"without-{slug}"
    return Advice(
        candidate=candidate,
        saved=prompts.cost(candidate, passages, of_all=True),
        command=shlex.join([*_START, name, "--app", app, "--candidate", candidate, *_BOUNDS]),
        link=f"{TRIAL_PATH}?{urlencode({'app': app, parameter: value})}",
    )


def _in_words(advice: Advice, report: ContextCostReport) -> str:
    parameter, _, value = advice.candidate.partition("=")
    saved, trial, usd = advice.saved, advice.trial, advice.saved.usd_per_1000
    what, which = f"Leaving out {value}", f"passages of {value}"
    if parameter == "max_contexts":
        what = f"k {report.usual_k} -> {value}"
        first = int(value) + 1
        which = f"passages {first}-{report.most_k}" if first < report.most_k else f"passage {first}"
    price = "USD unknown: the model has no price"
    if usd is not None:
        price = f"{_figure(usd, 2 if usd.value >= 1.0 else 4)} USD per 1,000 answers"
    saving = "an unknown number of tokens"
    if saved.tokens is not None:
        how = "" if not report.estimated else "partly estimated, " if report.measured else "estimated, "
        tokens = f"{how}{_figure(saved.tokens, 0)} tokens an answer"
        saving = f"{_figure(saved.prompt_share, 1, percent=True)} of the prompt ({tokens}; {price})"
    rests = f"It is unknown how many answers rested on {which}"
    if saved.rests_on is not None and report.basis is not None:
        on, only = (_figure(share, 1, percent=True) for share in (saved.rests_on, saved.rests_only_on))
        basis = f"of {saved.rests_on.n:,} answers rested on {which}, {_BASES[report.basis]}"
        rests = f"{on} {basis}; {only} had a claim that rested on nothing else"
    tried = "Not tried yet: start a trial."
    if trial is not None:
        interval = f"[{trial.ci_low:+.3f} to {trial.ci_high:+.3f}], error probability {trial.error:.0%}"
        tried = f"Tried in {trial.name}: {trial.metric} changed by {trial.difference:+.3f} {interval}."
    return f"{what} saves {saving}. {rests}. {tried}"


def _figure(amount: Amount | None, digits: int, *, percent: bool = False) -> str:
    if amount is None:
        return "an unknown share"
    scale, unit = (100.0, " %") if percent else (1.0, "")
    bounds = [f"{scale * bound:,.{digits}f}" for bound in (amount.ci_low, amount.ci_high) if bound is not None]
    return f"{scale * amount.value:,.{digits}f}{unit}" + (f" [{' to '.join(bounds)}]" if bounds else "")


def _rounded(value: float) -> float:
    """Round to nine decimals: what is beyond is rounding error."""
    return round(value, 9) + 0.0

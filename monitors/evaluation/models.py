"""The judge of the configuration with all that is around it: places, retries, breaker, cache, budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from monitors import config
from monitors.alerting.causes import JudgeEvidence
from monitors.config import Shared
from monitors.exporters.instruments import Instruments
from monitors.judges import Judge, anchors
from monitors.judges.anchors import Anchor, Drift
from monitors.judges.budget import BudgetPacer
from monitors.judges.cost import Bill, Billing, Prices
from monitors.judges.exact_match import Verbatim
from monitors.judges.middleware.cache import AnswerFile, Cached
from monitors.judges.middleware.cascade import Cascade, Tier
from monitors.judges.middleware.circuit_breaker import Breaker, Sight
from monitors.judges.middleware.failure_log import FailureLog
from monitors.judges.middleware.stack import Guard, Guarded, guarded
from monitors.judges.openai import OpenAIJudge
from monitors.metrics.embeddings import Embeddings
from monitors.metrics.embeddings import opening as embeddings_opening
from monitors.records import Evaluation, Sample, Score
from monitors.runtime.settings import ConfigError, Problems

MEBIBYTE = 1024 * 1024
TRIAGE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """The judge that metrics ask, whether it sees, and how much of the traffic its budget allows to be judged."""

    judge: Judge
    breaker: Breaker
    pacer: BudgetPacer | None
    instruments: Instruments
    anchors: tuple[Anchor, ...] = ()
    drifts: dict[str, Drift] = field(default_factory=dict)
    suspect: list[Callable[[], None]] = field(default_factory=list)
    asked: dict[str, Drift] = field(default_factory=dict)

    def suspected(self) -> None:
        """A score fell: have the anchors judged now, to see whether it was the judge.

        `asked` keeps what they said before: until that is replaced, it is no evidence about the time since.
        """
        self.asked.update(self.drifts if self.suspect else {})
        for wake in self.suspect:
            wake()

    def evidence(self, metric: str) -> JudgeEvidence | None:
        """What the anchors say of the judge of `metric`; None when they say nothing."""
        drift: Drift | None = self.drifts.get(metric)
        if drift is None or not drift.n:
            return None
        found = f"{drift.disagreement:.0%} of {drift.n} anchors are scored otherwise than expected"
        return JudgeEvidence(
            drifted=drift.drifted(),
            detail=f"{found} ({drift.shift:+.2f} on average)",
            pending=self.asked.get(metric) is drift,
        )

    def blind_since(self) -> float | None:
        """When the failures began that made the judge blind, Unix seconds; None while it sees."""
        return self.breaker.sight.since if self.breaker.blind else None

    def may_ask(self) -> bool:
        """Whether the judge answers, and something of its budget is left."""
        return not self.breaker.blind and (self.pacer is None or self.pacer.has_left(time.time()))

    def pace(self, sample: Sample, free: Sequence[Evaluation]) -> float:
        """The factor for the rates of judged metrics on this sample, from past load only; asked once for each.

        What the metrics without a judge (`free`) find poor forms slices of its own, so that the reserve covers it.
        """
        if self.pacer is None:
            return 1.0
        poor = any(isinstance(one.outcome, Score) and one.outcome.value < TRIAGE for one in free)
        factor = self.pacer.rate(time.time(), f"{sample.app}|{sample.model}|{'poor' if poor else ''}")
        self.instruments.judge_budget_factor.set(factor)
        return factor


def open_judging(
    settings: config.Judge, instruments: Instruments, *, answers: Path | None = None, paced: bool = True
) -> Judging | None:
    """Build the judge that the settings name; None where they name none. `answers` is the cache's file, if it has one.

    Without `paced` the budget is not kept: for data sets, where nothing is left out. Raises ConfigError.
    """
    if settings.base_url is None and settings.model is None:
        return None
    problems = Problems()
    if not settings.base_url or not settings.model:
        missing = "base_url" if settings.model else "model"
        problems.extend([f"judge.{missing}: needed for a judge (or leave out the whole table)"])
    if paced and settings.budget_usd_per_day is not None and not _has_prices(settings):
        problems.extend(["judge.budget_usd_per_day: needs judge.price_in and judge.price_out, or judge.prices"])
    anchored = problems.attempt(lambda: _anchors(settings.anchors), "judge.anchors")
    problems.raise_any()
    pacer = None
    if paced and settings.budget_usd_per_day is not None:
        pacer = BudgetPacer(settings.budget_usd_per_day, reserve=settings.budget_reserve)

    def charge(bill: Bill) -> None:
        instruments.charged(bill.app, bill.metric, bill.input_tokens, bill.output_tokens, bill.usd)
        if pacer is not None:
            now = time.time()
            pacer.observe(bill.usd, now)
            instruments.judge_budget_spent.set(pacer.spent(now).usd)

    observer = Billing(instruments, charge)
    around = _guarded(settings, instruments, observer)
    judge = _cached(_cascade(around.judge, settings, instruments, observer), settings, instruments, answers)
    return Judging(judge=judge, breaker=around.breaker, pacer=pacer, instruments=instruments, anchors=anchored or ())


def _has_prices(settings: config.Judge) -> bool:
    return bool(settings.price_in or settings.price_out or settings.prices)


def _cascade(large: Judge, settings: config.Judge, instruments: Instruments, observer: Billing) -> Judge:
    """Put the small judge in front, and in front of it the one that only compares whole sentences."""
    small = settings.small
    if small is None:
        return large
    own = msgspec.structs.replace(
        settings, base_url=small.base_url, api_key=small.api_key, model=small.model, api_version=small.api_version
    )
    tiers = [Tier(name="small", judge=_guarded(own, instruments, observer).judge, least=small.least)]
    if small.verbatim:
        tiers.insert(0, Tier(name="verbatim", judge=Verbatim()))
    return Cascade(
        [*tiers, Tier(name="large", judge=large)],
        audit_rate=small.audit_rate,
        on_outcome=instruments.tier,
        on_agreement=instruments.agreed,
    )


def _anchors(path: str | None) -> tuple[Anchor, ...]:
    if path is None:
        return ()
    try:
        return anchors.read(Path(path).read_text("utf-8").splitlines())
    except (OSError, ValueError) as error:
        raise ConfigError([f"judge.anchors: {error}"]) from error


def _price(settings: config.Judge) -> config.Price:
    known = Prices(settings.prices).of(settings.model or "")
    return known or config.Price(input=settings.price_in, output=settings.price_out)


def _endpoint(settings: config.Judge, observer: Billing) -> OpenAIJudge:
    return OpenAIJudge(
        settings.base_url or "",
        settings.api_key,
        settings.model or "",
        temperature=settings.temperature,
        timeout_s=settings.timeout_s,
        concurrency=settings.concurrency,
        max_retries=0,  # the guard repeats, so that no place is held between two tries
        price=_price(settings),
        api_version=settings.api_version,
        observer=observer,
    )


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL; the rest may be secret.

    >>> origin_of("https://user:secret@llm.example:8443/v1?key=k")
    'https://llm.example:8443'
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "its base_url"
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{parts.scheme}://{host}{port}"


def _guarded(settings: config.Judge, instruments: Instruments, observer: Billing) -> Guarded:
    model = settings.model or ""
    instruments.judge_blind.labels(model).set(0)

    def on_sight(sight: Sight) -> None:
        instruments.judge_blind.labels(model).set(sight.blind)

    guard = Guard(
        concurrency=settings.concurrency,
        max_retries=settings.max_retries,
        blind_after=settings.blind_after,
        blind_s=settings.blind_s,
    )
    endpoint = FailureLog(_endpoint(settings, observer), origin=origin_of(settings.base_url or ""))
    return guarded(endpoint, guard, observer=observer, on_sight=on_sight)


def _cached(judge: Judge, settings: config.Judge, instruments: Instruments, answers: Path | None) -> Judge:
    if settings.cache == "off":
        return judge
    return Cached(
        judge,
        ttl_s=settings.cache_ttl_s,
        memory_bytes=int(settings.cache_mb * MEBIBYTE),
        shelf=AnswerFile(answers) if settings.cache == "file" and answers is not None else None,
        on_lookup=instruments.looked_up,
    )


def open_embeddings(config: Shared, instruments: Instruments) -> Embeddings | None:
    """Build the embeddings of the configuration, if it names any. Raises ConfigError."""
    try:
        return embeddings_opening.open_embeddings(**msgspec.structs.asdict(config.embeddings), observer=instruments)
    except ValueError as error:
        raise ConfigError([str(error)]) from error

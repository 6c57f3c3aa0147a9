"""Builds the judge and the embeddings that the configuration names, with their middleware."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.settings import ConfigError, Problems
from gaugeway.settings import shared as config
from gaugeway.settings.shared import GroundingVerifier, Shared
from monitors.alerting.causes import JudgeEvidence
from monitors.evaluation.evaluator import BudgetFactor
from monitors.exporters.instruments import Instruments
from monitors.judges import TRIAL_APP, Judge, anchors
from monitors.judges.anchors import Anchor, AnchorComparison, AnchorWatch
from monitors.judges.budget import BudgetPacer
from monitors.judges.cost import Bill, Billing
from monitors.judges.decisions import APIS, DecisionJudge
from monitors.judges.first_tiers import ExactMatch, GroundingTier
from monitors.judges.grounding import Verifier
from monitors.judges.middleware.cache import AnswerFile, CachedJudge
from monitors.judges.middleware.cascade import Cascade, Tier
from monitors.judges.middleware.failure_log import FailureLog
from monitors.judges.middleware.limits import LONGEST_RETRY_AFTER_S, Retrying
from monitors.judges.middleware.stack import BreakerState, CircuitBreaker, Stack, StackSettings, build_stack
from monitors.judges.openai import OpenAIJudge
from monitors.metrics import Metric
from monitors.metrics.embeddings import Embeddings
from monitors.metrics.embeddings import opening as embeddings_opening
from monitors.metrics.registry import Catalogue

Role: TypeAlias = Literal["judge", "small", "anchor", "verifier"]
LOW_SCORE = 0.5
AUDIT_RATE = 0.05
"""Share of the verifier's accepted answers that the judge is asked about too, where `[judge.small]` sets none."""

_log, _circuit_log = logging.getLogger("gaugeway.judge"), logging.getLogger("gaugeway")
_NAMED = 5


class Successor(msgspec.Struct, frozen=True, kw_only=True):
    """The model that may replace the judge's, and the metrics that call it.

    `present` is the judge's own model, without the tiers before it, so that model is compared with model; None where
    the judge has no such tiers.
    """

    judge: Judge
    metrics: dict[str, Metric] = {}
    present: Judge | None = None
    present_metrics: dict[str, Metric] = {}

    def compared(self) -> list[tuple[Judge, dict[str, Metric]]]:
        """Return the models that are compared, each with its metrics."""
        both = ((self.judge, self.metrics), (self.present, self.present_metrics))
        return [(judge, metrics) for judge, metrics in both if judge is not None]


class JudgeSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The judge that metrics call, its circuit breaker, its budget and its anchors.

    `successor` is the model that may replace it, for anchors only.
    """

    judge: Judge
    breaker: CircuitBreaker
    pacer: BudgetPacer | None
    instruments: Instruments
    anchors: tuple[Anchor, ...] = ()
    drifts: dict[str, AnchorComparison] = {}
    anchor_watches: list[AnchorWatch] = []
    superseded: dict[str, AnchorComparison] = {}
    successor: Successor | None = None

    @property
    def writer(self) -> Judge | None:
        """The judge that answers in text: the judge itself, or the anchor of a decision judge, if there is one."""
        return self.judge.anchor if isinstance(self.judge, DecisionJudge) else self.judge

    def recheck_anchors(self) -> None:
        """Have the anchors judged now, because a score fell and the judge may be the reason.

        `superseded` keeps the earlier results: until they are replaced, they say nothing about the time since.
        """
        self.superseded.update(self.drifts if self.anchor_watches else {})
        for watch in self.anchor_watches:
            watch.wake()

    def show_drift(self, drift: AnchorComparison) -> None:
        """Keep the anchors' result for a metric, and show it.

        A round that was requested while this one was going on supersedes it: its first scores may be from before.
        """
        self.instruments.drifted(drift)
        self.drifts[drift.metric] = drift
        if any(watch.is_requested() for watch in self.anchor_watches):
            self.superseded[drift.metric] = drift
        if not drift.n:
            _log.warning("none of the %d anchors of %s could be scored", drift.failed, drift.metric)
        elif drift.drifted:
            _log.warning(
                "the judge scores %d of %d anchors of %s differently than expected (%.0f %%, 95 %%: at least %.0f %%)",
                *(round(drift.disagreement * drift.n), drift.n, drift.metric),
                *(100 * drift.disagreement, 100 * drift.low),
            )

    def show_agreement(self, found: AnchorComparison) -> None:
        """Show how the next judge agrees with the present one on the anchors of a metric."""
        if (other := self.successor) is None:
            return
        now, following = (other.present or self.judge).model, other.judge.model
        self.instruments.agreed_with_next(following, found.metric, found)
        if not found.n:
            _log.warning(
                "judge.next_model: none of the %d anchors of %s could be scored by both %s and %s",
                *(found.failed, found.metric, following, now),
            )
            return
        agreed, bounds = found.n - round(found.disagreement * found.n), (1.0 - found.high, 1.0 - found.low)
        _log.info(
            "judge.next_model: %s agrees with %s on %d of %d anchors of %s (95 %%: %.0f to %.0f %%); shift %+.2f",
            *(following, now, agreed, found.n, found.metric, *(100 * bound for bound in bounds), found.shift),
        )

    def evidence(self, metric: str) -> JudgeEvidence | None:
        """Return the anchors' result for the judge of `metric`; None when there is none, and none to come."""
        drift = self.drifts.get(metric)
        if drift is None and self.anchor_watches and any(metric in anchor.expected for anchor in self.anchors):
            return JudgeEvidence(drifted=False, pending=True)
        if drift is None or not drift.n:
            return None
        found = f"{drift.disagreement:.0%} of {drift.n} anchors are not scored as expected"
        return JudgeEvidence(
            drifted=drift.drifted,
            detail=f"{found} ({drift.shift:+.2f} on average)",
            pending=self.superseded.get(metric) is drift,
        )

    def blind_since(self) -> float | None:
        """Return when the failures began that opened the circuit, Unix seconds; None while it is closed."""
        return self.breaker.state.since if self.breaker.is_open else None

    def resume_outage(self, since: float) -> None:
        """Open the circuit of a judge that failed since Unix time `since`, before this process ran."""
        self.breaker.resume(since)

    def is_available(self) -> bool:
        """Whether the circuit is closed and some of the day's budget is left."""
        return not self.refusal()

    def refusal(self) -> str:
        """Return why the judge is not asked for more than the scores of new traffic; "" if it may be."""
        if self.breaker.is_open:
            return "blind"
        return "" if self.pacer is None or self.pacer.has_left(time.time()) else "budget"

    def budget_factor(self, sample: Sample, free: Sequence[Evaluation]) -> BudgetFactor:
        """Return the factors for the rates of judged metrics on this sample; call it once a sample.

        It depends on past load only. Samples that the metrics without a judge (`free`) score low form slices of their
        own, so that the reserve covers them.
        """
        if self.pacer is None:
            return BudgetFactor()
        poor = any(
            isinstance(evaluation.outcome, Score) and evaluation.outcome.value < LOW_SCORE for evaluation in free
        )
        now = time.time()
        own = self.pacer.rate(now, f"{sample.app}|{sample.model}|{'poor' if poor else ''}")
        self.instruments.judge_budget_factor.set(own)
        return BudgetFactor(own, min(own, self.pacer.lowest(now, f"{sample.app}|")))


def open_judge(
    settings: config.Judge,
    instruments: Instruments,
    *,
    answers: Path | None = None,
    paced: bool = True,
    verifier: Verifier | None = None,
) -> JudgeSetup | None:
    """Build the judge that the settings name; None if they name none. `answers` is the path of the cache file.

    `verifier` is the first tier of the cascade, in the mode in which claims are judged on their own. Without `paced`
    the budget is ignored: for data sets, where every row is judged. Raises ConfigError.
    """
    if settings.base_url is None and settings.model is None:
        idle = {"next_model": settings.next_model, "anchors": settings.anchors}
        if unused := [f"judge.{key}: needs judge.base_url and judge.model" for key, value in idle.items() if value]:
            raise ConfigError(unused)
        return None
    problems = Problems()
    if not settings.base_url or not settings.model:
        missing = "base_url" if settings.model else "model"
        problems.extend([f"judge.{missing}: needed for a judge (or leave out the whole table)"])
    problems.extend(_inconsistencies(settings, paced=paced))
    anchored = problems.attempt(lambda: _anchors(settings.anchors), "judge.anchors")
    problems.raise_any()
    pacer = None
    if paced and settings.budget_usd_per_day is not None:
        pacer = BudgetPacer(settings.budget_usd_per_day)

    def charge(bill: Bill) -> None:
        instruments.charged(bill.app, bill.metric, bill.input_tokens, bill.output_tokens, bill.usd)
        if pacer is not None and not bill.app.startswith(TRIAL_APP):  # a trial has a bound of its own
            now = time.time()
            pacer.observe(bill.usd, now)
            instruments.judge_budget_spent.set(pacer.spent(now).usd)

    observer = Billing(instruments, charge)
    stack = _endpoint_stack(settings, instruments, observer)
    tiers = _first_tiers(settings, verifier, instruments, observer) if settings.kind == "llm" else []
    judge = cached(_cascade(tiers, stack.judge, settings, instruments), settings, answers, instruments.looked_up)
    anchor = None
    if (own := _anchor(settings)) is not None:
        llm = _endpoint_stack(own, instruments, observer, role="anchor").judge
        anchor = cached(llm, own, answers, instruments.looked_up)
    return JudgeSetup(
        judge=_as_metrics_ask(judge, settings, anchor, tiers=paced and anchor is not None),
        breaker=stack.breaker,
        pacer=pacer,
        instruments=instruments,
        anchors=anchored or (),
        successor=_successor(settings, observer, stack.judge if tiers else None) if anchored else None,
    )


def anchor_warnings(settings: config.Judge, judging: JudgeSetup | None, metrics: Catalogue) -> list[str]:
    """Return warnings about metrics of anchors that are not enabled."""
    if settings.anchors is None:
        return []
    named = {name for anchor in judging.anchors for name in anchor.expected} if judging else set()
    unknown = sorted(named.difference(metrics.by_name))
    shown = ", ".join(unknown[:_NAMED]) + (f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else "")
    return [f"judge.anchors: no enabled metric has the name {shown}; its scores are not checked"] if unknown else []


def _successor(settings: config.Judge, observer: Billing, present: Judge | None) -> Successor | None:
    """Build the judge that may replace the present one, if there is one, for anchors.

    Its failures open no circuit and send no alert.
    """
    if settings.next_model is None:
        return None
    own = msgspec.structs.replace(settings, model=settings.next_model)
    judge = Retrying(_endpoint(own, observer), times=settings.max_retries)
    return Successor(judge=_as_metrics_ask(judge, own), present=present)


def _as_metrics_ask(judge: Judge, settings: config.Judge, anchor: Judge | None = None, *, tiers: bool = False) -> Judge:
    """Return a judge in the shape that its kind has for metrics."""
    if settings.kind == "llm":
        return judge
    api = APIS[settings.kind](settings.model or "")
    return DecisionJudge(judge, api, anchor=anchor, tiers=tiers, verdicts=settings.mode == "verdicts")


def _anchor(settings: config.Judge) -> config.Judge | None:
    """Return the settings of the LLM judge beside decisions, if there is one; the price of `[judge]` is not its."""
    if settings.anchor is None:
        return None
    own = msgspec.structs.asdict(settings.anchor) | {"kind": "llm", "anchor": None, "price_in": 0.0, "price_out": 0.0}
    return msgspec.structs.replace(settings, **own)


def _inconsistencies(settings: config.Judge, *, paced: bool) -> list[str]:
    """Return the keys that do not go together."""
    llm, anchor, following = settings.kind == "llm", settings.anchor, settings.next_model
    budget = paced and settings.budget_usd_per_day is not None
    priced = settings.price_in or settings.price_out or settings.prices
    wrong = {
        "budget_usd_per_day: needs judge.price_in and judge.price_out, or judge.prices": budget and not priced,
        'anchor: needs judge.kind "decisions" or "systemone"': llm and anchor is not None,
        'mode: "verdicts" needs judge.kind "decisions" or "systemone"': llm and settings.mode == "verdicts",
        'small: needs judge.kind "llm"': not llm and settings.small is not None,
        'api_version: needs judge.kind "llm"': not llm and settings.api_version is not None,
        "next_model: needs judge.anchors, by which the two models are compared": following and settings.anchors is None,
        "next_model: must differ from judge.model": following is not None and following == settings.model,
    }
    if budget and anchor is not None and config.PriceTable(settings.prices).of(anchor.model) is None:
        wrong[f"budget_usd_per_day: needs the price of {anchor.model} (judge.anchor) in judge.prices"] = True
    return [f"judge.{problem}" for problem, there in wrong.items() if there]


def _first_tiers(
    settings: config.Judge, verifier: Verifier | None, instruments: Instruments, observer: Billing
) -> list[Tier]:
    """Return what is asked before the judge: the exact match and the verifier, if on, then the small judge."""
    small, grounding = settings.small, settings.grounding
    tiers = []
    if small is not None and small.verbatim:
        tiers.append(Tier(name="verbatim", judge=ExactMatch()))
    if verifier is not None and grounding is not None and grounding.cascade and settings.mode == "separate":
        tier = GroundingTier(verifier, least=grounding.least)
        tiers.append(Tier(name="grounding", judge=tier, least=grounding.least))
    if small is not None:
        own = msgspec.structs.replace(
            settings, base_url=small.base_url, api_key=small.api_key, model=small.model, api_version=small.api_version
        )
        stack = _endpoint_stack(own, instruments, observer, role="small")
        tiers.append(Tier(name="small", judge=stack.judge, least=small.least))
    return tiers


def _cascade(tiers: Sequence[Tier], large: Judge, settings: config.Judge, instruments: Instruments) -> Judge:
    """Put the tiers in front of the large judge."""
    if not tiers:
        return large
    return Cascade(
        [*tiers, Tier(name="large", judge=large)],
        audit_rate=AUDIT_RATE if settings.small is None else settings.small.audit_rate,
        on_outcome=instruments.tier,
        on_agreement=instruments.agreed,
    )


def _anchors(path: str | None) -> tuple[Anchor, ...]:
    if path is None:
        return ()
    try:
        return anchors.read(Path(path).read_text("utf-8-sig").splitlines())
    except FileNotFoundError:
        raise ConfigError([f"judge.anchors: file not found: {path}"]) from None
    except (OSError, ValueError) as error:
        raise ConfigError([f"judge.anchors: {error}"]) from error


def price_of(table: config.Judge | GroundingVerifier, prices: Mapping[str, config.Price]) -> config.Price:
    """Return the price of a table's model: that of its name, else the table's own."""
    return config.PriceTable(prices).of(table.model or "") or config.Price(input=table.price_in, output=table.price_out)


def chat_endpoint(
    table: config.Judge | GroundingVerifier, price: config.Price, observer: Billing, **more: Any
) -> OpenAIJudge:
    """Return the chat model that a table names; the middleware retries, so that no place is held meanwhile."""
    return OpenAIJudge(
        table.base_url or "",
        table.api_key,
        table.model or "",
        timeout_s=table.timeout_s,
        concurrency=table.concurrency,
        max_retries=0,
        price=price,
        observer=observer,
        **more,
    )


def _endpoint(settings: config.Judge, observer: Billing) -> Judge:
    price = price_of(settings, settings.prices)
    if settings.kind != "llm":
        from monitors.judges.grounding.http import DecisionEndpoint  # noqa: PLC0415 - loads the HTTP client

        api = APIS[settings.kind](settings.model or "")
        address = api, settings.base_url or "", settings.api_key, settings.model or ""
        return DecisionEndpoint(*address, timeout_s=settings.timeout_s, price=price, observer=observer)
    more = {"temperature": settings.temperature, "api_version": settings.api_version}
    return chat_endpoint(settings, price, observer, **more)


def _endpoint_stack(
    settings: config.Judge, instruments: Instruments, observer: Billing, *, role: Role = "judge"
) -> Stack:
    limits = limits_of(settings, concurrency=settings.concurrency, max_retries=settings.max_retries)
    origin = origin_of(settings.base_url or "")
    endpoint = _endpoint(settings, observer)
    path = "/chat/completions" if settings.kind == "llm" else APIS[settings.kind].path
    return guarded(endpoint, limits, origin=origin, instruments=instruments, observer=observer, path=path, role=role)


def open_embeddings(config: Shared, instruments: Instruments) -> Embeddings | None:
    """Build the embeddings that the configuration names; None if it names none. Raises ConfigError."""
    try:
        return embeddings_opening.open_embeddings(config.embeddings, instruments)
    except ValueError as error:
        raise ConfigError([str(error)]) from error


def guarded(
    endpoint: Judge,
    limits: StackSettings,
    *,
    origin: str,
    instruments: Instruments,
    observer: Billing,
    path: str = "/chat/completions",
    role: Role = "judge",
) -> Stack:
    """Return an endpoint in its stack; the series of its circuit begins.

    `origin` is its address without secrets (see `origin_of`), `path` that of its API after the base URL, "" for a model
    on this machine.
    """
    blind = instruments.judge_blind.labels(endpoint.model, role)
    blind.set(0)
    name = f"{role} judge" if role in ("small", "anchor") else role

    def on_change(state: BreakerState) -> None:
        blind.set(state.open)
        if state.open:
            why = f"{state.failures} failure{'' if state.failures == 1 else 's'} in a row, the last {state.kind}"
            again = f"it is tried again after {limits.blind_s:g} s, then at growing intervals"
            _circuit_log.warning("%s %s at %s: circuit open after %s; %s", name, endpoint.model, origin, why, again)

    table = "judge.grounding" if role == "verifier" else "judge"
    logged = FailureLog(endpoint, origin=origin, table=table, path=path)
    return build_stack(logged, limits, observer=observer, on_change=on_change)


def limits_of(
    settings: config.Judge, *, concurrency: int, max_retries: int, verifier_timeout_s: float | None = None
) -> StackSettings:
    """Return the limits of an endpoint; its circuit has the settings of the judge's.

    All traffic waits for a verifier, so that its circuit counts every request, and no pause that it asks for is longer
    than one timeout.
    """
    verifies, longest_s = verifier_timeout_s is not None, LONGEST_RETRY_AFTER_S
    return StackSettings(
        concurrency=concurrency,
        max_retries=max_retries,
        blind_after=settings.blind_after,
        blind_s=settings.blind_s,
        count_requests=verifies,
        longest_pause_s=longest_s if verifier_timeout_s is None else min(longest_s, verifier_timeout_s),
    )


def cached(
    judge: Judge, settings: config.Judge, answers: Path | None, on_lookup: Callable[[str, str, float], None]
) -> Judge:
    """Put the configured cache of `[judge]` around a judge."""
    if settings.cache == "off":
        return judge
    store = AnswerFile(answers) if settings.cache == "file" and answers is not None else None
    return CachedJudge(judge, store=store, on_lookup=on_lookup)


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL; the rest may hold secrets.

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

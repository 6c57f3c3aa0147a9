"""Starting trials and reporting on them: what the command, the API and the page share."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gaugeway.settings import ConfigError, secret_of
from gaugeway.settings.endpoints import base_url_problem
from gaugeway.settings.placeholders import placeholders_in
from gaugeway.settings.shared import Config, Price, PriceTable
from gaugeway.signals import UNDIRECTED
from gaugeway.storage.trials import Answer, StoredTrial, Trial, Trials, sealer
from monitors.analysis.retrieval.context_cost import FinishedTrial
from monitors.analysis.trial_result import TrialResult, TrialVerdict
from monitors.metrics import scores_conversations
from monitors.metrics.registry import Catalogue
from monitors.trials import judging
from monitors.trials.preference import PREFERENCE

MOST_LOSSES = 20  # internal bound: a list for people
_DAY_S = 86_400.0
_UPSTREAM = "upstream:"
"""Begins an `api_key` that is the one of an upstream in the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """An exchange whose candidate's answer is worse by the primary metric, with both scores on its own scale."""

    exchange: str
    live: float
    candidate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReport:
    """One candidate: what it changes, where it is, what became of its exchanges, what it cost, and its result.

    `losses` are its largest, at most `MOST_LOSSES`.
    """

    name: str
    host: str
    changes: tuple[str, ...]
    tried: int
    answered: int
    not_answered: dict[str, int]
    unscored: dict[str, int]
    usd: float
    judge_usd: float
    result: TrialResult
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """A trial so far. `why` says why it ended; `left_out` counts exchanges of the app that were not tried, by reason.

    The verdict is "ship" where one candidate may be shipped, "do not ship" where all are worse.
    """

    name: str
    app: str
    state: str
    why: str
    verdict: TrialVerdict
    primary: str
    margin: float
    alpha: float
    started_at: float
    until: float
    usd: float
    judge_usd: float
    waiting: int
    left_out: dict[str, int]
    arms: tuple[ArmReport, ...]
    by: str | None = None
    watch: bool = False


def definition(given: Mapping[str, Any], config: Config, now: float, *, remote: bool = False) -> Trial:
    """Return a trial from what a person wrote: an arm may name an `upstream`, its price may be that of `[prices]`.

    `days` may stand for `until`. Who asks over the network, `remote`, cannot name an address or a key: else the page's
    token would be enough to send traffic and secrets anywhere. Raises ValueError, which names the field.
    """
    made = {"send": None, **given, "started_at": now}
    made.setdefault("judge_usd", given.get("usd"))
    if (days := made.pop("days", None)) is not None:
        if not isinstance(days, int | float):
            raise ValueError(f"days: expected a number, got {days!r}")
        made["until"] = now + days * _DAY_S
    made.setdefault("until", now + 14 * _DAY_S)
    arms = made.get("arms") or [{}]
    if not isinstance(arms, list | tuple) or not all(isinstance(arm, Mapping) for arm in arms):
        raise ValueError("arms: expected a list of tables")
    made["arms"] = [_arm(dict(arm), config, remote=remote) for arm in arms]
    if made["send"] is None:
        raise ValueError("send: say 'redacted' or 'original': the requests go to the candidate's provider")
    try:
        trial = msgspec.convert(made, Trial)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`$.", "`")) from error
    return trial


def _arm(arm: dict[str, Any], config: Config, *, remote: bool) -> dict[str, Any]:
    """Fill in the address and the key of an upstream of the configuration, by default of the first, and the price."""
    if remote and (named := arm.keys() & {"base_url", "api_key"}):
        raise ValueError(f"arms.{min(named)}: only the command and [[trials]] may give it; name an upstream")
    upstream, known = arm.pop("upstream", None), upstreams_of(config)
    if "base_url" not in arm:
        name = next(iter(known), None) if upstream is None else str(upstream)
        if name is None or name not in known:
            raise ValueError(f"arms.upstream: {upstream!r} is not in [[upstreams]]; there are {', '.join(known)}")
        arm["base_url"] = known[name].get("base_url")
        arm.setdefault("api_key", f"{_UPSTREAM}{name}")
    if "price" not in arm and "model" in arm and (own := prices_of(config).of(str(arm["model"]))) is not None:
        arm["price"] = own
    if "price" not in arm and ("model" in arm or not config.prices):
        raise ValueError(
            "arms.price: needed, as the trial is bounded in USD: price.input and price.output, or [prices]"
        )
    return arm


def prices_of(config: Config) -> PriceTable:
    """Return `[prices]`."""
    return PriceTable(msgspec.convert(config.prices, dict[str, Price]))


def upstreams_of(config: Config) -> dict[str, dict[str, Any]]:
    """Return the tables of `[[upstreams]]` by name."""
    return {str(table.get("name", "default")): table for table in config.upstreams}


def key_of(text: str, config: Config) -> str | None:
    """Return the key that an arm's `api_key` stands for; None without one."""
    if text.startswith(_UPSTREAM):
        found = upstreams_of(config).get(text.removeprefix(_UPSTREAM), {}).get("api_key")
        return None if found is None else str(found)
    return secret_of(text)


def deciding(config: Config, catalogue: Catalogue) -> list[str]:
    """Return the names of the metrics that can decide a trial here."""
    known = [name for name, metric in catalogue.by_name.items() if not scores_conversations(metric)]
    return sorted({*known, *([PREFERENCE] if config.judge.base_url is not None else [])} - UNDIRECTED)


def checked(trial: Trial, config: Config, catalogue: Catalogue) -> Trial:
    """Return the trial with the metrics that it will have. Raises ConfigError with every problem."""
    has_judge = config.judge.base_url is not None
    problems = [*trial.problems(), *judging.problems_of(trial, catalogue, has_judge=has_judge)]
    if not config.capture.content:
        problems.append("send: capture.content is false, so no request may be kept for a trial")
    if trial.send == "original" and sealer() is None:
        problems.append("send: 'original' needs GAUGEWAY_TRIALS_KEY, of gateway and monitors, and gaugeway[trials]")
    for arm in trial.arms:
        where = f"arms.{arm.name}"
        if not arm.api_key.startswith(_UPSTREAM) and placeholders_in(arm.api_key) != [arm.api_key]:
            problems.append(f"{where}.api_key: write ${{NAME}} or ${{file:/path}}: the key itself must not be stored")
        elif key_of(arm.api_key, config) is None:
            problems.append(f"{where}.api_key: {arm.api_key} has no value; a candidate needs a key of its own")
        if "@" in urlsplit(arm.base_url).netloc:
            problems.append(f"{where}.base_url: must not contain a user or a password; give api_key")
        elif (problem := base_url_problem(arm.base_url)) is not None:
            problems.append(f"{where}.base_url: {problem}")
    if problems:
        raise ConfigError(problems)
    names = [
        trial.primary,
        *judging.metrics_of(trial, catalogue),
        *(name for name in trial.metrics if name == PREFERENCE),
    ]
    return msgspec.structs.replace(trial, metrics=tuple(dict.fromkeys(names)))


async def report(
    trials: Trials, stored: StoredTrial, catalogue: Catalogue, made: dict[str, tuple[Any, TrialReport]] | None = None
) -> TrialReport:
    """Return what is known of a trial. Raises what the documents raise.

    `made` holds reports by name, which are returned again until something has changed: one on 20,000 answers takes
    seconds.
    """
    trial = stored.trial
    answers = await trials.answers(trial.name)
    waiting = sum(name == trial.name for name, _ in (await trials.waiting(None))[1] or ())
    state = (stored, waiting, len(answers), answers[-1:])  # what changes has the latest time
    if made is not None and trial.name in made and made[trial.name][0] == state:
        return made[trial.name][1]
    report_ = await asyncio.to_thread(_report, stored, answers, waiting, catalogue)
    if made is not None:
        made[trial.name] = (state, report_)
    return report_


def _report(stored: StoredTrial, answers: Sequence[Answer], waiting: int, catalogue: Catalogue) -> TrialReport:
    trial, falls, arms = stored.trial, judging.falls_of(catalogue), []
    for arm in trial.arms:
        own = [answer for answer in answers if answer.arm == arm.name]
        facts = [(answer.exchange, answer.at, answer.facts) for answer in own]
        states = Counter(answer.state for answer in own)
        unscored = Counter(
            f"{metric}: {why}" for answer in own for metric, why in answer.facts.get("unscored", {}).items()
        )
        arms.append(
            ArmReport(
                name=arm.name,
                host=urlsplit(arm.base_url).netloc,
                changes=tuple(changes_of(arm)),
                tried=len(own),
                answered=states.pop("answered", 0),
                not_answered=dict(states),
                unscored=dict(unscored),
                usd=sum(answer.usd for answer in own),
                judge_usd=sum(answer.judge_usd for answer in own),
                result=judging.result_of(trial, facts, falls),
                losses=_losses(own, trial.primary, falls=falls(trial.primary)),
            )
        )
    said = [arm.result.verdict for arm in arms]
    verdict: TrialVerdict = "ship" if "ship" in said else "not yet" if "not yet" in said else "do not ship"
    names = "name", "app", "primary", "margin", "alpha", "started_at", "until", "usd", "judge_usd", "by", "watch"
    return TrialReport(
        **{name: getattr(trial, name) for name in names},
        state=stored.state,
        why=stored.why,
        verdict=verdict,
        waiting=waiting,
        left_out=stored.left_out,
        arms=tuple(arms),
    )


def _losses(answers: Sequence[Answer], primary: str, *, falls: bool) -> tuple[Loss, ...]:
    sign, scored = -1.0 if falls else 1.0, []
    for answer in answers:
        if (scores := answer.facts.get("scores", {}).get(primary)) is not None:
            loss = Loss(exchange=answer.exchange, live=scores[0], candidate=scores[1])
            scored.append((sign * (loss.candidate - loss.live), answer.exchange, loss))
    return tuple(loss for gain, _, loss in sorted(scored, key=lambda one: one[:2])[:MOST_LOSSES] if gain < 0.0)


def changes_of(arm: Any) -> list[str]:
    """Return what an arm changes, as short texts without any content of its prompt."""
    given = {name: getattr(arm, name) for name in ("model", "max_contexts", "drop_source")}
    found = [f"{name} = {value}" for name, value in given.items() if value is not None]
    found += [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in arm.params.items()]
    return [*found, *(["another system prompt"] if arm.system_prompt is not None else [])] or ["another address"]


async def begin(trials: Trials, wanted: Sequence[Mapping[str, Any]], config: Config, catalogue: Catalogue) -> list[str]:
    """Start the trials of the configuration that are not there yet; return the names of those started."""
    known = {stored.trial.name for stored in await trials.all()} if wanted else set()
    started = []
    for given in wanted:
        if given.get("name") not in known:
            trial = definition(given, config, time.time())
            await trials.start(checked(trial, config, catalogue))
            started.append(trial.name)
    return started


def finished(reports: Sequence[TrialReport]) -> list[FinishedTrial]:
    """Return what trials of fewer passages found, for the advice on what the context costs; the newest last."""
    found = []
    for report in reversed(reports):
        for arm in report.arms:
            primary = next(row for row in arm.result.metrics if row.role == "primary")
            cut = arm.changes[0].replace(" = ", "=") if len(arm.changes) == 1 else ""
            if None in (primary.low, primary.high) or not cut.startswith(("max_contexts=", "drop_source=")):
                continue
            found.append(
                FinishedTrial(
                    name=report.name,
                    candidate=cut,
                    metric=report.primary,
                    difference=primary.difference or 0.0,
                    ci_low=primary.low or 0.0,
                    ci_high=primary.high or 0.0,
                    error=report.alpha,
                )
            )
    return found

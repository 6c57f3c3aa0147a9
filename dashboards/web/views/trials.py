"""Trials: candidates that answer an app's live questions beside it, what that shows so far, and a form to start one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from litestar import get, post
from litestar.exceptions import ClientException
from litestar.params import FromPath
from litestar.response import Redirect, Template
from markupsafe import Markup

from dashboards.web.addresses import exchange as exchange_url
from dashboards.web.addresses import explore, trait_fields
from dashboards.web.charts import Effect, Scale, effect_of, forest_axis, forest_row, scale_of
from dashboards.web.format import interval, shortened, signed
from dashboards.web.site import TEXTS, Page, Site, done, operator_of
from gaugeway.settings.shared import Price, PriceTable
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.trials import Trial
from monitors.analysis.incident.differences import Trait
from monitors.analysis.trial_result import MetricResult, SliceResult
from monitors.api.trials import TrialDesk
from monitors.trials.desk import ArmReport, Loss, TrialReport, changes_of, upstreams_of
from monitors.trials.judging import ABSTAINED, RATIOS
from monitors.trials.report_files import sentence_of

MAX_PROMPT, MAX_FIELD = 20_000, 300  # internal bound: a form has at most 64 KiB
"""Characters of the system prompt and of the other fields."""
NUMBERS = ("max_contexts", "temperature", "price_input", "price_output", "margin", "usd", "judge_usd", "days")
FIELDS = ("name", "app", "upstream", "model", "drop_source", "system_prompt", "primary", "send", *NUMBERS)
NEEDED = ("name", "app", "primary", "margin", "usd", "days")
DEFAULTS = {"margin": "0.02", "days": "14"}
SENDS = {
    "redacted": "redacted: exchanges that redaction would change are left out",
    "original": "original: as they came, kept encrypted until they are sent",
}
_SAME_FIELD = {"price": "price_input", "params": "temperature", "api_key": "upstream", "base_url": "upstream"}
_SAME_FIELD |= {"until": "days"}
_NAMED = re.compile(r"^(?:arms[.\w-]*\.)?(\w+): |^(.*) - at `(?:arms\[\d\]\.)?(\w+)")
_EXPECTED = re.compile(r"Expected `[^`]*` ([<>]=? [\d.e+]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialForm:
    """The form as it was typed; `wrong` says by field what is wrong, "" for no field; `checked` is what would start."""

    typed: Mapping[str, str]
    wrong: Mapping[str, str] = field(default_factory=dict)
    checked: Trial | None = None

    @property
    def hosts(self) -> str:
        """The hosts that the requests would go to."""
        return "" if self.checked is None else ", ".join(urlsplit(arm.base_url).netloc for arm in self.checked.arms)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """A metric of a candidate with the plot of its difference; empty without a better direction or any pair."""

    result: MetricResult
    best_at_0: bool
    forest: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmView:
    """A candidate's report, prepared for display; `ratios` are the metrics without a scale from 0 to 1."""

    report: ArmReport
    primary: MetricResult
    rows: Sequence[MetricRow]
    axis: Markup
    ratios: Sequence[MetricResult]
    slices: Sequence[tuple[SliceResult, str]]
    losses: Sequence[tuple[Loss, str, str]]

    @property
    def needed(self) -> int | None:
        """Pairs that the verdict needs, those that are there included; None where that is not known."""
        more = self.report.result.more
        return None if more is None else self.primary.n + more


def typed_in(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """The fields of the form. Browsers send line breaks as CR LF."""
    return {name: given.get(name, defaults.get(name, "")).replace("\r\n", "\n").strip() for name in FIELDS}


def wanted_of(typed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """What `TrialDesk.check` takes, and by field what is wrong.

    >>> wanted_of(dict.fromkeys(FIELDS, "") | {"name": "n", "app": "a", "primary": "m", "margin": "x", "usd": "5"})[1]
    {'days': 'is needed', 'margin': "'x' is not a number"}
    """
    numbers: dict[str, float] = {}
    wrong = {name: "is needed" for name in NEEDED if not typed[name]}
    for name, text in typed.items():
        if len(text) > (most := MAX_PROMPT if name == "system_prompt" else MAX_FIELD):
            wrong[name] = f"has {len(text):,} characters; at most {most:,} are allowed"
    for name in NUMBERS:
        try:
            if typed[name] and not math.isfinite(numbers.setdefault(name, float(typed[name]))):
                raise ValueError  # noqa: TRY301 - as for what is no number at all
        except ValueError:
            wrong[name] = f"{typed[name]!r} is not a number"
    arm: dict[str, Any] = {name: typed[name] for name in ("upstream", "model", "drop_source", "system_prompt")}
    arm = {name: text for name, text in arm.items() if text}
    if (passages := numbers.get("max_contexts")) is not None:
        arm["max_contexts"] = int(passages) if passages.is_integer() else passages
    if "temperature" in numbers:
        arm["params"] = {"temperature": numbers["temperature"]}
    prices = {name.removeprefix("price_"): numbers[name] for name in ("price_input", "price_output") if name in numbers}
    if len(prices) == 1:
        wrong["price_output" if "input" in prices else "price_input"] = "is needed beside the other price"
    arm |= {"price": prices} if prices else {}
    given: dict[str, Any] = {name: typed[name] for name in ("name", "app", "primary")}
    given["send"] = typed["send"] or None
    given |= {name: numbers[name] for name in ("margin", "usd", "judge_usd", "days") if name in numbers}
    return given | {"arms": [arm]}, wrong


def by_field(problems: Sequence[str]) -> dict[str, str]:
    """Problems by the field of the form that each is about, "" for none.

    >>> by_field(["send: say 'redacted'", "Expected `float` <= 0.5 - at `margin`", "no room"])
    {'send': "say 'redacted'", 'margin': 'must be <= 0.5', '': 'no room'}
    """
    wrong: dict[str, str] = {}
    for problem in problems:
        named = _NAMED.match(problem)
        name = "" if named is None else named[1] or named[3]
        name = _SAME_FIELD.get(name, name)
        text = problem if named is None else named[2] or problem[named.end() :]
        text = _EXPECTED.sub(r"must be \1", text)
        key = name if name in FIELDS else ""
        wrong[key] = "; ".join(filter(None, (wrong.get(key), text if key else problem)))
    return wrong


async def arm_view(site: Site, report: TrialReport, arm: ArmReport) -> ArmView:
    """Prepare a candidate's report; the questions of its losses are read from the store."""
    results = arm.result.metrics
    scored = [result for result in results if result.metric not in RATIOS]
    falling = {result.metric for result in scored if result.metric == ABSTAINED or site.is_best_at_0(result.metric)}
    effects = {
        result.metric: effect_of(result.difference, result.low, result.high, lower_is_better=result.metric in falling)
        for result in scored
        if result.difference is not None and result.role != "reported"
    }
    scale = scale_of(effects.values(), report.margin)
    stored = await site.insight.store.samples([loss.exchange for loss in arm.losses]) if arm.losses else {}

    def question(loss: Loss) -> str:
        sample = stored.get(loss.exchange)
        return (shortened(sample.question, 100) if sample else "") or f"Exchange {loss.exchange[:12]}"

    return ArmView(
        report=arm,
        primary=next(result for result in results if result.role == "primary"),
        rows=[
            MetricRow(result=result, best_at_0=result.metric in falling, forest=_forest(effects, result, scale, report))
            for result in scored
        ],
        axis=forest_axis(scale, report.margin),
        ratios=[result for result in results if result.metric in RATIOS],
        slices=[(part, _exchanges_of(report.app, part)) for part in arm.result.slices],
        losses=[(loss, question(loss), exchange_url(loss.exchange)) for loss in arm.losses],
    )


def _forest(effects: Mapping[str, Effect], result: MetricResult, scale: Scale, report: TrialReport) -> Markup:
    if result.metric not in effects:
        return Markup("")
    about = f"{result.metric}: candidate - live {signed(result.difference, 2)}, interval "
    about += interval(result.low, result.high, 2) if result.low is not None else "not known yet"
    return forest_row(effects[result.metric], scale=scale, margin=report.margin, title=about)


def _exchanges_of(app: str, part: SliceResult) -> str:
    """Where the exchanges of a part are listed; "" where Explore has no such filter."""
    known = part.facet == "source" or part.facet.startswith("tag:")
    return explore({"app": app} | trait_fields(Trait(part.facet, part.value))) if known else ""


def trial_view_handlers(site: Site) -> list[Any]:
    """The handlers of `/trials`."""

    @get("/trials")
    async def trials(request: Page) -> Template:
        return site.render(request, "trials.html", title="Trials", reports=await _desk(site).reports(), ends=_ends())

    @get("/trials/new")
    async def new(request: Page) -> Template:
        return _form(site, request, TrialForm(typed=typed_in(request.query_params, DEFAULTS)))

    @post("/trials", status_code=303)
    async def start(request: Page) -> Template | Redirect:
        given = await site.form(request)
        form = _checked(site, given, operator_of(request) or None)
        if form.checked is None or given.get("confirmed") != form.hosts:
            return _form(site, request, form)
        try:
            await _desk(site).start(wanted_of(form.typed)[0], request, operator_of(request) or None)
        except ClientException as error:
            return _form(site, request, TrialForm(typed=form.typed, wrong={"": str(error.detail)}))
        return Redirect(_address(form.typed["name"]), status_code=303)

    @get("/trials/{name:str}")
    async def trial(request: Page, name: FromPath[str]) -> Template:
        report = await _desk(site).report(name)
        return site.render(
            request,
            "trial.html",
            title=f"Trial {report.name}",
            report=report,
            sentence=sentence_of(report),
            arms=[await arm_view(site, report, arm) for arm in report.arms],
            lost=list(dict.fromkeys(loss.exchange for arm in report.arms for loss in arm.losses)),
            here=_address(name),
            ends=_ends(),
            left_out=TEXTS["trial_left_out"],
            ratio_names=TEXTS["trial_ratios"],
        )

    @post("/trials/{name:str}/stop", status_code=303)
    async def stop(request: Page, name: FromPath[str]) -> Redirect:
        await site.form(request)
        await _desk(site).stop(name, request, operator_of(request) or None)
        return done(_address(name), "stopped")

    return [trials, new, start, trial, stop]


def _desk(site: Site) -> TrialDesk:
    if site.trials is None:
        raise Unsupported("trials")
    return site.trials


def _ends() -> Mapping[str, str]:
    ends: Mapping[str, str] = TEXTS["trial_ends"]
    return ends


def _address(name: str) -> str:
    return f"/trials/{quote(name, safe='')}"


def _checked(site: Site, given: Mapping[str, str], by: str | None) -> TrialForm:
    typed = typed_in(given, {})
    wanted, wrong = wanted_of(typed)
    if typed["name"] == "new":  # its page would have the address of the form
        wrong["name"] = "choose another name"
    if wrong:
        return TrialForm(typed=typed, wrong=wrong)
    try:
        return TrialForm(typed=typed, checked=_desk(site).check(wanted, by))
    except ClientException as error:
        extra = error.extra if isinstance(error.extra, list) else [error.detail]
        return TrialForm(typed=typed, wrong=by_field([str(problem) for problem in extra]))


def _form(site: Site, request: Page, form: TrialForm) -> Template:
    tables = upstreams_of(site.config)
    prices = PriceTable(msgspec.convert(site.config.prices, dict[str, Price]))
    return site.render(
        request,
        "trial_new.html",
        title="Start a trial",
        status=400 if form.wrong else 200,
        form=form,
        upstreams={name: f"{name}: {_host(table)}" for name, table in tables.items()},
        apps=sorted({name for name, _ in site.apps()})[:200],
        metrics=_desk(site).deciding(),
        sends=SENDS,
        known_price=prices.of(form.typed["model"]) if form.typed["model"] else None,
        changes=[changes_of(arm) for arm in form.checked.arms] if form.checked else [],
        most_prompt=MAX_PROMPT,
    )


def _host(table: Mapping[str, Any]) -> str:
    try:
        return urlsplit(str(table.get("base_url", ""))).netloc.rpartition("@")[2] or "no address"
    except ValueError:
        return "no address"

"""Welcome: the three steps from an empty installation to the first judged score, each with what was seen of it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

from litestar import get
from litestar.response import Template
from msgspec import Struct

from dashboards.web.addresses import HOST, traffic_url, without_secrets
from dashboards.web.gateways import Series, own, together
from dashboards.web.site import FIRST_SCORES, Page, Site
from dashboards.web.views.pipeline import evaluations_of
from gaugeway.settings.endpoints import needs_key
from gaugeway.settings.loading import OPTION
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import OutcomeCount, Point, Query
from monitors.evaluation.first_exchange import described
from monitors.judges.middleware.failure_log import advice_on

MAX_APPS = 5
"""Apps without passages that are listed, those with the most answers."""
PROVIDER, KEY_VARIABLE, MODEL = "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-6-luna"
_LEAST_PAUSE_S = 1.0
_DAY_S = 86_400.0
_ERROR_CLASSES = ("4xx", "5xx", "none")
_NUMBERS = ("One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


class FirstScores:
    """Counts the stored scores up to `FIRST_SCORES`. Once there are so many, no query is made any more.

    A query takes at most a tenth of the time: a store without scores is read to the end each time.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._count = 0
        self._again_at = 0.0

    async def count(self) -> int:
        """Return the number of scores, signals not counted; at most `FIRST_SCORES`."""
        if self._count < FIRST_SCORES and time.monotonic() >= self._again_at:
            began = time.monotonic()
            self._count = len(await self._site.insight.store.series(_scores(self._site, limit=FIRST_SCORES)))
            took = time.monotonic() - began
            self._again_at = time.monotonic() + max(_LEAST_PAUSE_S, 9 * took)
        return self._count

    async def missing(self) -> bool:
        """Return whether the welcome page is still the front page."""
        return await self.count() < min(FIRST_SCORES, self._site.first_scores)


def failed_requests(series: Series) -> float:
    """The requests that failed at the provider: those that the gateway rejected did not reach it."""
    return sum(
        series.total("gaugeway_requests_total", status_class=status)
        - series.total("gaugeway_requests_total", status_class=status, ending="rejected")
        for status in _ERROR_CLASSES
    )


class Unjudged(Struct, frozen=True, kw_only=True):
    """`failed` of `answers` could not be judged, most often for `reason`; `advice` says what to do, "" if unknown."""

    failed: int
    answers: int
    reason: str
    advice: str


def unjudged_of(counts: Sequence[OutcomeCount]) -> Unjudged | None:
    """Return the metric with the most failed evaluations; None without one. Skipped answers do not count.

    >>> some = [OutcomeCount(app="a", metric="faithfulness", outcome="failed", reason="unreadable", n=2)]
    >>> unjudged_of(some).failed, unjudged_of(some).answers, unjudged_of(some).reason
    (2, 2, 'unreadable')
    """
    worst = max(evaluations_of(counts), key=lambda evaluations: evaluations.failed, default=None)
    if worst is None or not worst.failed:
        return None
    reason = next(reason for outcome, reason, _ in worst.reasons if outcome == "failed")
    return Unjudged(
        failed=worst.failed,
        answers=worst.score + worst.failed,
        reason=reason.replace("_", " "),
        advice=advice_on(reason),
    )


def rates_in_words(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Say how many answers the judged metrics take, and when to expect the first score; "" without a metric.

    >>> rates_in_words([{"rate": 0.1}, {"rate": 0.1}])
    'Two metrics are judged on 10 % of answers, so expect the first score after about 10.'
    """
    if not metrics:
        return ""
    n, rates = len(metrics), sorted(metric["rate"] for metric in metrics)
    said = _NUMBERS[n - 1] if n <= len(_NUMBERS) else str(n)
    shares = list(dict.fromkeys(f"{100.0 * rate:.3g}" for rate in (rates[0], rates[-1])))
    begin = f"{said} metric{' is' if n == 1 else 's are'} judged on {' to '.join(shares)} % of answers"
    return begin + (f", so expect the first score after about {round(1.0 / rates[-1])}." if rates[-1] > 0.0 else ".")


class JudgeSnippet(Struct, frozen=True, kw_only=True):
    """What a judge needs: the provider's address, and the variable with its key, "" where none is needed.

    `whole`: the upstream is in no file yet, so the file must have it too.
    """

    base_url: str
    variable: str
    model: str = MODEL
    whole: bool = True


def judge_snippet(upstreams: Sequence[Mapping[str, Any]], origins: Mapping[str, str]) -> JudgeSnippet:
    """Suggest the first upstream as the judge's endpoint; `origins` are `config_sources.sources_of`.

    >>> judge_snippet([], {}).base_url, judge_snippet([], {}).variable
    ('https://api.openai.com/v1', 'OPENAI_API_KEY')
    """
    whole = origins.get("upstreams[0].base_url", OPTION) == OPTION
    url = without_secrets(str(upstreams[0].get("base_url", PROVIDER))) if upstreams else PROVIDER
    return JudgeSnippet(
        base_url=url, variable=KEY_VARIABLE if needs_key(url) or url.startswith("https:") else "", whole=whole
    )


def init_command(upstreams: Sequence[Mapping[str, Any]], model: str, judge_url: str | None) -> str:
    """Return the command that writes a file for this set-up, in which every answer is judged.

    >>> init_command([{"base_url": "http://127.0.0.1:8000/v1"}], "gpt-6-luna", None)
    'gaugeway init --upstream http://127.0.0.1:8000/v1 --judge gpt-6-luna --rate 1.0'
    """
    upstream = without_secrets(str(upstreams[0].get("base_url", PROVIDER))) if upstreams else PROVIDER
    words = ["gaugeway", "init", "--upstream", upstream, "--judge", model]
    url = without_secrets(judge_url or upstream)
    return shlex.join([*words, *(["--judge-url", url] if url != upstream else []), "--rate", "1.0"])


async def first_judged(site: Site, metrics: Sequence[Mapping[str, Any]]) -> Point | None:
    """Return a recent score that a judge gave, if there is one."""
    for metric in metrics:
        for point in await site.insight.store.series(_scores(site, limit=1, metric=metric["name"])):
            if point.judge is not None:
                return point
    return None


async def failures(site: Site) -> Unjudged | None:
    """Return what became of the answers of the last day that were to be judged; None unless some failed."""
    now = site.clock()
    return unjudged_of(await site.insight.store.outcomes(Query(since=max(0.0, now - _DAY_S), until=now + 1.0)))


async def latest_exchange(site: Site) -> tuple[str, str] | None:
    """Return the id of the latest stored exchange, and in words what was found in it."""
    for point in await site.insight.store.series(_recent(site, limit=1)):
        if (found := await site.insight.store.sample(point.sample_id)) is not None:
            sample, evaluations = found
            return sample.id, described(
                sample, [evaluation for evaluation in evaluations if evaluation.metric not in SIGNALS]
            )
    return None


def _recent(site: Site, **given: Any) -> Query:
    now = site.clock()
    since = now - site.config.capture.retention_days * _DAY_S
    return Query(since=max(0.0, since), until=now + _DAY_S, order="newest", **given)


def _scores(site: Site, **given: Any) -> Query:
    without = {} if "metric" in given else {"without": tuple(SIGNALS)}
    return _recent(site, outcome="score", **without, **given)


def welcome_handlers(site: Site) -> list[Any]:
    """The handler of `/welcome`."""
    scores = FirstScores(site)

    @get("/welcome")
    async def welcome(request: Page) -> Template:
        config, about = site.config, await site.insight.status()
        answers, captured = await site.ask_gateways(), site.insight.captured()
        series = together(answers)
        judged = await first_judged(site, about["metrics"]) if about["judge"] else None
        count, latest = await scores.count(), await latest_exchange(site)
        passed_on = series.total("gaugeway_exchanges_total") - series.total(
            "gaugeway_exchanges_total", outcome="rejected"
        )
        return site.render(
            request,
            "welcome.html",
            title="Welcome",
            base=traffic_url(config.gateway, request.url.hostname or HOST),
            series=series,
            failed=failed_requests(series),
            answers=answers,
            gateways=site.gateways,
            captured=captured,
            without=[capture for capture in captured if capture.without_passages == capture.answers],
            most=MAX_APPS,
            judge=about["judge"],
            own=await own(site.registry),
            snippet_of=judge_snippet(config.upstreams, site.origins),
            judged=judged,
            unjudged=await failures(site) if about["judge"] and judged is None else None,
            has_file=any(source != OPTION for source in site.origins.values()),
            init_command=init_command(config.upstreams, config.judge.model or "", config.judge.base_url),
            rates=rates_in_words([metric for metric in about["metrics"] if metric["rate"] < 1.0]),
            scores=count,
            enough=FIRST_SCORES,
            latest=latest,
            seen=passed_on > 0 or latest is not None,
        )

    return [welcome]

"""The retirement watch: reads daily when the configured judges are shut down, and warns 30 days ahead."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime

from gaugeway.settings import shared as config
from gaugeway.settings.shared import GroundingVerifier
from monitors.exporters.instruments import Instruments
from monitors.judges.retirement import Retirement, read

_log = logging.getLogger("gaugeway.judge")
DAY_S = 86_400.0
AHEAD_DAYS = 30
"""Calendar days (UTC) before its end from which a model is warned of; also in the alert rule GaugewayJudgeRetiring."""
_ADVICE = {
    "judge.next_model": "name another successor",
    "judge.small.model": 'choose another model and check its agreement in gaugeway_judge_agreement{tier="small"}',
    "judge.grounding.model": (
        "choose another model; its scores will be on another scale, so baselines are learned again"
    ),
}
RETRY_S = 3_600.0
"""Pause after a round in which an endpoint did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One model of the configuration; `key` is its key there, such as "judge.model"."""

    key: str
    base_url: str
    api_key: str | None
    model: str


def endpoints_of(judge: config.Judge) -> list[Endpoint]:
    """Return the models whose endpoints may list them: not Azure's deployments, and no servers of classifiers."""
    small, grounding = judge.small, judge.grounding
    found = []
    if judge.base_url and judge.model and judge.api_version is None:
        found.append(_endpoint("judge.model", judge))
        if judge.next_model is not None:
            found.append(replace(found[0], key="judge.next_model", model=judge.next_model))
    if small is not None and small.api_version is None:
        found.append(_endpoint("judge.small.model", small))
    if grounding is not None and grounding.spoken == "chat" and grounding.base_url and grounding.model:
        found.append(_endpoint("judge.grounding.model", grounding))
    return found


def _endpoint(key: str, table: config.Judge | config.SmallJudge | GroundingVerifier) -> Endpoint:
    return Endpoint(key=key, base_url=table.base_url or "", api_key=table.api_key, model=table.model or "")


def days_left(at: float, now: float) -> int:
    """Return the calendar days (UTC) from Unix time `now` to `at`; negative once the day has passed.

    >>> days_left(86_400.0, 86_399.0), days_left(86_400.0, 200_000.0)
    (1, -1)
    """
    return int(at // DAY_S - now // DAY_S)


@dataclass(eq=False)
class RetirementWatch:
    """Reads the shutdown dates of models at start and every day; an endpoint that fails is asked again after an hour.

    A model's date that was read stays until another one is, so that an outage does not end a warning.
    """

    endpoints: Sequence[Endpoint]
    instruments: Instruments
    _: KW_ONLY
    next_model: str | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    _logged: set[tuple[str, str]] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Read now and then daily, until cancelled."""
        while True:
            found = [await self.check(endpoint) for endpoint in self.endpoints]
            failed = any(retirement.found == "failed" for retirement in found)
            await self.sleep(RETRY_S if failed else DAY_S)

    async def check(self, endpoint: Endpoint) -> Retirement:
        """Read one model's date, show it, and warn if it is near."""
        found = await read(endpoint.base_url, endpoint.api_key, endpoint.model)
        self.instruments.judge_model_checks.labels(endpoint.model, found.found).inc()
        gauge = self.instruments.judge_shutdown
        if found.at is not None:
            gauge.labels(endpoint.model).set(found.at)
            self._warn(endpoint, found.at)
        elif found.found not in ("failed", "unreadable"):
            with contextlib.suppress(KeyError):
                gauge.remove(endpoint.model)
        if found.found == "failed":
            problem = f"the list of models of its endpoint cannot be read: {found.detail}"
            self._log_once(logging.INFO, endpoint.key, problem)
        for name in found.unreadable:
            problem = f"the {name} of {endpoint.model} in its endpoint's list of models cannot be read as a date"
            self._log_once(logging.WARNING, endpoint.key, problem)
        return found

    def _log_once(self, level: int, key: str, problem: str) -> None:
        if (key, problem) not in self._logged:
            _log.log(level, "%s: %s", key, problem)
            self._logged.add((key, problem))

    def _warn(self, endpoint: Endpoint, at: float) -> None:
        day, left = datetime.fromtimestamp(at, UTC).date(), days_left(at, self.clock())
        if left > AHEAD_DAYS:
            return
        when = f"shuts down {endpoint.model} in {left} day{'' if left == 1 else 's'}, on {day}"
        if left <= 0:
            when = f"shuts down {endpoint.model} today, {day}" if left == 0 else f"shut down {endpoint.model} on {day}"
        advice = self._advice(endpoint.key)
        if left < 0:
            advice = advice.removesuffix(" before then")
        _log.warning("%s: its endpoint %s: %s", endpoint.key, when, advice)

    def _advice(self, key: str) -> str:
        if key == "judge.model":
            if self.next_model is not None:
                return f"compare it with its successor {self.next_model} (judge.next_model) before then"
            return "compare a successor with `judge.next_model` before then"
        return _ADVICE[key]

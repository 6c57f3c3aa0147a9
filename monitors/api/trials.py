"""`/api/trials` on the admin port."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from litestar import Request, get, post
from litestar.exceptions import ClientException
from litestar.params import FromPath

from gaugeway.runtime import audit
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Config
from gaugeway.storage.trials import Trial, Trials
from monitors.analysis.retrieval.context_cost import ContextCostReport, with_trials
from monitors.api.alerts import address_of, body_of, same_origin
from monitors.api.documents import answering
from monitors.metrics.registry import Catalogue
from monitors.trials import desk
from monitors.trials.desk import TrialReport


class TrialDesk:
    """Starts, reads and ends trials for handlers; errors become HTTP ones."""

    def __init__(
        self, trials: Trials, config: Config, catalogue: Catalogue, clock: Callable[[], float] = time.time
    ) -> None:
        self._trials = trials
        self._config = config
        self._catalogue = catalogue
        self._clock = clock
        self._made: dict[str, tuple[Any, TrialReport]] = {}

    async def reports(self) -> list[TrialReport]:
        """Return reports on all trials, the newest first."""
        with answering("the trials"):
            known = await self._trials.all()
            self._made = {
                stored.trial.name: self._made[stored.trial.name] for stored in known if stored.trial.name in self._made
            }
            return [await desk.report(self._trials, stored, self._catalogue, self._made) for stored in known]

    async def report(self, name: str) -> TrialReport:
        """Return the report on one trial."""
        with answering("the trials"):
            return await desk.report(self._trials, await self._trials.get(name), self._catalogue, self._made)

    async def advised(self, costs: ContextCostReport) -> ContextCostReport:
        """Return the report with what the app's trials of fewer passages found."""
        found = desk.finished([report for report in await self.reports() if report.app == costs.app])
        return with_trials(costs, found) if found else costs

    def deciding(self) -> list[str]:
        """Return the names of the metrics that can decide a trial."""
        return desk.deciding(self._config, self._catalogue)

    def check(self, given: dict[str, Any], by: str | None = None) -> Trial:
        """Return the trial that would start. Raises ClientException, whose `extra` has a line for each problem."""
        with answering("the trials"):
            try:
                given = {**given, **({} if by is None else {"by": by})}
                trial = desk.definition(given, self._config, self._clock(), remote=True)
                return desk.checked(trial, self._config, self._catalogue)
            except ConfigError as error:
                raise ClientException("; ".join(error.problems), extra=list(error.problems)) from error

    async def start(self, given: dict[str, Any], request: Request[Any, Any, Any], by: str | None = None) -> TrialReport:
        """Start a trial, and log who did."""
        trial = self.check(given, by)
        with answering("the trials"):
            await self._trials.start(trial)
        hosts = ",".join(arm.base_url for arm in trial.arms)
        audit.tell("trial_start", by=trial.by, address=address_of(request), trial=trial.name, sends_to=hosts)
        return await self.report(trial.name)

    async def stop(self, name: str, request: Request[Any, Any, Any], by: str | None = None) -> TrialReport:
        """End a trial, and log who did."""
        with answering("the trials"):
            if await self._trials.end(name, "stopped", self._clock()):
                audit.tell("trial_stop", by=by, address=address_of(request), trial=name)
        return await self.report(name)


def trial_handlers(trials: TrialDesk) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/trials")
    async def all_trials() -> list[dict[str, Any]]:
        return [asdict(report) for report in await trials.reports()]

    @get("/api/trials/{name:str}")
    async def trial(name: FromPath[str]) -> dict[str, Any]:
        return asdict(await trials.report(name))

    @post("/api/trials", guards=[same_origin])
    async def start(request: Request[Any, Any, Any]) -> dict[str, Any]:
        return asdict(await trials.start(await body_of(request, dict[str, Any]), request))

    @post("/api/trials/{name:str}/stop", guards=[same_origin], status_code=200)
    async def stop(name: FromPath[str], request: Request[Any, Any, Any]) -> dict[str, Any]:
        return asdict(await trials.stop(name, request))

    return [all_trials, trial, start, stop]

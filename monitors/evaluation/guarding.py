"""Puts the middleware around a model's endpoint: failure log, limits, retries, circuit breaker, and the cache."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from gaugeway.settings import shared as config
from monitors.exporters.instruments import Instruments
from monitors.judges import Judge
from monitors.judges.cost import Billing
from monitors.judges.middleware.cache import AnswerFile, CachedJudge
from monitors.judges.middleware.failure_log import FailureLog
from monitors.judges.middleware.limits import LONGEST_RETRY_AFTER_S
from monitors.judges.middleware.stack import BreakerState, Stack, StackSettings, build_stack

_log = logging.getLogger("gaugeway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What the log names, and where the calls of an endpoint are counted.

    `origin` is its address without secrets (see `origin_of`), `table` its table in the configuration, `path` that of
    its API after the base URL, "" for a model on this machine. `role` is "judge", "small" or "verifier".
    """

    origin: str
    table: str
    instruments: Instruments
    observer: Billing
    path: str = "/chat/completions"
    role: Literal["judge", "small", "verifier"] = "judge"


def guarded(endpoint: Judge, limits: StackSettings, guard: Guard) -> Stack:
    """Return an endpoint in its stack; the series of its circuit begins."""
    blind = guard.instruments.judge_blind.labels(endpoint.model, guard.role)
    blind.set(0)

    role = "small judge" if guard.role == "small" else guard.role

    def on_change(state: BreakerState) -> None:
        blind.set(state.open)
        if state.open:
            why = f"{state.failures} failure{'' if state.failures == 1 else 's'} in a row, the last {state.kind}"
            again = f"it is tried again after {limits.blind_s:g} s, then at growing intervals"
            _log.warning("%s %s at %s: circuit open after %s; %s", role, endpoint.model, guard.origin, why, again)

    logged = FailureLog(endpoint, origin=guard.origin, table=guard.table, path=guard.path)
    return build_stack(logged, limits, observer=guard.observer, on_change=on_change)


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
    judge: Judge,
    settings: config.Judge,
    answers: Path | None,
    on_lookup: Callable[[str, str, float], None],
) -> Judge:
    """Put the configured cache of `[judge]` around a judge."""
    if settings.cache == "off":
        return judge
    return CachedJudge(
        judge,
        store=AnswerFile(answers) if settings.cache == "file" and answers is not None else None,
        on_lookup=on_lookup,
    )


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

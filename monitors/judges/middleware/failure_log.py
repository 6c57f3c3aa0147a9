"""The failure log of a judge endpoint: rate-limited lines while it fails, and one when it recovers."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from gaugeway.data_files import table
from monitors.judges import JudgeError
from monitors.judges.middleware import Wrapper
from monitors.judges.middleware.stack import ANSWERED, NEUTRAL

T = TypeVar("T")
REPEAT_S = 300.0
"""Seconds between two lines about the same kind of failure."""
STEADY_S = 30.0
"""Seconds for which a judge must answer before its next failure counts as a new outage."""
MAX_KINDS = 20
"""How many kinds of failures (error kind and HTTP status) are logged separately."""
_STATUS = re.compile(r"Error code: (\d{3})\b")
_CODE = re.compile(r"""['"]code['"]: ?['"]([\w.-]{1,40})['"]""")
_WORDS: dict[str, dict[str, str]] = table("monitors.judges.middleware", "advice.toml")
_ADVICE, _STATUS_ADVICE, _FORMATS = (_WORDS[name] for name in ("kinds", "statuses", "formats"))
_LOCAL = frozenset({"bad_request", "unreadable"})
"""Failures of a model on this machine, whose words are our own and hold nothing captured."""
_CHAT = "/chat/completions"
_READING_ADVICE = (
    (re.compile(r"(?:set )?judge\.grounding\.label\b"), "set judge.label to the label that means supported"),
    (
        re.compile(r"expected Yes or No|log-probabilit|the reply holds no log-prob"),
        "the model does not answer Yes or No with log-probabilities; use another judge.model",
    ),
)
"""Advice by the beginning of our own words about a reply that cannot be read."""
_INPUT_TOO_LONG = ("413", "422")
_BATCH = re.compile(r"batch.?size", re.IGNORECASE)
_log = logging.getLogger("gaugeway")


def advice_on(kind: str) -> str:
    """Return what to do about a kind of failure of a chat model; "" for a kind without advice.

    >>> advice_on("unreadable")
    'the model does not return the requested JSON; use another judge.model'
    """
    return _ADVICE.get(kind, "")


@dataclass(eq=False, kw_only=True)
class FailureLog(Wrapper):
    """Forwards every call, and logs failures of the endpoint at `origin`, each kind at most every `REPEAT_S`.

    The first failure after a recovery of `STEADY_S` is logged at once.

    Place it next to the endpoint, inside retries: the first failed attempt is logged. A line holds the kind of failure,
    the HTTP status and the provider's error code, but none of the text, which may quote a key or a captured answer.
    A failure that the sample caused (refused, context_overflow) does not count. `table` is the judge's in the
    configuration, `path` that of its API after the base URL; "" for a model on this machine.
    """

    origin: str
    table: str = "judge"
    path: str = _CHAT
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._role = "verifier" if self.table == "judge.grounding" else "judge"
        self._logged_at: dict[str, float] = {}
        self._recovered_at: float | None = None
        self._failing = False
        self._uncounted = 0
        self._failures = 0

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await call()
        except JudgeError as error:
            if error.kind in ANSWERED:
                self._answered()
            elif error.kind not in NEUTRAL:
                self._failed(error)
            raise
        self._answered()
        return answer

    def _failed(self, error: JudgeError) -> None:
        self._uncounted += 1
        self._failures += 1
        now = self.clock()
        if self._recovered_at is not None and now - self._recovered_at >= STEADY_S:
            self._logged_at.clear()
        self._recovered_at = None
        kind = _kind(error)
        if now - self._logged_at.get(kind, -math.inf) < REPEAT_S or len(self._logged_at) >= MAX_KINDS:
            return
        count = f"; {self._uncounted} failures since the last line" if self._uncounted > 1 else ""
        _log.warning(
            "%s %s at %s failed (%s): %s%s",
            *(self._role, self.model, self.origin, _reason(error), self._advice(error), count),
        )
        self._failing, self._uncounted = True, 0
        self._logged_at[kind] = now

    def _answered(self) -> None:
        if self._recovered_at is None:
            self._recovered_at = self.clock()
        if self._failing:
            count = f"{self._failures} failure{'' if self._failures == 1 else 's'}"
            _log.info("%s %s at %s recovered after %s", self._role, self.model, self.origin, count)
            self._uncounted = 0
        self._failing = False
        self._failures = 0

    def _advice(self, error: JudgeError) -> str:
        if not self.path and error.kind in _LOCAL:
            return error.detail
        return _advice(error, self.path).replace("judge.", f"{self.table}.").replace("ROLE", self._role)


def _kind(error: JudgeError) -> str:
    status = _STATUS.search(error.detail)
    return f"{error.kind} {status[1]}" if status else error.kind


def _reason(error: JudgeError) -> str:
    status, code = _STATUS.search(error.detail), _CODE.search(error.detail)
    known = [f"HTTP {status[1]}"] if status else []
    known += [code[1]] if code else []
    return ", ".join([error.kind, *known])


def _advice(error: JudgeError, path: str) -> str:
    if not path:
        return "the model could not compute this batch; the failed evaluation holds the runtime's message"
    status = _STATUS.search(error.detail)
    if path != _CHAT and (own := _advice_on_pairs(error, status[1] if status else "")):
        return own
    if status and status[1] in _STATUS_ADVICE:
        return _STATUS_ADVICE[status[1]].format(path=path)
    if error.kind == "unreadable":
        found = (advice for pattern, advice in _READING_ADVICE if pattern.match(error.detail))
        return next(found, _unreadable(path))
    return _ADVICE.get(error.kind, "see the log of the ROLE's server")


def _advice_on_pairs(error: JudgeError, status: str) -> str:
    """Return what to do about a server of a verifier that is no chat model; "" where that is as for others."""
    if error.kind == "too_large":
        return f"{_ADVICE['too_large']}, or lower judge.batch_size"
    if error.kind != "bad_request" or not status:
        return ""
    if _BATCH.search(error.detail):
        return "lower judge.batch_size"
    too_long = "the texts may be too long: lower judge.max_document_chars, or check judge.model"
    return too_long if status in _INPUT_TOO_LONG else ""


def _unreadable(path: str) -> str:
    if path == _CHAT:
        return _ADVICE["unreadable"]
    shape = f"the format of {path}{_FORMATS.get(path, '')}"
    return f"the reply does not have {shape}; check judge.kind and which server answers at judge.base_url"

"""Keeps requests for trials: what the monitors send again to a candidate once the answer is judged."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from gateway.capture.exchange_reader import text_headers
from gateway.http import encoding, lenient_json
from gaugeway.exchange import DECISION_ROUTES, GENERATION_ROUTES, Recording
from gaugeway.records import Sample
from gaugeway.runtime.logs import Outage
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.sampling import keep
from gaugeway.storage.engines.failures import FAILURES, Unsupported, encoded
from gaugeway.storage.erase import texts_in
from gaugeway.storage.trials import MAX_REQUEST_BYTES, MAX_WAITING, Kept, Trial, Trials, sealer

EVERY_S = 3.0
MAX_PENDING_BYTES = 16 * 1024 * 1024
"""Requests held until the store has them."""
_WITHIN_S = 10.0
_AT_ONCE, _AT_ONCE_BYTES = 50, 1024 * 1024
"""Requests written in one transaction, and their bytes: at least one is, and what is written is not read again."""
_AHEAD, _BURST, _BURST_S = 2.0, 50.0, 20.0
"""Requests kept for each that a trial sends, and how many at once: at least so many, or those of so many seconds."""
_ROUTES = GENERATION_ROUTES - DECISION_ROUTES
_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")
_OUR_MEMBER = "gaugeway"
_CREDENTIAL = re.compile(r"(?i)api.?key|authorization|passw|secret|credential|token$")
_ELSEWHERE = re.compile(r"(?i)(?:extra_|default_)?headers|api_base|base_url|user_config|fallbacks|litellm_params")
_log = logging.getLogger("gaugeway")


class TrialRequests:
    """Reads which trials run, and keeps the requests of their apps; every `every_s` seconds, off the request path.

    `redact` replaces what must not be stored in a text; it is None for an app that is not redacted.
    """

    def __init__(
        self, trials: Trials, redact: Callable[[str], Callable[[str], str] | None], *, every_s: float = EVERY_S
    ) -> None:
        self.redact = redact
        self._trials = trials
        self._every_s = every_s
        self._running: Sequence[Trial] = ()
        self._revision: bytes | None = None
        self._pending: deque[tuple[Trial, Recording, Sample]] = deque()
        self._bytes = 0
        self._left_out: dict[str, Counter[str]] = {}
        self._turns: dict[str, tuple[float, float]] = {}
        """By trial: when its turns were counted, and how many were left."""
        self._closing = asyncio.Event()
        self._outage = Outage(_log)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start in the background."""
        self._task = spawn(self._run(), name="trial requests")

    def offer(self, recording: Recording, sample: Sample) -> None:
        """Take the request of a captured exchange if a trial wants it. Never blocks, never raises."""
        for trial in self._running:
            if trial.app != sample.app or not keep(sample.id, trial.rate, f"trial/{trial.name}"):
                continue
            reason = sample.skip_reason or ("route" if recording.route not in _ROUTES else None)
            size = len(recording.request_body or b"")
            if reason is None and size > MAX_REQUEST_BYTES:
                reason = "too_large"
            is_full = len(self._pending) >= MAX_WAITING or self._bytes + size > MAX_PENDING_BYTES
            if reason is None and (is_full or not self._has_turn(trial)):
                reason = "no_room"
            if reason is not None:
                self._count(trial, reason)
                continue
            self._pending.append((trial, recording, sample))
            self._bytes += size

    def _has_turn(self, trial: Trial) -> bool:
        """Whether a trial may be given one more request: twice as many as it sends, however much traffic there is."""
        now, most = time.monotonic(), max(_BURST, _BURST_S * trial.per_second)
        at, left = self._turns.get(trial.name, (now, most))
        left = min(most, left + (now - at) * _AHEAD * trial.per_second)
        self._turns[trial.name] = now, left - 1.0 if left >= 1.0 else left
        return left >= 1.0

    async def aclose(self) -> None:
        """Keep what is pending, and close the store."""
        self._closing.set()
        if self._task is not None:
            await self._task
        await self._trials.aclose()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_WITHIN_S):
                    await self.sync()
                self._outage.end("requests are kept for trials again")
            except Unsupported:  # the store keeps no trials
                return
            except (*FAILURES, TimeoutError) as error:
                self._outage.begin("requests are not kept for trials: %s: %s", type(error).__name__, error)
            if self._closing.is_set():
                return
            await happens_within(self._closing, self._every_s)

    async def sync(self) -> None:
        """Read which trials run, and write what is pending. Raises what the documents raise."""
        self._revision, found = await self._trials.changed(self._revision)
        now = time.time()
        if found is not None:
            self._running = [stored.trial for stored in found if stored.state == "running"]
            self._turns = {
                name: turns for name, turns in self._turns.items() if name in {t.name for t in self._running}
            }
        while pending := self._next():
            await self._keep(pending, now)
            for _ in pending:
                self._bytes -= len(self._pending.popleft()[1].request_body or b"")
        await self._trials.leave_out(self._left_out)

    def _next(self) -> Sequence[tuple[Trial, Recording, Sample]]:
        """Return the requests of the next transaction."""
        found: list[tuple[Trial, Recording, Sample]] = []
        size = 0
        for one in self._pending:
            size += len(one[1].request_body or b"")
            if found and (len(found) == _AT_ONCE or size > _AT_ONCE_BYTES):
                break
            found.append(one)
        return found

    async def _keep(self, pending: Sequence[tuple[Trial, Recording, Sample]], now: float) -> None:
        """Write requests in one transaction; count those that are not kept."""
        ready: list[tuple[Trial, str, Kept]] = []
        left_out: list[tuple[Trial, str]] = []
        for trial, recording, sample in pending:
            kept = await asyncio.to_thread(_kept, trial, recording, self.redact(sample.app))
            if isinstance(kept, str):
                left_out.append((trial, kept))
            elif trial in self._running:
                ready.append((trial, sample.id, kept))
        if ready:
            found = await self._trials.keep([(trial.name, exchange, kept) for trial, exchange, kept in ready], now)
            left_out += [(trial, "no_room") for (trial, *_), is_kept in zip(ready, found, strict=True) if not is_kept]
        for trial, reason in left_out:
            self._count(trial, reason)

    def _count(self, trial: Trial, reason: str) -> None:
        self._left_out.setdefault(trial.name, Counter())[reason] += 1


def _kept(trial: Trial, recording: Recording, redact: Callable[[str], str] | None) -> Kept | str:
    """Return the request as it is kept, or why it is not."""
    headers = text_headers(recording.request_headers)
    try:
        sent = recording.request_body or b""
        if (coding := headers.get("content-encoding")) is not None:
            sent = encoding.decode(sent, coding, MAX_REQUEST_BYTES)
        if not isinstance(body := lenient_json.read(sent), dict):
            return "unreadable"
        body.pop(_OUR_MEMBER, None)
        if _has_credentials(body):
            return "credentials"
        if trial.send == "redacted" and redact is not None and any(redact(text) != text for text in texts_in(body)):
            return "redacted"
        text, seal = encoded(body).decode(), None
    except (ValueError, RecursionError):
        return "unreadable"
    if trial.send == "original":
        if (seal := sealer()) is None:
            return "no_key"
        text = seal.encrypt(text.encode()).decode()
    shown = {name: value for name, value in headers.items() if name in _HEADERS}
    return Kept(route=recording.route, body=text, headers=shown, sealed=seal is not None)


def _has_credentials(value: Any) -> bool:
    """Whether a member is named like a credential, or says where a proxy is to send the request with which."""
    if isinstance(value, list):
        return any(map(_has_credentials, value))
    if not isinstance(value, dict):
        return False
    return any(
        _has_credentials(item)
        or (_ELSEWHERE.fullmatch(name) is not None and bool(item))
        or (isinstance(item, str) and _CREDENTIAL.search(name) is not None)
        for name, item in value.items()
    )

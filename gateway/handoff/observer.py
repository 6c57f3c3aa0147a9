"""What the capture buffer reports: every exchange is counted once, under one outcome."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Protocol

from gateway.capture.result import CaptureResult
from gateway.telemetry.metrics import Instruments
from gaugeway.exchange import GENERATION_ROUTES, ExchangeSummary, Recording
from gaugeway.records import Sample
from gaugeway.runtime.logs import RateLimitedWarnings

_log = logging.getLogger("gaugeway.handoff")


class Accounts(Protocol):
    """Counts the tokens and the cost of an exchange."""

    def account(self, exchange: ExchangeSummary) -> None:
        """Count one decoded exchange."""

    def cost(self, exchange: ExchangeSummary) -> float | None:
        """Return what a decoded exchange cost in USD, if that is known."""


class Spans(Protocol):
    """Emits the span of an exchange."""

    def emit(self, exchange: ExchangeSummary) -> None:
        """Emit the span of one decoded exchange."""


class CaptureObserver:
    """Counts exchanges in the gateway's instruments; those that were decoded are also priced and traced.

    The gateway replaces `accounting` and `spans` when its configuration is reloaded.
    """

    def __init__(
        self, instruments: Instruments, accounting: Accounts | None = None, spans: Spans | None = None
    ) -> None:
        self.instruments = instruments
        self.accounting = accounting
        self.spans = spans
        # Exchanges that are not captured are counted in a thread, the others on the event loop.
        self._lock = threading.Lock()
        self._warnings = RateLimitedWarnings(_log)

    def not_decoded(self, recording: Recording, outcome: str | None) -> None:
        """Count a request whose bodies are not decoded; `outcome` is None on a route that is not captured."""
        with self._lock:
            app = recording.app
            self.instruments.request(recording, app=app, model="unknown", stream=False)
            if outcome is not None:
                self.instruments.outcome(app, outcome)

    def decoded(self, recording: Recording, result: CaptureResult, outcome: str | None = None) -> bool:
        """Count a request whose bodies were decoded; return False when it failed, which is counted as error.

        `outcome` is None for a captured exchange: that is counted once its sample is in the queue.
        """
        with self._lock:
            summary = result.summary
            failed = result.error is not None
            if result.unreadable is not None:
                self.instruments.unreadable(result.unreadable)
                self._warn(recording.id, f"{result.error} ({result.unreadable})")
            elif failed:
                self._warn(recording.id, str(result.error))
            if summary is None:
                app, model, stream = recording.app, "unknown", False
            else:
                app, model, stream = summary.app, summary.model, summary.stream
                failed = not self._reported(summary) or failed
            self.instruments.request(recording, app=app, model=model, stream=stream)
            self.instruments.capture_seconds(result.read_s)
            if failed or outcome is not None:
                self.instruments.outcome(app, "error" if failed else str(outcome))
            return not failed

    def priced(self, result: CaptureResult) -> Sample | None:
        """Return the sample of a decoded exchange with what the exchange cost."""
        sample, summary = result.sample, result.summary
        if sample is None or summary is None or self.accounting is None:
            return sample
        cost = self.accounting.cost(summary)
        return sample if cost is None else replace(sample, cost_usd=cost)

    def lost(self, recording: Recording) -> bool:
        """Count a request that was given up before its bodies were decoded; return whether it was an exchange."""
        is_exchange = recording.route in GENERATION_ROUTES
        self.not_decoded(recording, "error" if is_exchange else None)
        return is_exchange

    def _reported(self, summary: ExchangeSummary) -> bool:
        try:
            if self.accounting is not None:
                self.accounting.account(summary)
            if self.spans is not None:
                self.spans.emit(summary)
        except Exception as error:  # noqa: BLE001 - whatever a span exporter raises costs this exchange only; counted
            self.instruments.unreadable("internal")
            self._warn(summary.id, f"{type(error).__name__} (internal)")
            return False
        return True

    def _warn(self, exchange: str, reason: str) -> None:
        self._warnings.warn(reason, "exchange %s was not captured: %s", exchange, reason)

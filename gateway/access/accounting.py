"""The cost of each exchange, and the charges to limits and budgets.

Counters show what capture decoded. Limits and budgets are charged independently of capture when a request ends, with
the reported usage or an estimate, so that an exchange that is not captured is not free.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gateway.access.account import Quote
from gateway.access.gate import MOST_CHARGED_TOKENS, Gate, Permit
from gateway.access.metering import BASE64_BYTES_PER_TOKEN, Meter, Metered, larger, text_tokens
from gateway.access.operations import Operation
from gateway.access.prices import Prices, costs_at
from gateway.access.restrictions import is_ambiguous
from gateway.telemetry.metrics import Instruments
from gaugeway.exchange import ExchangeSummary, Recording
from gaugeway.records import Usage

RESERVED_OUTPUT_TOKENS = 1000
"""Tokens reserved for an answer when the request sets no maximum."""
MOST_RESERVED_TOKENS = 128_000
"""The most that is reserved for an answer: a large maximum must not lock out everybody who shares the budget."""
MOST_HIDDEN_TOKENS = 10_000_000
"""The most that an answer is charged beyond its visible size, which is the bytes of request and answer, as a token has
at least one, and the output reserved. Reasoning, stored conversations, files, images behind URLs and the steps of an
upstream's own tools are not visible: an answer of 50 steps with 200,000 tokens of context each comes to this number.
"""
_FIRST_ERROR = 400


class _Sizes(msgspec.Struct):
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    background: Any = None


_read_sizes = msgspec.json.Decoder(_Sizes).decode


class Bill:
    """The cost of one request while it is under way, as far as known. `permit` is set once it is admitted."""

    __slots__ = (
        "_given",
        "answered",
        "background",
        "body",
        "cut",
        "meter",
        "model",
        "operation",
        "permit",
        "quote",
        "received",
        "sent",
    )

    def __init__(self, operation: Operation, model: str | None, body: bytes) -> None:
        self.permit: Permit | None = None
        self.operation = operation
        self.model = model
        self.body = body
        self.quote = Quote()
        self.meter = Meter()
        self.sent = False
        self.cut = True
        self._given = text_tokens(body)
        self.received = 0
        sizes = _sizes(body)
        self.answered = 0 if operation.input_only else _expected_output(sizes)
        self.background = sizes is not None and bool(sizes.background)

    @property
    def given(self) -> int:
        """The request's tokens, estimated from its size. Streamed uploads are mostly audio or images."""
        return self._given if self.body else self.received // BASE64_BYTES_PER_TOKEN

    def visible(self, metered: Metered) -> int:
        """The most tokens that the request and the answer show."""
        return max(len(self.body), self.received) + self.answered + metered.size


class Accounting:
    """Counts tokens and USD of exchanges, and charges requests to limits and budgets."""

    def __init__(self, prices: Prices, gate: Gate | None, instruments: Instruments) -> None:
        self.prices = prices
        self._gate = gate
        self._instruments = instruments

    def account(self, exchange: ExchangeSummary) -> None:
        """Count the tokens and cost of a decoded exchange; cached answers and those without usage cost nothing."""
        if (usage := exchange.usage) is None or exchange.cached:
            return
        self._instruments.usage(exchange.app, exchange.model, usage)
        # Anthropic does not count cached tokens as part of the input; the other APIs do.
        costs = self.prices.costs(exchange.model, usage, cached_apart=exchange.route == "messages")
        if costs is not None:
            self._instruments.cost(exchange.app, exchange.model, costs)

    def cost(self, exchange: ExchangeSummary) -> float | None:
        """Return what a decoded exchange cost in USD; None when that is not known."""
        if exchange.cached:
            return 0.0
        return self.prices.cost(exchange.model, exchange.usage, cached_apart=exchange.route == "messages")

    def bill(self, operation: Operation, model: str | None, body: bytes) -> Bill:
        """Open the bill of a request with its expected usage as the quote; `body` is empty when it is streamed."""
        bill = Bill(operation, model, body)
        usage = Usage(input_tokens=bill.given, output_tokens=bill.answered)
        tokens = bill.given + bill.answered
        if operation.kind == "metered":
            bill.quote = Quote(tokens=tokens, usd=self._cost(model, usage)[0])
        elif operation.kind != "free":
            bill.quote = Quote(tokens=tokens if operation.kind == "unknown" else 0, usd=self._unmetered_usd)
        return bill

    def settle(self, bill: Bill, recording: Recording) -> None:
        """Charge a finished request and release its reservation. Called on the event loop."""
        if (permit := bill.permit) is None:
            return
        if not bill.sent or recording.cached or (bill.meter.begun and bill.meter.status >= _FIRST_ERROR):
            permit.free()
        elif bill.meter.is_expensive:
            reading = asyncio.get_running_loop().run_in_executor(None, self._charge, permit, bill, recording.route)
            reading.add_done_callback(lambda _: permit.free())
        else:
            self._charge(permit, bill, recording.route)
            permit.free()

    def charge_usage(self, permit: Permit, model: str | None, usage: Usage, route: str, *, visible: int) -> None:
        """Charge the usage that one answer of a connection reports; `visible` is the size of its messages so far."""
        usage = self._credible(usage, visible, route)
        usd, own = self._cost(model, usage)
        if not own and usd:
            self._instruments.charge_estimated(route, "unpriced")
        self._book(permit, usage, usd, route=route, visible=visible)

    def charge_estimate(self, permit: Permit, model: str | None, usage: Usage, route: str) -> None:
        """Charge the estimated usage of one answer of a connection."""
        self._instruments.charge_estimated(route, "cut")
        self._book(permit, usage, self._cost(model, usage)[0])

    def charge_unmetered(self, permit: Permit, route: str) -> None:
        """Charge a request whose cost no answer reports."""
        if self._unmetered_usd:
            self._instruments.charge_estimated(route, "unmetered")
            self._book(permit, Usage(), self._unmetered_usd)

    def _charge(self, permit: Permit, bill: Bill, route: str) -> None:
        kind = bill.operation.kind
        if kind == "free":  # also where it shows what another request has used, as a stored response does
            return
        metered = bill.meter.read(complete=not bill.cut)
        if (usage := metered.usage) is None and kind == "unmetered":
            self.charge_unmetered(permit, route)
            return
        reported = usage is not None and _is_final(bill, metered)
        if usage is None or not reported:
            usage = self._estimate(bill, metered, route)
        visible = bill.visible(metered)
        usage = self._credible(usage, visible, route)
        usd, own = self._priced(permit, bill, metered, usage, cached_apart=route == "messages")
        if kind != "metered" and not (own and reported):
            self.charge_unmetered(permit, route)
            usd = 0.0
        elif not own and usd:
            self._instruments.charge_estimated(route, "unpriced")
        self._book(permit, usage, usd, route=route, visible=visible)

    def _credible(self, usage: Usage, visible: int, route: str) -> Usage:
        """Return the part of a usage that an answer can have; an implausible report is counted."""
        most = visible + MOST_HIDDEN_TOKENS
        given, answered, cached = usage.input_tokens or 0, usage.output_tokens or 0, usage.cached_tokens or 0
        if given + answered <= most and cached <= most:
            return usage
        self._instruments.charge_estimated(route, "implausible")
        given = min(given, most)
        return Usage(input_tokens=given, output_tokens=min(answered, most - given), cached_tokens=min(cached, most))

    def _priced(
        self, permit: Permit, bill: Bill, metered: Metered, usage: Usage, *, cached_apart: bool
    ) -> tuple[float, bool]:
        """Return the cost in USD and whether the model has a price; if in doubt, the answer's model counts."""
        model = bill.model
        if permit.has_budget and (model is None or is_ambiguous(bill.body)):
            model = metered.model
        usd, own = self._cost(model, usage, cached_apart=cached_apart)
        if not own and metered.model is not None:
            usd, own = self._cost(metered.model, usage, cached_apart=cached_apart)
        return (usd, own) if own or permit.has_budget else (0.0, False)

    def _estimate(self, bill: Bill, metered: Metered, route: str) -> Usage:
        """Estimate usage from what was sent; for an answer that may continue unseen, at least the reservation."""
        final = _is_final(bill, metered)
        self._instruments.charge_estimated(route, "no_usage" if final else "cut")
        answered = 0 if bill.operation.input_only else metered.output_tokens
        if final:
            return Usage(input_tokens=bill.given, output_tokens=answered)
        estimate = Usage(input_tokens=bill.given, output_tokens=max(answered, bill.answered))
        return estimate if metered.usage is None else larger(estimate, metered.usage)

    def _cost(self, model: str | None, usage: Usage, *, cached_apart: bool = False) -> tuple[float, bool]:
        price, own = self.prices.charged(model)
        return (
            (sum(costs_at(price, usage, cached_apart=cached_apart).values()), own) if price is not None else (0.0, own)
        )

    def _book(
        self, permit: Permit, usage: Usage, usd: float, *, route: str = "", visible: int = MOST_CHARGED_TOKENS
    ) -> None:
        if self._gate is not None:
            tokens = (usage.input_tokens, usage.output_tokens)
            self._gate.charge(permit, *tokens, usd, visible=visible, route=route)

    @property
    def _unmetered_usd(self) -> float:
        return (self._gate.unmetered_usd if self._gate is not None else None) or 0.0


def _is_final(bill: Bill, metered: Metered) -> bool:
    """Whether the answer is complete: the upstream cannot have generated more."""
    if metered.usage is None:
        return metered.finished and not bill.cut and not bill.background
    return metered.ended or (metered.finished and not bill.cut)


def _expected_output(sizes: _Sizes | None) -> int:
    if sizes is None:
        return RESERVED_OUTPUT_TOKENS
    given = [
        value
        for value in (sizes.max_completion_tokens, sizes.max_output_tokens, sizes.max_tokens)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
    ]
    choices = sizes.n if isinstance(sizes.n, int) and sizes.n > 0 else 1
    return min((max(given) if given else RESERVED_OUTPUT_TOKENS) * choices, MOST_RESERVED_TOKENS)


def _sizes(body: bytes) -> _Sizes | None:
    try:
        return _read_sizes(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None

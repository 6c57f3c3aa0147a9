"""The cost of judge calls: prices by model, and the bill of each call for its app and metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from gaugeway.settings.shared import Price
from monitors.judges import SPEND, Observer


class Bill(Struct, frozen=True, kw_only=True):
    """Cost of one answered call, and the app and metric it was made for (empty when there is none)."""

    app: str
    metric: str
    judge_model: str
    input_tokens: int
    output_tokens: int
    usd: float


Charge: TypeAlias = Callable[[Bill], None]


class Billing(Observer):
    """An Observer that forwards to `observer`, and passes the bill of each answered call to `charges`.

    App and metric are those of the current `Spend`, so that a call whose caller was cancelled meanwhile is billed too.
    """

    def __init__(self, observer: Observer, *charges: Charge) -> None:
        self._observer = observer
        self._charges = charges

    def judged(self, model: str, seconds: float, input_tokens: int, output_tokens: int, usd: float) -> None:
        self._observer.judged(model, seconds, input_tokens, output_tokens, usd)
        spend = SPEND.get()
        bill = Bill(
            app=spend.app if spend is not None else "",
            metric=spend.metric if spend is not None else "",
            judge_model=model,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            usd=usd,
        )
        for charge in self._charges:
            charge(bill)

    def failed(self, model: str, kind: str) -> None:
        self._observer.failed(model, kind)

    def unusable(self, model: str, reason: str) -> None:
        self._observer.unusable(model, reason)


FREE = Price(input=0.0, output=0.0)


class Meter(Struct, frozen=True):
    """Charges the answered calls of one model to the metric that runs now, and reports them."""

    model: str
    price: Price
    observer: Observer

    def count(self, seconds: float, input_tokens: int, output_tokens: int = 0, *, cached_tokens: int = 0) -> None:
        """Count one call; `cached_tokens` are part of `input_tokens`."""
        usd = self.price.usd(input_tokens, output_tokens, cached_tokens=cached_tokens)
        if (spend := SPEND.get()) is not None:
            spend.calls += 1
            spend.input_tokens += input_tokens
            spend.output_tokens += output_tokens
            spend.usd += usd
        self.observer.judged(self.model, seconds, input_tokens, output_tokens, usd)

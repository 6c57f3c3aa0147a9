"""USD: the cost of exchanges, and the spending of keys and apps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gaugeway.records import Usage
from gaugeway.settings.shared import Price, PriceTable
from gaugeway.storage.documents import Spending

_MILLION: Literal[1_000_000] = 1_000_000


class Prices(PriceTable):
    """`[prices]`: what exchanges cost by the model they name."""

    def __bool__(self) -> bool:
        return bool(self._exact or self._patterns)

    def charged(self, model: str | None) -> tuple[Price | None, bool]:
        """Return the price at which a budget is charged, and whether it is the model's own.

        A misspelt or unpriced model name must not be free: it is charged at the highest input and output prices.
        """
        if not self:
            return None, False
        if model is not None:
            spellings = {model, model.strip().casefold()}
            if own := [price for name in spellings if (price := self.of(name)) is not None]:
                return max(
                    own, key=lambda price: ((price.input + price.output) / price.per, price.input / price.per)
                ), True
        prices = [*self._exact.values(), *(price for _, price in self._patterns)]
        highest_in = max(price.input / price.per for price in prices)
        highest_out = max(price.output / price.per for price in prices)
        return Price(input=highest_in * _MILLION, output=highest_out * _MILLION), False

    def cost(self, model: str, usage: Usage | None, *, cached_apart: bool = False) -> float | None:
        """Return what an exchange cost in USD; None when that is not known. See `costs`."""
        costs = self.costs(model, usage, cached_apart=cached_apart)
        return sum(costs.values()) if costs is not None else None

    def costs(self, model: str, usage: Usage | None, *, cached_apart: bool = False) -> dict[str, float] | None:
        """Return the cost in USD by type of token (input, output, cached); None without a price or any count.

        OpenAI counts cached tokens as part of the input; with `cached_apart` (Anthropic's `/v1/messages`) they are not.
        """
        price = self.of(model)
        if price is None or usage is None or (usage.input_tokens is None and usage.output_tokens is None):
            return None
        return costs_at(price, usage, cached_apart=cached_apart)


def costs_at(price: Price, usage: Usage, *, cached_apart: bool = False) -> dict[str, float]:
    """Return the cost in USD by type of token at a price; see `Prices.costs`."""
    cached = usage.cached_tokens or 0
    uncached = usage.input_tokens or 0
    if not cached_apart:
        cached = min(cached, uncached)
        uncached -= cached
    return {
        "input": uncached * price.input / price.per,
        "output": (usage.output_tokens or 0) * price.output / price.per,
        "cached": cached * (price.input if price.cached is None else price.cached) / price.per,
    }


class Ledger:
    """USD spent: the saved total of all processes, and what this process has not saved yet."""

    def __init__(self) -> None:
        self._saved: Spending = {}
        self._unsaved: Spending = {}

    def spent(self, day: int, subject: str) -> float:
        """Return the known spending of a subject on a day, in USD."""
        return self._saved.get((day, subject), 0.0) + self._unsaved.get((day, subject), 0.0)

    def add(self, day: int, subject: str, usd: float) -> None:
        """Add USD to a subject's spending."""
        self._unsaved[day, subject] = self._unsaved.get((day, subject), 0.0) + usd

    def unsaved(self) -> Spending:
        """Return a copy of the spending that is not saved yet."""
        return dict(self._unsaved)

    def saved(self, written: Mapping[tuple[int, str], float], known: Spending) -> None:
        """Record that `written` was saved and that the saved total is now `known`."""
        for entry, usd in written.items():
            if (left := self._unsaved[entry] - usd) > 0:
                self._unsaved[entry] = left
            else:
                del self._unsaved[entry]
        self._saved = known

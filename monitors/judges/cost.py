"""Who pays for a call: an observer that passes everything on and also writes the bill of the app and metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from monitors.config import Price
from monitors.judges import SPEND, Observer


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one answered call cost, and on whose behalf it was made (empty: nobody's in particular)."""

    app: str
    metric: str
    judge_model: str
    input_tokens: int
    output_tokens: int
    usd: float


Charge: TypeAlias = Callable[[Bill], None]


class Billing(Observer):
    """An Observer: tells `observer` everything, and `charges` each call's bill at the moment it is paid.

    App and metric are those of the tab that is open (`Spend.app`, `Spend.metric`), so that also a call whose asker has
    given up meanwhile is on somebody's bill.
    """

    def __init__(self, observer: Observer, *charges: Charge) -> None:
        self._observer = observer
        self._charges = charges

    def judged(self, model: str, seconds: float, input_tokens: int, output_tokens: int, usd: float) -> None:
        self._observer.judged(model, seconds, input_tokens, output_tokens, usd)
        tab = SPEND.get()
        bill = Bill(
            app=tab.app if tab is not None else "",
            metric=tab.metric if tab is not None else "",
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


class Prices:
    """Prices by model pattern (`*`, `?`, `[...]`).

    A name without any of these beats every pattern; of several patterns that fit, the longest one counts.

    >>> prices = Prices({"gpt-*": Price(input=2.0, output=8.0), "gpt-6-luna*": Price(input=0.1, output=0.5)})
    >>> prices.of("gpt-6-luna-mini").input, prices.of("gpt-5").input, prices.of("other")
    (0.1, 2.0, None)
    """

    def __init__(self, table: Mapping[str, Price]) -> None:
        self._exact = {name: price for name, price in table.items() if not any(one in name for one in "*?[")}
        patterns = [(name, price) for name, price in table.items() if name not in self._exact]
        self._patterns = sorted(patterns, key=lambda entry: (-len(entry[0]), entry[0]))

    def of(self, model: str) -> Price | None:
        """The model's price, if it has one."""
        if (price := self._exact.get(model)) is not None:
            return price
        return next((price for pattern, price in self._patterns if fnmatchcase(model, pattern)), None)

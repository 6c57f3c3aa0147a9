"""Who pays for a call: an observer that passes everything on and also writes the bill of the app and metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

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


class Billing:
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

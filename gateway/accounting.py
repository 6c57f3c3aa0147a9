"""What each exchange cost and who pays for it, once its usage is known; off the request path."""

from __future__ import annotations

from gateway.exchange import Exchange
from gateway.instruments import Instruments
from gateway.limits import Gate, Holder
from gateway.prices import Prices


class Accounting:
    """Counts tokens and USD of exchanges. An answer from the cache used nothing and costs nothing."""

    def __init__(self, prices: Prices, gate: Gate | None, instruments: Instruments) -> None:
        self.prices = prices
        self._gate = gate
        self._instruments = instruments

    def account(self, exchange: Exchange) -> None:
        """Count one exchange; without usage there is nothing to count."""
        usage = exchange.response.usage
        if usage is None or exchange.cached:
            return
        self._instruments.usage(exchange)
        # Anthropic counts cached tokens apart from the input; everybody else counts them as part of it.
        costs = self.prices.costs(exchange.model, usage, cached_apart=exchange.request.route == "messages")
        if costs is not None:
            self._instruments.cost(exchange.app, exchange.model, costs)
        if self._gate is not None:
            paid = sum(costs.values()) if costs is not None else None
            self._gate.charge(Holder(exchange.key_id, exchange.app), usage.input_tokens, usage.output_tokens, paid)

"""How often a token may be guessed from one address. Pure: the time is told."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

ATTEMPTS, ATTEMPTS_S = 5, 300.0
KNOWN_S = 86_400.0
MAX_ADDRESSES = 10_000


class Attempts:
    """Counts wrong tokens by address: after five, the next may come when the first is five minutes old.

    Addresses of one IPv6 network count as one, because its owner has as many as they like. An address from which the
    right token came within a day is known: nobody who shares it, behind a proxy, can shut out who has the token.
    """

    def __init__(self) -> None:
        self._failed: OrderedDict[str, list[float]] = OrderedDict()
        self._known: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str, now: float) -> float:
        """How long this address has to wait; 0 when it may try."""
        recent = self._recent(address, now)
        return recent[0] + ATTEMPTS_S - now if len(recent) >= ATTEMPTS else 0.0

    def failed(self, address: str, now: float) -> None:
        """Count a wrong token."""
        key = network(address)
        self._failed[key] = [*self._recent(address, now), now][-ATTEMPTS:]
        _keep_latest(self._failed, key)

    def passed(self, address: str, now: float) -> None:
        """Note that the right token came from there."""
        key = network(address)
        self._known[key] = now
        _keep_latest(self._known, key)

    def is_known(self, address: str, now: float) -> bool:
        """Whether the right token came from there within a day."""
        return now - self._known.get(network(address), -KNOWN_S) < KNOWN_S

    def _recent(self, address: str, now: float) -> list[float]:
        return [at for at in self._failed.get(network(address), ()) if now - at < ATTEMPTS_S]


def network(address: str) -> str:
    """The address, or the /64 network of an IPv6 one.

    >>> network("192.0.2.1"), network("2001:db8::1:2"), network("")
    ('192.0.2.1', '2001:db8::', '')
    """
    try:
        known = ip_address(address)
    except ValueError:
        return address
    if isinstance(known, IPv6Address) and known.ipv4_mapped is None:
        return str(IPv6Address(int(known) >> 64 << 64))
    return str(known)


def _keep_latest(kept: OrderedDict[str, list[float]] | OrderedDict[str, float], key: str) -> None:
    kept.move_to_end(key)
    while len(kept) > MAX_ADDRESSES:
        kept.popitem(last=False)

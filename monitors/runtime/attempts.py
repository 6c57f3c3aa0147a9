"""Wrong admin tokens by network, and how they slow down the next ones. Pure: the caller passes the time."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import TypeVar

ATTEMPTS, ATTEMPTS_S = 5, 300.0
"""Wrong tokens from one network that are answered with 401 before the answer is 429, and the window they count in."""
LONG_TOKEN, LEAST_DISTINCT = 16, 8
"""Characters, and different characters, from which on a token cannot be found by trying."""
CHECK_S, MAX_CHECK_WAIT_S = 2.0, 4.0
"""Time between two checks of a short token for one network after too many wrong ones, and how long one may wait."""
MAX_ADDRESSES = 10_000
_Value = TypeVar("_Value")


class TooManyGuessesError(Exception):
    """The network has sent too many wrong tokens; the next check is in `retry_after_s` seconds."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many wrong tokens")
        self.retry_after_s = retry_after_s


class Attempts:
    """Counts wrong tokens by network: an IPv4 address, or an IPv6 /64, whose owner has all its addresses.

    `paced` is for a short token: after five wrong tokens a network gets one check every 2 s.
    """

    def __init__(self, *, paced: bool) -> None:
        self._paced = paced
        self._failed: OrderedDict[str, list[float]] = OrderedDict()
        self._next: OrderedDict[str, float] = OrderedDict()

    def reserve(self, address: str, now: float) -> float:
        """Reserve the network's next check; return how long to wait for it. Raises TooManyGuessesError."""
        key = network(address)
        if not self._paced or len(self._recent(key, now)) < ATTEMPTS:
            return 0.0
        at = max(now, self._next.get(key, now))
        if at - now > MAX_CHECK_WAIT_S:
            raise TooManyGuessesError(at - now)
        _keep_latest(self._next, key, at + CHECK_S)
        return at - now

    def failed(self, address: str, now: float) -> None:
        """Count a wrong token. Raises TooManyGuessesError when there were too many before it."""
        key = network(address)
        recent = self._recent(key, now)
        if len(recent) >= ATTEMPTS:
            raise TooManyGuessesError(CHECK_S if self._paced else recent[0] + ATTEMPTS_S - now)
        _keep_latest(self._failed, key, [*recent, now])

    def _recent(self, key: str, now: float) -> list[float]:
        return [at for at in self._failed.get(key, ()) if now - at < ATTEMPTS_S]


def is_long(token: str) -> bool:
    """Whether a token is long enough to withstand guessing, if it is random.

    >>> is_long("hunter2"), is_long("a" * 40), is_long("0f3c9a7be1d24586")
    (False, False, True)
    """
    return len(token) >= LONG_TOKEN and len(set(token)) >= LEAST_DISTINCT


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


def _keep_latest(kept: OrderedDict[str, _Value], key: str, value: _Value) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > MAX_ADDRESSES:
        kept.popitem(last=False)

"""The gate: limits of keys and apps on requests and tokens per minute, USD per day and concurrent requests."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from gateway.access.account import Account, Fleet, OverLimit, Quote
from gateway.access.concurrency import ConcurrencyLimiter
from gateway.access.keys import Keyring, check_model, without_credentials
from gateway.access.prices import Ledger
from gateway.config import AppLimits, Keys, Limits
from gateway.http.errors import Rejection
from gaugeway.exchange import Headers
from gaugeway.storage.documents import Draw, SharedLevels, Spending
from gaugeway.storage.keys import Quota, VirtualKey

DAY_S = 86400
MAX_APPS = 1000
OTHER_APPS = "app-other"
NOTHING = Quote()
MOST_CHARGED_TOKENS = 10**9
_DEFAULT_APP = "default"
_PURGE_EVERY_S = 10.0
_UNMETERED = "No price is known for this path and a USD budget applies. Set limits.unmetered_usd to allow it."
_TOLD_AT_ONCE = 250


class Holder(NamedTuple):
    """The key and app that a request is charged to."""

    key_id: str | None
    app: str


class _Charge(NamedTuple):
    """Tokens, those of them that only the upstream's report shows, and USD of a request."""

    holder: Holder
    tokens: int
    hidden: int
    usd: float
    route: str


class Permit:
    """An admitted request: the accounts it is charged to, and the headers for the upstream. `release` it at the end.

    `app` is the app that the request counts for: the key's, where keys are required. `key_id` is None without keys.
    """

    __slots__ = ("_quote", "_turnstile", "accounts", "app", "headers", "holder", "key_id")

    def __init__(
        self,
        holder: Holder,
        headers: Headers,
        turnstile: ConcurrencyLimiter,
        accounts: tuple[Account, ...] = (),
        quote: Quote = NOTHING,
    ) -> None:
        self.accounts = accounts
        self._quote: Quote | None = quote
        for account in accounts:
            account.reserve(quote)
        self.holder = holder
        self.key_id, self.app = holder
        self.headers = headers
        self._turnstile: ConcurrencyLimiter | None = turnstile

    def release(self) -> None:
        """Leave the limiters and release the reservation; idempotent."""
        self.leave()
        self.free()

    def leave(self) -> None:
        """Leave the limiters, but keep the reservation."""
        turnstile, self._turnstile = self._turnstile, None
        if turnstile is not None:
            turnstile.leave()

    @property
    def has_budget(self) -> bool:
        """Whether one of the accounts has a daily budget."""
        return any(account.has_budget for account in self.accounts)

    def free(self) -> None:
        """Release the reservation; idempotent."""
        quote, self._quote = self._quote, None
        if quote is not None:
            for account in self.accounts:
                account.free(quote)


class Gate:
    """Admits or rejects requests. Not thread-safe, except `charge`.

    Without limit sync each process enforces its share: rates and `max_concurrency` are divided by `workers`. With limit
    sync (`draws`, `hear`, `part`; every `every_s`) rates are whole, and `max_concurrency` is divided by the number of
    processes. Daily budgets are never divided: the spending of all processes is read every few seconds. Beyond
    `max_apps`, apps that only the client names share one account. `clock` is monotonic, `wall` is Unix time.
    `on_bounded` gets the route of each charge that was not taken whole.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        needs_key: bool = False,
        workers: int = 1,
        every_s: float = 1.0,
        max_apps: int = MAX_APPS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        on_bounded: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._limits = limits
        self.needs_key = needs_key
        self._fleet = Fleet(processes=workers, every_s=every_s)
        self._max_apps = max_apps
        self._clock, self._wall = clock, wall
        self._keyring: Keyring | None = None
        self.keys_changed = asyncio.Event()
        self._accounts: dict[str, Account] = {}
        self._stirred: dict[str, Account] = {}
        self._ledger = Ledger()
        self._charges: deque[_Charge] = deque()
        self._on_bounded = on_bounded
        self._purged_at = -math.inf

    def identify(self, headers: Headers) -> VirtualKey | None:
        """Return a request's key; None where none is required. Raises Rejection: 401, or 503 before keys are loaded.

        It needs only the headers: called before the body is read, it keeps unauthorised clients from sending one.
        """
        if not self.needs_key:
            return None
        if self._keyring is None:
            headers = [(b"retry-after", b"1")]
            raise Rejection(503, "keys_unavailable", "Gaugeway cannot read its keys yet.", headers=headers)
        return self._keyring.check(headers, self._wall())

    def owner(self, headers: Headers) -> str | None:
        """Return the app of the key that a request presents, even if that was revoked or has expired.

        None where no key is needed, or it is not known.
        """
        key = self._keyring.find(headers) if self.needs_key and self._keyring is not None else None
        return None if key is None else key.app

    async def admit(
        self,
        headers: Headers,
        model: str | None,
        app: str | None,
        *,
        reading: bool = False,
        quote: Quote = NOTHING,
        metered: bool = True,
    ) -> Permit:
        """Return a permit once the request is admitted. Raises Rejection as `identify` does, and with 403 and 429.

        `headers` have lower-case names; `app` is the app that the client named. `reading` says that the request uses no
        model (GET and HEAD, but no WebSocket), so that a restricted key may make it. `quote` is reserved until
        `Permit.free`. Requests that are not `metered` are refused where USD a day are limited, unless they have a
        price (`unmetered_usd`).
        """
        holder, account, accounts = self._admissible(headers, model, app, reading=reading, metered=metered)
        if not await account.turnstile.enter(account.queue_s):
            raise account.crowded()
        try:
            self._check(accounts)
        except OverLimit:
            account.turnstile.leave()
            raise
        return self._permit(headers, holder, account, accounts, quote)

    def admit_at_once(
        self, headers: Headers, model: str | None, app: str | None, *, quote: Quote = NOTHING, metered: bool = True
    ) -> Permit | None:
        """Return a permit as `admit` does; None, with nothing counted, when the request would have to wait.

        Raises Rejection as `admit` does, but for the concurrency limit.
        """
        holder, account, accounts = self._admissible(headers, model, app, reading=False, metered=metered)
        if not account.turnstile.enter_at_once():
            return None
        return self._permit(headers, holder, account, accounts, quote)

    def _admissible(
        self, headers: Headers, model: str | None, app: str | None, *, reading: bool, metered: bool
    ) -> tuple[Holder, Account, tuple[Account, ...]]:
        """Check everything but the concurrency limit, and count nothing. Raises Rejection."""
        if (key := self.identify(headers)) and not reading:
            check_model(key, model)
        holder = Holder(key.id, key.app) if key else Holder(None, app or _DEFAULT_APP)
        self._settle()
        account = self._app_account(holder)
        accounts = (self._key_account(key), account) if key else (account,)
        if not metered and self._limits.unmetered_usd is None and any(charged.has_budget for charged in accounts):
            raise Rejection(403, "route_not_allowed", _UNMETERED)
        self._check(accounts)
        return holder, account, accounts

    def _permit(
        self, headers: Headers, holder: Holder, account: Account, accounts: tuple[Account, ...], quote: Quote
    ) -> Permit:
        for charged in accounts:
            charged.count_request(self._clock())
            self._stirred[charged.subject] = charged
        sent = without_credentials(headers) if holder.key_id is not None else headers
        return Permit(holder, sent, account.turnstile, accounts, quote)

    def recheck(self, permit: Permit) -> None:
        """Raise Rejection when a connection must end: its key was revoked or expired, or a budget is spent."""
        wall = self._wall()
        if permit.key_id is not None and self._keyring is not None:
            self._keyring.check_id(permit.key_id, wall)
        self._settle()
        for account in permit.accounts:
            account.check_budget(self._ledger.spent(int(wall // DAY_S), account.subject), DAY_S - wall % DAY_S)

    @property
    def unmetered_usd(self) -> float | None:
        """The configured cost in USD of a request whose answer reports no usage."""
        return self._limits.unmetered_usd

    def charge(
        self,
        to: Permit | Holder,
        input_tokens: int | None,
        output_tokens: int | None,
        usd: float | None,
        *,
        visible: int = MOST_CHARGED_TOKENS,
        route: str = "",
    ) -> None:
        """Charge a request's usage. Thread-safe: it is applied on the event loop.

        Tokens beyond `visible`, which nothing but the upstream's report shows, leave at most MAX_DEBT_S of debt.
        """
        holder = to.holder if isinstance(to, Permit) else to
        tokens = min((input_tokens or 0) + (output_tokens or 0), MOST_CHARGED_TOKENS)
        self._charges.append(_Charge(holder, tokens, max(tokens - visible, 0), usd or 0.0, route))

    def use(self, limits: Limits) -> None:
        """Replace the limits; the usage so far stays counted."""
        self._limits = limits
        now = self._clock()
        for account in self._accounts.values():
            if not account.subject.startswith("key:"):
                self._grant(account, now)

    def use_keys(self, keyring: Keyring) -> None:
        """Replace the keys."""
        self._keyring = keyring
        changed, self.keys_changed = self.keys_changed, asyncio.Event()
        changed.set()
        for name in [name for name in self._accounts if name.startswith("key:") and name[4:] not in keyring]:
            del self._accounts[name]

    def unsaved(self) -> Spending:
        """Return the spending that is not saved yet."""
        self._settle()
        return self._ledger.unsaved()

    def saved(self, written: Mapping[tuple[int, str], float], known: Spending) -> None:
        """Record that `written` was saved and that all processes together have spent `known`."""
        self._ledger.saved(written, known)

    def rounds(self) -> int:
        """Return how many batches of `draws` cover all accounts."""
        return max(math.ceil(len(self._stirred) / _TOLD_AT_ONCE), 1)

    def draws(self) -> list[Draw]:
        """Return the draws of some active accounts, in turn, for the other processes.

        Only of some: this runs between requests, and thousands of accounts would delay them.
        """
        self._settle()
        now = self._clock()
        draws: list[Draw] = []
        for name in list(islice(self._stirred, _TOLD_AT_ONCE)):
            account = self._stirred.pop(name)
            if account is self._accounts.get(name) and (some := list(account.draws(now))):
                draws += some
                self._stirred[name] = account
        return draws

    def hear(self, draws: Sequence[Draw], heard: SharedLevels) -> None:
        """Apply the levels after `draws` were synced, and the number of processes that share them."""
        now = self._clock()
        self._regroup(heard.processes, together=True, now=now)
        for draw, level in zip(draws, heard.levels, strict=True):
            if (account := self._accounts.get(draw.subject)) is not None:
                account.hear(draw, level, now)

    def part(self) -> None:
        """Enforce this process's share of the limits until the sync works again."""
        self._regroup(self._fleet.processes, together=False, now=self._clock())

    def _regroup(self, processes: int, *, together: bool, now: float) -> None:
        fleet = self._fleet
        if (fleet.processes, fleet.together) == (processes, together):
            return
        fleet.processes, fleet.together = max(processes, 1), together
        for account in self._accounts.values():
            account.follow(now)
            if not account.subject.startswith("key:"):
                self._grant(account, now)

    def today(self) -> int:
        """Return the number of this UTC day."""
        return int(self._wall() // DAY_S)

    def _check(self, accounts: tuple[Account, ...]) -> None:
        now, wall = self._clock(), self._wall()
        for account in accounts:
            account.check(self._ledger.spent(int(wall // DAY_S), account.subject), now, DAY_S - wall % DAY_S)

    def _settle(self) -> None:
        now, today = self._clock(), self.today()
        while self._charges:
            holder, tokens, hidden, usd, route = self._charges.popleft()
            account = self._app_account(holder)
            payers = [account.subject]
            whole = account.charge(tokens, hidden, now)
            self._stirred[account.subject] = account
            if holder.key_id is not None:
                payers.append(f"key:{holder.key_id}")
                if (key_account := self._accounts.get(payers[-1])) is not None:
                    whole &= key_account.charge(tokens, hidden, now)
                    self._stirred[key_account.subject] = key_account
            if not whole:
                self._on_bounded(route)
            if usd > 0:
                for subject in payers:
                    self._ledger.add(today, subject, usd)

    def _key_account(self, key: VirtualKey) -> Account:
        subject = f"key:{key.id}"
        if (account := self._accounts.get(subject)) is None:
            account = Account(subject, key.quota, fleet=self._fleet, now=self._clock())
            self._accounts[subject] = account
        return account

    def _app_account(self, holder: Holder) -> Account:
        subject = f"app:{holder.app}"
        if (account := self._accounts.get(subject)) is not None:
            return account
        # Without keys clients choose app names freely: beyond a number they share one account.
        if holder.key_id is None and holder.app not in self._limits.apps and not self._has_room():
            subject = OTHER_APPS
            if (account := self._accounts.get(subject)) is not None:
                return account
        account = self._accounts[subject] = Account(subject, Quota(), fleet=self._fleet, now=self._clock())
        self._grant(account, self._clock())
        return account

    def _grant(self, account: Account, now: float) -> None:
        limits = limits_of(self._limits, account.subject.removeprefix("app:"))
        quota = Quota(
            requests_per_min=limits.requests_per_min,
            tokens_per_min=limits.tokens_per_min,
            usd_per_day=limits.usd_per_day,
        )
        account.grant(quota, now)
        at_once = limits.max_concurrency
        account.max_concurrency = at_once
        account.turnstile.resize(None if at_once is None else max(at_once // self._fleet.processes, 1))
        account.queue_s = limits.queue_s or 0.0

    def _has_room(self) -> bool:
        now = self._clock()
        if len(self._accounts) >= self._max_apps and now - self._purged_at >= _PURGE_EVERY_S:
            self._purged_at = now
            today = self.today()
            self._accounts = {
                name: account
                for name, account in self._accounts.items()
                if not account.is_idle(now) or self._ledger.spent(today, name)
            }
        return len(self._accounts) < self._max_apps


def limits_of(limits: Limits, app: str) -> AppLimits:
    """Return the limits of an app: its own table, with `[limits]` as defaults."""
    own = limits.apps.get(app, AppLimits())
    names = AppLimits.__struct_fields__
    return AppLimits(**{name: getattr(limits if getattr(own, name) is None else own, name) for name in names})


def needs_gate(keys: Keys, limits: Limits) -> bool:
    """Whether there is anything to enforce."""
    return keys.enabled or any(
        getattr(table, name) is not None
        for table in (limits, *limits.apps.values())
        for name in AppLimits.__struct_fields__
        if name != "queue_s"
    )

"""How much each key and each app may use: requests and tokens a minute, USD a day, requests at once."""

from __future__ import annotations

import asyncio
import math
import time
from asyncio import CancelledError, Future
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from gateway.config import AppLimits, Limits
from gateway.errors import Rejection
from gateway.exchange import Headers
from gateway.keys import Keyring, Quota, VirtualKey, check_model, without_credentials
from gateway.prices import Ledger, Spending

DAY_S = 86400
MAX_APPS = 1000
OTHER_APPS = "app-other"
_DEFAULT_APP = "default"
_MINUTE_S = 60.0
_PURGE_EVERY_S = 10.0


class OverLimit(Rejection):
    """429, with the time after which to come again. `type` is OpenAI's word for what ran out."""

    def __init__(self, kind: str, message: str, wait_s: float, *, retry: bool = True) -> None:
        headers = [
            (b"retry-after", str(math.ceil(wait_s)).encode()),
            (b"retry-after-ms", str(math.ceil(wait_s * 1000)).encode()),
        ]
        if not retry:
            headers.append((b"x-should-retry", b"false"))
        super().__init__(429, "rate_limit_exceeded", message, headers=headers)
        self.type = kind
        self.wait_s = wait_s


class TokenBucket:
    """Fills at `per_min` a minute up to `burst`; taking more than there is leaves a debt. `now` never goes back."""

    def __init__(self, per_min: float, burst: float, now: float) -> None:
        self._rate = per_min / _MINUTE_S
        self._burst = self._level = burst
        self._at = now

    def level(self, now: float) -> float:
        """Return what is there; negative for a debt."""
        self._level = min(self._burst, self._level + max(now - self._at, 0.0) * self._rate)
        self._at = max(self._at, now)
        return self._level

    def wait_s(self, now: float) -> float:
        """Return in how many seconds there will be a whole one; 0 when there is."""
        return max(1.0 - self.level(now), 0.0) / self._rate

    def take(self, amount: float, now: float) -> None:
        """Take `amount`, whether it is there or not."""
        self._level = self.level(now) - amount

    def is_full(self, now: float) -> bool:
        """Whether nothing was taken for long enough to forget it."""
        return self.level(now) >= self._burst

    def retune(self, per_min: float, burst: float, now: float) -> None:
        """Go on with another rate."""
        self._level = min(self.level(now), burst)
        self._rate, self._burst = per_min / _MINUTE_S, burst


class Turnstile:
    """Lets `limit` in at once (None: any number); the others wait in the order in which they came. One event loop."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._waiting: deque[Future[bool]] = deque()
        self.inside = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def enter(self, wait_s: float) -> bool:
        """Return True once inside, False when the turn did not come within `wait_s`."""
        if self._is_free() and not self._waiting:
            self.inside += 1
            return True
        if wait_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        turn: Future[bool] = loop.create_future()
        self._waiting.append(turn)
        timer = loop.call_later(wait_s, self._give_up, turn)
        try:
            return await turn
        except CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._waiting.remove(turn)
            elif turn.result():  # the turn came in the same moment in which the client left
                self.leave()
            raise
        finally:
            timer.cancel()

    def leave(self) -> None:
        """Make room for the next one."""
        self.inside -= 1
        self._let_in()

    def resize(self, limit: int | None) -> None:
        """Let more or fewer in from now on."""
        self._limit = limit
        self._let_in()

    def _is_free(self) -> bool:
        return self._limit is None or self.inside < self._limit

    def _let_in(self) -> None:
        while self._waiting and self._is_free():
            turn = self._waiting.popleft()
            if not turn.done():  # it is when the client left a moment ago
                self.inside += 1
                turn.set_result(True)

    def _give_up(self, turn: Future[bool]) -> None:
        if not turn.done():
            self._waiting.remove(turn)
            turn.set_result(False)


class Account:
    """What one key or one app may use, and has used in this process. `share` is this process's part of the rates."""

    def __init__(self, subject: str, quota: Quota, *, share: float, now: float) -> None:
        self.subject = subject
        self.turnstile = Turnstile(None)
        self.queue_s = 0.0
        self._share = share
        self._usd_per_day: float | None = None
        self._requests: TokenBucket | None = None
        self._tokens: TokenBucket | None = None
        self.grant(quota, now)

    def grant(self, quota: Quota, now: float) -> None:
        """Set what may be used from now on; what was used stays used."""
        self._requests = self._bucket(self._requests, quota.requests_per_min, now)
        self._tokens = self._bucket(self._tokens, quota.tokens_per_min, now)
        self._usd_per_day = quota.usd_per_day

    def check(self, spent_usd: float, now: float, day_left_s: float) -> None:
        """Raise OverLimit when one more request may not come in."""
        whose = self.subject.replace(":", " ", 1)
        for bucket, kind in ((self._requests, "requests"), (self._tokens, "tokens")):
            if bucket is not None and (wait_s := bucket.wait_s(now)) > 0:
                raise OverLimit(kind, f"Rate limit reached for {whose}: {kind} per minute.", wait_s)
        if self._usd_per_day is not None and spent_usd >= self._usd_per_day:
            message = f"The budget of {whose} for today (UTC) is spent."
            raise OverLimit("insufficient_quota", message, day_left_s, retry=False)

    def count_request(self, now: float) -> None:
        """Count a request that came in."""
        if self._requests is not None:
            self._requests.take(1.0, now)

    def charge(self, tokens: int, now: float) -> None:
        """Count tokens; they may run into a debt."""
        if self._tokens is not None:
            self._tokens.take(tokens, now)

    def is_idle(self, now: float) -> bool:
        """Whether nothing would be lost by forgetting it."""
        full = all(bucket is None or bucket.is_full(now) for bucket in (self._requests, self._tokens))
        return full and not self.turnstile.inside and not self.turnstile.waiting

    def _bucket(self, bucket: TokenBucket | None, per_min: float | None, now: float) -> TokenBucket | None:
        if per_min is None or math.isinf(per_min):
            return None
        rate, burst = per_min * self._share, max(per_min * self._share, 1.0)
        if bucket is None:
            return TokenBucket(rate, burst, now)
        bucket.retune(rate, burst, now)
        return bucket


class Holder(NamedTuple):
    """Who pays for a request."""

    key_id: str | None
    app: str


class Permit:
    """A request that was let in: for whom, with the headers that may go upstream. `release` it when it is over.

    `app` is what the request counts for: the key's, where keys are asked for. `key_id` is None without keys.
    """

    __slots__ = ("_turnstile", "app", "headers", "holder", "key_id")

    def __init__(self, holder: Holder, headers: Headers, turnstile: Turnstile) -> None:
        self.holder = holder
        self.key_id, self.app = holder
        self.headers = headers
        self._turnstile: Turnstile | None = turnstile

    def release(self) -> None:
        """Make room for the next one; doing so twice changes nothing."""
        turnstile, self._turnstile = self._turnstile, None
        if turnstile is not None:
            turnstile.leave()


class Gate:
    """Lets requests in or refuses them. On the event loop alone, but for `charge`, which any thread may call.

    Rates and `max_concurrency` are divided by `workers`, since each process counts for itself; USD a day are not: what
    all of them spent is read from the file every few seconds. Beyond `max_apps`, apps that only the client vouches for
    share one account. `clock` is monotonic, `wall` is Unix time.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        needs_key: bool = False,
        workers: int = 1,
        max_apps: int = MAX_APPS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self.needs_key = needs_key
        self._workers = workers
        self._max_apps = max_apps
        self._clock, self._wall = clock, wall
        self._keyring: Keyring | None = None
        self._accounts: dict[str, Account] = {}
        self._ledger = Ledger()
        self._charges: deque[tuple[Holder, int, float]] = deque()
        self._purged_at = -math.inf

    def identify(self, headers: Headers) -> VirtualKey | None:
        """Return a request's key; None where none is asked for. Raises Rejection: 401, or 503 before keys are known.

        Needs the headers only: calling it before a body is read keeps strangers from sending one.
        """
        if not self.needs_key:
            return None
        if self._keyring is None:
            headers = [(b"retry-after", b"1")]
            raise Rejection(503, "keys_unavailable", "Gaugeway cannot read its keys yet.", headers=headers)
        return self._keyring.check(headers, self._wall())

    async def admit(self, headers: Headers, model: str | None, app: str | None, *, reading: bool = False) -> Permit:
        """Return a permit once the request may go on. Raises Rejection as `identify` does, and with 403 and 429.

        `headers` have lower-case names; `app` is what the client said. `reading` says that the request uses no model
        (GET and HEAD, but no WebSocket), so that a key for certain models may make it.
        """
        key = self.identify(headers)
        if key and not reading:
            check_model(key, model)
        holder = Holder(key.id, key.app) if key else Holder(None, app or _DEFAULT_APP)
        self._settle()
        account = self._app_account(holder)
        accounts = (self._key_account(key), account) if key else (account,)
        self._check(accounts)
        if not await account.turnstile.enter(account.queue_s):
            raise OverLimit("requests", f"Too many requests of app {holder.app} at once.", 1.0)
        try:
            self._check(accounts)
        except OverLimit:
            account.turnstile.leave()
            raise
        for one in accounts:
            one.count_request(self._clock())
        return Permit(holder, without_credentials(headers) if key else headers, account.turnstile)

    def charge(
        self, to: Permit | Holder, input_tokens: int | None, output_tokens: int | None, usd: float | None
    ) -> None:
        """Count what a request has used, once that is known. From any thread: it is settled on the event loop."""
        holder = to.holder if isinstance(to, Permit) else to
        self._charges.append((holder, (input_tokens or 0) + (output_tokens or 0), usd or 0.0))

    def use(self, limits: Limits) -> None:
        """Apply other limits from now on; what was used stays used."""
        self._limits = limits
        now = self._clock()
        for account in self._accounts.values():
            if not account.subject.startswith("key:"):
                self._grant(account, now)

    def use_keys(self, keyring: Keyring) -> None:
        """Know these keys from now on."""
        self._keyring = keyring
        gone = [name for name in self._accounts if name.startswith("key:") and name[4:] not in keyring]
        for name in gone:
            del self._accounts[name]

    def unsaved(self) -> Spending:
        """Return the spending that is not in the file yet."""
        self._settle()
        return self._ledger.unsaved()

    def saved(self, written: Mapping[tuple[int, str], float], known: Spending) -> None:
        """Take note that `written` is in the file, which says `known` of all processes together."""
        self._ledger.saved(written, known)

    def today(self) -> int:
        """Return the number of this UTC day."""
        return int(self._wall() // DAY_S)

    def _check(self, accounts: tuple[Account, ...]) -> None:
        now, wall = self._clock(), self._wall()
        for account in accounts:
            spent = self._ledger.spent(int(wall // DAY_S), account.subject)
            account.check(spent, now, DAY_S - wall % DAY_S)

    def _settle(self) -> None:
        now, today = self._clock(), self.today()
        while self._charges:
            holder, tokens, usd = self._charges.popleft()
            account = self._app_account(holder)
            payers = [account.subject]
            account.charge(tokens, now)
            if holder.key_id is not None:
                payers.append(f"key:{holder.key_id}")
                if (key_account := self._accounts.get(payers[-1])) is not None:
                    key_account.charge(tokens, now)
            if usd > 0:
                for subject in payers:
                    self._ledger.add(today, subject, usd)

    def _key_account(self, key: VirtualKey) -> Account:
        subject = f"key:{key.id}"
        if (account := self._accounts.get(subject)) is None:
            account = Account(subject, key.quota, share=1 / self._workers, now=self._clock())
            self._accounts[subject] = account
        return account

    def _app_account(self, holder: Holder) -> Account:
        subject = f"app:{holder.app}"
        if (account := self._accounts.get(subject)) is not None:
            return account
        # Without keys anybody may think up apps: beyond a number they share one account.
        if holder.key_id is None and holder.app not in self._limits.apps and not self._has_room():
            subject = OTHER_APPS
            if (account := self._accounts.get(subject)) is not None:
                return account
        account = self._accounts[subject] = Account(subject, Quota(), share=1 / self._workers, now=self._clock())
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
        account.turnstile.resize(None if at_once is None else max(at_once // self._workers, 1))
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
    """Return what one app may use: its own table, and `[limits]` where that is silent."""
    own = limits.apps.get(app, AppLimits())
    names = AppLimits.__struct_fields__
    return AppLimits(**{name: getattr(limits if getattr(own, name) is None else own, name) for name in names})


def any_limit(limits: Limits) -> bool:
    """Whether there is anything to enforce; without it, and without keys, no Gate is needed."""
    return any(
        getattr(table, name) is not None
        for table in (limits, *limits.apps.values())
        for name in AppLimits.__struct_fields__
        if name != "queue_s"
    )

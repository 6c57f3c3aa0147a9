"""The judge's daily budget: spreads it over the day, and shares it between processes with one store."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

import msgspec

from gaugeway.storage.stores import StateStore
from monitors.statistics.weighted_mean import ExponentialDecay

DAY_S = 86_400.0
OTHER = "_other"
MOST_SLICES = 64
_SIGMAS = 2.0


class Spent(msgspec.Struct, frozen=True):
    """USD spent on a UTC day (days since 1970), with the debt of earlier days; stored for a restart.

    `unseen` counts as spent on top: the share of the budget for the part of the day before the account began.
    """

    day: int
    usd: float
    unseen: float = 0.0


class BudgetPacer:
    """Computes the factor for sampling rates with which about `usd_per_day` is spent in a UTC day.

    For every sample that might be judged, in order of arrival::

        factor = pacer.rate(now, slice)     # before the sample is drawn: a function of the past alone
        if keep(key, metric_rate * factor, salt): ...; pacer.observe(cost, now)

    As the factor does not depend on the draw, and is recorded with the evaluation, weighting by 1/rate stays unbiased.

    The remaining budget is spread evenly over the rest of the day; in the last `horizon_s` the next day's budget is
    included, so that the factor does not jump at midnight. Overspending reduces the next day's budget. The factor is
    this flow of money (USD a second) over the flow at factor 1, which is arrivals a second (averaged over `memory_s`;
    over `quick_s` where the two differ by more than chance) times the cost of a sample (averaged over
    `cost_memory_s`). A share `reserve` of the flow is spread evenly over the slices seen lately (64 at most), whatever
    was spent: so rare slices are judged at a higher rate, and no factor is 0.

    Several pacers share one budget when each is given the others' spending with `update_others`: the flow is divided in
    proportion to their traffic, so that all have the same factor, and debt in proportion to what each paid.

    Pure: `now` is Unix time and does not go back. Without `spent`, a pacer that starts within a day counts the part of
    the day before as fully spent, as it may have been before a restart; `resume` replaces this assumption.

    >>> pacer = BudgetPacer(10.0, spent=Spent(day=0, usd=0.0))
    >>> pacer.rate(0.0)
    1.0
    """

    def __init__(
        self,
        usd_per_day: float,
        *,
        reserve: float = 0.1,
        memory_s: float = 900.0,
        quick_s: float = 60.0,
        cost_memory_s: float = 7200.0,
        horizon_s: float = 3600.0,
        spent: Spent | None = None,
    ) -> None:
        if not (usd_per_day > 0.0 and 0.0 < reserve < 1.0):
            raise ValueError("usd_per_day is positive and reserve lies between 0 and 1")
        self._budget = usd_per_day
        self._reserve = reserve * usd_per_day / DAY_S
        self._memories = memory_s, quick_s
        self._horizon_s = horizon_s
        self._spent = spent
        self._load = _Load(*self._memories)
        self._cost, self._tried = ExponentialDecay(cost_memory_s), ExponentialDecay(cost_memory_s)
        self._slices: dict[str, _Load] = {}
        self._others_usd = self._others_wanted = 0.0

    def rate(self, now: float, slice_: str = "") -> float:
        """Return the factor, in (0, 1], for a sample of `slice_` that arrives now; the sample counts for later ones."""
        self._roll(now)
        name = self._known(slice_, now)
        factor = self._factor(now, self._slices[name])
        self._load.add(now)
        self._slices[name].add(now)
        self._tried.add(factor, now)
        return factor

    def lowest(self, now: float, prefix: str = "") -> float:
        """Return the lowest factor of the slices whose names begin with `prefix` and that were seen lately.

        Like `rate` it depends on the past alone. 1 if there is no such slice yet.
        """
        self._roll(now)
        common = self._share(self._flow(now), self._load, now)
        extra = self._reserve * self._part(now) / max(1, len(self._slices))
        loads = [load for name, load in self._slices.items() if name.startswith(prefix) or name == OTHER]
        return min((min(1.0, common + self._share(extra, load, now)) for load in loads), default=1.0)

    def observe(self, cost: float, now: float) -> None:
        """Add a cost in USD."""
        spent = self._roll(now)
        self._spent = Spent(spent.day, spent.usd + cost, spent.unseen)
        self._cost.add(cost, now)

    def spent(self, now: float) -> Spent:
        """Return what was spent on the day of `now`, with the debt of earlier days; store it for a restart."""
        return self._roll(now)

    def has_left(self, now: float) -> bool:
        """Whether some of the day's budget is left."""
        spent = self._roll(now)
        return self._budget - spent.usd - spent.unseen - self._others_usd > 0.0

    def wanted(self, now: float) -> float:
        """Return the USD a second that this pacer's traffic would cost at factor 1, for the other pacers."""
        return self._full(self._load, now)

    def resume(self, spent: Spent, now: float) -> None:
        """Continue from what was stored before a restart; costs observed since are added."""
        since = self._roll(now).usd
        self._spent = spent
        rolled = self._roll(now)
        self._spent = Spent(rolled.day, rolled.usd + since, rolled.unseen)

    def update_others(self, usd: float, wanted: float, now: float) -> None:
        """Set what all other pacers together paid on the day of `now` (USD), and what they want (USD a second)."""
        self._roll(now)
        self._others_usd, self._others_wanted = usd, wanted

    def _factor(self, now: float, slice_: _Load) -> float:
        extra = self._reserve * self._part(now) / len(self._slices)
        return min(1.0, self._share(self._flow(now), self._load, now) + self._share(extra, slice_, now))

    def _flow(self, now: float) -> float:
        """Return the USD a second for all traffic, without the reserve."""
        spent = self._roll(now)
        left_s = (spent.day + 1) * DAY_S - now
        borrowed = self._budget * max(0.0, self._horizon_s - left_s) / DAY_S
        left = self._budget - spent.usd - spent.unseen - self._others_usd
        flow = (left + borrowed) / max(left_s, self._horizon_s)
        return max(0.0, flow - self._reserve) * self._part(now)

    def _part(self, now: float) -> float:
        """Return the share of the budget that is for this pacer's traffic."""
        ours = self._full(self._load, now)
        return ours / (ours + self._others_wanted) if ours > 0.0 else 1.0

    def _share(self, flow: float, load: _Load, now: float) -> float:
        """Return the share of a load that `flow` USD a second pays for."""
        full = self._full(load, now)
        return min(1.0, flow / full) if full > 0.0 else 1.0

    def _full(self, load: _Load, now: float) -> float:
        """Return the USD a second that judging all of a load costs."""
        tried = self._tried.total(now)
        return load.per_s(now) * self._cost.total(now) / tried if tried > 0.0 else 0.0

    def _known(self, name: str, now: float) -> str:
        """Return the slice's name, or `_other` when there are too many; idle slices are dropped first."""
        if name not in self._slices:
            self._slices = {slice_name: load for slice_name, load in self._slices.items() if load.alive(now)}
            if len(self._slices) >= MOST_SLICES:
                name = OTHER
            self._slices.setdefault(name, _Load(*self._memories))
        return name

    def _roll(self, now: float) -> Spent:
        """Start the account of a new day when one has begun."""
        day = math.floor(now / DAY_S)
        if self._spent is None:
            self._spent = Spent(day, 0.0, self._budget * (now / DAY_S - day))
        elif day > self._spent.day:
            ours, paid = self._spent.usd, self._spent.usd + self._others_usd
            over = paid + self._spent.unseen - (day - self._spent.day) * self._budget
            owed = max(0.0, over) / paid if paid > 0.0 else 0.0
            self._spent = Spent(day, ours * owed)
            self._others_usd *= owed
        return self._spent


class _Load:
    """Arrivals a second."""

    def __init__(self, memory_s: float, quick_s: float) -> None:
        self._slow, self._quick = ExponentialDecay(memory_s), ExponentialDecay(quick_s)
        self._began: float | None = None

    def add(self, now: float) -> None:
        if self._began is None:
            self._began = now
        self._slow.add(1.0, now)
        self._quick.add(1.0, now)

    def alive(self, now: float) -> bool:
        """Whether anything came lately: within five time constants."""
        return self._slow.total(now) > math.exp(-5.0)

    def per_s(self, now: float) -> float:
        """Return the slow estimate, clipped to two standard deviations around the quick one."""
        if self._began is None:
            return 0.0
        slow, quick = self._estimate(self._slow, now), self._estimate(self._quick, now)
        spread = _SIGMAS * math.sqrt(max(quick, slow) / (2.0 * self._quick.tau_s))
        return min(max(slow, quick - spread), quick + spread)

    def _estimate(self, arrivals: ExponentialDecay, now: float) -> float:
        seen_s = max(now - (self._began or 0.0), self._quick.tau_s / 10.0)
        return arrivals.total(now) / (arrivals.tau_s * -math.expm1(-seen_s / arrivals.tau_s))


_log = logging.getLogger("gaugeway.judge")
PREFIX = "judge/spent/"
ALIVE_S = 60.0
"""Seconds without an update after which an account gets no further share; its spending still counts."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One process's spending on a UTC day (see `Spent`), and the USD a second it `wanted` at the Unix time `at`."""

    day: int
    usd: float
    unseen: float = 0.0
    wanted: float = 0.0
    at: float = 0.0


class BudgetSync:
    """Stores the account of one process, `replica`, and passes the accounts of the others to its pacer.

    The first tick resumes from this replica's stored account. If only others have one, this replica has spent nothing;
    if none has, the pacer's assumption stands (the part of the day before counts as spent). `clock` gives Unix time.
    """

    def __init__(
        self, state_store: StateStore, pacer: BudgetPacer, replica: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._states = state_store
        self._pacer = pacer
        self._key = PREFIX + replica
        self._clock = clock
        self._resumed = False
        self._written: tuple[bytes | None, bytes | None] = (None, None)
        self._warned: set[str] = set()

    async def tick(self) -> None:
        """Read the other accounts, then store this one. Raises what the state store raises; old values then stand."""
        states = await self._states.load()
        accounts = self._accounts(states)
        now = self._clock()
        if self._resumed:
            self._warn_of_namesake(states)
        else:
            self._resume(accounts, now)
        today = self._pacer.spent(now).day
        others = [account for key, account in accounts.items() if key != self._key and account.day == today]
        wanted = sum(account.wanted for account in others if abs(now - account.at) <= ALIVE_S)
        self._pacer.update_others(sum(account.usd for account in others), wanted, now)
        await self._save(now)

    def _resume(self, accounts: Mapping[str, Account], now: float) -> None:
        today = self._pacer.spent(now).day
        if (own := accounts.get(self._key)) is not None and own.day <= today:
            self._pacer.resume(Spent(own.day, own.usd, own.unseen), now)
        elif accounts:
            unseen = max((account.unseen for account in accounts.values() if account.day == today), default=0.0)
            self._pacer.resume(Spent(today, 0.0, unseen), now)
        self._resumed = True

    async def _save(self, now: float) -> None:
        spent = self._pacer.spent(now)
        account = Account(day=spent.day, usd=spent.usd, unseen=spent.unseen, wanted=self._pacer.wanted(now), at=now)
        self._written = self._written[1], msgspec.json.encode(account)
        await self._states.save({self._key: self._written[1] or b""})

    def _warn_of_namesake(self, states: Mapping[str, bytes]) -> None:
        """Warn when another process writes this account: each would overwrite the other's spending."""
        if (found := states.get(self._key)) is not None and found not in self._written:
            self._warn_once(f"another process uses the account {self._key}: give each process its own monitors.replica")

    def _accounts(self, states: Mapping[str, bytes]) -> dict[str, Account]:
        """Return the accounts that can be decoded."""
        found = {}
        for key, state in states.items():
            if key.startswith(PREFIX):
                try:
                    found[key] = msgspec.json.decode(state, type=Account)
                except msgspec.DecodeError:
                    self._warn_once(f"cannot read the stored account {key}; its spending is not counted")
        return found

    def _warn_once(self, problem: str) -> None:
        """Log a problem once: every tick meets it again."""
        if problem not in self._warned:
            self._warned.add(problem)
            _log.warning("%s", problem)

"""A budget of USD a day, spread over the day by lowering the sampling rate from past load."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

import msgspec

from monitors.statistics.decay import ExponentialDecay
from monitors.storage.stores import StateStore

DAY_S = 86_400.0
OTHER = "_other"
MOST_SLICES = 64
_SIGMAS = 2.0


class Spent(msgspec.Struct, frozen=True):
    """What a pacer must know again after a restart: what it paid on a UTC day, with what it owes from earlier ones.

    `unseen` is taken as spent on top: the share of the day that was over before anybody kept account of it.
    """

    day: int
    usd: float
    unseen: float = 0.0


class BudgetPacer:
    """Says by which factor sampling rates are to be multiplied, so that about `usd_per_day` is spent in a UTC day.

    For every sample that might be judged, in the order in which they come::

        factor = pacer.rate(now, slice)     # before the sample is drawn: a function of the past alone
        if keep(key, metric_rate * factor, salt): ...; pacer.observe(cost, now)

    As the factor does not depend on the draw, and is recorded with the evaluation, weighting by 1/rate stays unbiased.

    What is left of the budget is spread evenly over what is left of the day; in the last `horizon_s` the next day's
    budget is counted in, so that midnight is no edge. What a day overspent the next one saves. The factor is that flow
    of money over the flow at factor 1, which is arrivals a second (over `memory_s`; where `quick_s` differ by more than
    chance, those) times the cost of a sample (over `cost_memory_s`). A share `reserve` of the flow is not spread by
    traffic but evenly over the slices seen lately (64 at most), whatever was spent: so rare ones are judged more often
    than others, and no factor is ever 0.

    Several pacers share one budget when each `hear`s now and then what the others paid and want: the flow is divided in
    proportion to the traffic that each has to pay for, so that all have the same factor. What they overspent they save
    in proportion to what each paid.

    Pure: `now` is Unix time and does not go back. Without `spent` a pacer that starts within a day takes the day up to
    then as spent in full, as after a restart it may have been; `resume` tells it better.

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
        """The factor for a sample of `slice_` that comes now, in (0, 1]; its coming counts from the next one on."""
        self._roll(now)
        name = self._known(slice_, now)
        factor = self._factor(now, self._slices[name])
        self._load.add(now)
        self._slices[name].add(now)
        self._tried.add(factor, now)
        return factor

    def observe(self, cost: float, now: float) -> None:
        """Count USD that were paid."""
        spent = self._roll(now)
        self._spent = Spent(spent.day, spent.usd + cost, spent.unseen)
        self._cost.add(cost, now)

    def peek(self, now: float) -> float:
        """The factor of a slice never seen, apart from its reserve: for a gauge."""
        self._roll(now)
        return self._share(self._flow(now), self._load, now)

    def spent(self, now: float) -> Spent:
        """What was spent on the day of `now`, with what earlier days overspent; to be kept for a restart."""
        return self._roll(now)

    def has_left(self, now: float) -> bool:
        """Whether something of the day's budget is left."""
        spent = self._roll(now)
        return self._budget - spent.usd - spent.unseen - self._others_usd > 0.0

    def wanted(self, now: float) -> float:
        """USD a second that this pacer's traffic would cost at factor 1; for the others to hear."""
        return self._full(self._load, now)

    def resume(self, spent: Spent, now: float) -> None:
        """Go on from what was kept before a restart; what was observed since then is added."""
        since = self._roll(now).usd
        self._spent = spent
        rolled = self._roll(now)
        self._spent = Spent(rolled.day, rolled.usd + since, rolled.unseen)

    def hear(self, usd: float, wanted: float, now: float) -> None:
        """Take note of what all others together paid on the day of `now`, and want a second."""
        self._roll(now)
        self._others_usd, self._others_wanted = usd, wanted

    def _factor(self, now: float, slice_: _Load) -> float:
        extra = self._reserve * self._part(now) / len(self._slices)
        return min(1.0, self._share(self._flow(now), self._load, now) + self._share(extra, slice_, now))

    def _flow(self, now: float) -> float:
        """USD a second for all traffic alike."""
        spent = self._roll(now)
        left_s = (spent.day + 1) * DAY_S - now
        borrowed = self._budget * max(0.0, self._horizon_s - left_s) / DAY_S
        left = self._budget - spent.usd - spent.unseen - self._others_usd
        flow = (left + borrowed) / max(left_s, self._horizon_s)
        return max(0.0, flow - self._reserve) * self._part(now)

    def _part(self, now: float) -> float:
        """Which part of the money is for this pacer's traffic."""
        ours = self._full(self._load, now)
        return ours / (ours + self._others_wanted) if ours > 0.0 else 1.0

    def _share(self, flow: float, load: _Load, now: float) -> float:
        """Which part of a load `flow` USD a second can pay for."""
        full = self._full(load, now)
        return min(1.0, flow / full) if full > 0.0 else 1.0

    def _full(self, load: _Load, now: float) -> float:
        """USD a second that judging all of a load would cost."""
        tried = self._tried.total(now)
        return load.per_s(now) * self._cost.total(now) / tried if tried > 0.0 else 0.0

    def _known(self, name: str, now: float) -> str:
        """The slice's name, or `_other` when there are too many; slices not seen for long are forgotten."""
        if name not in self._slices:
            self._slices = {one: load for one, load in self._slices.items() if load.alive(now)}
            if len(self._slices) >= MOST_SLICES:
                name = OTHER
            self._slices.setdefault(name, _Load(*self._memories))
        return name

    def _roll(self, now: float) -> Spent:
        """Begin a new day when it has begun."""
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
        """The slow estimate, held within two standard deviations of the quick one."""
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
"""Who has not been heard of for so long wants nothing any more; what it spent stays spent."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What one process paid on a UTC day (see `Spent`), and how much a second it wanted at that time, Unix seconds."""

    day: int
    usd: float
    unseen: float = 0.0
    wanted: float = 0.0
    at: float = 0.0


class Spending:
    """Keeps the account of one process, `replica`, in the ledger, and tells its pacer of those of all others.

    The first tick goes on from this replica's own account. Where it has none, but others have, nothing was spent here;
    where nobody has one, the pacer's own guess stands (the part of the day that is over). `clock` gives Unix time.
    """

    def __init__(
        self, ledger: StateStore, pacer: BudgetPacer, replica: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._pacer = pacer
        self._key = PREFIX + replica
        self._clock = clock
        self._resumed = False
        self._written: tuple[bytes | None, bytes | None] = (None, None)
        self._complaints: set[str] = set()

    async def tick(self) -> None:
        """Hear of the others, then save. What the ledger raises comes out; until then the last known stands."""
        states = await self._ledger.load()
        accounts = self._accounts(states)
        now = self._clock()
        if self._resumed:
            self._look_for_namesakes(states)
        else:
            self._resume(accounts, now)
        today = self._pacer.spent(now).day
        others = [one for key, one in accounts.items() if key != self._key and one.day == today]
        wanted = sum(one.wanted for one in others if abs(now - one.at) <= ALIVE_S)
        self._pacer.hear(sum(one.usd for one in others), wanted, now)
        await self._save(now)

    def _resume(self, accounts: Mapping[str, Account], now: float) -> None:
        today = self._pacer.spent(now).day
        own = accounts.get(self._key)
        if own is not None and own.day <= today:
            self._pacer.resume(Spent(own.day, own.usd, own.unseen), now)
        elif accounts:
            unseen = max((one.unseen for one in accounts.values() if one.day == today), default=0.0)
            self._pacer.resume(Spent(today, 0.0, unseen), now)
        self._resumed = True

    async def _save(self, now: float) -> None:
        spent = self._pacer.spent(now)
        account = Account(day=spent.day, usd=spent.usd, unseen=spent.unseen, wanted=self._pacer.wanted(now), at=now)
        self._written = self._written[1], msgspec.json.encode(account)
        await self._ledger.save({self._key: self._written[1] or b""})

    def _look_for_namesakes(self, states: Mapping[str, bytes]) -> None:
        """Complain when another process writes this account: each would undo what the other paid."""
        found = states.get(self._key)
        if found is not None and found not in self._written:
            self._complain(f"another process spends as {self._key}: give each a name of its own (monitors.replica)")

    def _accounts(self, states: Mapping[str, bytes]) -> dict[str, Account]:
        """Every account that can be read."""
        found = {}
        for key, state in states.items():
            if key.startswith(PREFIX):
                try:
                    found[key] = msgspec.json.decode(state, type=Account)
                except msgspec.DecodeError:
                    self._complain(f"the ledger's {key} cannot be read and is not counted")
        return found

    def _complain(self, problem: str) -> None:
        """Say it once: it is met at every tick."""
        if problem not in self._complaints:
            self._complaints.add(problem)
            _log.warning("%s", problem)

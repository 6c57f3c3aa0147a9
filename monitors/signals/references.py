"""What is usual for an app: a sketch of the distribution of its earlier values, against which new ones are ranked."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from math import exp
from typing import NamedTuple

import msgspec

from gaugeway.records import Sample

SIZE = 256
"""Values of one quantity that are needed before anything is compared with them, and that are taken in at a time."""
BINS = 128
"""Bins of a sketch."""
CAPACITY = 4_096
"""Values that the reference is worth: until then each new one counts in full."""
HORIZON_S = 28 * 86_400.0
"""Then the earlier values fade exponentially, by 1/e in this time: a day with an incident is not taken for usual."""
MAX_APPS = 200
"""Apps with references of their own; exchanges of more apps get no signal that needs one."""
HIGH = 0.95
"""Above this quantile of the usual values one is high."""


class Bin(NamedTuple):
    """`weight` values in [low, high]; between two bins there are none."""

    low: float
    high: float
    weight: float


class Reference:
    """The usual values of one quantity of one app.

    Every value counts: the ranks of independent values among all earlier ones are independent and uniform, whatever
    their law (A. Renyi, 1962, Theorie des elements saillants d'une suite d'observations), so that the mean rank of
    unchanged traffic stays at 1/2. Among 256 values that are replaced it wanders by 0.02 (a standard deviation).

    The values are counted in at most `BINS` bins of about the same weight. All values in a bin count as equal, which
    leaves the mean rank at 1/2. New values are taken in by blocks of `SIZE`.

    >>> reference = Reference()
    >>> for value in range(SIZE):
    ...     reference.add(float(value), at=0.0)
    >>> reference.rank(127.5), reference.rank(-1.0), reference.high(255.0), reference.high(10.0)
    (0.5, 0.0, 1.0, 0.0)
    """

    __slots__ = ("_at", "_below", "_bins", "_highs", "_pending")

    def __init__(self) -> None:
        self._at = 0.0
        self._pending = array("f")
        self._set(())

    @property
    def known(self) -> bool:
        """Whether there are enough values to compare with."""
        return bool(self._bins)

    def add(self, value: float, at: float) -> None:
        """Take in a value of Unix time `at`."""
        self._pending.append(value)
        if len(self._pending) >= SIZE:
            self._take_in(at)

    def rank(self, value: float) -> float:
        """Return the share of the values below `value`, with half of those equal to it; 0.5 is usual."""
        below, equal = self._shares(value)
        return below + equal / 2.0

    def high(self, value: float) -> float:
        """Return 1 for a value above the `HIGH` quantile, 0 for one below, and for one at it the part of it above.

        So the mean of unchanged traffic is 1 - `HIGH` whatever its law, also where many values are equal.
        """
        below, equal = self._shares(value)
        return min(1.0, (below + equal - HIGH) / equal) if below < HIGH < below + equal else float(below >= HIGH)

    def saved(self) -> tuple[float, bytes, bytes]:
        """Return the state to save: time, bins, and values not taken in yet; at most 2.6 KB."""
        bins = array("f", [number for bin_ in self._bins for number in bin_])
        return self._at, bins.tobytes(), self._pending.tobytes()

    @classmethod
    def restored(cls, at: float, bins: bytes, pending: bytes) -> Reference:
        """Restore a saved state. Raises ValueError."""
        numbers, values = array("f", bins), array("f", pending)
        if any(number != number for number in (*numbers, *values)):  # noqa: PLR0124 - NaN
            raise ValueError("a reference holds numbers")
        found = cls()
        found._set(Bin(*numbers[place : place + 3]) for place in range(0, min(len(numbers), 3 * BINS), 3))
        found._at = at
        for value in values[:SIZE]:
            found.add(value, at)
        return found

    def _set(self, bins: Iterable[Bin]) -> None:
        self._bins = [Bin(*array("f", bin_)) for bin_ in bins]  # as it is saved: a restart changes nothing
        self._highs = [bin_.high for bin_ in self._bins]
        self._below = [0.0, *accumulate(bin_.weight for bin_ in self._bins)]

    def _place(self, value: float) -> tuple[int, bool]:
        """Return the number of bins below `value`, and whether the next one holds it."""
        place = bisect_left(self._highs, value)
        return place, place < len(self._bins) and self._bins[place].low <= value

    def _shares(self, value: float) -> tuple[float, float]:
        """Return the shares of the values below `value`, and of those in its bin."""
        place, inside = self._place(array("f", (value,))[0])
        total = self._below[-1]
        return self._below[place] / total, self._bins[place].weight / total if inside else 0.0

    def _take_in(self, at: float) -> None:
        """Count the pending values, each in its bin or in a new one."""
        total, at = self._below[-1], max(at, self._at)
        fading = 0.0 if total < CAPACITY else min(SIZE / total, 1.0 - exp((self._at - at) / HORIZON_S))
        each = fading * total / SIZE if total >= CAPACITY else 1.0
        inside: dict[int, list[float]] = {}
        new: Counter[float] = Counter()
        for value in sorted(self._pending):
            place, known = self._place(value)
            if known:
                inside.setdefault(place, []).append(value)
            else:
                new[value] += 1
        bins = [Bin(value, value, each * count) for value, count in new.items()]
        for place, (low, high, weight) in enumerate(self._bins):
            values = inside.get(place, [])
            grown = Bin(low, high, weight * (1.0 - fading) + each * len(values))
            bins += _split(grown, values) if grown.weight > 4.0 * total / BINS else [grown]
        self._set(_joined(sorted(bins)))
        self._pending = array("f")
        self._at = at


def _split(bin_: Bin, values: list[float]) -> list[Bin]:
    """Split a bin between two of `values`, a sorted sample of those in it, at about their median."""
    cuts = [place for place in range(1, len(values)) if values[place - 1] < values[place]]
    if not cuts:
        return [bin_]
    cut = min(cuts, key=lambda place: abs(2 * place - len(values)))
    part = bin_.weight * cut / len(values)
    return [Bin(bin_.low, values[cut - 1], part), Bin(values[cut], bin_.high, bin_.weight - part)]


def _joined(bins: list[Bin]) -> list[Bin]:
    """Join neighbours that weigh at most 2/`BINS` of all together; then there are fewer than `BINS`."""
    if len(bins) <= BINS:
        return bins
    most = 2.0 * sum(bin_.weight for bin_ in bins) / BINS
    kept = bins[:1]
    for bin_ in bins[1:]:
        last = kept[-1]
        if last.weight + bin_.weight <= most:
            kept[-1] = Bin(last.low, bin_.high, last.weight + bin_.weight)
        else:
            kept.append(bin_)
    return kept


class References:
    """The references of all apps, by app and quantity; at most `MAX_APPS` apps. `changed` says that one was updated."""

    def __init__(self) -> None:
        self._apps: dict[str, dict[str, Reference]] = {}
        self.changed = False

    def __len__(self) -> int:
        return len(self._apps)

    def compare(self, sample: Sample, quantity: str, value: float, by: Callable[[Reference], float]) -> float | None:
        """Compare a value of a sample with the app's earlier ones, then take it in; None while these are too few."""
        if (known := self._apps.get(sample.app)) is None:
            if len(self._apps) >= MAX_APPS:
                return None
            known = self._apps[sample.app] = {}
        reference = known.setdefault(quantity, Reference())
        compared = by(reference) if reference.known else None
        reference.add(value, sample.started_at)
        self.changed = True
        return compared

    def dumps(self) -> bytes:
        """Return the state to save; at most 2.6 KB for each app and quantity."""
        return msgspec.msgpack.encode(
            {app: {name: reference.saved() for name, reference in known.items()} for app, known in self._apps.items()}
        )

    def loads(self, state: bytes) -> None:
        """Restore a saved state. Raises ValueError."""
        saved = msgspec.msgpack.decode(state, type=dict[str, dict[str, tuple[float, bytes, bytes]]])
        self._apps = {
            app: {name: Reference.restored(*parts) for name, parts in known.items()}
            for app, known in list(saved.items())[:MAX_APPS]
        }
        self.changed = False

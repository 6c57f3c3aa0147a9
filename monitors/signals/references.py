"""What is usual for an app: a bounded sample of its earlier values, against which new ones are ranked."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort

import msgspec

SIZE = 256
"""Values of one quantity that are kept, and needed before anything is compared with them."""
HORIZON_S = 7 * 86_400.0
"""Once full, the values are replaced one by one, all within this time: a sudden change is not taken for usual."""
MAX_APPS = 200
"""Apps with references of their own; exchanges of more apps get no signal that needs one."""
HIGH = 0.95
"""Above this quantile of the usual values one is high."""


class Reference:
    """The usual values of one quantity of one app.

    The first `SIZE` values are all kept. Afterwards the oldest is replaced by the latest every `HORIZON_S` / `SIZE`
    seconds (40 minutes), so that in a week the reference follows what changes slowly.

    >>> reference = Reference()
    >>> for value in range(SIZE):
    ...     _ = reference.add(float(value), at=0.0)
    >>> reference.rank(127.5), reference.rank(-1.0), reference.is_high(250.0), reference.is_high(10.0)
    (0.5, 0.0, True, False)
    """

    __slots__ = ("_changed_at", "_mean", "_sorted", "_values")

    def __init__(self) -> None:
        self._values = array("f")
        self._sorted: list[float] = []
        self._changed_at = 0.0
        self._mean: float | None = None

    @property
    def known(self) -> bool:
        """Whether there are enough values to compare with."""
        return len(self._values) >= SIZE

    def add(self, value: float, at: float) -> bool:
        """Take in a value of Unix time `at`; return whether it was kept."""
        full = self.known
        if full and at < self._changed_at + HORIZON_S / SIZE:
            return False
        if full:
            self._sorted.pop(bisect_left(self._sorted, self._values.pop(0)))
        self._values.append(value)
        self._mean = None
        insort(self._sorted, self._values[-1])
        self._changed_at = max(at, self._changed_at) if full else at
        return True

    def rank(self, value: float) -> float:
        """Return the share of the values below `value`, with half of those equal to it; 0.5 is usual."""
        value = array("f", (value,))[0]
        return (bisect_left(self._sorted, value) + bisect_right(self._sorted, value)) / (2 * len(self._sorted))

    def is_high(self, value: float) -> bool:
        """Return whether `value` is above the `HIGH` quantile."""
        return array("f", (value,))[0] > self._sorted[int(HIGH * (len(self._sorted) - 1))]

    @property
    def mean(self) -> float:
        """The mean of the values."""
        if self._mean is None:
            self._mean = sum(self._values) / len(self._values)
        return self._mean

    def saved(self) -> tuple[float, bytes]:
        """Return the state to save."""
        return self._changed_at, self._values.tobytes()

    @classmethod
    def restored(cls, changed_at: float, values: bytes) -> Reference:
        """Restore a saved state. Raises ValueError."""
        found = cls()
        found._values.frombytes(values[: SIZE * found._values.itemsize])
        if any(value != value for value in found._values):  # noqa: PLR0124 - NaN
            raise ValueError("a reference holds numbers")
        found._sorted = sorted(found._values)
        found._changed_at = changed_at
        return found


class References:
    """The references of all apps, by app and quantity; at most `MAX_APPS` apps. `changed` says that one was updated."""

    def __init__(self) -> None:
        self._apps: dict[str, dict[str, Reference]] = {}
        self.changed = False

    def __len__(self) -> int:
        return len(self._apps)

    def compared(self, app: str, quantity: str, value: float, at: float) -> Reference | None:
        """Return the usual values of a quantity, without this one, and take this one in; None while unknown."""
        known = self._apps.get(app)
        if known is None:
            if len(self._apps) >= MAX_APPS:
                return None
            known = self._apps[app] = {}
        reference = known.get(quantity)
        if reference is None:
            reference = known[quantity] = Reference()
        if not reference.known:
            self.changed |= reference.add(value, at)
            return None
        return reference

    def learn(self, app: str, quantity: str, value: float, at: float) -> None:
        """Take in a value that was compared with its reference."""
        self.changed |= self._apps[app][quantity].add(value, at)

    def dumps(self) -> bytes:
        """Return the state to save; a kilobyte for each app and quantity."""
        return msgspec.msgpack.encode(
            {app: {name: one.saved() for name, one in known.items()} for app, known in self._apps.items()}
        )

    def loads(self, state: bytes) -> None:
        """Restore a saved state. Raises ValueError."""
        saved = msgspec.msgpack.decode(state, type=dict[str, dict[str, tuple[float, bytes]]])
        self._apps = {
            app: {name: Reference.restored(*one) for name, one in known.items()}
            for app, known in list(saved.items())[:MAX_APPS]
        }
        self.changed = False

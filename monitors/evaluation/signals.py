"""Computes the signals of each sample as evaluations, and keeps what they learned in the state store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.signals import VERSION
from gaugeway.storage.stores import StateStore
from monitors.signals.compute import SignalComputer

PREFIX = "signals/"
DAY_S = 86_400.0
_USUAL = {value: Score(value) for value in (0.0, 1.0)}
_log = logging.getLogger("gaugeway")


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What one process learned; `at` is when it was saved, Unix seconds."""

    at: float
    apps: int
    references: bytes


class Signals:
    """The signals of this process, those in `names`; what it learned about the apps survives a restart.

    `replica` names this process. One that is new begins with what the process that knows most apps has learned. Without
    a state store every start learns again.
    """

    def __init__(
        self,
        names: Collection[str],
        state_store: StateStore | None = None,
        replica: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._computer = SignalComputer(names)
        self._state_store = state_store
        self._key = PREFIX + replica
        self._clock = clock
        self._resumed = False
        self._warned = False

    def evaluations(self, sample: Sample, rate: float) -> Sequence[Evaluation]:
        """Return a score for each signal that applies to the sample, which was captured with probability `rate`."""
        if not rate:
            return ()
        return [
            Evaluation(
                sample_id=sample.id,
                metric=name,
                version=VERSION,
                outcome=_USUAL.get(value) or Score(value),
                rate=rate,
                weight=1.0,
            )
            for name, value in self._computer.compute(sample).items()
        ]

    async def tick(self) -> None:
        """Resume what was learned before, then save what is new. Errors of the state store propagate."""
        if self._state_store is None:
            return
        states = await self._state_store.load() if not self._resumed else {}
        if not self._resumed:
            self._resume(states)
        changes = dict.fromkeys(self._gone(states), b"")  # replica names change with every deployment
        usual = self._computer.usual
        if usual.changed:
            usual.changed = False
            saved = _Saved(at=self._clock(), apps=len(usual), references=usual.dumps())
            changes[self._key] = msgspec.msgpack.encode(saved)
        if changes:
            await self._state_store.save(changes)

    def _resume(self, states: Mapping[str, bytes]) -> None:
        known = {key: saved for key, state in states.items() if (saved := self._read(key, state)) is not None}
        best = known.get(self._key) or max(known.values(), key=lambda found: (found.apps, found.at), default=None)
        if best is not None:
            try:
                self._computer.usual.loads(best.references)
            except ValueError as error:
                _log.warning("what the signals learned cannot be read, learning again: %s", error)
        self._resumed = True

    def _gone(self, states: Mapping[str, bytes]) -> Sequence[str]:
        """The states of processes that saved nothing for a week."""
        before = self._clock() - 7 * DAY_S
        return [
            key
            for key, state in states.items()
            if key != self._key and (saved := self._read(key, state)) is not None and saved.at < before
        ]

    def _read(self, key: str, state: bytes) -> _Saved | None:
        if not key.startswith(PREFIX) or not state:
            return None
        try:
            return msgspec.msgpack.decode(state, type=_Saved)
        except msgspec.DecodeError:
            if not self._warned:
                _log.warning("state store: ignoring unreadable %s", key)
            self._warned = True
            return None

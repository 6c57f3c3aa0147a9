"""What people say about alerts, and letters that could not be delivered; all of it is in the ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from monitors.alerting.notifiers.message import labels_of
from monitors.alerting.silences import Silence
from monitors.records import Alert
from monitors.storage.stores import StateStore

SILENCES, ACKS, LETTERS = "alerts/silences", "alerts/acks", "alerts/dead-letters"
KEPT_LETTERS, MAX_SILENCES = 100, 500
KEPT_S = 7 * 86_400.0
"""How long a silence that is over is still shown."""


class DeskClosedError(Exception):
    """Nothing was restored from the ledger yet, or another process leads: nothing can be changed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Who looks after an alert, since when (Unix seconds), and what they say."""

    by: str
    at: float
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An alert that a notifier was not told, tried `attempts` times from `since` to `at` (Unix seconds)."""

    id: str
    notifier: str
    alert: Alert
    error: str
    attempts: int
    since: float
    at: float


class Acknowledgements:
    """Silences, acknowledgements and dead letters. Changes count at once, and are then saved.

    `firing` says which alert fires under a fingerprint; `resend` tells a dead letter's notifier again, or raises.
    """

    def __init__(
        self,
        ledger: StateStore,
        clock: Callable[[], float],
        *,
        firing: Callable[[str], Alert | None],
        resend: Callable[[DeadLetter], Awaitable[None]],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._firing = firing
        self._resend = resend
        self._open = False
        self._silences: dict[str, Silence] = {}
        self._acks: dict[str, Ack] = {}
        self._letters: dict[str, DeadLetter] = {}

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Continue from what was saved."""
        silences = msgspec.json.decode(states.get(SILENCES, b"[]"), type=list[Silence])
        letters = msgspec.json.decode(states.get(LETTERS, b"[]"), type=list[DeadLetter])
        self._silences = {one.id: one for one in silences}
        self._letters = {one.id: one for one in letters}
        self._acks = msgspec.json.decode(states.get(ACKS, b"{}"), type=dict[str, Ack])
        self._open = True

    def close(self) -> None:
        """Show what there is, but take no changes: the desk of the process that leads does."""
        self._open = False

    def states(self) -> dict[str, bytes]:
        """What the ledger keeps."""
        return {
            SILENCES: msgspec.json.encode(list(self._silences.values())),
            ACKS: msgspec.json.encode(self._acks),
            LETTERS: msgspec.json.encode(list(self._letters.values())),
        }

    def muted(self, alert: Alert) -> bool:
        """Whether a silence holds the alert back now."""
        labels, now = labels_of(alert), self._clock()
        return any(silence.mutes(labels, now) for silence in self._silences.values())

    def acknowledged(self, fingerprint: str) -> bool:
        """Whether somebody looks after the alert."""
        return fingerprint in self._acks

    def acks(self) -> Mapping[str, Ack]:
        """The acknowledgements by fingerprint."""
        return self._acks

    def forget(self) -> None:
        """Drop acknowledgements of alerts that are over, and silences that have been over for long."""
        long_ago = self._clock() - KEPT_S
        self._acks = {key: ack for key, ack in self._acks.items() if self._firing(key) is not None}
        self._silences = {key: one for key, one in self._silences.items() if one.ends > long_ago}

    def bury(self, letter: DeadLetter) -> None:
        """Keep a letter, and of all of them the latest; the caller saves."""
        self._letters[letter.id] = letter
        for key in list(self._letters)[:-KEPT_LETTERS]:
            del self._letters[key]

    async def silences(self) -> Sequence[Silence]:
        """Every silence, the one that ends last first."""
        return sorted(self._silences.values(), key=lambda one: one.ends, reverse=True)

    async def silence(self, silence: Silence) -> None:
        """Add a silence. Raises ValueError when there are too many."""
        if len(self._silences) >= MAX_SILENCES:
            raise ValueError(f"there are {MAX_SILENCES} silences already")
        await self._change(lambda: self._silences.update({silence.id: silence}))

    async def unsilence(self, silence_id: str) -> bool:
        """Remove a silence; False when there is none of that id."""
        if silence_id not in self._silences:
            return False
        await self._change(lambda: self._silences.pop(silence_id))
        return True

    async def acknowledge(self, fingerprint: str, ack: Ack) -> bool:
        """Note who looks after a firing alert; False when none fires under that fingerprint."""
        if self._open and self._firing(fingerprint) is None:
            return False
        await self._change(lambda: self._acks.update({fingerprint: ack}))
        return True

    async def unacknowledge(self, fingerprint: str) -> bool:
        """Take that back; False when nobody looked after it."""
        if fingerprint not in self._acks:
            return False
        await self._change(lambda: self._acks.pop(fingerprint))
        return True

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """The letters that were kept, the latest first."""
        return list(self._letters.values())[::-1]

    async def retry(self, letter_id: str) -> bool:
        """Try once more, and drop the letter when it was told; False when there is none. Raises what telling raises."""
        letter = self._letters.get(letter_id)
        if letter is None:
            return False
        self._must_be_open()
        await self._resend(letter)
        await self._change(lambda: self._letters.pop(letter_id, None))
        return True

    async def _change(self, change: Callable[[], object]) -> None:
        """Change what is known and save all of it: each save has all changes before it, in whatever order they end."""
        self._must_be_open()
        change()
        await self._ledger.save(self.states())

    def _must_be_open(self) -> None:
        if not self._open:
            raise DeskClosedError("the alert engine has not begun yet, or another process leads; try again in a moment")


def letter_id(notifier: str, alert: Alert, at: float) -> str:
    """16 hex digits that name a dead letter."""
    return blake2b(f"{notifier}\0{alert.fingerprint}\0{alert.state}\0{at!r}".encode(), digest_size=8).hexdigest()

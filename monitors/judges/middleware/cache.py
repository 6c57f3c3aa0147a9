"""Answers already paid for: the same question to the same judge is asked once."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec
from cachetools import LRUCache

from monitors.judges import SPEND, Judge, JudgeError, Prompt, itemised
from monitors.judges.middleware.base import Wrapper
from monitors.storage.engines.failures import FAILURES
from monitors.storage.engines.sqlite import Database, Schema

T = TypeVar("T")
Found: TypeAlias = Literal["hit", "miss"]
DAY_S = 86_400.0
MEMORY_BYTES = 16 * 2**20
_OVERHEAD = 200
"""Bytes of an entry that are not its answer, about."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer as JSON, what it cost, and the Unix time until which it is good."""

    answer: bytes
    usd: float
    expires: float


class Shelf(Protocol):
    """Where answers are kept beyond memory. A shelf that fails says nothing and keeps nothing."""

    async def get(self, key: bytes) -> Kept | None:
        """Find an answer, expired or not."""

    async def put(self, key: bytes, kept: Kept) -> None:
        """Keep an answer in place of the one before."""

    async def aclose(self) -> None:
        """Release what it holds."""


FRESH: ContextVar[bool] = ContextVar("gaugeway_fresh", default=False)


@contextmanager
def fresh() -> Iterator[None]:
    """Within the block no answer comes from a cache, and none goes there: what is asked is how the judge is now."""
    token = FRESH.set(True)
    try:
        yield
    finally:
        FRESH.reset(token)


class Cached(Wrapper):
    """Keeps answers for `ttl_s`, the last used in memory (up to `memory_bytes`) and all of them on `shelf`, if any.

    An answer is found again for the same judge (`identity`), prompt version, instructions and texts, and type of
    answer. Failures are not kept. Who asks the same again under one tab wants another answer, a second opinion or one
    more sample: the n-th time is a question of its own. Those who ask the same at once wait for the first. `on_lookup`
    is told (model, hit or miss, the USD that a hit saved). `clock` gives Unix time.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        ttl_s: float = 7 * DAY_S,
        memory_bytes: int = MEMORY_BYTES,
        shelf: Shelf | None = None,
        clock: Callable[[], float] = time.time,
        on_lookup: Callable[[str, Found, float], None] = lambda *_: None,
    ) -> None:
        super().__init__(judge)
        self._ttl_s = ttl_s
        self._memory: LRUCache[bytes, Kept] = LRUCache(memory_bytes, getsizeof=_size)
        self._shelf = shelf
        self._clock = clock
        self._on_lookup = on_lookup
        self._asking: dict[bytes, _Turn] = {}

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        shape = json.dumps(msgspec.json.schema(answer_type), sort_keys=True)
        key = fingerprint(prompt, self.identity, shape)
        return await self._once(key, answer_type, lambda: self._judge.ask(prompt, answer_type))

    async def ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        key = fingerprint(prompt, self.identity, "scored", *choices)
        return await self._once(key, dict[str, float], lambda: self._judge.ask_scored(prompt, choices))

    async def aclose(self) -> None:
        await super().aclose()
        if self._shelf is not None:
            await self._shelf.aclose()

    async def _once(self, key: bytes, answer_type: type[T], call: Callable[[], Awaitable[T | None]]) -> T:
        if FRESH.get():
            return await call()  # type: ignore[return-value]  # None only where T has it
        if (tab := SPEND.get()) is None:
            return await self._in_turn(key, answer_type, call)
        times = tab.asked[key]
        tab.asked[key] += 1
        try:
            return await self._in_turn(key + b"%d" % times if times else key, answer_type, call)
        except JudgeError:
            tab.asked[key] -= 1  # that was no answer
            raise

    async def _in_turn(self, key: bytes, answer_type: type[T], call: Callable[[], Awaitable[T | None]]) -> T:
        turn = self._asking.setdefault(key, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                if (kept := await self._find(key)) is not None:
                    try:
                        answer = msgspec.json.decode(kept.answer, type=answer_type)
                    except msgspec.DecodeError:
                        pass  # of a release that wrote answers in another way
                    else:
                        self._saved(kept.usd)
                        return answer
                return await self._ask(key, call)
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._asking.pop(key, None)

    async def _ask(self, key: bytes, call: Callable[[], Awaitable[T | None]]) -> T:
        with itemised() as cost:
            answer = await call()
        self._on_lookup(self.model, "miss", 0.0)
        if answer is not None:
            kept = Kept(msgspec.json.encode(answer), cost.usd, self._clock() + self._ttl_s)
            self._remember(key, kept)
            if self._shelf is not None:
                await self._shelf.put(key, kept)
        return answer  # type: ignore[return-value]  # the same

    async def _find(self, key: bytes) -> Kept | None:
        kept = self._memory.get(key)
        if kept is None and self._shelf is not None and (kept := await self._shelf.get(key)) is not None:
            self._remember(key, kept)
        return kept if kept is not None and kept.expires > self._clock() else None

    def _remember(self, key: bytes, kept: Kept) -> None:
        if _size(kept) <= self._memory.maxsize:
            self._memory[key] = kept

    def _saved(self, usd: float) -> None:
        if (tab := SPEND.get()) is not None:
            tab.hits += 1
            tab.saved_usd += usd
        self._on_lookup(self.model, "hit", usd)


class _Turn:
    """Who asks the same takes turns; the second finds what the first was told."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


def _size(kept: Kept) -> int:
    return len(kept.answer) + _OVERHEAD


_CODE = re.compile(r"<data-([0-9]{9})\b")


def fingerprint(prompt: Prompt, *more: str) -> bytes:
    r"""A hash of `prompt` and of `more` (the judge, the type of the answer).

    The fence's code is the one the system text names; the texts are cut where it stands. As it occurs in none of the
    fenced texts, no text can pretend to be a fence and so be taken for another question.

    >>> def ask(code, text):
    ...     return Prompt(task="t", version="1", system=f"<data-{code} ...>", user=f"<data-{code}>{text}</data-{code}>")
    >>> fingerprint(ask("012345678", "a")) == fingerprint(ask("987654321", "a"))
    True
    >>> fingerprint(ask("012345678", "a")) == fingerprint(ask("987654321", "b"))
    False
    """
    found = _CODE.search(prompt.system)
    cut = found[1] if found else "\0" * 9
    return digest(
        [*more, prompt.task, prompt.version],
        prompt.system.split(cut),
        prompt.user.split(cut),
    )


def digest(*lists: Iterable[str]) -> bytes:
    """A hash of lists of texts: neither texts nor lists run into each other."""
    hashed = blake2b(digest_size=20)
    for texts in lists:
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            hashed.update(b"%d:" % len(data) + data)
        hashed.update(b";")
    return hashed.digest()


_log = logging.getLogger("gaugeway.judge")
_SCHEMA = Schema(
    kind="judge cache",
    application_id=0x67776A63,  # "gwjc"
    migrations=(
        """
CREATE TABLE answers (
    key BLOB PRIMARY KEY, answer BLOB NOT NULL, usd REAL NOT NULL, expires REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX answers_by_expiry ON answers (expires);
""",
    ),
)
_PRUNE_EVERY = 256


class AnswerFile:
    """A shelf of at most about `most` answers; the next to expire make room.

    It holds what judges quoted of the samples: keep it as the store is kept. While the file cannot be used, nothing is
    found and nothing is kept, and the log says so once.
    """

    def __init__(self, path: str | Path, *, most: int = 200_000, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, schema=_SCHEMA, busy_timeout_s=5.0)
        self._most = most
        self._clock = clock
        self._puts = 0
        self._complained = False

    async def get(self, key: bytes) -> Kept | None:
        try:
            async with self._database.reading() as connection:
                rows = list(
                    await connection.execute_fetchall("SELECT answer, usd, expires FROM answers WHERE key = ?", (key,))
                )
        except FAILURES as error:
            self._complain(error)
            return None
        return Kept(*rows[0]) if rows else None

    async def put(self, key: bytes, kept: Kept) -> None:
        prune = self._puts % _PRUNE_EVERY == 0
        self._puts += 1
        try:
            async with self._database.writing() as connection:
                row = (key, kept.answer, kept.usd, kept.expires)
                await connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)
                if prune:
                    await connection.execute("DELETE FROM answers WHERE expires < ?", (self._clock(),))
                    await connection.execute(
                        "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY expires "
                        "LIMIT max(0, (SELECT count(*) FROM answers) - ?))",
                        (self._most,),
                    )
        except FAILURES as error:
            self._complain(error)

    async def aclose(self) -> None:
        await self._database.aclose()

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("judge cache file unusable: %s: %s", type(error).__name__, error)

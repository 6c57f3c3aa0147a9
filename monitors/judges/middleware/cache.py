"""The cache of judge answers, in memory and in a SQLite file, so that no prompt is paid for twice."""

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
from sqlite3 import Connection
from typing import Literal, TypeAlias, TypeVar

import msgspec
from cachetools import LRUCache

from gaugeway.storage.engines.failures import FAILURES
from gaugeway.storage.engines.scripts import migrations
from gaugeway.storage.engines.sqlite.connection import Database, Schema
from monitors.judges import SPEND, JudgeError, Prompt, itemised
from monitors.judges.middleware import Wrapper

T = TypeVar("T")
Found: TypeAlias = Literal["hit", "miss"]
DAY_S = 86_400.0
MEMORY_BYTES = 16 * 2**20
_OVERHEAD = 200
"""Approximate bytes of an entry without its answer."""


class CachedAnswer(msgspec.Struct, frozen=True):
    """One answer as JSON, its cost in USD, and the Unix time at which it expires."""

    answer: bytes
    usd: float
    expires: float


BYPASS: ContextVar[bool] = ContextVar("gaugeway_fresh", default=False)


@contextmanager
def bypass_cache() -> Iterator[None]:
    """Within the block, neither read nor write any cache: each call shows how the judge answers now."""
    token = BYPASS.set(True)
    try:
        yield
    finally:
        BYPASS.reset(token)


@dataclass(eq=False, kw_only=True)
class CachedJudge(Wrapper):
    """Caches answers for `ttl_s`: the last used in memory (up to `memory_bytes`), all of them in `store`, if any.

    The key is the judge (`identity`), the prompt (version, instructions, texts) and the type of answer. Failures are
    not cached. A metric that repeats a prompt wants a second opinion or one more sample: the n-th call under one
    `Spend` has a key of its own. Concurrent calls with the same key wait for the first one. `on_lookup` gets (model,
    "hit" or "miss", the USD that a hit saved). `clock` gives Unix time.
    """

    ttl_s: float = 7 * DAY_S
    memory_bytes: int = MEMORY_BYTES
    store: AnswerFile | None = None
    clock: Callable[[], float] = time.time
    on_lookup: Callable[[str, Found, float], None] = lambda *_: None

    def __post_init__(self) -> None:
        self._memory: LRUCache[bytes, CachedAnswer] = LRUCache(self.memory_bytes, getsizeof=_size)
        self._pending: dict[bytes, _Pending] = {}

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        key = fingerprint(prompt, self.identity, json.dumps(msgspec.json.schema(answer_type), sort_keys=True))
        return await self._once(key, answer_type, lambda: self._judge.ask(prompt, answer_type))

    async def ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        key = fingerprint(prompt, self.identity, "scored", *choices)
        return await self._once(key, dict[str, float], lambda: self._judge.ask_scored(prompt, choices))

    async def aclose(self) -> None:
        await super().aclose()
        if self.store is not None:
            await self.store.aclose()

    async def _once(self, key: bytes, answer_type: type[T], call: Callable[[], Awaitable[T | None]]) -> T:
        if BYPASS.get():
            return await call()  # type: ignore[return-value]  # None only where T includes None
        if (tab := SPEND.get()) is None:
            return await self._in_turn(key, answer_type, call)
        times = tab.asked[key]
        tab.asked[key] += 1
        try:
            return await self._in_turn(key + b"%d" % times if times else key, answer_type, call)
        except JudgeError:
            tab.asked[key] -= 1  # a failure is not an answer
            raise

    async def _in_turn(self, key: bytes, answer_type: type[T], call: Callable[[], Awaitable[T | None]]) -> T:
        turn = self._pending.setdefault(key, _Pending())
        turn.waiting += 1
        try:
            async with turn.lock:
                if (kept := await self._find(key)) is not None:
                    try:
                        answer = msgspec.json.decode(kept.answer, type=answer_type)
                    except msgspec.DecodeError:
                        pass  # written by a release with another format
                    else:
                        self._saved(kept.usd)
                        return answer
                return await self._ask(key, call)
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._pending.pop(key, None)

    async def _ask(self, key: bytes, call: Callable[[], Awaitable[T | None]]) -> T:
        with itemised() as cost:
            answer = await call()
        self.on_lookup(self.model, "miss", 0.0)
        if answer is not None:
            kept = CachedAnswer(msgspec.json.encode(answer), cost.usd, self.clock() + self.ttl_s)
            self._remember(key, kept)
            if self.store is not None:
                await self.store.put(key, kept)
        return answer  # type: ignore[return-value]  # the same

    async def _find(self, key: bytes) -> CachedAnswer | None:
        kept = self._memory.get(key)
        if kept is None and self.store is not None and (kept := await self.store.get(key)) is not None:
            self._remember(key, kept)
        return kept if kept is not None and kept.expires > self.clock() else None

    def _remember(self, key: bytes, kept: CachedAnswer) -> None:
        if _size(kept) <= self._memory.maxsize:
            self._memory[key] = kept

    def _saved(self, usd: float) -> None:
        if (tab := SPEND.get()) is not None:
            tab.hits += 1
            tab.saved_usd += usd
        self.on_lookup(self.model, "hit", usd)


class _Pending:
    """The calls with one key: they run one at a time, so that the second finds the first one's answer."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


def _size(kept: CachedAnswer) -> int:
    return len(kept.answer) + _OVERHEAD


_CODE = re.compile(r"<data-([0-9]{9})\b")


def fingerprint(prompt: Prompt, *more: str) -> bytes:
    r"""Return a 20-byte hash of `prompt` and of `more` (the judge, the type of the answer).

    The fence's random code, which the system text names, is left out: it is new in every prompt. As it occurs in none
    of the fenced texts, no text can imitate a fence and so collide with another prompt. A frozen prompt has no fence.

    >>> def ask(code, text):
    ...     return Prompt(task="t", version="1", system=f"<data-{code} ...>", user=f"<data-{code}>{text}</data-{code}>")
    >>> fingerprint(ask("012345678", "a")) == fingerprint(ask("987654321", "a"))
    True
    >>> fingerprint(ask("012345678", "a")) == fingerprint(ask("987654321", "b"))
    False
    """
    found = None if prompt.frozen else _CODE.search(prompt.system)
    cut = found[1] if found else "\0" * 9
    return digest([*more, prompt.task, prompt.version], prompt.system.split(cut), prompt.user.split(cut))


def digest(*lists: Iterable[str]) -> bytes:
    """Return a 20-byte hash of lists of texts; lengths are hashed too, so that ["ab"] and ["a", "b"] differ."""
    hashed = blake2b(digest_size=20)
    for texts in lists:
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            hashed.update(b"%d:" % len(data) + data)
        hashed.update(b";")
    return hashed.digest()


_log = logging.getLogger("gaugeway.judge")
_MIGRATIONS = migrations("sqlite/migrations/judge_cache")
_SCHEMA = Schema(kind="judge cache", application_id=0x67776A63, migrations=_MIGRATIONS)  # "gwjc"
_PRUNE_EVERY = 256


class AnswerFile:
    """A SQLite file of about `most` answers; the answers that expire next are evicted first.

    Answers quote the samples: protect the file like the store. While the file is unusable, nothing is found or stored;
    this is logged once.
    """

    def __init__(self, path: str | Path, *, most: int = 200_000, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, schema=_SCHEMA, busy_timeout_s=5.0)
        self._most = most
        self._clock = clock
        self._puts = 0
        self._warned = False

    async def get(self, key: bytes) -> CachedAnswer | None:
        """Return the answer under `key`, expired or not; None when there is none."""
        try:
            rows = await self._database.fetch("SELECT answer, usd, expires FROM answers WHERE key = ?", (key,))
        except FAILURES as error:
            self._warn_once(error)
            return None
        return CachedAnswer(*rows[0]) if rows else None

    async def put(self, key: bytes, kept: CachedAnswer) -> None:
        """Store an answer in place of the earlier one."""
        prune = self._puts % _PRUNE_EVERY == 0
        self._puts += 1

        def write(connection: Connection) -> None:
            row = (key, kept.answer, kept.usd, kept.expires)
            connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)
            if prune:
                connection.execute("DELETE FROM answers WHERE expires < ?", (self._clock(),))
                connection.execute(
                    "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY expires "
                    "LIMIT max(0, (SELECT count(*) FROM answers) - ?))",
                    (self._most,),
                )

        try:
            await self._database.write(write)
        except FAILURES as error:
            self._warn_once(error)

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()

    def _warn_once(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("judge cache file unusable: %s: %s", type(error).__name__, error)

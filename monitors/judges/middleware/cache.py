"""Answers already paid for: the same question to the same judge is asked once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from monitors.judges import SPEND, Judge, JudgeError, Prompt, ask_scored, itemised
from monitors.judges.middleware.base import Wrapper
from monitors.judges.middleware.fingerprints import fingerprint

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
        self._memory = _Memory(memory_bytes)
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
        return await self._once(key, dict[str, float], lambda: ask_scored(self._judge, prompt, choices))

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
            self._memory.put(key, kept)
            if self._shelf is not None:
                await self._shelf.put(key, kept)
        return answer  # type: ignore[return-value]  # the same

    async def _find(self, key: bytes) -> Kept | None:
        kept = self._memory.get(key)
        if kept is None and self._shelf is not None and (kept := await self._shelf.get(key)) is not None:
            self._memory.put(key, kept)
        return kept if kept is not None and kept.expires > self._clock() else None

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


class _Memory:
    """The answers used last, up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()

    def get(self, key: bytes) -> Kept | None:
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
        return kept

    def put(self, key: bytes, kept: Kept) -> None:
        if (old := self._kept.pop(key, None)) is not None:
            self._bytes -= len(old.answer) + _OVERHEAD
        self._kept[key] = kept
        self._bytes += len(kept.answer) + _OVERHEAD
        while self._bytes > self._most:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= len(gone.answer) + _OVERHEAD

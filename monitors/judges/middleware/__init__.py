"""What stands between a metric and the judge's endpoint: retries, breaker, cache, deadline; `Wrapper` is their base."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from monitors.judges import Judge, Prompt

T = TypeVar("T")


@dataclass(eq=False)
class Wrapper(Judge):
    """A judge that forwards to another one. A subclass overrides `_through`, which runs around each call."""

    _judge: Judge

    @property
    def model(self) -> str:
        return self._judge.model

    @property
    def identity(self) -> str:
        return self._judge.identity

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        return await self._through(lambda: self._judge.ask(prompt, answer_type))

    async def ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        return await self._through(lambda: self._judge.ask_scored(prompt, choices))

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        return await self._through(lambda: self._judge.ask_sure(prompt, answer_type))

    async def aclose(self) -> None:
        await self._judge.aclose()

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call()

"""What every wrapper around a judge shares: it is a judge itself and does one thing to each question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from monitors.judges import Judge, Prompt, ask_scored, ask_sure

T = TypeVar("T")


class Wrapper:
    """A judge that asks another one. A subclass says what happens around a question in `_through`."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    @property
    def model(self) -> str:
        return self._judge.model

    @property
    def identity(self) -> str:
        """What makes answers interchangeable: endpoint, model and how it is asked."""
        return identity_of(self._judge)

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        return await self._through(lambda: self._judge.ask(prompt, answer_type))

    async def ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        """Ask for probabilities, if the judge within knows any."""
        return await self._through(lambda: ask_scored(self._judge, prompt, choices))

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        """Ask for an answer and how sure the judge within is of it."""
        return await self._through(lambda: ask_sure(self._judge, prompt, answer_type))

    async def aclose(self) -> None:
        """Close the judge within."""
        await close(self._judge)

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call()


def identity_of(judge: Judge) -> str:
    """The judge's identity; for one that states none, its model."""
    return str(getattr(judge, "identity", judge.model))


async def close(judge: Judge) -> None:
    """Close a judge that has something to close; the port does not ask for it."""
    if (aclose := getattr(judge, "aclose", None)) is not None:
        await aclose()

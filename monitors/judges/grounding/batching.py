"""Pairs of one app that wait at about the same time are sent as one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from monitors.judges import SPEND, Judge, JudgeError, Prompt
from monitors.judges.grounding.pairs import TASK
from monitors.judges.micro_batcher import MicroBatcher

T = TypeVar("T")


class PairSupports(msgspec.Struct, frozen=True):
    """The answer to a batch: one probability a pair, in order."""

    supports: list[float]


class PairProtocol(Protocol):
    """Writes the request for some pairs."""

    @property
    def version(self) -> str:
        """Changes whenever the same pairs are asked about in another way."""

    def write(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Return the body of the request for (document, claim) pairs."""


class BatchedPairs(Judge):
    """Asks `judge` about several pairs at once; those of different apps apart, so that each app pays for its own."""

    def __init__(self, judge: Judge, protocol: PairProtocol, *, size: int, wait_s: float) -> None:
        self._judge = judge
        self._protocol = protocol
        self._batcher = MicroBatcher(self._supports, name="grounding", size=size, wait_s=wait_s)

    @property
    def model(self) -> str:
        return self._judge.model

    @property
    def identity(self) -> str:
        return self._judge.identity

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        spend = SPEND.get()
        app = spend.app if spend is not None else ""
        return msgspec.convert(
            {"support": await self._batcher.call((prompt.system, prompt.user), group=app)}, answer_type
        )

    async def aclose(self) -> None:
        """Send the waiting pairs, wait for the answers, and close the judge."""
        await self._batcher.finish()
        await self._judge.aclose()

    async def _supports(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        body = self._protocol.write(pairs).decode()
        prompt = Prompt(task=TASK, version=self._protocol.version, system="", user=body, frozen=True)
        found = (await self._judge.ask(prompt, PairSupports)).supports
        if len(found) != len(pairs):
            raise JudgeError(
                "unreadable", f"expected {len(pairs)} result{'' if len(pairs) == 1 else 's'}, got {len(found)}"
            )
        return found

"""What the apps share: arguments, words, and headers that carry the truth. Runs in the frameworks' environments."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

MODEL = "gpt-4.1-mini"
_AT_ONCE = 24
_TEXT = "warranty drill battery invoice refund parcel manual charger motor blade filter pump valve handle receipt"
_WORDS = tuple(_TEXT.split(" "))
_OPENINGS = ("Hello", "What is your return policy?", "How long is the warranty?", "Where is my order?")


@dataclass
class Conversation:
    """One conversation of an app: its turns, and the gateways it uses in turn."""

    kind: str
    name: str
    turns: int
    urls: list[str]
    draw: random.Random

    def headers(self, kind: str = "") -> dict[str, str]:
        """Tags say which conversation a request belongs to; nothing joins by them."""
        return {"x-gaugeway-tags": f"conversation={self.name},kind={kind or self.kind}"}

    def url(self) -> str:
        return self.draw.choice(self.urls)

    def question(self, turn: int) -> str:
        if turn == 1 and self.draw.random() < 0.2:
            return self.draw.choice(_OPENINGS)
        words = " ".join(self.draw.choices(_WORDS, k=self.draw.randint(3, 9)))
        return f"What about the {words}?"

    def passages(self) -> str:
        return "\n\n".join(" ".join(self.draw.choices(_WORDS, k=40)) + "." for _ in range(3))


def run(kinds: dict[str, Callable[[Conversation], Awaitable[None]]]) -> None:
    """Run the conversations: arguments are the number, a seed, and the base URLs of the gateways."""
    number, seed, *urls = sys.argv[1:]
    draw = random.Random(int(seed))

    async def main() -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(index: int) -> None:
            kind, play = list(kinds.items())[index % len(kinds)]
            own = random.Random(draw.getrandbits(64))
            async with gate:
                await play(Conversation(kind, f"{kind}-{index}", own.randint(1, 12), urls, own))

        await asyncio.gather(*(one(index) for index in range(int(number))))

    asyncio.run(main())

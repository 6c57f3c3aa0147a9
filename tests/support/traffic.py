"""The same traffic for whoever is compared: requests whose bytes follow from their numbers, and who sends them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from tests.support.scenario import PROMPT, STAY, TOPICS, passages


def request_of(number: int, *, system: str = STAY, app: str = "shop") -> bytes:
    """One request of the traffic: the same bytes, trace id included, whenever the number is the same."""
    topic = list(TOPICS)[number % 4]
    content = PROMPT.format(question=TOPICS[topic].format(n=number), contexts=passages(topic, number))
    return request_with(number, [("system", f"You answer for {app}. {system}"), ("user", content)], app=app)


def request_with(number: int, said: Sequence[tuple[str, str]], *, app: str = "shop") -> bytes:
    """A request with these messages, each a role and a text."""
    body = msgspec.json.encode({"model": "m", "messages": [{"role": role, "content": text} for role, text in said]})
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\nx-gaugeway-app: {app}\r\n"
        f"traceparent: 00-{trace_of(number)}-{1:016x}-01\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def trace_of(number: int) -> str:
    """The trace id of a request."""
    return f"{number + 1:032x}"


@dataclass(kw_only=True)
class Sent:
    """What came of requests: how many of each status, and how long each took; 0 stands for no answer at all."""

    statuses: dict[int, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many were sent."""
        return sum(self.statuses.values())

    @property
    def unharmed(self) -> bool:
        """Whether all were answered with 200."""
        return set(self.statuses) == {200}

    def note(self, status: int, seconds: float) -> None:
        """Count one."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.seconds.append(seconds)


class Line:
    """A kept-alive connection to a gateway, for one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes, sent: Sent, *, timeout_s: float = 30.0) -> None:
        """Send a request and read its whole answer."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                reader, writer = self._streams
                writer.write(request)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if length := re.search(rb"\r\ncontent-length: (\d+)", head):
                    await reader.readexactly(int(length[1]))
                else:
                    while size := int(await reader.readline(), 16):
                        await reader.readexactly(size + 2)
                    await reader.readexactly(2)
            status = int(head[9:12])
        except (OSError, EOFError, TimeoutError):
            status = 0
            self.close()
        sent.note(status, time.monotonic() - began)

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def send(ports: Sequence[int], requests: Sequence[bytes], sent: Sent, *, places: int = 16) -> None:
    """Send all requests over so many connections, spread over the gateways in turn."""
    left = iter(requests)

    async def one(line: Line) -> None:
        for request in left:
            await line.ask(request, sent)
        line.close()

    await asyncio.gather(*(one(Line(ports[place % len(ports)])) for place in range(places)))

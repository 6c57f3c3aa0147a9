"""Steady traffic that retries nothing: every request has a number of its own and a connection of its own."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from gaugeway.runtime.tasks import spawn
from tests.support.scenario import PROMPT, STAY, TOPICS, passages

PATIENCE_S = 180.0
APPS = ("calm", "shop")
"""The answers of `shop` are those that get worse where a row plants a drop."""
Kind: TypeAlias = Literal["ok", "cut", "refused", "status", "timeout"]
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ID = re.compile(rb"x-gaugeway-exchange-id: *(\S+)", re.IGNORECASE)


@dataclass(kw_only=True)
class Request:
    """One request and what became of it. Times are Unix seconds. `passed_by`: gateways that took no connection."""

    number: int
    app: str
    sent_at: float
    gateway: int = -1
    ended_at: float = 0.0
    kind: Kind = "refused"
    status: int = 0
    exchange: str = ""
    passed_by: int = 0


class Traffic:
    """Sends `per_s` requests a second from a thread, to the gateways in turn; who takes no connection is passed by.

    That is what a load balancer does: nothing was sent yet. Everything else counts as it comes. Use as a context
    manager: at its end what is under way is waited for.
    """

    def __init__(self, gateways: Sequence[tuple[str, int]], *, per_s: float) -> None:
        self.requests: list[Request] = []
        self._gateways = gateways
        self._pause = 1.0 / per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        begin, under_way = time.monotonic(), set()
        number = 0
        while not self._stop.is_set():
            number += 1
            request = Request(number=number, app=APPS[number // 2 % 2], sent_at=time.time())
            self.requests.append(request)
            task = spawn(self._ask(request), name="request")
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            await asyncio.sleep(max(0.0, begin + number * self._pause - time.monotonic()))
        if under_way:
            await asyncio.wait(under_way)

    async def _ask(self, request: Request) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._ask_one(request)
        except TimeoutError:
            request.kind = "timeout"
        except (OSError, asyncio.IncompleteReadError):
            request.kind = "cut"
        request.ended_at = time.time()

    async def _ask_one(self, request: Request) -> None:
        for turn in range(len(self._gateways)):
            request.gateway = (request.number + turn) % len(self._gateways)
            try:
                reader, writer = await asyncio.open_connection(*self._gateways[request.gateway])
                break
            except ConnectionRefusedError:
                request.passed_by += 1
        else:
            return
        try:
            writer.write(_bytes_of(request))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(_LENGTH.search(head)[1]))
        finally:
            writer.close()
        request.status = int(head.split()[1])
        request.kind = "ok" if request.status == 200 else "status"
        if found := _ID.search(head):
            request.exchange = found[1].decode()


def _bytes_of(request: Request) -> bytes:
    topic = list(TOPICS)[request.number % len(TOPICS)]
    question = TOPICS[topic].format(n=request.number)
    messages = [
        {"role": "system", "content": f"You answer for {request.app}. {STAY}"},
        {"role": "user", "content": PROMPT.format(question=question, contexts=passages(topic, request.number))},
    ]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
    return f"{head}x-gaugeway-app: {request.app}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

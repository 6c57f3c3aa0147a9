"""The judge of all contenders: an OpenAI-compatible endpoint that says what the case's script says, and counts.

A case is named in the path, /CASE/v1/chat/completions, or found by the marker T000 ... in the texts (/marked/v1/...).
Tokens are counted as characters / 4, for everybody alike.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dialects
import uvicorn

MARKER = re.compile(r"\bT\d{3}\b")
DIMENSION = 8


def tokens(text: str) -> int:
    """Four characters a token."""
    return -(-len(text) // 4)


class Stub:
    """The ASGI application. `delay_s` a request, at most `slots` of them at once."""

    def __init__(self, cases: dict[str, Any], delay_s: float, slots: int) -> None:
        self._cases = cases
        self._delay_s = delay_s
        self._slots = asyncio.Semaphore(slots)
        self._counts: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        self._counts = {"calls": 0, "input_tokens": 0, "output_tokens": 0, "embeddings": 0, "unknown": 0, "busiest": 0}
        self._under_way = 0

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        if scope["path"] == "/counts":
            status, said = 200, self._counts
            if scope["method"] == "POST":
                said = dict(self._counts)
                self.reset()
        else:
            self._under_way += 1
            self._counts["busiest"] = max(self._counts["busiest"], self._under_way)
            async with self._slots:
                await asyncio.sleep(self._delay_s)
            status, said = self._reply(scope["path"], json.loads(body))
            self._under_way -= 1
        payload = json.dumps(said).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": payload})

    def _reply(self, path: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = path.split("/")[1]
        if name == "marked":
            found = MARKER.findall(json.dumps(request))
            name = found[-1] if found else next(iter(self._cases))  # the reasons for a score quote no text
        case = self._cases[name]
        if path.endswith("/embeddings"):
            return 200, self._embedded(case, request["input"])
        try:
            said = dialects.answer(request["messages"], case)
        except (dialects.Unknown, KeyError, IndexError, ValueError) as error:
            self._counts["unknown"] += 1
            message = f"not scripted: {type(error).__name__} {error}"
            return 400, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}
        if request.get("logprobs") and not case.get("logprobs", True):
            text = "logprobs are not supported"
            return 400, {"error": {"message": text, "type": "invalid_request_error", "param": "logprobs", "code": None}}
        return 200, self._completion(case, request, said)

    def _completion(self, case: dict[str, Any], request: dict[str, Any], said: str) -> dict[str, Any]:
        sent = tokens("".join(dialects.text_of(message) for message in request["messages"]))
        if "response_format" in request:  # as it was sent: the clients' JSON has no spaces
            sent += tokens(json.dumps(request["response_format"], separators=(",", ":")))
        self._counts["calls"] += 1
        self._counts["input_tokens"] += sent
        self._counts["output_tokens"] += tokens(said)
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        if request.get("logprobs"):
            ranked = [{"token": one, "logprob": p, "bytes": None} for one, p in dialects.alternatives(case).items()]
            choice["logprobs"] = {"content": [{**ranked[0], "top_logprobs": ranked}]}
        usage = {"prompt_tokens": sent, "completion_tokens": tokens(said), "total_tokens": sent + tokens(said)}
        return {
            "id": "stub",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [choice],
            "usage": usage,
        }

    def _embedded(self, case: dict[str, Any], texts: list[str] | str) -> dict[str, Any]:
        self._counts["embeddings"] += 1
        texts = [texts] if isinstance(texts, str) else texts
        vectors = case["script"].get("vectors", {})
        data = [
            {"object": "embedding", "index": i, "embedding": vectors.get(text, [1.0] + [0.5] * (DIMENSION - 1))}
            for i, text in enumerate(texts)
        ]
        return {"object": "list", "model": "stub", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def _serve(cases: dict[str, Any], delay_s: float, slots: int, port: int) -> None:
    config = uvicorn.Config(Stub(cases, delay_s, slots), port=port, log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run()


@contextmanager
def serving(cases: dict[str, Any], *, delay_s: float = 0.0, slots: int = 1000) -> Iterator[str]:
    """Serve in a process of its own; the URL without a path."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(cases, delay_s, slots, port))
    process.start()
    try:
        _wait(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.join()


def _wait(port: int, process: multiprocessing.process.BaseProcess) -> None:
    while process.is_alive():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            process.join(0.05)
        else:
            return
    raise SystemExit("the stub did not start")


def counts(url: str) -> dict[str, int]:
    """What was counted since the last time."""
    request = urllib.request.Request(f"{url}/counts", data=b"", method="POST")
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)

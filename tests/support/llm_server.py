"""A real OpenAI-compatible HTTP server on loopback that answers what a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

import msgspec


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer. `content` is the model's text (anything but a string is sent as JSON); `body` replaces it all."""

    content: Any = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    finish_reason: str = "stop"
    refusal: str | None = None
    tokens: tuple[int, int] = (10, 5)
    body: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it arrived; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """The contents of all messages."""
        return "\n".join(message["content"] for message in self.body.get("messages", []))


def error(status: int, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    """An error of the OpenAI shape."""
    body = {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}
    return Reply(status=status, body=json.dumps(body).encode(), headers=headers or {})


Answering = Callable[[Request], Reply]


class LLMServer:
    """Serves `replies` in order, the last one for ever; or what a function of the request returns.

    `vectors` holds the embedding of each text. Without `lists_models` a GET is no request: there is no list of models.
    Use as a context manager; `url` is the base URL, `requests` the log.
    """

    def __init__(
        self,
        *replies: Reply | Answering,
        vectors: Mapping[str, Sequence[float]] | None = None,
        api_path: str = "/v1",
        lists_models: bool = False,
    ) -> None:
        self.requests: list[Request] = []
        self._replies = list(replies) or [Reply()]
        self._vectors = vectors or {}
        self.lists_models = lists_models
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}{api_path}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, request: Request) -> Reply:
        """Choose the reply to a request."""
        with self._lock:
            self.requests.append(request)
            chosen = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(chosen, Reply):
            return chosen
        return chosen(request)

    def encode(self, request: Request, reply: Reply) -> bytes:
        """Write the body of a reply."""
        if reply.body is not None:
            return reply.body
        if request.path.endswith("/embeddings"):
            texts = request.body["input"]
            rows = [{"object": "embedding", "index": i, "embedding": self._vectors[t]} for i, t in enumerate(texts)]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            return json.dumps({"object": "list", "model": "stub", "data": rows, "usage": usage}).encode()
        content = reply.content if isinstance(reply.content, str) else json.dumps(reply.content)
        message = {"role": "assistant", "content": None if reply.refusal else content, "refusal": reply.refusal}
        completion = {
            "id": "stub",
            "object": "chat.completion",
            "created": 0,
            "model": request.body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason, "logprobs": None}],
            "usage": {
                "prompt_tokens": reply.tokens[0],
                "completion_tokens": reply.tokens[1],
                "total_tokens": sum(reply.tokens),
            },
        }
        return json.dumps(completion).encode()


class _Server(ThreadingHTTPServer):
    owner: LLMServer
    request_queue_size = 128  # with the default of 5 a burst of connections waits a second for its second SYN

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gives up half-way is part of many tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.server.owner.lists_models:
            self.do_POST()
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        request = Request(path=self.path, headers={k.lower(): v for k, v in self.headers.items()}, body=body)
        reply = owner.answer(request)
        if reply.delay_s:
            owner.closing.wait(reply.delay_s)
        payload = owner.encode(request, reply)
        self.send_response(reply.status)
        for name, value in {"content-type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


class Mood(msgspec.Struct):
    """What a judge is asked for, in tests of how it is asked."""

    mood: Literal["good", "bad"]
    why: str = ""

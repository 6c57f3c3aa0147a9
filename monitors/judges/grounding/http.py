"""The HTTP endpoint of verifiers that are no chat models: posts JSON, reads the reply by the protocol of its server."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar

import httpx
import msgspec

from gaugeway.runtime.replies import MAX_REPLY_BYTES, ReplyError, ReplyTooLargeError, limited
from gaugeway.runtime.retry import retry_after_s
from gaugeway.settings.bounds import token_count
from gaugeway.settings.shared import Price
from monitors.judges import SPEND, Judge, JudgeError, Observer, Prompt
from monitors.judges.cost import FREE

T = TypeVar("T")
_TIMEOUT, _TOO_LARGE, _RATE_LIMITED, _SERVER_ERROR = 408, 413, 429, 500
_BACKEND_FAILED = 424
"""text-embeddings-inference: the model failed, not the request."""
_TOO_LONG = (400, _TOO_LARGE, 422)
_OVERFLOW = re.compile(
    r"must have less than \d+ tokens|maximum context length|longer than the maximum|too many (?:input )?tokens"
    r"|context[ _-]?length|reduce the length",
    re.IGNORECASE,
)
_EXAMINED, _SHOWN = 10_000, 300


class Protocolled(Protocol):
    """How one kind of server is spoken to."""

    @property
    def path(self) -> str:
        """The path of the endpoint, after the base URL."""

    @property
    def version(self) -> str:
        """Changes whenever the same reply could be read differently."""

    def read(self, request: bytes, reply: bytes) -> Any:
        """Return the answer that the reply holds. Raises ValueError when it does not fit the request."""

    def tokens(self, reply: bytes, headers: Mapping[str, str]) -> int:
        """Return the tokens that the server says it read; 0 when it does not say."""


class JsonEndpoint(Judge):
    """Posts a prompt's user text, which is JSON, to `base_url` + the protocol's path, once; retries are the stack's.

    A redirect is an error, as is a reply of more than 16 MiB. The texts of replies and errors are shown shortened and
    without the key. Belongs to one event loop.
    """

    def __init__(
        self,
        protocol: Protocolled,
        base_url: str,
        api_key: str | None,
        model: str,
        *,
        timeout_s: float = 10.0,
        price: Price = FREE,
        observer: Observer | None = None,
    ) -> None:
        key = (api_key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("api_key: holds characters that cannot be sent in a header")
        self._protocol = protocol
        self._url = base_url.rstrip("/") + protocol.path
        self._key = key
        self._model = model
        self._timeout_s = timeout_s
        self._price = price
        self._observer = observer or Observer()
        options = limited(MAX_REPLY_BYTES)
        headers = {**options["headers"], "content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(headers=headers, event_hooks=options["event_hooks"], timeout=timeout_s)

    @property
    def model(self) -> str:
        return self._model

    @property
    def identity(self) -> str:
        return f"{self._url} {self._model} {self._protocol.version}"

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        try:
            answer = await self._ask(prompt.user.encode())
        except JudgeError as error:
            self._observer.failed(self._model, error.kind)
            raise
        if not isinstance(answer, answer_type):
            raise TypeError(f"{self._protocol.path} answers with {type(answer).__name__}, not {answer_type.__name__}")
        return answer

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, request: bytes) -> Any:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._client.post(self._url, content=request)
        except ReplyError as error:
            raise JudgeError(
                "too_large" if isinstance(error, ReplyTooLargeError) else "unreadable", str(error)
            ) from None
        except (TimeoutError, httpx.TimeoutException):
            raise JudgeError("timeout", f"no answer within {self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # the causes hold the request, and so the key
            raise JudgeError("connection", self._clean(f"{type(error).__name__}: {error}")) from None
        if reply.status_code != httpx.codes.OK:
            raise self._refused(reply)
        self._count(time.perf_counter() - started, self._protocol.tokens(reply.content, reply.headers))
        try:
            return self._protocol.read(request, reply.content)
        except (ValueError, RecursionError) as error:
            self._observer.unusable(self._model, "wrong_shape")
            raise JudgeError("unreadable", self._clean(str(error))) from None

    def _refused(self, reply: httpx.Response) -> JudgeError:
        status, text = reply.status_code, reply.text[:_EXAMINED]
        if status == _TIMEOUT:
            kind = "timeout"
        elif status == _RATE_LIMITED:
            kind = "rate_limited"
        elif (status in _TOO_LONG and _OVERFLOW.search(text)) or (
            status == _TOO_LARGE and "batch size" not in text.lower()
        ):
            kind = "context_overflow"
        else:
            kind = "server_error" if status >= _SERVER_ERROR or status == _BACKEND_FAILED else "bad_request"
        detail = self._clean(f"Error code: {status} - {text}")
        return JudgeError(kind, detail, retry_after_s=retry_after_s(reply.headers, time.time()))

    def _count(self, seconds: float, tokens: int) -> None:
        usd = self._price.usd(tokens, 0)
        if (spend := SPEND.get()) is not None:
            spend.calls += 1
            spend.input_tokens += tokens
            spend.usd += usd
        self._observer.judged(self._model, seconds, tokens, 0, usd)

    def _clean(self, text: str) -> str:
        text = text.replace(self._key, "***") if self._key else text
        return " ".join(text.split())[:_SHOWN]


Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_SLACK = 1e-3


def probability(value: float) -> float:
    """Return a score as a probability; rounding may put it just outside [0, 1]. Raises ValueError for others.

    >>> probability(1.0000001)
    1.0
    """
    if not (math.isfinite(value) and -_SLACK <= value <= 1.0 + _SLACK):
        raise ValueError(f"score {value!r} is not in [0, 1]")
    return min(1.0, max(0.0, value))


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Counted(msgspec.Struct):
    usage: _Usage | None = None


def tokens_in(reply: bytes) -> int:
    """Return `usage.prompt_tokens` of a reply; 0 when it has none."""
    try:
        usage = msgspec.json.decode(reply, type=_Counted).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return token_count(usage and usage.prompt_tokens) or 0


def decoded(reply: bytes, kind: type[T], what: str) -> T:
    """Decode a reply strictly. Raises ValueError that says what was expected."""
    try:
        return msgspec.json.decode(reply, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the reply is not a {what}: {error}") from None


def same_count(found: Sequence[object], wanted: int) -> None:
    """Raise ValueError unless there are as many answers as were asked for."""
    if len(found) != wanted:
        raise ValueError(f"expected {wanted} result{'' if wanted == 1 else 's'}, got {len(found)}")

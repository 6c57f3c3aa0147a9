"""The client for OpenAI-compatible endpoints: connecting, errors as JudgeError, and the parts of a chat completion."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import msgspec

from gaugeway.runtime.replies import MAX_REPLY_BYTES, ReplyError, ReplyTooLargeError, limited
from gaugeway.runtime.retry import retry_after_s
from monitors.judges import JudgeError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_DETAIL_LENGTH = 500
MAX_ERROR_TEXT = 10_000  # internal bound: an error's text in a log line, cut
"""Characters of a server's error message that are examined."""
_TIMEOUT, _RATE_LIMITED, _SERVER_ERROR = 408, 429, 500
_TOO_LONG = (400, 413, 422)
_BACKEND_FAILED = 424
"""text-embeddings-inference: the model failed, not the request."""
_OVERFLOW = re.compile(
    r"context[ _-]?(?:length|window|size)|(?:prompt|input) (?:is |was )?too (?:long|large)|too many (?:input )?tokens"
    r"|maximum number of (?:input )?tokens|reduce the length|must have less than \d+ tokens|longer than the maximum",
    re.IGNORECASE,
)


def connect(
    *,
    base_url: str,
    api_key: str | None,
    timeout_s: float,
    max_retries: int,
    api_version: str | None = None,
    deployment: str | None = None,
    max_reply_bytes: int = MAX_REPLY_BYTES,
) -> AsyncOpenAI:
    """Open a client that ignores the SDK's environment variables, since they must not change a score.

    With `api_version` requests take Azure's form: `base_url` is the resource (or its deployment's path), the version a
    query parameter; every request needs `azure_headers` as well. A redirect is an error, because the SDK would send the
    prompt, and Azure's key, to its target. So is a reply of more than `max_reply_bytes`, decompressed.

    Raises ValueError as `sendable` does.
    """
    # Half a second that an installation without a judge does not pay.
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient  # noqa: PLC0415

    key, query = sendable(api_key), None
    if api_version is not None:
        base_url, query = azure_url(base_url, deployment or ""), {"api-version": api_version}
    client = AsyncOpenAI(
        base_url=base_url,
        api_key=key or "none",
        timeout=timeout_s,
        max_retries=max_retries,
        default_query=query,
        http_client=DefaultAsyncHttpxClient(follow_redirects=False, timeout=timeout_s, **limited(max_reply_bytes)),
    )
    client.organization = client.project = None
    return client


def sendable(api_key: str | None) -> str:
    """Return a key as it is sent. Raises ValueError, without quoting it, for one that cannot stand in a header."""
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError("api_key: holds characters that cannot be sent in a header")
    return key


def azure_headers(api_key: str | None) -> dict[str, Any]:
    """Return the `extra_headers` of a request in Azure's form: the key in `api-key`, and no Authorization."""
    from openai import Omit  # noqa: PLC0415 - as above

    return {"api-key": (api_key or "").strip(), "Authorization": Omit()}


def azure_url(base_url: str, deployment: str) -> str:
    """Return the URL of a deployment: `base_url` may be the resource alone, end in /openai, or name a deployment.

    >>> azure_url("https://ours.openai.azure.com", "judge")
    'https://ours.openai.azure.com/openai/deployments/judge'
    >>> azure_url("https://ours.openai.azure.com/openai/deployments/other/", "judge")
    'https://ours.openai.azure.com/openai/deployments/other'
    """
    if "/deployments/" in (url := base_url.rstrip("/")):
        return url
    return f"{url.removesuffix('/openai')}/openai/deployments/{deployment}"


def judge_error(error: Exception, api_key: str | None) -> JudgeError:
    """Convert an exception of the SDK to a JudgeError; its text never holds the key."""
    import openai  # noqa: PLC0415 - loaded already, or there would be no exception

    reply = error if isinstance(error, ReplyError) else error.__cause__
    if isinstance(reply, ReplyError):
        return JudgeError("too_large" if isinstance(reply, ReplyTooLargeError) else "unreadable", str(reply))
    status = getattr(error, "status_code", None)
    if isinstance(error, openai.APITimeoutError):
        kind = "timeout"
    elif isinstance(error, openai.APIConnectionError):
        kind = "connection"
    elif isinstance(error, openai.APIResponseValidationError) or not isinstance(status, int):
        kind = "unreadable"
    else:
        kind = kind_of(status, too_long=overflows(error))
    headers = getattr(getattr(error, "response", None), "headers", None)
    return JudgeError(kind, clean(str(error), api_key), retry_after_s=retry_after_s(headers or {}, time.time()))


def kind_of(status: int, *, too_long: bool) -> str:
    """Return the kind of JudgeError for the HTTP status of a refused request."""
    if status in (_TIMEOUT, _RATE_LIMITED):
        return "timeout" if status == _TIMEOUT else "rate_limited"
    if too_long:
        return "context_overflow"
    return "server_error" if status >= _SERVER_ERROR or status == _BACKEND_FAILED else "bad_request"


def overflows(error: Exception) -> bool:
    """Whether the server rejected the request because it is too long for the model."""
    if getattr(error, "code", None) == "context_length_exceeded" and getattr(error, "status_code", None) in _TOO_LONG:
        return True
    return says_too_long(getattr(error, "status_code", None), str(error))


def says_too_long(status: int | None, text: str) -> bool:
    """Whether a refusal says that a text is too long for the model."""
    return status in _TOO_LONG and _OVERFLOW.search(text[:MAX_ERROR_TEXT]) is not None


def clean(text: str, api_key: str | None) -> str:
    """Return `text` on one line, without the key that some servers repeat, in at most 500 characters."""
    key = (api_key or "").strip()
    text = text.replace(key, "***") if key else text
    return " ".join(text[:MAX_ERROR_TEXT].split())[:_DETAIL_LENGTH]


class Details(msgspec.Struct):
    """`usage.prompt_tokens_details`."""

    cached_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    """`usage.completion_tokens_details`."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    """`usage`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: OutputDetails | None = None


class Message(msgspec.Struct):
    """`choices[].message`."""

    content: Any = None
    refusal: str | None = None


class Alternative(msgspec.Struct):
    """An alternative for one token of the answer."""

    token: str
    logprob: float | None = None


class Token(msgspec.Struct):
    """One token of the answer, and its likeliest alternatives (usually including itself)."""

    token: str
    logprob: float | None = None
    top_logprobs: list[Alternative] = msgspec.field(default_factory=list)


class Logprobs(msgspec.Struct):
    """`choices[].logprobs`."""

    content: list[Token] | None = None


class Choice(msgspec.Struct):
    """`choices[]`; the log-probabilities are decoded separately, so that malformed ones do not lose the answer."""

    message: Message
    finish_reason: str | None = None
    logprobs: msgspec.Raw = msgspec.Raw(b"null")


class Completion(msgspec.Struct):
    """The body of the reply."""

    choices: list[Choice] = msgspec.field(default_factory=list)
    usage: Usage | None = None

    def tokens(self) -> list[Token]:
        """Return the answer's tokens with their log-probabilities; empty when there are none or they are malformed."""
        try:
            found = msgspec.json.decode(self.choices[0].logprobs, type=Logprobs | None)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
            return []
        return (found.content or []) if found is not None else []


_decode = msgspec.json.Decoder(Completion).decode


def read_completion(body: bytes) -> Completion:
    """Decode the body of a reply. Raises ValueError when it is not a chat completion."""
    try:
        return _decode(body)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error

"""The parts of a chat completion that a judge looks at."""

from __future__ import annotations

from typing import Any

import msgspec


class Details(msgspec.Struct):
    """`usage.prompt_tokens_details`."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """`usage`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Message(msgspec.Struct):
    """`choices[].message`."""

    content: Any = None
    refusal: str | None = None


class Alternative(msgspec.Struct):
    """One of the tokens that could have stood at a place."""

    token: str
    logprob: float | None = None


class Token(msgspec.Struct):
    """The token at a place, and its likeliest alternatives (itself, as a rule, among them)."""

    token: str
    logprob: float | None = None
    top_logprobs: list[Alternative] = msgspec.field(default_factory=list)


class Logprobs(msgspec.Struct):
    """`choices[].logprobs`."""

    content: list[Token] | None = None


class Choice(msgspec.Struct):
    """`choices[]`; the log-probabilities are read apart, so that odd ones cost no answer."""

    message: Message
    finish_reason: str | None = None
    logprobs: msgspec.Raw = msgspec.Raw(b"null")


class Completion(msgspec.Struct):
    """The body of the reply."""

    choices: list[Choice] = msgspec.field(default_factory=list)
    usage: Usage | None = None

    def tokens(self) -> list[Token]:
        """The answer's tokens with their log-probabilities; empty where there are none to be read."""
        try:
            found = msgspec.json.decode(self.choices[0].logprobs, type=Logprobs | None)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
            return []
        return (found.content or []) if found is not None else []


_decode = msgspec.json.Decoder(Completion).decode


def read(body: bytes) -> Completion:
    """Read the body of a reply. Raises ValueError for one that is no chat completion."""
    try:
        return _decode(body)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error

"""The HTTP endpoint of verifiers and judges that are no chat models, and the protocols of the classifiers of pairs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import httpx
import msgspec

from gaugeway.data_files import table
from gaugeway.runtime.replies import MAX_REPLY_BYTES, ReplyError, ReplyTooLargeError, limited
from gaugeway.runtime.retry import retry_after_s
from gaugeway.settings.shared import Price
from monitors.judges import Judge, JudgeError, Observer, Prompt
from monitors.judges import openai_client as sdk
from monitors.judges.cost import FREE, Meter
from monitors.judges.decisions import Tokens, probability, usage_in
from monitors.judges.grounding.documents import digest
from monitors.judges.grounding.pairs import PairSupports

T = TypeVar("T")
_TOO_LARGE = 413


class Protocolled(Protocol):
    """How one kind of server is spoken to."""

    path: str
    """The path of the endpoint, after the base URL."""
    version: str
    """Changes whenever the same reply could be read differently."""

    def read(self, request: bytes, reply: bytes) -> Any:
        """Return the answer that the reply holds. Raises ValueError when it does not fit the request."""

    def tokens(self, reply: bytes, headers: Mapping[str, str]) -> Tokens:  # noqa: ARG002 - some count in headers
        """Return the tokens that the server says it read, wrote and had in its cache; 0 when it does not say."""
        return usage_in(reply)


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
        key = sdk.sendable(api_key)
        self._protocol = protocol
        self._url = base_url.rstrip("/") + protocol.path
        self._key = key
        self._model = model
        self._timeout_s = timeout_s
        self._observer = observer or Observer()
        self._meter = Meter(model, price, self._observer)
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
            raise JudgeError("connection", sdk.clean(f"{type(error).__name__}: {error}", self._key)) from None
        if reply.status_code != httpx.codes.OK:
            raise self._refused(reply)
        read, wrote, cached = self._protocol.tokens(reply.content, reply.headers)
        self._meter.count(time.perf_counter() - started, read, wrote, cached_tokens=cached)
        try:
            return self._protocol.read(request, reply.content)
        except (ValueError, RecursionError) as error:
            self._observer.unusable(self._model, "wrong_shape")
            raise JudgeError("unreadable", sdk.clean(str(error), self._key)) from None

    def _refused(self, reply: httpx.Response) -> JudgeError:
        status, text = reply.status_code, reply.text[: sdk.MAX_ERROR_TEXT]
        too_large = status == _TOO_LARGE and "batch size" not in text.lower()
        kind = sdk.kind_of(status, too_long=too_large or sdk.says_too_long(status, text))
        detail = sdk.clean(f"Error code: {status} - {text}", self._key)
        return JudgeError(kind, detail, retry_after_s=retry_after_s(reply.headers, time.time()))


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


class DecisionEndpoint(JsonEndpoint):
    """A decisions endpoint: counts the questions that were not answered."""

    async def _ask(self, request: bytes) -> Any:
        found = await super()._ask(request)
        for reason, count in (("refused_question", found.refused), ("unreadable_answer", found.unreadable)):
            for _ in range(count):
                self._observer.unusable(self._model, reason)
        return found


_LABELS = table("monitors.judges.grounding", "labels.toml")
_BINARY = 2
_DOCUMENT, _CLAIM = "{document}", "{claim}"


def label_of_support(labels: Sequence[str], *, only: bool = True) -> int | None:
    """Return the index of the label that means supported, by the usual names; None where they leave it open.

    Of two labels it is the one beside a usual name for the opposite; with `only` it may be the only label.
    """
    names = [label.lower() for label in labels]
    supported = [index for index, name in enumerate(names) if name in _LABELS["supported"]]
    if len(supported) == 1:
        return supported[0]
    if supported:
        return None
    others = [index for index, name in enumerate(names) if name not in _LABELS["unsupported"]]
    if len(labels) == _BINARY and len(others) == 1:
        return others[0]
    return 0 if only and len(labels) == 1 else None


class _Predicted(msgspec.Struct):
    label: str
    score: float


class _Inputs(msgspec.Struct):
    inputs: list[msgspec.Raw]


class Predict:
    """`POST /predict` of text-embeddings-inference: pairs in, a list of labels with their scores for each.

    `label` names the label that means supported; None: one of the usual names, of two labels the one beside a usual
    name for the opposite, or the only label of a model with one.
    Texts are not truncated: one that is too long is an error, and cut by the caller.
    """

    path = "/predict"

    def __init__(self, label: str | None = None) -> None:
        self._label = label
        self.version = digest("predict 1", label or "")

    def write(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Return the body of the request."""
        return msgspec.json.encode({"inputs": pairs, "raw_scores": False, "truncate": False})

    def read(self, request: bytes, reply: bytes) -> PairSupports:
        """Return the probability of the label for each pair. Raises ValueError."""
        rows = decoded(reply, list[list[_Predicted]], "list of labels per pair")
        same_count(rows, len(msgspec.json.decode(request, type=_Inputs).inputs))
        return PairSupports(supports=[probability(self._score(row)) for row in rows])

    def tokens(self, reply: bytes, headers: Mapping[str, str]) -> Tokens:  # noqa: ARG002 - the port's shape
        """Return the tokens in `x-compute-tokens`."""
        found = headers.get("x-compute-tokens", "")
        return int(found) if found.isascii() and found.isdigit() and len(found) <= 9 else 0, 0, 0  # noqa: PLR2004 - digits

    def _score(self, row: Sequence[_Predicted]) -> float:
        labels = [predicted.label for predicted in row]
        if self._label is None:
            index = label_of_support(labels)
        else:
            index = labels.index(self._label) if labels.count(self._label) == 1 else None
        if index is None:
            given = ", ".join(label[:40] for label in labels[:8])
            raise ValueError(f"set judge.grounding.label: which of the labels {given or '(none)'} means supported?")
        return row[index].score


class _Classified(msgspec.Struct):
    index: int
    probs: list[float]
    label: str | None = None


class _Reply(msgspec.Struct):
    data: list[_Classified]


class _Input(msgspec.Struct):
    input: list[msgspec.Raw]


class Classify(Protocolled):
    """`POST /classify` of vLLM: texts in, the probabilities of all classes for each.

    vLLM takes single texts: `template` makes one of a pair, with `{document}` and `{claim}`. `label` is the index of
    the class that means supported ("1", the default of models with two classes); the only class of a model with one.
    """

    path = "/classify"

    def __init__(self, model: str, template: str, label: str | None = None) -> None:
        if template.count(_DOCUMENT) != 1 or template.count(_CLAIM) != 1:
            raise ValueError("template: must contain {document} and {claim} exactly once")
        if label is not None and not (label.isascii() and label.isdigit()):
            raise ValueError('label: must be a class index such as "1" with api = "classify"')
        self._model = model
        self._template = template
        self._label = None if label is None else int(label)
        self.version = digest("classify 1", template, label or "")

    def write(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Return the body of the request."""
        return msgspec.json.encode({"model": self._model, "input": [self._text(*pair) for pair in pairs]})

    def read(self, request: bytes, reply: bytes) -> PairSupports:
        """Return the probability of the class for each pair. Raises ValueError."""
        rows = decoded(reply, _Reply, "classification").data
        count = len(msgspec.json.decode(request, type=_Input).input)
        same_count(rows, count)
        if set(found := {row.index: probability(self._score(row.probs)) for row in rows}) != set(range(count)):
            raise ValueError("the reply does not classify every text")
        return PairSupports(supports=[found[index] for index in range(count)])

    def _text(self, document: str, claim: str) -> str:
        # Cut at the marks rather than replaced: a document may hold "{claim}" itself.
        before, after = self._template.split(_DOCUMENT)
        return document.join(part.replace(_CLAIM, claim) for part in (before, after))

    def _score(self, probs: Sequence[float]) -> float:
        if (index := self._label) is None:
            if not 1 <= len(probs) <= _BINARY:
                raise ValueError(f"set judge.grounding.label: which of {len(probs)} classes means supported?")
            index = len(probs) - 1
        if index >= len(probs):
            raise ValueError(f"judge.grounding.label is {index}, and the model has {len(probs)} classes")
        return probs[index]

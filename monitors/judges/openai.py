"""The judge behind an OpenAI-compatible chat completions endpoint."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gaugeway.runtime.replies import ReplyError
from gaugeway.settings.bounds import token_count
from gaugeway.settings.shared import Price
from monitors.judges import Judge, JudgeError, Observer, Prompt
from monitors.judges import openai_client as sdk
from monitors.judges import structured_output as reading
from monitors.judges.cost import FREE, Meter
from monitors.judges.openai_client import Completion, Token, Usage

if TYPE_CHECKING:
    from openai import RequestOptions

T = TypeVar("T")

_FORMATS = ("json_schema", "json_object", "none")
_FORMAT = r"response.?format|max_?items|json.?schema|json.?object|json.?mode|structured.?outputs?|guided.?\w+|grammar"
_BOUNDS = re.compile(r"max_?items", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!Error code: )(?<![\d.-])\d{3,6}(?![\d.])")
_LOGPROBS = r"(?:top_|sample )?logprobs?"
_REFUSED = (
    r"not (?:supported|permitted|allowed|available|implemented)|(?:does|do)(?: not|n't) support|unsupported|unavailable"
    r"|unknown|unrecogni[sz]ed|unexpected|extra_forbidden|must be|failed to parse|greater than|at most"
)
_REFUSALS = (400, 422)
_ATTEMPTS = 2
_ALTERNATIVES = (20, 5, 0)
"""Values for `top_logprobs`, tried in turn; some servers allow fewer alternatives, others none."""
_CAPS = ("max_tokens", "max_completion_tokens", "")
"""Names of the bound on an answer's tokens, tried in turn. A server may ignore the second one without saying so."""
MAX_THINKING = 16_384
"""Tokens added to an answer's bound for a model that thinks before it answers, since they count in it."""
_FEWEST = 256
"""Least number in a refusal that is taken for the most tokens that the server allows."""


class _Options(Struct, frozen=True):
    """The request options that the endpoint accepts. `most` is the most tokens of an answer, if it names one.

    `thinks` says that tokens of its answers are thoughts.
    """

    temperature: float | None
    format: str = _FORMATS[0]
    alternatives: int = _ALTERNATIVES[0]
    bounded: bool = True
    cap: str = _CAPS[0]
    most: int | None = None
    thinks: bool = False


class _Request(Struct, frozen=True, kw_only=True):
    """A request, independent of the options that the endpoint accepts."""

    prompt: Prompt
    schema: Mapping[str, Any] | None
    again: bool = False
    longer: bool = False
    logprobs: bool = False


class OpenAIJudge(Judge):
    """Requests structured output from a chat model and decodes the answer strictly.

    `timeout_s` bounds a whole `ask` from the moment it has one of the `concurrency` slots, including retries (the SDK's
    own, at most `max_retries` a request, honouring Retry-After) and the second request after an unreadable answer. For
    a server that rejects a JSON schema, JSON mode is used, then plain text; temperature and max_tokens are left out,
    and 20 alternatives of a token are reduced to 5, then none, where the server rejects them. So are the bounds on
    lists, and the one on the answer's tokens (`Prompt.output_cap`), which is max_completion_tokens where max_tokens is
    refused. Options that worked are remembered until the server rejects them. An answer cut at its bound is asked for
    once more with twice the tokens. With `api_version` the endpoint is Azure's and `model` the deployment.
    Belongs to one event loop.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        model: str,
        *,
        temperature: float = 0.0,
        timeout_s: float = 60.0,
        concurrency: int = 4,
        max_retries: int = 3,
        price: Price = FREE,
        api_version: str | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._client = sdk.connect(
            base_url=base_url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            api_version=api_version,
            deployment=model,
        )
        self._identity = f"{base_url.rstrip('/')} {model} temperature={temperature:g}"
        self._request_options: RequestOptions = {} if api_version is None else {"headers": sdk.azure_headers(api_key)}
        self._api_key = api_key
        self._model = model
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        self._observer = observer or Observer()
        self._meter = Meter(model, price, self._observer)
        self._options = _Options(temperature)

    @property
    def model(self) -> str:
        return self._model

    @property
    def identity(self) -> str:
        return self._identity

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        return (await self._in_time(lambda: self._ask(prompt, answer_type, logprobs=False)))[0]

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        logprobs = self._options.alternatives > 0
        answer, tokens = await self._in_time(lambda: self._ask(prompt, answer_type, logprobs=logprobs))
        return answer, reading.sureness(tokens, reading.strict_schema(answer_type))

    async def ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        if self._options.alternatives == 0:
            return None
        return await self._in_time(lambda: self._ask_scored(prompt, choices))

    async def aclose(self) -> None:
        await self._client.close()

    async def _in_time(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            async with self._slots, asyncio.timeout(self._timeout_s):
                return await call()
        except TimeoutError:
            failure = JudgeError("timeout", f"no answer within {self._timeout_s:g} s")
        except JudgeError as error:
            failure = error
        self._observer.failed(self._model, failure.kind)
        raise failure from None

    async def _ask(self, prompt: Prompt, answer_type: type[T], *, logprobs: bool) -> tuple[T, list[Token]]:
        schema = reading.strict_schema(answer_type)

        async def attempt(**how: bool) -> tuple[T, list[Token]]:
            completion = await self._complete(_Request(prompt=prompt, schema=schema, logprobs=logprobs, **how))
            return reading.read(_text(completion), answer_type), completion.tokens() if logprobs else []

        return await self._twice(attempt, prompt)

    async def _ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        system = f"{prompt.system}\n\nAnswer with one of these and nothing else: {', '.join(choices)}"
        plain = prompt if prompt.frozen else replace(prompt, system=system)

        async def attempt(**how: bool) -> Mapping[str, float] | None:
            completion = await self._complete(_Request(prompt=plain, schema=None, logprobs=True, **how))
            text, tokens = _text(completion, cut=prompt.max_tokens is not None), completion.tokens()
            if not any(token.logprob is not None for token in tokens):
                if prompt.frozen:  # the answer is worthless without; one bad reply must not switch them off for good
                    raise reading.UnreadableError("wrong_shape", "the reply holds no log-probabilities")
                self._options = replace(self._options, alternatives=0)
                return None
            try:
                found = reading.weights(tokens, choices)
            except ValueError as error:
                raise reading.UnreadableError("wrong_shape", str(error)) from None
            if found is None:
                raise reading.UnreadableError("wrong_shape", f"expected {_either(choices)}, got {text[:80]!r}")
            return found

        return await self._twice(attempt, prompt)

    async def _twice(self, attempt: Callable[..., Awaitable[T]], prompt: Prompt) -> T:
        """Make a second attempt when the first answer cannot be read, if the prompt may be asked again."""
        problem, cut = "", False
        for asked in range(_ATTEMPTS if prompt.ask_again else 1):
            try:
                return await attempt(again=asked > 0 and not cut, longer=cut)
            except reading.UnreadableError as error:
                problem, cut = str(error), error.reason == "truncated"
                self._observer.unusable(self._model, error.reason)
        raise JudgeError("truncated" if cut else "unreadable", sdk.clean(problem, self._api_key))

    async def _complete(self, request: _Request) -> Completion:
        """Send one request with the best options the server is known to accept; return its answer."""
        import openai  # noqa: PLC0415 - loaded by the constructor

        remembered = options = self._options
        tried = {options.format}
        while True:
            started = time.perf_counter()
            try:
                # Not `chat.completions.create`: it goes through each argument with its type, for half a millisecond.
                reply = await self._client.post(
                    "/chat/completions",
                    cast_to=openai.HttpxBinaryResponseContent,
                    body=self._body(request, options),
                    options=self._request_options,
                )
            except (openai.OpenAIError, ReplyError) as error:
                other = _other_options(options, error, tried, request)
                if other is None and request.prompt.output_cap and options.cap and sdk.overflows(error):
                    request, other = replace(request, prompt=replace(request.prompt, output_cap=None)), options
                if other is None:
                    # The causes below hold the request, and so the key: they stay out of every traceback.
                    raise sdk.judge_error(error, self._api_key) from None
                options = other
                tried.add(options.format)
                continue
            if options != remembered:
                self._options = options
            try:
                completion = sdk.read_completion(reply.content)
            except ValueError as error:
                self._count(time.perf_counter() - started, None)
                raise reading.UnreadableError("no_completion", f"the reply is not a chat completion: {error}") from None
            self._count(time.perf_counter() - started, completion.usage)
            self._options = replace(self._options, thinks=self._options.thinks or _thinks(completion))
            return completion

    def _body(self, request: _Request, options: _Options) -> dict[str, Any]:
        prompt, schema, system = request.prompt, request.schema, request.prompt.system
        if schema is not None and not prompt.frozen and (request.again or options.format != "json_schema"):
            system += f"\n\nThe JSON object must fit this JSON schema:\n{json.dumps(schema, ensure_ascii=False)}"
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt.user}],
        }
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.cap and (cap := _cap(request, options)) is not None:
            body[options.cap] = cap
        if request.logprobs and options.alternatives:
            body |= {"logprobs": True, "top_logprobs": options.alternatives}
        if schema is not None and options.format == "json_schema":
            name = re.sub(r"[^A-Za-z0-9_-]", "_", prompt.task)[:64]
            schema = schema if options.bounded else reading.unbounded(schema)
            shape = {"name": name, "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        elif schema is not None and options.format == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _count(self, seconds: float, usage: Usage | None) -> None:
        tokens_in = token_count(usage and usage.prompt_tokens) or 0
        tokens_out = token_count(usage and usage.completion_tokens) or 0
        details = usage.prompt_tokens_details if usage else None
        cached = token_count(details and details.cached_tokens) or 0
        self._meter.count(seconds, tokens_in, tokens_out, cached_tokens=cached)


def _other_options(options: _Options, error: Exception, tried: set[str], request: _Request) -> _Options | None:
    """Return the options for another attempt when the server rejected these; None when it rejected something else."""
    if options.temperature is not None and _refuses(error, ("temperature",), "temperature"):
        return replace(options, temperature=None)
    if (other := _other_cap(options, error, _cap(request, options))) is not None:
        return other
    if request.logprobs and options.alternatives and _refuses(error, ("logprobs", "top_logprobs"), _LOGPROBS):
        return replace(options, alternatives=_ALTERNATIVES[_ALTERNATIVES.index(options.alternatives) + 1])
    if options.format != "none" and _refuses(error, ("response_format",), _FORMAT):
        if options.bounded and options.format == "json_schema" and _BOUNDS.search(str(error)[: sdk.MAX_ERROR_TEXT]):
            return replace(options, bounded=False)
        return replace(options, format=next(name for name in _FORMATS if name not in tried))
    return None


def _other_cap(options: _Options, error: Exception, cap: int | None) -> _Options | None:
    """Return the options with another bound on an answer's tokens, where the server rejected this one."""
    if not cap or not options.cap or not _refuses(error, (options.cap,), rf"\b{options.cap}"):
        return None
    allowed = (int(number) for number in _NUMBER.findall(str(error)[: sdk.MAX_ERROR_TEXT]))
    if most := max((number for number in allowed if _FEWEST <= number < cap), default=None):
        return replace(options, most=most)
    return replace(options, cap=_CAPS[_CAPS.index(options.cap) + 1])


def _cap(request: _Request, options: _Options) -> int | None:
    """Return the bound on an answer's tokens; None for none."""
    prompt = request.prompt
    if prompt.max_tokens is not None or prompt.output_cap is None:
        return prompt.max_tokens
    cap = prompt.output_cap * (2 if request.longer else 1) + MAX_THINKING * options.thinks
    return min(cap, options.most or cap)


def _thinks(completion: Completion) -> bool:
    """Whether tokens of an answer were thoughts: it says so, or all that it may take were used up before any text."""
    details = completion.usage and completion.usage.completion_tokens_details
    cut = [choice.message.content for choice in completion.choices if choice.finish_reason == "length"]
    thoughts = any(not text or str(text).lstrip().startswith("<think") for text in cut)
    return thoughts or bool(details and details.reasoning_tokens)


def _refuses(error: Exception, parameters: Sequence[str], names: str) -> bool:
    """Whether the server rejected one of `parameters` rather than the content of the request.

    A parameter's name in the message is not enough: it may quote the sample, or be part of a token count.
    """
    if getattr(error, "status_code", None) not in _REFUSALS or sdk.overflows(error):
        return False
    if str(getattr(error, "param", None)).partition(".")[0] in parameters:
        return True
    near = r"(?:[^.\n]|\.(?=\w)){0,80}?"
    phrase = rf"(?:{names}){near}\b(?:{_REFUSED})|\b(?:{_REFUSED}){near}(?:{names})"
    texts = (str(source)[: sdk.MAX_ERROR_TEXT] for source in (error, getattr(error, "body", "")))
    return re.search(phrase, " ".join(texts), re.IGNORECASE) is not None


def _either(choices: Sequence[str]) -> str:
    """Return the choices as a list in words."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _text(completion: Completion, *, cut: bool = False) -> str:
    """Return the answer's text, which may be `cut` at its tokens' number.

    Raises UnreadableError where a second request may help, else JudgeError.
    """
    if not completion.choices:
        raise reading.UnreadableError("no_choice", "the reply holds no choice")
    choice = completion.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise JudgeError("refused", "the judge declined to answer")
    if choice.finish_reason == "length" and not cut:
        used = completion.usage.completion_tokens if completion.usage else None
        tokens = f"{used} tokens" if used else "its token limit"
        raise reading.UnreadableError("truncated", f"the answer was cut at {tokens}")
    content = choice.message.content
    if isinstance(content, list):  # some servers answer in parts, thoughts first
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""

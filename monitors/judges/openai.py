"""The judge behind an OpenAI-compatible chat completions endpoint."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any, TypeVar

import msgspec

from monitors.judges import SPEND, JudgeError, Observer, Prompt, reading, sdk

T = TypeVar("T")

_WAYS = ("json_schema", "json_object", "none")
_FORMAT = r"response.?format|json.?schema|json.?object|json.?mode|structured.?outputs?|guided.?\w+|grammar"
_REFUSED = (
    r"not (?:supported|permitted|allowed|available|implemented)|(?:does|do)(?: not|n't) support|unsupported|unavailable"
    r"|unknown|unrecogni[sz]ed|unexpected|extra_forbidden|must be|failed to parse"
)
_REFUSALS = (400, 422)
_ASKED = 2


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Message(msgspec.Struct):
    content: Any = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list)
    usage: _Usage | None = None


class OpenAIJudge:
    """Asks a chat model for structured output and reads the answer strictly.

    `timeout_s` bounds a whole `ask` from the moment it has one of the `concurrency` slots: retries (the SDK's own, at
    most `max_retries` a request, honouring Retry-After) and the second asking included. Prices are USD per million
    tokens. A server that refuses a JSON schema is asked in JSON mode, then in plain words; one that refuses the
    temperature is asked without. What worked is remembered, once it has worked. Belongs to one event loop.
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
        price_in: float = 0.0,
        price_out: float = 0.0,
        observer: Observer | None = None,
    ) -> None:
        self._client = sdk.connect(base_url=base_url, api_key=api_key, timeout_s=timeout_s, max_retries=max_retries)
        self._api_key = api_key
        self._model = model
        self._temperature: float | None = temperature
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        self._prices = price_in / 1e6, price_out / 1e6
        self._observer = observer
        self._way = 0

    @property
    def model(self) -> str:
        return self._model

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        try:
            async with self._slots, asyncio.timeout(self._timeout_s):
                return await self._ask(prompt, answer_type)
        except TimeoutError:
            failure = JudgeError("timeout", f"no answer within {self._timeout_s:g} s")
        except JudgeError as error:
            failure = error
        if self._observer is not None:
            self._observer.failed(self._model, failure.kind)
        raise failure from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        problem = ""
        for asked in range(_ASKED):
            try:
                return reading.read(_text(await self._complete(prompt, answer_type, again=asked > 0)), answer_type)
            except reading.UnreadableError as error:
                problem = str(error)
        raise JudgeError("unreadable", sdk.clean(problem, self._api_key))

    async def _complete(self, prompt: Prompt, answer_type: type[Any], *, again: bool) -> _Completion:
        """One answered request, in the best way the server is known to accept."""
        import openai  # noqa: PLC0415 - loaded by the constructor

        way, temperature = self._way, self._temperature
        while True:
            started = time.perf_counter()
            try:
                raw = await self._client.chat.completions.with_raw_response.create(
                    **self._request(prompt, reading.strict_schema(answer_type), way, temperature, again=again)
                )
            except openai.OpenAIError as error:
                if temperature is not None and _refuses(error, "temperature", "temperature"):
                    temperature = None
                elif way + 1 < len(_WAYS) and _refuses(error, "response_format", _FORMAT):
                    way += 1
                else:
                    # The causes below hold the request, and so the key: they stay out of every traceback.
                    raise sdk.judge_error(error, self._api_key) from None
                continue
            self._way = max(self._way, way)
            self._temperature = None if temperature is None else self._temperature
            try:
                completion = msgspec.json.decode(raw.content, type=_Completion)
            except msgspec.DecodeError as error:
                self._count(time.perf_counter() - started, None)
                raise reading.UnreadableError(f"the reply is no chat completion: {error}") from None
            self._count(time.perf_counter() - started, completion.usage)
            return completion

    def _request(
        self, prompt: Prompt, schema: dict[str, Any], way: int, temperature: float | None, *, again: bool
    ) -> dict[str, Any]:
        system = prompt.system
        if again or _WAYS[way] != "json_schema":
            system += f"\n\nThe JSON object must fit this JSON schema:\n{json.dumps(schema, ensure_ascii=False)}"
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt.user}],
        }
        if temperature is not None:
            request["temperature"] = temperature
        if _WAYS[way] == "json_schema":
            name = re.sub(r"[^A-Za-z0-9_-]", "_", prompt.task)[:64]
            shape = {"name": name, "strict": True, "schema": schema}
            request["response_format"] = {"type": "json_schema", "json_schema": shape}
        elif _WAYS[way] == "json_object":
            request["response_format"] = {"type": "json_object"}
        return request

    def _count(self, seconds: float, usage: _Usage | None) -> None:
        tokens_in = (usage and usage.prompt_tokens) or 0
        tokens_out = (usage and usage.completion_tokens) or 0
        usd = tokens_in * self._prices[0] + tokens_out * self._prices[1]
        if (spend := SPEND.get()) is not None:
            spend.calls += 1
            spend.input_tokens += tokens_in
            spend.output_tokens += tokens_out
            spend.usd += usd
        if self._observer is not None:
            self._observer.judged(self._model, seconds, tokens_in, tokens_out, usd)


def _refuses(error: Exception, parameter: str, names: str) -> bool:
    """Whether the server refused how it was asked, by `parameter`, rather than what.

    A word that only occurs in the message means nothing: it may be the sample's, or be there to count its tokens.
    """
    if getattr(error, "status_code", None) not in _REFUSALS or sdk.overflows(error):
        return False
    if str(getattr(error, "param", None)).partition(".")[0] == parameter:
        return True
    near = r"(?:[^.\n]|\.(?=\w)){0,80}?"
    phrase = rf"(?:{names}){near}\b(?:{_REFUSED})|\b(?:{_REFUSED}){near}(?:{names})"
    return re.search(phrase, f"{error} {getattr(error, 'body', '')}", re.IGNORECASE) is not None


def _text(completion: _Completion) -> str:
    """The model's words. Raises JudgeError where asking again would not help, UnreadableError where it may."""
    if not completion.choices:
        raise reading.UnreadableError("the reply holds no choice")
    choice = completion.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise JudgeError("refused", "the judge declined to answer")
    if choice.finish_reason == "length":
        raise JudgeError("unreadable", "the answer was cut at the judge's token limit")
    content = choice.message.content
    if isinstance(content, list):  # some servers answer in parts, thoughts first
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""

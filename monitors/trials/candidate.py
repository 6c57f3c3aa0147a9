"""The candidate's side of a trial: the request it gets, what that can cost at most, and what it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from gaugeway.exchange import Response
from gaugeway.prompts import dicts, response_text
from gaugeway.prompts.changed_request import NotExactError, with_instructions, without_passages
from gaugeway.records import Context, Sample, Usage
from gaugeway.runtime.retry import retry_after_s
from gaugeway.settings.shared import Price, PriceTable
from gaugeway.storage.trials import Arm, Kept, Trial

if TYPE_CHECKING:
    import httpx

MAX_RESPONSE_BYTES = 8 * 1024 * 1024
_PATHS = {
    "chat_completions": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
    "messages": "/messages",
}
_OUTPUT_KEYS = {
    "chat_completions": ("max_completion_tokens", "max_tokens"),
    "completions": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
}
_STATE = ("previous_response_id", "conversation", "background", "container", "mcp_servers", "web_search_options")
"""Members that make an answer depend on what the provider keeps or looks up, or come later."""
_STREAM = ("stream", "stream_options")
_OVERHEAD_TOKENS = 64
"""For what a provider adds around a message."""
_BUSY = frozenset({408, 429, 502, 503, 529})
_ANTHROPIC_VERSION = "2023-06-01"


class BusyError(Exception):
    """The candidate's provider cannot take the request now, and did not charge for it."""

    def __init__(self, detail: str, after_s: float | None) -> None:
        super().__init__(detail)
        self.after_s = after_s


class CallError(Exception):
    """The call failed; `reason` is a label. `charged` where the provider may have charged for it all the same.

    A user would have got no answer, but for those `unread`: what came cannot be read, or is too long to be read here.
    """

    def __init__(self, reason: str, *, charged: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.charged = charged
        self.unread = reason in ("unreadable", "too_large")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request for a candidate, the passages in it, its price, and the most it can cost in USD."""

    body: dict[str, Any]
    contexts: tuple[Context, ...]
    price: Price
    usd: float


def prepared(trial: Trial, arm: Arm, kept: Kept, *, text: str, sample: Sample, prices: PriceTable) -> Prepared:
    """Return what an arm gets for a kept request with this body. Raises NotExactError."""
    body: dict[str, Any] = msgspec.json.decode(text)
    _check(body)
    body, contexts = _with_prompt_of(arm, kept.route, body, sample)
    body |= ({} if arm.model is None else {"model": arm.model}) | arm.params
    body = {name: value for name, value in body.items() if value is not None and name not in _STREAM}
    _check(body)
    if kept.route == "responses":
        body["store"] = False
    names = _OUTPUT_KEYS[kept.route]
    most_out = max((body[name] for name in names if type(body.get(name)) is int), default=0)
    if most_out <= 0:
        most_out = trial.max_output_tokens
        body = {name: value for name, value in body.items() if name not in names} | {names[0]: most_out}
    most_in, price = _most_input(body), arm.price or prices.of(str(body.get("model")))
    if price is None:
        raise NotExactError("no_price")
    usd = max(price.usd(most_in, most_out, cached_tokens=cached) for cached in (0, most_in))
    return Prepared(body=body, contexts=contexts, price=price, usd=usd)


def _check(body: dict[str, Any]) -> None:
    """Raise NotExactError for a request whose answer or cost depends on what is not in it."""
    if any(body.get(name) not in (None, False) for name in _STATE) or isinstance(body.get("prompt"), dict):
        raise NotExactError("server_state")
    if any(tool.get("type", "function") not in ("function", "custom") for tool in dicts(body.get("tools"))):
        raise NotExactError("provider_tools")  # what they add to the prompt has no bound
    if body.get("n", 1) != 1 or body.get("best_of", 1) != 1:
        raise NotExactError("several_choices")
    if any(_is_remote(part) for part in _objects(body)):
        raise NotExactError("remote_media")


def _with_prompt_of(
    arm: Arm, route: str, body: dict[str, Any], sample: Sample
) -> tuple[dict[str, Any], tuple[Context, ...]]:
    """Return the body with an arm's passages and instructions, and the passages."""
    contexts, asked = sample.contexts, sample.question
    if arm.max_contexts is not None or arm.drop_source is not None:
        most = len(contexts) if arm.max_contexts is None else arm.max_contexts
        left = {
            index
            for index, passage in enumerate(contexts[:most])
            if arm.drop_source is None or arm.drop_source not in (passage.id, passage.source)
        }
        body, contexts = without_passages(route, body, asked, contexts, left.__contains__)
    if arm.system_prompt is not None:
        body = with_instructions(route, body, asked, contexts, arm.system_prompt)
    return dict(body), contexts


async def ask(
    client: httpx.AsyncClient, arm: Arm, kept: Kept, ready: Prepared, *, key: str, timeout_s: float
) -> tuple[Response, float]:
    """Send a request; return the response and the USD it cost. Raises BusyError and CallError."""
    import httpx  # noqa: PLC0415 - most monitors run no trial

    headers = {"x-api-key": key} if kept.route == "messages" else {"authorization": f"Bearer {key}"}
    headers |= {"anthropic-version": _ANTHROPIC_VERSION} if kept.route == "messages" else {}
    headers |= kept.headers | {"content-type": "application/json", "accept": "application/json"}
    url = arm.base_url.rstrip("/") + _PATHS[kept.route]
    try:
        async with (
            asyncio.timeout(timeout_s),
            client.stream(
                "POST", url, content=msgspec.json.encode(ready.body), headers=headers, timeout=timeout_s
            ) as reply,
        ):
            if reply.status_code in _BUSY:
                raise BusyError(f"HTTP {reply.status_code}", retry_after_s(reply.headers, time.time()))
            raw = b""
            async for chunk in reply.aiter_bytes():
                raw += chunk
                if len(raw) > MAX_RESPONSE_BYTES:
                    raise CallError("too_large", charged=True)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise BusyError(type(error).__name__, None) from error
    except (httpx.TimeoutException, TimeoutError) as error:
        raise CallError("timeout", charged=True) from error
    except httpx.HTTPError as error:
        raise CallError("connection", charged=True) from error
    if not reply.is_success:
        raise CallError(f"http_{reply.status_code}", charged=reply.status_code == HTTPStatus.GATEWAY_TIMEOUT)
    try:
        read = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CallError("unreadable", charged=True) from error
    response = response_text.read(kept.route, read if isinstance(read, dict) else {}, reply.status_code)
    usage = response.usage
    if (
        usage is None
        or None in (usage.input_tokens, usage.output_tokens)
        or (response.text and not usage.output_tokens)
    ):
        return response, ready.usd  # what it really cost is not said
    return response, cost(ready.price, kept.route, usage)


def cost(price: Price, route: str, usage: Usage) -> float:
    """Return the USD for the tokens that the provider reports; Anthropic counts cached ones apart."""
    cached, given = usage.cached_tokens or 0, usage.input_tokens or 0
    if route == "messages":
        given += cached + (usage.cache_write_tokens or 0)
    return price.usd(given, usage.output_tokens or 0, cached_tokens=cached)


def why_no_answer(response: Response) -> str | None:
    """Return why a response is no answer for a user, as a label; None where it is one."""
    if response.body.get("error"):
        return "error_response"
    if response.refusal:
        return "refusal"
    if response.finish_reason == "length":
        return "truncated_response"
    if not response.text.strip():
        return "tool_call" if response.tool_calls else "empty_response"
    return None


def _most_input(body: dict[str, Any]) -> int:
    """Return a bound on the tokens of a request: a token has at least one byte."""
    messages = body.get("messages", body.get("input"))
    count = len(messages) if isinstance(messages, list) else 1
    return len(msgspec.json.encode(body)) + _OVERHEAD_TOKENS * (count + 1)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)


def _is_remote(part: dict[str, Any]) -> bool:
    """Whether a part names media that are elsewhere: their tokens have no bound that we know."""
    if "file_id" in part:
        return True
    shown = part.get("image_url", part.get("file_url", part.get("source")))
    address = shown.get("url") if isinstance(shown, dict) else shown
    return isinstance(address, str) and address.startswith(("http:", "https:")) and part.get("type") != "document"

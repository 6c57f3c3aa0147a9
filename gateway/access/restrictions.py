"""Model restrictions: a request of a restricted key must name one allowed model, once and unambiguously."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from gateway.access.keys import check_model
from gateway.access.operations import READING, is_realtime, operation_of
from gateway.http.errors import Rejection
from gaugeway.exchange import Headers
from gaugeway.settings.field_errors import MAX_NAME
from gaugeway.storage.keys import VirtualKey

MOST_TOKENS = 200_000
"""How many strings and brackets the JSON of a restricted key's request may have (40 ms of scanning)."""
MOST_PARAMETERS = 100
MAX_SCANNED_BYTES = 4 * 1024 * 1024
"""A larger body is not searched for a second model: the answer's model decides the price."""
MAX_NESTING = 20
"""How deep a realtime message is searched for models."""

_RESTRICTED = "This key is restricted to certain models"
_TOKEN = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")([ \t\r\n]*:)?|([\[{])|[\]}]', re.DOTALL)
_NAMES = re.compile(
    rb'"\w{0,64}(?:model|engine|deployment|fallback|rout|preset|plugin|litellm|override|provider|endpoint|target'
    rb'|extra[_-]?(?:body|params)|base[_-]?url|api[_-]?base|user[_-]?config)[\w-]{0,64}"[ \t\r\n]*:',
    re.IGNORECASE,
)
_ESCAPED_NAME = re.compile(rb'"[^"\\]{0,16}\\u[^"]{0,100}"[ \t\r\n]*:')
_NOISE = re.compile(r"[\W_]+")
_ODD_MODEL = re.compile(r"[\s,;?#%\\\x00-\x1f]|\.\.|//")
_JSON = re.compile(rb"application/json[ \t]*(?:;[ \t]*charset=\"?utf-8\"?[ \t]*)?", re.IGNORECASE)
_ROUTING_WORDS = re.compile(
    r"model|engine|deployment|fallback|rout(?:e|ing)|litellm|override|provider|endpoint|target|apibase|baseurl"
)
"""What members, query parameters and headers have in their names (lower case, without punctuation) with which routers
choose another model than the one in "model", or another server. No name that OpenAI or Anthropic document has one."""
_ROUTING_MEMBERS = re.compile(
    rf"{_ROUTING_WORDS.pattern}|^config$|userconfig|extra(?:body|params)|preset|plugins|^adapter|^lora"
)
_ROUTING_HEADERS = frozenset(
    b"x-portkey-config x-portkey-virtual-key x-portkey-custom-host x-original-url x-rewrite-url x-http-method".split()
)
_PLAIN_HEADERS = (b"x-stainless-", b"x-gaugeway-", b"sec-ch-")
"""Beginnings of headers that SDKs, browsers and the gateway's own clients send."""
_SCHEMAS = frozenset(
    {"parameters", "inputschema", "outputschema", "schema", "metadata", "headers", "inputexamples", "variables"}
)
"""Members of tools and sessions in which all names are the client's own."""
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode


class Asked(NamedTuple):
    """A request as it would be sent upstream."""

    method: str
    raw_path: bytes
    query: bytes
    headers: Headers
    body: bytes


def is_restricted(key: VirtualKey | None) -> bool:
    """Whether a key is restricted to certain models."""
    return key is not None and "*" not in key.models


def check_request(key: VirtualKey, asked: Asked) -> None:
    """Raise Rejection (400, 403, 413) unless a restricted key's request unambiguously uses an allowed model."""
    operation = operation_of(asked.method, asked.raw_path)
    if asked.method in READING and operation.kind == "free" and not asked.body:
        return
    if not operation.names_model:
        raise _not_allowed("This key may not use this path.", None)
    _check_headers(asked.headers)
    models = _named_in_query(asked.query)
    if "model" in (members := _members(asked.body)):
        models.add(_text(members["model"]))
    models |= {operation.deployment} - {None}
    _check_models(key, models)
    if "tools" in members:
        for model in _nested_models(_objects(bytes(members["tools"])), 0):
            check_model(key, model)


def check_handshake(key: VirtualKey, raw_path: bytes, query: bytes, headers: Headers) -> None:
    """Raise Rejection unless a restricted key's WebSocket unambiguously uses an allowed model."""
    if not is_realtime(raw_path):
        raise _not_allowed("This key may not use this path.", None)
    _check_headers(headers)
    _check_models(key, _named_in_query(query, also="deployment"))


def check_message(key: VirtualKey, message: str | bytes) -> None:
    """Raise Rejection for a realtime message with which a restricted key would switch to another model.

    Realtime messages are text; binary ones are rejected, because their meaning depends on the upstream's decoder.
    """
    if isinstance(message, bytes):
        raise _not_allowed(f"{_RESTRICTED}: send text messages, no binary ones.", None)
    if message.count("{") + message.count("[") > MOST_TOKENS:
        raise Rejection(413, "request_too_large", f"The message has more than {MOST_TOKENS} brackets.")
    for model in _nested_models(_objects(message), 0):
        check_model(key, model)


def _check_models(key: VirtualKey, models: set[Any]) -> None:
    """Raise Rejection unless all places that name a model agree: the upstream decides which one counts."""
    if len(models) > 1:
        raise _not_allowed(f"{_RESTRICTED}, and the request names more than one.")
    model = models.pop() if models else None
    check_model(key, model)
    if model is not None and model not in key.models and _ODD_MODEL.search(model) is not None:
        raise _not_allowed("The name of the model has characters that this API key may not use.")


def _check_headers(headers: Headers) -> None:
    for name, value in headers:
        if name == b"content-type" and _JSON.fullmatch(value.strip()) is None:
            raise _not_allowed(f"{_RESTRICTED}: send application/json.", "content-type")
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise _not_allowed(f"{_RESTRICTED}: send the body uncompressed.", "content-encoding")
        if name in _ROUTING_HEADERS or (
            not name.startswith(_PLAIN_HEADERS) and _ROUTING_WORDS.search(_plain(name.decode("latin-1")))
        ):
            raise _unusable(name.decode("latin-1"), "the header ")


def _named_in_query(query: bytes, also: str = "") -> set[Any]:
    try:
        pairs = parse_qsl(
            query.decode("latin-1").replace(";", "&"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS
        )
    except ValueError as error:
        raise Rejection(400, "invalid_query", f"More than {MOST_PARAMETERS} query parameters.") from error
    models = []
    for name, value in pairs:
        if (plain := _plain(name)) in ("model", also):
            models.append(value)
        elif _ROUTING_MEMBERS.search(plain):
            raise _unusable(name, "the query parameter ")
    if len(models) > 1:
        raise _duplicate("model", "the query parameter ")
    return set(models)


def _members(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object in which those that choose a model stand once, as everybody writes them."""
    try:
        members = _decode_members(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        message = f"{_RESTRICTED}, and the body is not a readable JSON object."
        raise _not_allowed(message, None) from None
    names = list(_names(body))
    counts = Counter(map(_plain, names))
    for guarded in ("model", "tools"):
        if counts[guarded] > 1 or (counts[guarded] and guarded not in members):
            raise _duplicate(guarded)
    for name in names:
        if (plain := _plain(name)) != "model" and _ROUTING_MEMBERS.search(plain):
            raise _unusable(name)
    return members


def _names(body: bytes) -> Iterator[str]:
    """Yield the names of all members of `body`, a valid JSON object, duplicates too."""
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(body)):
        if count > MOST_TOKENS:
            raise Rejection(413, "request_too_large", f"The body has more than {MOST_TOKENS} strings and brackets.")
        if token[3] is not None:
            depth += 1
        elif token[1] is None:
            depth -= 1
        elif depth == 1 and token[2] is not None:
            yield _decode(token[1])


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object in order, including duplicates."""


def _not_json(_: str) -> Any:
    raise ValueError


_decode_objects = json.JSONDecoder(object_pairs_hook=_Members, parse_int=float, parse_constant=_not_json).decode


def _objects(text: str | bytes) -> Any:
    """Decode JSON with its objects as _Members. Raises Rejection."""
    try:
        return _decode_objects(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError):
        raise Rejection(400, "invalid_json", "The message is not JSON that can be read.") from None


def _nested_models(value: Any, depth: int) -> Iterator[str | None]:
    """Yield every model named anywhere in a value; None for one that is not a string. Raises Rejection."""
    if depth > MAX_NESTING:
        yield None
    elif isinstance(value, _Members):
        if len({name for name, _ in value}) < len(value):
            message = f"{_RESTRICTED}: send every member of an object exactly once."
            raise Rejection(400, "ambiguous_model", message)
        for name, inner in value:
            if (plain := _plain(name)) == "model":
                yield inner if isinstance(inner, str) else None
            elif plain not in _SCHEMAS:
                if _ROUTING_MEMBERS.search(plain):
                    raise _unusable(name)
                yield from _nested_models(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _nested_models(inner, depth + 1)


def _text(raw: msgspec.Raw) -> str | None:
    value = _decode(raw)
    return value if isinstance(value, str) else None


def _plain(name: str) -> str:
    return _NOISE.sub("", name.casefold())


def _duplicate(name: str, kind: str = "") -> Rejection:
    message = f"{_RESTRICTED}: send {kind}'{name}' exactly once, in lower case."
    return Rejection(400, "ambiguous_model", message, name)


def _unusable(name: str, kind: str = "") -> Rejection:
    """Return the 403 for a member, parameter or header that could choose another model."""
    shown = name[:MAX_NAME]
    return _not_allowed(f"This key may not use {kind}'{shown}'.", shown)


def _not_allowed(message: str, param: str | None = "model") -> Rejection:
    return Rejection(403, "model_not_allowed", message, param)


def is_ambiguous(body: bytes) -> bool:
    """Whether parsers may disagree on a body's model, so that it does not determine the price."""
    if len(body) > MAX_SCANNED_BYTES:
        return True
    if len(_NAMES.findall(body)) == 1 and _ESCAPED_NAME.search(body) is None:
        return False
    try:
        _members(body)
    except Rejection:
        return True
    return False

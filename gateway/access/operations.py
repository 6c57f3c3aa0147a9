"""The API operations that the gateway knows, by method and path, and whether they are metered or free."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["metered", "free", "unmetered", "unknown"]
"""How an operation is charged: by tokens, not at all, at a cost that no answer reports, or unknown."""

READING = frozenset({"GET", "HEAD", "OPTIONS"})

_SHAPE = re.compile(
    rb"/(?:v1|openai/v1|openai(?:/deployments/(?P<deployment>[A-Za-z0-9._~-]+))?)"
    rb"/(?P<tail>[a-z_]+(?:/[A-Za-z0-9._~:@,+=!$'()*%-]+)*)/?"
)
_INPUT_ONLY = frozenset({b"decisions", b"embeddings", b"rerank", b"systemone"})
_METERED = _INPUT_ONLY | {b"chat/completions", b"completions", b"messages", b"responses", b"responses/compact"}
_FREE = frozenset({b"moderations", b"messages/count_tokens", b"responses/input_tokens"})
_UNMETERED = frozenset({b"audio/speech", b"images/generations", b"images/edits", b"videos"})
_REALTIME = b"realtime"
_RESOURCES = (
    rb"(?:agents|assistants|audio|batches|chat/completions|chatkit|completions|containers|content_provenance_checks"
    rb"|conversations|embeddings|evals|files|fine_tuning|images|live|messages/batches|models|realtime|responses|skills"
    rb"|threads|uploads|vector_stores|videos)"
)
"""Not those that administer an account (organization, projects, safety, vaults, webhook_endpoints ...): unknown."""
_RESOURCE = re.compile(_RESOURCES + rb"(?:/[^/]+)*")
_FREE_WITHOUT_MODEL = re.compile(
    rb"files|uploads(?:/[^/]+/(?:parts|complete))?|(?:chat/completions|conversations)/[^/]+|conversations(?:/[^/]+/items)?"
    rb"|" + _RESOURCES + rb"(?:/[^/]+)+/(?:cancel|hangup|pause|reject)"
)
"""Requests that store or stop something."""


class Operation(NamedTuple):
    """`names_model`: the request says which model it uses. `deployment` is the one of an Azure-style path.

    `input_only`: no tokens are written.
    """

    kind: Kind
    names_model: bool = False
    deployment: str | None = None
    input_only: bool = False


METERED = Operation("metered", names_model=True)
UNKNOWN = Operation("unknown")


def operation_of(method: str, raw_path: bytes) -> Operation:
    """Return the operation. Upper case, empty segments, escapes in a known word and the like make it unknown.

    >>> operation_of("POST", b"/v1/chat/completions").kind
    'metered'
    >>> operation_of("POST", b"/openai/deployments/gpt-4o/embeddings")
    Operation(kind='metered', names_model=True, deployment='gpt-4o', input_only=True)
    >>> operation_of("POST", b"/v1//chat/completions").kind, operation_of("POST", b"/v1/Chat/completions").kind
    ('unknown', 'unknown')
    """
    if (match := _SHAPE.fullmatch(raw_path)) is None:
        return UNKNOWN
    tail, deployment = match["tail"], match["deployment"]
    named = deployment.decode() if deployment is not None else None
    if method == "POST":
        for tails, kind in ((_METERED, "metered"), (_FREE, "free"), (_UNMETERED, "unmetered")):
            if tail in tails:
                return Operation(kind, names_model=True, deployment=named, input_only=tail in _INPUT_ONLY)  # type: ignore[arg-type]  # a Kind each
        if _FREE_WITHOUT_MODEL.fullmatch(tail) is not None:
            return Operation("free")
    if _RESOURCE.fullmatch(tail) is None:
        return UNKNOWN
    return Operation("free" if method in READING or method == "DELETE" else "unmetered", deployment=named)


def is_realtime(raw_path: bytes) -> bool:
    """Whether a WebSocket's path is that of the Realtime API."""
    match = _SHAPE.fullmatch(raw_path)
    return match is not None and match["tail"] == _REALTIME

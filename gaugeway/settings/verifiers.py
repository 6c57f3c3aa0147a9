"""The table `[judge.grounding]`: the verifier, and which of its keys go together."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from gaugeway.settings import endpoints

Rate = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
Kind: TypeAlias = Literal["lettucedetect", "minicheck", "classify", "onnx"]
Api: TypeAlias = Literal["chat", "spans", "tokens", "predict", "classify"]

APIS: dict[Kind, tuple[Api, ...]] = {
    "lettucedetect": ("chat", "spans", "tokens"),
    "minicheck": ("chat",),
    "classify": ("predict", "classify"),
    "onnx": (),
}
"""Kind -> the APIs that it can speak, the default first."""
DOCUMENT_CHARS: dict[tuple[Kind, Api | None], int] = {
    ("lettucedetect", "chat"): 60_000,
    ("lettucedetect", "spans"): 12_000,
    ("lettucedetect", "tokens"): 12_000,
    ("minicheck", "chat"): 60_000,
    ("classify", "predict"): 6_000,
    ("classify", "classify"): 6_000,
    ("onnx", None): 6_000,
}
"""Characters of passages that are checked at once: what the published models of each kind can read."""


class GroundingVerifier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[judge.grounding]`: a small model that checks every answer against its passages.

    Pairs that wait together make one request of up to `batch_size`. With `cascade` and the mode
    "separate" a claim that it supports with a probability of at least `least` is not sent to the judge.
    """

    kind: Kind
    api: Api | None = None
    base_url: str | None = None
    api_key: str | None = None
    model: str | None = None
    timeout_s: Positive = 10.0
    concurrency: Count = 16
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 2
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 32
    max_document_chars: Annotated[int, msgspec.Meta(ge=200, le=1_000_000)] | None = None
    label: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    template: str | None = None
    path: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    threads: Count = 1
    price_in: NotNegative = 0.0
    price_out: NotNegative = 0.0
    cascade: bool = True
    least: Rate = 0.9

    @property
    def spoken(self) -> Api | None:
        """The API in use: the one named, else the default of the kind; None for a model on this machine."""
        return self.api or next(iter(APIS[self.kind]), None)

    @property
    def document_chars(self) -> int:
        """Characters of passages that are checked at once."""
        return self.max_document_chars or DOCUMENT_CHARS[self.kind, self.spoken]


def problems_of(table: GroundingVerifier) -> list[str]:
    """Return the problems of the table that types alone cannot express; each begins with its key."""
    found = [*_problems_of_api(table), *_problems_of_address(table)]
    if table.template is not None and table.spoken != "classify":
        found.append('template: only api = "classify" makes one text of a pair')
    elif table.template is None and table.spoken == "classify":
        found.append('template: needed for api = "classify", with {document} and {claim}')
    elif table.template is not None and (table.template.count("{document}"), table.template.count("{claim}")) != (1, 1):
        found.append("template: must contain {document} and {claim} exactly once")
    if table.label is not None and table.kind not in ("classify", "onnx"):
        found.append("label: only classifiers have labels")
    elif table.label is not None and table.spoken == "classify" and not table.label.isdecimal():
        found.append('label: must be a class index such as "1" with api = "classify"')
    if table.threads != 1 and table.kind != "onnx":
        found.append('threads: only for kind = "onnx"')
    return [f"judge.grounding.{problem}" for problem in found]


def _problems_of_api(table: GroundingVerifier) -> list[str]:
    able = APIS[table.kind]
    if table.api is None or table.api in able:
        return []
    *others, last = (f'"{name}"' for name in able) if able else ("",)
    known = f"{', '.join(others)} or {last}" if others else last
    return [f'api: {f"must be {known}" if able else "not allowed"} for kind = "{table.kind}"']


def _problems_of_address(table: GroundingVerifier) -> list[str]:
    if table.kind == "onnx":
        found = [] if table.path else ['path: needed for kind = "onnx": the directory of the model']
        return [*found, *(['base_url: not allowed with kind = "onnx"'] if table.base_url else [])]
    found = ['path: only for kind = "onnx"'] if table.path else []
    if not table.base_url:
        return [*found, f'base_url: needed for kind = "{table.kind}"']
    if (problem := endpoints.base_url_problem(table.base_url)) is not None:
        found.append(f"base_url: {problem}")
    elif not table.api_key and endpoints.needs_key(table.base_url):
        found.append("api_key: missing: this provider refuses requests without one")
    if not table.model and table.spoken in ("chat", "classify"):
        found.append(f'model: needed for api = "{table.spoken}"')
    return found

"""How much of a prompt each passage is, at which price, and which passages the answer rests on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.settings.bounds import MAX_PARTS
from gaugeway.settings.shared import Price
from monitors.analysis.prompt_text import HASHED
from monitors.metrics.judged.passage_verdicts import CLAIM_METRICS, places
from monitors.signals.answers import ANSWERED

LEXICAL = "lexical_groundedness"
LEAST_SHARE = 0.5
"""Least share of a sentence's words in the passages for it to rest on the one that has most of them."""
_SUPPORTED = "supported"


@dataclass(frozen=True, slots=True)
class Support:
    """For each supported claim, or grounded sentence, the indexes of the passages behind it.

    `rate`, in (0, 1], is the probability with which the metric that says so was computed.
    """

    passages: tuple[frozenset[int], ...]
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageUse:
    """The passages in the prompt of one answer.

    `characters` are those of each passage with its number and title; None where only hashes of unlocated texts are
    stored. `seen` characters of the prompt are known; `whole`: these are all, and each passage was located in them.
    `input_tokens` are the reported ones, the cached ones included; None without a report. `usd_per_token` is the price
    of each passage's tokens, of which the provider's cache held a part; None without a price. `claims` are by a judge,
    `sentences` by words; None where nothing says so.
    """

    characters: tuple[int, ...] | None
    seen: int
    whole: bool
    input_tokens: int | None
    usd_per_token: tuple[float, ...] | None
    claims: Support | None = None
    sentences: Support | None = None


def passage_use(sample: Sample, evaluations: Sequence[Evaluation], price: Price | None) -> PassageUse | None:
    """Return how an answer used its passages; None for what is no answer of the model, or has no passages.

    A provider caches a prefix of the prompt: of a whole prompt, the passages that begin it were cached. Where its text
    is not all known, each token was cached with the same probability.
    """
    if sample.skip_reason not in ANSWERED or not sample.contexts:
        return None
    spans, seen, whole = _spans(sample)
    texts = [context.text for context in sample.contexts]
    stored = all(some or not text.startswith(HASHED) for some, text in zip(spans, texts, strict=True))
    lengths = [sum(end - start for start, end in some) or len(text) for some, text in zip(spans, texts, strict=True)]
    total, cached = _input_tokens(sample, price)
    share = cached / total if total else 0.0
    shares = [share] * len(spans)
    if whole:
        prefix = seen * share
        shares = [
            sum(max(0.0, min(end, prefix) - start) for start, end in some) / length if length else share
            for some, length in zip(spans, lengths, strict=True)
        ]
    return PassageUse(
        characters=tuple(lengths) if stored else None,
        seen=seen,
        whole=whole,
        input_tokens=total,
        usd_per_token=None if price is None else tuple(_usd_per_token(price, part) for part in shares),
        claims=_support(evaluations, CLAIM_METRICS, "contexts", len(spans)),
        sentences=_support(evaluations, (LEXICAL,), "sentence", len(spans)),
    )


def _spans(sample: Sample) -> tuple[list[list[tuple[int, int]]], int, bool]:
    """Return where each passage stands in the prompt, its characters that are known, and whether these are all."""
    spans: list[list[tuple[int, int]]] = [[] for _ in sample.contexts]
    capture = sample.capture
    if capture is None or capture.source != sample.context_source:
        return spans, 0, False  # contexts that were sent apart: the parts number those of the prompt
    ends: dict[int, int] = {}
    for part in capture.parts:
        ends[part.message] = max(part.end, ends.get(part.message, 0))
    messages = sorted(ends)
    begins = dict(zip(messages, accumulate((ends[message] for message in messages), initial=0), strict=False))
    located = set()
    for part in capture.parts:
        if part.passage is not None and part.passage < len(spans):
            spans[part.passage].append((begins[part.message] + part.start, begins[part.message] + part.end))
            located |= {part.passage} if part.kind == "passage" else set()
    spans = [some if index in located else [] for index, some in enumerate(spans)]
    offered = sample.tool_checks.offered if sample.tool_checks is not None else 0
    whole = (
        len(located) == len(spans)
        and not (capture.cut or offered or len(capture.parts) >= MAX_PARTS)  # of so many, some were left out
        and messages == list(range(len(messages)))
    )
    return spans, sum(ends.values()), whole


def _input_tokens(sample: Sample, price: Price | None) -> tuple[int | None, int]:
    """Return the tokens of the prompt, and those of them that the provider's cache held.

    At Anthropic's `/v1/messages` the input does not include what was read from the cache and written to it. A sample
    does not name its route: what it cost says which of the two was charged, else numbers that are possible in one only.
    """
    usage = sample.usage
    if usage is None or usage.input_tokens is None:
        return None, 0
    given, cached = usage.input_tokens, usage.cached_tokens or 0
    beside = cached + (usage.cache_write_tokens or 0)
    apart = beside > given
    if price is not None and sample.cost_usd is not None and cached:
        output = usage.output_tokens or 0
        within, added = (price.usd(tokens, output, cached_tokens=cached) for tokens in (given, given + cached))
        if within != added:
            apart = abs(added - sample.cost_usd) < abs(within - sample.cost_usd)
    total = given + beside if apart else given
    return total or None, min(cached, total)


def _usd_per_token(price: Price, cached: float) -> float:
    rate = price.input if price.cached is None else price.cached
    return (price.input + cached * (rate - price.input)) / price.per


def _support(evaluations: Iterable[Evaluation], metrics: Collection[str], field: str, n: int) -> Support | None:
    """Return what the last of these metrics' scores whose evidence has such a field found supported.

    None if it does not name the passages of something supported: then it is not known what the answer rests on.
    """
    found: Support | None = None
    for evaluation in evaluations:
        evidence = evaluation.outcome.evidence if isinstance(evaluation.outcome, Score) else ()
        judged = [item for item in evidence if field in item]
        if evaluation.metric in metrics and judged:
            some = [
                frozenset(index for index in places(item) if 0 <= index < n)
                for item in judged
                if item.get("verdict", _SUPPORTED) == _SUPPORTED and item.get("score", 1.0) >= LEAST_SHARE
            ]
            found = Support(tuple(some), evaluation.rate) if all(some) else None
    return found

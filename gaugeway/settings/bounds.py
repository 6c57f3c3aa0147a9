"""Bounds on names, counts and supplement sizes that clients and upstreams choose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec

from gaugeway import records

_T = TypeVar("_T")

MAX_PASSAGES = 200
MAX_BYTES = 1_000_000
"""Of UTF-8: texts, ids and sources of all passages together. No retriever hands a model more, no judge reads more."""

MAX_TEXT = 100_000
"""Characters of a question, a reference or a comment."""

MAX_LABEL = 200
MAX_HEARD_BYTES = 16_000_000
"""Of what supplements say about one sample, read together: the earliest count."""
MAX_NAME = 200
"""Characters of a name: app, model, session, tag, context key, id of a response."""
MAX_TAGS = 32
MAX_PASSAGE_NAME = 1000
"""Characters of a passage's id and source, which may be URLs."""
MAX_TOKENS = 10**9
"""Tokens of one exchange: what reports more is wrong, and counts as not reported."""
MAX_PARTS = 400
"""Parts of a prompt whose place is kept."""

MAX_INSTRUCTION_BYTES = 32_768
"""Of UTF-8: the words of the instructions of one prompt, together."""

MAX_HISTORY = 50
"""Earlier messages of a conversation kept with a sample."""

MAX_HISTORY_TEXT = 2_000
"""Characters of one earlier message."""

MAX_TRANSCRIPT = 100
"""Messages of a whole conversation kept for its scores: the first ten, and the last."""
_BEGINNING = 10

MAX_CALLS = 32
"""Tool calls kept of one response."""

MAX_ARGUMENTS = 2_000
"""Characters of the arguments of one tool call."""

MAX_TURNS = 100_000
"""Turns of a conversation, and exchanges of a turn: more are counted as so many."""

MAX_LINKS = 8
"""Hashes of one kind that join an exchange to others."""

MAX_REASON = 300
"""Characters of the reason why an extractor decided as it did."""
_NAMES_OF_SAMPLE = (
    *("app", "model", "context_source", "session", "trace_id", "span_id", "response_id", "context_key"),
    *("prompt", "cluster", "skip_reason", "conversation"),
)
_MARK = 17
_WIDEST = 4
"""Bytes of UTF-8 of the widest character."""
_UNFIT = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\uffff]"
)
"""Control characters, lone surrogates, and format characters that change how the text around them is shown."""


class Bounded(NamedTuple):
    """The passages within the bounds. `cut` says whether there were more."""

    contexts: tuple[records.Context, ...]
    cut: bool


def passages(contexts: Iterable[records.Context]) -> Bounded:
    """Keep as many passages as the bounds allow, in order; shorten the text of the one that crosses them.

    `contexts` is read no further than one passage beyond the bound.
    """
    if isinstance(contexts, tuple) and len(contexts) <= MAX_PASSAGES and _surely_fit(contexts):
        return Bounded(contexts, cut=False)
    kept: list[records.Context] = []
    room = MAX_BYTES
    for context in contexts:
        names = _size(context.id) + _size(context.source)
        size = _size(context.text) + names
        if len(kept) == MAX_PASSAGES or room <= names:
            return Bounded(tuple(kept), cut=True)
        if size > room:
            text = context.text.encode("utf-8", "surrogatepass")[: room - names].decode("utf-8", "ignore")
            return Bounded((*kept, replace(context, text=text)), cut=True)
        kept.append(context)
        room -= size
    return Bounded(tuple(kept), cut=False)


def _surely_fit(contexts: tuple[records.Context, ...]) -> bool:
    """Whether passages are within the bound of bytes, whatever their characters are."""
    letters = 0
    for context in contexts:
        letters += len(context.text) + len(context.id or "") + len(context.source or "")
    return _WIDEST * letters < MAX_BYTES


def shed(supplement: records.Supplement) -> records.Supplement:
    """Release the passages that `bounded` would drop, but the first: it still sees that there were more.

    For where supplements arrive in numbers, before they are held together.
    """
    contexts = supplement.contexts
    if contexts is None or not (within := passages(contexts)).cut:
        return supplement
    return replace(supplement, contexts=contexts[: len(within.contexts) + 1])


def bounded(supplement: records.Supplement) -> tuple[records.Supplement, bool]:
    """Return the supplement within the bounds, and whether anything had to be cut.

    A name that is too long is left alone: cut, it would be another's.
    """
    contexts, cut = (None, False) if supplement.contexts is None else passages(supplement.contexts)
    texts = {name: getattr(supplement, name) for name in ("question", "reference", "comment", "label")}
    limits = {"label": MAX_LABEL}
    long = {
        name: text[:limit]
        for name, text in texts.items()
        if text is not None and len(text) > (limit := limits.get(name, MAX_TEXT))
    }
    if not cut and not long:
        return supplement, False
    return replace(supplement, contexts=contexts, **long), True


def size(supplement: records.Supplement) -> int:
    """About how many bytes the texts of a supplement take up.

    >>> size(Supplement(id="1", received_at=0.0, source="feedback", comment="wrong", contexts=(Context(text="a"),)))
    6
    """
    texts = (supplement.question, supplement.reference, supplement.comment, supplement.label)
    contexts, calls = supplement.contexts or (), supplement.calls or ()
    called = sum(_size(call.name) + _size(call.arguments) for call in calls)
    return (
        sum(map(_size, texts))
        + called
        + sum(_size(context.text) + _size(context.id) + _size(context.source) for context in contexts)
    )


def _size(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def bounded_name(name: str, most: int = MAX_NAME) -> str:
    r"""Return a name that is fit to be stored and shown; one that is not gets a hash of the whole, and stays distinct.

    >>> bounded_name("support")
    'support'
    >>> bounded_name("a\nb")
    'a\ufffdb~a76de9f2d561975f'
    >>> len(bounded_name("x" * 1_000_000))
    200
    """
    if len(name) <= most and (name.isprintable() or not _UNFIT.search(name)):
        return name
    mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return _UNFIT.sub("\ufffd", name[: most - _MARK]) + "~" + mark


def optional_name(name: str | None, most: int = MAX_NAME) -> str | None:
    """Return a name as `bounded_name` does, if there is one."""
    return name if name is None else bounded_name(name, most)


def bounded_tags(tags: Mapping[str, str], most: int = MAX_TAGS) -> dict[str, str]:
    """Return the first `most` tags, their names and values bounded."""
    kept: dict[str, str] = {}
    for name, value in tags.items():
        if len(kept) == most:
            break
        kept[bounded_name(name)] = bounded_name(value)
    return kept


def token_count(value: object) -> int | None:
    """Return a number of tokens; None if it is not one.

    >>> token_count(12), token_count(-1), token_count(10**30), token_count(True), token_count("12")
    (12, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKENS:
        return None
    return value


def bounded_usage(usage: records.Usage | None) -> records.Usage | None:
    """Return a usage without counts that cannot be."""
    if usage is None:
        return None
    counts = {field.name: getattr(usage, field.name) for field in fields(records.Usage)}
    if all(count is None or 0 <= count <= MAX_TOKENS for count in counts.values()):
        return usage
    return records.Usage(**{name: token_count(count) for name, count in counts.items()})


def bounded_passages(contexts: tuple[records.Context, ...]) -> tuple[records.Context, ...]:
    """Return passages whose ids and sources are bounded."""
    return records.each_changed(bounded_passage, contexts)


def bounded_passage(context: records.Context) -> records.Context:
    """Return a passage whose id, source and tool are bounded."""
    if context.id is None and context.source is None and context.tool is None:
        return context
    name, source = optional_name(context.id, MAX_PASSAGE_NAME), optional_name(context.source, MAX_PASSAGE_NAME)
    tool = optional_name(context.tool)
    if name == context.id and source == context.source and tool == context.tool:
        return context
    return replace(context, id=name, source=source, tool=tool)


def _named(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of these names, which hold a name or None, bounded."""
    return {name: optional_name(getattr(record, name)) for name in names}


def bounded_sample(sample: records.Sample) -> records.Sample:
    """Return a sample whose names and counts are bounded, from any release of the gateway."""
    return records.changed(
        sample,
        **_named(sample, _NAMES_OF_SAMPLE),
        tags=_kept(sample.tags, bounded_tags(sample.tags, 2 * MAX_TAGS)),  # the gateway adds some of its own
        usage=bounded_usage(sample.usage),
        contexts=_kept(sample.contexts, bounded_passages(sample.contexts)),
        capture=None if sample.capture is None else bounded_capture(sample.capture),
        turn=_counted(sample.turn),
        hop=_counted(sample.hop),
        history=_kept(sample.history, bounded_history(sample.history)),
        calls=_kept(sample.calls, bounded_calls(sample.calls)),
        links=None if sample.links is None else _kept(sample.links, _bounded_links(sample.links)),
        transcript=_kept(sample.transcript, bounded_transcript(sample.transcript)),
    )


def _kept(old: _T, new: _T) -> _T:
    """The old value where the new one equals it: a copy of a sample costs more than the comparison."""
    return old if new == old else new


def bounded_history(history: tuple[records.Message, ...]) -> tuple[records.Message, ...]:
    """Return the last messages of a history, each cut."""
    return _shortened_messages(history[-MAX_HISTORY:])


def bounded_transcript(transcript: tuple[records.Message, ...]) -> tuple[records.Message, ...]:
    """Return the first and the last messages of a conversation, each cut."""
    if len(transcript) > MAX_TRANSCRIPT:
        transcript = (*transcript[:_BEGINNING], *transcript[_BEGINNING - MAX_TRANSCRIPT :])
    return _shortened_messages(transcript)


def _shortened_messages(messages: tuple[records.Message, ...]) -> tuple[records.Message, ...]:
    return records.each_changed(
        lambda message: records.changed(message, text=message.text[:MAX_HISTORY_TEXT]), messages
    )


def bounded_calls(calls: tuple[records.ToolCall, ...]) -> tuple[records.ToolCall, ...]:
    """Return the first tool calls, their names and arguments cut."""
    return records.each_changed(
        lambda call: records.changed(call, name=bounded_name(call.name), arguments=call.arguments[:MAX_ARGUMENTS]),
        calls[:MAX_CALLS],
    )


def _counted(count: int | None) -> int | None:
    return None if count is None else min(max(count, 1), MAX_TURNS)


def _bounded_links(links: records.Links) -> records.Links:
    hashes = {
        name: tuple(bounded_name(mark) for mark in getattr(links, name)[:MAX_LINKS])
        for name in ("gives", "asked", "arguments")
    }
    return msgspec.structs.replace(
        links,
        **_named(links, ("follows", "pair_before", "pair_given", "asked_before", "same")),
        **hashes,
        length=min(max(links.length, 0), MAX_TEXT),
        turn=min(max(links.turn, 1), MAX_TURNS),
        hop=min(max(links.hop, 1), MAX_TURNS),
        recall=min(max(links.recall, 0), MAX_HISTORY),
    )


def bounded_capture(capture: records.CaptureInfo, *, margin: int = 0) -> records.CaptureInfo:
    """Return how a sample was found with as many parts and as much text as is kept; the longest texts are cut.

    With `margin` a truncated text keeps that many more characters, for redaction before the final cut: half a secret
    would not be recognised.
    """
    names = (optional_name(capture.marker), optional_name(capture.reason, MAX_REASON), bounded_name(capture.source))
    if names != (capture.marker, capture.reason, capture.source):
        capture = replace(capture, marker=names[0], reason=names[1], source=names[2])
    parts = capture.parts
    if any(bounded_name(role) != role for role in {part.role for part in parts}):
        parts = records.each_changed(lambda part: records.changed(part, role=bounded_name(part.role)), parts)
    if len(parts) > MAX_PARTS:
        parts = _most_telling(parts)
    texts = [part.text for part in parts if part.text]
    many = _WIDEST * sum(map(len, texts)) > MAX_INSTRUCTION_BYTES
    most = _level(map(_size, texts), MAX_INSTRUCTION_BYTES) if many else None
    if most is not None:
        parts = tuple(_shortened(part, most, margin) for part in parts)
    if parts is capture.parts:
        return capture
    shortened = capture.shortened or most is not None or len(parts) < len(capture.parts)
    return replace(capture, parts=parts, shortened=shortened)


def _most_telling(parts: tuple[records.PromptPart, ...]) -> tuple[records.PromptPart, ...]:
    """Leave out the shortest instructions first, then what comes last."""
    kept_first = [index for index, part in enumerate(parts) if part.kind != "instructions"]
    around = [index for index, part in enumerate(parts) if part.kind == "instructions"]
    around.sort(key=lambda index: parts[index].start - parts[index].end)
    return tuple(parts[index] for index in sorted([*kept_first, *around][:MAX_PARTS]))


def _shortened(part: records.PromptPart, most: int, margin: int) -> records.PromptPart:
    if _size(text := part.text) <= most:
        return part
    kept = text[:most].encode("utf-8", "surrogatepass")[:most].decode("utf-8", "ignore")
    return records.changed(part, text=text[: len(kept) + margin])


def _level(sizes: Iterable[int], room: int) -> int | None:
    """The size to which all have to be cut so that they fit into `room`; None when they do.

    >>> _level([10, 90, 300], 200), _level([10, 90], 200)
    (100, None)
    """
    if sum(left := sorted(sizes)) <= room:
        return None
    while left[0] * len(left) <= room:
        room -= left.pop(0)
    return room // len(left)


def bounded_supplement(supplement: records.Supplement) -> records.Supplement:
    """Return a supplement whose names are bounded as those of the sample that it is about."""
    return replace(
        supplement,
        **_named(supplement, ("app", "exchange_id", "key", "trace_id", "label")),
        contexts=None if supplement.contexts is None else bounded_passages(supplement.contexts),
        calls=None if supplement.calls is None else bounded_calls(supplement.calls),
    )

"""The texts of an exchange: the prompt, and claims with verdicts and the quotes they were checked against.

Pure. Texts are untrusted and of any size, so the amount of text searched is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gaugeway.records import Context, Evaluation, Sample, Score
from monitors.analysis.claim_highlight import Claim, Verdict, claims_in, claims_of_reference, mark
from monitors.analysis.prompt_text import Piece, found_by, pieces, unplaced

SHOWN, SHOWN_OF_PASSAGE = 20_000, 3000
"""Characters of a response and of a passage shown by default."""
MOST = 2_000_000
MARKED, SEARCHED = 60_000, 50_000
"""Characters that are split into sentences, and searched for quotes."""
EFFORT = 4_000_000
"""Total characters searched for quotes in all passages; the rest is shown unmarked."""
MAX_CLAIMS, MAX_PASSAGES = 60, 50
SIGNS: dict[str, tuple[str, str]] = {
    "supported": ("✓", "supported"),
    "contradicted": ("✗", "contradicted"),
    "not_mentioned": ("?", "not mentioned"),
}
"""Sign and words for each verdict."""
_WORDS_OF_QUOTE, _LEAST_WORDS, _LONGEST_QUOTE, _PARTS = 80, 3, 4000, 5
_WORD = re.compile(r"\w+")
_LEFT_OUT = re.compile(r"\.{3,}|…|\[…\]")


class Judged(Struct, frozen=True, kw_only=True):
    """A claim with its number on the page and the numbers (from 1) of the passages it was checked against."""

    number: int
    claim: Claim
    passages: tuple[int, ...] = ()
    quoted_in: int | None = None


class Sentence(Struct, frozen=True, kw_only=True):
    """A span of text with its claims and the worst of their verdicts."""

    text: str
    verdict: Verdict | None = None
    claims: tuple[Judged, ...] = ()


class Segment(Struct, frozen=True, kw_only=True):
    """A span of a passage; `claims` quote it, `first` are those whose first quote it is (claim numbers)."""

    text: str
    claims: tuple[int, ...] = ()
    first: tuple[int, ...] = ()


class Passage(Struct, frozen=True, kw_only=True):
    """A retrieved passage; `rest` characters of it are not shown."""

    number: int
    context: Context
    segments: tuple[Segment, ...]
    rest: int = 0


class Text(Struct, frozen=True, kw_only=True):
    """A text with verdicts; `nowhere` are claims that match no visible sentence."""

    sentences: tuple[Sentence, ...]
    nowhere: tuple[Judged, ...] = ()
    rest: int = 0


class Reading(Struct, frozen=True, kw_only=True):
    """The texts of the page.

    `claims` are the response's, `recalled` the reference's. `by` is the metric whose claims are highlighted, one of
    `choices`.
    """

    response: Text
    reference: Text
    claims: tuple[Judged, ...]
    recalled: tuple[Judged, ...]
    passages: tuple[Passage, ...]
    more_passages: int = 0
    more_claims: int = 0
    by: str = ""
    choices: tuple[str, ...] = ()


def read(
    response: str,
    reference: str,
    contexts: Sequence[Context],
    evaluations: Sequence[Evaluation],
    *,
    by: str = "",
    everything: bool = False,
) -> Reading:
    """Put verdicts on the texts; `by` names the metric whose claims are wanted. May take some tenths of a second."""
    sources = {evaluation.metric: evaluation for evaluation in _best_first(evaluations) if claims_in([evaluation])}
    chosen = sources.get(by) or next(iter(sources.values()), None)
    shown = contexts[: None if everything else MAX_PASSAGES]
    claims = judged(chosen, claims_in([chosen]), len(shown)) if chosen is not None else []
    recalled = next((evaluation for evaluation in evaluations if claims_of_reference(evaluation)), None)
    wanted = judged(recalled, claims_of_reference(recalled), len(shown), first=len(claims) + 1) if recalled else []
    everyone = [*claims, *wanted]
    quotes = [
        (judged_claim, patterns(judged_claim.claim.quote)) for judged_claim in everyone if judged_claim.claim.quote
    ]
    effort, some = EFFORT, []
    for number, context in enumerate(shown, 1):
        here = [(claim, of) for claim, of in quotes if number in claim.passages or not claim.passages]
        effort -= min(len(context.text), SEARCHED) * sum(len(of) for _, of in here)
        some.append(passage(number, context, here if effort >= 0 else [], everything=everything))
    passages, quoted = _anchored(some)
    claims, wanted = (
        [replace(judged_claim, quoted_in=quoted.get(judged_claim.number)) for judged_claim in some]
        for some in (claims, wanted)
    )
    total = len(claims_in([chosen])) if chosen is not None else 0
    return Reading(
        response=marked(response, claims, everything=everything),
        reference=marked(reference, wanted, everything=everything),
        claims=tuple(claims),
        recalled=tuple(wanted),
        passages=tuple(passages),
        more_passages=len(contexts) - len(shown),
        more_claims=total - len(claims),
        by=chosen.metric if chosen is not None else "",
        choices=tuple(sources),
    )


def judged(evaluation: Evaluation, claims: Sequence[Claim], passages: int, *, first: int = 1) -> list[Judged]:
    """Number the claims, and find in the evidence which of the first `passages` each was checked against."""
    named: dict[str, tuple[int, ...]] = {}
    evidence = evaluation.outcome.evidence if isinstance(evaluation.outcome, Score) else ()
    for item in evidence:
        some = item.get("contexts", [item.get("context")])
        indexes = some if isinstance(some, (list, tuple)) else []
        valid = tuple(index + 1 for index in indexes if type(index) is int and 0 <= index < passages)
        named.setdefault(str(item.get("claim", item.get("sentence"))), valid)
    return [
        Judged(number=number, claim=claim, passages=named.get(claim.text, ()))
        for number, claim in enumerate(claims[:MAX_CLAIMS], first)
    ]


def marked(text: str, claims: Sequence[Judged], *, everything: bool = False) -> Text:
    """Split a text into sentences with their claims; text beyond `MARKED` characters stays one plain sentence."""
    shown = text[: MOST if everything else SHOWN]
    pieces, nowhere = mark(shown[:MARKED], [judged_claim.claim for judged_claim in claims])
    numbers = {id(judged_claim.claim): judged_claim for judged_claim in claims}
    sentences = [
        Sentence(text=piece.text, verdict=piece.verdict, claims=tuple(numbers[id(claim)] for claim in piece.claims))
        for piece in _joined(pieces)
    ]
    if len(shown) > MARKED:
        sentences.append(Sentence(text=shown[MARKED:]))
    return Text(
        sentences=tuple(sentences), nowhere=tuple(numbers[id(claim)] for claim in nowhere), rest=len(text) - len(shown)
    )


def passage(
    number: int,
    context: Context,
    quotes: Sequence[tuple[Judged, Sequence[re.Pattern[str]]]],
    *,
    everything: bool = False,
) -> Passage:
    """A passage with its quotes marked; shown up to the last quote, within bounds."""
    text = context.text
    spans = [
        (start, end, judged_claim.number)
        for judged_claim, quote in quotes
        for start, end in find(quote, text[:SEARCHED])
    ]
    least = max([SHOWN_OF_PASSAGE, *(end + 200 for _, end, _ in spans)])
    shown = text[: MOST if everything else min(least, SHOWN)]
    segments = tuple(segmented(shown, [span for span in spans if span[1] <= len(shown)]))
    return Passage(number=number, context=context, segments=segments, rest=len(text) - len(shown))


def patterns(quote: str) -> list[re.Pattern[str]]:
    """Regular expressions for a quote that ignore case, white space and punctuation between words.

    A quote with an ellipsis is split into parts.
    """
    parts = [_WORD.findall(part)[:_WORDS_OF_QUOTE] for part in _LEFT_OUT.split(quote[:_LONGEST_QUOTE])]
    if len(parts) > 1:
        parts = [words for words in parts if len(words) >= _LEAST_WORDS]
    return [
        re.compile(r"(?<!\w)" + r"\W+".join(map(re.escape, words)) + r"(?!\w)", re.IGNORECASE)
        for words in parts[:_PARTS]
        if words
    ]


def find(quote: Iterable[re.Pattern[str]], text: str) -> list[tuple[int, int]]:
    """First position (start, end) of each part of a quote in a text.

    >>> find(patterns("within 30 days ... by post"), "Return it Within  30 days, if you like by post.")
    [(10, 25)]
    """
    return [match.span() for pattern in quote if (match := pattern.search(text)) is not None]


def segmented(text: str, spans: Iterable[tuple[int, int, int]]) -> list[Segment]:
    """Split a text at spans (start, end, claim number); overlapping spans are merged.

    >>> [(segment.text, segment.claims) for segment in segmented("one two three", [(4, 7, 1), (6, 9, 2)])]
    [('one ', ()), ('two t', (1, 2)), ('hree', ())]
    """
    runs: list[tuple[int, int, tuple[int, ...]]] = []
    for start, end, number in sorted(spans):
        if runs and start < runs[-1][1]:
            known = runs.pop()
            numbers = known[2] if number in known[2] else (*known[2], number)
            runs.append((known[0], max(known[1], end), numbers))
        else:
            runs.append((start, end, (number,)))
    segments, at = [], 0
    for start, end, run in runs:
        segments += [Segment(text=text[at:start]), Segment(text=text[start:end], claims=run)]
        at = end
    return [segment for segment in [*segments, Segment(text=text[at:])] if segment.text]


def _anchored(passages: Iterable[Passage]) -> tuple[list[Passage], dict[int, int]]:
    """Mark the first occurrence of each quote; also returns claim number -> passage number."""
    places: dict[int, int] = {}
    found = []
    for anchored in passages:
        segments = []
        for segment in anchored.segments:
            first = tuple(number for number in segment.claims if number not in places)
            places |= dict.fromkeys(first, anchored.number)
            segments.append(replace(segment, first=first))
        found.append(replace(anchored, segments=tuple(segments)))
    return found, places


def _joined(pieces: Iterable[Any]) -> list[Any]:
    """Merge neighbouring sentences without claims: a long text has thousands."""
    joined: list[Any] = []
    plain: list[str] = []
    for piece in pieces:
        if piece.verdict is None:
            plain.append(piece.text)
            continue
        if plain:
            joined.append(type(piece)("".join(plain)))
            plain = []
        joined.append(piece)
    return [*joined, *([Sentence(text="".join(plain))] if plain else [])]


def _best_first(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Judged evaluations first, faithfulness before all others; the rest only compare words."""
    return sorted(evaluations, key=lambda evaluation: (evaluation.judge is None, evaluation.metric != "faithfulness"))


SHORT = 2_000
"""Characters up to which a prompt is open at first."""
SHOWN_OF_PART, SHOWN_OF_PROMPT_PASSAGE = 2_000, 300
"""Characters of a part shown by default; passages are shown in full above."""
TITLES = {"system": "System message", "user": "User message", "tool": "Tool result"}


class Shown(Struct, frozen=True, kw_only=True):
    """A piece of a prompt, shortened; `rest` characters are not shown."""

    piece: Piece
    text: str | None
    rest: int = 0


class Message(Struct, frozen=True, kw_only=True):
    """A message of the prompt; `skipped` messages before it belong to earlier turns."""

    title: str
    shown: tuple[Shown, ...]
    skipped: int = 0


class Prompt(Struct, frozen=True, kw_only=True):
    """A stored prompt.

    `explicit`: question and passages were sent with the request.
    `elsewhere`: numbers of passages that no message contains verbatim. `replaced`: contexts were sent separately.
    `lost`: the prompt contained passages that are not stored.
    """

    found_by: str
    explicit: bool
    messages: tuple[Message, ...]
    size: int
    elsewhere: tuple[int, ...] = ()
    replaced: bool = False
    lost: bool = False
    shortened: bool = False
    cut: bool = False

    @property
    def is_short(self) -> bool:
        return self.size <= SHORT


def prompt_of(sample: Sample, *, everything: bool = False) -> Prompt | None:
    """The prompt of a sample; None for samples captured by an older release."""
    capture = sample.capture
    if capture is None:
        return None
    parts = list(pieces(capture, sample.question, sample.contexts, sample.context_source))
    replaced = capture.source != sample.context_source
    return Prompt(
        found_by=found_by(capture),
        explicit=capture.source == "explicit",
        messages=tuple(_messages(parts, everything=everything)),
        size=sum(piece.size for piece in parts),
        elsewhere=() if replaced else tuple(unplaced(capture.parts, len(sample.contexts))),
        replaced=replaced,
        lost=any(piece.kind == "passage" and piece.text is None for piece in parts),
        shortened=capture.shortened,
        cut=capture.cut,
    )


def _messages(parts: Sequence[Piece], *, everything: bool) -> list[Message]:
    found: list[Message] = []
    before = -1
    for index, some in groupby(parts, key=lambda piece: piece.message):
        own = list(some)
        title = TITLES.get(own[0].role, own[0].role)
        shown = tuple(_shown(piece, everything=everything) for piece in own)
        found.append(Message(title=title, shown=shown, skipped=max(0, index - before - 1)))
        before = index
    return found


def _shown(piece: Piece, *, everything: bool) -> Shown:
    if piece.text is None:
        return Shown(piece=piece, text=None)
    most = MOST if everything else SHOWN_OF_PROMPT_PASSAGE if piece.kind == "passage" else SHOWN_OF_PART
    text = piece.text.strip("\r\n")
    return Shown(piece=piece, text=text[:most], rest=max(0, len(text) - most))

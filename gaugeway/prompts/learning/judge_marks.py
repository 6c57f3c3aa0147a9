"""Templates for prompts that cannot be learned from traffic alone: the judge marks a request, later ones confirm it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gaugeway.prompts.learning.alignment import Signs, salted
from gaugeway.prompts.learning.frames import PART
from gaugeway.prompts.learning.model import WHOLE, LearnedTemplate, Split, match, separators_of
from gaugeway.prompts.learning.outline import Outline, Span, has_letter
from gaugeway.prompts.learning.plans import Plan, has_remains_of_the_prompt, template_of
from gaugeway.prompts.learning.skeletons import Skeleton, fits, read
from gaugeway.prompts.sizes import FEW, PAGE, PARAGRAPH, REMEMBERED, SEVERAL
from gaugeway.records import Context, grouped

MAX_MARKED_OF_KIND = 5
"""Most requests of one kind and app that the judge is asked to mark."""
MAX_MARKED_CHARACTERS = 32_768
"""Longest request the judge is asked to mark."""
MAX_MARKED = 100
"""Most marked or unmarked requests, of all apps, compared with prompts; the newest are kept."""
MAX_REFUTED = REMEMBERED
"""Most versions of dropped templates that are not learned from a mark again."""
LEAST_SEEN = 5
"""Requests of a prompt after which the judge is asked: fewer show too little of what is constant."""

_AGREEING = 2
_DISAGREEING = 2
_MARKS_AGAINST_A_READER = 2
_MARKS_OF_ONE = FEW
"""Marked requests with one passage each after which a prompt is taken to hold one."""
_MOST_EMPTY = 2  # internal bound: patience with a prompt without passages
"""Requests of a prompt in which the judge found no passages, after which it is not asked about it any more."""
_MOST_READ = SEVERAL  # internal bound: patience of a test of a template
"""Requests in which a line of all of them may turn out to be a passage's."""

_LEAST_VARYING = PARAGRAPH // 2
_LONGEST_QUESTION = PAGE  # internal bound: of a question that confirms a template


class Marked(NamedTuple):
    """A request the judge was asked to mark, with its answer; `passages` is empty when the answer is unusable."""

    app: str
    kind: str
    text: str
    answered: bool
    question: str = ""
    passages: tuple[str, ...] = ()


class JudgingState(Struct):
    """Progress of the judge's marking of one prompt."""

    revision: int = -1
    candidate: LearnedTemplate | None = None
    common: set[int] = set()
    """Hashes of lines found in the passages of every request so far; a line that stays belongs to the prompt."""
    agreed: int = 0
    disagreed: int = 0
    known: tuple[str, ...] = ()
    """Passages that another reader was sure of in the request that the judge was asked about last."""
    over: bool = False


class MarkedRequests:
    """Requests sent to the judge and its marks, of all apps; `load` replaces them."""

    def __init__(self, signs: Signs, salt: int) -> None:
        self._signs = signs
        self._salt = salt
        self._revision = 0
        self._marked: dict[tuple[str, str], list[Marked]] = {}
        self._refuted: set[str] = set()

    def load(self, marked: Iterable[Marked]) -> None:
        """Replace what is known."""
        self._revision += 1
        self._marked = grouped(((mark.app, mark.kind), mark) for mark in list(marked)[-MAX_MARKED:])

    def consider(
        self, name: tuple[str, str], state: JudgingState, skeleton: Skeleton, seen: Outline, known: Sequence[Context]
    ) -> LearnedTemplate | None:
        """Process one more request of a prompt: return a confirmed template, or a request to be marked (without slots).

        `known` are passages of this request that another extractor is sure of.
        """
        if state.over or skeleton.seen < LEAST_SEEN:
            return None
        contexts = None if state.candidate is None else _read(state.candidate, seen.text)
        if contexts is None:
            return self._next(name, state, skeleton, seen, known)
        state.agreed += 1
        state.common &= _lines(context.text for context in contexts)
        confirmed = state.agreed >= _AGREEING and not state.common
        state.over = confirmed or state.agreed >= _MOST_READ
        return state.candidate if confirmed else None

    def refute(self, version: str) -> None:
        """Do not learn a dropped template again."""
        if len(self._refuted) < MAX_REFUTED:
            self._refuted.add(version)

    def _next(
        self, name: tuple[str, str], state: JudgingState, skeleton: Skeleton, seen: Outline, known: Sequence[Context]
    ) -> LearnedTemplate | None:
        """Take the template that the marks suggest by now; without one return a request to be marked."""
        if state.candidate is None and state.revision == self._revision:
            return None
        marked = self._marked.get(name, [])
        outlines = [(mark, outline) for mark in marked if (outline := self._outline(mark, skeleton)) is not None]
        if not all(mark.answered for mark, _ in outlines):
            return None
        if self._has_candidate(state, outlines, skeleton.seen):
            return None
        state.candidate, state.revision = None, self._revision
        empty = sum(not mark.passages for mark, _ in outlines)
        state.over = len(marked) >= MAX_MARKED_OF_KIND or empty >= _MOST_EMPTY
        longest = max((end - start for start, end in seen.slots), default=0)
        if state.over or longest < _LEAST_VARYING or len(seen.text) > MAX_MARKED_CHARACTERS:
            state.revision = -1
            return None
        state.known = tuple(context.text for context in known)
        # Workers that ask at the same time use the same version: the store keeps one of them.
        version = blake2b(repr((*name, len(marked))).encode("utf-8", "replace"), digest_size=6).hexdigest()
        return LearnedTemplate(
            app=name[0],
            kind=name[1],
            version=version,
            literals=(seen.text,),
            slots=(),
            split=Split(kind="lines"),
            seen=skeleton.seen,
            learned_at=0.0,
        )

    def _has_candidate(self, state: JudgingState, marks: Sequence[tuple[Marked, Outline]], seen: int) -> bool:
        """Take the template that most marks agree on, built from what all requests share by now.

        The one before did not fit a request: if it comes again, that counts against it.
        """
        doubted = state.known and any(not _same_texts(mark.passages, state.known) for mark, _ in marks[-1:])
        least = max(len(marks) // 2 + 1, _MARKS_AGAINST_A_READER if doubted else 1)
        template = agreed_template(marks, least, seen)
        if template is None or template.version in self._refuted:
            return False
        if state.candidate is not None and template.version == state.candidate.version:
            state.disagreed += 1
            if state.disagreed >= _DISAGREEING:
                self.refute(template.version)
                return False
            return True
        lines = [_lines(mark.passages) for mark, _ in marks if mark.passages]
        state.candidate, state.common = template, set.intersection(*lines)
        state.agreed = state.disagreed = 0
        return True

    def _outline(self, marked: Marked, skeleton: Skeleton) -> Outline | None:
        """Return the marked request as literals and slots of the skeleton; None when it is of another prompt."""
        reading = read(marked.text, self._salt)
        pairs = skeleton.match(reading, self._signs)
        if not fits(skeleton, pairs):
            return None
        copy = replace(skeleton)
        copy.refine(reading, pairs)
        return copy.outline(reading, [place for _, place in pairs])


def agreed_template(marks: Sequence[tuple[Marked, Outline]], least: int, requests: int) -> LearnedTemplate | None:
    """Return a template that reads at least `least` of the marked requests exactly as they were marked.

    What stands between the passages of all of them comes first: those of one may have the same words by chance.
    """
    every = [gap for mark, outline in marks for gap in _gaps(outline.text, _places(outline.text, mark.passages) or ())]
    for gaps in (every, None) if len(marks) > 1 else (None,):
        for marked, outline in reversed(marks):
            template = template_from(marked, outline, requests, gaps)
            if template is None:
                continue
            needed = max(least, _MARKS_OF_ONE) if template.split.words == WHOLE else least
            if sum(_reads(template, mark) for mark, _ in marks) >= needed:
                return template
    return None


def _reads(template: LearnedTemplate, marked: Marked) -> bool:
    found = match(template, marked.text)
    texts = [context.text for context in found.contexts] if found is not None else []
    return found is not None and found.question == marked.question and _same_texts(texts, marked.passages)


def template_from(
    marked: Marked, seen: Outline, requests: int, gaps: Sequence[str] | None = None
) -> LearnedTemplate | None:
    """Return the template that reads the marked request exactly as it was marked; None when there is none.

    `gaps` are what may stand between passages; without them, what stands between those of this request.
    """
    if len(marked.question) >= sum(map(len, marked.passages)):
        return None  # question and passages are confused
    spans = _places(seen.text, marked.passages)
    asked = _asked(seen.text, marked.question, spans) if spans else None
    if spans is None or asked is None:
        return None
    for how, start in _splits(seen.text, spans, _gaps(seen.text, spans) if gaps is None else gaps):
        literals = _around(seen, (start, spans[-1][1]), asked)
        places = [index for index, (_, end) in enumerate(literals[:-1]) if end <= start]
        if not places or literals[0][0] or literals[-1][1] != len(seen.text):
            continue
        words = tuple(seen.text[begin:end] for begin, end in literals)
        plan = Plan(words, places[-1], how, tuple(Context(text=passage) for passage in marked.passages), 1.0)
        slots = [(left[1], right[0]) for left, right in pairwise(literals)]
        template = template_of((marked.app, marked.kind), plan, _slot(slots, asked), seen=requests, at=0.0)
        if _reads(template, marked):
            return template
    return None


def _asked(text: str, question: str, passages: Sequence[Span]) -> Span | None:
    """Return where the question stands last, outside the passages."""
    at = len(text)
    while (at := text.rfind(question, 0, at)) >= 0:
        if not any(start < at + len(question) and at < end for start, end in passages):
            return at, at + len(question)
        at += len(question) - 1
    return None


def _slot(slots: Sequence[Span], asked: Span) -> int | None:
    return next((index for index, (start, end) in enumerate(slots) if start <= asked[0] and asked[1] <= end), None)


def _around(seen: Outline, passages: Span, asked: Span) -> list[Span]:
    """Return the constant texts without what is in the passages or the question."""
    found = list(seen.literals)
    for low, high in (passages, asked):
        pieces = [piece for start, end in found for piece in ((start, min(end, low)), (max(start, high), end))]
        found = [piece for piece in dict.fromkeys(pieces) if piece[0] < piece[1]]
    return found


def _gaps(text: str, spans: Sequence[Span]) -> list[str]:
    return [text[left[1] : right[0]] for left, right in pairwise(spans)]


def _splits(text: str, spans: Sequence[Span], gaps: Sequence[str]) -> Iterator[tuple[Split, int]]:
    """Yield how the marked passages may be separated, and where the region of it begins.

    One passage alone does not show what would separate several: it is read whole. Line breaks alone do not separate:
    the next passage may contain some.
    """
    first = spans[0][0]
    if not gaps:
        yield Split(kind="reading", words=WHOLE), first
        return
    if all(PART in gap for gap in gaps):
        yield Split(kind="part"), first
    if all(not gap.strip() and gap.count("\n") > 1 for gap in gaps):
        yield Split(kind="paragraphs"), first
    for (head, between), length in separators_of(gaps, text[:first]):
        if "".join(between).strip():
            yield Split(kind="separator", header=head, trailer=between), first - length


def _places(text: str, passages: Iterable[str]) -> list[Span] | None:
    """Return start and end of each passage, in order; None when one is missing."""
    found: list[Span] = []
    position = 0
    for passage in passages:
        start = text.find(passage, position)
        if start < 0 or not passage:
            return None
        position = start + len(passage)
        found.append((start, position))
    return found or None


def _read(template: LearnedTemplate, text: str) -> tuple[Context, ...] | None:
    """Return the passages the template finds; None when it does not match, or they contain text of the prompt."""
    found = match(template, text)
    if found is None or not found.question or len(found.question) > _LONGEST_QUESTION:
        return None
    plan = Plan(template.literals, template.slots.index("passages"), template.split, found.contexts, 1.0)
    is_plain = template.split.kind != "separator"
    return None if is_plain and has_remains_of_the_prompt(plan) else found.contexts


def _lines(texts: Iterable[str]) -> set[int]:
    """Return the hashes of the lines with words."""
    return {salted(line.strip()) for text in texts for line in text.splitlines() if has_letter(line)}


def _same_texts(left: Sequence[str], right: Sequence[str]) -> bool:
    return [text.split() for text in left] == [text.split() for text in right]

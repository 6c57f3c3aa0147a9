"""Templates for prompts that cannot be learned from traffic alone: the judge marks a request, later ones confirm it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

from gateway.contexts.learning.alignment import Signs
from gateway.contexts.learning.model import WHOLE, LearnedTemplate, Split, match, slots_in
from gateway.contexts.learning.outline import Outline, Span, has_letter, masked
from gateway.contexts.learning.plans import Plan, has_remains_of_the_prompt, proposals, template_of
from gateway.contexts.learning.skeletons import Skeleton, fits, read
from gateway.contexts.learning.tokens import salted
from gateway.contexts.structure import passages
from monitors.records import Context

MAX_MARKED_OF_KIND = 5
"""Most requests of one kind and app that the judge is asked to mark."""
MAX_MARKED_CHARACTERS = 32_768
"""Longest request the judge is asked to mark."""
MAX_MARKED = 100
"""Most marked or unmarked requests, of all apps, compared with prompts; the newest are kept."""
MAX_REFUTED = 1_000
"""Most versions of dropped templates that are not learned from a mark again."""
LEAST_SEEN = 20
"""Requests of a prompt that taught nothing, after which the judge is asked."""

_AGREEING = 2
_DISAGREEING = 2
_MOST_READ = 10
"""Requests in which a line of all of them may turn out to be a passage's."""

_LEAST_VARYING = 200
_LONGEST_QUESTION = 2_000


class Marked(NamedTuple):
    """A request the judge was asked to mark, with its answer; `passages` is empty when the answer is unusable."""

    app: str
    kind: str
    text: str
    answered: bool
    question: str = ""
    passages: tuple[str, ...] = ()


@dataclass(slots=True)
class JudgingState:
    """Progress of the judge's marking of one prompt."""

    revision: int = -1
    candidate: LearnedTemplate | None = None
    common: set[int] = field(default_factory=set)
    """Hashes of lines found in the passages of every request so far; a line that stays belongs to the prompt."""
    agreed: int = 0
    disagreed: int = 0
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
        self._marked = {}
        for one in list(marked)[-MAX_MARKED:]:
            self._marked.setdefault((one.app, one.kind), []).append(one)

    def consider(
        self, name: tuple[str, str], state: JudgingState, skeleton: Skeleton, seen: Outline, known: Sequence[Context]
    ) -> LearnedTemplate | None:
        """Process one more request of a prompt: return a confirmed template, or a request to be marked (without slots).

        `known` are passages of this request that another extractor is sure of.
        """
        if state.over or skeleton.seen < LEAST_SEEN:
            return None
        if state.candidate is None:
            return self._next(name, state, skeleton, seen)
        contexts = _read(state.candidate, seen.text, known)
        if contexts is None:
            state.disagreed += 1
        else:
            state.agreed += 1
            state.common &= _lines(one.text for one in contexts)
        confirmed = state.agreed >= _AGREEING and not state.common
        state.over = confirmed or state.disagreed >= _DISAGREEING or state.agreed >= _MOST_READ
        return state.candidate if confirmed else None

    def refute(self, version: str) -> None:
        """Do not learn a dropped template again."""
        if len(self._refuted) < MAX_REFUTED:
            self._refuted.add(version)

    def _next(
        self, name: tuple[str, str], state: JudgingState, skeleton: Skeleton, seen: Outline
    ) -> LearnedTemplate | None:
        """Use the judge's answer for this prompt if there is one; else return a request to be marked."""
        if state.revision == self._revision:
            return None
        marked = self._marked.get(name, [])
        for one in marked:
            if (outline := self._outline(one, skeleton)) is not None:
                state.revision = self._revision
                if one.answered:
                    template = template_from(one, outline, skeleton.seen)
                    state.over = template is None or template.version in self._refuted
                    state.candidate, state.common = template, _lines(one.passages)
                return None
        if len(marked) >= MAX_MARKED_OF_KIND:
            state.over = True
            return None
        longest = max((end - start for start, end in seen.slots), default=0)
        if longest < _LEAST_VARYING or len(seen.text) > MAX_MARKED_CHARACTERS:
            return None
        state.revision = self._revision
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

    def _outline(self, marked: Marked, skeleton: Skeleton) -> Outline | None:
        """Return the marked request as literals and slots of the skeleton; None when it is of another prompt."""
        reading = read(marked.text, self._salt)
        pairs = skeleton.match(reading, self._signs)
        if not fits(skeleton, pairs):
            return None
        copy = replace(skeleton)
        copy.refine(reading, pairs)
        return copy.outline(reading, [place for _, place in pairs])


def template_from(marked: Marked, seen: Outline, requests: int) -> LearnedTemplate | None:
    """Return the template that reads the marked request exactly as it was marked; None when there is none."""
    if len(marked.question) >= sum(map(len, marked.passages)):
        return None  # question and passages are confused
    for plan in _plans(marked, seen):
        spans = slots_in(plan.literals, plan.passages, seen.text)
        if spans is None or has_remains_of_the_prompt(plan) or not _is_unambiguous(plan, seen.text):
            continue
        said = [seen.text[start:end].strip().lstrip("¿¡") for start, end in spans]
        wanted = marked.question.lstrip("¿¡")
        asked = next((at for at, text in enumerate(said) if at != plan.passages and text == wanted), None)
        template = template_of((marked.app, marked.kind), plan, asked, seen=requests, at=0.0)
        found = match(template, seen.text)
        if found is not None and found.question == marked.question and _same(found.contexts, marked.passages):
            return template
    return None


def _is_unambiguous(plan: Plan, text: str) -> bool:
    """Whether each constant text between two slots occurs exactly once; otherwise the slots are ambiguous."""
    return all(text.count(literal) == 1 for literal in plan.literals[1:-1])


def _plans(marked: Marked, seen: Outline) -> Iterator[Plan]:
    """Yield the plans that split the passages as they were marked: those the request suggests, then any that do.

    One passage alone does not show what would separate several: it is read whole.
    """
    spans = _places(seen.text, marked.passages)
    if spans is None:
        return
    gaps = [seen.text[left[1] : right[0]] for left, right in pairwise(spans)]
    for plan in proposals(seen) if gaps else ():
        if _same(plan.contexts, marked.passages) and _separates(plan.split, gaps):
            yield plan
    first, last = spans[0][0], spans[-1][1]
    before = [one for one in seen.literals if one[1] <= first]
    behind = [one for one in seen.literals if one[0] >= last]
    if not before or not behind:
        return
    literals = tuple(seen.text[start:end] for start, end in (*before, *behind))
    region = seen.text[before[-1][1] : behind[0][0]]
    for split in _splits(gaps, region):
        if _separates(split, gaps):
            yield Plan(literals, len(before) - 1, split, tuple(Context(text=one) for one in marked.passages), 1.0)


def _splits(gaps: Sequence[str], region: str) -> Iterator[Split]:
    if not gaps:
        yield Split(kind="reading", words=WHOLE)
        return
    yield from (Split(kind="reading", words=one.name) for one in passages.readings(region))
    between = set(map(masked, gaps))
    if len(between) == 1:
        yield Split(kind="marker", words=between.pop())


def _separates(split: Split, gaps: Iterable[str]) -> bool:
    """Whether a split is as strict as the text between the marked passages.

    Line breaks alone are not: the next passage may contain some.
    """
    how = split.words if split.kind == "reading" else split.kind
    if how == "lines" or (split.kind == "marker" and not split.words.strip() and split.words.count("\n") == 1):
        return False
    return how not in ("paragraphs", "blank-line") or not any(gap.strip() for gap in gaps)


def _places(text: str, passages: Iterable[str]) -> list[Span] | None:
    """Return start and end of each passage, in order; None when one is missing."""
    found: list[Span] = []
    position = 0
    for one in passages:
        start = text.find(one, position)
        if start < 0 or not one:
            return None
        position = start + len(one)
        found.append((start, position))
    return found or None


def _read(template: LearnedTemplate, text: str, known: Sequence[Context]) -> tuple[Context, ...] | None:
    """Return the passages the template finds; None when it does not match, or they contain text of the prompt."""
    found = match(template, text)
    if found is None or not found.question or len(found.question) > _LONGEST_QUESTION:
        return None
    if known and not _same(found.contexts, [one.text for one in known]):
        return None
    plan = Plan(template.literals, template.slots.index("passages"), template.split, found.contexts, 1.0)
    return None if has_remains_of_the_prompt(plan) else found.contexts


def _lines(texts: Iterable[str]) -> set[int]:
    """Return the hashes of the lines with words."""
    return {salted(line.strip()) for text in texts for line in text.splitlines() if has_letter(line)}


def _same(contexts: Sequence[Context], texts: Sequence[str]) -> bool:
    return [one.text.split() for one in contexts] == [one.split() for one in texts]

"""Prompts that traffic alone does not explain: the judge marks one request, and later requests confirm the template."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

from gateway.contexts.learning.alignment import Signs
from gateway.contexts.learning.frames import MASK
from gateway.contexts.learning.model import WHOLE, LearnedTemplate, SlotName, Split, match, version_of
from gateway.contexts.learning.outline import Outline, Span, masked
from gateway.contexts.learning.plans import Plan, has_remains_of_the_prompt, proposals
from gateway.contexts.learning.skeletons import Skeleton, fits, read
from gateway.contexts.structure import items
from monitors.records import Context

MAX_MARKED_OF_KIND = 5
"""Requests of one kind, of an app, that the judge is asked to mark."""
MAX_MARKED_CHARACTERS = 32_768
"""Of a request that the judge is asked to mark."""
MAX_MARKED = 100
"""Requests, of all apps, that were or are to be marked and are compared with prompts; the newest."""
LEAST_SEEN = 20
"""Requests of a prompt that taught nothing, after which the judge is asked."""

_AGREEING = 2
_DISAGREEING = 2
_LEAST_VARYING = 200
_LONGEST_QUESTION = 2_000


class Marked(NamedTuple):
    """A request that the judge was asked to mark, with its answer: no passages where it has not answered usefully."""

    app: str
    kind: str
    text: str
    answered: bool
    question: str = ""
    passages: tuple[str, ...] = ()


@dataclass(slots=True)
class Asking:
    """How far asking the judge about one prompt has come."""

    revision: int = -1
    candidate: LearnedTemplate | None = None
    agreed: int = 0
    disagreed: int = 0
    over: bool = False


class MarkedRequests:
    """What the judge was asked and said, of all apps; `load` replaces it."""

    def __init__(self, signs: Signs, salt: int) -> None:
        self._signs = signs
        self._salt = salt
        self._revision = 0
        self._marked: dict[tuple[str, str], list[Marked]] = {}

    def load(self, marked: Iterable[Marked]) -> None:
        """Replace what is known."""
        self._revision += 1
        self._marked = {}
        for one in list(marked)[-MAX_MARKED:]:
            self._marked.setdefault((one.app, one.kind), []).append(one)

    def consider(
        self, name: tuple[str, str], asking: Asking, skeleton: Skeleton, seen: Outline, known: Sequence[Context]
    ) -> LearnedTemplate | None:
        """Look at one more request of a prompt: return a template that it confirms, or one of a request to be marked.

        The latter has no slots. `known` are passages of this request that another way is sure of.
        """
        if asking.over or skeleton.seen < LEAST_SEEN:
            return None
        if asking.candidate is None:
            return self._next(name, asking, skeleton, seen)
        if _agrees(asking.candidate, seen.text, known):
            asking.agreed += 1
        else:
            asking.disagreed += 1
        asking.over = asking.agreed >= _AGREEING or asking.disagreed >= _DISAGREEING
        return asking.candidate if asking.agreed >= _AGREEING else None

    def _next(self, name: tuple[str, str], asking: Asking, skeleton: Skeleton, seen: Outline) -> LearnedTemplate | None:
        """Take the judge's answer for this prompt if there is one; else return a request to be marked."""
        if asking.revision == self._revision:
            return None
        marked = self._marked.get(name, [])
        for one in marked:
            if (outline := self._outline(one, skeleton)) is not None:
                asking.revision = self._revision
                if one.answered:
                    asking.candidate = template_from(one, outline, skeleton.seen)
                    asking.over = asking.candidate is None
                return None
        if len(marked) >= MAX_MARKED_OF_KIND:
            asking.over = True
            return None
        longest = max((end - start for start, end in seen.slots), default=0)
        if longest < _LEAST_VARYING or len(seen.text) > MAX_MARKED_CHARACTERS:
            return None
        asking.revision = self._revision
        # Workers that ask at the same time ask under the same version: the store keeps one of them.
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
    """Return the template by which the marked request is read exactly as it was marked; None when there is none."""
    for plan in _plans(marked, seen):
        asked = _question_slot(plan, seen.text, marked.question)
        if asked is None or has_remains_of_the_prompt(plan):
            continue
        slots: tuple[SlotName, ...] = tuple(
            "passages" if index == plan.passages else "question" if index == asked else "other"
            for index in range(len(plan.literals) - 1)
        )
        template = LearnedTemplate(
            app=marked.app,
            kind=marked.kind,
            version=version_of(plan.literals, slots, plan.split),
            literals=plan.literals,
            slots=slots,
            split=plan.split,
            seen=requests,
            learned_at=0.0,
        )
        found = match(template, seen.text)
        if found is not None and found.question == marked.question and _same(found.contexts, marked.passages):
            return template
    return None


def _plans(marked: Marked, seen: Outline) -> Iterator[Plan]:
    """Yield the plans that split the passages as they were marked: those the request suggests, then any that do.

    One passage alone does not show what would separate several: it is read whole.
    """
    for plan in proposals(seen) if len(marked.passages) > 1 else ():
        if _same(plan.contexts, marked.passages):
            yield plan
    spans = _places(seen.text, marked.passages)
    if spans is None:
        return
    first, last = spans[0][0], spans[-1][1]
    before = [one for one in seen.literals if one[1] <= first]
    behind = [one for one in seen.literals if one[0] >= last]
    if not before or not behind:
        return
    literals = tuple(seen.text[start:end] for start, end in (*before, *behind))
    region = seen.text[before[-1][1] : behind[0][0]]
    for split in _splits(seen.text, spans, region):
        yield Plan(literals, len(before) - 1, split, tuple(Context(text=one) for one in marked.passages), 1.0)


def _splits(text: str, spans: Sequence[Span], region: str) -> Iterator[Split]:
    if len(spans) == 1:
        yield Split(kind="reading", words=WHOLE)
        return
    yield from (Split(kind="reading", words=one.name) for one in items.readings(region))
    between = {masked(text[left[1] : right[0]]) for left, right in pairwise(spans)}
    if len(between) == 1:
        yield Split(kind="marker", words=between.pop())


def _places(text: str, passages: Iterable[str]) -> list[Span] | None:
    """Return where the passages stand, one behind the other; None when one does not."""
    found: list[Span] = []
    position = 0
    for one in passages:
        start = text.find(one, position)
        if start < 0 or not one:
            return None
        position = start + len(one)
        found.append((start, position))
    return found or None


def _question_slot(plan: Plan, text: str, question: str) -> int | None:
    """Return the slot that holds the question alone, with blanks around it or an opening sign before it."""
    position = len(plan.literals[0])
    for index, literal in enumerate(plan.literals[1:]):
        end = len(text) - len(literal) if index == len(plan.literals) - 2 else text.find(literal, position)
        if end < 0:
            return None
        if index != plan.passages and text[position:end].strip().lstrip("¿¡") == question.lstrip("¿¡"):
            return index
        position = end + len(literal)
    return None


def _agrees(template: LearnedTemplate, text: str, known: Sequence[Context]) -> bool:
    """Whether the template reads a request: question and passages, and nothing of the prompt among them."""
    found = match(template, text)
    if found is None or not found.question or len(found.question) > _LONGEST_QUESTION:
        return False
    if known and not _same(found.contexts, [one.text for one in known]):
        return False
    if any(MASK in one.text for one in found.contexts):
        return False
    passages = template.slots.index("passages")
    return not has_remains_of_the_prompt(Plan(template.literals, passages, template.split, found.contexts, 1.0))


def _same(contexts: Sequence[Context], texts: Sequence[str]) -> bool:
    return [one.text.split() for one in contexts] == [one.split() for one in texts]

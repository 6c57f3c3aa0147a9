"""Learns prompt templates from an app's requests, and finds question and passages with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from gaugeway.exchange import Request
from gaugeway.prompts import Extraction, extraction
from gaugeway.prompts.learning.alignment import Signs, salted
from gaugeway.prompts.learning.evidence import Evidence
from gaugeway.prompts.learning.frames import Frame, Openings, frame_of
from gaugeway.prompts.learning.judge_marks import JudgingState, Marked, MarkedRequests
from gaugeway.prompts.learning.model import Found, LearnedTemplate, match
from gaugeway.prompts.learning.outline import Outline
from gaugeway.prompts.learning.plan_evidence import labels_of, question_of
from gaugeway.prompts.learning.plans import Plan, has_remains_of_the_prompt, template_of
from gaugeway.prompts.learning.skeletons import Reading, Skeleton, UnmatchedRequests, fits, read, signs_of
from gaugeway.prompts.sizes import FEW, MANY, OBJECT, REMEMBERED, SEVERAL, WORD
from gaugeway.records import Context

MAX_KINDS = 200
"""Most kinds of request, usually one per app, that are learned from at once."""
MAX_SKELETONS = 5
"""Most distinct prompts, and templates, of one kind."""
MAX_LEARNING_BYTES = 32 * 1024 * 1024
MAX_PROMPT_BYTES = 256 * 1024
"""Most bytes of evidence for one prompt; beyond that the evidence on its passages is dropped."""
SURE = 0.75
"""Confidence from which another extractor's passages must agree with a template."""

_LEAST_CONSTANT = WORD
"""Least letters of constant text of a prompt whose passages no other extractor confirms."""

_LEAST = 10
_COMPARED = SEVERAL
_WITHOUT = MANY
"""Requests without a new template, after which learning samples fewer requests."""
_MOST_STRIDE = 2 * SEVERAL
_SAME_LABEL = 2 * FEW
_UNUSED = 100
"""Requests of its kind after which a template that matched none is dropped."""
MOST_KINDS = REMEMBERED
"""Kinds of request whose passages are compared."""
_LEAST_REQUESTS = 5
_LEAST_CHANGES = FEW
SOURCE = "learned"
CONFIDENCE = 0.95


class OtherFinding(NamedTuple):
    """Passages and question another extractor found in the same request, and its confidence."""

    contexts: tuple[Context, ...]
    confidence: float
    question: str | None = None


class TemplateEvent(NamedTuple):
    """A template was learned, or no longer matches and was dropped (a confirmed one is marked stale instead).

    "asked": nothing was learned; `template` carries a request for the judge to mark.
    """

    kind: Literal["learned", "dropped", "stale", "asked"]
    template: LearnedTemplate


class _Prompt(msgspec.Struct):
    skeleton: Skeleton
    evidence: Evidence
    used: int = 0
    again: UnmatchedRequests = msgspec.field(default_factory=UnmatchedRequests)
    rival: Skeleton | None = None
    """Skeleton of later requests only: text the first ones shared by chance may hide words of the prompt."""
    judging: JudgingState = msgspec.field(default_factory=JudgingState)

    @property
    def size(self) -> int:
        return self.skeleton.size + self.evidence.size + self.again.size + (self.rival.size if self.rival else 0)

    def compare(self, reading: Reading, signs: Signs) -> None:
        """Build a second skeleton from later requests; replace the first when the second has more words and signs."""
        if self.rival is None:
            self.rival = self.again.add(reading, signs)
            return
        pairs = self.rival.match(reading, signs)
        if fits(self.rival, pairs):
            self.rival.refine(reading, pairs)
        if self.rival.seen >= _COMPARED:
            if self.rival.fixed > self.skeleton.fixed:
                self.rival.seen = self.skeleton.seen
                self.skeleton = self.rival
            self.again, self.rival = UnmatchedRequests(), None


class _Group(msgspec.Struct):
    """Requests that begin with the same instruction; one group holds all others."""

    waiting: UnmatchedRequests = msgspec.field(default_factory=UnmatchedRequests)
    prompts: list[_Prompt] = []
    requests: int = 0
    taught: int = 0
    """Number of the last request that led to a template."""
    stride: int = 1

    @property
    def size(self) -> int:
        return OBJECT + self.waiting.size + sum(prompt.size for prompt in self.prompts)

    def is_due(self) -> bool:
        """Whether to learn from this request; the stride doubles while nothing is learned."""
        if self.requests - self.taught > _WITHOUT * self.stride and self.stride < _MOST_STRIDE:
            self.stride *= 2
        return self.requests % self.stride == 0


class _Kind(msgspec.Struct):
    """All requests of an app with the same kind of frame."""

    openings: Openings = msgspec.field(default_factory=Openings)
    groups: OrderedDict[tuple[int, ...], _Group] = msgspec.field(default_factory=OrderedDict)
    requests: int = 0
    size: int = 0

    def group(self, opening: tuple[int, ...]) -> _Group:
        """Return the group of an opening; the least recently used of too many groups is dropped."""
        group = self.groups.setdefault(opening, _Group())
        self.groups.move_to_end(opening)
        if len(self.groups) > MAX_SKELETONS + 1:
            self.groups.popitem(last=False)
        return group

    def measured(self) -> int:
        """Return the growth in bytes since the last call."""
        now = 2 * OBJECT + self.openings.size + sum(group.size for group in self.groups.values())
        grown, self.size = now - self.size, now
        return grown


class _ActiveTemplate(msgspec.Struct):
    template: LearnedTemplate
    used: int
    same: set[int] | None = None
    """Hashes of the labels found in the passages of each of the last requests."""
    times: int = 0

    def has_grown(self, found: Found) -> bool:
        """Whether the passages of the last requests all contain the same label: the prompt got a new part there."""
        labels = {salted(label) for passage in found.contexts for label in labels_of(passage.text)}
        self.same = labels if self.same is None else self.same & labels
        self.times = self.times + 1 if self.same else 0
        if not self.same:
            self.same = None
        return self.times >= _SAME_LABEL


class Learner:
    """Matches requests with learned templates, and learns new ones. Not thread-safe; memory is bounded.

    `clock` dates templates (Unix seconds). Requests are held as salted hashes; `salt` should be random and secret. The
    constant texts of a template are kept once it is learned. With `asks` it reports requests for the judge to mark
    when it learns nothing.
    """

    def __init__(self, clock: Callable[[], float], salt: int, *, asks: bool = False) -> None:
        self._clock = clock
        self._salt = salt
        self._signs = signs_of(self._salt)
        self._marked = MarkedRequests(self._signs, salt) if asks else None
        self._kinds: OrderedDict[tuple[str, str], _Kind] = OrderedDict()
        self._live: dict[tuple[str, str], list[_ActiveTemplate]] = {}
        self._rejected: set[tuple[str, tuple[str, ...]]] = set()
        self._size = 0

    @property
    def size(self) -> int:
        """Approximate bytes held for learning, without the templates."""
        return self._size

    def templates(self) -> list[LearnedTemplate]:
        """Return the learned and loaded templates."""
        return [active.template for every in self._live.values() for active in every]

    def load(self, templates: Iterable[LearnedTemplate], marked: Iterable[Marked] = ()) -> None:
        """Replace all templates by those of the store. The prompt of a rejected one is not learned again.

        `marked` are the requests that the judge was asked to mark.
        """
        every = list(templates)
        if self._marked is not None:
            self._marked.load(marked)
        self._rejected = {(template.app, template.literals) for template in every if template.state == "rejected"}
        requests = {name: kind.requests for name, kind in self._kinds.items()}
        self._live = {}
        for template in every:
            if template.state != "rejected":
                name = template.app, template.kind
                self._live.setdefault(name, []).append(_ActiveTemplate(template, requests.get(name, 0)))

    def find(self, app: str, frame: Frame) -> Found | None:
        """Return what the newest matching template finds in the request; None if none matches."""
        for active in reversed(self._live.get((app, frame.kind), [])):
            if (found := match(active.template, frame.text)) is not None:
                return found
        return None

    def observe(self, app: str, frame: Frame, found: Found | None, known: OtherFinding | None) -> list[TemplateEvent]:
        """Learn from a request. `found` is the result of `find`, `known` that of another extractor."""
        name = app, frame.kind
        kind = self._kind(name)
        kind.requests += 1
        events = self._aged(name, kind, found)
        if found is None:
            group = kind.group(kind.openings.of(frame.text))
            group.requests += 1
            if group.is_due():
                events += self._learned(name, kind, group, frame, known)
            self._size += kind.measured()
            self._bounded()
        return events

    def _kind(self, name: tuple[str, str]) -> _Kind:
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind()
        self._kinds.move_to_end(name)
        while len(self._kinds) > MAX_KINDS:
            self._size -= self._kinds.popitem(last=False)[1].size
        return kind

    def _bounded(self) -> None:
        while self._size > MAX_LEARNING_BYTES and len(self._kinds) > 1:
            self._size -= self._kinds.popitem(last=False)[1].size

    def _aged(self, name: tuple[str, str], kind: _Kind, found: Found | None) -> list[TemplateEvent]:
        events: list[TemplateEvent] = []
        for active in list(self._live.get(name, ())):
            if found is not None and active.template.version == found.template.version:
                active.used = kind.requests
                if active.has_grown(found) and active.template.state != "confirmed":
                    events.append(self._dropped(name, active))
                if active.template.stale:
                    active.template = msgspec.structs.replace(active.template, stale=False)
            elif kind.requests - active.used > _UNUSED:
                if active.template.state != "confirmed":
                    events.append(self._dropped(name, active))
                elif not active.template.stale:
                    active.template = msgspec.structs.replace(active.template, stale=True)
                    events.append(TemplateEvent("stale", active.template))
        return events

    def _dropped(self, name: tuple[str, str], one: _ActiveTemplate) -> TemplateEvent:
        self._live[name].remove(one)
        if self._marked is not None:
            self._marked.refute(one.template.version)
        return TemplateEvent("dropped", one.template)

    def _learned(
        self, name: tuple[str, str], kind: _Kind, group: _Group, frame: Frame, known: OtherFinding | None
    ) -> list[TemplateEvent]:
        reading = read(frame.text, self._salt)
        best: tuple[int, _Prompt, list[tuple[int, int]]] | None = None
        for prompt in group.prompts:
            pairs = prompt.skeleton.match(reading, self._signs)
            if fits(prompt.skeleton, pairs) and (best is None or prompt.skeleton.weight(pairs) > best[0]):
                best = prompt.skeleton.weight(pairs), prompt, pairs
        if best is None:
            if (made := group.waiting.add(reading, self._signs)) is not None:
                group.prompts.append(_Prompt(made, Evidence(self._salt), used=kind.requests))
                if len(group.prompts) > MAX_SKELETONS:
                    group.prompts.remove(min(group.prompts, key=lambda one: one.used))
            return []
        _, prompt, pairs = best
        prompt.used = kind.requests
        prompt.skeleton.refine(reading, pairs)
        seen = prompt.skeleton.outline(reading, [place for _, place in pairs])
        prompt.compare(reading, self._signs)
        if seen is None:
            return []
        if prompt.size > MAX_PROMPT_BYTES:
            prompt.evidence.shrink()
        sure = known.contexts if known is not None and known.confidence >= SURE else ()
        said = prompt.evidence.add(seen, sure, known.question if known is not None else None)
        template = self._promoted(name, group, prompt, said)
        if template is not None:
            return self._taken(name, kind, template)
        return self._asked(name, kind, group, prompt, self._confirmed(name, prompt, seen, sure))

    def _confirmed(
        self, name: tuple[str, str], prompt: _Prompt, seen: Outline, known: Sequence[Context]
    ) -> LearnedTemplate | None:
        """Return a template confirmed by the judge's marks, or a request for it to mark."""
        if self._marked is None:
            return None
        return self._marked.consider(name, prompt.judging, prompt.skeleton, seen, known)

    def _asked(
        self, name: tuple[str, str], kind: _Kind, group: _Group, prompt: _Prompt, template: LearnedTemplate | None
    ) -> list[TemplateEvent]:
        """Adopt a template confirmed by the judge's marks, or report a request for it to mark."""
        if template is None or prompt not in group.prompts or self._is_rejected(template):
            return []
        template = msgspec.structs.replace(template, learned_at=self._clock())
        if not template.slots:
            return [TemplateEvent("asked", template)]
        self._learned_from(group, prompt)
        return self._taken(name, kind, template)

    def _promoted(
        self, name: tuple[str, str], group: _Group, prompt: _Prompt, said: dict[int, Plan]
    ) -> LearnedTemplate | None:
        """Return the template of a prompt once the evidence suffices."""
        key = prompt.evidence.best() if prompt.skeleton.seen >= _LEAST else None
        if key is None or (plan := said.get(key)) is None:
            return None
        entry = prompt.evidence.plans[key]
        asked = question_of(entry)
        if not entry.agreed and _says_little(plan.literals):
            return None
        if has_remains_of_the_prompt(plan):
            prompt.evidence.plans.pop(key)
            return None
        template = template_of(name, plan, asked, seen=prompt.skeleton.seen, at=self._clock())
        if self._is_rejected(template):
            group.prompts.remove(prompt)
            return None
        self._learned_from(group, prompt)
        return template

    def _is_rejected(self, template: LearnedTemplate) -> bool:
        return (template.app, template.literals) in self._rejected

    def _learned_from(self, group: _Group, prompt: _Prompt) -> None:
        group.prompts.remove(prompt)
        group.taught, group.stride = group.requests, 1

    def _taken(self, name: tuple[str, str], kind: _Kind, template: LearnedTemplate) -> list[TemplateEvent]:
        """Use a new template from now on."""
        live = self._live.setdefault(name, [])
        if any(active.template.version == template.version for active in live):
            return []
        live.append(_ActiveTemplate(template, kind.requests))
        events = [TemplateEvent("learned", template)]
        if len(live) > MAX_SKELETONS and (old := [active for active in live if active.template.state != "confirmed"]):
            oldest = min(old, key=lambda one: one.used)
            live.remove(oldest)
            events.append(TemplateEvent("dropped", oldest.template))
        return events


def _says_little(literals: Sequence[str]) -> bool:
    """Whether a prompt has hardly any constant text: what comes again may be prompts then, as those of many tenants."""
    letters = sum(letter.isalpha() for literal in literals for letter in literal)
    return letters < _LEAST_CONSTANT


class _Seen(msgspec.Struct):
    fixed: dict[int, tuple[int, int]] = {}
    """Hash of what stood in each of the last `requests` requests -> its place from the first and from the last one.

    -1 where that place varied. What changed both is data that was retrieved each time.
    """
    last: set[int] = set()
    requests: int = 0
    changes: int = 0


class ConstantPassages:
    """Compares the passages of the requests of each kind; holds hashes of them. Not thread-safe; memory is bounded."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, str], _Seen] = OrderedDict()

    def without(self, kind: tuple[str, str], contexts: tuple[Context, ...]) -> tuple[Context, ...]:
        """Return the passages without those that each of the last requests had in the same place.

        All, if the others never changed.
        """
        hashes = [salted(context.text) for context in contexts]
        now = {key: (index, len(hashes) - index) for index, key in enumerate(hashes)}
        seen = self._kinds.setdefault(kind, _Seen())
        self._kinds.move_to_end(kind)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        seen.fixed = {
            key: there for key, place in seen.fixed.items() if (there := _same(place, now.get(key))) != (-1, -1)
        }
        if not seen.fixed:
            self._kinds[kind] = _Seen(now, set(now), 1)
            return contexts
        seen.changes += set(now) != seen.last
        seen.requests += 1
        seen.last = set(now)
        shown = seen.requests >= _LEAST_REQUESTS and seen.changes >= _LEAST_CHANGES
        if not shown or seen.fixed.keys() == seen.last:
            return contexts
        return tuple(context for context, key in zip(contexts, hashes, strict=True) if key not in seen.fixed)


def _same(place: tuple[int, int], now: tuple[int, int] | None) -> tuple[int, int]:
    """Return a passage's place with -1 where it is another one now."""
    if now is None:
        return -1, -1
    return place[0] if place[0] == now[0] else -1, place[1] if place[1] == now[1] else -1


class LearnedCapture:
    """Extracts with the templates of a learner, and feeds it requests. `report` receives its events."""

    def __init__(self, learner: Learner, report: Callable[[TemplateEvent], None]) -> None:
        self.learner = learner
        self._report = report
        self._constant = ConstantPassages()

    def extract(self, app: str, request: Request, otherwise: Callable[[], Extraction], *, learns: bool) -> Extraction:
        """Return what a learned template finds in the request; if none matches, the result of `otherwise`.

        `otherwise` runs the other extractors, which costs several times as much. With `learns` false the learner does
        not see the request.
        """
        if (frame := frame_of(request)) is None:
            return otherwise()
        learned = self.learner.find(app, frame)
        found = self._varying(app, frame, otherwise()) if learned is None else _extraction(request, learned)
        if learns:
            known = (
                OtherFinding(found.contexts, found.confidence, found.question)
                if learned is None and found.contexts
                else None
            )
            for event in self.learner.observe(app, frame, learned, known):
                self._report(event)
        return found

    def _varying(self, app: str, frame: Frame, found: Extraction) -> Extraction:
        """Leave out what is the same in all requests of the app."""
        if len(found.contexts) <= 1:
            return found
        return replace(found, contexts=self._constant.without((app, frame.kind), found.contexts))


def _extraction(request: Request, found: Found) -> Extraction:
    template = found.template
    explicit = request.explicit.question if request.explicit else None
    return extraction(
        explicit or found.question,
        found.contexts,
        source=SOURCE,
        marker=f"learned template {template.version}",
        confidence=CONFIDENCE,
        reason=f"the app's own prompt, learned from {template.seen} requests",
    )

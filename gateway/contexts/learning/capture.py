"""Capture with learned templates: a match replaces the result of the other extractors.

Of theirs, passages that are the same in all requests of an app are left out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.contexts import Extraction, extraction
from gateway.contexts.learning.alignment import salted
from gateway.contexts.learning.frames import Frame, frame_of
from gateway.contexts.learning.learner import Learner, OtherFinding, TemplateEvent
from gateway.contexts.learning.model import Found
from gateway.exchange import Request
from monitors.records import Context

MOST_KINDS = 1_000
"""Kinds of request whose passages are compared."""
_LEAST_REQUESTS = 5
_LEAST_CHANGES = 3
SOURCE = "learned"
CONFIDENCE = 0.95


@dataclass(slots=True)
class _Seen:
    common: set[int] = field(default_factory=set)
    """Hashes of what stood in each of the last `requests` requests."""
    last: set[int] = field(default_factory=set)
    requests: int = 0
    changes: int = 0


class ConstantPassages:
    """Compares the passages of the requests of each kind; holds hashes of them. Not thread-safe; memory is bounded."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, str], _Seen] = OrderedDict()

    def without(self, kind: tuple[str, str], contexts: tuple[Context, ...]) -> tuple[Context, ...]:
        """Return the passages without those that each of the last requests had too, all if the others never changed."""
        hashes = [salted(context.text) for context in contexts]
        seen = self._kinds.setdefault(kind, _Seen())
        self._kinds.move_to_end(kind)
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
        now = set(hashes)
        if not seen.common & now:
            self._kinds[kind] = _Seen(now, now, 1)
            return contexts
        seen.common &= now
        seen.changes += now != seen.last
        seen.requests += 1
        seen.last = now
        if seen.requests < _LEAST_REQUESTS or seen.changes < _LEAST_CHANGES or seen.common == now:
            return contexts
        return tuple(context for context, key in zip(contexts, hashes, strict=True) if key not in seen.common)


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
            known = OtherFinding(found.contexts, found.confidence) if learned is None and found.contexts else None
            for event in self.learner.observe(app, frame, learned, known):
                self._report(event)
        return found

    def _varying(self, app: str, frame: Frame, found: Extraction) -> Extraction:
        """Leave out what is the same in all requests of the app."""
        if len(found.contexts) < 2:  # noqa: PLR2004 - one passage may be all there is
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

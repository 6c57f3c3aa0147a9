"""Capture with learned templates: a match replaces the result of the other extractors."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from gateway.contexts import Extraction, extraction
from gateway.contexts.learning.constant_passages import ConstantPassages
from gateway.contexts.learning.frames import Frame, frame_of
from gateway.contexts.learning.learner import Learner, OtherFinding, TemplateEvent
from gateway.contexts.learning.model import Found
from gateway.exchange import Request

SOURCE = "learned"
CONFIDENCE = 0.95


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

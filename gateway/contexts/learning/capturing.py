"""Learned templates at work: what was extracted from a request is replaced by what its app's own prompt says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gateway.contexts import Extraction
from gateway.contexts.bounds import extraction
from gateway.contexts.learning.frames import frame_of
from gateway.contexts.learning.learner import Known, Learner, TemplateEvent
from gateway.exchange import Request

SOURCE = "learned"
CONFIDENCE = 0.95
SAID = frozenset({"explicit", "tools", "results", "patterns"})
"""Sources that leave nothing to be learned: the app or its user says where the passages are."""


class LearnedCapture:
    """Reads requests with the templates of a learner, and lets it learn. `report` is told of what comes and goes."""

    def __init__(self, learner: Learner, report: Callable[[TemplateEvent], None] | None = None) -> None:
        self.learner = learner
        self._report = report

    def extract(self, app: str, request: Request, otherwise: Callable[[], Extraction], *, learns: bool) -> Extraction:
        """Return what a learned template finds in the request, else what `otherwise`, the other extractors, finds.

        Where a template fits, `otherwise` is not called: it costs several times as much. Without `learns` the request
        teaches nothing: its answer is not one to a user.
        """
        if (frame := frame_of(request)) is None:
            return otherwise()
        learned = self.learner.find(app, frame)
        found = otherwise() if learned is None else None
        if found is not None and found.source in SAID:
            return found
        if learns:
            known = Known(found.contexts, found.confidence) if found is not None and found.contexts else None
            for event in self.learner.observe(app, frame, learned, known):
                if self._report is not None:
                    self._report(event)
        if learned is None or found is not None:
            return found or otherwise()
        template = learned.template
        explicit = request.explicit.question if request.explicit else None
        kept = extraction(
            explicit or learned.question, learned.contexts, source=SOURCE, marker=f"learned template {template.version}"
        )
        reason = f"the app's own prompt, learned from {template.seen} requests"
        return replace(kept, confidence=CONFIDENCE, reason=reason)

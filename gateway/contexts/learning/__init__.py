"""Templates learned from traffic: what an app's requests have in common is its prompt, what varies are its slots.

Pure and bounded, in the process that samples. `frame_of` takes from a request the texts that are compared,
`Learner.find` reads a frame with the templates that were learned, `Learner.observe` learns from it; `LearnedCapture`
does both. Nothing but salted hashes of a request is kept; the constant texts of a template are taken from the request
that completes the evidence for it.
"""

from __future__ import annotations

from gateway.contexts.learning.capture import LearnedCapture
from gateway.contexts.learning.frames import Frame, frame_of
from gateway.contexts.learning.judge_marks import Marked
from gateway.contexts.learning.learner import Learner, OtherFinding, TemplateEvent
from gateway.contexts.learning.model import Found, LearnedTemplate, match

__all__ = [
    "Found",
    "Frame",
    "LearnedCapture",
    "LearnedTemplate",
    "Learner",
    "Marked",
    "OtherFinding",
    "TemplateEvent",
    "frame_of",
    "match",
]

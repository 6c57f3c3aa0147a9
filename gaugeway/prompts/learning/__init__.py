"""Prompt templates learned from traffic: the text an app's requests share is its prompt, the rest are its slots.

Pure and bounded; runs in the sampler process. `frame_of` returns the texts of a request that are compared,
`Learner.find` matches a frame with the learned templates, `Learner.observe` learns from it; `LearnedCapture` does both.
Only salted hashes of requests are kept; the constant texts of a template are taken from the request that completes the
evidence for it.
"""

from __future__ import annotations

from gaugeway.prompts.learning.capture import LearnedCapture
from gaugeway.prompts.learning.frames import Frame, frame_of
from gaugeway.prompts.learning.judge_marks import Marked
from gaugeway.prompts.learning.learner import Learner, OtherFinding, TemplateEvent
from gaugeway.prompts.learning.model import Found, LearnedTemplate, match

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

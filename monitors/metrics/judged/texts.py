"""Which of a sample's texts there is anything to judge in."""

from __future__ import annotations

from typing import Literal, TypeAlias

from monitors.records import Sample, Skipped

Part: TypeAlias = Literal["response", "question", "reference", "contexts"]


def sent_contexts(sample: Sample) -> list[int]:
    """The indexes of the contexts that have any text: those a judge sees, and the denominators count."""
    return [index for index, context in enumerate(sample.contexts) if context.text.strip()]


def unanswered(sample: Sample, *parts: Part) -> Skipped | None:
    """The outcome for a sample in which one of these parts has no text: `no_response`, `no_question` ..."""
    for part in parts:
        there = sent_contexts(sample) if part == "contexts" else (getattr(sample, part) or "").strip()
        if not there:
            return Skipped(f"no_{part}")
    return None

"""Which of a sample's texts there is anything to judge in."""

from __future__ import annotations

from monitors.records import Sample


def sent_contexts(sample: Sample) -> list[int]:
    """The indexes of the contexts that have any text: those a judge sees, and the denominators count."""
    return [index for index, context in enumerate(sample.contexts) if context.text.strip()]

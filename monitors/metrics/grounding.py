"""Grounding: how much of the response a verifier finds supported by its contexts, sentence by sentence."""

from __future__ import annotations

import asyncio
import math
from itertools import islice
from typing import Any

from gaugeway.records import Sample, Score, Skipped
from gaugeway.text.lexical.sentences import sentences as sentences_of
from monitors.judges.grounding import CONTRADICTION, Material, Span, Support, TooLongError, Verifier
from monitors.judges.grounding.documents import whole
from monitors.judges.middleware.limits import DEADLINE, Deadline
from monitors.metrics.judged.prompts import sent_contexts, unanswered

MAX_SENTENCES = 200
"""Sentences that are verified; a response with more is skipped as "too_long"."""
MAX_CHARACTERS = 60_000
"""Of a response."""
_LONG = 8_000
"""Characters from which a response is cut into sentences in a thread: half a second at worst."""
MAX_SPANS_SHOWN = 20
"""Unsupported spans in the evidence of one sentence."""
SUPPORTED = 0.5
"""Least support of a sentence that counts as supported in reason and evidence; the score is the mean itself."""


class Grounding:
    """The mean over the response's sentences, questions aside, of the support that the verifier gives each, in [0, 1].

    It is computed for all traffic: budget and back-pressure do not lower its rate. `deadline_s` bounds the calls for
    one response.
    """

    name = "grounding"
    on_by_default = True
    measures = "answer"
    covariate_rank = 1
    verifies = True

    def __init__(self, verifier: Verifier, *, deadline_s: float = 60.0) -> None:
        if not (math.isfinite(deadline_s) and deadline_s > 0.0):
            raise ValueError("deadline_s: is greater than 0")
        self._verifier = verifier
        self._deadline_s = deadline_s
        self.judge = verifier.model
        self.version = f"1-{verifier.version}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "response", "contexts")) is not None:
            return skipped
        if len(sample.response) > MAX_CHARACTERS:
            return Skipped("too_long")
        answer, question = whole([sample.response, sample.question or ""])
        sentences = await asyncio.to_thread(_stated, answer) if len(answer) > _LONG else _stated(answer)
        if not sentences:
            return Skipped("no_claims")
        indexes = sent_contexts(sample)
        passages = whole([sample.contexts[index].text for index in indexes])
        if len(sentences) > MAX_SENTENCES:
            return Skipped("too_long")
        token = DEADLINE.set(Deadline(self._deadline_s))
        try:
            found = await self._verifier.verify(
                Material(question=question, passages=passages, answer=answer, sentences=sentences)
            )
        except TooLongError:
            return Skipped("too_long")
        finally:
            DEADLINE.reset(token)
        value = math.fsum(support.score for support in found) / len(found)
        least = min(support.score for support in found)
        poor = sum(support.score < SUPPORTED for support in found)
        reason = f"{len(found) - poor} of {len(found)} sentences are supported (lowest score {least:.2f})"
        evidence = tuple(
            _evidence(answer, place, support, indexes) for place, support in zip(sentences, found, strict=True)
        )
        return Score(min(1.0, max(0.0, value)), reason, evidence)


def _stated(answer: str) -> tuple[tuple[int, int], ...]:
    """Return the places of the sentences that are no questions: one more than may be verified, at most."""
    asking = ("?", "\uff1f", "\u061f")
    stated = ((start, end) for start, end, _ in sentences_of(answer) if not answer.endswith(asking, start, end))
    return tuple(islice(stated, MAX_SENTENCES + 1))


def _evidence(answer: str, place: tuple[int, int], support: Support, indexes: list[int]) -> dict[str, object]:
    spans = _joined(answer, [span for span in support.spans if span.score >= SUPPORTED])
    if support.score >= SUPPORTED:
        verdict = "supported"
    else:
        contradicted = any(span.category == CONTRADICTION for span in spans)
        verdict = "contradicted" if contradicted else "not_mentioned"
    contexts = [indexes[index] for index in dict.fromkeys(support.passages)]
    return {
        "claim": answer[slice(*place)],
        "verdict": verdict,
        "score": round(support.score, 4),
        "start": place[0],
        "end": place[1],
        # Only where it is known: a sentence checked against several passages at once names none.
        "contexts": contexts if len(contexts) == 1 else [],
        "spans": [_span(answer, span) for span in spans[:MAX_SPANS_SHOWN]],
    }


def _joined(answer: str, spans: list[Span]) -> list[Span]:
    """Join neighbouring spans without a category, which are the tokens of an encoder."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is not None and not (last.category or span.category or answer[last.end : span.start].strip()):
            joined[-1] = Span(start=last.start, end=span.end, score=max(last.score, span.score))
        else:
            joined.append(span)
    return joined


def _span(answer: str, span: Span) -> dict[str, Any]:
    found = {"text": answer[span.start : span.end], "start": span.start, "end": span.end, "score": round(span.score, 4)}
    kinds = {"category": span.category, "subcategory": span.subcategory}
    return found | {key: kind for key, kind in kinds.items() if kind}

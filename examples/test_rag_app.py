"""How a RAG team tests its answers: `pytest examples/test_rag_app.py`."""

from __future__ import annotations

from examples.rules import RuleJudge
from monitors.testing import gaugeway_case

PASSAGES = ["All lamps have a warranty of two years. Bulbs are excluded."]


def answer(question: str) -> str:
    """A stand-in for the app under test."""
    return "All lamps have a warranty of two years." if "warranty" in question else "I do not know."


def test_the_warranty_is_answered_from_the_passage() -> None:
    """Without a judge: `lexical_groundedness`."""
    question = "How long is the warranty?"
    gaugeway_case(question=question, response=answer(question), contexts=PASSAGES, fail_under=0.7)


def test_nothing_is_invented() -> None:
    """With a judge; yours would be `gaugeway.settings.shared.Judge(base_url=..., model=...)`."""
    question = "How long is the warranty?"
    case = gaugeway_case(
        question=question,
        response=answer(question),
        contexts=PASSAGES,
        metrics=["faithfulness", "hallucination"],
        fail_under={"faithfulness": 0.9, "hallucination": 0.0},
        judge=RuleJudge(),
    )
    assert case.scores["faithfulness"] == 1.0  # noqa: S101 - a test
